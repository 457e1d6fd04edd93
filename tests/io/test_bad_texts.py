# SPDX-License-Identifier: Apache-2.0
"""Parquet text that is not UTF-8, and NaN: rows that pyarrow reads and that other steps stumble on."""

import base64
import json
import math

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import curator_df as cdf
from curator_df.errors import BadRowError
from curator_df.io.parquet.reader import read_parquet
from tests.core.runner.fake_client import inline_cluster

TEXTS = [b"good", b"caf\xe9", b"cut \xe2\x82", "schön".encode(), b"\xed\xa0\xbd half", None, b"good", b"last"]
BAD = [1, 2, 4]
GOOD = [place for place in range(len(TEXTS)) if place not in BAD]


def strings(values, kind=pa.string()):  # noqa: B008 - a constant
    """Return an array of text without a check."""
    return pa.array(values, pa.binary()).cast(kind, safe=False) if kind == pa.binary() else _unchecked(values, kind)


def _unchecked(values, kind):
    data = pa.array(values, pa.large_binary() if kind == pa.large_string() else pa.binary())
    return pa.Array.from_buffers(kind, len(data), data.buffers(), data.null_count)


def columns_of():
    """Return columns of several types whose rows hold `TEXTS`."""
    texts = strings(TEXTS)
    offsets = pa.array(range(len(TEXTS) + 1), pa.int32())
    coded = texts.dictionary_encode()
    wide = pa.DictionaryArray.from_arrays(coded.indices.cast(pa.int64()), coded.dictionary)
    return {
        "text": texts,
        "large": strings(TEXTS, pa.large_string()),
        "coded": coded,
        "coded by 64 bits": wide,
        "list of coded": pa.ListArray.from_arrays(offsets, wide),
        "struct of coded": pa.StructArray.from_arrays([coded], ["inner"]),
        "list": pa.ListArray.from_arrays(offsets, texts),
        "struct": pa.StructArray.from_arrays([texts], ["inner"]),
        "map": pa.MapArray.from_arrays(offsets, strings([b"k"] * len(TEXTS)), texts),
        "deep": pa.ListArray.from_arrays(offsets, pa.StructArray.from_arrays([texts], ["inner"])),
    }


def write(path, **columns):
    pq.write_table(pa.table({"id": range(len(TEXTS)), **columns}), path)
    return path


@pytest.mark.parametrize("kind", list(columns_of()))
@pytest.mark.parametrize("blocksize", ["1MB", 1])
def test_a_row_with_text_that_is_not_utf8_is_an_error_that_names_it(tmp_path, kind, blocksize):
    path = write(tmp_path / "a.parquet", c=columns_of()[kind])
    message = r"a\.parquet', row 2: the column 'c' has text that is not UTF-8\. It begins b'caf\\xe9'.*'quarantine'"
    with pytest.raises(BadRowError, match=message):
        read_parquet(path, blocksize=blocksize).partitions[0].compute()
    assert read_parquet(path, columns=["id"]).compute()["id"].tolist() == list(range(len(TEXTS)))


@pytest.mark.parametrize("kind", list(columns_of()))
@pytest.mark.parametrize("block_bytes", [1, 10**6])
def test_rows_with_text_that_is_not_utf8_are_quarantined(tmp_path, kind, block_bytes):
    df = read_parquet(write(tmp_path / "a.parquet", c=columns_of()[kind]), on_bad_rows="quarantine")
    source = df.expr.operand("func").source
    for chosen in (source, source.select(["id"]), source.select([])):
        aside = []
        blocks = list(chosen.blocks(source.cut(10**9)[0], block_bytes=block_bytes, on_bad_row=aside.append))
        assert [row for block in blocks for row in block.index] == GOOD
        assert [(row.offset, row.line, row.raw) for row in aside] == [(place, place + 1, TEXTS[place]) for place in BAD]
        assert all(list(block.columns) == list(chosen.meta.columns) for block in blocks)


def test_without_a_run_quarantined_rows_are_counted_in_a_warning(tmp_path):
    df = read_parquet(write(tmp_path / "a.parquet", text=strings(TEXTS)), on_bad_rows="quarantine")
    with pytest.warns(UserWarning, match=r"3 bad rows were skipped, the first in '.*a\.parquet', row 2: the column"):
        assert df.compute()["id"].tolist() == GOOD


def test_bytes_are_read_as_bytes_or_checked_when_they_become_text(tmp_path):
    path = write(tmp_path / "a.parquet", text=strings(TEXTS), data=pa.array(TEXTS))
    assert read_parquet(path, dtype={"text": "large_binary"}).compute()["text"].tolist()[:2] == TEXTS[:2]
    df = read_parquet(path, columns=["id", "data"], dtype={"data": "string"}, on_bad_rows="quarantine")
    with pytest.warns(UserWarning, match=r"3 bad rows"):
        assert df.compute()["data"].tolist()[:2] == ["good", "schön"]


@pytest.fixture(scope="module")
def cluster():
    """Return a running cluster."""
    with inline_cluster("700MB", 1) as running:
        yield running


def test_a_run_quarantines_the_same_rows_in_every_pass(tmp_path, cluster):
    (tmp_path / "in").mkdir()
    for name in ("a", "b"):
        write(tmp_path / f"in/{name}.parquet", text=strings(TEXTS), key=["same"] * len(TEXTS))
    df = read_parquet(tmp_path / "in", on_bad_rows="quarantine").pipe(cdf.add_ids, into="number", dense=True)
    receipt = cdf.write_parquet(df.pipe(cdf.drop_exact_duplicates, subset="text"), tmp_path / "out")
    rows = pq.read_table(tmp_path / "out").to_pylist()
    assert [row["number"] for row in rows] == [0, 1, 2, 4]
    assert receipt.rows_quarantined == 2 * len(BAD)
    lines = [
        json.loads(line) for path in (tmp_path / "out/_quarantine").iterdir() for line in path.read_text().splitlines()
    ]
    assert [base64.b64decode(line["raw_base64"]) for line in lines] == 2 * [TEXTS[place] for place in BAD]
    assert {line["reason"] for line in lines} == {"the column 'text' has text that is not UTF-8"}
    with pytest.raises(BadRowError, match=r"a\.parquet', row 2"):
        cdf.write_parquet(read_parquet(tmp_path / "in"), tmp_path / "other")


def test_nan_is_neither_null_nor_lost(tmp_path, cluster):
    values = [1.0, float("nan"), None, float("inf")]
    table = pa.table(
        {
            "double": pa.array(values),
            "single": pa.array(values, pa.float32()),
            "half": pa.array([None if value is None else np.float16(value) for value in values], pa.float16()),
            "list": pa.array([[value] for value in values]),
        }
    )
    (tmp_path / "in").mkdir()
    pq.write_table(table, tmp_path / "in/a.parquet")
    block = read_parquet(tmp_path / "in").compute()
    assert block["double"].isna().tolist() == [False, False, True, False]
    cdf.write_parquet(read_parquet(tmp_path / "in"), tmp_path / "out")
    found = pq.read_table(tmp_path / "out")
    for name in table.column_names:
        column = [value[0] if isinstance(value, list) else value for value in found[name].to_pylist()]
        assert column[0] == 1 and math.isnan(column[1]) and column[2] is None and column[3] == math.inf
