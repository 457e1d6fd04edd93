# SPDX-License-Identifier: Apache-2.0
"""Get the plan of a call that would run: the function is called, and stops once its plan is known, before it writes."""

from __future__ import annotations

import contextlib
import dataclasses
import types
from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from typing import Any

import dask
import dask.base
import dask.threaded

from curator_df.core.planning.plan import Plan
from curator_df.core.planning.program import Program
from curator_df.core.ranges.journal import Journal
from curator_df.core.runner.session import Session, planned_with
from curator_df.memory.budget import Layout
from curator_df.memory.sizes import show_count

_sampled: dict[tuple[str, str, int], float] = {}
"""Seconds of runs that were estimated from a sample, by their input, their program and the number of concurrent tasks."""
_IS_EXPLAINING: ContextVar[bool] = ContextVar("is_explaining", default=False)


class PlanKnown(Exception):  # noqa: N818 - it is no error, and never leaves `explain`
    """Ends a call whose plan was requested."""

    def __init__(self, plan: Plan, programs: Sequence[Program]) -> None:
        super().__init__("the plan is known")
        self.plan, self.programs = plan, programs


class DaskComputes(Exception):  # noqa: N818 - not an error: `explain` always catches it
    """Signal that a call whose plan was requested has reached its first computation by Dask."""

    def __init__(self, expression: Any) -> None:
        super().__init__("Dask begins to compute")
        self.expression = expression


def _stopping() -> Callable[..., Any]:
    """Return a scheduler of Dask that raises `DaskComputes`, but computes for other threads, which share Dask's settings."""
    earlier = dask.base.get_scheduler() or dask.threaded.get

    def schedule(expression: Any, keys: Any, **options: Any) -> Any:
        if is_explaining():
            raise DaskComputes(expression)
        return earlier(expression, keys, **options)

    return schedule


@contextlib.contextmanager
def explaining(layout: Layout, workdir: str, running: Session | None = None) -> Iterator[None]:
    """Let calls in this block stop when they run something, for a cluster of this layout that need not exist.

    The folder for working files is that of the cluster that is ``running``, if it has one, or else ``workdir``.

    What curator_df runs stops with `PlanKnown`, and what Dask computes with `DaskComputes`.
    """
    session = Session(types.SimpleNamespace(status="planned"), layout, limits_data=False, workdir=workdir)
    if running is not None and running.workdir is not None:
        session.workdir = running.workdir if running.working_folder is None else running.working_folder(make=False)
    token = _IS_EXPLAINING.set(True)
    try:
        with planned_with(session), dask.config.set(scheduler=_stopping()):
            yield
    finally:
        _IS_EXPLAINING.reset(token)


def is_explaining() -> bool:
    """Return whether only the plan of this call is requested."""
    return _IS_EXPLAINING.get()


def note_time(program: Program, layout: Layout, seconds: float) -> None:
    """Keep the time of a run that was estimated from a measured sample, for plans of the same run in this process."""
    _sampled[_run_key(program, layout)] = seconds


def with_sampled_time(plan: Plan, programs: Sequence[Program]) -> Plan:
    """Return a plan with the time that `note_time` has kept, if there is one and no better is known."""
    seconds = _sampled.get(_run_key(programs[0], plan.layout)) if len(programs) == 1 else None
    if plan.seconds is not None or seconds is None:
        return plan
    return dataclasses.replace(plan, seconds=seconds, measured_by="by the sample that recommend ran")


def _run_key(program: Program, layout: Layout) -> tuple[str, str, int]:
    return program.source.fingerprint, program.fingerprint, layout.workers * layout.threads


def with_time_left(plan: Plan, journals: Sequence[Journal]) -> Plan:
    """Return a plan with the time of the rest of an interrupted run, by the seconds of its finished input splits.

    Before the first of these is finished, when passes of deferred operations run, it is not known; nor if an output is not begun.
    """
    tasks = plan.layout.workers * plan.layout.threads
    left, finished, seconds, is_complete = 0, 0, 0.0, True
    for journal in journals:
        ranges = journal.ranges
        if ranges is None:
            return plan
        sizes = journal.folder.sizes()
        done = [
            record
            for record in journal.records().values()
            if all(sizes.get(file.name) == file.size_bytes for file in record.files)
        ]
        if journal.receipt is None or len(done) < len(ranges):
            left = max(left, len(ranges) - len(done))
            finished, seconds = finished + len(done), seconds + sum(one.seconds for one in done)
            is_complete = False
    if is_complete:
        return dataclasses.replace(plan, seconds=0.0, measured_by="the run is complete")
    if not finished:
        return plan
    said = f"{show_count(left, 'input split')} left, by the seconds of {show_count(finished, 'finished one')}"
    return dataclasses.replace(plan, seconds=-(-left // tasks) * seconds / finished, measured_by=said)


def stop_if_explaining(plan: Plan, programs: Sequence[Program]) -> None:
    """Raise `PlanKnown` if only the plan of this call is requested."""
    if is_explaining():
        raise PlanKnown(plan, programs)


def joined_plans(plans: Sequence[Plan], then: str) -> Plan:
    """Return the plan of runs one after the other: the steps of the largest, the peak of all, and what follows in words."""
    largest = max(plans, key=lambda plan: plan.projected_bytes)
    first = plans[0] if len(plans) == 2 else largest
    remark = (("then", then),)
    return dataclasses.replace(first, projected_bytes=largest.projected_bytes, remarks=(*first.remarks, *remark))
