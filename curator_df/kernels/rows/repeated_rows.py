# SPDX-License-Identifier: Apache-2.0
# numba has no types.
# mypy: disable-error-code="untyped-decorator"
"""Find rows whose hash occurred shortly before, in memory that does not grow with the rows."""

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
