# SPDX-License-Identifier: Apache-2.0
"""Reduce task of an exchange: merge the keys of a hash range, and find the rows to drop."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from curator_df.core.files.row_order import Rows
from curator_df.core.files.row_sort import PIECE_ROWS, RowSorter, merge_slices
from curator_df.core.files.slice_file import open_slices
from curator_df.core.files.storage import FileRecord
from curator_df.exchange.exchange import DROP_WORDS, MEMBER_WORDS, Exchange, Keep, drop_bounds, swap_if_last

Survivor = tuple[int, int, int]
"""Key (two halves) and address, as stored, of the kept row of the last group, which may continue."""
_NO_SURVIVOR: Survivor = (-1, -1, -1)


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
    read_bytes: int
    """Bytes read from the files of the map tasks."""
    spilled_bytes: int
    """Bytes of drops and members that were sorted in the scratch directory."""
    seconds: float
    """Wall time in seconds."""


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

    def pieces() -> Iterator[Rows]:
        for merged in merge_slices(slices, memory_bytes=memory_bytes // 2, scratch=scratch):
            for start in range(0, len(merged), PIECE_ROWS):
                yield merged[start : start + PIECE_ROWS]

    bounds = drop_bounds(exchange.range_starts[:: exchange.ranges_per_drop_file])
    to_sort = memory_bytes // (2 if exchange.member_bounds is None else 4)
    name = f"reduced-{number:06d}.slices"
    drops = RowSorter(
        exchange.folder, f"drops/{name}", words=DROP_WORDS, bounds=bounds, memory_bytes=to_sort, scratch=scratch
    )
    members = None
    if exchange.member_bounds is not None:
        members = RowSorter(
            exchange.folder,
            f"members/{name}",
            words=MEMBER_WORDS,
            bounds=exchange.member_bounds,
            memory_bytes=to_sort,
            scratch=scratch,
        )
    across = {} if members is None else sizes_across(pieces())
    rows = groups = 0
    try:
        survivor = _NO_SURVIVOR
        for piece in pieces():
            if members is not None:
                members.append(members_of(piece, survivor, exchange.keep, across))
            going, new_groups, survivor = drops_of(piece, survivor, exchange.keep, of_parts=exchange.of_parts)
            drops.append(going)
            rows += len(piece)
            groups += new_groups
        file, member_file = drops.commit(), None if members is None else members.commit()
    finally:
        drops.discard()
        if members is not None:
            members.discard()
    read_bytes = sum(piece.size_bytes for piece in slices) * (1 if members is None else 2)
    spilled_bytes = drops.spilled_bytes + (0 if members is None else members.spilled_bytes)
    return Reduced(number, file, member_file, rows, groups, read_bytes, spilled_bytes, time.perf_counter() - started)


def drops_of(rows: Rows, before: Survivor, keep: Keep, *, of_parts: bool = False) -> tuple[Rows, int, Survivor]:
    """Return (address, kept row) of the rows to drop, the number of new groups, and the last group's kept row.

    Parameters
    ----------
    rows : ndarray of uint64, shape (rows, 3 or 4)
        Sorted key rows that follow those of the last call.
    before : tuple
        Kept row of the last group, as the previous call returned it.
    keep : {"first", "last", "largest", "smallest"}
        Policy, which the order of the rows already reflects.
    of_parts : bool
        Whether to return (address, number of the part) instead.
    """
    begins, survivors = _groups(rows, before)
    firsts, going = np.flatnonzero(begins), np.flatnonzero(~begins)
    drops = np.empty((len(going), DROP_WORDS), dtype=np.uint64)
    if of_parts:
        drops[:] = swap_if_last(rows[going, 2:], keep)
    else:
        drops[:, 0] = swap_if_last(rows[going, -1], keep)
        drops[:, 1] = swap_if_last(survivors[np.searchsorted(firsts, going)], keep)
    high, low = rows[-1, :2].tolist()
    return drops, len(firsts), (high, low, int(survivors[-1]))


def members_of(rows: Rows, before: Survivor, keep: Keep, across: Mapping[tuple[int, int], int]) -> Rows:
    """Return (address, kept row, rows of the group) of the rows in groups of two or more.

    Parameters
    ----------
    rows, before, keep
        Same arguments as for `drops_of`.
    across : mapping
        Sizes from `sizes_across` for groups that are not completely in these rows.
    """
    begins, survivors = _groups(rows, before)
    groups = np.cumsum(begins)  # 0: begun in an earlier piece
    sizes = np.bincount(groups, minlength=len(survivors))
    for place in (0, -1):
        sizes[groups[place]] = across.get(_key(rows, place), sizes[groups[place]])
    inside = sizes[groups] > 1
    members = np.empty((int(inside.sum()), MEMBER_WORDS), dtype=np.uint64)
    members[:, 0] = swap_if_last(rows[inside, -1], keep)
    members[:, 1] = swap_if_last(survivors[groups[inside]], keep)
    members[:, 2] = sizes[groups[inside]]
    return members


def sizes_across(pieces: Iterator[Rows]) -> dict[tuple[int, int], int]:
    """Return the sizes of the groups that span several pieces of sorted rows: at most one for each piece."""
    sizes: dict[tuple[int, int], int] = {}
    key, count = (-1, -1), 0
    for rows in pieces:
        begins, _ = _groups(rows, (*key, 0))
        lengths = np.bincount(np.cumsum(begins), minlength=1).tolist()
        if lengths[0]:
            count += lengths[0]
            sizes[key] = count
        if len(lengths) > 1:
            key, count = _key(rows, -1), lengths[-1]
    return sizes


def _groups(rows: Rows, before: Survivor) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.uint64]]:
    """Return which rows begin a group, and the kept rows: first that of the unfinished group, then of the new ones."""
    begins = np.empty(len(rows), dtype=np.bool_)
    begins[0] = _key(rows, 0) != before[:2]
    begins[1:] = (rows[1:, 0] != rows[:-1, 0]) | (rows[1:, 1] != rows[:-1, 1])
    survivors = np.empty(int(begins.sum()) + 1, dtype=np.uint64)
    survivors[0] = max(before[2], 0)
    survivors[1:] = rows[begins, -1]
    return begins, survivors


def _key(rows: Rows, place: int) -> tuple[int, int]:
    return int(rows[place, 0]), int(rows[place, 1])


def skew(reduced: Sequence[Reduced]) -> float:
    """Return the rows of the largest reducer as a multiple of the mean; 1.0 if there are none."""
    rows = [one.rows for one in reduced]
    return max(rows) * len(rows) / sum(rows) if sum(rows) else 1.0
