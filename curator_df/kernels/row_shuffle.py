# SPDX-License-Identifier: Apache-2.0
"""Where each row comes in a random order, and how often it is taken, by a hash of its address: the same whatever the blocks."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
import numpy.typing as npt

from curator_df.kernels.row_sample import mixed


def order_keys(addresses: npt.NDArray[np.int64], seed: int, stream: str, copy: int = 0) -> npt.NDArray[np.uint64]:
    """Return numbers whose ascending order is the random order of the rows.

    Parameters
    ----------
    addresses : ndarray of int64, shape (rows,)
        What identifies the rows.
    seed : int
        Orders of two seeds are independent.
    stream : str
        Tells apart tables whose addresses are the same numbers.
    copy : int
        Of a row that is taken several times: which of them, from 0.

    Returns
    -------
    ndarray of uint64, shape (rows,)
        No two rows of one stream and copy have the same.

    Notes
    -----
    SplitMix64 twice, as `row_sample.sampled` does once, with another number between: so the rows of a sample with the same seed
    lie everywhere in the order.

    Examples
    --------
    >>> np.argsort(order_keys(np.arange(6), 0, "")).tolist()
    [0, 4, 1, 3, 5, 2]
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
        What identifies the rows.
    epochs : float or ndarray of float64, shape (rows,)
        0 or more. With more, every row is taken at least as often as with less.
    seed : int
        Choices of two seeds are independent.
    stream : str
        Tells apart tables whose addresses are the same numbers.

    Returns
    -------
    ndarray of int64, shape (rows,)

    Examples
    --------
    >>> counts = times_taken(np.arange(10_000), 2.25, 0, "")
    >>> counts.min(), counts.max(), round(counts.mean(), 1)
    (np.int64(2), np.int64(3), np.float64(2.2))
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
