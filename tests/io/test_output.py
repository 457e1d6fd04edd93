# SPDX-License-Identifier: Apache-2.0
"""Blocks of a range into files: every row in one file, in the folder of its value."""

import datetime as dt
import functools
import gc
import json

import dask.dataframe as dd
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from curator_df.core.ranges.blocks import block_bytes
from curator_df.errors import MissingExtraError, ParameterError, ResumeError, SchemaError
from curator_df.files.storage import Folder
from curator_df.io.jsonl.reader import read_jsonl
from curator_df.io.output import files as output
from curator_df.io.output.files import HIVE_NULL, FileSink, arrow_schema, folder_name, require_partition_columns
from curator_df.io.output.formats import ParquetFormat
from curator_df.io.output.write import write_by, write_jsonl, write_parquet
from curator_df.io.parquet.reader import read_parquet
from curator_df.models.tokens.write_many import write_many
from tests.core.runner.fake_client import inline_cluster


def write(tmp_path, *blocks, partition_on=("key",)):
    sink = FileSink(Folder(str(tmp_path / "out")), ParquetFormat("zstd"), 10**6, partition_on)
    files = sink.open(0, blocks[0].iloc[:0], 10**6)
    for block in blocks:
        files.append(block)
    return sink, files.commit()


def rows_in(tmp_path, record):
    return pq.ParquetFile(tmp_path / "out" / record.name).read()["id"].to_pylist()


def test_each_row_is_in_one_folder_in_order(tmp_path):
    blocks = [
        pd.DataFrame({"key": pd.array(["b", None, "a", "b"], "string[pyarrow]"), "id": [0, 1, 2, 3]}),
        pd.DataFrame({"key": pd.array(["a", "b"], "string[pyarrow]"), "id": [4, 5]}),
    ]
    _, records = write(tmp_path, *blocks)
    found = {record.name.split("/")[0]: rows_in(tmp_path, record) for record in records}
    assert found == {"key=a": [2, 4], "key=b": [0, 3, 5], f"key={HIVE_NULL}": [1]}


def test_files_that_an_error_discards_end_without_another_error(tmp_path):
    sink = FileSink(Folder(str(tmp_path / "out")), ParquetFormat("zstd"), 10**6, ("key",))
    blocks = [pd.DataFrame({"key": pd.array([key], "string[pyarrow]"), "id": [1]}) for key in ("a", "x" * 300)]
    files = sink.open(0, blocks[0].iloc[:0], 1)
    files.append(blocks[0])
    open_files = list(files._growing.values())
    with pytest.raises(ParameterError, match="too long for a folder name"):
        files.append(blocks[1])
    files.discard()
    del open_files
    gc.collect()  # what a destructor raises fails the test
    assert [path for path in (tmp_path / "out").rglob("*") if path.is_file()] == []


def test_zero_and_minus_zero_are_not_written_twice(tmp_path):
    block = pd.DataFrame({"key": [0.0, -0.0, 1.5, 0.0], "id": [0, 1, 2, 3]})
    _, records = write(tmp_path, block)
    assert sorted(number for record in records for number in rows_in(tmp_path, record)) == [0, 1, 2, 3]


def test_nan_is_not_lost(tmp_path):
    block = pd.DataFrame(
        {"key": pd.array(pa.array([float("nan"), 1.0, None]), pd.ArrowDtype(pa.float64())), "id": [0, 1, 2]}
    )
    _, records = write(tmp_path, block)
    assert sorted(number for record in records for number in rows_in(tmp_path, record)) == [0, 1, 2]


def test_several_columns_are_folders_in_folders(tmp_path):
    days = pd.array([dt.date(2024, 1, 2)] * 2, pd.ArrowDtype(pa.date32()))
    block = pd.DataFrame({"key": ["a", "a"], "day": days, "id": [0, 1]})
    _, (record,) = write(tmp_path, block, partition_on=("key", "day"))
    assert record.name.startswith("key=a/day=2024-01-02/part-000000-000")


@pytest.mark.parametrize(
    ("value", "folder"),
    [
        (None, f"key={HIVE_NULL}/"),
        (HIVE_NULL, "key=%5F_HIVE_DEFAULT_PARTITION__/"),
        ("", "key=/"),
        ("../a=b", "key=..%2Fa%3Db/"),
        ("two words", "key=two words/"),
    ],
)
def test_values_have_names_of_their_own(value, folder):
    assert folder_name({"key": value}) == folder


def test_a_value_too_long_for_a_folder_is_an_error_that_shows_it():
    with pytest.raises(ParameterError, match=r"partition_on='key' has a value of 300 characters \('xxx"):
        folder_name({"key": "x" * 300})


def test_a_sink_knows_its_files_whatever_the_column_is_called(tmp_path):
    sink, (record,) = write(tmp_path, pd.DataFrame({"a/b": ["x"], "id": [0]}), partition_on=("a/b",))
    (empty,) = sink.write_empty(pd.DataFrame({"a/b": ["x"], "id": [0]}).iloc[:0])
    assert [sink.owns(name) for name in (record.name, empty.name, "mine.parquet", "a=x/part-000000-000.parquet")] == [
        0,
        0,
        None,
        None,
    ]


def test_no_column_to_partition_on_is_refused():
    docs = dd.from_pandas(pd.DataFrame({"text": ["a"]}), npartitions=1)
    with pytest.raises(ParameterError, match=r"partition_on=\[\] has no column"):
        require_partition_columns(docs, "write_parquet", [])
    assert require_partition_columns(docs, "write_parquet", None) == ()


@pytest.mark.parametrize(
    ("column", "reason"),
    [
        *((name, "skip folders whose names begin with") for name in ("..", ".", ".x", "_x", "_curator", "_", "")),
        *((name, "add their own column") for name in ("source_file", "source_line")),
        *((name, "can have 255 bytes") for name in ("x" * 240, "é" * 50)),
    ],
)
def test_columns_that_cannot_name_folders_are_refused(column, reason):
    df = dd.from_pandas(pd.DataFrame({column: ["a"], "id": [1]}), npartitions=1)
    with pytest.raises(
        ParameterError, match=rf"write_parquet: partition_on=.* cannot name folders: .*{reason}.*[Rr]ename"
    ):
        require_partition_columns(df, "write_parquet", column)


@pytest.mark.parametrize("values", [[[1]], [{"x": 1}], [[("k", 1)]]])
def test_columns_whose_values_cannot_name_folders_are_refused(values):
    kind = pa.map_(pa.string(), pa.int64()) if isinstance(values[0], list) and values[0] != [1] else None
    block = pa.table({"a": pa.array(values, kind), "id": [1]}).to_pandas(types_mapper=pd.ArrowDtype)
    df = dd.from_pandas(block, npartitions=1)
    with pytest.raises(
        SchemaError,
        match="write_parquet: partition_on='a' cannot be used for the names of folders, because the column holds",
    ):
        require_partition_columns(df, "write_parquet", "a")


@pytest.mark.parametrize("column", ["a.b", "a..b", "[x]", "a/b", "a=b", "%2E", "*", "a b", "é", "x."])
def test_odd_names_of_columns_come_back_from_folders(tmp_path, column):
    values = ["u", None, "u.v", ""]
    block = pd.DataFrame({column: pd.array(values, "string[pyarrow]"), "id": range(len(values))})
    df = dd.from_pandas(block, npartitions=1)
    write(tmp_path, block, partition_on=require_partition_columns(df, "write_parquet", column))
    found = read_parquet(tmp_path / "out").compute().sort_values("id")
    assert [None if value is pd.NA else value for value in found[column]] == values


def test_the_schema_of_many_columns_is_that_of_each(monkeypatch):
    kinds = [
        pd.Series(["a"], dtype="string[pyarrow]"),
        pd.Series([1], dtype="Int64"),
        pd.Series([1.5]),
        pd.Series([True]),
        pd.Series(["a"], dtype="category"),
        pd.Series([b"a"], dtype=pd.ArrowDtype(pa.large_binary())),
        pd.Series([[1]], dtype=pd.ArrowDtype(pa.list_(pa.int8()))),
        pd.Series([pd.Timestamp(0, tz="UTC")]),
    ]
    for more in ([], [pd.Series(["an object"], dtype=object)]):
        columns = [*kinds, *more] * 30
        wide = pd.DataFrame({f"column {place}": column for place, column in enumerate(columns)})[:0]
        found = arrow_schema(wide)
        monkeypatch.setattr(output, "FEW_COLUMNS", 10**6)
        assert found.equals(arrow_schema(wide))
        monkeypatch.undo()


def test_categories_that_dask_does_not_know_are_written_as_text(tmp_path):
    values = [f"value {number}" for number in range(200)] + [None]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps({"kind": one, "n": 1}) + "\n" for one in values))
    docs = read_jsonl(tmp_path / "a.jsonl")
    with inline_cluster():
        write_parquet(docs.astype({"kind": "category"}), tmp_path / "out")
        with pytest.raises(
            SchemaError, match=r"categories of 'n' were not known before the run.*CategoricalDtype\(\[1\]\)"
        ):
            write_parquet(docs.astype({"n": "category"}), tmp_path / "numbers")
        write_parquet(docs.astype({"n": pd.CategoricalDtype([1, 2])}), tmp_path / "known")
    found = read_parquet(tmp_path / "out").compute()["kind"]
    assert [None if one is pd.NA else one for one in found] == values
    assert read_parquet(tmp_path / "known").compute()["n"].unique().tolist() == [1]


@pytest.mark.parametrize("suffix", ["jsonl", "parquet"])
def test_a_run_makes_no_series_of_each_column(tmp_path, monkeypatch, suffix):
    row = {f"column_{place}": place if place % 2 else f"text {place}" for place in range(1_000)}
    (tmp_path / "a.jsonl").write_text(5 * (json.dumps(row) + "\n"))
    pq.write_table(pa.Table.from_pylist([row] * 5), tmp_path / "a.parquet")
    read, write = (read_jsonl, write_jsonl) if suffix == "jsonl" else (read_parquet, write_parquet)
    made, sliced = [], pd.DataFrame._constructor_sliced_from_mgr  # pandas makes each Series of a column with it
    with inline_cluster():
        monkeypatch.setattr(
            pd.DataFrame,
            "_constructor_sliced_from_mgr",
            lambda *args, **kwargs: made.append(1) or sliced(*args, **kwargs),
        )
        receipt = write(read(tmp_path / f"a.{suffix}"), tmp_path / "out")
    assert receipt.rows_written == 5
    assert len(made) < 1_000


@pytest.mark.parametrize("count", [1, 20])
def test_wide_blocks_become_the_same_table(monkeypatch, count):
    columns = [
        pd.Series(["a", None], dtype="string[pyarrow]"),
        pd.Series(["a", None], dtype="string[python]"),
        pd.Series([1, None], dtype="Int64"),
        pd.Series([1.5, np.nan]),
        pd.Series([1.5, np.nan], dtype=pd.ArrowDtype(pa.float64())),
        pd.Series([True, False]),
        pd.Series(["a", None], dtype="category"),
        pd.Series([{"a": [1]}, None], dtype=pd.ArrowDtype(pa.struct([("a", pa.list_(pa.int8()))]))),
        pd.Series([pd.Timestamp(0, tz="UTC"), None]),
        pd.Series([pd.Timestamp(0), None]),
        pd.Series([pd.Period("2020-01", "M"), None]),
        pd.Series([pd.Interval(0, 1), None]),
        pd.Series([["a", "list"], None], dtype=object),
    ]
    block = pd.DataFrame({f"column {place}": column for place, column in enumerate(columns * count)})
    schema = pa.Schema.from_pandas(block, preserve_index=False).remove_metadata()
    expected = pa.Table.from_pandas(block, schema=schema, preserve_index=False)
    assert output.to_table(block, schema).equals(expected)
    assert block_bytes(block) == block.memory_usage(index=False).sum() + 16
    with pytest.raises(SchemaError, match="other columns than it declared"):
        output.to_table(block.assign(**{"column 2": ["text", None]}), schema)


def test_many_columns_are_written_as_they_were_read(tmp_path):
    row = {f"column_{place}": place if place % 2 else f"text {place}" for place in range(2_000)}
    (tmp_path / "a.jsonl").write_text(5 * (json.dumps(row) + "\n"))
    with inline_cluster():
        write_jsonl(read_jsonl(tmp_path / "a.jsonl"), tmp_path / "out")
    (written,) = (tmp_path / "out").glob("part-*")
    assert [json.loads(line) for line in written.read_text().splitlines()] == [row] * 5


def content_defined_parts(content):
    """Return digests of the parts of a file, which ends a part where its last 32 bytes say so, and their sizes."""
    numbers = np.frombuffer(content, np.uint8).astype(np.uint64)
    hashes = np.zeros(len(numbers), np.uint64)
    for back in range(32):
        hashes[back:] += numbers[: len(numbers) - back] * np.uint64(pow(0x9E3779B97F4A7C15, back + 1, 1 << 64))
    cuts = np.flatnonzero(hashes >> np.uint64(55) == 0).tolist()
    return {content[start:stop]: stop - start for start, stop in zip([0, *cuts], [*cuts, len(content)], strict=True)}


def test_two_versions_of_a_table_have_most_bytes_in_common_with_content_defined_chunking(tmp_path):
    pick = np.random.default_rng(3)
    words = ["".join(map(chr, pick.integers(97, 123, 6))) for _ in range(5_000)]
    rows = [{"id": n, "text": " ".join(words[place] for place in pick.integers(5_000, size=60))} for n in range(6_000)]
    common = {}
    with inline_cluster(memory="2GB", cpus=1):
        for name, version in (("old", rows), ("new", [*rows[:40], {"id": -1, "text": "a new row"}, *rows[40:]])):
            (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in version))
        for cdc in (False, True):
            parts = []
            for name in ("old", "new"):
                docs, out = read_jsonl(tmp_path / f"{name}.jsonl"), tmp_path / f"{name}-{cdc}"
                write_parquet(docs, out, cdc=cdc)
                (file,) = out.glob("*.parquet")
                assert pq.read_table(file)["id"].to_pylist()[-1] == 5_999
                parts.append(content_defined_parts(file.read_bytes()))
            old, new = parts
            common[cdc] = sum(size for part, size in new.items() if part in old) / sum(new.values())
    assert common[True] > 0.6 > 0.2 > common[False]


def test_resuming_in_another_format_names_both(tmp_path):
    (tmp_path / "in.jsonl").write_text('{"id": 1, "text": "a"}\n')
    docs = read_jsonl(tmp_path / "in.jsonl")
    with inline_cluster(memory="2GB", cpus=1):
        write_parquet(docs, tmp_path / "out")
        with pytest.raises(ResumeError, match=r"out: the output's format changed from 'parquet' to 'jsonl'\."):
            write_jsonl(docs, tmp_path / "out", on_existing="resume")
        write_jsonl(docs, tmp_path / "lines")
        with pytest.raises(ResumeError, match=r"the output option compression changed from 'none' to 'gzip'\."):
            write_jsonl(docs, tmp_path / "lines", compression="gzip", on_existing="resume")


def test_content_defined_chunking_is_checked_and_part_of_the_run(tmp_path, monkeypatch):
    (tmp_path / "in.jsonl").write_text('{"id": 1, "text": "a"}\n')
    docs, options, opened = read_jsonl(tmp_path / "in.jsonl"), {}, pq.ParquetWriter.__init__

    @functools.wraps(opened)
    def noted(self, *given, **how):
        options.update(how)
        opened(self, *given, **how)

    monkeypatch.setattr(pq.ParquetWriter, "__init__", noted)
    with inline_cluster(memory="2GB", cpus=1):
        write_parquet(docs, tmp_path / "out", cdc=True)
        with pytest.raises(ResumeError, match="the output option cdc changed from True to False"):
            write_parquet(docs, tmp_path / "out", on_existing="resume")
        for write in (
            lambda **how: write_parquet(docs, tmp_path / "other", **how),
            lambda **how: write_many({tmp_path / "other": docs}, **how),
            lambda **how: write_by(docs, tmp_path / "other", partition_on="id", **how),
        ):
            with pytest.raises(ParameterError, match="cdc='yes' must be True or False"):
                write(cdc="yes")
            options.clear()
            write(cdc=True, on_existing="overwrite")
            assert options["use_content_defined_chunking"]
    monkeypatch.setattr(pq.ParquetWriter, "__init__", lambda self, where, schema: None)
    with pytest.raises(
        MissingExtraError, match=r"cdc=True needs pyarrow 21 or newer, but pyarrow .* pip install 'pyarrow>=21'"
    ):
        write_parquet(docs, tmp_path / "old", cdc=True)
