# SPDX-License-Identifier: Apache-2.0
"""What grouping holds for each row, and what happens where that is too much."""

import tracemalloc

import cloudpickle
import numpy as np
import pytest

from curator_df.core.ranges.source import Range
from curator_df.core.tasks.task import Attempt
from curator_df.dedup.near import grouping as group_tasks
from curator_df.dedup.near.grouping import COMPONENTS_FIXED_BYTES, VERTEX_BYTES, run_components
from curator_df.dedup.near.keys import RANK_WORDS
from curator_df.dedup.near.settings import EDGE_WORDS
from curator_df.dedup.near.tasks import NearJob, both_ways
from curator_df.exchange.exchange import ranks
from curator_df.exchange.range_groups import RangeGroups
from curator_df.files.row_sort import RowSorter
from curator_df.files.storage import Folder
from curator_df.kernels.minhash.graphs import component_names

ROWS = 400_000


class AnyDrop:
    """As much of a pending as grouping looks at."""

    def __init__(self, keep):
        self.keep = keep


@pytest.fixture
def job_of(tmp_path):
    """Pairs of neighbours, in files as a comparison leaves them."""
    folder, groups = Folder(str(tmp_path)), RangeGroups(np.array([0, 300_000], dtype=np.int64), 1)
    sorter = RowSorter(folder, "verified/part.slices", words=EDGE_WORDS, bounds=groups.bounds, memory_bytes=10**8)
    pairs = np.arange(ROWS, dtype=np.uint64).reshape(-1, 2)
    sorter.append(both_ways(pairs, np.ones(len(pairs)).view(np.uint64)))
    ranked = RowSorter(
        folder, "ranks/part.slices", words=RANK_WORDS, bounds=np.zeros(1, dtype=np.uint64), memory_bytes=10**8
    )
    addresses = np.arange(ROWS, dtype=np.uint64)
    ranked.append(np.stack([addresses, ranks(addresses.view(np.int64) % 3, "largest")], axis=1))
    files = (sorter.commit(),), (ranked.commit(),)

    def make(keep):
        return NearJob(folder, groups, AnyDrop(keep), files[0], ranks=files[1])

    return make


def attempt(memory_bytes, exclusive_bytes=None):
    return Attempt(Range(0, 0, 0, 0, 0), memory_bytes, 0, exclusive_bytes=exclusive_bytes)


@pytest.mark.parametrize("keep", ["first", "last", "largest"])
def test_a_row_costs_what_is_stated(job_of, keep, monkeypatch):
    monkeypatch.setattr(group_tasks, "run_guarded", run_plainly)
    component_names(np.array([1, 2]), [np.array([[2, 1]])])  # compiled before it counts
    job = cloudpickle.dumps(job_of(keep))
    tracemalloc.start()
    try:
        done = run_components(job, attempt(10**9))
        held = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert done.summary == {"groups": ROWS // 2, "largest_group": 2, "going": ROWS // 2}
    assert 4 * 8 * ROWS < held <= VERTEX_BYTES * ROWS + COMPONENTS_FIXED_BYTES


def run_plainly(attempt, work):
    from curator_df.core.ranges.manifest import Manifest

    manifest = Manifest(attempt.piece.number)
    work(manifest)
    return manifest


def test_too_many_rows_are_tried_alone_and_then_left_to_the_disk(job_of):
    job = cloudpickle.dumps(job_of("first"))
    assert run_components(job, attempt(10**7)).outcome == "memory"
    alone = run_components(job, attempt(10**7, exclusive_bytes=2 * 10**7))
    assert (alone.outcome, alone.files) == ("done", [])
    done = run_components(job, attempt(10**7, exclusive_bytes=10**9))
    assert (done.outcome, len(done.files)) == ("done", 2)
