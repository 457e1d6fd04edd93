# SPDX-License-Identifier: Apache-2.0
"""What runs on a worker: one range, streamed block by block through the program into the sink.

A task returns a small `Manifest` and nothing else. It never raises: an error travels in the manifest, so that no worker
prints a traceback of its own and the runner decides what follows.
"""

from __future__ import annotations

import errno
import functools
import os
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import cloudpickle

from curator_df.core.blocks import BlockKernel, Outcome
from curator_df.core.limits import raised_data_limit, release_free_memory, status_bytes
from curator_df.core.program import Graph, Program, Step, StepTally, run_step
from curator_df.core.quarantine import QuarantineFile
from curator_df.core.range_action import OfRange, RangeAction
from curator_df.core.rejects import reject_rows, rejects_meta
from curator_df.core.sink import RangeWriter, Sink
from curator_df.core.source import OFFSET_BITS, BadRow, Range
from curator_df.core.storage import FileRecord, Folder, disk_errors
from curator_df.errors import CuratorError, OperatorError, OversizeRowError, RowCountError

OnError = Literal["raise", "quarantine"]

_stopped_runs: set[str] = set()


@dataclass(frozen=True)
class Job:
    """Everything about a stage that is the same for all its ranges."""

    run_id: str
    """Names this run, for `request_stop`."""
    program: Program
    """What happens to the blocks."""
    sink: Sink
    """Where they go."""
    rejects: Sink | None
    """Where removed rows go, if they are kept."""
    quarantine: Folder
    """Where rows go that cannot be read or on which a user's function raises."""
    on_error: OnError
    """What to do when a user's function raises."""


@dataclass(frozen=True)
class Attempt:
    """One try at one range."""

    piece: Range
    """The range."""
    block_bytes: int
    """Decompressed bytes of a block; halved after each `MemoryError`."""
    largest_row_bytes: int
    """A longer row ends the task with the outcome ``oversize``."""
    exclusive_bytes: int | None = None
    """For a task that has the node to itself: what it may hold, instead of its share."""
    tries: int = 0
    """Earlier tries at this range that ran out of memory or lost their worker."""


@dataclass
class Manifest:
    """What became of one attempt."""

    number: int
    """Of the range."""
    outcome: Literal["done", "memory", "oversize", "stopped", "failed"] = "failed"
    """``done``: everything is committed. Otherwise nothing is."""
    rows_read: int = 0
    """Rows that the reader found, bad ones included."""
    rows_written: int = 0
    """Rows in the sink's files."""
    rows_quarantined: int = 0
    """Rows set aside: unreadable ones, and ones on which a user's function raised."""
    steps: list[StepTally] = field(default_factory=list)
    """What each step did."""
    files: list[FileRecord] = field(default_factory=list)
    """The sink's files."""
    summary: dict[str, int] = field(default_factory=dict)
    """What the sink says of the range besides its files."""
    other_files: list[FileRecord] = field(default_factory=list)
    """Files of rejects and quarantine."""
    block_bytes: int = 0
    """Block size of this attempt."""
    largest_block_bytes: int = 0
    """Bytes of the largest block that came: more than ``block_bytes`` where one row is."""
    read_seconds: float = 0.0
    """Time in the reader."""
    write_seconds: float = 0.0
    """Time in the sink."""
    peak_bytes: int = 0
    """Most resident bytes of the worker process (all its threads) up to the end of the task."""
    error: BaseException | None = None
    """Why it did not finish."""


async def request_stop(run_id: str) -> None:
    """Make the tasks of a run in this process end at their next block (a coroutine: Dask then need not wait for it)."""
    _stopped_runs.add(run_id)


def run_range(job_bytes: bytes, attempt: Attempt) -> Manifest:
    """Stream one range; return what became of it."""

    def stream(manifest: Manifest) -> None:
        job = _load(job_bytes)
        manifest.steps = [StepTally() for _ in job.program.steps]
        with disk_errors(job.sink.folder):
            _stream(job, attempt, manifest)

    return run_guarded(attempt, stream)


def run_guarded(attempt: Attempt, work: Callable[[Manifest], None]) -> Manifest:
    """Do the work of a task; an error becomes part of its manifest, and freed pages go back to the system."""
    manifest = Manifest(attempt.piece.number, block_bytes=attempt.block_bytes)
    try:
        with raised_data_limit(attempt.exclusive_bytes):
            work(manifest)
        manifest.outcome = "done"
    except BaseException as exc:  # noqa: BLE001 - it travels in the manifest
        manifest.outcome = _outcome_of(exc)
        manifest.error = _portable(exc)
    release_free_memory()
    manifest.peak_bytes = status_bytes("VmHWM")
    return manifest


@functools.lru_cache(maxsize=4)
def _load(job_bytes: bytes) -> Job:
    job: Job = cloudpickle.loads(job_bytes)
    return job


def _outcome_of(exc: BaseException) -> Literal["memory", "oversize", "stopped", "failed"]:
    if isinstance(exc, OversizeRowError):
        return "oversize"
    if isinstance(exc, _StoppedError):
        return "stopped"
    no_thread = isinstance(exc, RuntimeError) and "can't start new thread" in str(exc)
    if isinstance(exc, MemoryError) or no_thread or (isinstance(exc, OSError) and exc.errno == errno.ENOMEM):
        return "memory"
    return "failed"


def _portable(exc: BaseException) -> BaseException:
    """Return an error that can travel: its frames would keep the blocks alive, and not every class can be pickled."""
    traceback.clear_frames(exc.__traceback__)
    text = "".join(traceback.format_exception(exc))
    exc = exc.with_traceback(None)
    exc.__cause__ = exc.__context__ = None
    if not isinstance(exc, CuratorError):
        exc.add_note(f"On the worker:\n{text}")
    try:
        cloudpickle.loads(cloudpickle.dumps(exc))
    except Exception:  # noqa: BLE001 - whatever a strange class raises
        return OperatorError(text)
    return exc


class _StoppedError(Exception):
    """The run was asked to stop."""


def _stream(job: Job, attempt: Attempt, manifest: Manifest) -> None:
    piece, program = attempt.piece, job.program
    quarantine = QuarantineFile(job.quarantine, piece.number)
    prepared = {
        number: step.action.of_range(piece.number)
        for number, step in enumerate(program.steps)
        if isinstance(step.action, RangeAction)
    }
    writer = job.sink.open(piece.number, program.meta, attempt.block_bytes)
    rejects = None
    if job.rejects is not None:
        rejects = job.rejects.open(piece.number, rejects_meta(program.source.meta), attempt.block_bytes)
    try:
        blocks = program.source.blocks(
            piece,
            block_bytes=attempt.block_bytes,
            largest_row_bytes=attempt.largest_row_bytes,
            on_bad_row=quarantine.add if program.source.quarantines else None,
        )
        started = time.perf_counter()
        for block in blocks:
            manifest.read_seconds += time.perf_counter() - started
            if job.run_id in _stopped_runs:
                raise _StoppedError
            manifest.rows_read += len(block)
            manifest.largest_block_bytes = max(manifest.largest_block_bytes, int(block.memory_usage().sum()))
            kept = _through_steps(job, block, manifest, quarantine, rejects, prepared)
            del block
            started = time.perf_counter()
            writer.append(kept)
            manifest.rows_written += len(kept)
            del kept
            manifest.write_seconds += time.perf_counter() - started
            started = time.perf_counter()
        manifest.rows_read += quarantine.unread_rows
        manifest.rows_quarantined = quarantine.rows
        _check_rows(manifest)
        for number, of_range in prepared.items():
            of_range.finish(program.steps[number].name)
        started = time.perf_counter()
        manifest.other_files = quarantine.commit() + (rejects.commit() if rejects is not None else [])
        manifest.files, manifest.summary = writer.commit(), writer.summary
        manifest.write_seconds += time.perf_counter() - started
    finally:
        for unfinished in (writer, rejects, quarantine):
            if unfinished is not None:
                unfinished.discard()


def _through_steps(
    job: Job,
    block: Any,
    manifest: Manifest,
    quarantine: QuarantineFile,
    rejects: RangeWriter | None,
    prepared: Mapping[int, OfRange],
) -> Any:
    for number, (step, tally) in enumerate(zip(job.program.steps, manifest.steps, strict=True)):
        try:
            outcome, seconds = run_step(step, block, prepared.get(number))
        except (MemoryError, CuratorError):
            raise
        except Exception as exc:
            if not may_be_users(step):
                raise
            if job.on_error == "raise":
                raise _operator_error(job, step, block, exc) from exc
            block = _without_failing_rows(job, step, block, quarantine)
            outcome, seconds = run_step(step, block)
        removed = len(block) - len(outcome.block)
        if isinstance(step.action, BlockKernel) and removed != sum(outcome.dropped.values()):
            raise RowCountError(
                f"{step.name} took {len(block):,} rows, returned {len(outcome.block):,} and gave reasons for "
                f"{sum(outcome.dropped.values()):,} removed; every removed row needs one"
            )
        tally.add(outcome, len(block), seconds)
        if rejects is not None and removed > 0:
            rejects.append(_rejected(job, step, block, outcome))
        block = outcome.block
    return block


def may_be_users(step: Step) -> bool:
    """Tell whether a step runs a function that the user wrote."""
    return isinstance(step.action, Graph) or (isinstance(step.action, BlockKernel) and step.action.is_users)


def _rejected(job: Job, step: Step, block: Any, outcome: Outcome) -> Any:
    source = job.program.source
    return reject_rows(step.name, block, outcome, source.files, source.meta)


def _operator_error(job: Job, step: Step, block: Any, exc: Exception) -> OperatorError:
    first, last = int(block.index[0]), int(block.index[-1])
    return OperatorError(
        f"step {step.name!r} raised {type(exc).__name__}: {exc} on a block of {len(block):,} rows, from "
        f"{_place(job, first)} to {_place(job, last)}. Mend the function, or set such rows aside with "
        "on_error='quarantine'"
    )


def _place(job: Job, address: int) -> str:
    file, offset = address >> OFFSET_BITS, address & ((1 << OFFSET_BITS) - 1)
    return f"{job.program.source.files[file]} offset {offset:,}"


def _without_failing_rows(job: Job, step: Step, block: Any, quarantine: QuarantineFile) -> Any:
    """Find the rows on which a step raises, by halving; set them aside and return the others."""
    failing: list[int] = []

    def search(start: int, stop: int) -> None:
        try:
            run_step(step, block.iloc[start:stop])
        except (MemoryError, CuratorError):
            raise
        except Exception as exc:  # noqa: BLE001 - a user's function may raise anything; it is written down
            if stop - start == 1:
                failing.append(start)
                quarantine.add_row(_failed_row(job, step, block.iloc[start:stop], exc))
                return
            middle = (start + stop) // 2
            search(start, middle)
            search(middle, stop)

    search(0, len(block))
    if not failing:
        raise OperatorError(
            f"step {step.name!r} raises on a block of {len(block):,} rows but on none of its parts: it is not a function "
            "of the rows alone"
        )
    keep = [row for row in range(len(block)) if row not in set(failing)]
    return block.iloc[keep]


def _failed_row(job: Job, step: Step, row: Any, exc: Exception) -> BadRow:
    address = int(row.index[0])
    path = job.program.source.files[address >> OFFSET_BITS]
    reason = f"step {step.name!r} raised {type(exc).__name__}: {exc}"
    raw = row.to_json(orient="records", lines=True, force_ascii=False).strip().encode()
    return BadRow(os.fspath(path), 0, address & ((1 << OFFSET_BITS) - 1), reason, raw)


def _check_rows(manifest: Manifest) -> None:
    removed = sum(step.rows_in - step.rows_out for step in manifest.steps)
    if manifest.rows_read != manifest.rows_written + removed + manifest.rows_quarantined:
        raise RowCountError(
            f"range {manifest.number}: {manifest.rows_read:,} rows read, but {manifest.rows_written:,} written + "
            f"{removed:,} dropped + {manifest.rows_quarantined:,} quarantined"
        )
