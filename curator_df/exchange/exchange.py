# SPDX-License-Identifier: Apache-2.0
"""All-to-all exchange of key rows: find the kept row with the same key for every row of the input.

A key row is a 128-bit hash and the row ID, with a rank before the ID if the kept rows are chosen by a value. Text is
never moved. There are three kinds of task, each a pure function of files, so that any of them can be repeated:

1. map, one for each range: a `KeyWriter` sorts the range's key rows into one file with a slice for each reducer;
2. reduce, one for each reducer: `key_stages.reduce_keys` merges its slices of all those files. Rows are ordered by
   key, rank and address, so the first row of a group is kept and all others are dropped, whatever the size of the group (with
   ``keep="none"`` the first row is dropped too). Drops are written as (address, kept row), with a slice for each range. For a
   table of groups the slices are merged twice, because
   the size of a group is known only at its end, and all members are written too;
3. if there are many reducers and ranges, `drops.collect_drops`: merge the slices of all reducers for many ranges into one file.

The second pass over the text then reads the drops of its range with a `drops.DropReader`. See `exchange_plan` for sizes.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from curator_df.errors import ParameterError
from curator_df.files.row_order import Rows
from curator_df.files.row_sort import PIECE_ROWS, RowSorter
from curator_df.files.slice_file import Bounds
from curator_df.files.storage import FileRecord, Folder

Keep = Literal["first", "last", "largest", "smallest", "none"]
"""Row of a group to keep: the first or last in input order, or the one with the largest or smallest value; of equal values the
first in input order. A missing value (null, NaN) loses to every other. With "none", no row of a group of two or more is kept.
"""
Finds = Literal["drops", "repeats", "stretches"]
"""Result of a reducer: parts to drop; all places of hashes that occur twice; or stretches of text to drop, and those whose
windows must be compared (`dedup.substring_removal.stretches_in`).
"""
Linkage = Literal["direct", "transitive"]
"""Kind of links between similar rows: each dropped row directly to a kept one, or through other rows."""

DROP_WORDS = 2
"""Words of a drop: address of the dropped row, address of the row that it matched: the kept row, if there is one."""
MEMBER_WORDS = 3
"""Words of a member: address of the row, of the kept row of its group (the first row, if none is kept), rows of the group."""
_SIGN = np.uint64(1 << 63)
ROW_BIT = np.uint64(1 << 63)
"""Bit of a stored address that is set for rows of the table where those of another table are merged too: these come first."""
_WORST = np.uint64((1 << 64) - 1)


@dataclass(frozen=True)
class Exchange:
    """Fields that all tasks of one exchange share; picklable and small, without memory limits or workers."""

    folder: Folder
    """Folder of the files, accessible to all workers."""
    keep: Keep
    """Row of a group to keep."""
    reducers: int
    """Number of hash ranges (`exchange_plan.choose_reducers`). A resumed run must have the same: the files are split by it."""
    range_starts: npt.NDArray[np.int64]
    """Array of shape (ranges,): smallest address of each range (`range_starts`)."""
    ranges_per_drop_file: int = 1
    """Number of ranges whose drops share a slice of a reducer's file; more than 1 requires `collect_drops`."""
    of_parts: bool = False
    """Whether the keys are those of parts of rows: a drop is then (address, number of the part), not (address, kept row)."""
    member_bounds: Bounds | None = None
    """Smallest address of each slice of the files of members; None writes only the drops."""
    max_documents: int | None = None
    """Number of rows up to which a part of a text may occur without being dropped; None: a part that occurs twice is dropped."""
    finds: Finds = "drops"
    """Kind of result that a reducer writes."""
    first_kept: int | None = None
    """Smallest address of the rows of another table, which are merged too and never dropped; None without such a table."""

    @property
    def keeps_none(self) -> bool:
        """Whether all rows of a group of two or more are dropped."""
        return self.keep == "none"

    @property
    def words(self) -> int:
        """Number of 64-bit words of a key row."""
        return key_words(self.keep, of_parts=self.of_parts, finds=self.finds)

    @property
    def drop_files(self) -> int:
        """Number of `collect_drops` tasks, if they are needed."""
        return -(-len(self.range_starts) // self.ranges_per_drop_file)

    def of_table(self, rows: Rows) -> Rows:
        """Return those rows, each of which begins with its address, that do not belong to another table."""
        return rows if self.first_kept is None else rows[rows[:, 0] < np.uint64(self.first_kept)]

    def of_kept(self, drops: Rows) -> int:
        """Return how many drops matched a row of another table."""
        return 0 if self.first_kept is None else int((drops[:, 1] >= np.uint64(self.first_kept)).sum())


def key_words(keep: Keep, *, of_parts: bool = False, finds: Finds = "drops") -> int:
    """Return the 64-bit words of a key row: hash (two), address and, by policy, a rank or the number of a part.

    Key rows of which only those are wanted that repeat have two words: hash and place.
    """
    if finds == "repeats":
        return 2
    return 4 if of_parts or keep in ("largest", "smallest") else 3


def hash_bounds(reducers: int) -> Bounds:
    """Return the smallest high word of each reducer's keys: ``reducer == (high * reducers) >> 64``, exactly.

    Examples
    --------
    >>> [hex(bound) for bound in hash_bounds(3)]
    ['0x0', '0x5555555555555556', '0xaaaaaaaaaaaaaaab']
    """
    return np.array([-(-(number << 64) // reducers) for number in range(reducers)], dtype=np.uint64)


def ranks(values: npt.NDArray[Any], keep: Keep, missing: npt.NDArray[np.bool_] | None = None) -> npt.NDArray[np.uint64]:
    """Return numbers whose ascending order is the order of preference; missing values come last.

    Parameters
    ----------
    values : ndarray of int64 or float64, shape (rows,)
        NaN counts as missing, -0.0 as 0.0.
    keep : {"largest", "smallest"}
        Preferred values.
    missing : ndarray of bool, shape (rows,), optional
        True where the value is null.

    Examples
    --------
    >>> np.argsort(ranks(np.array([1.5, np.nan, -2.0, 3.0]), "largest")).tolist()
    [3, 0, 2, 1]
    """
    if np.issubdtype(values.dtype, np.floating):
        numbers = values.astype(np.float64) + 0.0
        bits = numbers.view(np.uint64)
        rising = np.where(bits & _SIGN, ~bits, bits | _SIGN)
        absent = np.isnan(numbers)
    else:
        rising = values.astype(np.int64).view(np.uint64) ^ _SIGN
        absent = np.zeros(len(values), dtype=np.bool_)
    preferred = ~rising if keep == "largest" else rising
    return np.where(absent if missing is None else absent | missing, _WORST, preferred)


class KeyWriter:
    """Writer that accepts the key rows of one range, in any order, and commits them as one file sorted by hash.

    Parameters
    ----------
    exchange : Exchange
        Exchange that the file belongs to.
    number : int
        Number of the range.
    memory_bytes : int
        Maximum working memory; beyond it, sorted runs are written to the scratch directory.
    scratch : str, optional
        Local directory. Default: the system's directory for temporary files.
    are_kept : bool
        Whether the rows belong to another table: each comes first in its group, whichever row of the table is kept.
    """

    def __init__(
        self,
        exchange: Exchange,
        number: int,
        *,
        memory_bytes: int,
        scratch: str | None = None,
        are_kept: bool = False,
    ) -> None:
        self._keep: Keep = exchange.keep
        self._row_bit = np.uint64(0) if exchange.first_kept is None else ROW_BIT
        self._are_kept = are_kept
        self._words, self._of_parts = exchange.words, exchange.of_parts
        bounds = hash_bounds(exchange.reducers)
        self._sorter = RowSorter(
            dataclasses.replace(exchange.folder, is_durable=False),
            f"keys/part-{number:06d}.slices",
            words=exchange.words,
            bounds=bounds,
            memory_bytes=memory_bytes,
            scratch=scratch,
        )

    @property
    def spilled_bytes(self) -> int:
        """Number of bytes written to the scratch directory."""
        return self._sorter.spilled_bytes

    def append(
        self,
        keys: npt.NDArray[np.uint64],
        addresses: npt.NDArray[np.int64],
        values: npt.NDArray[Any] | None = None,
        missing: npt.NDArray[np.bool_] | None = None,
        parts: npt.NDArray[np.int64] | None = None,
    ) -> None:
        """Append the keys of a block.

        Parameters
        ----------
        keys : ndarray of uint64, shape (rows, 2)
            High and low half of each hash.
        addresses : ndarray of int64, shape (rows,)
            Index of the block.
        values : ndarray of int64 or float64, shape (rows,), optional
            Values that ``keep="largest"`` and ``"smallest"`` compare.
        missing : ndarray of bool, shape (rows,), optional
            True where the value is null.
        parts : ndarray of int64, shape (rows,), optional
            Number of each part in its row, for keys of parts.
        """
        for start in range(0, len(addresses), PIECE_ROWS):
            part = slice(start, start + PIECE_ROWS)
            rows = np.empty((len(addresses[part]), self._words), dtype=np.uint64)
            rows[:, :2] = keys[part]
            rows[:, -1] = swap_if_last(addresses[part], self._keep) | self._row_bit
            if self._are_kept:
                rows[:, 2:] = 0
                rows[:, -1] = addresses[part]
            elif self._of_parts:
                if parts is None:
                    raise ParameterError(
                        "KeyWriter.append was called without parts=, but its keys are those of parts of a text. This is a "
                        "defect in curator_df; please report it with this traceback"
                    )
                rows[:, 2] = rows[:, 3]
                rows[:, 3] = swap_if_last(parts[part], self._keep)
            elif self._words == 4:
                if values is None:
                    raise ParameterError(
                        f"keep={self._keep!r} compares values, but the block has none. This is a defect in curator_df; "
                        "please report it with this traceback"
                    )
                rows[:, 2] = ranks(values[part], self._keep, None if missing is None else missing[part])
            self._sorter.append(rows)

    def append_rows(self, rows: Rows) -> None:
        """Append key rows of an exchange whose rows have neither an address nor a rank."""
        self._sorter.append(rows)

    def commit(self) -> FileRecord:
        """Make the file visible, and return its record, which is all that a reducer needs."""
        return self._sorter.commit()

    def discard(self) -> None:
        """Discard everything that was not committed."""
        self._sorter.discard()


def drop_bounds(starts: npt.NDArray[np.int64]) -> Bounds:
    """Return the smallest address of each slice of drops; the first slice also has everything before it."""
    bounds = starts.astype(np.uint64)
    bounds[:1] = 0
    return bounds


def row_addresses(words: Rows, keep: Keep) -> Rows:
    """Return row IDs from their stored form.

    Examples
    --------
    >>> [int(row_addresses(np.array([word], dtype=np.uint64), keep)[0]) for word, keep in [(7, "last"), (7 + 2**63, "first")]]
    [7, 7]
    """
    addresses: Rows = np.where(words >= ROW_BIT, ~words, words) if keep == "last" else words & ~ROW_BIT
    return addresses


def swap_if_last(addresses: npt.NDArray[Any], keep: Keep) -> Rows:
    """Convert addresses to the stored form and back: for ``last`` it is the complement, so that the last row comes first."""
    words: Rows = addresses.view(np.uint64)
    return ~words if keep == "last" else words
