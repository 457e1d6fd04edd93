# SPDX-License-Identifier: Apache-2.0
# numba has no types.
# mypy: disable-error-code="untyped-decorator,no-any-return"
"""Content hashes of texts on a device: bit for bit those of `content_hash`, by the same per-text functions.

A thread hashes one text after the other. Unchanged texts need only the memory of the hashes, 16 bytes a row; normalized ones
1,032 bytes for each thread of a launch, at most 17 MB.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import cuda

from curator_df.kernels.device.launch import allocate, one_by_one, to_device
from curator_df.kernels.device.texts import DeviceTexts
from curator_df.kernels.rows.content_hash import NULL_HASH, Normalize
from curator_df.kernels.text.lower_case import lower_bytes, lower_steps
from curator_df.kernels.text.murmur_hash import PIECE_ROOM, hash_normalized_text, hash_text


def text_hashes(texts: DeviceTexts, *, normalize: Normalize | None = None, most_threads: int | None = None) -> Any:
    """Hash each text.

    Parameters
    ----------
    texts : DeviceTexts
        The column.
    normalize : {"case_and_spaces"}, optional
        Normalization of texts before they are hashed; see `content_hash.row_hashes`.
    most_threads : int, optional
        Maximum number of threads of a launch.

    Returns
    -------
    device array of uint64, shape (rows, 2)
        Hashes; `content_hash.NULL_HASH` for null.
    """
    hashes = allocate((len(texts), 2), np.uint64)
    if not len(texts):
        return hashes
    blocks, threads = one_by_one(len(texts), *(() if most_threads is None else (most_threads,)))
    if normalize is None:
        hash_texts_kernel[blocks, threads](texts.data, texts.offsets, texts.valid, hashes)
        return hashes
    table = lower_steps()
    tables = [to_device(values) for values in (lower_bytes(), table.page_of, table.pages)]
    pieces = allocate((blocks * threads, PIECE_ROOM), np.uint8)
    hash_normalized_kernel[blocks, threads](texts.data, texts.offsets, texts.valid, *tables, pieces, hashes)
    return hashes


@cuda.jit
def hash_texts_kernel(data: Any, offsets: Any, valid: Any, hashes: Any) -> None:
    """Hash each text unchanged into its row of ``hashes``."""
    for row in range(cuda.grid(1), len(hashes), cuda.gridsize(1)):
        hashes[row, 0], hashes[row, 1] = hash_text(data, np.int64(offsets[row]), np.int64(offsets[row + 1]))
        if len(valid) > 0 and not valid[row]:
            hashes[row, 0], hashes[row, 1] = NULL_HASH, NULL_HASH


@cuda.jit
def hash_normalized_kernel(
    data: Any, offsets: Any, valid: Any, lowered: Any, page_of: Any, pages: Any, pieces: Any, hashes: Any
) -> None:
    """Hash each normalized text into its row of ``hashes``; ``pieces``: a row of `PIECE_ROOM` bytes for each thread."""
    piece = pieces[cuda.grid(1)]
    for row in range(cuda.grid(1), len(hashes), cuda.gridsize(1)):
        start, stop = np.int64(offsets[row]), np.int64(offsets[row + 1])
        hashes[row, 0], hashes[row, 1] = hash_normalized_text(data, start, stop, lowered, page_of, pages, piece)
        if len(valid) > 0 and not valid[row]:
            hashes[row, 0], hashes[row, 1] = NULL_HASH, NULL_HASH
