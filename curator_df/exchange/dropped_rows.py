# SPDX-License-Identifier: Apache-2.0
"""Rows that an exchange found, and the action that drops them in the last pass."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from curator_df.core.backend import integer_column
from curator_df.core.ranges.blocks import Outcome
from curator_df.core.ranges.range_action import OfRange, RangeAction, changed_rows
from curator_df.exchange.drops import COLLECTED, DropReader
from curator_df.exchange.exchange import Exchange
from curator_df.exchange.keys import CHECKSUM_MASK, key_checksum
from curator_df.exchange.range_groups import RangeGroups
from curator_df.files.row_order import Rows
from curator_df.files.row_sort import merge_slices
from curator_df.files.slice_file import Slice, open_slices, part_of_slice
from curator_df.files.sorted_rows import RowsUpTo
from curator_df.files.storage import FileRecord
from curator_df.kernels.rows.either_backend import rows_where

DROP_READER_BYTES = 4_000_000
"""Memory for reading the drops of a range, in bytes."""
SIZE_WORDS = 2
"""Words of a size: address of a kept row, rows of its group."""
MATCH_WORDS = 3
"""Words of a match: address of the row, address of the matched row, bits of their similarity (a float64; NaN if unknown)."""


@dataclass(frozen=True)
class Found:
    """Result of the stages of a deferred operation, for the last pass."""

    exchange: Exchange
    """Exchange with the drops."""
    files: tuple[FileRecord, ...]
    """Files of the drops."""
    rows: npt.NDArray[np.int64] = field(repr=False)
    """Array of shape (ranges,): rows of each range in the first pass."""
    checksums: npt.NDArray[np.uint64] = field(repr=False)
    """Array of shape (ranges,): `key_checksum` of each range."""
    groups: RangeGroups = field(kw_only=True)
    """Groups of the ranges, by which a table of groups is split."""
    figures: Mapping[str, int] = field(kw_only=True, default_factory=dict)
    """Figures of the reducers, by name."""
    members: tuple[FileRecord, ...] = field(kw_only=True, default=())
    """Files of (address, kept row, rows of the group) for all rows in groups of two or more, if needed for a table."""

    @property
    def keeps_none(self) -> bool:
        """Whether all rows of a group of two or more are dropped."""
        return self.exchange.keeps_none

    def member_rows(self, group: int, *, memory_bytes: int) -> Iterator[Rows]:
        """Yield the members whose addresses are in a group of ranges, in order."""
        slices = open_slices(self.exchange.folder, *self._member_files(group))
        return merge_slices(slices, memory_bytes=memory_bytes)

    def members_near(self, number: int, *, memory_bytes: int) -> Iterator[Rows]:
        """Yield the members in a range, and possibly some before and after it, in order."""
        parts = self._near(number, *self._member_files(number // self.groups.per_group))
        return merge_slices(parts, memory_bytes=memory_bytes)

    def _member_files(self, group: int) -> tuple[Sequence[FileRecord], int]:
        """Return the files with the members in a group of ranges, and the number of their slice."""
        if self.members and self.members[0].name.startswith(COLLECTED):
            return self.members[group : group + 1], 0
        return self.members, group

    def kept_sizes(self, number: int, *, memory_bytes: int) -> Iterator[Rows]:
        """Yield (address, rows of the group) of the kept rows in a range, and possibly of some before and after it."""
        for rows in self.members_near(number, memory_bytes=memory_bytes):
            yield rows[rows[:, 0] == rows[:, 1]][:, [0, 2]]

    def _near(self, number: int, files: Sequence[FileRecord], place: int) -> list[Slice]:
        """Return the parts of slices whose rows can lie in a range."""
        starts = self.groups.starts
        last = int(starts[number + 1]) - 1 if number + 1 < len(starts) else (1 << 63) - 1
        slices = open_slices(self.exchange.folder, files, place)
        return [part_of_slice(piece, int(starts[number]), last) for piece in slices if piece.rows]

    def matched_rows(self, number: int, *, memory_bytes: int) -> Iterator[Rows] | None:  # noqa: ARG002 - of other kinds
        """Return (address, address of the matched row, bits of their similarity) for the rows of a range, in order.

        None means that the drops name the matched row already, and that the two are equal.
        """
        return None

    def require_same(self, step: str, number: int, rows: int, checksum: int, missed: int) -> None:
        """Raise an error unless a range had the same rows with the same keys as in the first pass."""
        if (rows, checksum, missed) != (int(self.rows[number]), int(self.checksums[number]), 0):
            raise changed_rows(step, number, int(self.rows[number]), rows, ", or rows with other values")


@dataclass(frozen=True)
class DropRows(RangeAction):
    """Resolved form of a deferred removal in the last pass: the addresses of the rows to drop, range by range."""

    follows_addresses: ClassVar[bool] = True
    drops_by_address: ClassVar[bool] = True
    pending: Any
    """Deferred `KeyDrop` or `NearDrop`; its keys prove that the rows are those of the first pass."""
    found: Found
    """Result with the rows to drop."""

    def of_range(self, number: int) -> OfRange:
        """Return the object that drops the rows of one range, once."""
        return RangeDrops(self, number)


class RangeDrops:
    """Removal of the rows of one range, block by block, with a check that they are the rows of the first pass.

    If the reader leaves out the rows to drop, the other rows are counted but not hashed again: no step has changed them.
    """

    def __init__(self, drops: DropRows, number: int) -> None:
        self._pending, self._found, self._number = drops.pending, drops.found, number
        self._reader = DropReader(drops.found.exchange, number, drops.found.files, memory_bytes=DROP_READER_BYTES)
        self._matches: RowsUpTo | None = None
        self._sizes: RowsUpTo | None = None
        if self._pending.count_into is not None:
            self._sizes = RowsUpTo(drops.found.kept_sizes(number, memory_bytes=DROP_READER_BYTES), SIZE_WORDS)
        self._rows = self._checksum = 0
        self._is_asked = False

    @property
    def reason(self) -> str:
        """Drop reason of the rows."""
        return str(self._pending.reason)

    def left_out(self, addresses: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        """Return which of the next rows are dropped, by their ascending row IDs."""
        self._is_asked = True
        going = self._reader.drops(addresses)
        self.note_passed(int(going.sum()))
        return going

    def note_passed(self, rows: int) -> None:
        """Count rows that `run` does not receive, because they are left out."""
        self._rows += rows

    def run(self, block: Any) -> Outcome:
        """Return the kept rows."""
        addresses = block.index.to_numpy()
        self._rows += len(block)
        if self._is_asked:
            return Outcome(self._counted(block, addresses))
        self._checksum = (self._checksum + key_checksum(self._pending.of(block).hashes, addresses)) & CHECKSUM_MASK
        going = self._reader.drops(addresses)
        count = int(going.sum())
        if not count:
            return Outcome(self._counted(block, addresses))
        return Outcome(
            self._counted(rows_where(block, ~going), addresses[~going]),
            {self._pending.reason: count},
            rejects=lambda: (rows_where(block, going), self._reasons(addresses[going])),
        )

    def _counted(self, block: Any, addresses: npt.NDArray[np.int64]) -> Any:
        """Return kept rows with the number of rows that each stands for, if it is wanted."""
        if self._sizes is None:
            return block
        counts = np.ones(len(addresses), dtype=np.int64)
        for rows in self._sizes.take(int(addresses[-1])) if len(addresses) else ():
            known = rows[:, 0].astype(np.int64)
            places = np.searchsorted(addresses, known)
            found = addresses[places] == known
            counts[places[found]] = rows[found, 1].astype(np.int64)
        return block.assign(**{self._pending.count_into: integer_column(block, counts)})

    def _reasons(self, going: npt.NDArray[np.int64]) -> dict[str, Any]:
        """Return the columns that rejects show for some dropped rows; called for each block in turn, or never."""
        pending, count = self._pending, len(going)
        said = {"reason": [pending.reason] * count, "matched": self._reader.staying, "other_files": pending.other_files}
        if self._matches is None:
            matches = self._found.matched_rows(self._number, memory_bytes=DROP_READER_BYTES)
            if matches is None:
                return said
            self._matches = RowsUpTo(matches, MATCH_WORDS)
        rows = np.concatenate(list(self._matches.take(int(going[-1]))))
        rows = rows[np.searchsorted(rows[:, 0], going.view(np.uint64))]
        if (rows[:, 0].view(np.int64) != going).any():
            raise ValueError(
                "the temporary file of matched rows does not belong to the dropped rows. This is a defect in curator_df; "
                "please report it with this traceback"
            )
        said |= {"rule": [pending.rule] * count, "threshold": [pending.threshold] * count}
        return said | {"matched": rows[:, 1].astype(np.int64), "value": rows[:, 2].copy().view(np.float64)}

    def finish(self, step: str) -> None:
        """Raise an error unless the range had the same rows with the same keys as in the first pass."""
        checksum = int(self._found.checksums[self._number]) if self._is_asked else self._checksum
        self._found.require_same(step, self._number, self._rows, checksum, self._reader.finish())
