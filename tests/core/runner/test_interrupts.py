# SPDX-License-Identifier: Apache-2.0
"""Ctrl-C ends a run also where Python ignores what is raised: real signals, to this process."""

import os
import signal
import sys

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import curator_df as cdf
from curator_df.core.runner.events import TaskEnded
from curator_df.core.runner.interrupts import raise_lost_interrupt, remembered_interrupts
from curator_df.core.runner.session import current_session
from tests.core.runner.fake_client import inline_cluster


class Interrupts:
    """Is interrupted when it goes."""

    def __del__(self):
        os.kill(os.getpid(), signal.SIGINT)


@pytest.fixture
def ignored(monkeypatch):
    """Return what was raised where nobody sees it; interrupts are raised, as in a terminal."""
    found = []
    monkeypatch.setattr(sys, "unraisablehook", lambda raised: found.append(raised.exc_type))
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield found
    signal.signal(signal.SIGINT, before)


def test_a_lost_interrupt_is_raised_once(ignored):
    with remembered_interrupts():
        raise_lost_interrupt()
        Interrupts()
        assert ignored == [KeyboardInterrupt]
        with pytest.raises(KeyboardInterrupt):
            raise_lost_interrupt()
        raise_lost_interrupt()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_one_that_ended_the_block_is_forgotten(ignored):
    with pytest.raises(KeyboardInterrupt), remembered_interrupts():
        os.kill(os.getpid(), signal.SIGINT)
    with remembered_interrupts():
        raise_lost_interrupt()
    assert not ignored


def test_the_handler_of_a_program_stays(ignored):
    handled = []
    signal.signal(signal.SIGINT, lambda number, _: handled.append(number))
    with remembered_interrupts():
        Interrupts()
        raise_lost_interrupt()
    assert handled == [signal.SIGINT]
    assert not ignored


def test_a_run_ends_with_an_interrupt_that_python_ignored(ignored, tmp_path, capsys):
    pq.write_table(pa.table({"text": ["a"] * 10}), tmp_path / "in.parquet")
    seen = []

    def watch(event):
        if isinstance(event, TaskEnded) and not seen:
            seen.append(event)
            Interrupts()

    with inline_cluster(memory="2GB", cpus=1):
        current_session().watchers.append(watch)
        docs = cdf.read_parquet(tmp_path / "in.parquet")
        with pytest.raises(KeyboardInterrupt):
            cdf.write_parquet(docs, tmp_path / "out")
    assert seen
    assert ignored == [KeyboardInterrupt]
    assert "on_existing='resume'" in capsys.readouterr().err
