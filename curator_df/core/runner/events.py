# SPDX-License-Identifier: Apache-2.0
"""What the runner tells those who listen while it works: `curator_df.core.runner.session.Session.tell`.

All of it happens in the client's process, in the thread that runs: tasks come back with all their figures, so whoever wants
to show or serve them needs nothing on the workers.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from curator_df.core.ranges.manifest import Manifest
    from curator_df.core.receipts.receipt import ExchangeReceipt
    from curator_df.core.runner.session import Session

FINAL_STAGE = "write"
"""The stage in which each row is read and written once; those before it read the same rows for their keys."""
RunOutcome = Literal["finished", "failed", "interrupted"]


@dataclass(frozen=True)
class Note:
    """Something that a person may want to know."""

    kind: str
    """``retry``, ``leak``, ``kept`` (it looked like a leak), ``recycle``, ``balance`` or ``reuse`` (passes of a look)."""
    text: str
    """The whole of it, in words."""
    cause: str = ""
    """Of a retry: ``memory``, ``worker lost`` or ``exclusive``. Of a leak: the step, if it was found. Of a
    recycle: the worker."""


@dataclass(frozen=True)
class RunStarted:
    """A run begins: one pass into one or several outputs, with the stages before it."""

    output: str
    """Folder, or folders."""
    input_bytes: int
    """Size of the input as it lies on disk."""
    projected_bytes: int
    """Bytes the plan says it needs."""


@dataclass(frozen=True)
class StageStarted:
    """Tasks of one kind begin."""

    stage: str
    """What they are for, such as ``write`` or ``drop_exact_duplicates: keys``."""
    job: Any
    """What they run: a `curator_df.core.tasks.task.Job` where it is a program on ranges."""
    tasks: int
    """How many there are."""
    done: int
    """Of these, finished by an earlier run."""


@dataclass(frozen=True)
class TaskEnded:
    """A task came back, or was lost with its worker."""

    stage: str
    """As in `StageStarted`."""
    job: Any
    """As in `StageStarted`."""
    manifest: Manifest | None
    """What became of it; None when its worker was lost."""
    seconds: float
    """From its submission until it came back, waiting included."""


@dataclass(frozen=True)
class Exchanged:
    """All rows were compared with each other by their keys."""

    receipt: ExchangeReceipt
    """What that took."""


@dataclass(frozen=True)
class RunEnded:
    """A run ended, well or not."""

    outcome: RunOutcome
    """How."""


Event = Note | RunStarted | StageStarted | TaskEnded | Exchanged | RunEnded


@contextmanager
def told_run(session: Session, started: RunStarted) -> Iterator[None]:
    """Tell of the beginning of a run, and how it ended."""
    session.tell(started)
    outcome: RunOutcome = "failed"
    try:
        yield
        outcome = "finished"
    except KeyboardInterrupt:
        outcome = "interrupted"
        raise
    finally:
        session.tell(RunEnded(outcome))


def stage_name(title: str) -> str:
    """Return what is the same for all iterations of a stage.

    Examples
    --------
    >>> stage_name("bands, iteration 3")
    'bands'
    """
    return title.partition(",")[0]
