# SPDX-License-Identifier: Apache-2.0
"""``count_into=``: how many rows of the input each kept row stands for, and `repeat_rows` to write them again."""

from __future__ import annotations

import collections
import importlib.util

import dask.dataframe as dd
import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest

import curator_df as cdf
from curator_df import errors
from curator_df.core.ranges.blocks import block_bytes
from curator_df.core.runner import run
from curator_df.exchange import exchange_plan, key_stages
from curator_df.exchange.dropped_rows import DROP_READER_BYTES
from curator_df.kernels.rows.segments import LEAST_PART_BYTES
from curator_df.ops.rows.repeating import repeat_block
from tests.core.runner.fake_client import inline_cluster
from tests.models.vector_rows import vectors
from tests.models.vector_rows import write_rows as write_vectors
from tests.ops.plain_near_duplicates import plain_groups, plain_matches
from tests.ops.test_near_duplicates import WORDS, variants, write_rows


@pytest.fixture(scope="module", autouse=True)
def cluster():
    with inline_cluster(memory="2GB", cpus=2) as running:
        yield running


def counts_in(folder):
    parts = [pq.read_table(path).to_pandas() for path in sorted(folder.glob("*.parquet"))]
    return dict(pd.concat(parts)[["id", "copies"]].itertuples(index=False))


CUTS = [(1, 10**9, 1024), (3, 700, 1024), (9, 300, 4)]


@pytest.mark.parametrize("keep", ["first", "last", cdf.best("score")], ids=str)
def test_counts_of_equal_rows_whatever_the_cut(tmp_path, monkeypatch, keep):
    texts = [None if n % 29 == 0 else f"text {(n * n) % (61 + n % 5 * 100)}" for n in range(200)]
    sizes = collections.Counter(texts)
    found, opened = [], []
    collect = key_stages.collect_members

    def noted(*arguments, **options):
        opened.append(arguments)
        return collect(*arguments, **options)

    monkeypatch.setattr(key_stages, "collect_members", noted)
    for files, range_bytes, direct in CUTS:
        monkeypatch.setattr(run, "SMALL_RANGE_BYTES", range_bytes)
        monkeypatch.setattr(exchange_plan, "MOST_DIRECT_READS", direct)
        docs = cdf.read_jsonl(write_rows(tmp_path / f"in{files}", texts, files))
        clean = docs.pipe(cdf.drop_exact_duplicates, keep=keep, count_into="copies")
        assert clean.columns.tolist() == [*docs.columns, "copies"]
        assert clean.dtypes["copies"] == "Int64"
        receipt = cdf.write_parquet(clean, tmp_path / f"out{files}")
        found.append(counts_in(tmp_path / f"out{files}"))
        assert bool(opened) == (direct == 4)
        opened.clear()
        assert sum(found[-1].values()) == receipt.rows_read == 200
    assert found[0] == found[1] == found[2]
    assert found[0] == {n: sizes[texts[n]] for n in found[0]}
    assert 1 in found[0].values()


@pytest.mark.parametrize("linkage", ["direct", "transitive"])
def test_counts_of_near_rows(tmp_path, monkeypatch, linkage):
    monkeypatch.setattr(run, "SMALL_RANGE_BYTES", 4_000)
    texts = variants(300, seed=5)
    if linkage == "direct":
        matches = plain_matches(texts, WORDS, 0.6)
        expected = collections.Counter(matches[n][0] if n in matches else n for n in range(300))
    else:
        expected = collections.Counter(plain_groups(texts, WORDS, 0.6).tolist())
    docs = cdf.read_jsonl(write_rows(tmp_path / "in", texts))
    settings = {"scheme": WORDS, "jaccard_threshold": 0.6, "linkage": linkage}
    cdf.write_parquet(docs.pipe(cdf.drop_near_duplicates, count_into="copies", **settings), tmp_path / "out")
    assert counts_in(tmp_path / "out") == expected
    groups = cdf.find_near_duplicates(docs, workdir=tmp_path / "work", **settings)
    cdf.write_parquet(docs.pipe(cdf.drop_near_duplicates, groups=groups, count_into="copies"), tmp_path / "by")
    assert counts_in(tmp_path / "by") == expected
    looked = docs.pipe(cdf.drop_near_duplicates, groups=groups, count_into="copies").compute()
    assert dict(looked[["id", "copies"]].itertuples(index=False)) == expected


def test_groups_that_were_found_are_counted(tmp_path, monkeypatch):
    monkeypatch.setattr(run, "SMALL_RANGE_BYTES", 300)
    texts = [f"text {n * n % 17}" for n in range(60)]
    sizes = collections.Counter(texts)
    docs = cdf.read_jsonl(write_rows(tmp_path / "in", texts))
    groups = cdf.find_exact_duplicates(docs, workdir=tmp_path / "work")
    clean = docs.pipe(cdf.drop_exact_duplicates, groups=groups, count_into="copies")
    assert [stage.title for stage in cdf.explain(clean).stages] == ["write"]
    cdf.write_parquet(clean, tmp_path / "out")
    kept = counts_in(tmp_path / "out")
    assert kept == {n: sizes[texts[n]] for n in kept}
    for count_into, said in ((None, "to not set"), ("n", "to 'n'")):
        other = docs.pipe(cdf.drop_exact_duplicates, groups=groups, count_into=count_into)
        with pytest.raises(errors.ResumeError, match=f"count_into changed from 'copies' {said}"):
            cdf.write_parquet(other, tmp_path / "out", on_existing="resume")


def test_a_plan_has_the_memory_of_each_reader_of_counts(tmp_path):
    docs = cdf.read_jsonl(write_rows(tmp_path / "in", ["a", "b"], 1))

    def held_by(*columns):
        df = docs
        for operator, column in zip((cdf.drop_exact_duplicates, cdf.drop_near_duplicates), columns, strict=True):
            df = operator(df, count_into=column)
        return cdf.explain(df, memory="2GB", cpus=1).held_bytes

    plain = held_by(None, None)
    assert held_by("copies", None) == held_by(None, "like") == plain + DROP_READER_BYTES
    assert held_by("copies", "like") == plain + 2 * DROP_READER_BYTES


def test_a_look_without_counts_is_no_stage_of_a_run_with_them(tmp_path):
    docs = cdf.read_jsonl(write_rows(tmp_path / "in", ["a", "b", "a", "a"], 1))
    assert len(docs.pipe(cdf.drop_exact_duplicates)) == 2
    counted = docs.pipe(cdf.drop_exact_duplicates, count_into="copies")
    assert counted.compute().copies.tolist() == [3, 1]
    cdf.write_parquet(counted, tmp_path / "out")
    assert counts_in(tmp_path / "out") == {0: 3, 1: 1}


def test_a_run_with_counts_goes_on_where_it_ended(tmp_path, monkeypatch):
    monkeypatch.setattr(run, "SMALL_RANGE_BYTES", 300)
    docs = cdf.read_jsonl(write_rows(tmp_path / "in", [f"text {n % 13}" for n in range(60)]))
    clean = docs.pipe(cdf.drop_exact_duplicates, count_into="copies")

    def interrupted(*arguments):
        raise KeyboardInterrupt

    with monkeypatch.context() as broken:
        broken.setattr(key_stages, "run_merge", interrupted)
        with pytest.raises(KeyboardInterrupt):
            cdf.write_parquet(clean, tmp_path / "out")
    cdf.write_parquet(clean, tmp_path / "out", on_existing="resume")
    assert counts_in(tmp_path / "out") == {n: len(range(n, 60, 13)) for n in range(13)}


@pytest.mark.skipif(importlib.util.find_spec("sklearn") is None, reason="scikit-learn is not installed")
def test_counts_of_similar_vectors(tmp_path, monkeypatch):
    monkeypatch.setattr(run, "SMALL_RANGE_BYTES", 2_000)
    docs = cdf.read_parquet(write_vectors(tmp_path / "in", vectors(300, seed=2), (40, 200)))
    groups = cdf.find_semantic_duplicates(docs, eps=[0.001, 0.05], num_clusters=3, workdir=tmp_path / "work")
    found, ids = groups.compute(), docs.compute()["id"]
    for eps in (0.001, 0.05):
        clean = docs.pipe(cdf.drop_semantic_duplicates, eps=eps, groups=groups, count_into="copies")
        cdf.write_parquet(clean, tmp_path / f"out{eps}")
        counts = counts_in(tmp_path / f"out{eps}")
        assert sum(counts.values()) == 300
        kept = found[(found.eps == eps) & found.kept]
        expected = dict(zip(ids.loc[kept.address], kept.group_size, strict=True))
        assert {n: count for n, count in counts.items() if count > 1} == expected


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"count_into": "text"}, errors.ColumnError, "text"),
        ({"count_into": "copies", "keep": "none"}, errors.ParameterError, "each stands for itself only"),
    ],
)
def test_counts_that_make_no_sense(tmp_path, options, error, message):
    docs = cdf.read_jsonl(write_rows(tmp_path / "in", ["a", "b"], 1))
    for operator in (cdf.drop_exact_duplicates, cdf.drop_near_duplicates):
        with pytest.raises(error, match=message):
            operator(docs, **options)


def repeated(docs, target, **options):
    receipt = cdf.write_parquet(docs.pipe(cdf.repeat_rows, by="times"), target, **options)
    parts = [pq.read_table(path).to_pandas() for path in sorted(target.glob("*.parquet"))]
    return pd.concat(parts), receipt


@pytest.mark.parametrize("blocksize", ["100kB", 2_000])
def test_rows_are_repeated_in_parts_no_larger_than_a_block(tmp_path, blocksize):
    times = [0, 1, 3, 20_000, 0, 2, 0, 1]
    rows = pd.DataFrame({"id": range(8), "times": times, "text": [None, *(f"{'é' * n} text" for n in range(7))]})
    rows.to_json(tmp_path / "in.jsonl", orient="records", lines=True)
    docs = cdf.read_jsonl(tmp_path / "in.jsonl", blocksize=blocksize)
    seen = tmp_path / "seen"

    def noted(block):
        with seen.open("a") as file:
            file.write(f"{len(block)}\n")
        return block.id >= 0

    table = docs.pipe(cdf.repeat_rows, by="times").pipe(cdf.keep_where, noted)
    receipt = cdf.write_parquet(table, tmp_path / "out", rejects=tmp_path / "rejects")
    found = pd.concat([pq.read_table(path).to_pandas() for path in sorted((tmp_path / "out").glob("*.parquet"))])
    expected = rows.loc[rows.index.repeat(times)].reset_index(drop=True)
    pd.testing.assert_frame_equal(
        found[["id", "times", "text"]].reset_index(drop=True), expected, check_dtype=False, check_index_type=False
    )
    assert found.repetition.tolist() == [n for count in times for n in range(count)]
    assert not found.duplicated(["id", "repetition"]).any()
    assert max(map(int, seen.read_text().split())) <= 100_000 // 25
    assert receipt.reasons()[["reason", "rows"]].values.tolist() == [["repeated_0_times", 3]]
    parts = [pq.read_table(path).to_pandas() for path in (tmp_path / "rejects").glob("*.parquet")]
    assert pd.concat(parts).id.tolist() == [0, 4, 6]
    assert receipt.rows_written == sum(times)


def test_counts_are_written_again(tmp_path, monkeypatch):
    monkeypatch.setattr(run, "SMALL_RANGE_BYTES", 300)
    texts = [f"text {n * n % 17}" for n in range(60)]
    docs = cdf.read_jsonl(write_rows(tmp_path / "in", texts)).pipe(cdf.drop_exact_duplicates, count_into="copies")
    cdf.write_parquet(docs.pipe(cdf.repeat_rows, by="copies"), tmp_path / "out")
    parts = [pq.read_table(path).to_pandas() for path in sorted((tmp_path / "out").glob("*.parquet"))]
    assert sorted(pd.concat(parts).text) == sorted(texts)


def test_numbers_of_times_that_make_no_sense(tmp_path):
    rows = pd.DataFrame({"id": range(4), "times": [1, -2, None, 2], "share": 0.5}).astype({"times": "Int64"})
    rows.to_parquet(tmp_path / "in.parquet")
    docs = cdf.read_parquet(tmp_path / "in.parquet")
    with pytest.raises(errors.OperatorError, match="found -2 in the column 'times'"):
        repeated(docs, tmp_path / "stopped")
    found, receipt = repeated(docs, tmp_path / "out", on_error="quarantine")
    assert found.id.tolist() == [0, 3, 3]
    assert receipt.rows_quarantined == 2
    with pytest.raises(errors.SchemaError, match="needs integers"):
        cdf.repeat_rows(docs, by="share")
    with pytest.raises(errors.ColumnError):
        cdf.repeat_rows(docs, by="missing")
    with pytest.raises(errors.ExpressionError, match="repeat_rows"):
        cdf.add_ids(docs.pipe(cdf.repeat_rows, by="times"), into="key")
    clean = cdf.add_ids(
        docs.pipe(cdf.keep_where, "times > 0").pipe(cdf.repeat_rows, by="times"), into="key", dense=True
    )
    cdf.write_parquet(clean, tmp_path / "numbered")
    assert cdf.read_parquet(tmp_path / "numbered").compute()["key"].tolist() == [0, 1, 2]


def test_rows_are_repeated_by_class(tmp_path, monkeypatch):
    monkeypatch.setattr(run, "SMALL_RANGE_BYTES", 2_000)
    rows = pd.DataFrame({"id": range(3_000), "tier": [("high", "low", "none", None)[n % 4] for n in range(3_000)]})
    rows.to_json(tmp_path / "in.jsonl", orient="records", lines=True)
    found = {}
    for seed, blocksize in ((0, "100kB"), (0, "5kB"), (1, "100kB")):
        docs = cdf.read_jsonl(tmp_path / "in.jsonl", blocksize=blocksize)
        times = {"high": 2.3, "low": 0.25, "none": 0, None: 1}
        target = tmp_path / f"out-{seed}-{blocksize}"
        receipt = cdf.write_parquet(docs.pipe(cdf.repeat_rows, by="tier", times=times, seed=seed), target)
        parts = [pq.read_table(path).to_pandas() for path in sorted(target.glob("*.parquet"))]
        written = pd.concat(parts)
        found[seed, blocksize] = counts = written.groupby("id").size()
        by_tier = {tier: counts.reindex(ids, fill_value=0) for tier, ids in rows.groupby(rows["tier"].fillna(""))["id"]}
        assert set(by_tier["high"]) == {2, 3}
        assert set(by_tier["low"]) == {0, 1}
        assert by_tier["high"].mean() == pytest.approx(2.3, abs=0.04)  # two and a half standard deviations of 750 draws
        assert by_tier["low"].mean() == pytest.approx(0.25, abs=0.04)
        assert (by_tier["none"] == 0).all()
        assert (by_tier[""] == 1).all()
        assert receipt.reasons()[["reason", "rows"]].values.tolist() == [
            ["repeated_0_times", 750 + int((by_tier["low"] == 0).sum())]
        ]
    assert found[0, "100kB"].equals(found[0, "5kB"])
    assert not found[0, "100kB"].equals(found[1, "100kB"])


def test_classes_without_a_number_are_quarantined(tmp_path):
    pd.DataFrame({"tier": ["a", "b", None]}).to_json(tmp_path / "in.jsonl", orient="records", lines=True)
    docs = cdf.read_jsonl(tmp_path / "in.jsonl")
    with pytest.raises(errors.OperatorError, match="found 'b' in the column 'tier', which has no number in times="):
        cdf.write_parquet(docs.pipe(cdf.repeat_rows, by="tier", times={"a": 2}), tmp_path / "stopped")
    kept = docs.pipe(cdf.repeat_rows, by="tier", times={"a": 2})
    receipt = cdf.write_parquet(kept, tmp_path / "out", on_error="quarantine")
    assert (receipt.rows_written, receipt.rows_quarantined) == (2, 2)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"times": {}}, errors.ParameterError, "times= is empty"),
        ({"times": {"a": -1}}, errors.ParameterError, r"times\['a'\]=-1 must be a number from 0 to 1,000,000"),
        ({"times": {"a": float("inf")}}, errors.ParameterError, "must be a number from 0"),
        ({"times": {1: 2}}, errors.ParameterError, "the key 1, which is neither text nor None"),
        ({"by": "n", "times": {"a": 1}}, errors.SchemaError, "needs text in the column 'n'"),
        ({"by": "n", "seed": 1}, errors.ParameterError, "seed=1 has an effect only with times="),
    ],
)
def test_numbers_of_classes_that_make_no_sense(options, error, message):
    docs = dd.from_pandas(pd.DataFrame({"tier": ["a"], "n": [1]}), npartitions=1)
    with pytest.raises(error, match=message):
        cdf.repeat_rows(docs, **{"by": "tier", **options})


def test_a_share_of_copies_cannot_be_drawn_twice():
    docs = dd.from_pandas(pd.DataFrame({"tier": ["a"]}), npartitions=1)
    twice = docs.pipe(cdf.repeat_rows, by="tier", times={"a": 2})
    cdf.repeat_rows(twice, by="tier", times={"a": 3}, into="again")
    with pytest.raises(errors.ExpressionError, match="repeat_rows"):
        cdf.repeat_rows(twice, by="tier", times={"a": 1.5}, into="again")


def test_parts_of_repeated_rows_are_all_rows():
    chance = np.random.default_rng(2)
    texts = ["x" * int(n) for n in chance.integers(0, 3_000, 40)]
    block = pd.DataFrame({"id": range(40), "text": pd.array(texts, "string[pyarrow]")})
    counts = chance.choice([1, 2, 90, 4_000], 40)
    parts = list(repeat_block(block, counts, into="n"))
    assert len(parts) > 10
    assert max(int(block_bytes(part)) for part in parts) < 1.3 * max(block_bytes(block), LEAST_PART_BYTES)
    whole = pd.concat(parts)
    assert whole.index.tolist() == np.repeat(np.arange(40), counts).tolist()
    assert whole.text.str.len().tolist() == np.repeat([len(text) for text in texts], counts).tolist()
    assert whole.n.tolist() == [n for count in counts for n in range(count)]


def test_members_of_many_hash_ranges_are_collected_for_a_table(tmp_path, monkeypatch):
    monkeypatch.setattr(run, "SMALL_RANGE_BYTES", 300)
    texts = [f"text {n * n % 17}" for n in range(60)]
    docs = cdf.read_jsonl(write_rows(tmp_path / "in", texts))
    tables = []
    for direct in (1024, 4):
        monkeypatch.setattr(exchange_plan, "MOST_DIRECT_READS", direct)
        for keep in ("last", "none"):
            groups = cdf.find_exact_duplicates(docs, keep=keep, workdir=tmp_path / f"work{direct}")
            tables.append(groups.compute().reset_index(drop=True))
            folder = tmp_path / f"work{direct}"
            assert bool(list(folder.rglob("collected-*.slices"))) == (direct == 4)
            if keep == "last":
                clean = docs.pipe(cdf.drop_exact_duplicates, groups=groups, count_into="copies")
                cdf.write_parquet(clean, tmp_path / f"out{direct}")
    pd.testing.assert_frame_equal(tables[0], tables[2])
    pd.testing.assert_frame_equal(tables[1], tables[3])
    assert counts_in(tmp_path / "out1024") == counts_in(tmp_path / "out4")
