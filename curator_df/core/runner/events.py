# SPDX-License-Identifier: Apache-2.0
"""Events that the runner sends to watchers while it works: `curator_df.core.runner.session.Session.emit`.

All of them occur in the client's process, in the thread of the run: tasks return all their figures, so a watcher that shows
or serves them needs nothing on the workers.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from curator_df.core.ranges.manifest import Manifest
    from curator_df.core.runner.session import Session
    from curator_df.receipts.receipt import ExchangeReceipt

FINAL_STAGE = "write"
"""Stage in which each row is read and written once; the stages before it read the same rows for their keys."""
RunOutcome = Literal["finished", "failed", "interrupted"]


@dataclass(frozen=True)
class Note:
    """Event that a person may want to know about."""

    kind: str
    """``retry``, ``leak``, ``kept`` (it looked like a leak), ``recycle``, ``balance`` or ``reuse`` (passes of a look)."""
    text: str
    """Complete description."""
    cause: str = ""
    """Detail of the event. For a retry: ``memory``, ``worker lost`` or ``exclusive``. For a leak: the step, if it was found. For
    a recycle: the worker.
    """


@dataclass(frozen=True)
class RunStarted:
    """Start of a run: one pass into one or several outputs, with the stages before it."""

    output: str
    """Output folder, or folders."""
    input_bytes: int
    """Size of the input on disk in bytes."""
    projected_bytes: int
    """Estimated peak memory in bytes."""


@dataclass(frozen=True)
class StageStarted:
    """Start of the tasks of one stage."""

    stage: str
    """Purpose of the tasks, such as ``write`` or ``drop_exact_duplicates: keys``."""
    job: Any
    """Job of the tasks: a `curator_df.core.tasks.task.Job` if it is a program on ranges."""
    tasks: int
    """Number of tasks."""
    done: int
    """Number of tasks that an earlier run finished."""


@dataclass(frozen=True)
class TaskEnded:
    """End of a task, or its loss with its worker."""

    stage: str
    """Purpose of the task, as in `StageStarted`."""
    job: Any
    """Job of the task, as in `StageStarted`."""
    manifest: Manifest | None
    """Result of the task; None if its worker was lost."""
    seconds: float
    """Time from submission to return in seconds, including waiting."""


@dataclass(frozen=True)
class Exchanged:
    """Completed comparison of the keys of all rows."""

    receipt: ExchangeReceipt
    """Figures of the comparison."""


@dataclass(frozen=True)
class RunEnded:
    """End of a run, successful or not."""

    outcome: RunOutcome
    """Outcome of the run."""


Event = Note | RunStarted | StageStarted | TaskEnded | Exchanged | RunEnded


@contextmanager
def run_events(session: Session, started: RunStarted) -> Iterator[None]:
    """Send the events of the start and the end of a run."""
    session.emit(started)
    outcome: RunOutcome = "failed"
    try:
        yield
        outcome = "finished"
    except KeyboardInterrupt:
        outcome = "interrupted"
        raise
    finally:
        session.emit(RunEnded(outcome))


def stage_name(title: str) -> str:
    """Return the part of a title that all iterations of a stage share.

    Examples
    --------
    >>> stage_name("bands, iteration 3")
    'bands'
    """
    return title.partition(",")[0]
