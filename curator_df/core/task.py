# SPDX-License-Identifier: Apache-2.0
"""What runs on a worker: one range, streamed block by block into the sink of each branch.

A task returns a small `Manifest` and nothing else. It never raises: an error travels in the manifest, so that no worker
prints a traceback of its own and the runner decides what follows.
"""

from __future__ import annotations

import errno
import functools
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import cloudpickle

from curator_df.core.blocks import BlockKernel, Outcome
from curator_df.core.branches import Branch, Fork
from curator_df.core.failing_rows import may_be_users, operator_error, without_failing_rows
from curator_df.core.limits import raised_data_limit, release_free_memory, status_bytes
from curator_df.core.program import Step, StepTally, run_step
from curator_df.core.quarantine import QuarantineFile
from curator_df.core.range_action import RangeAction
from curator_df.core.rejects import reject_rows, rejects_meta
from curator_df.core.sink import RangeWriter
from curator_df.core.source import BadRow, Range
from curator_df.core.storage import FileRecord, Folder, disk_errors
from curator_df.errors import CuratorError, OperatorError, OversizeRowError, RowCountError

OnError = Literal["raise", "quarantine"]

_stopped_runs: set[str] = set()


@dataclass(frozen=True)
class Job:
    """Everything about a stage that is the same for all its ranges."""

    run_id: str
    """Names this run, for `request_stop`."""
    fork: Fork
    """Where the blocks come from, what happens to them, and where they go."""
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
    """What became of one attempt, in its first branch; ``others`` has what became of it in each other one."""

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
    branch: int = 0
    """Place of the branch among those of the job."""
    others: list[Manifest] = field(default_factory=list)
    """One for each other branch for which the range was not finished before."""


async def request_stop(run_id: str) -> None:
    """Make the tasks of a run in this process end at their next block (a coroutine: Dask then need not wait for it)."""
    _stopped_runs.add(run_id)


def run_range(job_bytes: bytes, attempt: Attempt) -> Manifest:
    """Stream one range; return what became of it."""

    def stream(manifest: Manifest) -> None:
        job = _load(job_bytes)
        with disk_errors(job.fork.branches[0].sink.folder):
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


class _Output:
    """What one branch makes of a range: files, rejects, rows set aside. Nothing is visible before `commit`."""

    def __init__(self, branch: Branch, attempt: Attempt, manifest: Manifest) -> None:
        number, program = attempt.piece.number, branch.program
        self.branch, self.manifest = branch, manifest
        self.quarantine = QuarantineFile(branch.sink.folder, number)
        self.writer = branch.sink.open(number, program.meta, attempt.block_bytes)
        self.rejects: RangeWriter | None = None
        if branch.rejects is not None:
            self.rejects = branch.rejects.open(number, rejects_meta(program.source.meta), attempt.block_bytes)
        self._columns = list(program.source.meta.columns)
        self._visible: list[tuple[Folder, FileRecord]] = []

    def select(self, block: Any) -> Any:
        """Return a block that was read with the columns that this branch reads."""
        return block if list(block.columns) == self._columns else block[self._columns]

    def write(self, block: Any) -> None:
        """Write rows that passed every step."""
        started = time.perf_counter()
        with disk_errors(self.branch.sink.folder):
            self.writer.append(block)
        self.manifest.rows_written += len(block)
        self.manifest.write_seconds += time.perf_counter() - started

    def finish(self) -> None:
        """Check that every row is accounted for."""
        self.manifest.rows_read += self.quarantine.unread_rows
        self.manifest.rows_quarantined = self.quarantine.rows
        _check_rows(self.manifest)

    def commit(self) -> None:
        """Make all files durable and visible."""
        started = time.perf_counter()
        manifest, folder = self.manifest, self.branch.sink.folder
        with disk_errors(folder):
            manifest.other_files = self._now_visible(folder, self.quarantine.commit())
            if self.branch.rejects is not None and self.rejects is not None:
                manifest.other_files += self._now_visible(self.branch.rejects.folder, self.rejects.commit())
            manifest.files = self._now_visible(folder, self.writer.commit())
        manifest.summary = self.writer.summary
        manifest.write_seconds += time.perf_counter() - started

    def withdraw(self) -> None:
        """Delete what is visible already: the range is not finished, and its next attempt may write other files."""
        for folder, file in self._visible:
            folder.delete(file.name)

    def discard(self) -> None:
        """Drop what was not committed."""
        for unfinished in (self.writer, self.rejects, self.quarantine):
            if unfinished is not None:
                unfinished.discard()

    def _now_visible(self, folder: Folder, files: list[FileRecord]) -> list[FileRecord]:
        self._visible += [(folder, file) for file in files]
        return files


class _Stretch:
    """Consecutive steps on the way to the same outputs; each counts them as its own."""

    def __init__(self, job: Job, steps: Sequence[Step], outputs: Sequence[_Output], number: int) -> None:
        self.job, self.steps, self.outputs = job, steps, outputs
        self.tallies = [StepTally() for _ in steps]
        for output in outputs:
            output.manifest.steps += self.tallies
        self.prepared = {n: s.action.of_range(number) for n, s in enumerate(steps) if isinstance(s.action, RangeAction)}

    def run(self, block: Any) -> Any:
        """Return what is left of a block after these steps."""
        files = self.job.fork.source.files
        for number, (step, tally) in enumerate(zip(self.steps, self.tallies, strict=True)):
            try:
                outcome, seconds = run_step(step, block, self.prepared.get(number))
            except (MemoryError, CuratorError):
                raise
            except Exception as exc:
                if not may_be_users(step):
                    raise
                if self.job.on_error == "raise":
                    raise operator_error(step, block, exc, files) from exc
                block = without_failing_rows(step, block, files, self._set_aside)
                outcome, seconds = run_step(step, block)
            removed = len(block) - len(outcome.block)
            if isinstance(step.action, BlockKernel) and removed != sum(outcome.dropped.values()):
                raise RowCountError(
                    f"{step.name} took {len(block):,} rows, returned {len(outcome.block):,} and gave reasons for "
                    f"{sum(outcome.dropped.values()):,} removed; every removed row needs one"
                )
            tally.add(outcome, len(block), seconds)
            if removed > 0:
                self._reject(step, block, outcome)
            block = outcome.block
        return block

    def finish(self) -> None:
        """Check that the range was the one of the first pass."""
        for number, of_range in self.prepared.items():
            of_range.finish(self.steps[number].name)

    def _set_aside(self, row: BadRow) -> None:
        for output in self.outputs:
            output.quarantine.add_row(row)

    def _reject(self, step: Step, block: Any, outcome: Outcome) -> None:
        """Keep removed rows where they are kept; outputs of one stretch read the same columns."""
        keeping = [output for output in self.outputs if output.rejects is not None]
        if keeping:
            source = keeping[0].branch.program.source
            rows = reject_rows(step.name, block, outcome, source.files, source.meta)
            for output in keeping:
                output.rejects.append(rows)  # type: ignore[union-attr]  # these have some


def _stream(job: Job, attempt: Attempt, manifest: Manifest) -> None:
    outputs: list[_Output] = []
    try:
        for place, branch in enumerate(job.fork.branches):
            if attempt.piece.number not in branch.finished:
                part = Manifest(manifest.number, block_bytes=manifest.block_bytes) if outputs else manifest
                part.branch = place
                outputs.append(_Output(branch, attempt, part))
        manifest.others = [output.manifest for output in outputs[1:]]
        _stream_into(outputs, job, attempt, manifest)
        try:
            for output in outputs:
                output.commit()
        except BaseException:
            for output in outputs:
                output.withdraw()
            raise
    finally:
        for output in outputs:
            output.discard()


def _stream_into(outputs: Sequence[_Output], job: Job, attempt: Attempt, manifest: Manifest) -> None:
    def set_aside(row: BadRow) -> None:
        for output in outputs:
            output.quarantine.add(row)

    stem = _Stretch(job, job.fork.stem, outputs, attempt.piece.number)
    stretches = [_Stretch(job, job.fork.own_steps(o.branch), [o], attempt.piece.number) for o in outputs]
    blocks = job.fork.source.blocks(
        attempt.piece,
        block_bytes=attempt.block_bytes,
        largest_row_bytes=attempt.largest_row_bytes,
        on_bad_row=set_aside if job.fork.source.quarantines else None,
    )
    started = time.perf_counter()
    for block in blocks:
        manifest.read_seconds += time.perf_counter() - started
        if job.run_id in _stopped_runs:
            raise _StoppedError
        manifest.rows_read += len(block)
        manifest.largest_block_bytes = max(manifest.largest_block_bytes, int(block.memory_usage().sum()))
        kept = stem.run(block)
        del block
        for output, stretch in zip(outputs, stretches, strict=True):
            output.write(stretch.run(output.select(kept) if job.fork.shared == 0 else kept))
        del kept
        started = time.perf_counter()
    for part in manifest.others:
        part.rows_read, part.read_seconds = manifest.rows_read, manifest.read_seconds
        part.largest_block_bytes = manifest.largest_block_bytes
    for output in outputs:
        output.finish()
    for stretch in (stem, *stretches):
        stretch.finish()


def _check_rows(manifest: Manifest) -> None:
    removed = sum(step.rows_in - step.rows_out for step in manifest.steps)
    if manifest.rows_read != manifest.rows_written + removed + manifest.rows_quarantined:
        raise RowCountError(
            f"range {manifest.number}: {manifest.rows_read:,} rows read, but {manifest.rows_written:,} written + "
            f"{removed:,} dropped + {manifest.rows_quarantined:,} quarantined"
        )
