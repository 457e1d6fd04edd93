# SPDX-License-Identifier: Apache-2.0
"""Faults that are planted in a copy of the package are found by the unit tests that hold the behavior, without a cluster.

Run by hand after changes to dispatcher, journal, exchange or planning: ``pytest -m proof tests/contracts/test_mutations.py``.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Mutation:
    """One fault."""

    file: str
    """Below ``curator_df/``."""
    before: str
    """A piece of it that occurs once."""
    after: str
    """What stands there instead."""
    killer: str
    """The test, below ``tests/``, that fails."""

    def __str__(self) -> str:
        return f"{self.file}: {self.before.strip()[:50]}"


DISPATCH, JOURNAL = "core/runner/test_dispatch.py", "core/ranges/test_journal.py"
EXCHANGE, PLAN = "exchange/test_exchange.py", "core/planning/test_plan.py"
MUTATIONS = (
    Mutation(
        "core/runner/dispatch.py",
        "            splits = attempt.tries > 0 and ",
        "            splits = False and ",
        f"{DISPATCH}::test_a_range_whose_step_ran_out_of_memory_twice_goes_alone_and_the_others_get_what_fitted",
    ),
    Mutation(
        "core/runner/dispatch.py",
        "            self._alone.append(dataclasses.replace(retry, halves=splits, lacks_device_memory=on_device))\n",
        "            raise error\n",
        f"{DISPATCH}::test_out_of_memory_halves_the_block_and_then_the_range_goes_alone",
    ),
    Mutation(
        "core/runner/dispatch.py",
        "REMEMBER_AFTER = 2",
        "REMEMBER_AFTER = 1",
        f"{DISPATCH}::test_one_range_that_runs_out_of_memory_changes_nothing_for_the_others_and_two_do",
    ),
    Mutation(
        "core/runner/dispatch.py",
        "if self.retries[Cause.WORKER_LOST] == lost_before and ",
        "if ",
        f"{DISPATCH}::test_after_a_lost_worker_the_range_goes_alone_before_any_other",
    ),
    Mutation(
        "core/runner/dispatch.py",
        "            self._parcel.send_again()\n",
        "",
        f"{DISPATCH}::test_the_job_goes_along_with_as_many_tasks_as_begin_together_and_with_each_that_asks",
    ),
    Mutation(
        "core/runner/dispatch.py",
        "attempt.rows_aside(Cause.WORKER_LOST) >= MOST_LOST_ROWS",
        "attempt.rows_aside(Cause.WORKER_LOST) > MOST_LOST_ROWS",
        "core/runner/test_lost_alone.py::test_more_such_rows_are_the_fault_of_the_step",
    ),
    Mutation(
        "core/tasks/stopping.py",
        "client.cancel(flying, force=True, asynchronous=False)",
        "client.cancel([], force=True, asynchronous=False)",
        f"{DISPATCH}::test_an_error_of_a_task_ends_the_run_and_what_is_in_flight",
    ),
    Mutation(
        "core/runner/recycling.py",
        "return worker if is_due and not self.is_away else None",
        "return worker if is_due else None",
        "core/runner/test_recycling.py::test_while_one_is_away_no_other_goes",
    ),
    Mutation(
        "core/tasks/worker_limits.py",
        "        _raise_memory_limits(client, -more_bytes)\n",
        "        pass\n",
        f"{DISPATCH}::test_a_range_that_is_alone_may_hold_what_all_tasks_may_hold_and_only_then",
    ),
    Mutation(
        "core/ranges/journal.py",
        "file.truncate(content_end)",
        "file.truncate()",
        f"{JOURNAL}::test_a_line_that_a_crash_cut_short_is_cut_off_before_the_next_one",
    ),
    Mutation(
        "core/ranges/journal.py",
        "if any(state is None or state.size_bytes != file.size_bytes for _, file, state in found):",
        "if any(state is None for _, file, state in found):",
        f"{JOURNAL}::test_a_range_is_whole_if_all_its_files_are_as_they_were_written",
    ),
    Mutation(
        "core/ranges/journal.py",
        'if line.endswith(b"\\n") and b"\\0" not in line:',
        'if line.endswith(b"\\n"):',
        f"{JOURNAL}::test_notes_of_a_lost_machine_are_passed_over",
    ),
    Mutation(
        "core/ranges/journal.py",
        'if plan["input"] != identity.input:',
        "if False:",
        f"{JOURNAL}::test_another_run_is_refused_with_what_differs",
    ),
    Mutation(
        "exchange/exchange.py",
        "-(-(number << 64) // reducers)",
        "((number << 64) // reducers)",
        f"{EXCHANGE}::test_reducers_are_equal_parts_of_the_hashes",
    ),
    Mutation(
        "exchange/key_stages.py",
        "begins[0] = key_at(rows, 0) != before[:2]",
        "begins[0] = True",
        f"{EXCHANGE}::test_same_survivors_as_a_dictionary",
    ),
    Mutation(
        "exchange/dropped_rows.py",
        "if (rows, checksum, missed) != (int(self.rows[number]), int(self.checksums[number]), 0):",
        "if (rows, missed) != (int(self.rows[number]), 0):",
        "exchange/test_key_drop.py::test_rows_that_are_not_those_of_the_first_pass_are_an_error",
    ),
    Mutation(
        "core/planning/plan.py",
        "layout.node_workers * (free.threads * needed_bytes + held_bytes)",
        "(free.threads * needed_bytes + held_bytes)",
        f"{PLAN}::test_the_projection_is_what_is_reserved_and_all_tasks_of_all_workers",
    ),
    Mutation(
        "core/planning/plan.py",
        "    if asked > fitting:",
        "    if asked > 2 * fitting:",
        f"{PLAN}::test_a_plan_that_does_not_fit_is_refused_with_block_and_memory_that_do",
    ),
    Mutation(
        "core/planning/plan.py",
        "largest_row_bytes=max(beside_others, block_bytes),",
        "largest_row_bytes=block_bytes,",
        f"{PLAN}::test_a_longer_row_than_a_block_may_pass_and_a_longer_one_still_alone",
    ),
    Mutation(
        "core/planning/branches.py",
        "if id(step) in waiting and not (number > 0 and place < self.shared):",
        "if id(step) in waiting:",
        f"{PLAN}::test_a_pass_that_two_outputs_share_is_planned_once",
    ),
    Mutation(
        "core/runner/dispatch.py",
        "priority=-attempt.piece.number",
        "priority=attempt.piece.number",
        f"{DISPATCH}::test_each_range_is_done_once_and_the_first_ones_go_first",
    ),
    Mutation(
        "core/runner/dispatch.py",
        "layout.workers * (layout.threads + extra_tasks + (not self._takes_turns)):",
        "layout.workers * (layout.threads + extra_tasks):",
        f"{DISPATCH}::test_each_worker_has_one_task_more_than_threads",
    ),
    Mutation(
        "core/runner/dispatch.py",
        "attempt.rows_aside(Cause.MEMORY) >= MOST_LOST_ROWS",
        "attempt.rows_aside(Cause.MEMORY) > MOST_LOST_ROWS",
        f"{DISPATCH}::test_rows_are_set_aside_for_it_where_that_was_asked_for_and_only_a_few",
    ),
    Mutation(
        "core/runner/retry_units.py",
        "    if unit.rows == 1:",
        "    if unit.rows <= 2:",
        f"{DISPATCH}::test_rows_that_the_writer_cannot_hold_are_taken_in_smaller_units_down_to_one_which_is_set_aside",
    ),
    Mutation(
        "core/ranges/journal.py",
        "not (n < len(done) and done[n])",
        "not n < len(done)",
        f"{JOURNAL}::test_files_of_ranges_without_a_note_are_deleted_before_a_run_goes_on",
    ),
    Mutation(
        "core/ranges/journal.py",
        "for done in whole_ranges(journal)}) < len(ranges):",
        "for done in journal.done()}) < len(ranges):",
        f"{JOURNAL}::test_a_complete_run_has_a_receipt_as_long_as_its_files_are_whole",
    ),
    Mutation(
        "core/ranges/journal.py",
        "if name not in known and one.owns(name) is not None",
        "if name not in known and one.owns(name) is None",
        f"{JOURNAL}::test_files_that_no_finished_range_has_are_deleted_at_the_end",
    ),
    Mutation(
        "exchange/exchange.py",
        "swap_if_last(addresses[part], self._keep)",
        "addresses[part]",
        f"{EXCHANGE}::test_each_policy_on_two_ranges",
    ),
    Mutation(
        "exchange/exchange.py",
        "np.where(bits & _SIGN, ~bits, bits | _SIGN)",
        "bits ^ _SIGN",
        f"{EXCHANGE}::test_ranks_of_integers_and_floats",
    ),
    Mutation(
        "exchange/drops.py",
        "self.missed += stop - int(found.sum())",
        "self.missed += 0",
        f"{EXCHANGE}::test_drops_whose_rows_do_not_come_are_counted",
    ),
    Mutation(
        "exchange/exchange_plan.py",
        "max(-(-total_rows // fitting), 1)",
        "max(total_rows // fitting, 1)",
        "exchange/test_exchange_plan.py::test_reducers_follow_from_rows_and_memory",
    ),
    Mutation(
        "core/planning/plan.py",
        "min(fitting, MAX_DEFAULT_BLOCK_BYTES) if explicit is None else explicit",
        "fitting if explicit is None else explicit",
        f"{PLAN}::test_blocks_are_as_large_as_fits_and_not_larger_than_is_of_use",
    ),
    Mutation(
        "core/planning/price.py",
        "kept += 1.0 + (1.0 if",
        "kept = 1.0 + (1.0 if",
        "core/planning/test_branches.py::test_all_writers_wait_at_once_and_the_shared_block_stays",
    ),
)


def test_each_fault_can_be_planted() -> None:
    for mutation in MUTATIONS:
        assert (str(mutation), source_of(CHECKOUT, mutation).read_text().count(mutation.before)) == (str(mutation), 1)
        file, _, name = mutation.killer.partition("::")
        assert re.search(rf"^def {name}\(", (CHECKOUT / "tests" / file).read_text(), re.MULTILINE), mutation


def source_of(checkout: Path, mutation: Mutation) -> Path:
    return checkout / "curator_df" / mutation.file


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the package with what is compiled, and of the tests."""
    copy = tmp_path_factory.mktemp("mutated")
    shutil.copytree(CHECKOUT / "curator_df", copy / "curator_df")
    shutil.copytree(CHECKOUT / "tests", copy / "tests", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy2(CHECKOUT / "pyproject.toml", copy)
    return copy


def failing_tests(copy: Path, *killers: str) -> set[str]:
    """Run tests on the copy; return the names of those that fail."""
    command = [sys.executable, "-B", "-m", "pytest", "-q", "-p", "no:cacheprovider", "--timeout=60"]
    done = subprocess.run(
        [*command, *(f"tests/{killer}" for killer in killers)],
        cwd=copy,
        env={**os.environ, "PYTHONPATH": str(copy), "PYTEST_ADDOPTS": "", "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode in (0, 1), done.stdout + done.stderr
    return set(re.findall(r"^FAILED tests/([\w/.]+::\w+)", done.stdout, re.MULTILINE))


@pytest.mark.proof
def test_without_a_fault_none_of_them_fails(copy: Path) -> None:
    assert failing_tests(copy, *sorted({mutation.killer for mutation in MUTATIONS})) == set()


@pytest.mark.proof
@pytest.mark.parametrize("mutation", MUTATIONS, ids=str)
def test_a_fault_is_found(copy: Path, mutation: Mutation) -> None:
    source = source_of(copy, mutation)
    whole = source.read_text()
    source.write_text(whole.replace(mutation.before, mutation.after))
    try:
        assert failing_tests(copy, mutation.killer) == {mutation.killer}
    finally:
        source.write_text(whole)
