# SPDX-License-Identifier: Apache-2.0
"""Lines of the user in errors that travel from workers."""

from __future__ import annotations

import functools
import linecache
import pickle
import traceback

import cloudpickle
import pytest
import tblib.pickling_support

from curator_df.core.user_frames import MOST_FRAMES, codes_in, keep_user_frames, with_user_frames


def cell(source: str, filename: str = "/tmp/cells/7.py") -> dict:
    """Run a cell as IPython does, whose source is known by the name of its file; return its names."""
    names: dict = {"__name__": "__main__"}
    exec(compile(source, filename, "exec"), names)
    linecache.cache[filename] = (len(source), None, source.splitlines(keepends=True), filename)
    return names


CELL = """
def inner(values):
    return 1 / len(values)

def outer(values):
    return inner(values)

class Counter:
    def count(self, values):
        return values["nope"]
"""


def raised(call) -> BaseException:
    """Return the error of a call that was pickled by value and run elsewhere, as it arrives."""
    try:
        cloudpickle.loads(cloudpickle.dumps(call))()
    except Exception as exc:  # noqa: BLE001 - whatever the call raises
        keep_user_frames(exc)
        return cloudpickle.loads(cloudpickle.dumps(exc))
    raise AssertionError


def frames_of(exc: BaseException) -> list[tuple[str, int, str, str]]:
    return [(each.filename, each.lineno, each.name, each.line) for each in traceback.extract_tb(exc.__traceback__)]


def test_lines_of_functions_that_were_pickled_by_value_are_found_in_what_was_sent():
    names = cell(CELL)
    call = functools.partial(names["outer"], [])
    located = with_user_frames(raised(call), {"steps": [call]})
    assert [frame for frame in frames_of(located) if frame[0].endswith("7.py")] == [
        ("/tmp/cells/7.py", 6, "outer", "return inner(values)"),
        ("/tmp/cells/7.py", 3, "inner", "return 1 / len(values)"),
    ]
    text = "".join(traceback.format_exception(located))
    assert "return 1 / len(values)" in text
    assert "^" not in text
    assert "user_frames" not in vars(located)


def test_methods_and_closures_are_found():
    names = cell(CELL, "/tmp/cells/8.py")
    method = functools.partial(names["Counter"]().count, {})
    assert frames_of(with_user_frames(raised(method), method))[-1][:3] == ("/tmp/cells/8.py", 10, "count")
    inside = names["outer"]

    def wrapped():
        return inside([])

    assert frames_of(with_user_frames(raised(wrapped), [wrapped]))[-1][:3] == ("/tmp/cells/8.py", 3, "inner")


def test_a_line_that_nobody_sent_has_no_source_and_is_not_taken_for_another():
    exc = raised(functools.partial(cell(CELL)["outer"], []))
    other = cell(CELL.replace("\ndef inner", "\n\n\n\n\n\n\n\n\ndef inner"), "/tmp/cells/9.py")["outer"]
    assert [frame[0] for frame in frames_of(with_user_frames(exc, other))][-1] == "<dynamic-code>"


def test_an_error_in_a_library_alone_keeps_its_innermost_frame():
    with pytest.raises(AttributeError) as found:
        linecache.updatecache(7)
    found.value.__traceback__ = found.value.__traceback__.tb_next  # without the frame of this test
    keep_user_frames(found.value)
    assert [frame[2] for frame in found.value.user_frames] == ["updatecache"]


def test_frames_of_a_cause_come_first_and_a_recursion_is_cut():
    def deeper(depth: int) -> None:
        if not depth:
            raise KeyError("x")
        deeper(depth - 1)

    with pytest.raises(KeyError) as found:
        deeper(50)
    error = ValueError("y")
    error.__cause__ = found.value
    keep_user_frames(error)
    assert len(error.user_frames) == MOST_FRAMES
    assert {frame[2] for frame in error.user_frames} == {"deeper"}
    assert found.value.__traceback__ is None


def test_an_error_without_frames_is_left_as_it_is():
    error = ValueError("no")
    assert with_user_frames(error, None) is error
    assert error.__traceback__ is None


def test_functions_of_libraries_are_not_searched():
    assert list(codes_in([linecache.getline, functools.partial(traceback.print_exc)])) == []


def decode():
    return b"caf\xe9".decode()


def parse():
    return compile("1 +", "rule", "eval")


def chained():
    try:
        "\ud800".encode()
    except UnicodeError as exc:
        raise ValueError("a row") from exc


class OwnDecodeError(UnicodeDecodeError):
    def __init__(self, path):
        super().__init__("utf-8", b"\xff", 0, 1, f"in {path}")
        self.args = (path,)


def of_a_user():
    raise OwnDecodeError("a.txt")


@pytest.mark.parametrize(
    ("call", "words"),
    [(decode, "can't decode byte 0xe9"), (parse, "invalid syntax"), (chained, "a row"), (of_a_user, "in a.txt")],
)
def test_an_error_says_the_same_after_tblib_has_pickled_it(call, words):
    with pytest.raises((ValueError, SyntaxError), match=words) as told:
        call()
    sent = told.value
    every = [sent, *filter(None, [sent.__cause__])]
    tblib.pickling_support.install(*every)  # as a worker of Dask does
    arrived = with_user_frames(pickle.loads(pickle.dumps(sent)), None)
    assert type(arrived) is type(sent)
    assert arrived.args == sent.args
    if call is not of_a_user:  # whose arguments are not those of the class
        assert [str(one) for one in [arrived, *filter(None, [arrived.__cause__])]] == [str(one) for one in every]
