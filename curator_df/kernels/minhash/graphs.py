# SPDX-License-Identifier: Apache-2.0
# numba has no types.
# mypy: disable-error-code="untyped-decorator,no-any-return"
"""Groups of a graph whose edges are streamed: connected components, and a greedy cover of its vertices.

A component is named by its smallest vertex; only vertices that have an edge take memory. The result does not depend on the order
of the edges or on the batches. The cover decides in a given order of the vertices: a vertex is dropped if a kept one before it
is its neighbor. The kept vertices are the lexicographically first maximal independent set: no two of them are neighbors, and
each dropped one has a kept neighbor.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from curator_df.errors import ParameterError
from curator_df.kernels.compiling.compiled import helper, kernel, types

_IDS = types.Array(types.int64, 1, "C", readonly=True)


@helper
def _root(parents: Any, place: int) -> int:
    while parents[place] != place:
        # Path halving: every other element on the path is attached to its grandparent.
        parents[place] = parents[parents[place]]
        place = parents[place]
    return place


@helper
def _place_of(ids: Any, number: int) -> int:
    low, high = 0, len(ids)
    while low < high:
        middle = (low + high) >> 1
        if ids[middle] < number:
            low = middle + 1
        else:
            high = middle
    return low if low < len(ids) and ids[low] == number else -1


@kernel(types.int64(_IDS, types.Array(types.int64, 2, "C", readonly=True), types.int64[::1]))
def join_edges(ids: Any, edges: Any, parents: Any) -> int:
    """Join the sets of both ends of each edge; return the number of joins.

    ``ids`` are in ascending order; ``parents`` holds positions in them. If an end is not in ``ids``, the result is
    ``-1 - row``.
    """
    joined = 0
    for row in range(len(edges)):
        first, second = _place_of(ids, edges[row, 0]), _place_of(ids, edges[row, 1])
        if first < 0 or second < 0:
            return -1 - row
        first, second = _root(parents, first), _root(parents, second)
        if first != second:
            # The larger root is attached to the smaller one.
            parents[max(first, second)] = min(first, second)
            joined += 1
    return joined


@kernel(types.void(_IDS, types.int64[::1]))
def name_roots(ids: Any, parents: Any) -> None:
    """Replace each parent with the ID of the root. A parent precedes its child, so one pass is enough."""
    for place in range(len(parents)):
        parent = parents[place]
        parents[place] = ids[place] if parent == place else parents[parent]


Edges = npt.NDArray[np.int64]
"""Edges, shape (edges, 2): pairs of vertices, any int64."""

VERTEX_BYTES = 16
"""Bytes that `component_names` needs for each vertex: its ID and its parent."""
_LEAST_PENDING = 1 << 16


def vertices(batches: Iterable[Edges]) -> npt.NDArray[np.int64]:
    """Return the distinct vertices of streamed edges.

    Parameters
    ----------
    batches : iterable of ndarray of int64, shape (edges, 2)
        Edges.

    Returns
    -------
    ndarray of int64, shape (vertices,)
        Vertices in ascending order.

    Notes
    -----
    Memory: at most six times the result and two batches.

    Examples
    --------
    >>> vertices([np.array([[7, 3]]), np.array([[3, 9]])]).tolist()
    [3, 7, 9]
    """
    known = np.empty(0, dtype=np.int64)
    pending: list[npt.NDArray[np.int64]] = []
    waiting = 0
    for edges in batches:
        ends = distinct([np.asarray(edges, dtype=np.int64).ravel()])
        pending.append(ends)
        waiting += len(ends)
        # Merge when there are as many new ones as known ones, so that each is sorted a logarithmic number of times.
        if waiting > max(len(known), _LEAST_PENDING):
            known = distinct([known, *pending])
            pending, waiting = [], 0
    return distinct([known, *pending])


def distinct(parts: list[npt.NDArray[np.int64]]) -> npt.NDArray[np.int64]:
    """Return the distinct numbers of several arrays, in ascending order."""
    # np.unique puts int64 into a hash table first: 62 seconds for ten million edges, where this takes 3.
    ids = np.concatenate(parts)
    ids.sort()
    is_first = np.ones(len(ids), dtype=np.bool_)
    np.not_equal(ids[1:], ids[:-1], out=is_first[1:])
    return ids[is_first]


def component_names(ids: npt.NDArray[np.int64], batches: Iterable[Edges]) -> npt.NDArray[np.int64]:
    """Return the smallest vertex of each vertex's component.

    Parameters
    ----------
    ids : ndarray of int64, shape (vertices,)
        All vertices, ascending (`vertices`).
    batches : iterable of ndarray of int64, shape (edges, 2)
        Edges; loops and repeated edges change nothing.

    Returns
    -------
    ndarray of int64, shape (vertices,)
        Name of the component of each vertex in ``ids``.

    Raises
    ------
    ParameterError
        If ``ids`` do not ascend, or an edge has a vertex that is not among them.

    Notes
    -----
    Memory: 8 bytes a vertex in addition to ``ids``. Time: about 1 microsecond an edge among ten million vertices.

    Examples
    --------
    >>> component_names(np.array([2, 4, 6, 9]), [np.array([[6, 4]]), np.array([[9, 6]])]).tolist()
    [2, 4, 4, 4]
    """
    ids = np.ascontiguousarray(ids, dtype=np.int64)
    if (ids[1:] <= ids[:-1]).any():
        raise ParameterError("component_names: ids must be in ascending order. Make them with vertices()")
    parents: Any = np.arange(len(ids), dtype=np.int64)
    for edges in batches:
        rows = np.ascontiguousarray(edges, dtype=np.int64).reshape(-1, 2)
        joined = join_edges(ids, rows, parents)
        if joined < 0:
            raise ParameterError(
                f"component_names: the edge {rows[-1 - joined].tolist()} has a vertex that ids lacks. Make ids with vertices()"
            )
    name_roots(ids, parents)
    return parents


@kernel(types.int64(_IDS, _IDS, types.uint8[::1], types.uint8[::1]))
def drop_neighbors(vertices: Any, others: Any, dropped: Any, decides: Any) -> int:
    """Drop vertices that have a kept neighbor before them; return how many edges lead from a dropped vertex to such a neighbor.

    Both ends of an edge are positions in the order; ``vertices`` ascend over all calls. ``dropped`` says of each position
    whether it is dropped, ``decides`` of each edge whether it leads to a kept neighbor before the vertex.
    """
    found = 0
    for edge in range(len(vertices)):
        vertex, other = vertices[edge], others[edge]
        decides[edge] = 0
        if other < vertex and dropped[other] == 0:
            dropped[vertex] = 1
            decides[edge] = 1
            found += 1
    return found
