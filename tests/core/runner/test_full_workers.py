# SPDX-License-Identifier: Apache-2.0
"""Workers that hold memory of earlier tasks: recycled, emptied before a range is charged, and named when a step leaks."""

import dataclasses

import pytest

from curator_df import errors
from curator_df.core.runner import recycling
from curator_df.core.runner.dispatch import MOST_EMPTIED, SMALLEST_BLOCK_BYTES
from curator_df.core.runner.recycling import RecycleAfter, Recycling
from curator_df.core.tasks.task import Attempt
from curator_df.errors import StepMemoryError
from curator_df.memory.leaks import Leak
from tests.core.runner.dispatching import BLOCK_BYTES, RANGES, is_first, long_row, notes_of
from tests.core.runner.fake_client import (
    Silent,
    done,
    killed,
    out_of_memory,
)


def test_a_worker_that_is_due_is_started_again_while_nothing_is_in_flight(dispatch):
    counter = Recycling(RecycleAfter(3, "tasks"), workers=1)
    ran = dispatch(lambda attempt: Silent(1), recycling=counter)
    ran.client.answers["worker_name"] = "host:1"
    ran.run()
    assert ran.client.restarted == ["tcp://1"] * counter.recycled
    assert counter.recycled >= 1
    assert ran.client.flying_at_restart == []
    assert sorted(ran.numbers) == list(range(RANGES))
    assert notes_of(ran, "recycle")[0].startswith("worker host:1 is restarted after ")
    assert not counter.is_away


WORK_HELD = {"idle_bytes": 10**8, "floor_bytes": 10**8 + 4 * 10**8}
"""A worker that holds 400 MB of earlier tasks."""
EMPTY = {"idle_bytes": 10**8, "floor_bytes": 10**8}


def on_a_full_worker(dispatch, failure, *, helps=True):
    """Run ranges on a worker that is full until it is started again; range 3 fails there, or always."""

    def script(attempt):
        held = EMPTY if ran.client.restarted or died else WORK_HELD
        if attempt.piece.number == 3 and (held is WORK_HELD or not helps):
            died.extend([attempt] * (failure is killed))
            return killed() if failure is killed else failure(attempt, **held)
        return done(attempt, **held)

    died = []
    ran = dispatch(script)
    ran.client.answers.update({"worker_name": "host:1", "given_back": 0, "left_by_steps": {"parse": 10**6}})
    return ran


@pytest.mark.parametrize("failure", [out_of_memory, killed])
def test_what_a_worker_held_before_is_not_charged_to_the_next_range(dispatch, failure):
    ran = on_a_full_worker(dispatch, failure).run()
    assert sorted(ran.numbers) == list(range(RANGES))
    (again,) = set(ran.tries(3))  # the same blocks, beside others, and not a further try
    assert (again.block_bytes, again.exclusive_bytes, again.tries) == (BLOCK_BYTES, None, 0)
    assert dict(ran.dispatcher.retries) == {"full worker": 1}
    assert ran.client.restarted == ([] if failure is killed else ["tcp://1"])
    assert ran.client.flying_at_restart == []


@pytest.mark.parametrize("failure", [out_of_memory, killed])
def test_a_range_that_fails_on_an_empty_worker_too_is_charged(dispatch, failure):
    ran = on_a_full_worker(dispatch, failure, helps=False)
    with pytest.raises((MemoryError, errors.WorkerLostError)):
        ran.run()
    sizes = [attempt.block_bytes for attempt in ran.tries(3)]
    probes = len(ran.client.restarted)
    assert sizes[: 3 + probes] == [BLOCK_BYTES] * (2 + probes) + [BLOCK_BYTES // 2]
    assert ran.client.restarted == ([] if failure is killed else ["tcp://1"])


def test_a_range_is_tried_on_an_empty_worker_only_so_often(dispatch):
    ran = dispatch()
    attempt, leak = Attempt(ran.pieces[3], BLOCK_BYTES, BLOCK_BYTES), Leak("host:1", 12, 4 * 10**8, 10**7)
    tried = [ran.dispatcher._again_on_an_empty_worker(attempt, leak) for _ in range(MOST_EMPTIED + 2)]
    assert tried == [True] * MOST_EMPTIED + [False] * 2
    assert ran.dispatcher.retries == {"full worker": MOST_EMPTIED}
    alone = dataclasses.replace(attempt, exclusive_bytes=10**9)
    assert ran.dispatcher._again_on_an_empty_worker(alone, leak)  # counted separately


def test_a_full_worker_is_started_again_before_a_range_runs_alone(dispatch):
    error = long_row()
    ran = dispatch(
        lambda each: done(each, outcome="oversize", error=error, **WORK_HELD) if is_first(each) else done(each)
    )
    ran.client.answers.update({"worker_name": "host:1", "given_back": 0, "left_by_steps": {"parse": 10**6}})
    ran.run()
    assert ran.client.restarted == ["tcp://1"]
    _, probe, alone = ran.tries(0)
    assert probe.exclusive_bytes is None
    assert alone.exclusive_bytes is not None


def test_a_worker_that_grew_by_half_of_its_work_memory_is_started_again_before_the_next_task(dispatch):
    held = iter([0, 3 * 10**8, 6 * 10**8, 9 * 10**8, 0, 0, 0, 0, 0])
    ran = dispatch(lambda attempt: done(attempt, idle_bytes=10**8, floor_bytes=10**8 + next(held)))
    ran.client.answers.update({"worker_name": "host:1", "given_back": 0, "left_by_steps": {"parse": 10**6}})
    ran.run()
    assert ran.client.restarted == ["tcp://1"]
    assert [leak.step for leak in ran.dispatcher.leaks] == ["parse"]
    assert sorted(ran.numbers) == list(range(RANGES))


def fills_an_empty_worker(dispatch, left):
    """Run ranges of which number 3 fills its worker and fails, also on an empty one; say what a step is seen to leave behind."""

    def script(attempt):
        if attempt.piece.number == 3:
            return out_of_memory(attempt, **WORK_HELD)
        return done(attempt, **(WORK_HELD if attempt.piece.number == 0 and not ran.client.restarted else EMPTY))

    ran = dispatch(script)
    ran.client.answers.update({"worker_name": "host:1", "given_back": 0, "left_by_steps": left})
    return ran


def test_a_range_that_fills_an_empty_worker_with_what_a_step_leaves_runs_alone_and_is_then_the_error(dispatch):
    ran = fills_an_empty_worker(dispatch, {"parse": 2 * 10**7})
    with pytest.raises(
        StepMemoryError, match=r"'parse' leaves 20 MB behind at each block\. On input split 3, that was 400 MB"
    ):
        ran.run()
    assert [attempt.exclusive_bytes is not None for attempt in ran.tries(3)[-2:]] == [False, True]


def test_a_range_that_fills_an_empty_worker_with_a_cache_gets_smaller_blocks(dispatch):
    ran = fills_an_empty_worker(dispatch, MemoryError("no room to try a step"))
    with pytest.raises(MemoryError):
        ran.run()
    assert ran.tries(3)[-1].block_bytes == SMALLEST_BLOCK_BYTES


@pytest.mark.parametrize(("held", "restarted"), [(WORK_HELD, ["tcp://1"]), (EMPTY, [])], ids=["full", "empty"])
def test_a_run_that_ends_for_lack_of_memory_leaves_no_full_worker_behind(dispatch, held, restarted):
    ran = dispatch(lambda attempt: out_of_memory(attempt, **held), on_oom="raise")
    ran.client.answers["worker_name"] = "host:1"
    with pytest.raises(MemoryError):
        ran.run()
    assert ran.client.restarted == restarted


class EndsLate:
    """A probe that ends between the question for its result and the next one, and whose result arrives late."""

    asked = 0

    def result(self, timeout):
        self.asked += 1
        if self.asked == 1 or timeout < 1:
            raise TimeoutError
        return {"parse": 5}

    def done(self):
        return self.asked > 0

    def release(self):
        pass


def test_a_probe_that_ends_while_it_is_asked_names_its_step(dispatch, monkeypatch):
    client = dispatch().client
    monkeypatch.setattr(client, "submit", lambda *_, **__: EndsLate())
    assert recycling.probe(client, "tcp://1", b"", None) == ("parse", 5)


@pytest.mark.parametrize(("left_bytes", "restarts"), [(4 * 10**8, 2), (4 * 10**7, 1), (0, 1)])
def test_a_worker_is_started_again_after_a_probe_that_failed_and_left_memory_behind(
    dispatch, monkeypatch, left_bytes, restarts
):
    client, held = dispatch().client, iter([10**8, 10**8 + left_bytes])
    client.answers.update({"worker_name": "host:1", "given_back": 0, "left_by_steps": MemoryError("no room")})
    monkeypatch.setattr(recycling, "_held", lambda *_: next(held))
    told = recycling.diagnose_leak(client, Leak("host:1", 3, 4 * 10**8, 10**8, again=True), b"", None, restarts=True)
    assert told.recycled and not told.step
    assert len(client.restarted) == restarts


def test_results_are_released_before_their_worker_is_started_again(dispatch):
    ran = fills_its_first_worker(dispatch, held_bytes=4 * 10**8, left={"parse": 8 * 10**6}).run()
    assert ran.client.restarted
    assert ran.client.kept_at_restart == []


def fills_its_first_worker(dispatch, *, held_bytes, left, helps=True):
    """Run ranges of which the first ones run out of memory before any task has ended, and say what the worker holds then."""

    def script(attempt):
        if attempt.piece.number < 2 and not (helps and ran.client.restarted):
            return out_of_memory(attempt, **WORK_HELD)
        return done(attempt, **EMPTY)

    ran = dispatch(script)
    ran.client.answers.update({"worker_name": "host:1", "given_back": 0, "left_by_steps": left})
    ran.client.answers["bytes_held"] = EMPTY["idle_bytes"] + held_bytes
    return ran


def test_a_step_that_fills_a_worker_within_the_first_ranges_is_named_before_blocks_get_smaller(dispatch):
    ran = fills_its_first_worker(dispatch, held_bytes=4 * 10**8, left={"parse": 8 * 10**6}).run()
    assert sorted(ran.numbers) == list(range(RANGES))
    assert {attempt.block_bytes for attempt in ran.client.attempts if attempt.stage_id} == {BLOCK_BYTES}
    assert {leak.step for leak in ran.dispatcher.leaks} == {"parse"}
    assert dict(ran.dispatcher.retries) == {"full worker": 2}
    assert ran.client.flying_at_restart == []


def test_a_range_that_fills_its_worker_again_with_what_a_named_step_leaves_ends_the_run(dispatch):
    ran = fills_its_first_worker(dispatch, held_bytes=4 * 10**8, left={"parse": 8 * 10**6}, helps=False)
    with pytest.raises(
        StepMemoryError, match=r"'parse' leaves 8 MB behind at each block\. On input split \d, that was 400"
    ):
        ran.run()
    assert {attempt.block_bytes for attempt in ran.client.attempts} == {BLOCK_BYTES}
    assert len(ran.tries(0)) <= 4  # one of them is the probe


def test_a_worker_that_holds_little_when_nothing_runs_is_not_started_again(dispatch):
    def script(attempt):
        return out_of_memory(attempt, **WORK_HELD) if attempt.block_bytes == BLOCK_BYTES else done(attempt, **EMPTY)

    ran = dispatch(script)
    ran.pieces = ran.pieces[:2]
    ran.client.answers.update({"worker_name": "host:1", "bytes_held": EMPTY["idle_bytes"] + 10**7})
    ran.run()
    assert ran.client.restarted == []
    assert [attempt.block_bytes for attempt in ran.tries(0)] == [BLOCK_BYTES, BLOCK_BYTES // 2]


def test_a_full_worker_is_restarted_before_its_steps_are_tried(dispatch):
    ran = on_a_full_worker(dispatch, out_of_memory)
    submit, tried_after = ran.client.submit, []

    def noting(function, *arguments, **options):
        if function.__name__ == "left_by_steps":
            tried_after.append(len(ran.client.restarted))
        return submit(function, *arguments, **options)

    ran.client.submit = noting
    ran.run()
    assert tried_after == [1]


def test_a_worker_in_this_process_is_not_started_again(dispatch):
    ran = on_a_full_worker(lambda script: dispatch(script, memory="405MB"), out_of_memory)
    ran.dispatcher._empties = False
    with pytest.raises(MemoryError):
        ran.run()
    assert ran.client.restarted == []


def leaks(dispatch, left):
    """Run many ranges on a worker that holds 10 MB more after each; say what a step is seen to leave behind."""
    floors = iter(range(10**8, 10**10, 10**7))
    ran = dispatch(lambda attempt: done(attempt, floor_bytes=next(floors)))
    ran.pieces = [dataclasses.replace(ran.pieces[0], number=number) for number in range(400)]
    ran.client.answers.update({"worker_name": "host:1", "given_back": 0, "left_by_steps": left})
    return ran.run()


def test_a_worker_that_leaks_is_started_again_and_its_step_is_named(dispatch):
    ran = leaks(dispatch, {"parse": 10**6, "count": 10**5})
    assert {(told.step, told.left_bytes, told.recycled) for told in ran.dispatcher.leaks} == {("parse", 10**6, True)}
    assert ran.client.restarted == ["tcp://1"] * len(ran.dispatcher.leaks)
    assert ran.client.flying_at_restart == []
    assert sorted(ran.numbers) == list(range(400))
    assert "parse leaves" in notes_of(ran, "leak")[0]


def test_a_range_is_suspected_only_once_it_left_much_behind(dispatch):
    ran = dispatch()
    ran.run()
    attempt = ran.client.attempts[0]
    assert not ran.dispatcher._may_be_full(attempt, out_of_memory(attempt, **EMPTY))
    assert ran.dispatcher._may_be_full(attempt, out_of_memory(attempt, **WORK_HELD))
    assert not ran.dispatcher._may_be_full(attempt, out_of_memory(attempt, **WORK_HELD))


def test_tasks_that_cannot_be_stopped_do_not_hide_why_a_run_ended(dispatch, monkeypatch):
    def fails(**_):
        raise OSError("gone")

    ran = dispatch(out_of_memory, on_oom="raise")
    monkeypatch.setattr(ran.dispatcher, "_stop", fails)
    with pytest.raises(MemoryError) as caught:
        ran.run()
    assert caught.value.__notes__[-1:] == ["Cleaning up afterwards failed, too (OSError: gone)"]
