# SPDX-License-Identifier: Apache-2.0
"""Look at a table with a pending drop: run its passes once, and compute its partitions with what they found.

The passes take the partitions of the table as their input splits and leave their files in the working folder of the cluster,
keyed by what the chain does. A second look, and a longer chain with the same beginning, reuse them.
"""

from __future__ import annotations

import dataclasses
import functools
import threading
from dataclasses import dataclass, field
from typing import Any

import dask
import dask.dataframe as dd
from dask.dataframe.dask_expr import new_collection

from curator_df.core.backend import is_on_device
from curator_df.core.files.storage import Folder
from curator_df.core.fingerprint import fingerprint
from curator_df.core.memory.held import outside_of_runs, released_after
from curator_df.core.planning.plan import plan_stream
from curator_df.core.planning.program import Program, Step, lower, origin_of
from curator_df.core.ranges.blocks import Outcome
from curator_df.core.ranges.deferred_step import add_evaluator, remove_evaluator
from curator_df.core.ranges.out_of_memory import UnitLog
from curator_df.core.ranges.range_action import RangeAction
from curator_df.core.ranges.set_up import forget_run
from curator_df.core.ranges.sink import StageSink
from curator_df.core.ranges.source import BadRow, Ranges
from curator_df.core.runner.events import RunStarted, told_run
from curator_df.core.runner.live_panel import live_panel
from curator_df.core.runner.progress import progress_bar
from curator_df.core.runner.session import Session, prepare_kernels
from curator_df.core.runner.stages import StageRunner
from curator_df.core.tasks.stretch import Stretch
from curator_df.errors import BarrierError, ExpressionError

LOOKS_FOLDER = "looks"
"""Below the working folder of the cluster."""


@dataclass(frozen=True)
class _NoSink(StageSink):
    """A look writes nothing after its passes."""

    folder: Folder
    writer_factor: float = 0.0

    @property
    def fingerprint(self) -> str:
        """Digest of what is written."""
        return "look"

    def open(self, number: int, meta: Any, buffer_bytes: int) -> Any:  # noqa: ARG002 - the face of a sink
        """Refuse: a plan asks only what a sink would cost."""
        raise AssertionError("a look was written; this is a defect in curator_df")


@dataclass(frozen=True)
class EvaluatedPartition:
    """What Dask calls for each partition of a table whose pending drops were resolved."""

    program: Program
    """With what each step does to a split in the place of pending steps."""
    ranges: Ranges
    """One for each partition."""
    block_bytes: int
    """Decompressed bytes of a block."""

    def __call__(self, number: int) -> Any:
        """Return a whole partition as one block."""
        source, steps = self.program.source, self.program.steps
        log = UnitLog(number, None)
        stretch = Stretch(
            steps,
            number,
            files=source.files,
            on_error="raise",
            halves=False,
            log=log,
            set_aside=_keep_no_row,
            reject=_keep_no_reject,
        )
        parts = []
        with outside_of_runs({name: size for step in steps for name, size in step.libraries.items()}):
            for block in source.blocks(self.ranges[number], block_bytes=self.block_bytes):
                parts += [part for part in stretch.run([block]) if len(part)]
        stretch.finish()
        if not parts:
            return self.program.meta
        return parts[0] if len(parts) == 1 else dd.methods.concat(parts)


def _keep_no_row(row: BadRow) -> None:
    """Take a row that a run would quarantine; a look leaves it out, as ``.compute()`` of the reader does."""


def _keep_no_reject(step: Step, block: Any, outcome: Outcome) -> None:
    """Take the rows that a step removed; a look shows those that stay."""


@dataclass
class Looks:
    """The passes that looks have run on a session, by what the chain does."""

    session: Session
    """Whose workers run them."""
    folder: Folder
    """Where their files are."""
    _steps: dict[str, tuple[Step, ...]] = field(default_factory=dict)
    _lock: threading.RLock = field(default_factory=threading.RLock)

    def evaluate(self, expression: Any) -> Any:
        """Return the expression of a table with the rows that a chain leaves which ends in a pending drop.

        None for a table that no run takes, such as one of ``dask.dataframe.from_pandas``: the drop then refuses to be computed.
        """
        table = new_collection(expression)
        try:
            reader, program = origin_of(table), lower(table)
        except ExpressionError:
            return None
        if any(is_on_device(one) for one in (program.meta, program.source.meta)) or any(
            s.on_device for s in program.steps
        ):
            raise BarrierError(
                f"{program.steps[-1].name} cannot be looked at while its blocks are on a GPU. Write the table with "
                "write_parquet or checkpoint(df, path) and look at the result"
            )
        with self._lock:
            steps = self._resolved(program, reader.ranges)
        done = EvaluatedPartition(dataclasses.replace(program, steps=steps), reader.ranges, reader.block_bytes)
        with dask.config.set({"dataframe.convert-string": False}):
            return dd.from_map(done, range(len(reader.ranges)), meta=program.meta, label=program.steps[-1].name).expr

    def forget(self) -> None:
        """Delete the files of all looks."""
        with self._lock:
            self._steps.clear()
            self.folder.delete_tree("")

    def _resolved(self, program: Program, ranges: Ranges) -> tuple[Step, ...]:
        """Return the steps of a program with its pending ones resolved; those that a look has resolved are not run again."""
        steps = program.steps
        pending = [place for place, step in enumerate(steps) if step.barrier is not None]
        keys = {place: self._key(program, place, ranges) for place in pending}
        known = max((place for place in pending if keys[place] in self._steps), default=-1)
        if known >= 0:
            steps = (*self._steps[keys[known]], *steps[known + 1 :])
        if known < pending[-1]:
            steps = self._run_passes(dataclasses.replace(program, steps=steps), ranges)
        for place in pending:
            self._steps[keys[place]] = steps[: place + 1]
        return steps

    def _key(self, program: Program, place: int, ranges: Ranges) -> str:
        chain = [step.fingerprint for step in program.steps[: place + 1]]
        return fingerprint([program.source.fingerprint, *chain, ranges.table.tobytes()])

    def _run_passes(self, program: Program, ranges: Ranges) -> tuple[Step, ...]:
        session, steps = self.session, program.steps
        session.require_ready()
        plan = plan_stream(program, _NoSink(self.folder), None, session.weigh_client())
        stages = StageRunner(session, plan.stages[0], self.folder, ranges, "raise", "retry")
        actions = [step.action for step in steps]
        prepare_kernels(session, actions)
        names = ", ".join(step.name for step in steps if step.barrier and not isinstance(step.action, RangeAction))
        with (
            live_panel(session),
            released_after(session, actions, functools.partial(forget_run, stages.run_id)),
            told_run(session, RunStarted(f"a look at {names}", plan.input_bytes, plan.projected_bytes)),
            progress_bar(f"passes of {names}", 1) as show,
        ):
            return stages.resolve(program, lambda title, done, total: show(0, f"{title} {done}/{total}")).steps


def look_at_deferred(session: Session) -> Looks | None:
    """Make Dask's evaluation of tables with pending drops run their passes on a session that has a working folder."""
    if session.workdir is None:
        return None
    looks = Looks(session, Folder(session.workdir).below(LOOKS_FOLDER))
    add_evaluator(looks.evaluate)
    return looks


def stop_looking(looks: Looks | None) -> None:
    """Undo `look_at_deferred`, and delete the files of its passes."""
    if looks is not None:
        remove_evaluator(looks.evaluate)
        looks.forget()
