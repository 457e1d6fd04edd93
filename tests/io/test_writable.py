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


@pytest.mark.parametrize("folder", [None, 5, b"/tmp/x", "", "a\0b", ["a"]])
def test_what_is_no_folder_to_write_to_is_refused(tmp_path, folder):
    df = table(tmp_path, {"text": ["a"]})
    for write in (cdf.write_parquet, cdf.write_jsonl):
        with pytest.raises(ParameterError, match="is not a folder to write to"):
            write(df, folder)
        if folder is not None:
            with pytest.raises(ParameterError, match="is not a folder to write to"):
                write(df, tmp_path / "out", rejects=folder)
