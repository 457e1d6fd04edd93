# SPDX-License-Identifier: Apache-2.0
# numba has no types.
# mypy: disable-error-code="untyped-decorator"
"""Table of keys in memory, with the row that each key was first met in."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from curator_df.kernels.compiling.compiled import kernel, types

SLOT_BYTES = 24
"""Bytes of a slot: a key of 16 bytes, and the address of its row."""


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

    The address of the row of each key in the table, an earlier row or the row itself, is written into ``first``.
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
