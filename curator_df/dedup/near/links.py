# SPDX-License-Identifier: Apache-2.0
"""Task that drops rows because of a row that is kept: a greedy cover of the verified edges, in the order of preference.

Rows are numbered in that order. A row is dropped if it has an edge to a kept row before it, and its match is the most similar one
of these. The edges are sorted by the numbers of their rows, so one pass decides all rows, with one byte for each in memory.

A kept row may be similar to a dropped one, and so to the row that the dropped one matched, with which it was not compared. The
task asks for these comparisons; when they are done, the cover is made again, until there is nothing left to ask.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from curator_df.core.ranges.manifest import Manifest
from curator_df.core.runner.passes import Stage
from curator_df.core.tasks.task import Attempt, run_guarded
from curator_df.dedup.near.grouping import Grouped, Ranks
from curator_df.dedup.near.settings import EDGE_WORDS, UNKNOWN
from curator_df.dedup.near.tasks import NearJob, distinct_rows, edge_slices, load_near_job
from curator_df.exchange.exchange import DROP_WORDS, MEMBER_WORDS, drop_bounds
from curator_df.files.row_order import Rows
from curator_df.files.row_sort import RowSorter, merge_slices
from curator_df.files.slice_file import Bounds, SliceWriter, open_slices
from curator_df.files.sorted_rows import RowsUpTo, with_values
from curator_df.files.storage import FileRecord
from curator_df.kernels.minhash.graphs import drop_neighbors
from curator_df.memory.sizes import show_size

EDGE_COLUMNS = 5
"""Words of an edge in the order of preference: numbers of both vertices, their names, bits of their similarity."""
VERTEX_BYTES = 5
"""Bytes of memory for each text that has an edge: whether it is dropped, and the number of rows that matched it."""
_WHOLE: Bounds = np.zeros(1, dtype=np.uint64)


def run_cover(job_bytes: bytes, attempt: Attempt) -> Manifest:
    """Decide which rows are dropped; write the questions of a round or, in the last, members, drops and matches."""

    def work(manifest: Manifest) -> None:
        job = load_near_job(job_bytes)
        memory_bytes = attempt.exclusive_bytes or attempt.block_bytes
        cover = _Cover(job, memory_bytes)
        try:
            cover.number_rows()
            needed = cover.vertices * VERTEX_BYTES
            if needed > memory_bytes // 4:
                raise MemoryError(
                    f"linking the {cover.vertices:,} texts that match others needs {show_size(needed)} of memory, more than "
                    "a task has. Start the cluster with a larger memory="
                )
            cover.sort_edges()
            cover.decide()
            manifest.files = [cover.ask()] if job.round is not None else cover.write()
            manifest.rows_read = cover.vertices
            manifest.summary = cover.figures
        finally:
            cover.discard()

    return run_guarded(attempt, work)


def cover_rows(stage: Stage, job: NearJob) -> Grouped:
    """Return the groups of a greedy cover of the edges of a job: each kept row with the rows that match it."""
    [done] = stage.tasks("groups", "groups", run_cover, replace(job, into="cover"), 1)
    members, drops, matches = done.files
    return Grouped((members,), (drops,), (matches,), dict(done.summary))


@dataclass
class _Cover:
    """State of one task, whose sorted files are deleted at its end.

    Rows with the same text are one vertex, named by the first of them, whose text was fetched; the best of them is its row.
    """

    job: NearJob
    memory_bytes: int
    vertices: int = 0
    figures: dict[str, int] = field(default_factory=dict)
    _files: dict[str, FileRecord] = field(default_factory=dict)
    _dropped: Any = None

    def number_rows(self) -> None:
        """Give each vertex its number in the order of preference: kept signatures, then the rows that ``keep=`` prefers."""
        keep, first_kept = self.job.pending.keep, self.job.groups.first_kept
        texts = self._sorter("texts", 4)
        for rows in _ranked_rows(self.job, self.memory_bytes // 8):
            addresses = rows[:, 1]
            preference = {"first": addresses, "last": ~addresses}.get(keep, rows[:, 2])
            is_own = (addresses < first_kept).astype(np.uint64)
            preference = np.where(is_own == 1, preference, addresses)
            texts.append(np.stack([rows[:, 0], is_own, preference, addresses], axis=1))
        order, last = self._sorter("order", 4), None
        for rows in self._sorted("texts", texts):
            is_best = np.ones(len(rows), dtype=np.bool_)
            is_best[1:] = rows[1:, 0] != rows[:-1, 0]
            is_best[0] = last is None or rows[0, 0] != last
            last = rows[-1, 0]
            order.append(rows[is_best][:, [1, 2, 3, 0]])
        self.vertices = order.rows
        named, at = self._sorter("named", 3), 0
        for rows in self._sorted("order", order):
            following = np.arange(at, at + len(rows), dtype=np.uint64)
            named.append(np.stack([rows[:, 3], following, rows[:, 2]], axis=1))
            at += len(rows)
        numbers = self._sorter("numbers", 3)
        self._files["named"] = named.commit()
        for rows, found in self._joined(self._read("texts"), "named", 3):
            numbers.append(np.stack([rows[:, 3], found[:, 1], rows[:, 0]], axis=1))
        self._files["numbers"] = numbers.commit()

    def sort_edges(self) -> None:
        """Sort the edges, in both directions, by the numbers of their vertices."""
        half, edges = self._sorter("half", 4), self._sorter("edges", EDGE_COLUMNS)
        for rows, found in self._joined(_all_edges(self.job, self.memory_bytes // 8), "numbers", 3):
            half.append(np.column_stack([rows[:, 1], found[:, 1:], rows[:, 2]]))
        for rows, found in self._joined(self._sorted("half", half), "numbers", 3):
            columns = [found[:, 1], rows[:, 1], found[:, 2], rows[:, 2], rows[:, 3]]
            edges.append(np.stack(columns, axis=1)[found[:, 1] != rows[:, 1]])
        self._files["edges"] = edges.commit()

    def decide(self) -> None:
        """Drop each row that has an edge to a kept row before it; note the most similar of these as its match."""
        self._dropped = np.zeros(self.vertices, dtype=np.uint8)
        folder = self.job.folder
        held: Any = np.empty((0, EDGE_COLUMNS), dtype=np.uint64)
        with folder.create(self._name("matches")) as file:
            writer, count = SliceWriter(file, EDGE_COLUMNS, _WHOLE), 0
            for rows in self._read("edges"):
                held = np.concatenate([held, rows[self._decides(rows)]])
                best = _best_of_each(held)
                writer.append(best[:-1])
                count += len(best[:-1])
                held = best[-1:].copy()
            writer.append(held)
            count += len(held)
            writer.finish()
            self._files["matches"] = file.commit(count)
        self.figures |= {"dropped": count}

    def _decides(self, rows: Rows) -> npt.NDArray[np.bool_]:
        decides = np.empty(len(rows), dtype=np.uint8)
        first, second = (np.ascontiguousarray(rows[:, word]).view(np.int64) for word in (0, 1))
        drop_neighbors(first, second, self._dropped, decides)
        return decides.view(np.bool_)

    def ask(self) -> FileRecord:
        """Write the pairs to compare: each kept row that is similar to a dropped row, and the row that this one matched."""
        job = self.job
        asked = RowSorter(
            job.folder,
            f"{job.into}/asked.slices",
            words=EDGE_WORDS,
            bounds=job.groups.bounds,
            memory_bytes=self.memory_bytes // 4,
        )
        matches = RowsUpTo(self._read("matches"), EDGE_COLUMNS)
        from_dropped = (rows[self._is_dropped(rows[:, 0])] for rows in self._read("edges"))
        try:
            for rows, found in with_values(
                from_dropped,
                matches,
                "a dropped row has no match. This is a defect in curator_df; please report it with this traceback",
            ):
                match, number = found[:, 3], found[:, 1]
                chosen = ~self._is_dropped(rows[:, 1]) & (rows[:, 1] != number)
                chosen &= (rows[:, 3] < job.groups.first_kept) | (match < job.groups.first_kept)
                pairs = np.stack([rows[chosen, 3], match[chosen]], axis=1)
                pairs = np.concatenate([pairs, pairs[:, ::-1]])
                asked.append(np.column_stack([pairs, np.full(len(pairs), job.round, dtype=np.uint64)]))
            return asked.commit()
        finally:
            asked.discard()

    def write(self) -> list[FileRecord]:
        """Write members (rows of groups of two or more), drops, and the match of each member."""
        job, first_kept = self.job, self.job.groups.first_kept
        self._write_outcomes()
        sizes = np.zeros(self.vertices, dtype=np.uint32)
        for rows, found in self._joined(self._read("texts"), "outcomes", 4):
            np.add.at(sizes, found[rows[:, 3] < first_kept, 2].view(np.int64), np.uint32(1))
        of_ranges = drop_bounds(job.groups.starts)
        members = self._output("groups/members.slices", MEMBER_WORDS, of_ranges)
        drops = self._output("drops/part-000000.slices", DROP_WORDS, of_ranges)
        matches = self._output("matches/part-000000.slices", EDGE_WORDS, job.groups.bounds)
        groups = largest = kept_signatures = 0
        for rows, found in self._joined(self._read("texts"), "outcomes", 4):
            address, is_own, size = rows[:, 3], rows[:, 3] < first_kept, sizes[found[:, 2].view(np.int64)]
            goes = (address != found[:, 1]) & is_own
            is_first = (address == found[:, 1]) & (size > is_own)  # kept signatures do not count as rows
            chosen = goes | is_first
            members.append(np.column_stack([address, found[:, 1], size.astype(np.uint64)])[chosen])
            drops.append(np.column_stack([address, found[:, 1]])[goes])
            bits = np.where(goes, found[:, 3], UNKNOWN)
            matches.append(np.column_stack([address, found[:, 1], bits])[chosen])
            groups, largest = groups + int(is_first.sum()), max(largest, int(size[is_first].max(initial=0)))
            kept_signatures += int((is_first & ~is_own).sum())
        self.figures = {"groups": groups, "largest_group": largest, "going": drops.rows}
        if job.groups.kept:
            self.figures |= {"matched_signatures": kept_signatures}
        return [members.commit(), drops.commit(), matches.commit()]

    def _write_outcomes(self) -> None:
        """Write, for each vertex, the row that is kept for it, the number of that row's vertex, and their similarity."""
        half, outcomes = self._sorter("matched", 4), self._sorter("outcomes", 4)
        for rows in self._read("matches"):
            half.append(rows[:, [3, 2, 1, 4]])
        for rows, found in self._joined(self._sorted("matched", half), "named", 3):
            outcomes.append(np.column_stack([rows[:, 1], found[:, 2], rows[:, 2:]]))
        same = np.float64(1.0).view(np.uint64)
        for rows in self._read("named"):
            kept = rows[~self._is_dropped(rows[:, 1])]
            outcomes.append(np.column_stack([kept[:, [0, 2, 1]], np.full(len(kept), same)]))
        self._files["outcomes"] = outcomes.commit()

    def discard(self) -> None:
        """Delete the files of this task that nobody else reads."""
        folder = self.job.folder
        folder.delete_all([file.name for file in self._files.values()])

    def _is_dropped(self, numbers: Any) -> npt.NDArray[np.bool_]:
        found: npt.NDArray[np.bool_] = self._dropped[numbers.view(np.int64)] != 0
        return found

    def _name(self, purpose: str) -> str:
        return f"{self.job.into}/{purpose}.slices"

    def _sorter(self, purpose: str, words: int) -> RowSorter:
        return self._output(self._name(purpose), words, _WHOLE)

    def _output(self, name: str, words: int, bounds: Bounds) -> RowSorter:
        return RowSorter(self.job.folder, name, words=words, bounds=bounds, memory_bytes=self.memory_bytes // 8)

    def _sorted(self, purpose: str, sorter: RowSorter) -> Iterator[Rows]:
        """Yield what was put into a sorter, in order."""
        self._files[purpose] = sorter.commit()
        return self._read(purpose)

    def _read(self, purpose: str) -> Iterator[Rows]:
        slices = open_slices(self.job.folder, (self._files[purpose],), 0)
        return merge_slices(slices, memory_bytes=self.memory_bytes // 8)

    def _joined(self, pieces: Iterator[Rows], purpose: str, words: int) -> Iterator[tuple[Rows, Rows]]:
        """Yield sorted rows with those of a file that begin with the same word."""
        table = RowsUpTo(self._read(purpose), words)
        return with_values(
            pieces,
            table,
            (
                f"a row is missing among the {purpose} of links between rows. This is a defect in curator_df; please report "
                "it with this traceback"
            ),
        )


def _all_edges(job: NearJob, memory_bytes: int) -> Iterator[Rows]:
    """Yield all edges in order, each once."""
    for group in range(len(job.groups)):
        yield from distinct_rows(merge_slices(edge_slices(job, group), memory_bytes=memory_bytes))


def _ranked_rows(job: NearJob, memory_bytes: int) -> Iterator[Rows]:
    """Yield (first row with the same text, row, rank) of the rows that have an edge, in order of rows."""
    for group in range(len(job.groups)):
        ranks = Ranks(job, group)
        copies = RowsUpTo(_copies(job, group, memory_bytes), 2)
        last = None
        for rows in merge_slices(edge_slices(job, group), memory_bytes=memory_bytes):
            is_new = np.ones(len(rows), dtype=np.bool_)
            is_new[1:] = rows[1:, 0] != rows[:-1, 0]
            is_new[0] = last is None or rows[0, 0] != last
            last = rows[-1, 0]
            addresses = np.ascontiguousarray(rows[is_new, 0])
            if not len(addresses):
                continue
            first = addresses.copy()
            for some in copies.take(int(addresses[-1])):
                first[np.searchsorted(addresses, some[:, 0])] = some[:, 1]
            yield np.stack([first, addresses, ranks.of(addresses)], axis=1)


def _copies(job: NearJob, group: int, memory_bytes: int) -> Iterator[Rows]:
    """Yield (row, first row with the same text) of a group of ranges, in order."""
    for rows in distinct_rows(merge_slices(open_slices(job.folder, job.same, group), memory_bytes=memory_bytes)):
        yield rows[rows[:, 1] < rows[:, 0], :2]


def _best_of_each(edges: Rows) -> Rows:
    """Return the edge of each row to the most similar other; of several, to the first in the order of preference."""
    if not len(edges):
        return edges
    rows: Rows = edges[np.lexsort((edges[:, 1], -edges[:, 4].copy().view(np.float64), edges[:, 0]))]
    is_first = np.ones(len(rows), dtype=np.bool_)
    is_first[1:] = rows[1:, 0] != rows[:-1, 0]
    return rows[is_first]
