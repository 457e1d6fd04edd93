# SPDX-License-Identifier: Apache-2.0
# numba has no types.
# mypy: disable-error-code="untyped-decorator"
"""Tables of hashes in memory with the row of each: all keys (`KeyTable`), or those of recent rows (`RepeatedRows`)."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from curator_df.kernels.compiling.compiled import kernel, types

SLOTS = 1 << 15
"""Number of hashes that are remembered: 1.1 MB."""


@kernel(
    types.void(
        types.Array(types.uint64, 2, "C", readonly=True),
        types.int64,
        types.uint64[:, ::1],
        types.int64[::1],
        types.int64[::1],
    )
)
def find_earlier(hashes: Any, first: Any, remembered: Any, serials: Any, found: Any) -> None:
    """Write into ``found`` the serial number of the remembered row with the same hash, or else the row's own.

    Row ``n`` of ``hashes`` has the serial number ``first + n``. A row that is not found takes the place of the one remembered
    in its slot.
    """
    for row in range(len(hashes)):
        slot = np.int64(hashes[row, 1] % np.uint64(len(serials)))
        is_known = (
            serials[slot] >= 0 and remembered[slot, 0] == hashes[row, 0] and remembered[slot, 1] == hashes[row, 1]
        )
        if not is_known:
            serials[slot] = first + row
            remembered[slot, 0] = hashes[row, 0]
            remembered[slot, 1] = hashes[row, 1]
        found[row] = serials[slot]


class RepeatedRows:
    """Memory of the hashes of earlier rows; what it finds depends on the order of the rows, and not on the blocks.

    A hash that occurs often is found nearly always, and a rare one if it returns before another takes its slot.

    Examples
    --------
    >>> repeated = RepeatedRows()
    >>> hashes = np.array([[1, 7], [2, 7], [2, 7]], dtype=np.uint64)
    >>> repeated.find(hashes).tolist(), repeated.find(hashes).tolist()
    ([0, 1, 1], [3, 4, 4])
    """

    def __init__(self) -> None:
        self.rows = 0
        """Number of rows so far."""
        self._remembered = np.empty((SLOTS, 2), dtype=np.uint64)
        self._serials = np.full(SLOTS, -1, dtype=np.int64)

    def find(self, hashes: npt.NDArray[np.uint64]) -> npt.NDArray[np.int64]:
        """Return for each of the next rows, shape (rows, 2), the number of an earlier row with its hash, or its own number."""
        found = np.empty(len(hashes), dtype=np.int64)
        find_earlier(np.ascontiguousarray(hashes), self.rows, self._remembered, self._serials, found)
        self.rows += len(hashes)
        return found


SLOT_BYTES = 24
"""Bytes of a slot: a key of 16 bytes, and the ID of its row."""


@kernel(
    types.int64(
        types.Array(types.uint64, 2, "C", readonly=True),
        types.Array(types.int64, 1, "C", readonly=True),
        types.uint64[:, ::1],
        types.int64[::1],
    )
)
def put_keys(hashes: Any, addresses: Any, slots: Any, first: Any) -> int:
    """Put keys that are not yet in a table of ``2 ** n`` slots into it; return their number.

    The row ID of each key in the table, an earlier row or the row itself, is written into ``first``.
    """
    mask, new = np.uint64(len(slots) - 1), 0
    for row in range(len(hashes)):
        slot = hashes[row, 1] & mask
        while slots[slot, 2] != 0 and (slots[slot, 0] != hashes[row, 0] or slots[slot, 1] != hashes[row, 1]):
            slot = (slot + np.uint64(1)) & mask
        if slots[slot, 2] == 0:
            slots[slot, 0] = hashes[row, 0]
            slots[slot, 1] = hashes[row, 1]
            slots[slot, 2] = np.uint64(addresses[row] + 1)  # 0: an empty slot
            new += 1
        first[row] = np.int64(slots[slot, 2]) - 1
    return new


def table_bytes(most_keys: int) -> int:
    """Return the memory of a table with room for a number of keys.

    Examples
    --------
    >>> table_bytes(100_000)
    6291456
    """
    return SLOT_BYTES << (most_keys + most_keys // 2).bit_length()


class KeyTable:
    """Table with room for a number of keys, of which it holds the first address.

    Examples
    --------
    >>> table = KeyTable(10)
    >>> hashes = np.array([[1, 7], [2, 7], [1, 7]], dtype=np.uint64)
    >>> table.put(hashes, np.array([5, 6, 7])).tolist(), table.put(hashes, np.array([8, 9, 10])).tolist()
    ([5, 6, 5], [5, 6, 5])
    >>> table.keys, table.has_room(8), table.has_room(9)
    (2, True, False)
    """

    def __init__(self, most_keys: int) -> None:
        self.keys = 0
        """Number of keys in the table."""
        self._most_keys = most_keys
        self._slots = np.zeros((table_bytes(most_keys) // SLOT_BYTES, 3), dtype=np.uint64)

    def clear(self) -> None:
        """Remove all keys."""
        self.keys = 0
        self._slots.fill(0)

    def has_room(self, keys: int) -> bool:
        """Return whether there is room for more keys, if all are new."""
        return self.keys + keys <= self._most_keys

    def put(self, hashes: npt.NDArray[np.uint64], addresses: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Put the keys of some rows, shape (rows, 2), into the table; return for each row the address that its key has there."""
        first = np.empty(len(addresses), dtype=np.int64)
        self.keys += put_keys(np.ascontiguousarray(hashes), np.ascontiguousarray(addresses), self._slots, first)
        return first
