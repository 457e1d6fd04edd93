# SPDX-License-Identifier: Apache-2.0
"""Ceilings: 600 lines for a file, 60 for a function's body; and no module whose name says nothing."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).resolve().parents[2]
MAX_FILE_LINES = 600
MAX_BODY_LINES = 60
SAYS_NOTHING = {"utils", "util", "helpers", "helper", "common", "base", "config", "misc"}

MODULES = sorted(path for folder in ("curator_df", "tests", "benchmarks") for path in (CHECKOUT / folder).rglob("*.py"))


def name_of(path: Path) -> str:
    return path.relative_to(CHECKOUT).as_posix()


def body_lines(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Return the lines from the first statement after the docstring to the last."""
    body = function.body[1:] if ast.get_docstring(function) is not None else function.body
    return (body[-1].end_lineno or 0) - body[0].lineno + 1 if body else 0


def too_long(source: str) -> list[str]:
    functions = [
        node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    return [f"{node.name}: {body_lines(node)} lines" for node in functions if body_lines(node) > MAX_BODY_LINES]


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_file_is_short(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= MAX_FILE_LINES


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_functions_are_short(path: Path) -> None:
    assert not too_long(path.read_text())


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_name_says_what_it_is(path: Path) -> None:
    parts = path.relative_to(CHECKOUT).with_suffix("").parts
    assert not SAYS_NOTHING.intersection(word for part in parts for word in part.split("_"))


@pytest.mark.parametrize("path", [path for path in MODULES if path.stat().st_size], ids=name_of)
def test_licence_is_named_in_the_first_line(path: Path) -> None:
    assert path.read_text().startswith("# SPDX-License-Identifier: Apache-2.0\n")


def test_a_long_body_is_found_and_its_docstring_is_free() -> None:
    text = "\n".join(["    more"] * 100)
    statements = "\n".join(["    x = 1"] * MAX_BODY_LINES)
    assert not too_long(f'def f():\n    """Say.\n{text}\n    """\n{statements}\n')
    assert too_long(f"async def f():\n{statements}\n    x = 1\n") == ["f: 61 lines"]
