# SPDX-License-Identifier: Apache-2.0
"""Cut files into input splits, by sizes alone: large files are split, small ones grouped. All of it is a few numpy calls."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from curator_df.core.ranges.source import Ranges
from curator_df.errors import ParameterError

COMPRESSION_RATIO = 4
"""Assumed decompressed bytes for each byte of a compressed file, which is never read to find out: gzip and zstd make prose
about 2.9 times smaller, and web text with its markup up to 4."""
SMALLEST_FILE_BYTES = 4096
"""Minimum bytes that a file counts when small ones are grouped: opening one costs as much as reading that."""

Sizes = npt.NDArray[np.int64]


def cut_bytes(sizes: Sizes, compressed: npt.NDArray[np.bool_], piece_bytes: int) -> Ranges:
    """Cut files into input splits of about ``piece_bytes`` decompressed bytes.

    Parameters
    ----------
    sizes : ndarray of int64
        Size of each file on disk.
    compressed : ndarray of bool
        Whether files cannot be split; each such file counts `COMPRESSION_RATIO` times its size.
    piece_bytes : int
        Bytes of an input split. A larger plain file is split evenly; smaller files share an input split.

    Examples
    --------
    >>> cut_bytes(np.array([10_000, 9_000, 50_000]), np.zeros(3, bool), 20_000).table
    array([[    0,     0,     1,  9000],
           [    2,     0,     2, 16667],
           [    2, 16667,     2, 33334],
           [    2, 33334,     2, 50000]])
    """
    check_piece(piece_bytes)
    pieces = np.where(compressed, 1, -(-sizes // piece_bytes))
    costs = np.maximum(np.where(compressed, sizes * COMPRESSION_RATIO, sizes), SMALLEST_FILE_BYTES)
    return cut_units(sizes, np.maximum(pieces, 1), costs, piece_bytes)


def check_piece(piece_bytes: int) -> None:
    """Raise for input splits without bytes."""
    if piece_bytes < 1:
        raise ParameterError(f"input splits of {piece_bytes} bytes are not possible. Use at least 1 byte")


def cut_units(lengths: Sizes, pieces: Sizes, costs: Sizes, piece_bytes: int) -> Ranges:
    """Cut consecutive units (files) into input splits, given the number of pieces and the cost of each.

    Parameters
    ----------
    lengths : ndarray of int64
        Length of each unit, in the measure of an input split's ``start`` and ``stop``.
    pieces : ndarray of int64
        Number of input splits of each unit; 1 for a unit that may share one.
    costs : ndarray of int64
        Bytes that a unit counts when units are grouped.
    piece_bytes : int
        Bytes of an input split.
    """
    if not len(lengths):
        return Ranges(np.empty((0, 4), np.int64))
    shares = (pieces == 1) & (costs < piece_bytes)
    # Costs are summed from the last unit with its own input split, and a new group begins at each multiple of a piece.
    before = np.concatenate(([0], np.cumsum(np.where(shares, costs, 0))[:-1]))
    groups = before // piece_bytes
    begins = np.ones(len(lengths), np.bool_)
    begins[1:] = ~shares[1:] | ~shares[:-1] | (groups[1:] != groups[:-1])
    firsts = np.flatnonzero(begins)
    lasts = np.append(firsts[1:], len(lengths)) - 1
    counts = pieces[firsts]
    first = np.repeat(firsts, counts)
    last = np.repeat(lasts, counts)
    number = np.arange(len(first)) - np.repeat(np.cumsum(counts) - counts, counts)
    step = -(-lengths[first] // np.maximum(pieces[first], 1))
    start = np.where(pieces[first] > 1, np.minimum(number * step, lengths[first]), 0)
    stop = np.where(pieces[first] > 1, np.minimum((number + 1) * step, lengths[first]), lengths[last])
    return Ranges(np.stack([first, start, last, stop], axis=1).astype(np.int64))


def cut_files(lengths: Sizes, files_per_range: int) -> Ranges:
    """Put ``files_per_range`` whole files into each input split.

    Examples
    --------
    >>> cut_files(np.array([5, 6, 7]), 2).table
    array([[0, 0, 1, 6],
           [2, 0, 2, 7]])
    """
    firsts = np.arange(0, len(lengths), files_per_range)
    lasts = np.minimum(firsts + files_per_range, len(lengths)) - 1
    return Ranges(np.stack([firsts, np.zeros_like(firsts), lasts, lengths[lasts]], axis=1).astype(np.int64))
