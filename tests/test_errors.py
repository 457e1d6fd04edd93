# SPDX-License-Identifier: Apache-2.0
import errno
import inspect
import re
from pathlib import Path

import cloudpickle
import distributed  # noqa: F401 - it changes how exceptions are pickled
import pytest

from curator_df import errors

CLASSES = [
    value for value in vars(errors).values() if inspect.isclass(value) and issubclass(value, errors.CuratorError)
]


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_errors_travel_from_workers_with_what_they_carry(kind):
    error = kind("what happened")
    error.path = "a.jsonl"
    again = cloudpickle.loads(cloudpickle.dumps(error))
    assert type(again) is kind
    assert str(again) == "what happened"
    assert again.path == "a.jsonl"


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_the_drawing_of_the_tree_lists_every_error_with_its_built_in(kind):
    line = next(line for line in errors.__doc__.splitlines() if f" {kind.__name__}" in line)
    built_ins = [base.__name__ for base in kind.__bases__ if base is not errors.CuratorError and base is not Exception]
    assert all(f"({name})" in line for name in built_ins)


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_every_error_has_an_exit_code_of_its_own(kind):
    assert kind in errors.EXIT_CODES  # and not only that of a base, which nobody decided for it
    assert errors.exit_code(kind("what happened")) == errors.EXIT_CODES[kind]


class Wrapped(errors.BudgetError):
    pass


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (Wrapped("of a subclass"), 2),
        (MemoryError(), 2),
        (KeyboardInterrupt(), 130),
        (BrokenPipeError(), 141),
        (PermissionError(13, "no"), 2),
        (OSError(errno.EIO, "a read failed"), 1),
        (OSError(errno.ENOSPC, "full"), 1),
        (OSError(errno.EROFS, "read-only"), 2),
        (ConnectionResetError(), 1),
        (TimeoutError(), 1),
        (ModuleNotFoundError("torch"), 2),
        (ZeroDivisionError(), 70),
        (ValueError("of a library"), 70),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else "",
)
def test_exceptions_of_others_have_an_exit_code_too(error, code):
    assert errors.exit_code(error) == code


def test_the_table_of_exit_codes_on_the_clusters_page_is_the_one_in_the_code():
    page = (Path(__file__).parents[1] / "docs/clusters.md").read_text()
    said = dict(re.findall(r"^\| (\d+) \| (.*) \|.*\|$", page, re.MULTILINE))
    listed = {
        name: int(code) for code, text in said.items() for name in re.findall(r"`(\w+(?:Error|Interrupt))`", text)
    }
    assert listed == {kind.__name__: code for kind, code in errors.EXIT_CODES.items()}
    assert {int(code) for code in said} == {0, errors.UNEXPECTED, *errors.EXIT_CODES.values()}
