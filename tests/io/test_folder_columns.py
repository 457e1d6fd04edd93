# SPDX-License-Identifier: Apache-2.0
"""Columns in the names of folders come back as columns, whichever way the files were written."""

import json

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import curator_df as cdf
from curator_df.errors import ColumnError
from tests.core.runner.fake_client import inline_cluster

VALUES = ["de", "pt/br", None, "a b", "ä=1"]


@pytest.fixture(scope="module", autouse=True)
def cluster():
    with inline_cluster(memory="2GB", cpus=2) as running:
        yield running


@pytest.fixture
def docs(tmp_path):
    rows = [{"id": n, "text": f"text {n}", "lang": VALUES[n % 5]} for n in range(50)]
    (tmp_path / "in.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return cdf.read_jsonl(tmp_path / "in.jsonl", dtype={"lang": "string"})


@pytest.mark.parametrize(
    ("write", "read"),
    [(cdf.write_parquet, cdf.read_parquet), (cdf.write_jsonl, cdf.read_jsonl)],
    ids=["parquet", "jsonl"],
)
def test_a_partitioned_output_is_read_back_whole(docs, tmp_path, write, read):
    write(docs, tmp_path / "out", partition_on="lang")
    back = read(tmp_path / "out")
    assert list(back.columns) == ["id", "text", "lang"]
    found = back.compute().sort_values("id")
    assert found["lang"].astype(object).where(found["lang"].notna(), None).tolist() == [
        VALUES[n % 5] for n in range(50)
    ]
    assert (back.dtypes == back.compute().dtypes).all()
    assert read(tmp_path / "out", columns=["lang"]).compute().columns.tolist() == ["lang"]
    assert read(tmp_path / "out", columns="id").compute().columns.tolist() == ["id"]
    with pytest.raises(ColumnError, match="nope"):
        read(tmp_path / "out", columns=["lang", "nope"])


def test_they_go_through_a_run_like_others(docs, tmp_path):
    cdf.write_parquet(docs, tmp_path / "out", partition_on="lang")
    back = cdf.read_parquet(tmp_path / "out", blocksize="1kB")
    receipt = cdf.write_parquet(back[back["lang"] == "de"][["lang", "id"]], tmp_path / "german")
    assert receipt.rows_written == 10
    assert pd.read_parquet(tmp_path / "german")["lang"].unique().tolist() == ["de"]


def write_file(folder, **columns):
    folder.mkdir(parents=True)
    pq.write_table(pa.table(columns), folder / "a.parquet")


def test_only_folders_below_what_was_named_count(tmp_path):
    write_file(tmp_path / "run=1/lang=de", id=[1])
    assert list(cdf.read_parquet(tmp_path).columns) == ["id", "run", "lang"]
    assert list(cdf.read_parquet(tmp_path / "run=1").columns) == ["id", "lang"]
    assert list(cdf.read_parquet(tmp_path / "run=1/lang=de").columns) == ["id"]
    assert list(cdf.read_parquet(tmp_path / "run=1/lang=de/a.parquet").columns) == ["id"]
    assert list(cdf.read_parquet(f"{tmp_path}/run=*/*/*.parquet").columns) == ["id", "run", "lang"]


def test_folders_whose_names_are_not_utf8_are_read(tmp_path):
    write_file(tmp_path / "in" / "lang=caf%E9", id=[1])
    folder = tmp_path / "in" / b"lang=th\xe9".decode("utf-8", "surrogateescape")
    folder.mkdir()
    (folder / "a.parquet").write_bytes((tmp_path / "in" / "lang=caf%E9" / "a.parquet").read_bytes())
    assert sorted(cdf.read_parquet(tmp_path / "in").compute()["lang"]) == [r"caf\xe9", r"th\xe9"]


def test_what_is_in_the_files_counts_more_and_what_some_folders_lack_is_no_column(tmp_path):
    write_file(tmp_path / "a/lang=de/kind=x", id=[1], lang=["in the file"])
    write_file(tmp_path / "a/lang=de/kind=y", id=[2], lang=["in the file"])
    docs = cdf.read_parquet(tmp_path / "a")
    assert docs.compute()[["lang", "kind"]].to_numpy().tolist() == [["in the file", "x"], ["in the file", "y"]]
    write_file(tmp_path / "a/lang=fr", id=[3], lang=["in the file"])
    assert list(cdf.read_parquet(tmp_path / "a").columns) == ["id", "lang"]


def test_files_that_moved_to_another_folder_are_another_input(docs, tmp_path):
    write_file(tmp_path / "a/lang=de", id=[1])
    before = cdf.read_parquet(tmp_path / "a")
    (tmp_path / "a/lang=de").rename(tmp_path / "a/lang=fr")
    assert cdf.read_parquet(tmp_path / "a").expr._name != before.expr._name


def test_a_folder_that_names_a_column_of_the_source_is_refused(tmp_path):
    (tmp_path / "source_file=x").mkdir()
    pq.write_table(pa.table({"id": [1]}), tmp_path / "source_file=x/a.parquet")
    with pytest.raises(ColumnError, match=r"are named after a column 'source_file', which add_source=True also adds"):
        cdf.read_parquet(tmp_path)
