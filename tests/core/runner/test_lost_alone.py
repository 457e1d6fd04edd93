# SPDX-License-Identifier: Apache-2.0
"""What follows when a range that runs alone loses its worker, on a fake client."""

import dataclasses
import json

import pytest

from curator_df import errors
from curator_df.core.ranges.out_of_memory import Cause, Unit, unit_file
from curator_df.core.runner.dispatch import MOST_LOST_ROWS
from curator_df.core.runner.retry_units import MOST_UNITS
from curator_df.memory.wall import Wall
from tests.core.runner.dispatching import RANGES, is_first, long_row
from tests.core.runner.fake_client import done, killed


def was_working_on(tmp_path, number, unit):
    """Leave the note that a task leaves of what it works on, as if its process had ended then."""
    path = tmp_path / "out" / unit_file(number)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(dataclasses.asdict(unit)))


def test_rows_that_end_a_worker_alone_are_taken_in_smaller_units_and_the_last_one_is_set_aside(dispatch, tmp_path):
    def script(attempt):
        if attempt.piece.number != 1 or attempt.aside:
            return done(attempt)
        was_working_on(tmp_path, 1, Unit(5, 5, 1, "parse") if attempt.spans else Unit(4, 8, 5, "parse"))
        return killed()

    ran = dispatch(script).run()
    last = ran.tries(1)[-1]
    assert [(span.first, span.last, span.rows) for span in last.spans] == [(4, 8, 1)]
    assert [row.address for row in last.aside] == [5]
    assert last.aside[0].reason.startswith("its worker process ended when step 'parse' ran exclusively on this row")
    assert last.aside[0].cause == Cause.WORKER_LOST
    assert ran.dispatcher.retries["worker lost"] == 3
    assert sorted(ran.numbers) == list(range(RANGES))


@pytest.mark.parametrize("starts", [True, False])
def test_a_range_alone_loses_its_worker_once_for_an_answer_in_a_cluster_that_was_started_here(
    dispatch, tmp_path, starts
):
    seen = set()

    def script(attempt):
        is_alone = attempt.exclusive_bytes is not None
        seen.add((is_alone, ran.client.scheduler.allowed_failures))
        return done(attempt) if is_alone or attempt.piece.number else killed()

    ran = dispatch(script)
    ran.dispatcher.session.wall = Wall(str(tmp_path / "wall"), "'1GB'") if starts else None
    assert ran.dispatcher.session.is_started_here == starts
    ran.run()
    assert seen == {(False, 1), (True, 0 if starts else 1)}
    assert ran.client.scheduler.allowed_failures == 1


@pytest.mark.parametrize("unit", [Unit(5, 5, 1, "parse"), None])  # None: while the reader works
@pytest.mark.parametrize("deaths", [1, 2])
def test_a_row_or_a_range_alone_is_blamed_only_if_it_ends_a_second_worker(dispatch, tmp_path, unit, deaths):
    died = []

    def script(attempt):
        if is_first(attempt):
            return done(attempt, outcome="oversize", error=long_row())
        if attempt.piece.number or attempt.aside or len(died) == deaths:
            return done(attempt)
        if unit is not None:
            was_working_on(tmp_path, 0, unit)
        died.append(attempt)
        return killed(allowed_failures=0)

    ran = dispatch(script)
    if deaths == 2 and unit is None:
        with pytest.raises(errors.WorkerLostError, match="crashed its worker again, although it ran exclusively"):
            ran.run()
    else:
        assert len(ran.run().tries(0)[-1].aside) == deaths - 1
        assert sorted(ran.numbers) == list(range(RANGES))
    assert len(died) == deaths


def test_several_rows_alone_are_taken_in_smaller_units_after_one_lost_worker(dispatch, tmp_path):
    def script(attempt):
        if attempt.piece.number or attempt.spans:
            return done(attempt)
        was_working_on(tmp_path, 0, Unit(4, 8, 5, "parse"))
        return killed(allowed_failures=0)

    assert [len(each.spans) for each in dispatch(script).run().tries(0)] == [0, 0, 1]


def test_more_such_rows_are_the_fault_of_the_step(dispatch, tmp_path):
    def script(attempt):
        if attempt.piece.number:
            return done(attempt)
        was_working_on(tmp_path, 0, Unit(len(attempt.aside), len(attempt.aside), 1, "parse"))
        return killed()

    ran = dispatch(script)
    with pytest.raises(
        errors.WorkerLostError,
        match=r"crashed its worker again.* exclusively.*in step 'parse' on 1 row\. .* larger memory=",
    ):
        ran.run()
    assert max(len(each.aside) for each in ran.tries(0)) == MOST_LOST_ROWS


def test_a_worker_lost_alone_without_a_note_of_its_rows_is_an_error(dispatch):
    ran = dispatch({(0, 0): killed(), (0, 1): killed()})
    with pytest.raises(
        errors.WorkerLostError,
        match=r"input split 0 \(a part of the input\) crashed its worker again, although it ran exclusively.*128 kB",
    ):
        ran.run()


def test_rows_are_not_taken_in_smaller_units_without_end(dispatch, tmp_path):
    def script(attempt):
        was_working_on(tmp_path, attempt.piece.number, Unit(0, 9, 5, "parse"))
        return killed()

    ran = dispatch(script)
    with pytest.raises(errors.WorkerLostError, match="crashed its worker again"):
        ran.run()
    assert max(len(each.spans) for each in ran.client.attempts) == MOST_UNITS
