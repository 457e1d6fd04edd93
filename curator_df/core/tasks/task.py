# SPDX-License-Identifier: Apache-2.0
"""What runs on a worker: one range, streamed block by block into the sink of each branch.

A task returns a small `Manifest` and nothing else. It never raises: an error travels in the manifest, so that no worker
prints a traceback of its own and the runner decides what follows.
"""

from __future__ import annotations

import functools
import os
import socket
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import cloudpickle
import numpy as np
import numpy.typing as npt

from curator_df.core.files.storage import FileRecord, Folder, disk_errors
from curator_df.core.files.transient import TASK_TRIES, patiently
from curator_df.core.memory import freed_pages
from curator_df.core.memory.device_peak import device_peak_bytes, device_run, device_spilled_bytes
from curator_df.core.memory.limits import raised_data_limit, release_free_memory, status_bytes, thread_limit
from curator_df.core.memory.resources import Capacity, shared
from curator_df.core.planning.branches import Branch, Fork
from curator_df.core.planning.program import Step
from curator_df.core.planning.rejects import reject_rows, rejects_meta
from curator_df.core.ranges.activity import enter_step, leave_task
from curator_df.core.ranges.blocks import Outcome, block_bytes
from curator_df.core.ranges.manifest import Manifest
from curator_df.core.ranges.out_of_memory import (
    NO_THREAD,
    OnOom,
    RowAside,
    Span,
    UnitLog,
    cut_block,
    is_out_of_memory,
    long_row,
    without_rows,
)
from curator_df.core.ranges.quarantine import QuarantineFile
from curator_df.core.ranges.set_up import in_run
from curator_df.core.ranges.sink import RangeWriter
from curator_df.core.ranges.source import BadRow, Range
from curator_df.core.tasks.beside import leave_if_room, may_leave
from curator_df.core.tasks.stretch import OnError, Stretch
from curator_df.core.tasks.worker_profile import profile_without_collections
from curator_df.errors import CuratorError, OperatorError, OversizeRowError, RowCountError

__all__ = ["Attempt", "Job", "OnError", "OnOom", "load_job", "request_stop", "run_guarded", "run_range"]

_stopped_stages: set[str] = set()


@dataclass(frozen=True)
class Job:
    """Everything about a stage that is the same for all its ranges."""

    fork: Fork
    """Where the blocks come from, what happens to them, and where they go."""
    on_error: OnError
    """What to do when a user's function raises."""
    on_oom: OnOom = "retry"
    """What to do when memory runs out."""
    wanted: Callable[[int], npt.NDArray[np.int64] | None] | None = None
    """Returns the addresses, ascending, of the rows of a range that are wanted, or None for all; by default all are."""
    capacity: Capacity | None = None
    """What the tasks of a worker share; None for no limits."""
    run_id: str = ""
    """Names the run that it is of."""


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
    halves: bool = False
    """Whether a step that runs out of memory takes the halves of its block, and a single row is set aside."""
    spans: tuple[Span, ...] = ()
    """Rows to take in small units, because memory ran out, or the worker ended, when they were together."""
    aside: tuple[RowAside, ...] = ()
    """Rows to set aside before the first step, because that happened when they were alone."""
    stage_id: str = ""
    """Names the stage that it is of, for `request_stop`."""
    beside: int = 0
    """Tasks that its worker may have beside those of its threads: `core.tasks.beside`."""


async def request_stop(stage_id: str) -> None:
    """Make the tasks of a stage end in this process: those that run at their next block, others when they begin.

    A coroutine, so that Dask need not wait for it.
    """
    _stopped_stages.add(stage_id)


def _end_if_stopped(attempt: Attempt) -> None:
    if attempt.stage_id in _stopped_stages:
        raise _StoppedError


def run_range(job_bytes: bytes, attempt: Attempt) -> Manifest:
    """Stream one range; return what became of it."""

    def stream(manifest: Manifest) -> None:
        job = load_job(job_bytes, attempt.stage_id)
        device_run(job.run_id)
        with disk_errors(job.fork.branches[0].sink.folder), shared(job.capacity), in_run(job.run_id):
            _stream(job, attempt, manifest)

    return run_guarded(attempt, stream)


def run_guarded(attempt: Attempt, work: Callable[[Manifest], None]) -> Manifest:
    """Do the work of a task; an error becomes part of its manifest, and freed pages go back to the system in time."""
    manifest, started = Manifest(attempt.piece.number, block_bytes=attempt.block_bytes), time.perf_counter()
    with freed_pages.of_process.task():
        enter_step(work.__qualname__.partition(".")[0].removeprefix("run_"))
        profile_without_collections()
        try:
            with raised_data_limit(attempt.exclusive_bytes), may_leave(attempt.beside):
                _work_patiently(attempt, manifest, work)
            manifest.outcome = "done"
        except BaseException as exc:  # noqa: BLE001 - it travels in the manifest
            manifest.outcome = _outcome_of(exc)
            manifest.error = _portable(_with_limit(exc))
            release_free_memory()
        manifest.step, manifest.seconds = leave_task(), time.perf_counter() - started
    manifest.worker, manifest.floor_bytes = f"{socket.gethostname()}:{os.getpid()}", status_bytes("RssAnon")
    manifest.peak_bytes, manifest.device_peak_bytes = status_bytes("VmHWM"), device_peak_bytes()
    manifest.device_spilled_bytes = device_spilled_bytes()
    return manifest


def _work_patiently(attempt: Attempt, manifest: Manifest, work: Callable[[Manifest], None]) -> None:
    """Do the work, and all of it again when a remote store failed in the middle: what it had made is gone then."""

    def once() -> None:
        _end_if_stopped(attempt)
        vars(manifest).update(vars(Manifest(attempt.piece.number, block_bytes=attempt.block_bytes)))
        work(manifest)

    # However long the work takes: it is the number of tries that counts.
    patiently(f"finish task {attempt.piece.number}", once, tries=TASK_TRIES, total_seconds=float("inf"))


@functools.lru_cache(maxsize=4)
def load_job(job_bytes: bytes, stage_id: str) -> Job:  # noqa: ARG001 - by the next stage a user's module may be another
    """Return a job that was pickled for all tasks of a stage."""
    job: Job = cloudpickle.loads(job_bytes)
    return job


def _outcome_of(exc: BaseException) -> Literal["memory", "oversize", "stopped", "failed"]:
    if isinstance(exc, OversizeRowError):
        return "oversize"
    if isinstance(exc, _StoppedError):
        return "stopped"
    return "memory" if is_out_of_memory(exc) else "failed"


def _with_limit(exc: BaseException) -> BaseException:
    """Return the error that names the limit, where it is one of threads that is reached."""
    if isinstance(exc, CuratorError) or NO_THREAD not in str(exc) or not (limit := thread_limit()):
        return exc
    return CuratorError(f"A step could not start a thread, and memory is not the reason: {limit}")


def _portable(exc: BaseException) -> BaseException:
    """Return an error that can travel: its frames would keep the blocks alive, and not every class can be pickled."""
    traceback.clear_frames(exc.__traceback__)
    text = "".join(traceback.format_exception(exc))
    exc = exc.with_traceback(None)
    exc.__cause__ = exc.__context__ = None
    if not isinstance(exc, CuratorError):
        exc.add_note(f"On the worker:\n{text}")
    if _says_the_same(exc):
        return exc
    # A class whose arguments are not what it says, such as UnicodeDecodeError, arrives without words, or not at all.
    said = OperatorError(f"{type(exc).__name__}: {exc}")
    said.add_note(f"On the worker:\n{text}")
    return said


def _says_the_same(exc: BaseException) -> bool:
    """Tell whether an error is the same after it has traveled."""
    try:
        arrived = cloudpickle.loads(cloudpickle.dumps(exc))
    except Exception:  # noqa: BLE001 - whatever a strange class raises
        return False
    return type(arrived) is type(exc) and str(arrived) == str(exc)


class _StoppedError(Exception):
    """The stage was asked to stop."""


class _Output:
    """What one branch makes of a range: files, rejects, rows set aside. Nothing is visible before `commit`."""

    def __init__(self, branch: Branch, attempt: Attempt, manifest: Manifest) -> None:
        number, program = attempt.piece.number, branch.program
        self.branch, self.manifest = branch, manifest
        self._set_aside = branch.sink.folder if branch.set_aside is None else branch.set_aside
        self.quarantine = QuarantineFile(self._set_aside, number)
        self.writer = branch.sink.open(number, program.meta, attempt.block_bytes)
        self.rejects: RangeWriter | None = None
        if branch.rejects is not None:
            try:
                self.rejects = branch.rejects.open(number, rejects_meta(program.source.meta), attempt.block_bytes)
            except BaseException:
                self.writer.discard()
                raise
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
        self.manifest.rows_out_of_memory = self.quarantine.rows_out_of_memory
        _check_rows(self.manifest)

    def commit(self) -> None:
        """Make all files durable and visible."""
        started = time.perf_counter()
        manifest, folder = self.manifest, self.branch.sink.folder
        with disk_errors(folder):
            manifest.other_files = self._now_visible(self._set_aside, self.quarantine.commit())
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


def _stream(job: Job, attempt: Attempt, manifest: Manifest) -> None:
    outputs: list[_Output] = []
    home = job.fork.branches[0].sink.folder
    log = UnitLog(attempt.piece.number, home if attempt.exclusive_bytes is not None else None)
    try:
        for place, branch in enumerate(job.fork.branches):
            if attempt.piece.number not in branch.finished:
                part = Manifest(manifest.number, block_bytes=manifest.block_bytes) if outputs else manifest
                part.branch = place
                outputs.append(_Output(branch, attempt, part))
        manifest.others = [output.manifest for output in outputs[1:]]
        _stream_into(outputs, job, attempt, manifest, log)
        try:
            for output in outputs:
                output.commit()
        except BaseException:
            for output in outputs:
                output.withdraw()
            raise
    finally:
        manifest.unit = log.unit
        log.close()
        for output in outputs:
            output.discard()


def _stretch(job: Job, attempt: Attempt, steps: Sequence[Step], outputs: Sequence[_Output], log: UnitLog) -> Stretch:
    """Return the steps on the way to some outputs; each output counts them, and keeps the rows that they take away."""
    files = job.fork.source.files

    def reject(step: Step, block: Any, outcome: Outcome) -> None:
        keeping = [output.rejects for output in outputs if output.rejects is not None]
        if keeping:  # outputs of one stretch read the same columns
            rows = reject_rows(step.name, block, outcome, files, outputs[0].branch.program.source.meta)
            for rejects in keeping:
                rejects.append(rows)

    stretch = Stretch(
        steps,
        attempt.piece.number,
        files=files,
        on_error=job.on_error,
        halves=attempt.halves,
        log=log,
        set_aside=_aside(outputs),
        reject=reject,
    )
    for output in outputs:
        output.manifest.steps += stretch.tallies
    return stretch


def _stream_into(outputs: Sequence[_Output], job: Job, attempt: Attempt, manifest: Manifest, log: UnitLog) -> None:
    fork = job.fork
    stem = _stretch(job, attempt, fork.stem, outputs, log)
    stretches = [_stretch(job, attempt, fork.own_steps(output.branch), [output], log) for output in outputs]
    started = time.perf_counter()
    for block in _read(outputs, job, attempt):
        manifest.read_seconds += time.perf_counter() - started
        _end_if_stopped(attempt)
        leave_if_room()
        manifest.rows_read += len(block)
        manifest.largest_block_bytes = max(manifest.largest_block_bytes, block_bytes(block))
        units = _units(block, job, attempt, outputs) if attempt.spans or attempt.aside else [block]
        del block
        for kept in stem.run(units):
            for output, stretch in zip(outputs, stretches, strict=True):
                for done in stretch.run([output.select(kept) if fork.shared == 0 else kept]):
                    log.enter("write", done)
                    output.write(done)
        log.leave()
        kept = done = None  # neither is held while the next block is read
        started = time.perf_counter()
    for part in manifest.others:
        part.rows_read, part.read_seconds = manifest.rows_read, manifest.read_seconds
        part.largest_block_bytes = manifest.largest_block_bytes
    for output in outputs:
        output.finish()
    for stretch in (stem, *stretches):
        stretch.finish()
        manifest.elsewhere_seconds += stretch.elsewhere_seconds


def _units(block: Any, job: Job, attempt: Attempt, outputs: Sequence[_Output]) -> list[Any]:
    """Return the parts in which a block is taken, without rows that are not to be worked on."""
    return list(cut_block(without_rows(block, attempt.aside, job.fork.source.files, _aside(outputs)), attempt.spans))


def _read(outputs: Sequence[_Output], job: Job, attempt: Attempt) -> Iterator[Any]:
    """Yield the blocks of a range; rows that cannot be read are set aside where that was asked for."""

    def set_aside(row: BadRow) -> None:
        for output in outputs:
            output.quarantine.add(row)

    # A row that is too long for a task beside others is read when its range is alone.
    skips = job.on_oom == "retry" and attempt.exclusive_bytes is not None
    return job.fork.source.blocks(
        attempt.piece,
        block_bytes=attempt.block_bytes,
        largest_row_bytes=attempt.largest_row_bytes,
        on_bad_row=set_aside if job.fork.source.quarantines else None,
        on_long_row=(lambda exc: set_aside(long_row(exc))) if skips else None,
        wanted=None if job.wanted is None else job.wanted(attempt.piece.number),
    )


def _aside(outputs: Sequence[_Output]) -> Callable[[BadRow], None]:
    def set_aside(row: BadRow) -> None:
        for output in outputs:
            output.quarantine.add_row(row)

    return set_aside


def _check_rows(manifest: Manifest) -> None:
    removed = sum(step.rows_in - step.rows_out for step in manifest.steps)
    if manifest.rows_read != manifest.rows_written + removed + manifest.rows_quarantined:
        raise RowCountError(
            f"range {manifest.number}: {manifest.rows_read:,} rows read, but {manifest.rows_written:,} written + "
            f"{removed:,} dropped + {manifest.rows_quarantined:,} quarantined"
        )
