# SPDX-License-Identifier: Apache-2.0
"""Ceilings: 600 lines for a file, 60 for a body, 25 modules for a folder; and no module or folder whose name says nothing."""

from __future__ import annotations

import ast
import functools
from collections import Counter
from collections.abc import Callable
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[2]
MAX_FILE_LINES = 600
MAX_BODY_LINES = 60
MAX_FOLDER_MODULES = 25
SAYS_NOTHING = {"utils", "util", "helpers", "helper", "common", "base", "config", "misc"}

LICENSE_LINE = "# SPDX-License-Identifier: Apache-2.0"


@functools.cache
def sources() -> dict[Path, str]:
    """Return the text of every file of the package, the tests and the benchmarks."""
    files = (path for folder in ("curator_df", "tests", "benchmarks") for path in (CHECKOUT / folder).rglob("*.py"))
    return {path: path.read_text() for path in sorted(files)}


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


def offenders(rule: Callable[[Path, str], object]) -> list[str]:
    """Return every file of the package, the tests and the benchmarks in which a rule finds something, with what it found."""
    return [f"{name_of(path)}: {found}" for path, text in sources().items() if (found := rule(path, text))]


def test_files_are_short() -> None:
    def excess(_: Path, text: str) -> str:
        lines = len(text.splitlines())
        return f"{lines} lines" if lines > MAX_FILE_LINES else ""

    assert offenders(excess) == []


def test_functions_are_short() -> None:
    assert offenders(lambda _, text: too_long(text)) == []


def test_folders_of_the_package_hold_more_than_one_thing_and_fit_one_screen() -> None:
    """A folder counts its modules and the folders below it."""
    package = CHECKOUT / "curator_df"
    modules = [path.relative_to(package) for path in sources() if package in path.parents and path.stem != "__init__"]
    folders = {folder for path in modules for folder in path.parents}
    held = Counter(path.parent for path in modules) + Counter(folder.parent for folder in folders - {Path()})
    assert {str(folder): number for folder, number in held.items() if not 1 < number <= MAX_FOLDER_MODULES} == {}


def test_names_say_what_they_are() -> None:
    def empty_words(path: Path, _: str) -> set[str]:
        parts = path.relative_to(CHECKOUT).with_suffix("").parts
        return SAYS_NOTHING.intersection(word for part in parts for word in part.split("_"))

    assert offenders(empty_words) == []


def test_license_is_named_in_the_first_line() -> None:
    def first_line(_: Path, text: str) -> str:
        line = text.partition("\n")[0]
        return "" if not text or line == LICENSE_LINE else f"begins with {line!r}"

    assert offenders(first_line) == []


def test_the_rules_look_at_the_package_the_tests_and_the_benchmarks() -> None:
    names = {name_of(path) for path in sources()}
    assert {"curator_df/cli.py", "tests/conftest.py", "benchmarks/scaling.py"} <= names
    assert offenders(lambda path, _: path == Path(__file__).resolve()) == ["tests/contracts/test_size_limits.py: True"]


def test_a_long_body_is_found_and_its_docstring_is_free() -> None:
    text = "\n".join(["    more"] * 100)
    statements = "\n".join(["    x = 1"] * MAX_BODY_LINES)
    assert not too_long(f'def f():\n    """Say.\n{text}\n    """\n{statements}\n')
    assert too_long(f"async def f():\n{statements}\n    x = 1\n") == ["f: 61 lines"]
