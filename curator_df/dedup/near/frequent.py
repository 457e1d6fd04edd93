# SPDX-License-Identifier: Apache-2.0
"""Shingles that many documents have, which ``ignore_common=`` leaves out of a comparison.

The pass that computes signatures counts documents in cells of shingles (`frequent_files.CellsWriter`), the cells of all ranges
are added (`run_cells`), and the pass that fetches texts counts those shingles exactly whose cells passed the limit
(`frequent_files.CountsWriter`). These counts are added by hash (`run_counts`), and one task chooses the shingles to ignore
(`run_choice`).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TypedDict

import numpy as np

from curator_df.core.ranges.manifest import Manifest
from curator_df.core.tasks.task import Attempt, run_guarded
from curator_df.dedup.near.frequent_files import CELL_BITS, COUNT_WORDS
from curator_df.dedup.near.pair_texts import read_texts
from curator_df.dedup.near.tasks import NearJob, load_near_job
from curator_df.dedup.near.text_sink import texts_name
from curator_df.errors import DiskFullError
from curator_df.files.row_order import Rows
from curator_df.files.row_sort import merge_slices
from curator_df.files.slice_file import SliceWriter, open_slices
from curator_df.files.storage import Folder, disk_errors
from curator_df.kernels.minhash.frequent_shingles import (
    CELL_BYTES,
    CELLS,
    listed_hashes,
    passing_cells,
)
from curator_df.kernels.minhash.scheme import Scheme
from curator_df.memory.sizes import show_sizes

MOST_IGNORED = 1 << 19
"""Maximum number of shingles to ignore: those of the most documents."""
LEAST_DOCUMENTS = 10
"""Number of documents that a shingle must exceed to be ignored, whatever the share: a few copies do not make a template."""
FREQUENT_BYTES = CELL_BYTES + 6_000_000
"""Memory of a task for counting shingles, in bytes; choosing and ignoring them need less."""
CHOICE_FOLDER = "frequent"
PASSING, CHOSEN, NAMES = (f"{CHOICE_FOLDER}/{name}" for name in ("passing.bits", "chosen.hashes", "names.json"))
NAMED, NAMED_CHARS, NAMED_TEXTS = 5, 120, 400
"""Number of passages that a receipt quotes, the length of one, and the number of texts in which they are looked for."""
_LOW = np.uint64((1 << 32) - 1)


def document_limit(share: float, documents: int) -> float:
    """Return the number of documents that a shingle must exceed to be ignored.

    Examples
    --------
    >>> document_limit(0.01, 100), document_limit(0.01, 5_000)
    (10, 50.0)
    """
    return max(share * documents, LEAST_DOCUMENTS)


def cells_bytes(ranges: int, text_bytes: int) -> int:
    """Return the most bytes of the files of cells: a number for each cell, or for the two cells of each character.

    Examples
    --------
    >>> cells_bytes(100, 6_400_000_000), cells_bytes(2, 1_000)
    (3355443200, 16000)
    """
    return min(ranges * 2 * CELLS * 8, 16 * text_bytes)


def require_room_for_counts(pairs: int, folder: Folder) -> None:
    """Raise `DiskFullError` if there is no room for exact counts: at most one for each document of a shingle whose cells pass."""
    needed, free = pairs * COUNT_WORDS * 8, folder.free_bytes()
    if free is not None and free < needed:
        need, has = show_sizes(needed, free)
        raise DiskFullError(
            "drop_near_duplicates: counting the shingles (runs of words or characters) that may be common needs up to "
            f"{need} for temporary files, but only {has} are free in {folder.url}. Free some space, set another workdir=, or "
            "use a larger ignore_common=, so that fewer shingles are counted. Then repeat the call with on_existing='resume'"
        )


def run_cells(job_bytes: bytes, attempt: Attempt) -> Manifest:
    """Add the cells of all ranges, and write which of them exceed the limit, a bit each."""

    def work(manifest: Manifest) -> None:
        job = load_near_job(job_bytes)
        counts = np.zeros(2 * CELLS, dtype=np.uint64)
        for file in job.files:
            slices = open_slices(job.folder, (file,), 0)
            for rows in merge_slices(slices, memory_bytes=attempt.block_bytes // 4):
                counts[(rows[:, 0] >> CELL_BITS).view(np.int64)] += rows[:, 0] & _LOW
        passing = passing_cells(counts, _limit(job))
        with disk_errors(job.folder), job.folder.create(PASSING) as written:
            written.write(np.packbits(passing).tobytes())
            manifest.files = [written.commit(int(passing.sum()))]
        # A shingle is counted exactly if both of its cells pass: at most as often as either half has passed.
        halves = (counts[half][passing[half]].sum() for half in (slice(0, CELLS), slice(CELLS, None)))
        manifest.summary = {"pairs": int(min(halves))}

    return run_guarded(attempt, work)


def run_counts(job_bytes: bytes, attempt: Attempt) -> Manifest:
    """Add the counts of one hash range, and write those that exceed the limit."""

    def work(manifest: Manifest) -> None:
        job, number = load_near_job(job_bytes), attempt.piece.number
        slices = open_slices(job.folder, job.files, number)
        manifest.rows_read = sum(piece.rows for piece in slices)
        name, rows_written = f"{CHOICE_FOLDER}/part-{number:06d}.slices", 0
        with disk_errors(job.folder), job.folder.create(name) as file:
            writer = SliceWriter(file, COUNT_WORDS, np.zeros(1, dtype=np.uint64))
            for rows in _added(merge_slices(slices, memory_bytes=attempt.block_bytes // 2)):
                some = rows[rows[:, 1] > _limit(job)]
                writer.append(some)
                rows_written += len(some)
            writer.finish()
            manifest.files = [file.commit(rows_written)]

    return run_guarded(attempt, work)


def run_choice(job_bytes: bytes, attempt: Attempt) -> Manifest:
    """Choose the shingles to ignore, at most `MOST_IGNORED`, and write some of the passages that contain them."""

    def work(manifest: Manifest) -> None:
        job = load_near_job(job_bytes)
        chosen: Rows = np.empty((0, COUNT_WORDS), dtype=np.uint64)
        for file in job.files:
            manifest.rows_read += file.rows
            for rows in merge_slices(open_slices(job.folder, (file,), 0), memory_bytes=attempt.block_bytes // 8):
                chosen = np.concatenate([chosen, rows])
                if len(chosen) > MOST_IGNORED:
                    chosen = chosen[np.lexsort((chosen[:, 0], ~chosen[:, 1]))[:MOST_IGNORED]]
        names = _names(job, chosen[np.lexsort((chosen[:, 0], ~chosen[:, 1]))])
        with disk_errors(job.folder):
            for name, content in ((CHOSEN, np.sort(chosen[:, 0]).tobytes()), (NAMES, json.dumps(names).encode())):
                with job.folder.create(name) as written:
                    written.write(content)
                    manifest.files.append(written.commit(len(chosen)))
        manifest.summary = {"frequent": manifest.rows_read, "ignored": len(chosen)}

    return run_guarded(attempt, work)


def _limit(job: NearJob) -> float:
    return document_limit(job.pending.ignore_common or 1.0, job.documents)


def _added(pieces: Iterator[Rows]) -> Iterator[Rows]:
    """Yield each hash of sorted counts once, with the sum of its counts."""
    held: Rows = np.empty((0, COUNT_WORDS), dtype=np.uint64)
    for rows in pieces:
        joined = np.concatenate([held, rows])
        firsts = np.flatnonzero(np.append(True, joined[1:, 0] != joined[:-1, 0]))
        added = np.column_stack([joined[firsts, 0], np.add.reduceat(joined[:, 1], firsts)])
        held = added[-1:].copy()
        yield added[:-1]
    yield held


class Passage(TypedDict):
    """Passage that many documents have."""

    text: str
    """Beginning of it, with a common shingle."""
    documents: int
    """Number of documents with that shingle."""


def _names(job: NearJob, chosen: Rows) -> list[Passage]:
    """Return passages with the most common shingles, of texts that are compared, each with its number of documents."""
    scheme, top = job.pending.scheme, chosen[: 64 * NAMED]
    places: dict[int, str] = {}
    for text in _some_texts(job) if len(top) else ():
        for found in np.intersect1d(listed_hashes(text, scheme), top[:, 0]).tolist():
            places.setdefault(found, text)
    names: list[Passage] = []
    covered: set[int] = set()
    for shingle, documents in top.tolist():
        if shingle in places and shingle not in covered and len(names) < NAMED:
            text = places[shingle]
            at = _start_of(text, shingle, scheme)
            names.append({"text": text[at : at + NAMED_CHARS], "documents": documents})
            covered.update(listed_hashes(text[max(at - 4 * NAMED_CHARS, 0) : at + 5 * NAMED_CHARS], scheme).tolist())
    return names


def _start_of(text: str, shingle: int, scheme: Scheme) -> int:
    """Return where a shingle of a text begins: the last place from which on the shortest part that has it still has it."""

    def has(start: int, stop: int) -> bool:
        return shingle in listed_hashes(text[start:stop], scheme)

    low, stop = 0, len(text)
    while low < stop:
        middle = (low + stop) // 2
        low, stop = (low, middle) if has(0, middle) else (middle + 1, stop)
    start, high = 0, stop
    while start < high:
        middle = (start + high + 1) // 2
        start, high = (middle, high) if has(middle, stop) else (start, middle - 1)
    return start


def _some_texts(job: NearJob) -> Iterator[str]:
    """Yield the beginnings of some of the texts that are compared."""
    left = NAMED_TEXTS
    for file in job.places:
        for rows in merge_slices(open_slices(job.folder, (file,), 0), memory_bytes=1_000_000):
            for row in rows[:left]:
                numbers = np.searchsorted(job.groups.starts, row[:1].view(np.int64), side="right") - 1
                [text] = read_texts(job.folder, texts_name, numbers, row[1:2].view(np.int64), row[2:3]).to_pylist()
                yield text[: 1 << 16].decode(errors="replace")
            left -= len(rows[:left])
            if not left:
                return
