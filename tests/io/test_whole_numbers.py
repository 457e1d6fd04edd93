# SPDX-License-Identifier: Apache-2.0
import json
import math

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from curator_df.errors import SchemaError
from curator_df.io.csv.reader import read_csv
from curator_df.io.jsonl.reader import read_jsonl
from curator_df.io.jsonl.schema import HEAD_ROWS
from curator_df.io.parquet.reader import read_parquet

BIG = 2**53 + 1
TEXT = "long " * 200
SHAPES = ["%s", "[%s]", '{"x": %s}', "[[], null, [0.25, %s]]", '{"m": [{"x": %s}, {}]}']
AT_SHAPES = pytest.mark.parametrize("shape", SHAPES)


def rows(folder, values, **options):
    """Read one row for each value, after as many rows with a fraction as decide on the types."""
    lines = [f'{{"a": {values[0]}, "text": "{TEXT}"}}']
    lines += [f'{{"a": {value}}}' for value in [*[values[0]] * HEAD_ROWS, *values[1:]]]
    (folder / "a.jsonl").write_text("\n".join(lines))
    return read_jsonl(folder, **options).compute()["a"].iloc[1 + HEAD_ROWS :]


@AT_SHAPES
@pytest.mark.parametrize("number", [str(BIG), str(-BIG), str(2**64 + 1), "1" * 309, "7" * 400, "7" * 5000])
def test_a_whole_number_that_would_lose_digits_makes_a_bad_row(tmp_path, shape, number):
    values = [shape % "0.5", shape % "1.5", shape % number, shape % "2.5"]
    with pytest.raises(
        SchemaError, match=rf"line {HEAD_ROWS + 3:,} .*column 'a': float64 cannot hold .* exactly.*dtype="
    ):
        rows(tmp_path, values)
    with pytest.warns(UserWarning, match=f"1 bad row was skipped.*line {HEAD_ROWS + 3:,} .*float64 cannot hold"):
        kept = rows(tmp_path, values, on_bad_rows="quarantine")
    assert len(kept) == 2


@AT_SHAPES
@pytest.mark.parametrize(
    "number", ["9007199254740992", "1e300", "9007199254740993.0", "1" + "0" * 22, "NaN", "Infinity", "-Inf"]
)
def test_numbers_that_keep_their_digits_or_have_a_fraction_are_read(tmp_path, shape, number):
    assert len(rows(tmp_path, [shape % "0.5", shape % number])) == 1


def test_only_columns_of_float64_count(tmp_path):
    (tmp_path / "a.jsonl").write_text(f'{{"id": {BIG}, "score": 0.5, "big": 1e300}}\n')
    assert read_jsonl(tmp_path).compute()["id"].tolist() == [BIG]


def test_a_type_that_the_user_gives_rounds_or_keeps_digits(tmp_path):
    (tmp_path / "a.jsonl").write_text(f'{{"a": {BIG}}}\n{{"a": 0.5}}\n')
    assert read_jsonl(tmp_path, dtype={"a": "float64"}).compute()["a"].tolist() == [float(BIG), 0.5]
    assert read_jsonl(tmp_path, dtype={"a": "string"}).compute()["a"].tolist() == [str(BIG), "0.5"]


FLOAT32 = {"%s": pa.float32(), "[%s]": pa.list_(pa.float32()), '{"x": %s}': pa.struct([("x", pa.float32())])}


@pytest.mark.parametrize("shape", FLOAT32)
@pytest.mark.parametrize("number", ["1e39", "-1e300", "3.5e38", f"1{'0' * 60}", f"1{'0' * 600}"])
def test_a_number_beyond_float32_is_a_bad_row(tmp_path, shape, number):
    rows = ("0.1", number, "3.4e38", "Infinity", "null")
    (tmp_path / "a.jsonl").write_text("".join(f'{{"row": {n}, "a": {shape % text}}}\n' for n, text in enumerate(rows)))
    with pytest.warns(UserWarning, match="1 bad row was skipped.*line 2 .*(float32 cannot hold|too big)"):
        found = read_jsonl(tmp_path, dtype={"a": FLOAT32[shape]}, on_bad_rows="quarantine").compute()
    assert found["row"].tolist() == [0, 2, 3, 4]


@pytest.mark.parametrize("shape", FLOAT32)
def test_a_number_of_parquet_beyond_float32_is_refused(tmp_path, shape):
    rows = [json.loads(shape % text) for text in ("0.1", "1e39", "Infinity")]
    pq.write_table(pa.table({"a": rows}), tmp_path / "a.parquet")
    with pytest.raises(SchemaError, match=r"a value does not fit .*: a number is beyond its largest one"):
        read_parquet(tmp_path, dtype={"a": FLOAT32[shape]}).compute()
    pq.write_table(pa.table({"a": rows[::2]}), tmp_path / "a.parquet")
    assert len(read_parquet(tmp_path, dtype={"a": FLOAT32[shape]}).compute()) == 2


PAIR = pa.struct([("name", pa.string()), ("score", pa.float64()), ("rank", pa.float64())])
SCORE = pa.struct([("score", pa.float32())])
REORDERED = pa.struct([("rank", pa.float32()), ("new", pa.float32()), ("score", pa.float32()), ("name", pa.string())])
NARROWED = {
    "fewer fields": (lambda n: {"name": "x", "score": n, "rank": 0.5}, PAIR, SCORE),
    "another order": (lambda n: {"name": "x", "score": n, "rank": 0.5}, PAIR, REORDERED),
    "fewer fields in a list": (lambda n: [{"name": "x", "score": n}], pa.list_(PAIR), pa.large_list(SCORE)),
    "another order in a list": (lambda n: [{"name": "x", "score": n}], pa.list_(PAIR), pa.list_(REORDERED)),
    "fixed size": (lambda n: [0.5, n], pa.list_(pa.float64(), 2), pa.list_(pa.float32(), 2)),
    "map": (lambda n: [("x", n)], pa.map_(pa.string(), pa.float64()), pa.map_(pa.string(), pa.float32())),
    "map of structs": (lambda n: [("x", {"score": n})], pa.map_(pa.string(), PAIR), pa.map_(pa.string(), SCORE)),
    "map to list": (
        lambda n: [("x", n)],
        pa.map_(pa.string(), pa.float64()),
        pa.list_(pa.struct([("k", pa.string()), ("v", pa.float32())])),
    ),
}


@pytest.mark.parametrize("case", NARROWED)
def test_numbers_inside_values_of_parquet_are_refused_only_beyond_a_smaller_float(tmp_path, case):
    value, held, kind = NARROWED[case]
    rows = pa.array([value(1.5), None, value(math.inf)], held)
    pq.write_table(pa.table({"a": rows}), tmp_path / "a.parquet")
    found = read_parquet(tmp_path, dtype={"a": kind}).compute()["a"]
    assert pa.array(found).to_pylist() == rows.cast(kind).to_pylist()
    pq.write_table(pa.table({"a": pa.array([value(1.5), None, value(1e39)], held)}), tmp_path / "a.parquet")
    with pytest.raises(SchemaError, match=r"a value does not fit .*: a number is beyond its largest one"):
        read_parquet(tmp_path, dtype={"a": kind}).compute()


@pytest.mark.parametrize("kind", [None, "float64", "float32", "float16"])
def test_a_number_of_csv_that_would_be_infinite_is_a_bad_row(tmp_path, kind):
    (tmp_path / "a.csv").write_text("row,a\n0,0.5\n1,1e400\n2,-1e400\n3,-Infinity\n4,\n")
    with pytest.warns(
        UserWarning, match=f"2 bad rows .*line 3 .*'1e400' is beyond the largest number of {kind or 'float64'}"
    ):
        found = read_csv(tmp_path, dtype=kind and {"a": kind}, on_bad_rows="quarantine").compute()
    assert found["row"].tolist() == [0, 3, 4]


@pytest.mark.parametrize("shape", ["%s", "[%s]", '{"x": %s}'])
@pytest.mark.parametrize("numbers", [("0.5", BIG), (BIG, "0.5"), (2**64 - 1, -1), (-1, 2**64 - 1), ("0.5", 2**64 - 1)])
def test_the_first_of_two_numbers_without_a_common_type_is_kept(tmp_path, shape, numbers):
    (tmp_path / "a.jsonl").write_text("".join(f'{{"row": {row}, "a": {shape % n}}}\n' for row, n in enumerate(numbers)))
    with pytest.raises(SchemaError, match="whole number"):
        read_jsonl(tmp_path)
    with pytest.warns(UserWarning, match="1 bad row was skipped.*line 2 "):
        assert read_jsonl(tmp_path, on_bad_rows="quarantine").compute()["row"].tolist() == [0]


def test_a_number_beside_lists_that_are_too_deep_to_look_into_is_a_bad_row(tmp_path):
    deep = "[" * 5000 + "]" * 5000
    (tmp_path / "a.jsonl").write_text(f'{{"a": 0.5}}\n{{"a": {BIG}, "m": {deep}}}\n')
    with pytest.warns(UserWarning, match="line 2 .*nests too deep to tell whether all its digits were kept"):
        assert len(read_jsonl(tmp_path, columns="a", on_bad_rows="quarantine").compute()) == 1
