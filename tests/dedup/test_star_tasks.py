# SPDX-License-Identifier: Apache-2.0
"""Groups made on disk are those that are made in memory, whatever the graph, and in few rounds."""

import os
import tempfile
import tracemalloc
from types import SimpleNamespace

import cloudpickle
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from curator_df.core.ranges.journal import Journal
from curator_df.core.ranges.manifest import TaskRecord
from curator_df.core.ranges.source import Range
from curator_df.core.runner.passes import Stage
from curator_df.core.tasks.task import Attempt
from curator_df.dedup.near import grouping as near_grouping
from curator_df.dedup.near import grouping as star_tasks
from curator_df.dedup.near.grouping import group_rows
from curator_df.dedup.near.keys import RANK_WORDS
from curator_df.dedup.near.settings import EDGE_WORDS
from curator_df.dedup.near.tasks import NearJob, both_ways
from curator_df.exchange.exchange import ranks
from curator_df.exchange.range_groups import RangeGroups
from curator_df.files.row_sort import RowSorter, merge_slices
from curator_df.files.slice_file import open_slices
from curator_df.files.storage import Folder
from curator_df.memory import freed_pages
from tests.dedup.test_group_tasks import AnyDrop
from tests.examples import examples

RANGES = 5


@pytest.fixture(autouse=True, scope="module")
def quick():
    """Hundreds of small tasks: none waits for the disk, or gives memory back."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda _: None)
        patch.setattr(freed_pages, "release_free_memory", lambda generation=2: None)
        yield


class DirectStage(Stage):
    """Stage whose tasks run one after the other in this process; no record of them is stored."""

    def tasks(self, name, title, task, job, count):
        job_bytes, work_bytes = cloudpickle.dumps(job), self.work_bytes
        attempts = [
            Attempt(Range(number, 0, 0, 0, 0), work_bytes, 0, exclusive_bytes=self.exclusive_bytes)
            for number in range(count)
        ]
        done = [task(job_bytes, attempt) for attempt in attempts]
        for manifest in done:
            assert manifest.outcome == "done", manifest.error
        return [TaskRecord.of(manifest) for manifest in done]


def write(folder, name, words, bounds, rows):
    sorter = RowSorter(folder, name, words=words, bounds=bounds, memory_bytes=10**6)
    sorter.append(rows)
    return sorter.commit()


def grouped(folder, edges, keep, *, kept=0, on_disk, vertices=100, memory_bytes=10**6):
    """Return members, drops and summary of a graph with ``vertices`` rows in ranges of equal length."""
    starts = np.arange(RANGES, dtype=np.int64) * (vertices // RANGES)
    groups = RangeGroups(starts, 2, kept)
    rows = both_ways(np.array(edges, dtype=np.uint64).reshape(-1, 2), np.ones(len(edges)).view(np.uint64))
    files = [write(folder, f"verified/{part}.slices", EDGE_WORDS, groups.bounds, rows[part::2]) for part in range(2)]
    values = np.random.default_rng(3).integers(0, 4, vertices)
    ranked = []
    for number in range(RANGES - kept if keep == "largest" else 0):
        own = np.arange(starts[number], [*starts, vertices][number + 1], dtype=np.uint64)
        table = np.stack([own, ranks(values[own.astype(int)], "largest")], axis=1)
        ranked.append(write(folder, f"ranks/{number}.slices", RANK_WORDS, np.zeros(1, dtype=np.uint64), table))

    stage = DirectStage(SimpleNamespace(work_bytes=memory_bytes), Journal(folder))
    stage.exclusive_bytes = 1 if on_disk else 10**8
    found = group_rows(stage, NearJob(folder, groups, AnyDrop(keep), tuple(files), ranks=tuple(ranked)))
    return read(folder, found.members, RANGES), read(folder, found.drops, RANGES), found.summary


def read(folder, files, count):
    pieces = (merge_slices(open_slices(folder, files, number), memory_bytes=10**6) for number in range(count))
    return [[tuple(row) for piece in slices for row in piece.tolist()] for slices in pieces]


GRAPHS = st.lists(
    st.tuples(st.integers(0, 99), st.integers(0, 99)).filter(lambda edge: edge[0] != edge[1]), max_size=90
)


@settings(max_examples=examples(15))
@given(GRAPHS, st.sampled_from(["first", "last", "largest", "none"]), st.sampled_from([0, 2]))
def test_the_same_groups_as_in_memory(edges, keep, kept):
    # Kept signatures are never linked with each other.
    first = 100 - kept * 20
    edges = [edge for edge in edges if min(edge) < first]
    with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as two:
        expected = grouped(Folder(one), edges, keep, kept=kept, on_disk=False)
        members, drops, said = grouped(Folder(two), edges, keep, kept=kept, on_disk=True)
        assert members == expected[0]
        # Of kept signatures nothing goes, so nobody reads what stands there.
        assert drops[: RANGES - kept] == expected[1][: RANGES - kept]
        rounds = said.pop("grouping_rounds")
        assert said == {**dict.fromkeys(said, 0), **expected[2]}
        assert rounds <= 9


def chain(count):
    return [(number, number + 1) for number in range(count - 1)]


def star(count):
    return [(number, count // 2) for number in range(count) if number != count // 2]


def shuffled_chain(count):
    order = np.random.default_rng(1).permutation(count)
    return np.stack([order[:-1], order[1:]], axis=1).tolist()


@pytest.mark.parametrize(("graph", "most_rounds"), [(chain, 13), (star, 2), (shuffled_chain, 11)])
def test_long_ways_and_many_neighbours_take_few_rounds(tmp_path, graph, most_rounds):
    count = 2_000
    members, drops, said = grouped(
        Folder(str(tmp_path)), graph(count), "first", on_disk=True, vertices=count, memory_bytes=50_000
    )
    assert [row for part in members for row in part] == [(number, 0, count) for number in range(count)]
    assert sum(map(len, drops)) == said["going"] == count - 1
    assert said["grouping_rounds"] <= most_rounds
    assert not (tmp_path / "stars").exists()


def test_a_round_that_is_finished_is_not_run_again(tmp_path, monkeypatch):
    folder, run, called = Folder(str(tmp_path)), star_tasks.run_large_star, []

    def run_twice(job_bytes, attempt):
        called.append(attempt.piece.number)
        if len(called) == 7:  # the first task of the third round
            raise KeyboardInterrupt
        return run(job_bytes, attempt)

    monkeypatch.setattr(near_grouping, "run_large_star", run_twice)
    with pytest.raises(KeyboardInterrupt):
        grouped(folder, shuffled_chain(100), "first", on_disk=True)
    members, _, said = grouped(folder, shuffled_chain(100), "first", on_disk=True)
    assert len(members[0]) == 20
    assert called[7:] == [0, 1, 2] * (said["grouping_rounds"] - 2)


def test_a_star_costs_what_is_stated(tmp_path):
    stars, folder = 200_000, Folder(str(tmp_path))
    groups, ids = RangeGroups(np.zeros(1, dtype=np.int64), 1), np.arange(2 * stars, dtype=np.uint64)
    rows = np.stack([ids // 2 * 2, ids, np.zeros_like(ids)], axis=1)
    job = NearJob(folder, groups, AnyDrop("first"), (write(folder, "v.slices", 3, groups.bounds, rows),), into="s")
    tracemalloc.start()
    try:
        done = star_tasks.run_survivors(cloudpickle.dumps(job), Attempt(Range(0, 0, 0, 0, 0), 4_000_000, 0))
        held = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert (done.outcome, done.summary["groups"]) == ("done", stars)
    assert 40 * stars < held <= star_tasks.STAR_BYTES * stars + 4_000_000
