# SPDX-License-Identifier: Apache-2.0
"""Texts of pairs, in batches: pairs arrive in order with the positions of their texts, and are returned with the texts.

The memory in use depends on the budget and not on how often a text is needed; a pair whose two texts are larger than the budget
is a batch of its own.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from curator_df.dedup.near.text_sink import CROWD_BIT, SIDE_BIT, texts_name
from curator_df.errors import CorruptFileError
from curator_df.exchange.range_groups import RangeGroups
from curator_df.files.slice_file import damaged, read_ranges, wrong
from curator_df.files.storage import Folder

GAP_BYTES = 64_000
"""Maximum gap in bytes between texts that are read together."""
READ_BYTES = 4_000_000
"""Approximate maximum size of one read in bytes."""
_LENGTH_MASK = np.uint64((1 << 32) - 1)
_LENGTH_BITS = np.uint64(32)


@dataclass(frozen=True)
class PairBatch:
    """Some pairs and their texts."""

    addresses: npt.NDArray[np.int64]
    """Array of shape (pairs, 2), the smaller address first."""
    places: npt.NDArray[np.int64]
    """Array of shape (pairs, 2): index of their texts in ``texts``."""
    texts: Any
    """Array of type large_binary (pyarrow) with each text (or kept signature) once."""
    text_addresses: npt.NDArray[np.int64]
    """Array of shape (texts,)."""
    in_crowd: npt.NDArray[np.bool_]
    """Array of shape (pairs, 2): whether the row is in a crowd and the other row is its anchor."""


def pair_batches(folder: Folder, groups: RangeGroups, rows: Iterator[Any], *, memory_bytes: int) -> Iterator[PairBatch]:
    """Yield pairs with their texts.

    Parameters
    ----------
    folder : Folder
        Folder of the files of texts.
    groups : RangeGroups
        Groups of the ranges.
    rows : iterator of ndarray of uint64, shape (rows, 4)
        Sorted rows of `text_sink.location_rows`: two for each pair.
    memory_bytes : int
        Maximum memory for texts, unless a single pair needs more.

    Raises
    ------
    CorruptFileError
        If a text differs from the one that was written.
    """
    rest = np.empty((0, 4), dtype=np.uint64)
    for piece in rows:
        whole = np.concatenate([rest, piece])
        even = len(whole) & ~1
        rest = whole[even:].copy()
        yield from _batches(folder, groups, whole[:even].reshape(-1, 8), memory_bytes)
    if len(rest):
        raise CorruptFileError(
            f"the temporary files in {folder.url} are damaged: a pair of rows to compare has only one text. Delete the "
            "folder, and run again"
        )


def _batches(folder: Folder, groups: RangeGroups, pairs: Any, memory_bytes: int) -> Iterator[PairBatch]:
    """Split pairs in halves until their texts fit; a row of ``pairs`` is two rows of locations."""
    if not len(pairs):
        return
    if (pairs[:, 0:2] != pairs[:, 4:6]).any():
        raise CorruptFileError(
            f"the temporary files in {folder.url} do not belong together, as if two runs had written there: they hold the texts "
            "of other rows than those to compare. Delete the folder, which holds only temporary files, and run again"
        )
    ends = pairs[:, [0, 1]].view(np.int64)
    addresses, first, which = np.unique(ends, return_index=True, return_inverse=True)
    located = pairs[:, [2, 3, 6, 7]].reshape(-1, 2)[first]
    lengths = text_lengths(located[:, 1])
    if len(pairs) > 1 and int(lengths.sum()) > memory_bytes:
        middle = len(pairs) // 2
        yield from _batches(folder, groups, pairs[:middle], memory_bytes)
        yield from _batches(folder, groups, pairs[middle:], memory_bytes)
        return
    numbers = np.searchsorted(groups.starts, addresses, side="right") - 1
    starts = (located[:, 0] & ~(SIDE_BIT | CROWD_BIT)).view(np.int64)
    texts = read_texts(folder, texts_name, numbers, starts, located[:, 1])
    in_crowd = pairs[:, [2, 6]] & CROWD_BIT != 0
    yield PairBatch(ends, which.reshape(-1, 2), texts, addresses, in_crowd)


def read_texts(folder: Folder, name: Callable[[int], str], numbers: Any, starts: Any, sums_and_lengths: Any) -> Any:
    """Read texts that `text_sink.write_texts` wrote, as a large_binary array.

    Parameters
    ----------
    folder : Folder
        Folder of the files.
    name : callable
        Function that returns the name of the file with a number.
    numbers : ndarray of int64, shape (texts,)
        File number of each text; sorted numbers need the fewest reads.
    starts : ndarray of int64, shape (texts,)
        Offset of each text in its file.
    sums_and_lengths : ndarray of uint64, shape (texts,)
        CRC-32 and length of each text, in 32 bits each.

    Raises
    ------
    CorruptFileError
        If a text differs from the one that was written.
    """
    lengths = text_lengths(sums_and_lengths)
    sums = sums_and_lengths >> _LENGTH_BITS
    offsets = np.zeros(len(lengths) + 1, dtype=np.int64)
    np.cumsum(lengths, out=offsets[1:])
    data = np.empty(int(offsets[-1]), dtype=np.uint8)
    for number, start, stop, wanted in _reads(numbers, starts, lengths):
        [raw] = read_ranges(folder, [(name(number), start, stop)])
        view = memoryview(raw)
        for place in wanted:
            at = int(starts[place]) - start
            text = view[at : at + int(lengths[place])]
            if zlib.crc32(text) != int(sums[place]):
                raise damaged(folder.path(name(number)), wrong("text", int(starts[place])))
            data[offsets[place] : offsets[place + 1]] = np.frombuffer(text, dtype=np.uint8)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.large_binary(), len(lengths), buffers)


def text_lengths(sums_and_lengths: Any) -> npt.NDArray[np.int64]:
    """Return the number of bytes of each text."""
    lengths: npt.NDArray[np.int64] = (sums_and_lengths & _LENGTH_MASK).view(np.int64)
    return lengths


def _reads(numbers: Any, starts: Any, lengths: Any) -> Iterator[tuple[int, int, int, list[int]]]:
    """Yield file, first byte, last byte and the texts of each read. The texts of a file are sorted by address."""
    wanted: list[int] = []
    begin = end = 0
    for place, (number, start, length) in enumerate(
        zip(numbers.tolist(), starts.tolist(), lengths.tolist(), strict=True)
    ):
        apart = wanted and (
            number != int(numbers[wanted[-1]]) or start - end > GAP_BYTES or start + length - begin > READ_BYTES
        )
        if apart:
            yield int(numbers[wanted[-1]]), begin, end, wanted
            wanted = []
        if not wanted:
            begin = start
        wanted.append(place)
        end = start + length
    if wanted:
        yield int(numbers[wanted[-1]]), begin, end, wanted
