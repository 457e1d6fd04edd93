# SPDX-License-Identifier: Apache-2.0
"""Random order of rows, and the number of copies of each, by a hash of its row ID: independent of the blocks."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
import numpy.typing as npt

from curator_df.kernels.rows.row_sample import mixed


def order_keys(addresses: npt.NDArray[np.int64], seed: int, stream: str, copy: int = 0) -> npt.NDArray[np.uint64]:
    """Return numbers whose ascending order is the random order of the rows.

    Parameters
    ----------
    addresses : ndarray of int64, shape (rows,)
        Row IDs.
    seed : int
        Seed of the order. Orders of two seeds are independent.
    stream : str
        Name that distinguishes tables with equal row IDs.
    copy : int
        Number of the copy, from 0, of a row that is taken several times.

    Returns
    -------
    ndarray of uint64, shape (rows,)
        Keys, distinct for all rows of one stream and copy.

    Notes
    -----
    SplitMix64 twice (`row_sample.sampled` uses it once), with another number between: so the rows of a sample with the same seed
    are spread over the whole order.

    Examples
    --------
    >>> np.argsort(order_keys(np.arange(6), 0, "")).tolist()
    [0, 5, 2, 4, 3, 1]
    """
    keys: npt.NDArray[np.uint64] = _seeded(addresses, seed)
    keys ^= _number(f"order {copy} {stream}")
    mixed(keys)
    return keys


def times_taken(
    addresses: npt.NDArray[np.int64], epochs: npt.NDArray[np.float64] | float, seed: int, stream: str
) -> npt.NDArray[np.int64]:
    """Return how often each row is taken: ``epochs`` on average, rounded down or up by chance.

    Parameters
    ----------
    addresses : ndarray of int64, shape (rows,)
        Row IDs.
    epochs : float or ndarray of float64, shape (rows,)
        Average number of copies, 0 or more. A larger value never takes a row less often.
    seed : int
        Seed of the choice. Choices of two seeds are independent.
    stream : str
        Name that distinguishes tables with equal row IDs.

    Returns
    -------
    ndarray of int64, shape (rows,)

    Examples
    --------
    >>> counts = times_taken(np.arange(10_000), 2.25, 0, "")
    >>> int(counts.min()), int(counts.max()), round(float(counts.mean()), 2)
    (2, 3, 2.25)
    """
    keys = _seeded(addresses, seed)
    keys ^= _number(f"times taken {stream}")
    chances = (mixed(keys) >> np.uint64(11)).astype(np.float64) * 2.0**-53
    whole = np.floor(epochs)
    taken: npt.NDArray[np.int64] = (whole + (chances < epochs - whole)).astype(np.int64)
    return taken


def _seeded(addresses: npt.NDArray[np.int64], seed: int) -> Any:
    (start,) = mixed(np.array([seed], dtype=np.int64).view(np.uint64))
    keys: Any = addresses.astype(np.int64).view(np.uint64) ^ start
    return mixed(keys)


def _number(name: str) -> np.uint64:
    return np.uint64(int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), "little"))
