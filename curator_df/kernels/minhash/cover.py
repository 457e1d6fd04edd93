# SPDX-License-Identifier: Apache-2.0
# numba has no types.
# mypy: disable-error-code="untyped-decorator,no-any-return"
"""Greedy cover of a graph in a given order of its vertices: a vertex is dropped if a kept one that precedes it is its neighbor.

The kept vertices are the lexicographically first maximal independent set: no two of them are neighbors, and each dropped one
has a kept neighbor.
"""

from __future__ import annotations

from typing import Any

from curator_df.kernels.compiling.compiled import kernel, types

_PLACES = types.Array(types.int64, 1, "C", readonly=True)


@kernel(types.int64(_PLACES, _PLACES, types.uint8[::1], types.uint8[::1]))
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
