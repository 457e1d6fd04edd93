# SPDX-License-Identifier: Apache-2.0
# numba has no types.
# mypy: disable-error-code="untyped-decorator,no-any-return"
"""Arrays of a fastText model as the compiled code reads them: dictionary, kept buckets, matrices and tree of labels.

`fasttext_file` in ``ops/language`` reads them from a file.

References
----------
fastText 0.9.2, ``src/dictionary.cc``, ``src/loss.cc`` and ``src/productquantizer.cc``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from curator_df.kernels.compiling.compiled import helper, inlined, kernel, types

HIERARCHICAL, NEGATIVE, SOFTMAX, ONE_VS_ALL = 1, 2, 3, 4
"""Losses, by the number that fastText gives them in a file."""
CENTROIDS = 256
ENTRY_BYTES = 10
"""Bytes of an entry of the dictionary after its text: a zero byte, the count, and the kind."""
SIGMOID_SIZE, SIGMOID_LIMIT = 512, 8
"""Entries of fastText's table of the logistic function, and the largest argument in it."""
END = b"</s>"
"""FastText's word for the end of a line."""
_BASIS, _PRIME, _LOW = 2166136261, 16777619, 0xFFFFFFFF
"""Constants of FNV-1a, 32 bits."""


def _fixed(item: Any, dimensions: int) -> Any:
    return types.Array(item, dimensions, "C", readonly=True)


NUMBERS = types.UniTuple(types.int64, 10)
"""Type of `FastTextTables.numbers`."""
DICTIONARY = types.Tuple(
    (_fixed(types.uint8, 1), _fixed(types.int64, 1), _fixed(types.uint32, 1), _fixed(types.int32, 1))
)
INPUTS = types.Tuple(
    (
        *(_fixed(types.float32, 2), _fixed(types.uint8, 2), _fixed(types.float32, 3)),
        *(_fixed(types.uint8, 1), _fixed(types.float32, 1)),
    )
)
KEPT = _fixed(types.uint64, 1)
OUTPUTS = types.Tuple((_fixed(types.float32, 2), _fixed(types.int32, 2), _fixed(types.float32, 1)))


@dataclass(frozen=True)
class FastTextTables:
    """Model as arrays, all of them read-only."""

    labels: tuple[str, ...]
    """Labels, without their prefix."""
    numbers: tuple[int, ...]
    """Shortest and longest subword in characters, buckets, longest n-gram of words, number of words, loss, number of the word
    for the end of a line or -1, 1 if only some buckets are kept and 0 if all are, 1 if no bucket is used, and the width of a
    vector."""
    dictionary: tuple[npt.NDArray[Any], ...]
    """Entries as in the file, start of each, hash of each, and entry by hash."""
    inputs: tuple[npt.NDArray[Any], ...]
    """Rows (float32); or, if that is empty, codes of rows, centroids, code of each row's norm, and norms."""
    kept: npt.NDArray[np.uint64]
    """Kept buckets, of which the rows follow those of the words in order: for each 64 buckets, a bit for each that is kept, and
    the number of kept ones before."""
    outputs: tuple[npt.NDArray[Any], ...]
    """Vector of each label (or inner node of the tree), children of inner nodes, and the table of the logistic function."""


@inlined
def hash_step(mixed: int, byte: int) -> int:
    """Mix in a byte, which fastText extends with its sign. Only the lower 32 bits of the result count, see `hash_end`."""
    return (mixed ^ types.int64(types.int8(byte))) * _PRIME


@inlined
def hash_end(mixed: int) -> int:
    """Return the hash of all bytes that were mixed in."""
    return mixed & _LOW


@inlined
def hash_basis() -> int:
    """Return the hash of an empty text."""
    return types.int64(_BASIS)


@helper
def entry_of(data: Any, start: int, stop: int, mixed: int, dictionary: Any) -> int:
    """Return the number of the entry ``data[start:stop]`` with this hash, or -1."""
    entries, starts, hashes, slots = dictionary
    mask = len(slots) - 1
    slot = mixed & mask
    while slots[slot] >= 0:
        number = slots[slot]
        first = starts[number]
        if hashes[number] == mixed and starts[number + 1] - ENTRY_BYTES - first == stop - start:
            at = start
            while at < stop and data[at] == entries[first + at - start]:
                at += 1
            if at == stop:
                return types.int64(number)
        slot = (slot + 1) & mask
    return types.int64(-1)


@helper
def _put_entry(entries: Any, number: int, starts: Any, hashes: Any, slots: Any) -> None:
    """Put an entry into the slot of its hash, or of an earlier equal one."""
    mask, first = len(slots) - 1, starts[number]
    length = starts[number + 1] - first
    slot = types.int64(hashes[number]) & mask
    while slots[slot] >= 0:
        other = slots[slot]
        if hashes[other] == hashes[number] and starts[other + 1] - starts[other] == length:
            step, stop = 0, length - ENTRY_BYTES
            while step < stop and entries[first + step] == entries[starts[other] + step]:
                step += 1
            if step == stop:
                break
        slot = (slot + 1) & mask
    slots[slot] = number


@kernel(types.void(_fixed(types.uint8, 1), types.int64[::1], types.uint32[::1], types.int32[::1]), allocates=False)
def index_entries(entries: Any, starts: Any, hashes: Any, slots: Any) -> None:
    """Find the start (and the end of the last) and the hash of each entry, and fill the empty slots of a hash table."""
    at = 0
    for number in range(len(hashes)):
        starts[number] = at
        mixed = hash_basis()
        while entries[at] != 0:
            mixed = hash_step(mixed, entries[at])
            at += 1
        at += ENTRY_BYTES
        starts[number + 1] = at
        hashes[number] = hash_end(mixed)
        _put_entry(entries, number, starts, hashes, slots)


def slots_for(entries: int) -> int:
    """Return the number of slots of a hash table, at most half of which are filled."""
    return max(4, 1 << max(2 * entries - 1, 0).bit_length())


def indexed_dictionary(entries: npt.NDArray[np.uint8], count: int) -> tuple[npt.NDArray[Any], ...]:
    """Return the arrays of a dictionary, from its entries in the layout of a file."""
    starts, hashes = np.zeros(count + 1, dtype=np.int64), np.zeros(count, dtype=np.uint32)
    slots = np.full(slots_for(count), -1, dtype=np.int32)
    index_entries(fixed(entries), starts, hashes, slots)
    return fixed(entries), fixed(starts), fixed(hashes), fixed(slots)


def indexed_buckets(kept: npt.NDArray[Any], buckets: int) -> npt.NDArray[np.uint64]:
    """Return bits and counts of the kept buckets, which are sorted; ``buckets`` is the number of all.

    Examples
    --------
    >>> indexed_buckets(np.array([1, 3, 64]), 100).tolist()
    [10, 0, 1, 2]
    """
    words = bucket_words(buckets)
    found = np.zeros((words, 2), dtype=np.uint64)
    place, bit = kept.astype(np.int64) >> 6, kept.astype(np.uint64) & np.uint64(63)
    np.bitwise_or.at(found[:, 0], place, np.uint64(1) << bit)
    found[1:, 1] = np.cumsum(np.bincount(place, minlength=words))[:-1]
    return fixed(found.reshape(-1))


def bucket_words(buckets: int) -> int:
    """Return the number of 64-bit words that hold a bit for each bucket."""
    return -(-buckets // 64)


LARGEST_WEIGHT = 10**15
"""Weight of a node of fastText's tree of labels that is not built yet; the counts of all labels together are less."""


def label_tree(counts: npt.NDArray[np.int64]) -> npt.NDArray[np.int32]:
    """Return the children of the inner nodes of fastText's Huffman tree, shape (labels - 1, 2).

    Node ``labels + row`` has the children of a row; nodes below are labels. The counts fall, as in fastText's files.

    Examples
    --------
    >>> label_tree(np.array([9, 3, 2])).tolist()
    [[2, 1], [3, 0]]
    """
    labels = len(counts)
    weights = [*counts.tolist(), *[LARGEST_WEIGHT] * (labels - 1)]
    leaf, node, children = labels - 1, labels, []
    for inner in range(labels, 2 * labels - 1):
        pair = []
        for _ in range(2):
            if leaf >= 0 and weights[leaf] < weights[node]:
                pair.append(leaf)
                leaf -= 1
            else:
                pair.append(node)
                node += 1
        children.append(pair)
        weights[inner] = weights[pair[0]] + weights[pair[1]]
    return np.array(children, dtype=np.int32).reshape(-1, 2)


def sigmoid_table() -> npt.NDArray[np.float32]:
    """Return fastText's table of the logistic function, with which it scores one label against all others."""
    arguments = (np.arange(SIGMOID_SIZE + 1, dtype=np.float32) * np.float32(2 * SIGMOID_LIMIT)) / np.float32(
        SIGMOID_SIZE
    )
    return (1.0 / (1.0 + np.exp(-(arguments - np.float32(SIGMOID_LIMIT)).astype(np.float64)))).astype(np.float32)


def fixed(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return a read-only view of an array, as compiled code needs it."""
    view = array.view()
    view.flags.writeable = False
    return view
