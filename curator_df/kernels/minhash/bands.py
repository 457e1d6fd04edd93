# SPDX-License-Identifier: Apache-2.0
# numba has no types.
# mypy: disable-error-code="untyped-decorator"
"""Compiled hashes of the bands of MinHash signatures.

Importing this module imports numba and compiles, or loads from the on-disk cache, one function for 32 and 64 bits.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from curator_df.kernels.compiling.compiled import helper, kernel, types
from curator_df.kernels.text.murmur_hash import finished


@helper
def _hash_bands(signatures: Any, minhashes_per_band: int, hashes: Any) -> None:
    for row in range(len(hashes)):
        for band in range(hashes.shape[1]):
            mixed = np.uint64(minhashes_per_band)
            for number in range(band * minhashes_per_band, (band + 1) * minhashes_per_band):
                mixed = finished(mixed ^ np.uint64(signatures[row, number]))
            hashes[row, band] = mixed


@kernel(types.void(types.uint32[:, ::1], types.int64, types.uint64[:, ::1]))
def hash_bands_32(signatures: Any, minhashes_per_band: int, hashes: Any) -> None:
    """Hash consecutive values of each signature into ``hashes``, shape (rows, bands)."""
    _hash_bands(signatures, minhashes_per_band, hashes)


@kernel(types.void(types.uint64[:, ::1], types.int64, types.uint64[:, ::1]))
def hash_bands_64(signatures: Any, minhashes_per_band: int, hashes: Any) -> None:
    """Hash signatures of 64 bits as `hash_bands_32` does."""
    _hash_bands(signatures, minhashes_per_band, hashes)
