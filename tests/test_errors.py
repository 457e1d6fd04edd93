# SPDX-License-Identifier: Apache-2.0
import errno
import inspect
import logging
import re
import sys
import warnings
from pathlib import Path

import cloudpickle
import distributed  # noqa: F401 - it changes how exceptions are pickled
import pytest

from curator_df import cli, errors

CLASSES = [
    value for value in vars(errors).values() if inspect.isclass(value) and issubclass(value, errors.CuratorError)
]


def test_errors_travel_from_workers_with_what_they_carry():
    for kind in CLASSES:
        error = kind("what happened")
        error.path = "a.jsonl"
        again = cloudpickle.loads(cloudpickle.dumps(error))
        assert (type(again), str(again), again.path) == (kind, "what happened", "a.jsonl")


def test_the_drawing_of_the_tree_lists_every_error_with_its_built_in():
    lines = errors.__doc__.splitlines()
    drawn = {kind: [line for line in lines if re.search(rf" {kind.__name__}\b", line)] for kind in CLASSES}
    assert [kind.__name__ for kind, found in drawn.items() if not found] == []
    missing = [
        (kind.__name__, base.__name__)
        for kind, found in drawn.items()
        for base in kind.__bases__
        if base not in (errors.CuratorError, Exception) and f"({base.__name__})" not in found[0]
    ]
    assert missing == []


def test_every_error_has_an_exit_code_of_its_own():
    assert [
        kind for kind in CLASSES if kind not in errors.EXIT_CODES
    ] == []  # and not that of a base: nobody decided for it
    assert all(errors.exit_code(kind("what happened")) == errors.EXIT_CODES[kind] for kind in CLASSES)


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


def test_nothing_is_logged_after_the_error(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(sys, "argv", ["curator-df", "curate", str(tmp_path / "nowhere"), str(tmp_path / "out")])
    for module, name in ((sys, "stdout"), (sys, "stderr"), (warnings, "showwarning")):  # which the program replaces
        monkeypatch.setattr(module, name, getattr(module, name))
    try:
        with pytest.raises(SystemExit):
            cli.main()
        assert not logging.getLogger("distributed.nanny").isEnabledFor(logging.CRITICAL)
    finally:
        logging.disable(logging.NOTSET)
    assert capsys.readouterr().err.splitlines()[-1].startswith("InputError: ")
