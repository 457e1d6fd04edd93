# SPDX-License-Identifier: Apache-2.0
"""A terminal has a bar where there is something to show the progress of."""

import io
import re
import sys

from curator_df.core.runner.progress import progress_bar


class Terminal(io.StringIO):
    def isatty(self):
        return True


def shown(monkeypatch, **options):
    """Return what a terminal shows at the end of a bar, without colors."""
    stream = Terminal()
    monkeypatch.setattr(sys, "stderr", stream)  # not in a fixture: pytest sets the stream before each phase of a test
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")
    with progress_bar("comparing [a]", 1, **options) as show:
        show(3, "keys [of 2]", 8)
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", stream.getvalue())


def test_a_bar_shows_what_is_done_of_how_many(monkeypatch):
    last = shown(monkeypatch).split("\r")[-1]
    assert last.startswith("comparing [a]")
    assert "3/8 keys [of 2]" in last


def test_where_nothing_is_compared_there_is_no_bar(monkeypatch):
    assert shown(monkeypatch, is_wanted=False) == ""
