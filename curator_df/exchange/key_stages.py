# SPDX-License-Identifier: Apache-2.0
"""Stages of a deferred operation that needs the keys of all rows: a pass that hashes them, and a merge of each hash range."""

from __future__ import annotations

import functools
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import cloudpickle
import numpy as np
import numpy.typing as npt

from curator_df.core.planning.program import Program, StageStart, Step
from curator_df.core.ranges.manifest import Manifest, TaskRecord, files_below
from curator_df.core.ranges.step_counts import StepCounts
from curator_df.core.runner.passes import PassRunner, Stage, StageRecord, first_pass, mended, skew, sum_of
from curator_df.core.tasks.task import Attempt, run_guarded
from curator_df.exchange.dropped_rows import Found
from curator_df.exchange.drops import collect_drops, collect_members
from curator_df.exchange.exchange import (
    DROP_WORDS,
    MEMBER_WORDS,
    Exchange,
    Keep,
    drop_bounds,
    row_addresses,
    swap_if_last,
)
from curator_df.exchange.keys import Keyed, KeySink
from curator_df.exchange.range_groups import RangeGroups, ranges_per_group
from curator_df.files.row_order import Rows
from curator_df.files.row_sort import PIECE_ROWS, RowSorter, merge_slices
from curator_df.files.slice_file import Slice, open_slices
from curator_df.files.storage import JOURNAL_FOLDER, FileRecord, Folder
from curator_df.receipts.receipt import ExchangeReceipt

Survivor = tuple[int, int, int]
"""Key (two halves) and address, as stored, of the kept row of the last group, which may continue."""
NO_SURVIVOR: Survivor = (-1, -1, -1)
MOST_FOLDERS = 10
"""Maximum number of folders of another table that a receipt names."""


@dataclass(frozen=True)
class Reduced:
    """Result of one reduce task, as the journal stores it."""

    number: int
    """Number of the reducer."""
    file: FileRecord
    """File of the drops; its ``rows`` is the number of rows to drop."""
    members: FileRecord | None
    """File of all rows in groups of two or more, if the exchange has ``member_bounds``."""
    rows: int
    """Number of key rows merged."""
    groups: int
    """Number of distinct keys, which equals the number of kept rows."""
    matched: int
    """Number of rows to drop because of a row of another table."""
    read_bytes: int
    """Bytes read from the files of the map tasks."""
    spilled_bytes: int
    """Bytes of drops and members that were sorted in the scratch directory."""
    seconds: float
    """Wall time in seconds."""
    figures: Mapping[str, int] = field(default_factory=dict)
    """Further figures, by name."""


def reduce_keys(
    exchange: Exchange, number: int, files: Sequence[FileRecord], *, memory_bytes: int, scratch: str | None = None
) -> Reduced:
    """Merge one reducer's slices of all map files, and write the rows to drop.

    Parameters
    ----------
    exchange : Exchange
        Exchange that the files belong to.
    number : int
        Number of the reducer.
    files : sequence of FileRecord
        Files that every `KeyWriter` committed.
    memory_bytes : int
        Maximum working memory: one half merges, the other sorts the drops (and the members) by address.
    scratch : str, optional
        Local directory for spilled data. Default: the system's directory for temporary files.

    Raises
    ------
    CorruptFileError
        If a page does not match its checksum; names file and offset. Nothing is committed.
    """
    started = time.perf_counter()
    slices = open_slices(exchange.folder, files, number)

    pieces = functools.partial(key_pieces, slices, memory_bytes // 2, scratch)
    to_sort = memory_bytes // (2 if exchange.member_bounds is None else 4)
    drops = drop_sorter(exchange, number, to_sort, scratch)
    members = None
    if exchange.member_bounds is not None:
        members = RowSorter(
            exchange.folder,
            f"members/reduced-{number:06d}.slices",
            words=MEMBER_WORDS,
            bounds=exchange.member_bounds,
            memory_bytes=to_sort,
            scratch=scratch,
        )
    counts_parts = exchange.of_parts and (exchange.keeps_none or exchange.max_documents is not None)
    reads_twice = counts_parts or members is not None
    across = sizes_across(pieces(), of_documents=exchange.max_documents is not None) if reads_twice else {}
    rows = groups = matched = 0
    try:
        survivor, last = NO_SURVIVOR, -1
        for piece in pieces():
            if counts_parts:
                going, new_groups, survivor = part_drops_of(piece, survivor, exchange, across)
                drops.append(going)
                rows += len(piece)
                groups += new_groups
                continue
            if members is not None:
                members.append(exchange.of_table(members_of(piece, survivor, exchange.keep, across)))
            if exchange.keeps_none:
                drops.append(exchange.of_table(first_drops_of(piece, survivor, last)))
                last = int(piece[-1, -1])
            going, new_groups, survivor = drops_of(piece, survivor, exchange.keep, of_parts=exchange.of_parts)
            going = exchange.of_table(going)
            matched += exchange.of_kept(going)
            drops.append(going)
            rows += len(piece)
            groups += new_groups
        file, member_file = drops.commit(), None if members is None else members.commit()
    finally:
        drops.discard()
        if members is not None:
            members.discard()
    read_bytes = sum(piece.size_bytes for piece in slices) * (2 if reads_twice else 1)
    spilled_bytes = drops.spilled_bytes + (0 if members is None else members.spilled_bytes)
    seconds = time.perf_counter() - started
    return Reduced(number, file, member_file, rows, groups, matched, read_bytes, spilled_bytes, seconds)


def key_pieces(slices: Sequence[Slice], memory_bytes: int, scratch: str | None) -> Iterator[Rows]:
    """Yield the merged rows of a reducer's slices, sorted, in pieces."""
    for merged in merge_slices(slices, memory_bytes=memory_bytes, scratch=scratch):
        for start in range(0, len(merged), PIECE_ROWS):
            yield merged[start : start + PIECE_ROWS]


def drop_sorter(exchange: Exchange, number: int, memory_bytes: int, scratch: str | None) -> RowSorter:
    """Return what sorts the drops of a reducer by address, and writes them."""
    bounds = drop_bounds(exchange.range_starts[:: exchange.ranges_per_drop_file])
    name = f"drops/reduced-{number:06d}.slices"
    return RowSorter(exchange.folder, name, words=DROP_WORDS, bounds=bounds, memory_bytes=memory_bytes, scratch=scratch)


def drops_of(rows: Rows, before: Survivor, keep: Keep, *, of_parts: bool = False) -> tuple[Rows, int, Survivor]:
    """Return (address, kept row) of the rows to drop, the number of new groups, and the last group's kept row.

    Parameters
    ----------
    rows : ndarray of uint64, shape (rows, 3 or 4)
        Sorted key rows that follow those of the last call.
    before : tuple
        Kept row of the last group, as the previous call returned it.
    keep : {"first", "last", "largest", "smallest", "none"}
        Policy, which the order of the rows already reflects. For "none", see `first_drops_of`.
    of_parts : bool
        Whether to return (address, number of the part) instead.
    """
    begins, survivors = groups_of(rows, before)
    firsts, going = np.flatnonzero(begins), np.flatnonzero(~begins)
    drops = np.empty((len(going), DROP_WORDS), dtype=np.uint64)
    if of_parts:
        drops[:] = swap_if_last(rows[going, 2:], keep)
    else:
        drops[:, 0] = row_addresses(rows[going, -1], keep)
        # Place 0 of the kept rows is that of the unfinished group, for rows before the first that begins one.
        drops[:, 1] = row_addresses(survivors[np.searchsorted(firsts, going)], keep)
    high, low = rows[-1, :2].tolist()
    return drops, len(firsts), (high, low, int(survivors[-1]))


def first_drops_of(rows: Rows, before: Survivor, last: int) -> Rows:
    """Return (address, second row) of the first row of each group whose second row is among these: it goes, too.

    Parameters
    ----------
    rows, before
        Same arguments as for `drops_of`.
    last : int
        Address of the row before these.
    """
    begins, survivors = groups_of(rows, before)
    after_first = np.empty(len(rows), dtype=np.bool_)
    after_first[0] = before[2] == last
    after_first[1:] = begins[:-1]
    seconds = np.flatnonzero(after_first & ~begins)
    firsts = survivors[np.searchsorted(np.flatnonzero(begins), seconds)]
    return row_addresses(np.stack([firsts, rows[seconds, -1]], axis=1), "none")


def part_drops_of(
    rows: Rows, before: Survivor, exchange: Exchange, across: Mapping[tuple[int, int], int]
) -> tuple[Rows, int, Survivor]:
    """Return (address, number of the part) of the parts to drop by how often they occur, and the rest as `drops_of` does.

    Parameters
    ----------
    rows, before
        Same arguments as for `drops_of`.
    exchange : Exchange
        Tells how often a part may occur, and whether its first occurrence stays.
    across : mapping
        Sizes from `sizes_across` for groups that are not completely in these rows: rows of the input if ``max_documents``
        is set, otherwise occurrences.
    """
    begins, survivors = groups_of(rows, before)
    counted = None if exchange.max_documents is None else begins_document(rows, begins)
    inside = sizes_of(rows, begins, len(survivors), across, counted) > (exchange.max_documents or 1)
    going = rows[inside if exchange.keeps_none else inside & ~begins, 2:]
    high, low = key_at(rows, -1)
    return swap_if_last(going, exchange.keep), int(begins.sum()), (high, low, int(survivors[-1]))


def members_of(rows: Rows, before: Survivor, keep: Keep, across: Mapping[tuple[int, int], int]) -> Rows:
    """Return (address, kept row, rows of the group) of the rows in groups of two or more.

    Parameters
    ----------
    rows, before, keep
        Same arguments as for `drops_of`.
    across : mapping
        Sizes from `sizes_across` for groups that are not completely in these rows.
    """
    begins, survivors = groups_of(rows, before)
    sizes = sizes_of(rows, begins, len(survivors), across)
    inside = sizes > 1
    members = np.empty((int(inside.sum()), MEMBER_WORDS), dtype=np.uint64)
    members[:, 0] = row_addresses(rows[inside, -1], keep)
    members[:, 1] = row_addresses(survivors[np.cumsum(begins)[inside]], keep)
    members[:, 2] = sizes[inside]
    return members


def sizes_across(pieces: Iterator[Rows], *, of_documents: bool = False) -> dict[tuple[int, int], int]:
    """Return the sizes of the groups that span several pieces of sorted rows: at most one for each piece.

    Parameters
    ----------
    pieces : iterator of ndarray of uint64, shape (rows, words)
        The sorted key rows.
    of_documents : bool
        Whether to count the rows of the input in which a part occurs, instead of the occurrences.
    """
    sizes: dict[tuple[int, int], int] = {}
    key, count, last = (-1, -1), 0, -1
    for rows in pieces:
        begins, _ = groups_of(rows, (*key, 0))
        counted = begins_document(rows, begins, last) if of_documents else None
        lengths = np.bincount(np.cumsum(begins), counted, minlength=1).astype(np.int64).tolist()
        if not begins[0]:
            count += lengths[0]
            sizes[key] = count
        if len(lengths) > 1:
            key, count = key_at(rows, -1), lengths[-1]
        last = int(rows[-1, 2])
    return sizes


def sizes_of(
    rows: Rows,
    begins: npt.NDArray[np.bool_],
    groups: int,
    across: Mapping[tuple[int, int], int],
    counted: npt.NDArray[np.bool_] | None = None,
) -> npt.NDArray[np.int64]:
    """Return for each row the size of its group: all its rows, or those that are counted."""
    numbers = np.cumsum(begins)  # 0: begun in an earlier piece
    sizes = np.bincount(numbers, counted, minlength=groups).astype(np.int64)
    # Only the first and the last group can go on in other pieces.
    for place in (0, -1):
        sizes[numbers[place]] = across.get(key_at(rows, place), sizes[numbers[place]])
    return sizes[numbers]


def begins_document(rows: Rows, begins: npt.NDArray[np.bool_], last: int = -1) -> npt.NDArray[np.bool_]:
    """Return which rows are the first of their group in a row of the input.

    The first of ``rows`` is compared with ``last``, the address before it. Where that is not given, its group is wrong by one
    if it began earlier; its size is then known from `sizes_across`.
    """
    first = begins.copy()
    first[0] |= int(rows[0, 2]) != last
    first[1:] |= rows[1:, 2] != rows[:-1, 2]
    return first


def groups_of(rows: Rows, before: Survivor) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.uint64]]:
    """Return which rows begin a group, and the kept rows: first that of the unfinished group, then of the new ones."""
    begins = np.empty(len(rows), dtype=np.bool_)
    begins[0] = key_at(rows, 0) != before[:2]
    begins[1:] = (rows[1:, 0] != rows[:-1, 0]) | (rows[1:, 1] != rows[:-1, 1])
    survivors = np.empty(int(begins.sum()) + 1, dtype=np.uint64)
    survivors[0] = max(before[2], 0)
    survivors[1:] = rows[begins, -1]
    return begins, survivors


def key_at(rows: Rows, place: int) -> tuple[int, int]:
    """Return the key of a row."""
    return int(rows[place, 0]), int(rows[place, 1])


@dataclass(frozen=True)
class MergeJob:
    """Fields that all tasks of a merge share."""

    exchange: Exchange
    """Exchange to merge."""
    files: tuple[FileRecord, ...]
    """Files of the previous stage."""
    collects: bool
    """Kind of merge. False: keys into drops; True: drops of all hash ranges into files for ranges."""
    reduce: Callable[..., Reduced] = reduce_keys
    """Function that merges keys into drops."""
    collects_members: bool = False
    """Whether the members of all hash ranges are merged into a file for each group of ranges instead."""


def run_merge(job_bytes: bytes, attempt: Attempt) -> Manifest:
    """Merge one hash range (or collect the drops of some ranges); return the result."""

    def merge(manifest: Manifest) -> None:
        job: MergeJob = cloudpickle.loads(job_bytes)
        number, memory_bytes = attempt.piece.number, attempt.block_bytes
        if job.collects_members:
            manifest.files = [collect_members(job.exchange, number, job.files, memory_bytes=memory_bytes)]
            return
        if job.collects:
            manifest.files = [collect_drops(job.exchange, number, job.files, memory_bytes=memory_bytes)]
            return
        reduced = job.reduce(job.exchange, number, job.files, memory_bytes=memory_bytes)
        manifest.files = [reduced.file] if reduced.members is None else [reduced.file, reduced.members]
        manifest.rows_read = reduced.rows
        found = {"unique": reduced.groups, "matched": reduced.matched, "spilled_bytes": reduced.spilled_bytes}
        manifest.summary = {**found, **reduced.figures}
        manifest.steps = [StepCounts(seconds=reduced.seconds)]

    return run_guarded(attempt, merge)


class KeyStages:
    """Stages of one deferred operation that needs the keys of all rows (or parts)."""

    stage: Stage
    home: Folder

    def __init__(
        self,
        runner: PassRunner,
        before: Program,
        step: Step,
        pending: Keyed,
        reduce: Callable[..., Reduced] = reduce_keys,
    ) -> None:
        self.runner, self.before, self.step, self.pending, self.reduce = runner, before, step, pending, reduce

    def run(self) -> Found:
        """Exchange the keys of all rows (or parts); return which of them to drop."""
        runner = self.runner
        with runner.open_stage(self.before, self.step, self.pending.home) as stage:
            self.stage, self.home = stage, stage.home
            exchange, projected_bytes = self._exchange()
            found = stage.finish(lambda: self._exchange_keys(exchange, projected_bytes))
            self.home.delete_tree("keys")
            first = first_pass(stage.journal.done(), len(runner.ranges))
        groups = RangeGroups(exchange.range_starts, ranges_per_group(len(runner.ranges)))
        return Found(
            exchange, found.files["drops"], *first, groups=groups, members=found.files["members"], figures=found.figures
        )

    def _exchange_keys(self, exchange: Exchange, projected_bytes: int) -> StageRecord:
        """Write keys, compare them and collect the drops."""
        started = time.monotonic()
        keys, merged = self._map_and_merge(exchange)
        found = [file for record in merged for file in record.files]
        drops, members = files_below(merged, "drops"), files_below(merged, "members")
        if exchange.ranges_per_drop_file > 1:
            drops = files_below(self._merge("collect", exchange, drops, exchange.drop_files), "drops")
            found += drops
            if exchange.member_bounds is not None:
                job = MergeJob(exchange, members, collects=False, collects_members=True)
                collected = self.stage.tasks("collect-members", "collect", run_merge, job, len(exchange.member_bounds))
                members = files_below(collected, "members")
                found += members
        rows, unique = sum(record.rows_read for record in merged), sum_of(merged, "unique")
        details: dict[str, Any] = {}
        if (against := self.pending.against) is not None:
            kept = sum(record.rows_written for record in keys[len(self.runner.ranges) :])
            folders = sorted({file.rpartition("/")[0] for file in against.program.source.files})[:MOST_FOLDERS]
            rows, details = rows - kept, {"against": kept, "matched": sum_of(merged, "matched"), "folders": folders}
            unique = rows - sum(record.files[0].rows for record in merged)
        receipt = ExchangeReceipt(
            step=self.step.name,
            keys=rows,
            unique=unique,
            hash_ranges=exchange.reducers,
            skew=skew([record.rows_read for record in merged]),
            projected_bytes=projected_bytes,
            key_bytes=sum(file.size_bytes for file in files_below(keys, "keys")),
            drop_bytes=sum(file.size_bytes for file in found),
            spilled_bytes=sum_of([*keys, *merged], "spilled_bytes"),
            seconds=time.monotonic() - started,
            details=details,
        )
        figures = {"windows": sum_of(merged, "windows")} if self.pending.finds == "stretches" else {}
        return StageRecord({"drops": drops, "members": members}, figures, receipt)

    def _map_and_merge(self, exchange: Exchange) -> tuple[list[TaskRecord], list[TaskRecord]]:
        def take() -> list[TaskRecord]:
            sink, title = KeySink(exchange, self.pending), f"{self.step.name}: {self.pending.pass_title}"
            taken = self.stage.stream(title, self.before, self.pending.columns, sink, self.runner.ranges)
            if (against := self.pending.against) is None:
                return taken
            kept, title = self.pending.for_kept, f"{self.step.name}: kept keys"
            sink = KeySink(exchange, kept, len(self.runner.ranges))
            return taken + self.stage.stream(title, against.program, kept.columns, sink, against.ranges, name="against")

        def merge(keys: list[TaskRecord]) -> list[TaskRecord]:
            return self._merge("merge", exchange, files_below(keys, "keys"), exchange.reducers)

        return mended(self.home, take, merge)

    def _merge(self, name: str, exchange: Exchange, files: tuple[FileRecord, ...], count: int) -> list[TaskRecord]:
        job = MergeJob(exchange, files, name == "collect", self.reduce)
        return self.stage.tasks(name, name, run_merge, job, count)

    def _exchange(self) -> tuple[Exchange, int]:
        """Return the exchange and its estimated disk space in bytes; a resumed one keeps its hash ranges, whatever its memory."""
        name, home, pending = f"{JOURNAL_FOLDER}/exchange.json", self.home, self.pending
        starts = pending.drop_starts(self.runner.ranges)
        groups = RangeGroups(starts, ranges_per_group(len(starts)))
        keeps_members = pending.keeps_members
        if home.exists(name):
            chosen = json.loads(home.read(name))
        else:
            start = StageStart(self.before, self.runner.ranges, self.runner.session.layout)
            plan = pending.plan_exchange(start)
            chosen = {
                "reducers": plan.reducers,
                "ranges_per_drop_file": plan.ranges_per_drop_file,
                "projected_bytes": plan.need(self.step.name).needed_bytes,
            }
            home.write(name, json.dumps(chosen).encode())
        exchange = Exchange(
            home,
            pending.keep,
            chosen["reducers"],
            starts,
            chosen["ranges_per_drop_file"],
            of_parts=pending.of_parts,
            member_bounds=groups.bounds if keeps_members else None,
            max_documents=pending.max_documents,
            finds=pending.finds,
            first_kept=None if pending.against is None else pending.against.first_address,
        )
        return exchange, int(chosen["projected_bytes"])
