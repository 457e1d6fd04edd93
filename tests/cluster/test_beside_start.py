# SPDX-License-Identifier: Apache-2.0
"""A table is built while a cluster starts. If that fails, the error is raised where the table is requested."""

from contextlib import nullcontext

import pytest

from curator_df.cluster.beside_start import beside_start, make_beside_start, started_with

pytestmark = pytest.mark.quick


def test_the_call_is_made_once_in_the_start_of_its_block():
    calls = []
    with beside_start(lambda: calls.append("made") or "table") as result:
        assert calls == []
        make_beside_start()
        make_beside_start()
        assert calls == ["made"]
    make_beside_start()
    assert (result(), result(), calls) == ("table", "table", ["made"])


def test_a_start_that_leaves_no_time_for_the_call_leaves_it_to_the_first_use():
    with started_with(nullcontext, lambda: "table") as (_, table):
        assert table == "table"


def test_an_error_of_the_call_does_not_disturb_the_start():
    with beside_start(lambda: {}["text"]) as result:
        make_beside_start()
    for _ in range(2):
        with pytest.raises(KeyError, match="text"):
            result()


def test_an_interrupt_ends_the_start():
    def interrupt():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), beside_start(interrupt):
        make_beside_start()


def test_a_call_that_is_likely_to_fail_is_made_before_anything_starts():
    started = []
    with pytest.raises(KeyError), started_with(lambda: started.append(1), lambda: {}["text"], is_first=True):
        pass
    assert started == []


def test_a_cluster_is_closed_if_the_call_failed():
    ended = []

    class Running(nullcontext):
        def __exit__(self, *_):
            ended.append(self)

    with pytest.raises(KeyError), started_with(Running, lambda: {}["text"]):
        pass
    assert len(ended) == 1
