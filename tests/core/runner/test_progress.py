# SPDX-License-Identifier: Apache-2.0
"""A terminal has a bar, and any other standard error a line now and then, where there is something to show the progress of."""

import io
import re
import sys

import pytest

from curator_df.core.runner import progress
from curator_df.core.runner.progress import passes_bar, progress_bar


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


class Broken(io.StringIO):
    """Stands for a pipe whose reader has ended."""

    def write(self, text):
        raise BrokenPipeError


def lines(monkeypatch, stream, seconds):
    """Show progress at these seconds; return what a stream that is no terminal has then."""
    times = iter([0.0, *seconds])
    monkeypatch.setattr(progress.time, "monotonic", lambda: next(times))
    monkeypatch.setattr(sys, "stderr", stream)
    with progress_bar("curating", 9) as show:
        for done in range(1, len(seconds) + 1):
            show(done, "5 rows", 12 if done == 2 else None)
    return stream.getvalue()


def test_without_a_terminal_there_is_a_line_every_half_minute(monkeypatch):
    said = lines(monkeypatch, io.StringIO(), [10.0, 31.0, 45.0, 62.0])
    assert said == "curating: 2 of 12, 5 rows, after 31.0 s\ncurating: 4 of 12, 5 rows, after 62.0 s\n"


def test_a_short_run_shows_nothing_without_a_terminal(monkeypatch):
    assert lines(monkeypatch, io.StringIO(), [1.0, 29.0]) == ""


def test_a_run_goes_on_when_nobody_reads_its_progress(monkeypatch):
    assert lines(monkeypatch, Broken(), [40.0, 80.0]) == ""


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


def test_without_a_terminal_passes_show_nothing(monkeypatch):
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    with passes_bar() as show:
        show("keys", 1, 1)
    assert stream.getvalue() == ""
