# SPDX-License-Identifier: Apache-2.0
"""Rows are dropped because of kept ones: the cover of edges on disk against dictionaries, long chains, and interrupted runs."""

import json
import random
from types import SimpleNamespace

import cloudpickle
import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import curator_df as cdf
from curator_df.core.ranges.source import Range
from curator_df.core.runner import run
from curator_df.core.tasks.task import Attempt
from curator_df.dedup.near import links
from curator_df.dedup.near import stages as near_stages
from curator_df.dedup.near.tasks import NearJob, both_ways
from curator_df.exchange.range_groups import RangeGroups
from curator_df.files.row_sort import RowSorter, merge_slices
from curator_df.files.slice_file import open_slices
from curator_df.files.storage import Folder
from tests.core.runner.fake_client import inline_cluster
from tests.examples import examples
from tests.ops.plain_near_duplicates import greedy

STEP = 10
OWN, KEPT = 24, 6
SAME = st.sets(st.integers(0, OWN + KEPT - 1), max_size=12)
EDGES = st.lists(
    st.tuples(st.integers(0, OWN - 1), st.integers(0, OWN + KEPT - 1), st.sampled_from([0.8, 0.85, 0.9])), max_size=60
)


@pytest.fixture(scope="module", autouse=True)
def cluster():
    with inline_cluster(memory="1GB", cpus=2) as running:
        yield running


class Cover:
    """The task of one cover in a folder, with rows in four ranges, of which the last two hold kept signatures."""

    def __init__(self, folder, keep, ranks):
        starts = np.array([0, OWN // 2, OWN, OWN + KEPT // 2], dtype=np.int64) * STEP
        self.folder, self.ranks = Folder(str(folder)), ranks
        self.groups = RangeGroups(starts, 2, 2)
        rank_files = [self.write(f"ranks/{number}.slices", rows, 2) for number, rows in enumerate(self._rank_rows())]
        pending = SimpleNamespace(keep=keep)
        self.job = NearJob(self.folder, self.groups, pending, (), into="cover", ranks=tuple(rank_files))

    def _rank_rows(self):
        rows = np.array([(row * STEP, rank) for row, rank in enumerate(self.ranks)], dtype=np.uint64).reshape(-1, 2)
        return [rows[: OWN // 2], rows[OWN // 2 :]] if self.ranks else []

    def write(self, name, rows, words, bounds=None):
        bounds = np.zeros(1, dtype=np.uint64) if bounds is None else bounds
        sorter = RowSorter(self.folder, name, words=words, bounds=bounds, memory_bytes=100_000)
        sorter.append(rows)
        return sorter.commit()

    def edges(self, name, edges):
        ends = np.array([edge[:2] for edge in edges], dtype=np.uint64).reshape(-1, 2) * np.uint64(STEP)
        bits = np.array([edge[2] for edge in edges], dtype=np.float64).view(np.uint64)
        return self.write(name, both_ways(ends, bits), 3, self.groups.bounds)

    def run(self, same, edges, number=None):
        files = self.edges("same.slices", same), self.edges("edges.slices", edges)
        job = NearJob(**{**vars(self.job), "files": files, "same": files[:1], "round": number})
        manifest = links.run_cover(cloudpickle.dumps(job), Attempt(Range(0, 0, 0, 0, 0), 2_000_000, 1))
        assert manifest.outcome == "done", manifest.error
        return manifest

    def rows(self, file, slices):
        for number in range(slices):
            for piece in merge_slices(open_slices(self.folder, [file], number), memory_bytes=100_000):
                yield from piece.tolist()


def asked_in(cover, same_edges, given_edges):
    """Return the pairs that a cover in round 3 asks to compare."""
    answers = cover.run(same_edges, given_edges, 3).files[0]
    return {
        tuple(sorted((row // STEP, other // STEP)))
        for row, other, number in cover.rows(answers, len(cover.groups))
        if number == 3
    }


def questions_of(neighbors, matches):
    """Return each row that stays with the kept row of a neighbor that goes."""
    questions = {
        tuple(sorted((row, matches[other][0])))
        for row, others in neighbors.items()
        if row not in matches
        for other in others
        if other in matches and matches[other][0] != row
    }
    return {pair for pair in questions if pair[0] < OWN}


@settings(max_examples=examples(60), deadline=None)
@given(same=SAME, edges=EDGES, keep=st.sampled_from(["first", "last", "largest"]), seed=st.integers(0, 5))
def test_a_cover_of_edges_on_disk_is_that_of_dictionaries(tmp_path_factory, same, edges, keep, seed):
    ranks = random.Random(seed).choices(range(5), k=OWN) if keep == "largest" else []
    cover = Cover(tmp_path_factory.mktemp("cover"), keep, ranks)
    texts = (
        sorted(same) if min(same, default=OWN) < OWN else []
    )  # rows with one text; two kept signatures are not a pair
    name = {row: texts[0] if row in texts else row for row in range(OWN + KEPT)}
    same_edges = [(row, texts[0], 1.0) for row in texts[1:]]
    edges = {(min(a, b), max(a, b)): j for a, b, j in edges if a not in texts[1:] and name[a] != name[b]}
    given_edges = [(*pair, j) for pair, j in edges.items()]

    rank = {"first": lambda row: row, "last": lambda row: -row, "largest": lambda row: (ranks[row], row)}[keep]
    order = sorted(range(OWN + KEPT), key=lambda row: (0, row) if row >= OWN else (1, rank(row)))
    best = {}
    for row in order:
        best.setdefault(name[row], row)
    neighbors = {row: {} for row in name.values()}
    for (a, b), j in edges.items():
        for one, two in ((name[a], name[b]), (name[b], name[a])):
            neighbors[one][two] = max(j, neighbors[one].get(two, 0))
    in_edges = {row for edge in (*same_edges, *given_edges) for row in edge[:2]}
    places = [row for row in order if best[name[row]] == row and row in in_edges]
    places += [row for row in order if best[name[row]] == row and row not in in_edges]
    matches = greedy(neighbors, [name[row] for row in order if best[name[row]] == row])
    expected = {}
    for row in range(OWN):
        if name[row] in matches:
            expected[row] = best[matches[name[row]][0]], matches[name[row]][1]
        elif best[name[row]] != row:
            expected[row] = best[name[row]], 1.0

    done = cover.run(same_edges, given_edges)
    members, drops, found = done.files
    assert {row // STEP: kept // STEP for row, kept in cover.rows(drops, 4)} == {
        row: kept for row, (kept, _) in expected.items()
    }
    similarities = {
        row // STEP: np.array([bits], dtype=np.uint64).view(np.float64)[0]
        for row, other, bits in cover.rows(found, len(cover.groups))
        if row != other
    }
    assert similarities == {row: j for row, (_, j) in expected.items()}
    sizes = {}
    for kept, _ in expected.values():
        sizes[kept] = sizes.get(kept, int(kept < OWN)) + 1
    assert {row // STEP: size for row, _, size in cover.rows(members, 4)} == {
        **{row: sizes[kept] for row, (kept, _) in expected.items()},
        **sizes,
    }
    assert done.summary["going"] == len(expected)

    assert asked_in(cover, same_edges, given_edges) == questions_of(neighbors, matches)
    assert not list((tmp_path_factory.getbasetemp()).glob("cover*/cover/numbers.slices"))


def chain(count, size=120, step=3):
    """Return texts of which each has most words of the one before."""
    words = [f"w{number}" for number in range(count * step + size)]
    return [" ".join(words[number * step : number * step + size]) for number in range(count)]


def write_rows(folder, texts, files):
    folder.mkdir()
    for part, numbers in enumerate(np.array_split(np.arange(len(texts)), files)):
        lines = (json.dumps({"id": int(number), "text": texts[number]}) + "\n" for number in numbers)
        (folder / f"{part:03}.jsonl").write_text("".join(lines))
    return cdf.read_jsonl(folder)


def ids_in(folder):
    return [number for path in sorted(folder.glob("*.parquet")) for number in pq.read_table(path)["id"].to_pylist()]


def similarity(one, two):
    sets = [{tuple(words[at : at + 5]) for at in range(len(words) - 4)} for words in (one.split(), two.split())]
    return len(sets[0] & sets[1]) / len(sets[0] | sets[1])


def test_a_chain_leaves_a_row_for_each_step_beyond_the_threshold(tmp_path):
    texts = chain(200)
    assert similarity(texts[0], texts[1]) > 0.94
    for files in (1, 3, 17):
        docs = write_rows(tmp_path / f"in{files}", texts, files)
        cdf.write_parquet(cdf.drop_near_duplicates(docs, scheme="fineweb"), tmp_path / f"out{files}")
        kept = ids_in(tmp_path / f"out{files}")
        assert kept == ids_in(tmp_path / "out1")
    reach = max(number for number in range(9) if similarity(texts[0], texts[number]) >= 0.8)
    assert 200 // (reach + 1) <= len(kept) <= 200 // (reach + 1) + 6
    for number in set(range(200)) - set(kept):
        assert any(similarity(texts[number], texts[other]) >= 0.8 for other in kept)
    transitive = cdf.drop_near_duplicates(docs, scheme="fineweb", linkage="transitive")
    cdf.write_parquet(transitive, tmp_path / "transitive")
    assert ids_in(tmp_path / "transitive") == [0]


TASKS = [
    (near_stages, name)
    for name in ("run_own_pairs", "run_locate", "run_verify", "run_compare_few", "run_count", "run_cover")
]


@pytest.mark.parametrize(
    ("module", "name", "which"),
    [(*task, "first" if number % 2 else "last") for number, task in enumerate([*TASKS, (links, "run_cover")])],
)
def test_a_run_interrupted_in_a_task_goes_on(tmp_path, monkeypatch, module, name, which):
    monkeypatch.setattr(run, "SMALL_RANGE_BYTES", 8_000)
    if name != "run_compare_few":
        monkeypatch.setattr(near_stages, "FEW_KEYS", 0)
        monkeypatch.setattr(near_stages, "FEW_EDGES", 0)
    docs = write_rows(tmp_path / "in", chain(80), 3)
    clean = cdf.drop_near_duplicates(docs, scheme="fineweb")
    task, calls, stop_at = getattr(module, name), tmp_path / "calls", tmp_path / "stop_at"

    def interrupted(*arguments):  # a task is a copy of this function
        with calls.open("a") as file:
            file.write("x")
        if stop_at.exists() and calls.stat().st_size == int(stop_at.read_text()):
            raise KeyboardInterrupt
        return task(*arguments)

    with monkeypatch.context() as counting:
        counting.setattr(module, name, interrupted)
        cdf.write_parquet(clean, tmp_path / "whole")
    stop_at.write_text(str({"first": 1, "last": calls.stat().st_size}[which]))
    calls.unlink()
    with monkeypatch.context() as broken:
        broken.setattr(module, name, interrupted)
        with pytest.raises(KeyboardInterrupt):
            cdf.write_parquet(clean, tmp_path / "out")
    assert not list((tmp_path / "out").glob("*.parquet"))
    receipt = cdf.write_parquet(clean, tmp_path / "out", on_existing="resume")
    assert ids_in(tmp_path / "out") == ids_in(tmp_path / "whole")
    assert receipt.rows_dropped == 80 - len(ids_in(tmp_path / "whole"))
    assert not (tmp_path / "out/_curator/stages").exists()


def test_a_run_is_not_resumed_with_other_links(tmp_path):
    docs = write_rows(tmp_path / "in", chain(30), 1)
    cdf.write_parquet(cdf.drop_near_duplicates(docs, scheme="fineweb"), tmp_path / "out")
    other = cdf.drop_near_duplicates(docs, scheme="fineweb", linkage="transitive")
    with pytest.raises(cdf.errors.ResumeError):
        cdf.write_parquet(other, tmp_path / "out", on_existing="resume")
    groups = cdf.find_near_duplicates(docs, scheme="fineweb", workdir=tmp_path / "work")
    with pytest.raises(cdf.errors.ParameterError, match="found with linkage='direct'"):
        cdf.drop_near_duplicates(docs, scheme="fineweb", linkage="transitive", groups=groups)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"linkage": "single"}, "linkage='single'"),
        ({"linkage": "direct", "jaccard_threshold": None}, "linkage='direct' needs similarities"),
    ],
)
def test_links_that_make_no_sense(tmp_path, arguments, message):
    docs = write_rows(tmp_path / "in", ["a"], 1)
    with pytest.raises(cdf.errors.ParameterError, match=message):
        cdf.drop_near_duplicates(docs, **arguments)
