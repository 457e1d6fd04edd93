# SPDX-License-Identifier: Apache-2.0
"""Run expensive first steps once: their rows are stored in working files, which the passes of later drops read.

A drop of duplicates needs two or three passes over the rows, and each pass runs the steps before the drop again, unless what
they made is stored. Storing costs disk space and the time to write and to read it, so the first ranges decide whether it pays.
"""

from __future__ import annotations

import dataclasses
import json
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from curator_df.core.planning.branches import Fork, named_steps
from curator_df.core.planning.first_steps import LEAST_BYTES, Reuse, first_steps, passes_over_rows, unstorable
from curator_df.core.planning.program import Program, Step
from curator_df.core.ranges.journal import Identity
from curator_df.core.ranges.manifest import Manifest, TaskRecord
from curator_df.core.ranges.parameter_digests import printed_source
from curator_df.core.ranges.quarantine import quarantine_name
from curator_df.core.ranges.stored_blocks import (
    BLOCKS,
    REJECTS,
    BlockSink,
    StoredBlocks,
    StoredFiles,
    UnstorableError,
    blocks_name,
    rejects_name,
)
from curator_df.core.runner.events import Note
from curator_df.core.tasks.stored_prefix import StoredPrefix
from curator_df.errors import ParameterError
from curator_df.files.storage import JOURNAL_FOLDER, FileRecord, Folder
from curator_df.memory.sizes import show_size

Stored = TypeVar("Stored", bound=StoredFiles)
READ_SHARE = 0.5
"""Time to read a stored block, as a share of that to write it, with little room. Measured: 0.26 to 0.48
(``benchmarks/stored_prefix.py``): zstd decompresses faster than it compresses, and nothing is synced.
"""
DECIDED = f"{JOURNAL_FOLDER}/decided.json"
"""File with the decision, which a resumed run follows."""
LEAST_GAIN = 1.3
"""Least gain (`Trial.gain`) for which ``"auto"`` stores the rows."""


@dataclass(frozen=True)
class Trial:
    """Measurements of the first ranges."""

    work_seconds: float
    """Time to read the input and to run the steps, in seconds."""
    write_seconds: float
    """Time to store the rows, in seconds."""
    passes: int
    """Passes over the rows, including the last one."""
    projected_bytes: int
    """Estimated size of the stored rows of all ranges on disk, in bytes."""
    free_bytes: int | None
    """Free space of the disk in bytes; None if it is not known."""

    @property
    def gain(self) -> float:
        """Time of the passes without stored rows, as a multiple of that with them."""
        read_seconds = self.passes * READ_SHARE * self.write_seconds
        return self.passes * self.work_seconds / max(self.work_seconds + self.write_seconds + read_seconds, 1e-9)

    @property
    def pays(self) -> bool:
        """Whether to store the rows of all ranges."""
        # Twice the size: the files of the drops, and the output, need room as well.
        has_room = self.free_bytes is None or 2 * self.projected_bytes <= self.free_bytes
        return has_room and self.gain >= LEAST_GAIN


class Prefix:
    """Stored rows of the first steps of a run, as its client sees them."""

    def __init__(self, folder: Folder, steps: Sequence[Step], records: Sequence[TaskRecord], ranges: int) -> None:
        self.folder, self.steps, self._ranges = folder, tuple(steps), ranges
        # A few hundred bytes for each range, of which there may be 50,000; with the whole tallies, which journals lack.
        whole = ((one.number, {**one.to_json(), "steps": [vars(step) for step in one.steps]}) for one in records)
        self._records = {number: zlib.compress(json.dumps(record).encode()) for number, record in whole}

        def stored(kind: type[Stored], name: Callable[[int], str]) -> Stored:
            files = ((one.number, file) for one in records for file in (*one.files, *one.other_files))
            return kind.of(folder, name, ranges, {number: file for number, file in files if file.name == name(number)})

        self._passed, self._rejects = stored(StoredBlocks, blocks_name), stored(StoredBlocks, rejects_name)
        self._quarantined = stored(StoredFiles, quarantine_name)

    def for_pass(self, *, is_last: bool = False) -> StoredPrefix:
        """Return the stored rows as the tasks of a pass read them; those of the last pass also get what was removed."""
        if not is_last:
            return StoredPrefix(len(self.steps), self._passed)
        return StoredPrefix(len(self.steps), self._passed, self._rejects, self._quarantined)

    def leads(self, program: Program) -> bool:
        """Return whether a program begins with these steps."""
        first = program.steps[: len(self.steps)]
        return len(first) == len(self.steps) and all(one is other for one, other in zip(first, self.steps, strict=True))

    def covers(self, only: npt.NDArray[np.bool_] | None) -> bool:
        """Return whether the rows of some ranges (by default of all) are stored: those of finished ranges are deleted."""
        wanted = range(self._ranges) if only is None else np.flatnonzero(only).tolist()
        return all(number in self._records for number in wanted)

    def complete(self, manifest: Manifest) -> None:
        """Add to the result of a task of the last pass, in each output, what the first steps did with its range."""
        before = TaskRecord.from_json(json.loads(zlib.decompress(self._records[manifest.number])))
        for part in (manifest, *manifest.others):
            part.rows_read += before.rows_read - before.rows_written
            part.rows_quarantined += before.rows_quarantined
            part.rows_out_of_memory += before.rows_out_of_memory
            part.steps[: len(self.steps)] = before.steps
            part.read_seconds += before.read_seconds

    def give_back(self, number: int) -> None:
        """Delete the stored rows of a range that is finished in every output."""
        for files in (self._passed, self._rejects):
            if files.has(number):
                self.folder.delete(files.name(number))


def require_storable(joined: Fork, reuse: Reuse) -> None:
    """Raise `ParameterError` if rows have to be stored and cannot be."""
    obstacle = unstorable(first_steps(joined))
    if reuse == "always" and obstacle is not None and passes_over_rows(joined) > 1:
        raise ParameterError(
            f"reuse='always': the rows after {obstacle!r} cannot be stored, because that step is a function of yours, "
            "splits rows, or works on a GPU. Use reuse='auto', or checkpoint(df, path) after it"
        )


def stored_prefix(
    runner: Any, joined: Fork, reuse: Reuse, finished: npt.NDArray[np.bool_], *, name: str
) -> Prefix | None:
    """Store what the first steps of a run make, if it pays; return it, or None.

    Parameters
    ----------
    runner : core.runner.passes.PassRunner
        Runner of the passes.
    joined : Fork
        The outputs of the run.
    reuse : {"auto", "always", "never"}
        Policy.
    finished : ndarray of bool
        Ranges that an earlier run finished in every output.
    name : str
        Name of the folder, which belongs to this run; empty for a run of a version without such names.

    Raises
    ------
    ParameterError
        If ``reuse="always"`` and the rows cannot be stored.
    """
    steps = first_steps(joined)
    if not name or not steps or unstorable(steps) is not None or passes_over_rows(joined) < 2:
        return None
    for each in stored_folders(name):  # an earlier attempt at this run may have stored rows
        runner.note_temporary(each)
    is_small = joined.source.text_bytes < LEAST_BYTES
    if reuse == "never" or finished.all() or (reuse == "auto" and is_small):
        return None
    looks = runner.session.looks
    passes = passes_over_rows(joined, [] if looks is None else looks.finished(joined.branches[0].program))
    if passes < 2:
        return None
    before = dataclasses.replace(joined.branches[0].program, steps=steps)
    plain, with_rejects = stored_folders(name)
    # Of several outputs, the one that needs rejects may be finished.
    has_rejects = any(branch.rejects is not None for branch in joined.branches) or runner.has_temporary(with_rejects)
    runner.forget_other(with_rejects if has_rejects else plain, _identity(before))
    try:
        with runner.open_temporary(with_rejects if has_rejects else plain, _identity(before)) as stage:
            return _store(runner, stage, before, reuse, passes, has_rejects=has_rejects, waiting=~finished)
    except UnstorableError as exc:
        if reuse == "auto":
            runner.session.emit(Note("reuse", f"the first steps run in each pass: {exc}"))
            return None
        raise ParameterError(
            f"reuse='always': {exc}, so the rows cannot be stored. Use reuse='auto' and on_existing='resume'"
        ) from exc


def stored_folders(name: str) -> tuple[str, str]:
    """Return the names of the folders for stored rows of a run, without and with rejects."""
    return name, f"{name}-rejects"


def _identity(before: Program) -> Identity:
    """Return the identity of the stored rows."""
    named, read = named_steps(before.steps), printed_source(before.source)
    return Identity(before.source.fingerprint, before.fingerprint, "stored rows", *named, {}, read)


def _store(
    runner: Any,
    stage: Any,
    before: Program,
    reuse: Reuse,
    passes: int,
    *,
    has_rejects: bool,
    waiting: npt.NDArray[np.bool_],
) -> Prefix | None:
    home, ranges = stage.home, runner.ranges
    rejects = BlockSink(home, rejects_name) if has_rejects else None

    def store(only: npt.NDArray[np.bool_]) -> list[TaskRecord]:
        title = f"rows after {before.steps[-1].name}"
        stored: list[TaskRecord] = stage.stream(
            title, before, (), BlockSink(home), ranges, only=only, rejects=rejects, needs_removed=True
        )
        return stored

    stores = reuse == "always"
    if not stores:
        is_decided = home.exists(DECIDED)
        stores = (
            json.loads(home.read(DECIDED))["stores"]
            if is_decided
            else _pays(runner, store, before, passes, waiting, home)
        )
    home.write(DECIDED, json.dumps({"stores": stores}).encode())
    if not stores:
        _delete(home)
        return None
    try:
        return Prefix(home, before.steps, store(waiting), len(ranges))
    except UnstorableError:
        _delete(home)
        raise


def _delete(home: Folder) -> None:
    """Delete stored rows that are not used."""
    for below in (BLOCKS, REJECTS):
        home.delete_tree(below)


def _pays(runner: Any, store: Any, before: Program, passes: int, waiting: npt.NDArray[np.bool_], home: Folder) -> bool:
    """Store the first ranges, and return whether it pays to store the others."""
    layout = runner.session.layout
    first = np.zeros_like(waiting)
    first[np.flatnonzero(waiting)[: max(2, layout.workers * layout.threads)]] = True
    records: list[TaskRecord] = store(first)
    work = sum(record.read_seconds + sum(step.seconds for step in record.steps) for record in records)
    files: list[FileRecord] = [file for record in records for file in record.files + record.other_files]
    projected = sum(file.size_bytes for file in files) * len(waiting) // len(records)
    trial = Trial(work, sum(record.write_seconds for record in records), passes, projected, home.free_bytes())
    names = ", ".join(step.name for step in before.steps)
    what = f"once, and their rows are stored ({show_size(projected)} on disk)" if trial.pays else "in each pass"
    runner.session.emit(
        Note("reuse", f"{names} run {what}: {passes} passes without stored rows take {trial.gain:.1f} times as long")
    )
    return trial.pays
