# SPDX-License-Identifier: Apache-2.0
"""Components are those of a plain search, whatever the order of edges and the batches."""

from __future__ import annotations

from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from curator_df.errors import ParameterError
from curator_df.kernels.minhash import graphs
from curator_df.kernels.minhash.graphs import component_names, vertices

EDGES = st.lists(st.tuples(st.integers(-9, 30) | st.integers(-(2**63), 2**63 - 1), st.integers(-9, 30)), max_size=60)


def batches_of(edges, size):
    return [np.array(edges[at : at + size], dtype=np.int64).reshape(-1, 2) for at in range(0, len(edges), size)]


def searched(edges):
    """Return the smallest member of each vertex's component, by breadth-first search."""
    neighbours = {}
    for one, other in edges:
        neighbours.setdefault(one, set()).add(other)
        neighbours.setdefault(other, set()).add(one)
    names = {}
    for start in sorted(neighbours):
        waiting = [start]
        while waiting:
            vertex = waiting.pop()
            if vertex not in names:
                names[vertex] = start
                waiting += neighbours[vertex]
    return names


@given(EDGES, st.randoms(), st.sampled_from([1, 3, 100]))
def test_any_graph(edges, random, size):
    shuffled = [pair[:: random.choice([1, -1])] for pair in random.sample(edges, len(edges))]
    with mock.patch.object(graphs, "_LEAST_PENDING", 4):
        ids = vertices(batches_of(shuffled, size))
    names = component_names(ids, batches_of(shuffled, size))
    assert dict(zip(ids.tolist(), names.tolist(), strict=True)) == searched(edges)


@pytest.mark.parametrize("step", [1, -1])
def test_a_long_chain_is_one_component(step):
    chain = np.arange(300_000, dtype=np.int64)
    edges = np.stack([chain[:-1], chain[1:]], axis=1)[::step]
    assert (component_names(chain, np.array_split(edges, 7)) == 0).all()


def test_no_edges():
    assert vertices([]).tolist() == component_names(np.empty(0, dtype=np.int64), []).tolist() == []


def test_what_does_not_fit_is_refused():
    with pytest.raises(ParameterError, match=r"the edge \[1, 8\] has a vertex that ids lacks"):
        component_names(np.array([1, 2]), [np.array([[1, 2], [1, 8]])])
    with pytest.raises(ParameterError, match="must be in ascending order"):
        component_names(np.array([2, 2]), [])
