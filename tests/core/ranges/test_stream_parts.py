# SPDX-License-Identifier: Apache-2.0
"""Partitions of compressed files: the same rows as one partition, whatever the operation, and no more than a block held."""

from __future__ import annotations

import gzip
import json
import random

import dask
import pandas as pd
import pyarrow as pa
import pytest

import curator_df as cdf
from curator_df.core.ranges import stream_parts
from curator_df.errors import CorruptFileError, DiskFullError
from curator_df.files.storage import Folder, NewFile
from tests.core.runner.fake_client import inline_cluster

ROWS = [{"n": n, "text": f"{n // 2} some words {n % 7}"} for n in range(3_000)]
LINES = "".join(json.dumps(row) + "\n" for row in ROWS).encode()


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setattr(stream_parts, "_of_process", lambda pid: str(tmp_path / "parts"))
    with dask.config.set(scheduler="threads"):
        yield tmp_path / "parts"


@pytest.fixture(params=["gz", "zst"])
def docs(request, tmp_path):
    path = tmp_path / f"a.jsonl.{request.param}"
    path.write_bytes(gzip.compress(LINES) if request.param == "gz" else pa.compress(LINES, "zstd", asbytes=True))
    return cdf.read_jsonl(str(path), blocksize="8kB")


def test_a_compressed_file_has_partitions_of_about_a_block(docs):
    assert docs.npartitions > 4
    sizes = docs.map_partitions(len, meta=("n", "int64")).compute().tolist()
    assert sum(sizes) == len(ROWS)
    assert max(sizes) < len(ROWS) / 3


def test_rows_and_addresses_are_those_of_the_whole_file(docs, tmp_path):
    (tmp_path / "plain.jsonl").write_bytes(LINES)
    whole = cdf.read_jsonl(str(tmp_path / "plain.jsonl"), blocksize="1GB").compute()
    pd.testing.assert_frame_equal(docs.compute(), whole)
    assert len(docs) == len(ROWS)
    assert docs["n"].sum().compute() == whole["n"].sum()
    assert docs.groupby(docs["n"] % 3)["n"].max().compute().tolist() == [2997, 2998, 2999]
    assert docs.sort_values("n", ascending=False).head(1)["n"].tolist() == [2999]


def test_the_first_rows_need_no_file_of_blocks(docs, home):
    assert docs.head(3)["n"].tolist() == [0, 1, 2]
    assert not list(home.glob("*"))
    docs["n"].sum().compute()
    assert len(list(home.glob("*.blocks"))) == 1


def test_the_file_is_read_once(docs, home):
    docs.compute()
    (blocks,) = home.glob("*.blocks")
    before = blocks.stat().st_mtime_ns
    docs["text"].str.len().sum().compute()
    assert blocks.stat().st_mtime_ns == before


@pytest.mark.parametrize("step", ["drop_exact_duplicates", "drop_near_duplicates", "add_ids", "join_documents"])
def test_a_pending_step_is_looked_at(docs, step, tmp_path):
    def chain(table):
        if step == "add_ids":
            return cdf.add_ids(table[table["n"] % 5 > 0], into="number", dense=True)
        if step == "join_documents":
            names = {"id": "group", "text": "text", "segment_id": "n"}
            return cdf.join_documents(table.assign(group=table["n"] // 4), **names)
        return table.pipe(getattr(cdf, step))

    with inline_cluster(memory="4GB", cpus=2):
        seen = chain(docs).compute().reset_index(drop=True)
        cdf.write_parquet(chain(docs), tmp_path / "out")
        written = cdf.read_parquet(str(tmp_path / "out")).compute().reset_index(drop=True)
    assert 0 < len(seen) <= len(ROWS)
    pd.testing.assert_frame_equal(seen, written)


def test_damage_is_noticed(docs, home):
    docs.compute()
    (blocks,) = home.glob("*.blocks")
    content = bytearray(blocks.read_bytes())
    content[-20] ^= 1
    blocks.write_bytes(content)
    with pytest.raises(CorruptFileError, match="a temporary file of the cluster, is damaged"):
        docs.compute()


def test_too_small_a_disk_is_refused_with_the_number(docs, home, monkeypatch):
    monkeypatch.setattr(Folder, "free_bytes", lambda self: 1_000)
    with pytest.raises(DiskFullError, match=r"rows in a temporary file of about .*, but only 1 kB are free in .*parts"):
        docs.compute()
    assert not list(home.glob("*.blocks"))


def test_a_disk_that_fills_is_named_and_nothing_stays(docs, home, monkeypatch):
    def full(self, content):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(NewFile, "write", full)
    with dask.config.set(scheduler="sync"), pytest.raises(DiskFullError, match=r"No space is left in .*parts"):
        docs.compute()
    assert not [name for name in home.rglob("*") if name.is_file() and name.suffix != ".lock"]


@pytest.mark.parametrize("suffix", ["gz", "zst"])
def test_the_size_that_a_compressed_file_says_it_has_counts(tmp_path, suffix):
    lines = (json.dumps({"text": "again and " * 1_000}) + "\n").encode() * 100
    packed = gzip.compress(lines) if suffix == "gz" else pa.compress(lines, "zstd", asbytes=True)
    (tmp_path / f"a.jsonl.{suffix}").write_bytes(packed)
    assert len(packed) * 4 < len(lines) / 10
    assert cdf.read_jsonl(str(tmp_path / f"a.jsonl.{suffix}"), blocksize="100kB").npartitions == -(
        -len(lines) // 100_000
    )


@pytest.mark.parametrize("texts", [2_000, 300, 60])
def test_no_partition_is_empty_where_the_number_of_parts_was_estimated_too_high(tmp_path, texts):
    """Random text hardly gets smaller, so a file has a fourth of the blocks that its size lets expect."""
    rows = [{"n": n, "text": random.Random(n).randbytes(40).hex()} for n in range(texts)]
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress("".join(json.dumps(row) + "\n" for row in rows).encode()))
    # Without the size that gzip states, the number of parts is that of the estimate.
    docs = cdf.read_jsonl(str(tmp_path / "a.jsonl.gz"), blocksize="8kB")
    sizes = docs.map_partitions(len, meta=("n", "int64")).compute()
    assert docs.npartitions > 1
    assert sizes.min() > 0 and sizes.sum() == texts
    assert docs["n"].compute().tolist() == list(range(texts))
    assert docs["n"].diff().sum().compute() == texts - 1
    assert docs["text"].apply(len, meta=("text", "int64")).sum().compute() == 80 * texts
    seen = docs.pipe(cdf.drop_exact_duplicates)
    with inline_cluster(memory="4GB", cpus=2):
        assert seen["n"].compute().tolist() == list(range(texts))


def test_small_and_plain_files_are_not_cut(tmp_path):
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress(LINES[:100]))
    (tmp_path / "b.jsonl").write_bytes(LINES)
    assert cdf.read_jsonl(str(tmp_path / "a.jsonl.gz")).npartitions == 1
    assert cdf.read_jsonl(str(tmp_path / "b.jsonl"), blocksize="40kB").npartitions == -(-len(LINES) // 40_000)
