# SPDX-License-Identifier: Apache-2.0
"""``keep="none"``: every row that repeats another goes, held against definitions with all rows in memory."""

from __future__ import annotations

import collections
import dataclasses
import importlib.util
import json

import numpy as np
import pyarrow.parquet as pq
import pytest

import curator_df as cdf
from curator_df.core.runner import run
from curator_df.dedup.near import grouping, stages
from curator_df.dedup.vectors.cluster_rows import EPS_WORDS, ClusterRows, eps_word
from curator_df.dedup.vectors.vector_math import unit_rows
from curator_df.exchange import key_stages
from tests.core.runner.fake_client import inline_cluster
from tests.dedup.test_vectors import cluster_rows, pending
from tests.models.vector_rows import vectors
from tests.models.vector_rows import write_rows as write_vectors
from tests.ops.plain_near_duplicates import PlainPairs
from tests.ops.test_near_duplicates import WORDS, ids_in, variants, write_rows

NEAR = {"scheme": WORDS, "jaccard_threshold": 0.6, "keep": "none"}


@pytest.fixture(scope="module", autouse=True)
def cluster():
    with inline_cluster(memory="2GB", cpus=2) as running:
        yield running


@pytest.fixture(params=[(1, 10**9), (3, 700), (9, 300)], ids=["one range", "several", "many"])
def cut(request, monkeypatch):
    """Number of files, each of which has several ranges where they are small."""
    monkeypatch.setattr(run, "SMALL_RANGE_BYTES", request.param[1])
    return request.param[0]


def rejected(folder):
    """Return the rows of rejects by their ids."""
    parts = [pq.read_table(path).to_pandas() for path in sorted(folder.glob("*.parquet"))]
    return {row.id: row for part in parts for row in part.itertuples()}


def id_at(path, offset):
    """Return the id of the row that begins at an offset of a file."""
    with open(path, "rb") as file:
        file.seek(int(offset))
        return json.loads(file.readline())["id"]


@pytest.mark.parametrize("options", [{}, {"normalize": "case_and_spaces"}, {"subset": ["text", "score"]}], ids=str)
def test_equal_rows_all_go(tmp_path, cut, options):
    texts = [None if n % 29 == 0 else f"{'A' if n % 7 else 'a'} {(n * n) % (61 + n % 5 * 100)}" for n in range(200)]
    docs = cdf.read_jsonl(write_rows(tmp_path / "in", texts, cut))
    table = docs.compute()
    keys = table.text.str.lower() if "normalize" in options else table.text
    keys = list(zip(keys.fillna("null"), table.score if "subset" in options else [0] * 200, strict=True))
    sizes = collections.Counter(keys)
    clean = docs.pipe(cdf.drop_exact_duplicates, keep="none", **options)
    receipt = cdf.write_parquet(clean, tmp_path / "out", rejects=tmp_path / "rejects")
    kept = ids_in(tmp_path / "out")
    assert kept == [n for n in range(200) if sizes[keys[n]] == 1]
    assert 10 < len(kept) < 190
    assert receipt.rows_dropped == 200 - len(kept)
    firsts = {key: n for n, key in reversed(list(enumerate(keys)))}
    for number, row in rejected(tmp_path / "rejects").items():
        matched = id_at(row.reject_matched_file, row.reject_matched_offset)
        assert matched != number
        assert keys[matched] == keys[number]
        assert matched == firsts[keys[number]] or number == firsts[keys[number]]


def test_equal_rows_in_a_table_and_by_it(tmp_path, cut):
    texts = [f"text {n * n % 17}" for n in range(60)]
    docs = cdf.read_jsonl(write_rows(tmp_path / "in", texts, cut))
    groups = cdf.find_exact_duplicates(docs, keep="none", id="id", workdir=tmp_path / "work")
    found, sizes = groups.compute(), collections.Counter(texts)
    assert found.id.tolist() == [n for n in range(60) if sizes[texts[n]] > 1]
    assert not found.kept.any()
    assert (found.jaccard == 1).all()
    assert (found.matched_id != found.id).all()
    assert [texts[n] for n in found.matched_id] == [texts[n] for n in found.id]
    assert found.group_size.tolist() == [sizes[texts[n]] for n in found.id]
    assert (found.group == found.address).sum() == found.group.nunique()
    cdf.write_parquet(docs.pipe(cdf.drop_exact_duplicates, groups=groups), tmp_path / "out")
    assert ids_in(tmp_path / "out") == [n for n in range(60) if sizes[texts[n]] == 1]


@pytest.mark.parametrize("linkage", ["direct", "transitive"])
def test_rows_with_a_verified_partner_all_go(tmp_path, monkeypatch, cut, linkage):
    monkeypatch.setattr(run, "SMALL_RANGE_BYTES", 4_000 * cut)
    texts = [*variants(400, seed=5), None, None]
    edges = PlainPairs(texts, WORDS, 0.6).verified()
    neighbors = collections.defaultdict(dict)
    for (one, two), jaccard in edges.items():
        neighbors[one][two] = neighbors[two][one] = jaccard
    docs = cdf.read_jsonl(write_rows(tmp_path / "in", texts, cut))
    clean = docs.pipe(cdf.drop_near_duplicates, linkage=linkage, **NEAR)
    cdf.write_parquet(clean, tmp_path / "out", rejects=tmp_path / "rejects")
    assert ids_in(tmp_path / "out") == [n for n in range(402) if n not in neighbors]
    rows = rejected(tmp_path / "rejects")
    assert sorted(rows) == sorted(neighbors)
    for number, row in rows.items():
        matched = id_at(row.reject_matched_file, row.reject_matched_offset)
        assert row.reject_value == pytest.approx(neighbors[number][matched])
        assert row.reject_value == pytest.approx(max(neighbors[number].values()))


@pytest.mark.parametrize("on_disk", [False, True])
def test_near_groups_without_a_kept_row(tmp_path, monkeypatch, on_disk):
    monkeypatch.setattr(run, "SMALL_RANGE_BYTES", 4_000)
    if on_disk:
        monkeypatch.setattr(grouping, "VERTEX_BYTES", 10**12)
    texts = variants(300, seed=8)
    docs = cdf.read_jsonl(write_rows(tmp_path / "in", texts))
    groups = cdf.find_near_duplicates(docs, id="id", workdir=tmp_path / "work", **NEAR)
    found = groups.compute()
    going = sorted({row for pair in PlainPairs(texts, WORDS, 0.6).verified() for row in pair})
    assert found.id.tolist() == going
    assert not found.kept.any()
    assert found.matched_id.notna().all()
    assert (found.groupby("group").size()[found.group].to_numpy() == found.group_size).all()
    report = cdf.describe_near_duplicates(groups, docs=docs)
    assert report.rows_going == report.rows_in_groups == len(found)
    assert int(report.sizes["groups"].sum()) == found.group.nunique()
    assert report.largest.group_size.iloc[0] == found.group_size.max()
    cdf.write_parquet(docs.pipe(cdf.drop_near_duplicates, groups=groups), tmp_path / "out")
    assert ids_in(tmp_path / "out") == sorted(set(range(300)) - set(going))


def test_rows_like_kept_signatures_go_without_a_kept_row(tmp_path):
    texts = variants(200, seed=9)
    old = cdf.read_jsonl(write_rows(tmp_path / "old", texts[:80])).pipe(cdf.add_minhash, scheme=WORDS)
    old = cdf.checkpoint(old[["id", "minhash"]], tmp_path / "index")
    docs = cdf.read_jsonl(write_rows(tmp_path / "in", texts[80:] + texts[:3]))
    docs = cdf.checkpoint(docs.pipe(cdf.add_minhash, scheme=WORDS), tmp_path / "new")
    settings = {"signatures": "minhash", "against": old}
    going = {}
    for linkage in ("direct", "transitive"):
        clean = docs.pipe(cdf.drop_near_duplicates, linkage=linkage, **NEAR, **settings)
        cdf.write_parquet(clean, tmp_path / linkage)
        going[linkage] = set(range(123)) - set(ids_in(tmp_path / linkage))
    assert going["direct"] == going["transitive"] >= {120, 121, 122}
    first = docs.pipe(cdf.drop_near_duplicates, **{**NEAR, "keep": "first"}, linkage="transitive", **settings)
    cdf.write_parquet(first, tmp_path / "first")
    assert going["direct"] > set(range(123)) - set(ids_in(tmp_path / "first"))


@pytest.mark.parametrize(
    ("module", "name", "operator", "options"),
    [
        (key_stages, "run_merge", cdf.drop_exact_duplicates, {"keep": "none"}),
        (stages, "run_verify", cdf.drop_near_duplicates, NEAR),
        (grouping, "run_components", cdf.drop_near_duplicates, NEAR),
    ],
    ids=["merge", "verify", "components"],
)
def test_an_interrupted_run_goes_on(tmp_path, monkeypatch, module, name, operator, options):
    monkeypatch.setattr(run, "SMALL_RANGE_BYTES", 2_000)
    clean = cdf.read_jsonl(write_rows(tmp_path / "in", variants(120, seed=4))).pipe(operator, **options)
    cdf.write_parquet(clean, tmp_path / "whole")

    def interrupted(*arguments):
        raise KeyboardInterrupt

    with monkeypatch.context() as broken:
        broken.setattr(module, name, interrupted)
        with pytest.raises(KeyboardInterrupt):
            cdf.write_parquet(clean, tmp_path / "out")
    cdf.write_parquet(clean, tmp_path / "out", on_existing="resume")
    assert ids_in(tmp_path / "out") == ids_in(tmp_path / "whole")


def plain_partners(numbers, eps):
    """Return the largest cosine of each row with another, and which that is, where it is at least 1 - eps."""
    units = unit_rows(numbers)
    cosines = (units @ units.T).astype(np.float32)
    np.fill_diagonal(cosines, -np.inf)
    best = cosines.max(axis=1)
    return {n: best[n] for n in range(len(units)) if best[n] >= np.float32(1 - eps)}, cosines


@pytest.mark.parametrize("memory_bytes", [10**8, 20_000])
def test_similar_vectors_all_go_whatever_fits_into_memory(memory_bytes):
    chance = np.random.default_rng(3)
    numbers = chance.normal(size=(1_200, 7)).astype(np.float32)
    numbers[200:] = numbers[chance.integers(0, 200, 1_000)] + chance.normal(size=(1_000, 7)) / 4
    numbers[900:1_000] = np.repeat(numbers[900:920], 5, axis=0)
    wanted = dataclasses.replace(pending(7), keep="none")
    with ClusterRows(wanted, memory_bytes) as cluster:
        cluster.append(cluster_rows(numbers))
        table = np.concatenate(list(cluster.members(memory_bytes)))
    assert len(table) == len(np.unique(table[:, 0]))
    for place, eps in enumerate(wanted.eps):
        partners, cosines = plain_partners(numbers, eps)
        rows = table[table[:, eps_word(place) + 1] > 1][:, [0, *range(eps_word(place), eps_word(place) + EPS_WORDS)]]
        found = rows[:, 0].astype(int) - 1_000
        assert sorted(found) == sorted(partners)
        assert 100 <= len(found) < 1_200
        matched = rows[:, 3].astype(int) - 1_000
        assert (matched != found).all()
        said = rows[:, 4].copy().view(np.float64)
        np.testing.assert_allclose(said, cosines[found, matched], atol=1e-6)
        np.testing.assert_allclose(said, [partners[n] for n in found], atol=1e-6)
        counted = collections.Counter(rows[:, 1].tolist())
        assert [counted[name] for name in rows[:, 1].tolist()] == rows[:, 2].tolist()
        assert set(counted) <= set(rows[:, 0].tolist())


@pytest.mark.skipif(importlib.util.find_spec("sklearn") is None, reason="scikit-learn is not installed")
def test_rows_with_similar_vectors_all_go(tmp_path, monkeypatch):
    numbers = vectors(300, seed=2)
    for part, (cuts, range_bytes) in enumerate([((), 10**9), ((40, 200), 2_000)]):
        monkeypatch.setattr(run, "SMALL_RANGE_BYTES", range_bytes)
        docs = cdf.read_parquet(write_vectors(tmp_path / f"in{part}", numbers, cuts))
        settings = {"num_clusters": 1, "keep": "none"}
        groups = cdf.find_semantic_duplicates(docs, eps=[0.001, 0.05], workdir=tmp_path / f"work{part}", **settings)
        found = groups.compute()
        assert not found.kept.any()
        assert found.matched_address.notna().all()
        for eps in (0.001, 0.05):
            partners, _ = plain_partners(numbers, eps)
            out = tmp_path / f"out{part}-{eps}"
            clean = docs.pipe(cdf.drop_semantic_duplicates, eps=eps, groups=groups)
            cdf.write_parquet(clean, out, rejects=f"{out}-rejects")
            assert ids_in(out) == sorted(set(range(300)) - set(partners))
            assert (found.eps == eps).sum() == len(partners)
        rows = rejected(tmp_path / f"out{part}-0.05-rejects")
        assert all(row.reject_value == pytest.approx(partners[n], abs=1e-6) for n, row in rows.items())
        cdf.write_parquet(docs.pipe(cdf.drop_semantic_duplicates, eps=0.05, **settings), tmp_path / f"own{part}")
        assert ids_in(tmp_path / f"own{part}") == ids_in(out)
