# SPDX-License-Identifier: Apache-2.0
"""Kinds of Parquet files that other writers make: encodings, codecs, versions and layouts, each read as pyarrow reads it."""

import datetime as dt
import decimal

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from curator_df.io.parquet.reader import read_parquet

ROWS = 300
NUMBERS = list(range(ROWS))
TEXTS = [None if row % 7 == 0 else f"text {row % 50} " * (row % 9) for row in NUMBERS]


def table():
    return pa.table(
        {
            "id": NUMBERS,
            "small": pa.array([row % 100 for row in NUMBERS], pa.int32()),
            "double": [None if row % 5 == 0 else row / 3 for row in NUMBERS],
            "text": TEXTS,
            "truth": [row % 3 == 0 for row in NUMBERS],
            "fixed": pa.array([row.to_bytes(4, "big") for row in NUMBERS], pa.binary(4)),
        }
    )


WAYS = {
    **{f"codec {name}": {"compression": name} for name in ("none", "snappy", "gzip", "brotli", "lz4", "zstd")},
    **{
        f"{name} in {column}": {"use_dictionary": False, "column_encoding": {column: name}}
        for name, column in (
            ("PLAIN", "text"),
            ("DELTA_BINARY_PACKED", "id"),
            ("DELTA_BINARY_PACKED", "small"),
            ("DELTA_LENGTH_BYTE_ARRAY", "text"),
            ("DELTA_BYTE_ARRAY", "text"),
            ("DELTA_BYTE_ARRAY", "fixed"),
            ("BYTE_STREAM_SPLIT", "double"),
            ("BYTE_STREAM_SPLIT", "id"),
            ("BYTE_STREAM_SPLIT", "fixed"),
            ("RLE", "truth"),
        )
    },
    "version 1.0": {"version": "1.0"},
    "version 2.4": {"version": "2.4"},
    "data pages v2": {"data_page_version": "2.0"},
    "data pages v2, delta": {
        "data_page_version": "2.0",
        "use_dictionary": False,
        "column_encoding": {"text": "DELTA_BYTE_ARRAY"},
    },
    "no statistics": {"write_statistics": False},
    "no Arrow schema": {"store_schema": False},
    "page index": {"write_page_index": True},
    "checksums": {"write_page_checksum": True},
    "small pages": {"data_page_size": 100, "write_batch_size": 10},
    "dictionary given up": {"dictionary_pagesize_limit": 100, "data_page_size": 200, "write_batch_size": 10},
    "small row groups": {"row_group_size": 7},
    "content-defined chunks": {"use_content_defined_chunking": True},
    "bloom filter": {"bloom_filter_options": {"id": True, "text": {"ndv": 100}}},
}


def same(path, expected, **how):
    """Assert that a file is read as it should be, whatever the size of the blocks."""
    for blocksize in ("1MB", "2kB"):
        block = read_parquet(path, blocksize=blocksize, **how).compute()
        found = pa.Table.from_pandas(block, preserve_index=False)
        assert found.to_pylist() == expected.to_pylist()


@pytest.mark.parametrize("way", list(WAYS))
def test_every_way_to_write_a_table_is_read(tmp_path, way):
    pq.write_table(table(), tmp_path / "a.parquet", **WAYS[way])
    same(tmp_path, table())


@pytest.mark.parametrize("codec", ["snappy", "zstd"])
def test_empty_row_groups_and_files_without_rows(tmp_path, codec):
    with pq.ParquetWriter(tmp_path / "a.parquet", table().schema, compression=codec) as writer:
        for part in (table().slice(0, 0), table().slice(0, 10), table().slice(0, 0), table().slice(10, 5)):
            writer.write_table(part)
    with pq.ParquetWriter(tmp_path / "b.parquet", table().schema) as writer:
        assert writer is not None  # a file without a row group
    pq.write_table(table().slice(0, 0), tmp_path / "c.parquet")
    same(tmp_path, table().slice(0, 15))
    assert len(read_parquet([tmp_path / "b.parquet", tmp_path / "c.parquet"])) == 0


OTHERS = {
    "nulls only": pa.array([None] * ROWS, pa.string()),
    "null type": pa.nulls(ROWS),
    "lists of lists": pa.array([[[row, None], [], None][: row % 4] or None for row in NUMBERS]),
    "maps": pa.array([[("k", row), ("l", None)][: row % 3] for row in NUMBERS], pa.map_(pa.string(), pa.int64())),
    "maps of maps": pa.array(
        [[("k", [("a", row)])] for row in NUMBERS], pa.map_(pa.string(), pa.map_(pa.string(), pa.int64()))
    ),
    "lists of structs": pa.array([[{"a": row, "b": None}] * (row % 3) for row in NUMBERS]),
    "large map of text": pa.array(
        [[(f"key {n}", "x" * n) for n in range(row % 30)] for row in NUMBERS], pa.map_(pa.string(), pa.string())
    ),
    "decimal": pa.array([decimal.Decimal(row) / 100 for row in NUMBERS], pa.decimal128(20, 2)),
    "decimal in few bytes": pa.array([decimal.Decimal(row) / 100 for row in NUMBERS], pa.decimal128(6, 2)),
    "uint8": pa.array([row % 256 for row in NUMBERS], pa.uint8()),
    "uint16": pa.array([65535 - row for row in NUMBERS], pa.uint16()),
    "uint32": pa.array([2**32 - 1 - row for row in NUMBERS], pa.uint32()),
    "uint64": pa.array([2**64 - 1 - row for row in NUMBERS], pa.uint64()),
    "int8": pa.array([row % 256 - 128 for row in NUMBERS], pa.int8()),
    "half": pa.array([np.float16(row) for row in NUMBERS], pa.float16()),
    "dates out of range of nanoseconds": pa.array([dt.datetime(1 + row * 30, 1, 1) for row in NUMBERS], pa.timestamp("us")),
    "dates": pa.array([dt.date(1 + row * 30, 1, 1) for row in NUMBERS], pa.date32()),
    "times": pa.array([dt.time(row % 24, 30) for row in NUMBERS], pa.time64("us")),
    "bytes": pa.array([bytes([row % 256]) * 5 for row in NUMBERS]),
    "fixed lists": pa.array([[row, row] for row in NUMBERS], pa.list_(pa.int64(), 2)),
}  # fmt: skip


@pytest.mark.parametrize("kind", list(OTHERS))
@pytest.mark.parametrize("version", ["1.0", "2.0"])
def test_columns_of_other_kinds_are_read(tmp_path, kind, version):
    expected = pa.table({"id": NUMBERS, "v": OTHERS[kind]})
    pq.write_table(expected, tmp_path / "a.parquet", data_page_version=version, row_group_size=130)
    same(tmp_path, expected)


def test_nulls_in_structs_get_the_type_of_other_files(tmp_path):
    pq.write_table(pa.table({"v": [[{"a": 1, "b": None}]]}), tmp_path / "a.parquet")
    pq.write_table(pa.table({"v": [[{"a": 1, "b": 2.5}]]}), tmp_path / "b.parquet")
    assert read_parquet(tmp_path).compute()["v"].tolist() == [[{"a": 1, "b": None}], [{"a": 1, "b": 2.5}]]


def test_timestamps_of_96_bits(tmp_path):
    times = [dt.datetime(2024, 1, 2, 3, 4, 5, 6 + row) for row in NUMBERS]
    pq.write_table(
        pa.table({"t": pa.array(times, pa.timestamp("ns"))}),
        tmp_path / "a.parquet",
        use_deprecated_int96_timestamps=True,
        store_schema=False,
    )
    assert read_parquet(tmp_path).compute()["t"].tolist() == [pd.Timestamp(time) for time in times]


def test_lists_as_old_writers_nest_them(tmp_path):
    expected = pa.table({"v": pa.array([[row] * (row % 4) for row in NUMBERS])})
    pq.write_table(expected, tmp_path / "a.parquet", use_compliant_nested_type=False, store_schema=False)
    same(tmp_path, expected)


def test_lists_of_two_levels(tmp_path):
    """The repeated field itself is the element: ``optional group v (LIST) { repeated int64 array; }``."""
    table = pa.table({"v": pa.array([[1, 2], [3]], pa.list_(pa.field("element", pa.int64(), nullable=False)))})
    path = tmp_path / "a.parquet"
    pq.write_table(table, path, store_schema=False, use_dictionary=False, compression="none")
    assert read_parquet(path).compute()["v"].tolist() == [[1, 2], [3]]
