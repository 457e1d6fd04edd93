# SPDX-License-Identifier: Apache-2.0
"""Rows of a sample, chosen by a hash of the identity of each row: independent of the blocks, and nested."""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np
import numpy.typing as npt

_GAMMA, _FIRST, _SECOND = (np.uint64(number) for number in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB))
_30, _27, _31 = np.uint64(30), np.uint64(27), np.uint64(31)


def sampled(identities: npt.NDArray[np.uint64], fraction: float, seed: int) -> npt.NDArray[np.bool_]:
    """Return which rows are in the sample.

    Parameters
    ----------
    identities : ndarray of uint64, shape (rows,)
        Numbers that identify the rows. Changed in place.
    fraction : float
        Fraction from 0 to 1. A row in the sample of one fraction is also in that of every larger one.
    seed : int
        Seed of the sample. Samples of two seeds are independent.

    Returns
    -------
    ndarray of bool, shape (rows,)

    Notes
    -----
    An identity, combined with the mixed seed by exclusive or, is mixed by SplitMix64 (Steele, Lea, Flood 2014,
    https://doi.org/10.1145/2714064.2660195), and kept if the result is below ``fraction`` of 2**64.

    Examples
    --------
    >>> int(sampled(np.arange(10_000, dtype=np.uint64), 0.25, seed=0).sum())
    2495
    """
    if fraction >= 1:
        return np.ones(len(identities), dtype=np.bool_)
    limit = np.uint64(int(fraction * (1 << 64)))
    kept: npt.NDArray[np.bool_] = _drawn(identities, seed) < limit
    return kept


def random_numbers(identities: npt.NDArray[np.uint64], seed: int, purpose: str = "") -> npt.NDArray[np.float64]:
    """Return the number from 0 to 1 that each row draws; rows below the fraction are in the sample.

    Parameters
    ----------
    identities, seed
        See `sampled`; the identities are changed in place.
    purpose
        Name of the operator: with one seed, a row draws independent numbers for two operators.

    Examples
    --------
    >>> rows = np.arange(3, dtype=np.uint64)
    >>> random_numbers(rows.copy(), 0).round(2).tolist()
    [0.65, 0.03, 0.84]
    >>> random_numbers(rows.copy(), 0, "repeat_rows").round(2).tolist()
    [0.86, 0.22, 0.94]
    """
    identities ^= np.uint64(zlib.crc32(purpose.encode()))
    numbers: npt.NDArray[np.float64] = _drawn(identities, seed) / 2.0**64
    return numbers


def _drawn(identities: npt.NDArray[np.uint64], seed: int) -> npt.NDArray[np.uint64]:
    (start,) = mixed(np.array([seed], dtype=np.int64).view(np.uint64))
    identities ^= start
    drawn: npt.NDArray[np.uint64] = mixed(identities)
    return drawn


def mixed(values: npt.NDArray[np.uint64]) -> Any:
    """Mix each value by SplitMix64, in place; a bijection of the 64-bit numbers."""
    values += _GAMMA
    values ^= values >> _30
    values *= _FIRST
    values ^= values >> _27
    values *= _SECOND
    values ^= values >> _31
    return values
