# SPDX-License-Identifier: Apache-2.0
"""What follows each end of a task, on a fake client; real kills, limits and lost connections are in tests/faults."""

import dataclasses
import logging
import threading

import pytest
from distributed.comm import CommClosedError

from curator_df import errors
from curator_df.core.planning.plan import MIN_BLOCK_BYTES
from curator_df.core.ranges.manifest import Manifest
from curator_df.core.ranges.out_of_memory import MOST_IN_A_ROW, RowsLackMemoryError, Span, Unit
from curator_df.core.runner.dispatch import MOST_LOST_ROWS, SMALLEST_BLOCK_BYTES
from curator_df.core.runner.events import TaskEnded
from curator_df.core.runner.retry_units import MOST_UNITS, fitting_start, narrowed
from curator_df.core.tasks.task import Attempt, Job
from curator_df.errors import OperatorError, OversizePageError, OversizeRowError, StepMemoryError
from curator_df.memory.budget import choose_layout
from curator_df.memory.limits import release_free_memory
from curator_df.memory.system import append_line
from curator_df.memory.wall import Wall
from tests.core.runner.dispatching import BLOCK_BYTES, RANGES, is_first, long_row, notes_of
from tests.core.runner.fake_client import (
    Cancelled,
    Disconnected,
    LostResult,
    Silent,
    done,
    killed,
    out_of_memory,
)


def test_each_range_is_done_once_and_the_first_ones_go_first(dispatch):
    ran = dispatch().run()
    assert ran.numbers == list(range(RANGES))
    assert ran.client.priorities == [-number for number in range(RANGES)]
    assert [attempt.block_bytes for attempt in ran.client.attempts] == [BLOCK_BYTES] * RANGES
    assert not ran.dispatcher.retries


def test_each_worker_has_one_task_more_than_threads(dispatch):
    ran = dispatch(lambda attempt: Silent(2)).run()
    layout = ran.dispatcher.session.layout
    assert max(map(len, ran.client.flying)) == layout.workers * (layout.threads + 1) < RANGES
    assert sorted(ran.numbers) == list(range(RANGES))


def test_out_of_memory_halves_the_block_and_then_the_range_goes_alone(dispatch):
    def script(attempt):
        small = attempt.exclusive_bytes is not None and attempt.halves
        return done(attempt) if small or attempt.piece.number != 3 else out_of_memory(attempt)

    ran = dispatch(script).run()
    layout = ran.dispatcher.session.layout
    tried = [(each.block_bytes, each.exclusive_bytes, each.halves, each.tries) for each in ran.tries(3)]
    assert tried == [
        (BLOCK_BYTES, None, False, 0),
        (BLOCK_BYTES // 2, None, False, 1),
        (SMALLEST_BLOCK_BYTES, None, False, 2),
        (SMALLEST_BLOCK_BYTES, layout.exclusive_bytes, True, 3),
    ]
    assert ran.client.flying[ran.client.attempts.index(ran.tries(3)[-1])] == {3}
    assert ran.dispatcher.retries == {"memory": 3, "exclusive": 1}
    assert sorted(ran.numbers) == list(range(RANGES))
    assert notes_of(ran, "retry")[0] == "input split 3 runs again (memory); it had blocks of 256 kB"


def in_step(attempt, **told):
    return out_of_memory(attempt, step="keep_where", **told)


def needs_blocks_of(most_bytes, ranges=frozenset(range(RANGES))):
    """Return a script in which a step has memory for so many bytes, of whatever block it gets."""

    def script(attempt):
        if attempt.piece.number not in ranges or attempt.block_bytes <= most_bytes:
            return done(attempt)
        splits = attempt.exclusive_bytes is not None and attempt.halves
        return done(attempt, fitting_bytes=2 * most_bytes) if splits else in_step(attempt)

    return script


def test_a_range_whose_step_ran_out_of_memory_twice_goes_alone_and_the_others_get_what_fitted(dispatch):
    ran = dispatch(needs_blocks_of(16 * SMALLEST_BLOCK_BYTES), with_step=True, block_bytes=256 * SMALLEST_BLOCK_BYTES)
    ran.run()
    assert sorted(ran.numbers) == list(range(RANGES))
    alone = [each for each in ran.client.attempts if each.exclusive_bytes is not None]
    assert [(each.piece.number, each.halves) for each in alone] == [(0, True)]
    fitted = fitting_start(32 * SMALLEST_BLOCK_BYTES, ran.dispatcher.session.layout, alone[0])
    assert ran.tries(RANGES - 1)[0].block_bytes == ran.dispatcher.start_bytes == fitted
    assert max(len(ran.tries(number)) for number in range(RANGES)) == 3


def test_a_row_that_never_fits_leaves_the_blocks_of_other_ranges_as_they_are(dispatch):
    def script(attempt):
        if attempt.piece.number or (attempt.exclusive_bytes is not None and attempt.halves):
            return done(attempt, fitting_bytes=SMALLEST_BLOCK_BYTES, rows_out_of_memory=1)
        return in_step(attempt)

    ran = dispatch(script, with_step=True).run()
    assert [each.exclusive_bytes is None for each in ran.tries(0)] == [True, True, False]
    assert ran.dispatcher.start_bytes == BLOCK_BYTES


def test_a_row_that_did_not_fit_alone_in_its_block_is_tried_once_more_with_the_smallest_blocks(dispatch):
    def script(attempt):
        if attempt.piece.number != 3 or attempt.block_bytes == SMALLEST_BLOCK_BYTES:
            return done(attempt)
        return in_step(attempt, **({"unit": Unit(5, 5, 1, "keep_where")} if attempt.halves else {}))

    ran = dispatch(script, with_step=True, block_bytes=256 * SMALLEST_BLOCK_BYTES).run()
    tried = [(each.block_bytes // SMALLEST_BLOCK_BYTES, each.halves, bool(each.aside)) for each in ran.tries(3)]
    assert tried == [(256, False, False), (128, False, False), (64, True, False), (1, True, False)]


def test_what_fits_in_gpu_memory_is_shared_by_the_threads_of_a_worker_and_not_by_workers():
    layout = choose_layout(16_000_000_000, cpus=4)
    alone = Attempt(None, 64_000_000, 0, exclusive_bytes=layout.exclusive_bytes, halves=True)
    assert layout.workers > 1
    on_host = fitting_start(32_000_000, layout, alone)
    assert on_host == 32_000_000 // (layout.workers * layout.threads)
    on_device = fitting_start(32_000_000, layout, dataclasses.replace(alone, lacks_device_memory=True))
    assert on_device == 32_000_000 // layout.threads
    assert fitting_start(1_000, layout, alone) == SMALLEST_BLOCK_BYTES


@pytest.mark.parametrize("on_device", [False, True])
def test_later_ranges_get_what_fitted_a_step_in_its_memory(dispatch, monkeypatch, on_device):
    monkeypatch.setattr(Job, "is_on_device", lambda _, name: on_device and name == "keep_where")
    script = needs_blocks_of(16 * SMALLEST_BLOCK_BYTES, ranges={0})
    ran = dispatch(script, with_step=True, block_bytes=256 * SMALLEST_BLOCK_BYTES)
    ran.run()
    alone = next(each for each in ran.client.attempts if each.exclusive_bytes is not None)
    layout = ran.dispatcher.session.layout
    assert alone.lacks_device_memory is on_device
    sharing = layout.threads if on_device else layout.threads * layout.workers
    assert ran.dispatcher.start_bytes == 32 * SMALLEST_BLOCK_BYTES // sharing


def test_a_step_without_memory_for_any_row_is_the_error_at_once(dispatch):
    def script(attempt):
        error = RowsLackMemoryError("step 'keep_where' runs out of memory on one row after the other")
        return in_step(attempt, **({"error": error} if attempt.halves else {}))

    ran = dispatch(script, with_step=True, block_bytes=256 * SMALLEST_BLOCK_BYTES)
    with pytest.raises(
        errors.StepMemoryError, match=r"^step 'keep_where' runs out of memory on one row after the other$"
    ):
        ran.run()
    assert max(len(ran.tries(number)) for number in range(RANGES)) == 3


def test_a_writer_that_cannot_hold_any_row_is_the_error_after_a_few(dispatch):
    def script(attempt):
        return out_of_memory(attempt, unit=Unit(len(attempt.aside), 99, 1, "write"))

    ran = dispatch(script)
    with pytest.raises(errors.StepMemoryError, match="no room"):
        ran.run()
    assert len(ran.client.attempts[-1].aside) == MOST_IN_A_ROW


def test_one_range_that_runs_out_of_memory_changes_nothing_for_the_others_and_two_do(dispatch):
    one = dispatch(lambda each: fails_first(each, {0})).run()
    assert one.dispatcher.start_bytes == BLOCK_BYTES
    two = dispatch(lambda each: fails_first(each, {0, 1})).run()
    assert two.dispatcher.start_bytes == BLOCK_BYTES // 2
    assert two.tries(RANGES - 1)[0].block_bytes == BLOCK_BYTES // 2


def fails_first(attempt, numbers):
    return out_of_memory(attempt) if attempt.piece.number in numbers and not attempt.tries else done(attempt)


def test_ranges_begin_with_the_block_that_an_earlier_pass_came_to(dispatch):
    assert dispatch(start_bytes=SMALLEST_BLOCK_BYTES).run().client.attempts[0].block_bytes == SMALLEST_BLOCK_BYTES
    assert dispatch(start_bytes=2 * BLOCK_BYTES).run().client.attempts[0].block_bytes == BLOCK_BYTES


def test_with_on_oom_fail_the_first_failure_is_the_error(dispatch):
    ran = dispatch(out_of_memory, on_oom="raise")
    with pytest.raises(MemoryError, match="no room"):
        ran.run()
    assert not ran.dispatcher.retries
    ran = dispatch(lambda attempt: killed(), on_oom="raise")
    with pytest.raises(
        errors.WorkerLostError, match=r"input split 0 \(a part of the input\) crashed its worker.* on_oom='raise' stops"
    ):
        ran.run()


def test_a_step_that_never_has_enough_is_the_error_when_it_is_alone(dispatch):
    ran = dispatch(lambda attempt: out_of_memory(attempt) if attempt.piece.number == 2 else done(attempt))
    with pytest.raises(MemoryError, match="no room"):
        ran.run()
    assert [each.halves for each in ran.tries(2)][-2:] == [False, True]


def test_rows_that_the_writer_cannot_hold_are_taken_in_smaller_units_down_to_one_which_is_set_aside(dispatch):
    def script(attempt):
        if attempt.piece.number or attempt.aside:
            return done(attempt)
        first = 0 if attempt.spans else 7
        return out_of_memory(attempt, unit=Unit(first, 9, 1 if attempt.spans else 2, "write"))

    ran = dispatch(script).run()
    last = ran.tries(0)[-1]
    assert [(span.first, span.last, span.rows) for span in last.spans] == [(7, 9, 1)]
    [aside] = last.aside
    assert aside.address == 0
    assert aside.reason.startswith("out of memory: writing this row exclusively raised MemoryError: no room")


def test_rows_that_a_step_cannot_hold_alone_are_the_fault_of_the_step_and_are_not_taken_for_the_writers(dispatch):
    def script(attempt):
        return done(attempt) if attempt.piece.number else out_of_memory(attempt, unit=Unit(7, 9, 2, "parse"))

    ran = dispatch(script)
    with pytest.raises(StepMemoryError, match="no room"):
        ran.run()
    assert ran.tries(0)[-1].halves
    assert not any(attempt.spans or attempt.aside for attempt in ran.tries(0))


def test_after_a_lost_worker_the_range_goes_alone_before_any_other(dispatch):
    ran = dispatch({(0, 0): killed()}).run()
    assert [each.piece.number for each in ran.client.attempts[:6]] == [0, 1, 2, 3, 0, 4]
    again = ran.tries(0)[1]
    assert (again.block_bytes, again.tries) == (BLOCK_BYTES // 2, 1)
    assert again.exclusive_bytes == ran.dispatcher.session.layout.exclusive_bytes
    assert ran.client.flying[ran.client.attempts.index(again)] == {0}
    assert ran.dispatcher.retries == {"worker lost": 1, "exclusive": 1}


def test_a_range_that_is_alone_may_hold_what_all_tasks_may_hold_and_only_then(dispatch):
    seen = {True: set(), False: set()}

    def limits():
        return ran.client.memory_limits["tcp://1"], ran.client.nanny_limits["tcp://1"]

    def script(attempt):
        seen[attempt.exclusive_bytes is not None].add(limits())
        return killed() if attempt.piece.number == 0 and not attempt.tries else done(attempt)

    ran = dispatch(script)
    (before, _), layout = limits(), ran.dispatcher.session.layout
    ran.run()
    more = before + layout.exclusive_bytes - layout.work_bytes
    assert more > before
    assert seen == {True: {(more, more)}, False: {(before, before)}}
    assert limits() == (before, before)
    assert release_free_memory.__name__ in [name for name, _ in ran.client.calls]


def test_what_dask_says_of_a_task_that_could_not_run_is_in_the_error(dispatch):
    with pytest.raises(errors.WorkerLostError, match=r"input split 0 .* could not run: no such module"):
        dispatch({(0, 0): ImportError("no such module")}).run()


def test_an_error_of_a_task_ends_the_run_and_what_is_in_flight(dispatch):
    def script(attempt):
        if attempt.piece.number == 1:
            return done(attempt, outcome="failed", error=errors.OperatorError("step 'keep' raised"))
        return Silent(10_000)

    ran = dispatch(script)
    with pytest.raises(errors.OperatorError, match="step 'keep' raised"):
        ran.run()
    assert ("request_stop", (ran.client.attempts[0].stage_id,)) in ran.client.calls
    assert {task.status for task in ran.client._tasks} == {"cancelled"}
    assert ran.numbers == []


def test_what_is_in_flight_may_end_with_its_block_and_one_that_does_not_is_told(dispatch, caplog):
    ended = []

    def script(attempt):
        if attempt.piece.number == 1:
            return done(attempt, outcome="failed", error=errors.OperatorError("raised"))
        return Silent(10_000)

    ran = dispatch(script)
    request = ran.client.run

    def end_when_asked(function, *arguments, **options):
        if function.__name__ == "request_stop":
            ended.extend(task for task in ran.client._tasks if not task.done())
            threading.Timer(0.01, lambda: [task.begin(done(task.attempt)) for task in ended]).start()
        return request(function, *arguments, **options)

    ran.client.run = end_when_asked
    with caplog.at_level(logging.WARNING), pytest.raises(errors.OperatorError):
        ran.run()
    assert ended
    assert not caplog.records
    with caplog.at_level(logging.WARNING), pytest.raises(errors.OperatorError):
        dispatch(script).run()
    assert "a task is still running" in caplog.text


@pytest.mark.parametrize("end", [Cancelled(), Disconnected()])
def test_a_lost_scheduler_is_an_error_that_says_how_to_go_on(dispatch, end):
    ran = dispatch({(2, 0): end})
    with pytest.raises(errors.SchedulerLostError, match=r"(?s)tcp://scheduler was lost.*on_existing='resume'"):
        ran.run()
    assert set(ran.numbers) <= {0, 1, 3, 4, 5, 6, 7}


def test_a_scheduler_that_goes_away_while_it_is_asked_for_workers_is_lost(dispatch):
    ran = dispatch({(0, 0): Silent(8)})

    def ask():
        raise CommClosedError("in <TCP (closed) ConnectionPool.ncores>: ConnectionResetError")

    ran.client.nthreads = ask
    with pytest.raises(errors.SchedulerLostError, match=r"(?s)tcp://scheduler was lost.*on_existing='resume'"):
        ran.run()


def test_a_task_that_someone_else_cancels_is_not_a_lost_scheduler(dispatch):
    ran = dispatch({(2, 0): Cancelled("other")})
    with pytest.raises(errors.WorkerLostError, match=r"input split 2 .* could not run: .*cancelled for reason: other"):
        ran.run()


def test_a_manifest_that_there_is_no_memory_to_fetch_is_fetched_again(dispatch):
    ran = dispatch({(1, 0): LostResult(error=MemoryError)}).run()
    assert sorted(ran.numbers) == list(range(RANGES))


def test_workers_that_come_back_go_on_and_are_asked_for_meanwhile(dispatch):
    revived = []
    ran = dispatch({(0, 0): Silent(8)}, revive=lambda: revived.append(1))
    ran.client.away_ticks = 7
    ran.run()
    assert len(revived) == 2  # revive_seconds of the fake session are 2 and 6 times as long as it watches
    assert sorted(ran.numbers) == list(range(RANGES))


def test_workers_that_stay_away_end_the_run(dispatch):
    ran = dispatch({(0, 0): Silent(10_000)})
    ran.client.away_ticks = 10_000
    with pytest.raises(errors.WorkerLostError, match="no worker came back within 0 s after the last one died"):
        ran.run()
    assert 10_000 - ran.client.away_ticks < 50


def test_a_worker_that_is_there_and_says_nothing_is_waited_for(dispatch):
    ran = dispatch({(0, 0): Silent(200)}).run()
    assert sorted(ran.numbers) == list(range(RANGES))


def test_a_result_that_was_lost_with_its_worker_is_told_again_and_counts_once(dispatch):
    ran = dispatch({(1, 0): LostResult()}).run()
    assert sorted(ran.numbers) == list(range(RANGES))
    assert not ran.dispatcher.retries


def test_the_job_goes_along_with_as_many_tasks_as_begin_together_and_with_each_that_asks(dispatch):
    """A worker that came later does not have it: the task is sent again, and that is no retry."""
    sent = []

    def script(attempt):
        if attempt.piece.number == 5 and [number for number, _ in sent].count(5) == 1:
            return Manifest(5, outcome="no job")
        return done(attempt)

    ran = dispatch(script)
    submit = ran.client.submit

    def note(function, task, job_bytes, attempt, *rest, **options):
        sent.append((attempt.piece.number, job_bytes is not None))
        return submit(function, task, job_bytes, attempt, *rest, **options)

    ran.client.submit = note
    ran.run()
    layout = ran.dispatcher.session.layout
    first = layout.workers * (layout.threads + 1)
    assert [number for number, has_job in sent if has_job] == [*range(first), 5]
    assert [each.tries for each in ran.tries(5)] == [0, 0]
    assert len([event for event in ran.told if isinstance(event, TaskEnded)]) == RANGES
    assert not ran.dispatcher.retries


def test_a_long_row_is_read_alone(dispatch):
    error = long_row()
    ran = dispatch(lambda each: done(each, outcome="oversize", error=error) if is_first(each) else done(each)).run()
    again = ran.tries(0)[1]
    assert again.exclusive_bytes is not None
    assert again.largest_row_bytes == ran.dispatcher.stage.exclusive_row_bytes > ran.tries(0)[0].largest_row_bytes
    assert again.block_bytes == min(BLOCK_BYTES, MIN_BLOCK_BYTES)
    assert ran.client.flying[ran.client.attempts.index(again)] == {0}


def test_a_row_that_fits_alone_is_read_alone_also_where_the_first_failure_ends_the_run(dispatch):
    error = long_row()
    ran = dispatch(
        lambda each: done(each, outcome="oversize", error=error) if is_first(each) else done(each), on_oom="raise"
    )
    error.row_bytes = ran.dispatcher.stage.exclusive_row_bytes
    assert sorted(ran.run().numbers) == list(range(RANGES))


def test_rows_that_are_set_aside_count_as_units_too(dispatch):
    attempt = Attempt(dispatch().pieces[0], BLOCK_BYTES, BLOCK_BYTES, spans=(Span(0, 9, 1),) * (MOST_UNITS - 2))
    once = narrowed(attempt, Unit(4, 4, 1, "write"), "no room", MemoryError("no room"))
    assert [row.address for row in once.aside] == [4]
    with pytest.raises(MemoryError, match="too many"):
        narrowed(dataclasses.replace(once, aside=once.aside * 2), Unit(5, 5, 1, "write"), "", MemoryError("too many"))


def test_a_row_that_is_too_long_even_alone_is_set_aside_or_refused_with_the_memory_that_would_do(dispatch):
    error = long_row(row_bytes=10**10)

    def script(attempt):
        return done(attempt, outcome="oversize", error=error) if is_first(attempt) else done(attempt)

    assert sorted(dispatch(script).run().numbers) == list(range(RANGES))
    with pytest.raises(
        OversizeRowError,
        match=r"a\.jsonl line 3 \(byte 40\) is one row of 10\.00 GB.*Start the cluster with memory='[\d.]+GB', and repeat",
    ):
        dispatch(script, on_oom="raise").run()


def test_a_page_that_is_too_large_even_alone_is_refused(dispatch):
    error = long_row(OversizePageError, 10**10)
    error.column = "text"
    ran = dispatch(lambda attempt: done(attempt, outcome="oversize", error=error))
    with pytest.raises(OversizePageError):
        ran.run()
    assert [each.exclusive_bytes is None for each in ran.client.attempts[-1:]] == [False]


def test_an_interrupt_ends_the_run_and_what_is_in_flight(dispatch):
    def script(attempt):
        if attempt.piece.number == 2:
            raise KeyboardInterrupt
        return Silent(10_000)

    ran = dispatch(script)
    with pytest.raises(KeyboardInterrupt):
        ran.run()
    assert [task.status for task in ran.client._tasks][:2] == ["cancelled"] * 2


def step_memory(attempt, error=None, **told):
    """Return what a task tells whose step took too much memory outside of its worker."""
    error = StepMemoryError("step 'f' starts processes that took 700 MB") if error is None else error
    return out_of_memory(attempt, error=error, **told)


def test_a_step_that_took_too_much_outside_of_its_worker_is_tried_alone_with_the_same_blocks(dispatch):
    def script(attempt):
        is_odd = attempt.piece.number == 2 and attempt.exclusive_bytes is None
        return step_memory(attempt) if is_odd else done(attempt)

    ran = dispatch(script).run()
    assert sorted(ran.numbers) == list(range(RANGES))
    first, second = ran.tries(2)
    assert second.exclusive_bytes and second.block_bytes == first.block_bytes


def test_then_its_blocks_become_smaller_and_then_it_is_the_error(dispatch):
    ran = dispatch(step_memory, block_bytes=64 * SMALLEST_BLOCK_BYTES)
    with pytest.raises(StepMemoryError, match="step 'f' starts processes"):
        ran.run()
    alone = [attempt.block_bytes // SMALLEST_BLOCK_BYTES for attempt in ran.client.attempts if attempt.exclusive_bytes]
    assert alone == [64, 16, 4]


def test_a_failure_that_may_be_of_memory_is_tried_alone_once(dispatch):
    error = OperatorError("step 'f' raised CalledProcessError")
    error.may_be_memory = True
    ran = dispatch(lambda attempt: step_memory(attempt, error), block_bytes=64 * SMALLEST_BLOCK_BYTES)
    with pytest.raises(OperatorError, match="CalledProcessError"):
        ran.run()
    assert len([attempt for attempt in ran.client.attempts if attempt.exclusive_bytes]) == 1


def test_with_fail_it_is_the_error_at_once(dispatch):
    ran = dispatch(step_memory, on_oom="raise")
    with pytest.raises(StepMemoryError):
        ran.run()
    assert not any(attempt.exclusive_bytes for attempt in ran.client.attempts)


def test_rows_are_set_aside_for_it_where_that_was_asked_for_and_only_a_few(dispatch):
    def script(attempt):
        if attempt.piece.number != 2:
            return done(attempt)
        return step_memory(attempt, unit=Unit(len(attempt.aside), len(attempt.aside), 1, "f"))

    ran = dispatch(script)
    ran.dispatcher.job = dataclasses.replace(ran.dispatcher.job, on_error="quarantine")
    with pytest.raises(StepMemoryError):
        ran.run()
    last = ran.tries(2)[-1]
    assert [row.address for row in last.aside] == list(range(MOST_LOST_ROWS))
    assert last.aside[0].reason.startswith("out of memory: step 'f' starts processes")


def test_a_worker_that_was_ended_for_its_step_is_the_error_although_its_task_says_nothing(dispatch, tmp_path):
    wall = Wall(str(tmp_path / "wall"), "'1GB'")

    def script(attempt):
        append_line(f"{wall.folder}/ended", [7, 7, 7, "shared", 600_000_000, 480_000_000, "'f'"])
        return Silent(10**9)

    ran = dispatch(script)
    ran.dispatcher.session.wall = wall
    with pytest.raises(StepMemoryError, match="step 'f' uses shared memory and took 600 MB, but only 480 MB were free"):
        ran.run()
    wall.close()
