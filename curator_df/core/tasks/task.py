# SPDX-License-Identifier: Apache-2.0
"""Task that runs on a worker: it streams one range, block by block, into the sink of each branch.

A task returns a small `Manifest` and nothing else. It never raises: an error is returned in the manifest, so that workers
print no tracebacks and the runner decides how to continue.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import os
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import cloudpickle
import numpy as np
import numpy.typing as npt
from distributed import get_worker, secede

from curator_df.core.cleaning_up import clean_up
from curator_df.core.planning.branches import Branch, Fork
from curator_df.core.planning.program import Step, run_step
from curator_df.core.ranges.blocks import Outcome, block_bytes
from curator_df.core.ranges.current_step import enter_step, leave_task
from curator_df.core.ranges.manifest import Manifest
from curator_df.core.ranges.out_of_memory import (
    SMALLEST_BLOCK_BYTES,
    Cause,
    OnOom,
    RowAside,
    Span,
    UnitLog,
    cut_block,
    is_out_of_memory,
    lacks_thread,
    long_row,
    without_rows,
)
from curator_df.core.ranges.quarantine import QuarantineFile
from curator_df.core.ranges.range_action import NotItsTurnError
from curator_df.core.ranges.rejects import reject_rows, rejects_meta
from curator_df.core.ranges.set_up import in_run
from curator_df.core.ranges.sink import RangeWriter
from curator_df.core.ranges.source import BadRow, Range, RowChoice, has_stamps
from curator_df.core.ranges.step_counts import StepCounts
from curator_df.core.tasks.step_runner import OnError, StepRunner
from curator_df.core.tasks.stopping import StoppedError, end_if_stopped
from curator_df.core.tasks.stored_prefix import StoredPrefix
from curator_df.core.user_frames import ATTRIBUTE, keep_user_frames
from curator_df.errors import CuratorError, OperatorError, OversizeRowError, RowCountError, StepMemoryError
from curator_df.files.retry import TASK_TRIES, retry_transient
from curator_df.files.storage import FileRecord, Folder, disk_errors
from curator_df.memory import freed_pages
from curator_df.memory.device_peak import device_peak_bytes, device_run, device_spilled_bytes
from curator_df.memory.leaks import left_by
from curator_df.memory.limits import raised_data_limit, release_free_memory, thread_limit
from curator_df.memory.resources import Capacity, shared
from curator_df.memory.sizes import show_count
from curator_df.memory.system import status_bytes

_one_at_a_time = threading.Lock()
PROBE_BLOCK_BYTES = 1_000_000
"""Block size with which steps are called to find the one that leaves memory behind, in bytes."""
COLLECTS_AT_ALLOCATIONS = sys.version_info < (3, 12)


class _Profile:
    """Profiler call that lets a worker profile its tasks while the garbage collector is disabled."""

    def __init__(self, worker: Any) -> None:
        self._worker = worker

    def __call__(self) -> None:
        with _one_at_a_time:  # workers of one process
            collects = gc.isenabled()
            gc.disable()
            try:
                self._worker.trigger_profile()
            finally:
                if collects:
                    gc.enable()


def profile_without_collections() -> None:
    """Disable the garbage collector while the worker of this task is being profiled, if the two may block each other."""
    if not COLLECTS_AT_ALLOCATIONS:
        return
    try:
        worker = get_worker()
    except ValueError:  # not on a worker
        return
    timer = worker.periodic_callbacks.get("profile")
    if timer is not None and not isinstance(timer.callback, _Profile):
        timer.callback = _Profile(worker)


_lock = threading.Lock()
_seceded = 0
"""Number of tasks of this process that have left their threads."""
_task = threading.local()


@contextlib.contextmanager
def allow_secede(most: int) -> Iterator[None]:
    """Set the number of additional tasks of this worker, while this thread runs one of them."""
    _task.most, _task.has_left = most, False
    try:
        secede_if_allowed()
        yield
    finally:
        if _task.has_left:
            _count(-1)
        _task.most, _task.has_left = 0, False


def secede_if_allowed() -> None:
    """Leave this task's thread to the next task, unless it has already done so or the maximum is reached."""
    if _task.has_left or not _task.most:
        return
    if _count(1) > _task.most:
        _count(-1)
        return
    _task.has_left = True
    secede()


def seceded_tasks() -> int:
    """Return the number of tasks of this process that have left their threads."""
    return _seceded


def _count(more: int) -> int:
    global _seceded  # noqa: PLW0603 - one per process
    with _lock:
        _seceded += more
        return _seceded


__all__ = ["Attempt", "Job", "OnError", "OnOom", "load_job", "run_guarded", "run_range"]

_idle_bytes: list[int] = []
"""Private resident bytes of this process before its first task."""


@dataclass(frozen=True)
class Job:
    """Fields that all ranges of a stage share."""

    fork: Fork
    """Source of the blocks, the steps that process them, and their sinks."""
    on_error: OnError
    """Policy for a user's function that raises."""
    on_oom: OnOom = "retry"
    """Policy for exhausted memory."""
    wanted: Callable[[int], npt.NDArray[np.int64] | None] | None = None
    """Function that returns the ascending addresses of the required rows of a range, or None for all; by default all."""
    stored: StoredPrefix | None = None
    """Rows to read instead of the source, which have passed the first steps of ``fork``."""
    capacity: Capacity | None = None
    """Resources that the tasks of a worker share; None for no limits."""
    run_id: str = ""
    """Identifier of the run."""

    @property
    def steps(self) -> list[Step]:
        """Steps that tasks run, of all outputs; those that outputs share are listed once."""
        stem = self.fork.stem[0 if self.stored is None else self.stored.steps :]
        return [*stem, *(step for branch in self.fork.branches for step in self.fork.own_steps(branch))]

    def is_on_device(self, name: str) -> bool:
        """Return whether a step of this name works in GPU memory."""
        return any(step.on_device for step in self.steps if step.name == name)


@dataclass(frozen=True)
class Attempt:
    """One attempt at one range."""

    piece: Range
    """Range to process."""
    block_bytes: int
    """Decompressed bytes of a block; halved after each `MemoryError`."""
    largest_row_bytes: int
    """Maximum row size in bytes; a longer row ends the task with the outcome ``oversize``."""
    exclusive_bytes: int | None = None
    """Memory in bytes of a task that runs exclusively, instead of its share; None for other tasks."""
    tries: int = 0
    """Number of earlier attempts at this range that ran out of memory or lost their worker."""
    halves: bool = False
    """Whether a step that runs out of memory gets fewer rows of its block, and a single row that does not fit is quarantined."""
    lacks_device_memory: bool = False
    """Whether that step works in GPU memory."""
    spans: tuple[Span, ...] = ()
    """Rows to process in small units, because memory ran out, or the worker crashed, when they were processed together."""
    aside: tuple[RowAside, ...] = ()
    """Rows to quarantine before the first step, because that happened when they were processed exclusively."""
    stage_id: str = ""
    """Identifier of the stage, for `stop_tasks`."""
    extra_tasks: int = 0
    """Number of additional tasks that its worker may run, beyond those of its threads: `secede_if_allowed`."""

    def rows_aside(self, cause: Cause) -> int:
        """Return the number of rows that are quarantined for a cause."""
        return sum(row.cause == cause for row in self.aside)


def run_range(job_bytes: bytes, attempt: Attempt) -> Manifest:
    """Stream one range; return the result."""

    def stream(manifest: Manifest) -> None:
        job = load_job(job_bytes, attempt.stage_id)
        device_run(job.run_id)
        with disk_errors(job.fork.branches[0].sink.folder), shared(job.capacity), in_run(job.run_id):
            _stream(job, attempt, manifest)

    return run_guarded(attempt, stream)


def run_guarded(attempt: Attempt, work: Callable[[Manifest], None]) -> Manifest:
    """Do the work of a task; an error becomes part of its manifest, and freed pages are returned to the system in time."""
    manifest, started = Manifest(attempt.piece.number, block_bytes=attempt.block_bytes), time.perf_counter()
    if not _idle_bytes:
        _idle_bytes.append(status_bytes("RssAnon"))
    manifest.idle_bytes = _idle_bytes[0]
    with freed_pages.of_process.task():
        enter_step(work.__qualname__.partition(".")[0].removeprefix("run_"))
        profile_without_collections()
        try:
            with raised_data_limit(attempt.exclusive_bytes), allow_secede(attempt.extra_tasks):
                _work_patiently(attempt, manifest, work)
            manifest.outcome = "done"
        except BaseException as exc:  # noqa: BLE001 - it is returned in the manifest
            manifest.outcome = _outcome_of(exc)
            manifest.error = _portable(_with_limit(exc))
            release_free_memory()
        manifest.step, manifest.seconds = leave_task(), time.perf_counter() - started
    manifest.worker, manifest.floor_bytes = f"{socket.gethostname()}:{os.getpid()}", status_bytes("RssAnon")
    manifest.peak_bytes, manifest.device_peak_bytes = status_bytes("VmHWM"), device_peak_bytes()
    manifest.device_spilled_bytes = device_spilled_bytes()
    return manifest


def _work_patiently(attempt: Attempt, manifest: Manifest, work: Callable[[Manifest], None]) -> None:
    """Do the work, and repeat all of it when a remote store failed in the middle: its previous results are then deleted."""

    def once() -> None:
        end_if_stopped(attempt.stage_id)
        fresh = Manifest(attempt.piece.number, block_bytes=attempt.block_bytes, idle_bytes=manifest.idle_bytes)
        vars(manifest).update(vars(fresh))
        work(manifest)

    # Only the number of attempts is limited, not the duration of the work.
    retry_transient(f"finish task {attempt.piece.number}", once, tries=TASK_TRIES, total_seconds=float("inf"))


@functools.lru_cache(maxsize=4)
def load_job(job_bytes: bytes, stage_id: str) -> Job:  # noqa: ARG001 - a user's module may have changed by the next stage
    """Return a job that was pickled for all tasks of a stage."""
    job: Job = cloudpickle.loads(job_bytes)
    return job


def _outcome_of(exc: BaseException) -> Literal["memory", "oversize", "stopped", "again", "failed"]:
    if isinstance(exc, OversizeRowError):
        return "oversize"
    if isinstance(exc, StoppedError):
        return "stopped"
    if isinstance(exc, NotItsTurnError):
        return "again"
    if isinstance(exc, StepMemoryError) or (isinstance(exc, OperatorError) and exc.may_be_memory):
        return "memory"
    return "memory" if is_out_of_memory(exc) else "failed"


def _with_limit(exc: BaseException) -> BaseException:
    """Return the error that names the limit, if a limit of threads was reached."""
    if isinstance(exc, CuratorError) or not lacks_thread(exc) or not (limit := thread_limit()):
        return exc
    return CuratorError(f"A step could not start a thread. The cause is not memory: {limit}")


def _portable(exc: BaseException) -> BaseException:
    """Return an error that can be sent: its frames would keep the blocks in memory, and some classes cannot be pickled."""
    text = "".join(traceback.format_exception(exc))
    keep_user_frames(exc)
    exc.__cause__ = exc.__context__ = None
    if not isinstance(exc, CuratorError):
        exc.add_note(f"On the worker:\n{text}")
    if _says_the_same(exc):
        return exc
    # A class whose arguments differ from its message, such as UnicodeDecodeError, arrives without the message, or not at all.
    said = OperatorError(f"{type(exc).__name__}: {exc}")
    setattr(said, ATTRIBUTE, getattr(exc, ATTRIBUTE))
    said.add_note(f"On the worker:\n{text}")
    return said


def _says_the_same(exc: BaseException) -> bool:
    """Return whether an error is unchanged by pickling."""
    try:
        arrived = cloudpickle.loads(cloudpickle.dumps(exc))
    except Exception:  # noqa: BLE001 - whatever a strange class raises
        return False
    return type(arrived) is type(exc) and str(arrived) == str(exc)


class _Output:
    """Output of one branch for a range: files, rejects, quarantined rows. Nothing is visible before `commit`."""

    def __init__(self, branch: Branch, columns: list[str] | None, attempt: Attempt, manifest: Manifest) -> None:
        number, program = attempt.piece.number, branch.program
        self.branch, self.manifest = branch, manifest
        self._set_aside = branch.sink.folder if branch.set_aside is None else branch.set_aside
        self.quarantine = QuarantineFile(self._set_aside, number, keeps_long=not branch.holds_rows)
        self.writer = branch.sink.open(number, program.meta, attempt.block_bytes)
        self.rejects: RangeWriter | None = None
        if branch.rejects is not None:
            try:
                self.rejects = branch.rejects.open(number, rejects_meta(program.source.meta), attempt.block_bytes)
            except BaseException as exc:
                clean_up(exc, self.writer.discard)
                raise
        self._columns = columns
        self._visible: list[tuple[Folder, FileRecord]] = []

    def select(self, block: Any) -> Any:
        """Return a block that was read with the columns that this branch reads."""
        return block if self._columns in (None, list(block.columns)) else block[self._columns]

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
        """Delete files that are already visible: the range is not finished, and its next attempt may write other files."""
        for folder, file in self._visible:
            folder.delete(file.name)

    def discard(self) -> None:
        """Discard everything that was not committed."""
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
                is_only = len(job.fork.branches) == 1  # the source has then the columns of its program
                columns = None if is_only else list(branch.program.source.meta.columns)
                outputs.append(_Output(branch, columns, attempt, part))
        manifest.others = [output.manifest for output in outputs[1:]]
        _stream_into(outputs, job, attempt, manifest, log)
        try:
            for output in outputs:
                output.commit()
        except BaseException as exc:
            clean_up(exc, *(output.withdraw for output in outputs))
            raise
    except BaseException as exc:
        clean_up(exc, *(output.discard for output in outputs))
        raise
    else:
        clean_up(None, *(output.discard for output in outputs))
    finally:
        manifest.unit = log.unit
        log.close()


def _stretch(job: Job, attempt: Attempt, steps: Sequence[Step], outputs: Sequence[_Output], log: UnitLog) -> StepRunner:
    """Return the steps on the way to some outputs; each output counts them, and stores the rows that they remove."""
    files = job.fork.source.files

    def reject(step: Step, block: Any, outcome: Outcome) -> None:
        keeping = [output.rejects for output in outputs if output.rejects is not None]
        if keeping:  # outputs of one stretch read the same columns
            rows = reject_rows(step.name, block, outcome, files, outputs[0].branch.program.source.meta)
            for rejects in keeping:
                rejects.append(rows)

    stretch = StepRunner(
        steps,
        attempt.piece.number,
        files=files,
        on_error=job.on_error,
        halves=attempt.halves,
        gives_up=attempt.block_bytes <= SMALLEST_BLOCK_BYTES,
        log=log,
        set_aside=_aside(outputs),
        reject=reject,
    )
    for output in outputs:
        output.manifest.steps += stretch.tallies
    return stretch


def _stream_into(outputs: Sequence[_Output], job: Job, attempt: Attempt, manifest: Manifest, log: UnitLog) -> None:
    fork, done_before = job.fork, 0 if job.stored is None else job.stored.steps
    for output in outputs:
        output.manifest.steps += [StepCounts() for _ in range(done_before)]  # the client knows what these steps did
    stem = _stretch(job, attempt, fork.stem[done_before:], outputs, log)
    stretches = [_stretch(job, attempt, fork.own_steps(output.branch), [output], log) for output in outputs]
    with contextlib.closing(stem):
        _run_steps(outputs, job, attempt, stem, stretches, log)
    manifest.rows_read += stem.rows_left_out
    for part in manifest.others:
        part.rows_read, part.read_seconds = manifest.rows_read, manifest.read_seconds
        part.largest_block_bytes = manifest.largest_block_bytes
    for output in outputs:
        output.finish()
    for stretch in (stem, *stretches):
        stretch.finish()
        manifest.elsewhere_seconds += stretch.elsewhere_seconds
    shares = [stretch.fitting_share for stretch in (stem, *stretches) if stretch.fitting_share]
    manifest.fitting_bytes = int(attempt.block_bytes * min(shares, default=0.0))


def _run_steps(
    outputs: Sequence[_Output], job: Job, attempt: Attempt, stem: StepRunner, stretches: list[StepRunner], log: UnitLog
) -> None:
    """Read the blocks of a range, and run the steps on them: first the common ones, then those of each output."""
    manifest = outputs[0].manifest

    def write(blocks: Iterator[Any]) -> None:
        for kept in blocks:
            for output, stretch in zip(outputs, stretches, strict=True):
                for done in stretch.run([output.select(kept) if job.fork.shared == 0 else kept]):
                    log.enter("write", done)
                    output.write(done)
        log.leave()

    started = time.perf_counter()
    if job.stored is not None:
        _copy_removed(job.stored, outputs, job, attempt)
    for block in _read(outputs, job, attempt, _row_choice(outputs, job, attempt, stem)):
        manifest.read_seconds += time.perf_counter() - started
        end_if_stopped(attempt.stage_id)
        secede_if_allowed()
        manifest.rows_read += len(block)
        manifest.largest_block_bytes = max(manifest.largest_block_bytes, block_bytes(block))
        units = _units(block, job, attempt, outputs) if attempt.spans or attempt.aside else [block]
        del block
        write(stem.run(units))
        started = time.perf_counter()
    write(stem.rest(functools.partial(end_if_stopped, attempt.stage_id)))


def _copy_removed(stored: StoredPrefix, outputs: Sequence[_Output], job: Job, attempt: Attempt) -> None:
    """Copy what the first steps removed from the range to the files of each output."""
    for output in outputs:
        stored.copy_removed(
            attempt.piece,
            job.fork.source.files,
            block_bytes=attempt.block_bytes,
            # A task that runs exclusively has removed such a row before: it may have it again.
            largest_row_bytes=attempt.largest_row_bytes if attempt.exclusive_bytes is None else None,
            quarantine=output.quarantine,
            rejects=output.rejects,
        )


def _units(block: Any, job: Job, attempt: Attempt, outputs: Sequence[_Output]) -> list[Any]:
    """Return the parts in which a block is processed, without rows that must not be processed."""
    return list(cut_block(without_rows(block, attempt.aside, job.fork.source.files, _aside(outputs)), attempt.spans))


def _row_choice(outputs: Sequence[_Output], job: Job, attempt: Attempt, stem: StepRunner) -> RowChoice | None:
    """Return which rows to read; None for all.

    Rows that the first steps drop are left out unless rejects have them, or a file could be replaced unnoticed: rows that are
    not read are not compared with those of the first pass.
    """
    if job.wanted is not None:
        return stem.row_choice(job.wanted(attempt.piece.number))
    is_checked = job.stored is not None or has_stamps(job.fork.source)
    if any(output.rejects is not None for output in outputs) or not is_checked:
        return None
    return stem.row_choice(None)


def _read(outputs: Sequence[_Output], job: Job, attempt: Attempt, wanted: RowChoice | None) -> Iterator[Any]:
    """Yield the blocks of a range; rows that cannot be read are quarantined if requested."""

    def set_aside(row: BadRow) -> None:
        for output in outputs:
            output.quarantine.add(row)

    # A row that is too long for a concurrent task is read when its range runs exclusively.
    skips = job.on_oom == "retry" and attempt.exclusive_bytes is not None
    if job.stored is not None:
        return job.stored.blocks(
            attempt.piece,
            job.fork.source.files,
            block_bytes=attempt.block_bytes,
            largest_row_bytes=attempt.largest_row_bytes,
            on_long_row=(lambda exc: set_aside(long_row(exc))) if skips else None,
            wanted=wanted,
        )
    return job.fork.source.blocks(
        attempt.piece,
        block_bytes=attempt.block_bytes,
        largest_row_bytes=attempt.largest_row_bytes,
        on_bad_row=set_aside if job.fork.source.quarantines else None,
        on_long_row=(lambda exc: set_aside(long_row(exc))) if skips else None,
        wanted=wanted,
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
            f"input split {manifest.number}: {show_count(manifest.rows_read, 'row')} read, but {manifest.rows_written:,} "
            f"written + {removed:,} dropped + {manifest.rows_quarantined:,} quarantined. This is a "
            "defect in curator_df or in one of the operators; please report it"
        )


def left_by_steps(job_bytes: bytes, attempt: Attempt) -> dict[str, int]:
    """Call each step of a job several times on one small block; return, by name, the bytes that a call leaves behind."""
    job = load_job(job_bytes, attempt.stage_id)
    program = job.fork.branches[0].program
    blocks = program.source.blocks(
        attempt.piece,
        block_bytes=PROBE_BLOCK_BYTES,
        on_bad_row=(lambda _: None) if program.source.quarantines else None,
        on_long_row=lambda _: None,
    )
    block, calls = next(iter(blocks)), list[tuple[str, Callable[[], Any]]]()
    for step in program.steps:
        if step.pending is None:
            calls.append((step.name, lambda step=step, block=block: run_step(step, block)))  # type: ignore[misc]
            block = run_step(step, block)[0].block
    return left_by(calls)
