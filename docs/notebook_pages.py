# SPDX-License-Identifier: Apache-2.0
"""Make a page of the site of each notebook, with its outputs where it was executed.

The tests execute notebooks, and leave them in the folder that the environment variable ``CURATOR_DF_NOTEBOOKS`` names. A notebook
whose cells differ from those, or that was not executed, is shown without outputs.
"""

from __future__ import annotations

import ast
import html
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbformat

DOCS = Path(__file__).parent
NOTEBOOKS = DOCS.parent / "notebooks"
PAGES = DOCS / "notebooks"
"""Folder of the pages, which git ignores; their names end in ``.myst``, so that tests of the pages in git leave them out."""
VARIABLE = "CURATOR_DF_NOTEBOOKS"
_ESCAPES = re.compile(r"\x1b\[[0-9;]*m")


def write_pages() -> list[str]:
    """Write the pages; return the names of the notebooks that have outputs."""
    PAGES.mkdir(exist_ok=True)
    executed = os.environ.get(VARIABLE)
    shown = []
    for path in sorted(NOTEBOOKS.glob("*.ipynb")):
        notebook = nbformat.read(path, 4)
        if executed and (run := _executed(Path(executed, path.name), notebook)) is not None:
            notebook = run
            shown.append(path.name)
        text, page = page_of(notebook), PAGES / f"{path.stem}.myst"
        if not page.exists() or page.read_text() != text:
            page.write_text(text)
    return shown


def _executed(path: Path, notebook: Any) -> Any | None:
    if not path.exists():
        return None
    run = nbformat.read(path, 4)
    same = [cell.source for cell in run.cells] == [cell.source for cell in notebook.cells]
    return run if same else None


def page_of(notebook: Any) -> str:
    """Return a notebook as Markdown. Checks at the end of a cell, which are for the tests, are left out."""
    parts = []
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            parts.append(cell.source)
        elif cell.cell_type == "code" and (source := without_checks(cell.source)):
            parts.append(_fenced("python", source))
            parts += _outputs(cell.outputs)
    return "\n\n".join(parts) + "\n"


def without_checks(source: str) -> str:
    r"""Return the code of a cell without its ``assert`` statements.

    Examples
    --------
    >>> without_checks("a = 1\nassert a == (\n    1\n)\nb = 2")
    'a = 1\nb = 2'
    """
    lines = source.split("\n")
    for statement in reversed(ast.parse(source).body):
        if isinstance(statement, ast.Assert):
            del lines[statement.lineno - 1 : statement.end_lineno]
    return "\n".join(lines).strip("\n")


def _outputs(outputs: list[Any]) -> Iterator[str]:
    for output in outputs:
        data = output.get("data", {})
        if "image/png" in data:
            yield _fenced("{raw} html", f'<img src="data:image/png;base64,{data["image/png"].strip()}" alt="Plot">')
        elif "text/html" in data:
            yield _fenced("{raw} html", f'<div style="overflow-x: auto">\n{data["text/html"]}\n</div>')
        elif text := data.get("text/plain") or (output.get("text", "") if output.get("name") == "stdout" else ""):
            yield _fenced("{raw} html", f"<pre>{html.escape(_ESCAPES.sub('', text)).rstrip()}</pre>")


def _fenced(kind: str, text: str) -> str:
    longest = max((len(found) for found in re.findall(r"`{3,}", text)), default=2)
    fence = "`" * (longest + 1)
    return f"{fence}{kind}\n{text}\n{fence}"
