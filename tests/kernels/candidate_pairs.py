# SPDX-License-Identifier: Apache-2.0
"""Pairs to compare, from band hashes: each document of a bucket is paired with its first few, never all with all.

A bucket holds the documents with the same hash of one band. A bucket of n documents has at most
``anchors * n`` pairs, so a text that occurs a million times costs a few million comparisons, not half a trillion.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from curator_df.errors import ParameterError
from curator_df.kernels.minhash.graphs import distinct

ANCHORS = 2
"""Default number of documents of a bucket with which the others are compared."""


def candidate_pairs(hashes: npt.NDArray[np.uint64], *, anchors: int = ANCHORS) -> npt.NDArray[np.int64]:
    """Return the pairs of rows that share a bucket with one of its first rows.

    Parameters
    ----------
    hashes : ndarray of uint64, shape (rows, bands)
        Band hashes, from `minhash.band_hashes`.
    anchors : int
        Number of first rows of each bucket with which its other rows are paired.

    Returns
    -------
    ndarray of int64, shape (pairs, 2)
        Distinct pairs in ascending order, the smaller row first.

    Raises
    ------
    ParameterError
        If ``anchors`` is less than 1.

    Notes
    -----
    Memory: 16 bytes for each pair of each band, and 32 bytes a row.

    Examples
    --------
    >>> hashes = np.array([[5, 1], [5, 2], [7, 2], [5, 3]], dtype=np.uint64)
    >>> candidate_pairs(hashes, anchors=1).tolist()
    [[0, 1], [0, 3], [1, 2]]
    >>> candidate_pairs(hashes, anchors=2).tolist()
    [[0, 1], [0, 3], [1, 2], [1, 3]]
    """
    if anchors < 1:
        raise ParameterError(f"candidate_pairs: anchors={anchors} must be at least 1")
    rows = len(hashes)
    found = [np.empty(0, dtype=np.int64)]
    for band in range(hashes.shape[1]):
        order = np.argsort(hashes[:, band], kind="stable")
        values = hashes[order, band]
        begins = np.ones(rows, dtype=np.bool_)
        begins[1:] = values[1:] != values[:-1]
        places = np.arange(rows)
        starts = np.maximum.accumulate(np.where(begins, places, 0))
        for anchor in range(anchors):
            later = places - starts > anchor
            found.append(distinct([order[starts[later] + anchor] * rows + order[later]]))
    packed = distinct(found)
    return np.stack([packed // max(rows, 1), packed % max(rows, 1)], axis=1)
