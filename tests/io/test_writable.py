# SPDX-License-Identifier: Apache-2.0
import datetime as dt
import io
import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import curator_df as cdf
from curator_df.errors import ColumnError, CorruptFileError, ParameterError, SchemaError
from curator_df.io.output.formats import JsonlFormat
from curator_df.io.output.writable import require_types
from tests.core.runner.fake_client import inline_cluster


def table(tmp_path, columns):
    pq.write_table(pa.table(columns), tmp_path / "a.parquet")
    return cdf.read_parquet(tmp_path / "a.parquet")


@pytest.mark.parametrize("kind", [pa.binary(), pa.list_(pa.binary())])
def test_bytes_are_refused_as_json(tmp_path, kind):
    df = table(tmp_path, {"text": ["a"], "raw": pa.nulls(1, kind)})
    with pytest.raises(SchemaError, match=r"'raw' has .*bytes have no place in JSON Lines.*write_parquet"):
        cdf.write_jsonl(df, tmp_path / "out")


OPAQUE = pa.opaque(pa.binary(), "geometry", "vendor")


def test_bytes_of_an_extension_type_are_refused_as_json(tmp_path):
    df = table(tmp_path, {"id": ["a"], "raw": pa.ExtensionArray.from_storage(OPAQUE, pa.array([b"b"]))})
    with pytest.raises(
        SchemaError, match=r"'raw' has .*arrow\.opaque.*bytes have no place in JSON Lines.*write_parquet"
    ):
        cdf.write_jsonl(df, tmp_path / "out")


@pytest.mark.parametrize(
    ("kind", "value", "text"),
    [
        (pa.uuid(), b"0123456789abcdef", '"30313233-3435-3637-3839-616263646566"'),
        (pa.opaque(pa.string(), "name", "vendor"), "b", '"b"'),
    ],
)
def test_extension_types_with_a_text_are_written_as_json(tmp_path, kind, value, text):
    values = pa.ExtensionArray.from_storage(kind, pa.array([value], kind.storage_type))
    require_types(pa.schema([("c", kind)]), "write_jsonl", is_parquet=False)
    file = io.BytesIO()
    JsonlFormat("none").open(file, pa.schema([("c", kind)])).write(pa.table({"c": values}))
    assert file.getvalue().decode() == f'{{"c":{text}}}\n'


def test_objects_without_fields_are_refused_as_parquet(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"text": "a", "m": {}}\n')
    with pytest.raises(SchemaError, match=r"'m' has the type struct<>.*write_jsonl"):
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


YEAR_10000, YEAR_BEFORE_0 = 253_402_300_800, -62_198_755_200
"""Seconds since 1970."""


@pytest.mark.parametrize(
    ("kind", "values", "texts"),
    [
        (pa.timestamp("s"), [YEAR_10000, YEAR_BEFORE_0], ["+10000-01-01T00:00:00", "-0001-01-01T00:00:00"]),
        (pa.timestamp("s", "UTC"), [YEAR_10000, 0], ["+10000-01-01T00:00:00+00:00", "1970-01-01T00:00:00+00:00"]),
        (
            pa.timestamp("s", "Asia/Tokyo"),
            [YEAR_10000, 0],
            ["+10000-01-01T00:00:00+00:00", "1970-01-01T09:00:00+09:00"],
        ),
        (pa.timestamp("ms"), [YEAR_10000 * 1000 + 5], ["+10000-01-01T00:00:00.005000"]),
        (
            pa.timestamp("us"),
            [YEAR_10000 * 10**6 + 5, 5],
            ["+10000-01-01T00:00:00.000005", "1970-01-01T00:00:00.000005"],
        ),
        (pa.timestamp("us"), [2**63 - 1], ["+294247-01-10T04:00:54.775807"]),
        (
            pa.timestamp("ns"),
            [2**63 - 1, -(2**63) + 1],
            ["2262-04-11T23:47:16.854775807", "1677-09-21T00:12:43.145224193"],
        ),
        (pa.date32(), [2_932_897, -719_529, 2**31 - 1], ["+10000-01-01", "-0001-12-31", "+5881580-07-11"]),
        (pa.date64(), [2_932_897 * 86_400_000, 0], ["+10000-01-01", "1970-01-01"]),
        (pa.duration("s"), [2**62, -1, 0], ["53375995583650 days, 7:45:04", "-1 day, 23:59:59", "0:00:00"]),
        (pa.duration("ms"), [2**62], ["53375995583 days, 15:36:27.904000"]),
        (
            pa.time64("ns"),
            [1, 86_399 * 10**9 + 999_999_999, 5_000],
            ["00:00:00.000000001", "23:59:59.999999999", "00:00:00.000005"],
        ),
    ],
)
def test_times_that_python_cannot_hold_are_written_exactly(kind, values, texts):
    integer = pa.int32() if kind == pa.date32() else pa.int64()
    flat = pa.array([*values, None], integer).cast(kind)
    wrapped = {
        "flat": (flat, [*texts, None]),
        "lists": (pa.ListArray.from_arrays([0, len(flat)], flat), [[*texts, None]]),
        "fixed": (pa.FixedSizeListArray.from_arrays(flat, len(flat)), [[*texts, None]]),
        "structs": (pa.StructArray.from_arrays([flat], ["t"]), [{"t": text} for text in (*texts, None)]),
        "maps": (
            pa.MapArray.from_arrays([0, len(flat)], [str(place) for place in range(len(flat))], flat),
            [[[str(place), text] for place, text in enumerate((*texts, None))]],
        ),
        "dictionary": (flat.dictionary_encode(), [*texts, None]),
    }
    for array, expected in wrapped.values():
        file = io.BytesIO()
        rows = pa.table({"id": range(len(array)), "t": array})
        JsonlFormat("none").open(file, rows.schema).write(rows)
        written = [json.loads(line) for line in file.getvalue().splitlines()]
        assert written == [{"id": place, "t": value} for place, value in enumerate(expected)]


def test_folders_are_named_by_dates_that_python_cannot_hold(tmp_path):
    days = pa.array([2_932_897, 0, None], pa.int32()).cast(pa.date32())
    df = table(tmp_path, {"text": ["a", "b", "c"], "day": days})
    with inline_cluster():
        cdf.write_jsonl(df, tmp_path / "out", partition_on="day")
    found = sorted(path.name for path in (tmp_path / "out").glob("day=*"))
    assert [name.replace("%2B", "+") for name in found][:2] == ["day=+10000-01-01", "day=1970-01-01"]


def nested(levels, wrap):
    """Return a type with so many levels."""
    kind = pa.int64()
    for _ in range(levels - 1):
        wraps = {"list": pa.list_(kind), "map": pa.map_(pa.string(), kind), "struct": pa.struct([("a", kind)])}
        kind = wraps[wrap]
    return kind


def deep_lines(path, levels):
    """Write JSON Lines with a column of so many levels."""
    path.write_text('{"text": "a", "deep": ' + "[" * (levels - 1) + "1" + "]" * (levels - 1) + "}\n")
    return cdf.read_jsonl(path)


@pytest.fixture(scope="module")
def cluster():
    """Return a running cluster."""
    with inline_cluster("700MB", 1) as running:
        yield running


@pytest.mark.parametrize(("wrap", "levels"), [("struct", 99), ("list", 50), ("map", 50)])
def test_the_deepest_columns_that_parquet_can_have_are_written_and_read(tmp_path, cluster, wrap, levels):
    (tmp_path / "in").mkdir()
    df = table(tmp_path / "in", {"text": ["a"], "deep": pa.nulls(1, nested(levels, wrap))})
    cdf.write_parquet(df, tmp_path / "out")
    assert pq.read_table(tmp_path / "out").num_rows == len(cdf.read_parquet(tmp_path / "out")) == 1


def test_a_file_whose_columns_are_nested_too_deeply_says_how_to_write_it_again(tmp_path):
    pq.write_table(pa.table({"deep": pa.nulls(1, nested(51, "list"))}), tmp_path / "a.parquet")
    with pytest.raises(
        CorruptFileError, match=r"too deeply nested.* Write it again with columns that have fewer levels"
    ):
        cdf.read_parquet(tmp_path)


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
    with pytest.raises(
        SchemaError, match=r"shuffle_rows: the column 'deep' is nested 65 levels deep.* can store only 64"
    ):
        cdf.shuffle_rows(df, tmp_path / "out")


def test_json_columns_nested_too_deeply_for_a_table_are_refused(tmp_path, cluster):
    with pytest.raises(SchemaError, match=r"'deep' has lists or objects nested more than 100 levels deep in line 1"):
        deep_lines(tmp_path / "a.jsonl", 103)
    assert len(cdf.read_jsonl(tmp_path / "a.jsonl", columns=["text"]).compute()) == 1
    cdf.write_jsonl(deep_lines(tmp_path / "b.jsonl", 100), tmp_path / "out")
    assert b"[" * 99 in next((tmp_path / "out").glob("*.jsonl")).read_bytes()


@pytest.mark.parametrize("folder", [None, 5, b"/tmp/x", "", "a\0b", ["a"]])
def test_what_is_no_folder_to_write_to_is_refused(tmp_path, folder):
    df = table(tmp_path, {"text": ["a"]})
    for write in (cdf.write_parquet, cdf.write_jsonl):
        with pytest.raises(ParameterError, match="is not a valid output folder"):
            write(df, folder)
        if folder is not None:
            with pytest.raises(ParameterError, match="is not a valid output folder"):
                write(df, tmp_path / "out", rejects=folder)
