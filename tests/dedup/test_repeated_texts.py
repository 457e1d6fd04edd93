# SPDX-License-Identifier: Apache-2.0
"""Rows with the text of an earlier one send no keys of bands, and nothing else changes."""

from __future__ import annotations

import dataclasses

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import curator_df as cdf
from curator_df.core.planning.lowering import lower
from curator_df.core.runner import run
from curator_df.dedup.near import keys
from curator_df.dedup.near.keys import NearKeySink
from curator_df.dedup.near.tasks import reduce_buckets
from curator_df.exchange.exchange import Exchange
from curator_df.exchange.range_groups import RangeGroups
from curator_df.files.row_sort import merge_slices
from curator_df.files.slice_file import open_slices
from curator_df.files.storage import Folder
from curator_df.kernels.rows import key_tables
from curator_df.kernels.rows.key_tables import RepeatedRows
from tests.core.runner.fake_client import inline_cluster
from tests.ops.test_near_duplicates import variants

WORDS = cdf.minhash.Scheme("words", 2, num_bands=6, minhashes_per_band=2, normalize="case_and_spaces")
TEXTS = (*variants(8, seed=3), "", "  ", "\t", "One two three", "one  TWO three", None)


class NoMemory(RepeatedRows):
    """Memory that finds no earlier row, so that each row sends all its keys."""

    def find(self, hashes):
        self.rows += len(hashes)
        return np.arange(self.rows - len(hashes), self.rows)


@pytest.fixture(scope="module")
def pending(tmp_path_factory):
    path = tmp_path_factory.mktemp("in") / "a.jsonl"
    path.write_text('{"text": "one two three"}\n')
    drop = cdf.drop_near_duplicates(cdf.read_jsonl(path), scheme=WORDS)
    return lower(drop).steps[-1].pending


def edges_of(folder, pending, texts, block_rows, memory):
    """Return the edges of each hash range, the keys of bands and of contents, and the figures of the ranges."""
    kinds, starts = WORDS.num_bands + 1, np.array([0, 1000, 2000], dtype=np.int64)
    exchange = Exchange(Folder(str(folder)), "first", kinds, starts)
    files, summaries = [], []
    for number, start in enumerate(starts.tolist()):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(keys, "RepeatedRows", memory)
            writer = NearKeySink(exchange, pending).open(number, None, 1_000_000)
        part = [TEXTS[place] for place in texts[number :: len(starts)]]
        index = pd.Index(np.arange(start, start + len(part)), name="address")
        block = pd.DataFrame({"text": pd.array(part, dtype="string[pyarrow]")}, index=index)
        for first in range(0, len(block), block_rows):
            writer.append(block.iloc[first : first + block_rows])
        files += writer.commit()
        summaries.append({name: value for name, value in writer.summary.items() if name != "spilled_bytes"})
    found, rows = [], []
    for number in range(kinds):
        anchors = None if number == kinds - 1 else 2
        groups = RangeGroups(starts, 1)
        made = reduce_buckets(exchange, number, files, groups=groups, anchors=anchors, memory_bytes=2_000_000)
        rows.append(made.rows)
        slices = [piece for group in range(3) for piece in open_slices(exchange.folder, [made.file], group)]
        edges = {tuple(row) for piece in merge_slices(slices, memory_bytes=100_000) for row in piece.tolist()}
        found.append((edges, made.buckets, made.largest_bucket))
    return found, rows, summaries


@settings(max_examples=30)
@given(
    st.lists(st.sampled_from(range(len(TEXTS))), max_size=60),
    st.sampled_from([1, 3, 100]),
    st.sampled_from([1, 4, 1 << 15]),
)
def test_edges_are_those_of_all_keys(tmp_path_factory, pending, texts, block_rows, slots):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(keys, "SLOTS", slots)
        patch.setattr(key_tables, "SLOTS", slots)
        few = edges_of(tmp_path_factory.mktemp("few"), pending, texts, block_rows, RepeatedRows)
        all_keys = edges_of(tmp_path_factory.mktemp("all"), pending, texts, block_rows, NoMemory)
        one_block = edges_of(tmp_path_factory.mktemp("one"), pending, texts, 1000, RepeatedRows)
    assert few[0] == all_keys[0]
    assert few[2] == all_keys[2]
    assert few == one_block
    assert all(some <= every for some, every in zip(few[1], all_keys[1], strict=True))
    if slots > len(TEXTS):
        distinct = [len(set(texts[number::3])) for number in range(3)]
        assert max(few[1][:-1], default=0) <= sum(distinct)


@pytest.mark.parametrize(
    ("keep", "linkage", "jaccard_threshold"),
    [
        ("first", "direct", 0.6),
        ("last", "transitive", 0.6),
        (cdf.best("score"), "direct", 0.6),
        ("none", "transitive", None),
    ],
)
def test_drops_matches_and_figures_are_those_of_all_keys(tmp_path, monkeypatch, keep, linkage, jaccard_threshold):
    monkeypatch.setattr(run, "SMALL_RANGE_BYTES", 9_000)
    random = np.random.default_rng(5)
    texts = [*variants(60, seed=4), *["the same text again and again " * 4] * 500, "", "one", "One "]
    rows = pd.DataFrame({"text": random.permutation(texts), "id": range(len(texts))})
    rows = rows.assign(score=random.integers(0, 9, len(texts)))
    rows.to_json(tmp_path / "in.jsonl", orient="records", lines=True)
    arguments = {"scheme": WORDS, "keep": keep, "linkage": linkage, "jaccard_threshold": jaccard_threshold}
    found = {}
    for name, memory in (("all", NoMemory), ("few", RepeatedRows)):
        monkeypatch.setattr(keys, "RepeatedRows", memory)
        with inline_cluster(memory="2GB", cpus=2):
            docs = cdf.read_jsonl(tmp_path / "in.jsonl").curate.drop_near_duplicates(**arguments)
            receipt = cdf.write_parquet(docs, tmp_path / name / "out", rejects=tmp_path / name / "rejects")
        exchange = dataclasses.asdict(receipt.exchanges[0])
        found[name] = (
            pq.read_table(tmp_path / name / "out").to_pydict(),
            pq.read_table(tmp_path / name / "rejects").to_pydict(),
            {key: exchange[key] for key in ("keys", "unique", "drop_bytes", "details")},
            receipt.reasons().to_dict(),
        )
        found[name, "bytes"] = exchange["key_bytes"]
    assert found["few"] == found["all"]
    assert len(found["few"][0]["id"]) < len(texts)
    assert found["few", "bytes"] < 0.5 * found["all", "bytes"]
