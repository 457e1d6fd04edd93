# SPDX-License-Identifier: Apache-2.0
# numba has no types.
# mypy: disable-error-code="untyped-decorator"
"""Compiled hashes of the bands of MinHash signatures.

Importing this module imports numba and compiles, or loads from the on-disk cache, one function for 32 and 64 bits.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit, types

from curator_df.kernels.murmur_hash import finished

_SIGNATURES = [types.void(word[:, ::1], types.int64, types.uint64[:, ::1]) for word in (types.uint32, types.uint64)]


@njit(_SIGNATURES, nogil=True, cache=True)
def hash_bands(signatures: Any, minhashes_per_band: int, hashes: Any) -> None:
    """Hash consecutive values of each signature into ``hashes``, shape (rows, bands)."""
    for row in range(len(hashes)):
        for band in range(hashes.shape[1]):
            mixed = np.uint64(minhashes_per_band)
            for number in range(band * minhashes_per_band, (band + 1) * minhashes_per_band):
                mixed = finished(mixed ^ np.uint64(signatures[row, number]))
            hashes[row, band] = mixed
