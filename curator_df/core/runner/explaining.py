# SPDX-License-Identifier: Apache-2.0
"""Get the plan of a call that would run: the function is called, and stops once its plan is known, before it writes."""

from __future__ import annotations

import contextlib
import dataclasses
import types
from collections.abc import Iterator, Sequence
from contextvars import ContextVar

from curator_df.core.planning.plan import Plan
from curator_df.core.planning.program import Program
from curator_df.core.runner.session import Session, planned_with
from curator_df.memory.budget import Layout

_IS_EXPLAINING: ContextVar[bool] = ContextVar("is_explaining", default=False)


class PlanKnown(Exception):  # noqa: N818 - it is no error, and never leaves `explain`
    """Ends a call whose plan was requested."""

    def __init__(self, plan: Plan, programs: Sequence[Program]) -> None:
        super().__init__("the plan is known")
        self.plan, self.programs = plan, programs


@contextlib.contextmanager
def explaining(layout: Layout, workdir: str) -> Iterator[None]:
    """Let calls that run in this block stop with `PlanKnown`, for a cluster of this layout that need not exist."""
    session = Session(types.SimpleNamespace(status="planned"), layout, limits_data=False, workdir=workdir)
    token = _IS_EXPLAINING.set(True)
    try:
        with planned_with(session):
            yield
    finally:
        _IS_EXPLAINING.reset(token)


def is_explaining() -> bool:
    """Return whether only the plan of this call is requested."""
    return _IS_EXPLAINING.get()


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
