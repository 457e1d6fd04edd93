# SPDX-License-Identifier: Apache-2.0
"""A terminal has a bar, and any other standard error a line every 30 s, from everything that may take longer."""

import io
import re
import sys
import threading
import types

import pytest

from curator_df.core.runner import progress
from curator_df.core.runner.progress import passes_bar, progress_bar, progress_lines


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def terminal(monkeypatch):
    def start():
        stream = Terminal()
        monkeypatch.setattr(
            sys, "stderr", stream
        )  # not in a fixture: pytest sets the stream before each phase of a test
        monkeypatch.setenv("TERM", "xterm")
        monkeypatch.setenv("COLUMNS", "120")
        return stream

    return start


def plain(stream):
    """Return what a terminal was sent, without colors."""
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", stream.getvalue())


def test_a_bar_shows_what_is_done_of_how_many(terminal):
    stream = terminal()
    with progress_bar("curating [a]", 1) as show:
        show(3, "rows [of 2]", 8)
    last = plain(stream).split("\r")[-1]
    assert last.startswith("curating [a]")
    assert "3/8 rows [of 2]" in last


class Log(io.StringIO):
    """Standard error that is no terminal; tells when a line was written."""

    def __init__(self):
        super().__init__()
        self.has_line = threading.Event()

    def flush(self):
        self.has_line.set()


class Broken(Log):
    """Stands for a pipe whose reader has ended."""

    def write(self, text):
        self.has_line.set()
        raise BrokenPipeError


@pytest.fixture
def log(monkeypatch):
    """Return a function that sets standard error, and lets lines come at once; a clock stands at 62 s."""

    def start(stream):
        monkeypatch.setattr(sys, "stderr", stream)
        monkeypatch.setattr(progress, "LINE_SECONDS", 0.01)
        times = iter([0.0])
        monkeypatch.setattr(progress, "time", types.SimpleNamespace(monotonic=lambda: next(times, 62.0)))
        return stream

    return start


def line_of(stream, work):
    """Wait for a line about this work; return it."""
    while True:
        assert stream.has_line.wait(10)
        stream.has_line.clear()
        found = [line for line in stream.getvalue().splitlines() if line.startswith(f"{work}: ")]
        if found:
            return found[-1]


def test_without_a_terminal_there_is_a_line_though_no_range_was_finished_since(log):
    stream = log(Log())
    with progress_bar("curating", 9) as show:
        show(2, "5 rows", 12)
        line_of(stream, "curating")  # which may have been written before
        assert line_of(stream, "curating") == "curating: 2 of 12, 5 rows, after 62.0 s"


def test_a_short_run_shows_nothing_without_a_terminal(monkeypatch):
    stream = Log()
    monkeypatch.setattr(sys, "stderr", stream)
    with progress_bar("curating", 9) as show, progress_lines("computing"):
        show(9, "5 rows")
    assert stream.getvalue() == ""


def test_a_run_goes_on_when_nobody_reads_its_progress(log):
    stream = log(Broken())
    with progress_bar("curating", 9) as show:
        show(1, "")
        assert stream.has_line.wait(10)
    assert stream.getvalue() == ""


def test_work_goes_on_without_lines_where_no_thread_can_start(log, monkeypatch):
    def full(thread):
        raise RuntimeError("can't start new thread")

    stream = log(Log())
    monkeypatch.setattr(threading.Thread, "start", full)
    with progress_lines("preparing"), progress_bar("curating", 9) as show:
        show(1, "")
    assert stream.getvalue() == ""


def test_outer_lines_go_on_after_an_interrupt_at_the_end_of_inner_ones(log, monkeypatch):
    def interrupted(thread, timeout=None):
        raise KeyboardInterrupt

    stream = log(Log())
    with progress_lines("preparing"):
        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt), progress_lines("listing"):
            patch.setattr(threading.Thread, "join", interrupted)
        assert line_of(stream, "preparing") == "preparing: after 62.0 s"


def test_passes_without_a_terminal_have_lines_with_their_names(log):
    stream = log(Log())
    with passes_bar() as show:
        show("keys", 3, 40)
        assert line_of(stream, "keys").startswith("keys: 3 of 40, after ")
        show("bands", 0, 9)
        assert line_of(stream, "bands").startswith("bands: 0 of 9, after ")


def test_work_without_a_bar_has_lines_in_a_terminal_too(log):
    stream = log(type("LogTerminal", (Log,), {"isatty": lambda self: True})())
    with progress_lines("computing with Dask", lambda: "7 tasks left"):
        assert line_of(stream, "computing with Dask") == "computing with Dask: 7 tasks left, after 62.0 s"


def test_a_notebook_has_one_line_that_is_updated_and_no_standard_error(log, monkeypatch):
    shown, has_line, stream = [], threading.Event(), log(Log())

    class Handle:
        def update(self, what, **_):
            shown.append(what["text/plain"])
            has_line.set()

    display = types.SimpleNamespace(display=lambda what, **_: shown.append(what["text/plain"]) or Handle())
    monkeypatch.setattr(progress, "in_notebook", lambda: True)
    monkeypatch.setitem(sys.modules, "IPython.display", display)
    with progress_lines("computing with Dask", lambda: "7 tasks left"):
        assert has_line.wait(10)
    assert set(shown[:-1]) == {"computing with Dask: 7 tasks left, after 62.0 s"}
    assert shown[-1] == "computing with Dask: finished after 62.0 s"
    with progress_lines("short"):
        pass
    assert not any(line.startswith("short") for line in shown)
    assert stream.getvalue() == ""


def test_only_the_innermost_work_has_lines(log):
    stream = log(Log())
    with progress_lines("preparing the run"):
        with progress_bar("curating", 9):
            line_of(stream, "curating")
            before = stream.getvalue().count("preparing")
            line_of(stream, "curating")
            line_of(stream, "curating")
            assert stream.getvalue().count("preparing") == before
        stream.has_line.clear()
        assert stream.has_line.wait(10)
        assert stream.getvalue().splitlines()[-1].startswith("preparing the run: after ")


def test_the_bar_of_passes_begins_with_the_first_and_names_each(terminal):
    stream = terminal()
    with passes_bar() as show:
        assert stream.getvalue() == ""
        show("keys [of 2]", 0, 4)
        show("keys [of 2]", 4, 4)
        first = plain(stream)
        show("bands", 1, 9)
    bars = plain(stream)
    assert "keys [of 2]" in first
    assert "0/1" not in bars
    assert re.search(r"bands\s.*1/9", bars)
    assert stream.getvalue().rstrip().endswith("\x1b[2K")  # the line is erased


def test_where_there_is_no_pass_there_is_no_bar(terminal):
    stream = terminal()
    with passes_bar():
        pass
    assert stream.getvalue() == ""
