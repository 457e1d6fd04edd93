# SPDX-License-Identifier: Apache-2.0
"""Operations on vectors of equal length: nearest centroids, most similar earlier vectors, and connected rows.

Products are computed in float64 and compared as float32, so that neither the order in which a tile adds numbers nor the size of
the tiles changes a result.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
TILE = 1024
"""Maximum number of vectors on each side of a matrix of products."""
_MIX = (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB)
_MASK = (1 << 64) - 1


def vector_words(width: int, itemsize: int) -> int:
    """Return the number of 64-bit words of a vector.

    Examples
    --------
    >>> vector_words(384, 2), vector_words(3, 4)
    (96, 2)
    """
    return -(-width * itemsize // 8)


def to_words(vectors: npt.NDArray[Any]) -> npt.NDArray[np.uint64]:
    """Return vectors as rows of words, padded with zeros to whole words."""
    words = np.zeros((len(vectors), vector_words(vectors.shape[1], vectors.itemsize)), dtype=np.uint64)
    words.view(vectors.dtype)[:, : vectors.shape[1]] = vectors
    return words


def from_words(words: npt.NDArray[np.uint64], width: int, dtype: str) -> npt.NDArray[Any]:
    """Return the vectors that are stored in rows of words.

    Examples
    --------
    >>> from_words(to_words(np.array([[1, 2, 3]], dtype=np.float16)), 3, "float16").tolist()
    [[1.0, 2.0, 3.0]]
    """
    return np.ascontiguousarray(words).view(dtype)[:, :width]


def unit_rows(vectors: npt.NDArray[Any]) -> Floats:
    """Scale vectors to length 1, as float64; none of them may be zero."""
    rows = vectors.astype(np.float64)
    rows /= np.sqrt((rows * rows).sum(axis=1))[:, None]
    return rows


def hash_words(words: npt.NDArray[np.uint64], seed: int) -> npt.NDArray[np.uint64]:
    """Return a 64-bit hash of each row of words, the same on every machine.

    Examples
    --------
    >>> one, two = hash_words(np.array([[1, 2], [2, 1]], dtype=np.uint64), 42).tolist()
    >>> one != two
    True
    """
    weights = np.array([_mixed(seed * words.shape[1] + place) | 1 for place in range(words.shape[1])], dtype=np.uint64)
    with np.errstate(over="ignore"):
        # High halves must count as much as low ones, but carries of a product only go upwards.
        low = (words * weights).sum(axis=1, dtype=np.uint64)
        high = ((words >> np.uint64(32)) * weights[::-1]).sum(axis=1, dtype=np.uint64)
        hashes = low ^ (high << np.uint64(1)) ^ (low >> np.uint64(31))
        hashes *= np.uint64(_MIX[1])
        hashes ^= hashes >> np.uint64(27)
        hashes *= np.uint64(_MIX[2])
        result: npt.NDArray[np.uint64] = hashes ^ (hashes >> np.uint64(31))
    return result


def _mixed(number: int) -> int:
    mixed = (number + 1) * _MIX[0] & _MASK
    mixed = (mixed ^ (mixed >> 30)) * _MIX[1] & _MASK
    mixed = (mixed ^ (mixed >> 27)) * _MIX[2] & _MASK
    return mixed ^ (mixed >> 31)


def nearest_centroids(units: Floats, centroids: Floats) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float32]]:
    """Return the nearest centroid of each vector (the first of equally near ones), and the cosine distance to it.

    Parameters
    ----------
    units : ndarray of float64, shape (rows, width)
        Vectors of length 1.
    centroids : ndarray of float64, shape (clusters, width)
        Centroids of any length.

    Examples
    --------
    >>> nearest_centroids(np.array([[1.0, 0.0], [0.0, 1.0]]), np.array([[0.5, 0.0], [0.0, 2.0]]))[0].tolist()
    [0, 1]
    """
    best = np.full(len(units), -np.inf, dtype=np.float32)
    chosen = np.zeros(len(units), dtype=np.int64)
    squares = (centroids * centroids).sum(axis=1)
    for start in range(0, len(centroids), TILE):
        part = slice(start, start + TILE)
        # The squared distance is |u|^2 - 2 (u c - |c|^2 / 2).
        scores = (units @ centroids[part].T - squares[part] / 2).astype(np.float32)
        places = scores.argmax(axis=1)
        found = scores[np.arange(len(units)), places]
        better = found > best
        best[better], chosen[better] = found[better], places[better] + start
    lengths = np.maximum(np.sqrt(squares[chosen]), 1e-300)
    cosines = (units * centroids[chosen]).sum(axis=1) / lengths
    return chosen, np.maximum(1 - cosines, 0).astype(np.float32)


def tile_rows(width: int, memory_bytes: int) -> int:
    """Return the number of vectors of a tile, so that two tiles and their products fit into memory; at least 16.

    Examples
    --------
    >>> tile_rows(384, 8_000_000), tile_rows(384, 100_000_000), tile_rows(100_000, 1_000)
    (492, 1024, 16)
    """
    rows = TILE
    while rows > 16 and rows * (3 * 8 * width + 14 * rows) > memory_bytes:
        rows -= 4
    return rows


def most_similar_earlier(
    read: Callable[[int, int], Floats], rows: int, tile: int
) -> Iterator[tuple[npt.NDArray[np.float32], npt.NDArray[np.int64]]]:
    """Yield for each vector the largest cosine with an earlier one, and the index of that (of several the first).

    Parameters
    ----------
    read : callable
        Function ``read(start, stop)`` that returns vectors of length 1 as float64; ``stop`` may be beyond the last vector.
    rows : int
        Number of vectors.
    tile : int
        Number of vectors that are compared with as many others in one step.

    Yields
    ------
    cosines : ndarray of float32, shape (up to ``tile``,)
        Cosines of the next vectors; -inf for the very first.
    places : ndarray of int64, shape (up to ``tile``,)
        Indices of the earlier vectors; -1 for the very first.
    """
    for start in range(0, rows, tile):
        later = read(start, min(start + tile, rows))
        best = _Best(len(later))
        for first in range(0, start + 1, tile):
            earlier = later if first == start else read(first, first + tile)
            cosines = (earlier @ later.T).astype(np.float32)
            if first == start:
                cosines[np.tril_indices(len(later))] = -np.inf
            best.take(cosines, np.arange(first, first + len(cosines)))
        yield best.cosines, best.places


def most_similar_kept(
    read: Callable[[int, int], Floats],
    is_kept: Callable[[int, int], npt.NDArray[np.bool_]],
    rows: int,
    tile: int,
    thresholds: npt.NDArray[np.float32],
) -> Iterator[list[tuple[npt.NDArray[np.float32], npt.NDArray[np.int64]]]]:
    """Yield for each threshold which vectors are kept, and for each other vector the most similar kept one before it.

    A vector is kept unless its cosine with a kept vector before it is at least the threshold. The kept vectors are thus the
    lexicographically first maximal set in which no two are similar.

    Parameters
    ----------
    read : callable
        Function ``read(start, stop)`` that returns vectors of length 1 as float64; ``stop`` may be beyond the last vector.
    is_kept : callable
        Function ``is_kept(start, stop)`` that says for each threshold which vectors are kept, of those that were yielded:
        shape (thresholds, vectors).
    rows : int
        Number of vectors.
    tile : int
        Number of vectors that are compared with as many others in one step.
    thresholds : ndarray of float32, shape (thresholds,)
        Minimum cosines of similar vectors.

    Yields
    ------
    list of (cosines, places)
        For each threshold, of the next vectors: the largest cosine with a kept vector before them, float32, and the index of
        that vector (of several the first), int64. The index of a kept vector is -1, and its cosine has no meaning.
    """
    for start in range(0, rows, tile):
        own = read(start, min(start + tile, rows))
        bests = [_Best(len(own)) for _ in thresholds]
        for first in range(0, start, tile):
            kept = is_kept(first, first + tile)
            places = np.flatnonzero(kept.any(axis=0))
            if not len(places):
                continue
            cosines = (read(first, first + tile)[places] @ own.T).astype(np.float32)
            for best, chosen in zip(bests, kept[:, places], strict=True):
                best.take(cosines if chosen.all() else cosines[chosen], first + places[chosen])
        cosines = (own @ own.T).astype(np.float32)
        for best, threshold in zip(bests, thresholds, strict=True):
            best.cover(cosines, start, threshold)
        yield [(best.cosines, best.places) for best in bests]


def most_similar_other(
    read: Callable[[int, int], Floats], rows: int, tile: int
) -> Iterator[tuple[npt.NDArray[np.float32], npt.NDArray[np.int64]]]:
    """Yield for each vector the largest cosine with any other one, and the index of that (of several the first).

    Parameters and results are those of `most_similar_earlier`; there are twice as many products.
    """
    for start in range(0, rows, tile):
        own = read(start, min(start + tile, rows))
        best = _Best(len(own))
        for first in range(0, rows, tile):
            others = own if first == start else read(first, min(first + tile, rows))
            cosines = (others @ own.T).astype(np.float32)
            if first == start:
                np.fill_diagonal(cosines, -np.inf)
            best.take(cosines, np.arange(first, first + len(cosines)))
        yield best.cosines, best.places


class _Best:
    """Largest cosine of each of some vectors so far, and the index of the vector that it is with; -inf and -1 for none."""

    def __init__(self, count: int) -> None:
        self.cosines = np.full(count, -np.inf, dtype=np.float32)
        self.places = np.full(count, -1, dtype=np.int64)

    def take(self, cosines: npt.NDArray[np.float32], places: npt.NDArray[np.int64]) -> None:
        """Compare with the vectors at some indices: a row of ``cosines`` for each of these."""
        if not len(places):
            return
        found, at = cosines.max(axis=0), cosines.argmax(axis=0)
        better = found > self.cosines
        self.cosines[better], self.places[better] = found[better], places[at[better]]

    def cover(self, cosines: npt.NDArray[np.float32], start: int, threshold: np.float32) -> None:
        """Decide which of these vectors are kept, one after another: ``start`` is the index of the first of them.

        ``cosines`` are those of each with each. Only pairs that are similar can change anything, so only these are visited.
        """
        similar = np.triu(cosines >= threshold, 1)
        for row in np.flatnonzero(similar.any(axis=1)):
            if self.cosines[row] < threshold:
                later = np.flatnonzero(similar[row])
                later = later[cosines[row, later] > self.cosines[later]]
                self.cosines[later], self.places[later] = cosines[row, later], start + row
        self.places[self.cosines < threshold] = -1


def roots_of(parents: npt.NDArray[np.int64], first: int = 0) -> npt.NDArray[np.int64]:
    """Return the root of each row, found by following its parents; a row without a parent is its own root.

    Parameters
    ----------
    parents : ndarray of int64, shape (rows,)
        Parents of consecutive rows: each is the row itself or an earlier one.
    first : int
        Number of the first of these rows. Rows before it are not followed further.

    Examples
    --------
    >>> roots_of(np.array([0, 0, 1, 3])).tolist(), roots_of(np.array([9, 10, 4]), first=10).tolist()
    ([0, 0, 0, 3], [9, 9, 4])
    """
    roots = parents.copy()
    while True:
        here = np.flatnonzero(roots >= first)
        further = roots[roots[here] - first]
        if np.array_equal(further, roots[here]):
            return roots
        roots[here] = further
