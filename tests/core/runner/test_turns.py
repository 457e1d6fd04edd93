# SPDX-License-Identifier: Apache-2.0
"""Ranges that wait for earlier ones: what gave up waiting runs again after the range that it waited for."""

from curator_df.core.ranges.blocks import BlockKernel
from tests.core.runner.dispatching import RANGES, notes_of
from tests.core.runner.fake_client import Silent, done, out_of_memory


def gave_up(attempt):
    return done(attempt, outcome="again")


def test_ranges_that_gave_up_run_again_in_order_after_the_one_they_waited_for(dispatch):
    """Range 2 runs out of memory twice and goes alone; those that were in flight with it wait in vain."""
    ended, waited = set(), []

    def script(attempt):
        number = attempt.piece.number
        if number == 2 and attempt.exclusive_bytes is None:
            return Silent(2, out_of_memory(attempt))
        if number > 2 and 2 not in ended:
            waited.append(number)
            return Silent(3, gave_up(attempt))
        ended.add(number)
        return done(attempt)

    ran = dispatch(script).run()
    assert waited
    assert sorted(ran.numbers) == list(range(RANGES))
    assert ran.numbers[2:] == sorted(ran.numbers[2:])
    assert ran.dispatcher.retries["turn"] == len(waited)
    assert len(notes_of(ran, "retry")) == ran.dispatcher.retries.total()


def test_an_exclusive_range_that_waits_in_vain_runs_with_the_others_again(dispatch):
    alone = []

    def script(attempt):
        if attempt.piece.number != 1 or alone:
            return done(attempt)
        if attempt.exclusive_bytes is None:
            return out_of_memory(attempt)
        alone.append(attempt)
        return gave_up(attempt)

    ran = dispatch(script).run()
    assert [each.exclusive_bytes is None for each in ran.tries(1)][-2:] == [False, True]
    assert sorted(ran.numbers) == list(range(RANGES))


def test_ranges_that_take_turns_are_not_sent_ahead_of_free_threads(dispatch, monkeypatch):
    monkeypatch.setattr(BlockKernel, "holds_rows", True)
    ran = dispatch(lambda _: Silent(2), with_step=True).run()
    layout = ran.dispatcher.session.layout
    assert max(map(len, ran.client.flying)) == layout.workers * layout.threads < RANGES
