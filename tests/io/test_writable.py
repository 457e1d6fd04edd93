# SPDX-License-Identifier: Apache-2.0
import datetime as dt
import io

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import curator_df as cdf
from curator_df.errors import ColumnError, ParameterError, SchemaError
from curator_df.io.write import JsonlFormat


def table(tmp_path, columns):
    pq.write_table(pa.table(columns), tmp_path / "a.parquet")
    return cdf.read_parquet(tmp_path / "a.parquet")


@pytest.mark.parametrize("kind", [pa.binary(), pa.list_(pa.binary())])
def test_bytes_are_refused_as_json(tmp_path, kind):
    df = table(tmp_path, {"text": ["a"], "raw": pa.nulls(1, kind)})
    with pytest.raises(SchemaError, match=r"'raw' holds .*bytes have no place in JSON Lines.*write_parquet"):
        cdf.write_jsonl(df, tmp_path / "out")


def test_objects_without_fields_are_refused_as_parquet(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"text": "a", "m": {}}\n')
    with pytest.raises(SchemaError, match=r"'m' holds struct<>.*write_jsonl"):
        cdf.write_parquet(cdf.read_jsonl(tmp_path / "a.jsonl"), tmp_path / "out")


@pytest.mark.parametrize("write", [cdf.write_parquet, cdf.write_jsonl])
def test_no_columns_and_columns_of_one_name_are_refused(tmp_path, write):
    df = table(tmp_path, {"text": ["a"], "url": ["b"]})
    with pytest.raises(ColumnError, match=r"2 columns named 'text'"):
        write(df.rename(columns={"url": "text"}), tmp_path / "out")
    with pytest.raises(ColumnError, match=r"no columns"):
        write(df[[]], tmp_path / "out")


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (pa.timestamp("ns"), '"2024-01-02T03:04:05"'),
        (pa.timestamp("us", "UTC"), '"2024-01-02T03:04:05+00:00"'),
        (pa.date32(), '"2024-01-02"'),
    ],
)
def test_times_are_written_as_iso_8601(kind, text):
    file = io.BytesIO()
    time = dt.datetime(2024, 1, 2, 3, 4, 5)
    rows = pa.table({"t": pa.array([time if pa.types.is_timestamp(kind) else time.date()], kind)})
    JsonlFormat("none").open(file, rows.schema).write(rows)
    assert file.getvalue().decode() == f'{{"t":{text}}}\n'


def nested(levels, wrap):
    """Return a type with so many levels."""
    kind = pa.int64()
    for _ in range(levels - 1):
        kind = pa.list_(kind) if wrap == "list" else pa.struct([("a", kind)])
    return kind


def deep_lines(path, levels):
    """Write JSON Lines with a column of so many levels."""
    path.write_text('{"text": "a", "deep": ' + "[" * (levels - 1) + "1" + "]" * (levels - 1) + "}\n")
    return cdf.read_jsonl(path)


@pytest.fixture(scope="module")
def cluster():
    """Return a running cluster."""
    with cdf.start_cluster(memory="1GB", cpus=1) as running:
        yield running


@pytest.mark.parametrize(("wrap", "levels"), [("struct", 99), ("list", 50)])
def test_the_deepest_columns_that_parquet_can_have_are_written_and_read(tmp_path, cluster, wrap, levels):
    (tmp_path / "in").mkdir()
    df = table(tmp_path / "in", {"text": ["a"], "deep": pa.nulls(1, nested(levels, wrap))})
    cdf.write_parquet(df, tmp_path / "out")
    assert pq.read_table(tmp_path / "out").num_rows == len(cdf.read_parquet(tmp_path / "out")) == 1


def test_columns_nested_too_deeply_for_parquet_are_refused(tmp_path):
    df = deep_lines(tmp_path / "a.jsonl", 51)
    message = r"write_parquet: the column 'deep' is nested 101 levels deep, but Parquet can have 99.*write_jsonl"
    with pytest.raises(SchemaError, match=message):
        cdf.write_parquet(df, tmp_path / "out")
    with pytest.raises(SchemaError, match="'deep' is nested 101 levels deep"):
        cdf.write_many({str(tmp_path / "out"): df})
    with pytest.raises(SchemaError, match=r"write_jsonl, rejects=: the column 'deep' is nested 101 levels deep"):
        cdf.write_jsonl(df, tmp_path / "out", rejects=tmp_path / "rejects")
    with pytest.raises(SchemaError, match="'deep' is nested 101 levels deep"):
        cdf.shuffle_rows(df, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_columns_nested_too_deeply_for_rows_in_another_order_are_refused(tmp_path):
    df = table(tmp_path, {"text": ["a"], "deep": pa.nulls(1, nested(65, "struct"))})
    with pytest.raises(SchemaError, match=r"shuffle_rows: the column 'deep' is nested 65 levels deep.* can have 64"):
        cdf.shuffle_rows(df, tmp_path / "out")


def test_json_columns_nested_too_deeply_for_a_table_are_refused(tmp_path, cluster):
    with pytest.raises(SchemaError, match=r"'deep' holds lists or objects nested more than 100 levels deep in line 1"):
        deep_lines(tmp_path / "a.jsonl", 103)
    assert len(cdf.read_jsonl(tmp_path / "a.jsonl", columns=["text"]).compute()) == 1
    cdf.write_jsonl(deep_lines(tmp_path / "b.jsonl", 100), tmp_path / "out")
    assert b"[" * 99 in next((tmp_path / "out").glob("*.jsonl")).read_bytes()


@pytest.mark.parametrize("folder", [None, 5, b"/tmp/x", "", "a\0b", ["a"]])
def test_what_is_no_folder_to_write_to_is_refused(tmp_path, folder):
    df = table(tmp_path, {"text": ["a"]})
    for write in (cdf.write_parquet, cdf.write_jsonl):
        with pytest.raises(ParameterError, match="is not a folder to write to"):
            write(df, folder)
        if folder is not None:
            with pytest.raises(ParameterError, match="is not a folder to write to"):
                write(df, tmp_path / "out", rejects=folder)
