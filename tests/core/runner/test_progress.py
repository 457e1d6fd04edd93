# SPDX-License-Identifier: Apache-2.0
"""A terminal has a bar where there is something to show the progress of."""

import io
import re
import sys

import pytest

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


def test_without_a_terminal_nothing_is_shown(monkeypatch):
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    with passes_bar() as show, progress_bar("curating", 1) as bar:
        show("keys", 1, 1)
        bar(1, "rows")
    assert stream.getvalue() == ""
