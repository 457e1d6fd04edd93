# SPDX-License-Identifier: Apache-2.0
"""A terminal has a bar where there is something to show the progress of."""

import io
import sys

import pytest

from curator_df.core.runner.progress import progress_bar


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def terminal(monkeypatch):
    stream = Terminal()
    monkeypatch.setattr(sys, "stderr", stream)
    return stream


def test_a_bar_shows_what_is_done_of_how_many(terminal):
    with progress_bar("comparing", 1) as show:
        show(3, "keys [of 2]", 8)
    assert "comparing" in terminal.getvalue()
    assert "3/8 keys [of 2]" in terminal.getvalue()


def test_where_nothing_is_compared_there_is_no_bar(terminal):
    with progress_bar("comparing", 1, is_wanted=False) as show:
        show(0, "", 1)
    assert terminal.getvalue() == ""
