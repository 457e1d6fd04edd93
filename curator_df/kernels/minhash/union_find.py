# SPDX-License-Identifier: Apache-2.0
# numba has no types.
# mypy: disable-error-code="untyped-decorator,no-any-return"
"""Compiled union-find over flat arrays. The root of a set is its smallest member, so order changes nothing.

Importing this module imports numba and compiles, or loads from the on-disk cache, two functions. See `components` for the
functions to call.

References
----------
R. E. Tarjan, J. van Leeuwen, "Worst-case analysis of set union algorithms", JACM 31(2), 1984: path halving.
"""

from __future__ import annotations

from typing import Any

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
