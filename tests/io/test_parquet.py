# SPDX-License-Identifier: Apache-2.0
import decimal
import json
import os

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from curator_df.core.host_blocks import pandas_block
from curator_df.core.ranges.source import OFFSET_BITS, among
from curator_df.errors import ColumnError, CorruptFileError, OversizeRowError, ParameterError, SchemaError
from curator_df.io import frames
from curator_df.io.jsonl.reader import read_jsonl
from curator_df.io.parquet import footers
from curator_df.io.parquet import reader as parquet
from curator_df.io.parquet.reader import read_parquet


def write(path, columns, **kwargs):
    pq.write_table(pa.table(columns), path, **kwargs)
    return path


def source_of(df):
    return df.expr.operand("func").source


def all_blocks(source, piece_bytes=10**12, block_bytes=10**6, **kwargs):
    ranges = source.cut(piece_bytes)
    return [
        block
        for number in range(len(ranges))
        for block in source.blocks(ranges[number], block_bytes=block_bytes, **kwargs)
    ]


def test_text_numbers_and_addresses(tmp_path):
    write(tmp_path / "a.parquet", {"id": [2**53 + 1, None], "text": ["é", None]})
    write(tmp_path / "b.parquet", {"id": [3], "text": ["x"]})
    df = read_parquet(tmp_path)
    block = df.compute()
    assert block.index.tolist() == [0, 1, 1 << OFFSET_BITS]
    assert block["id"].tolist() == [2**53 + 1, pd.NA, 3]
    assert block["text"].tolist() == ["é", pd.NA, "x"]
    assert block.dtypes["text"] == pd.StringDtype("pyarrow")
    assert block.dtypes.to_dict() == df.dtypes.to_dict()


def test_nested_null_and_dictionary_columns(tmp_path):
    columns = {
        "list": pa.array([[1, None], None]),
        "struct": pa.array([{"a": "x"}, {"a": None}]),
        "null": pa.nulls(2),
        "coded": pa.array(["x", "y"]).dictionary_encode(),
        "time": pa.array([1, 2], pa.timestamp("us", "UTC")),
    }
    write(tmp_path / "a.parquet", columns)
    block = read_parquet(tmp_path).compute()
    types = {name: str(pa.Array.from_pandas(block[name]).type) for name in columns}
    assert types == {
        "list": "list<element: int64>",
        "struct": "struct<a: string>",
        "null": "null",
        "coded": "large_string",
        "time": "timestamp[us, tz=UTC]",
    }
    assert block["coded"].tolist() == ["x", "y"]


@given(
    lengths=st.lists(st.integers(0, 30), min_size=1, max_size=3),
    row_group_size=st.integers(1, 10),
    piece_bytes=st.integers(1, 100_000),
    block_bytes=st.integers(1, 3000),
)
def test_any_cut_and_block_size_give_every_row_once(
    tmp_path_factory, lengths, row_group_size, piece_bytes, block_bytes
):
    folder = tmp_path_factory.mktemp("any")
    for number, length in enumerate(lengths):
        texts = [f"{number} {row} " + "x" * (row % 7 * 30) for row in range(length)]
        columns = {"n": pa.array(range(length), pa.int64()), "t": pa.array(texts, pa.string())}
        write(folder / f"{number}.parquet", columns, row_group_size=row_group_size)
    blocks = all_blocks(source_of(read_parquet(folder)), piece_bytes, block_bytes)
    rows = [(number, row) for number, length in enumerate(lengths) for row in range(length)]
    assert [index for block in blocks for index in block.index] == [(file << OFFSET_BITS) + row for file, row in rows]
    assert [text.split()[:2] for block in blocks for text in block["t"]] == [
        [str(file), str(row)] for file, row in rows
    ]


def test_a_row_group_larger_than_a_piece_is_split_by_rows(tmp_path):
    texts = [f"{row:03d}" * 100 for row in range(1000)]
    write(tmp_path / "a.parquet", {"t": texts}, use_dictionary=False, compression="none")
    ranges = source_of(read_parquet(tmp_path)).cut(100_000)
    assert [(piece.start, piece.stop) for piece in ranges] == [(0, 250), (250, 500), (500, 750), (750, 1000)]


def test_a_text_held_once_for_many_rows_streams_in_small_blocks(tmp_path):
    write(tmp_path / "a.parquet", {"t": ["x" * 10_000] * 5000})
    blocks = all_blocks(source_of(read_parquet(tmp_path)), block_bytes=100_000)
    assert sum(map(len, blocks)) == 5000
    assert max(map(len, blocks)) <= 10


def test_a_row_that_is_too_large_is_named(tmp_path):
    write(tmp_path / "a.parquet", {"t": ["a", "b" * 100_000, "c"]})
    source = source_of(read_parquet(tmp_path))
    assert [len(block) for block in all_blocks(source, block_bytes=1000)] == [1, 1, 1]
    with pytest.raises(
        OversizeRowError, match=r"a\.parquet', row 2: the row has 100,0\d\d bytes, but only 5,000 fit"
    ) as error:
        all_blocks(source, block_bytes=1000, largest_row_bytes=5000)
    assert (error.value.line, error.value.offset) == (2, 1)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "is empty, which a Parquet file never is"),
        (b"garbage", "is not Parquet but text"),
        (b"PAR1" + b"x" * 50 + b"PAR1", "is not a readable Parquet file"),
    ],
)
def test_what_is_no_parquet_file_is_named(tmp_path, data, said):
    (tmp_path / "a.parquet").write_bytes(data)
    with pytest.raises(CorruptFileError, match=rf"a\.parquet' {said}"):
        read_parquet(tmp_path)


def test_damage_inside_a_file_is_named(tmp_path):
    path = write(tmp_path / "a.parquet", {"t": [f"{row} text" for row in range(10_000)]}, use_dictionary=False)
    df = read_parquet(path)
    data = bytearray(path.read_bytes())
    data[100:5000] = bytes(4900)
    listed = path.stat()
    path.write_bytes(data)
    os.utime(path, ns=(listed.st_atime_ns, listed.st_mtime_ns))  # as a disk damages it, and nobody who writes
    with pytest.raises(CorruptFileError, match=r"a\.parquet'"):
        df.compute()


def test_types_are_widened_and_missing_columns_are_null(tmp_path):
    write(tmp_path / "a.parquet", {"x": pa.array([1], pa.int32()), "n": pa.nulls(1)})
    write(tmp_path / "b.parquet", {"x": pa.array([2**40]), "n": ["s"], "only_b": [True]})
    block = read_parquet(tmp_path).compute()
    assert block["x"].tolist() == [1, 2**40]
    assert block["n"].tolist() == [pd.NA, "s"]
    assert block["only_b"].tolist() == [pd.NA, True]


def test_types_that_do_not_go_together_are_an_error_at_the_door(tmp_path):
    write(tmp_path / "a.parquet", {"x": [1]})
    write(tmp_path / "b.parquet", {"x": ["s"]})
    with pytest.raises(SchemaError, match=r"'x' has the type int64 in .*a\.parquet' and .*string in .*b\.parquet'"):
        read_parquet(tmp_path)
    assert read_parquet(tmp_path, dtype={"x": "string"}).compute()["x"].tolist() == ["1", "s"]
    with pytest.raises(SchemaError, match=r"b\.parquet'.*does not fit int64"):
        read_parquet(tmp_path, dtype={"x": "int64"}).compute()


EXACT, ROUNDED = decimal.Decimal("9007199254740993.5"), 0.5


@pytest.mark.parametrize("wrapped", [lambda value: value, lambda value: [value], lambda value: {"in": [value]}])
@pytest.mark.parametrize("first", [EXACT, ROUNDED])
@pytest.mark.parametrize("seen", [True, False])
def test_decimals_do_not_become_floats_because_another_file_has_them(tmp_path, monkeypatch, wrapped, first, seen):
    second = EXACT if first is ROUNDED else ROUNDED
    values = [first, second, first] if seen else [first, second, first, first]
    monkeypatch.setattr(footers, "ALL_FOOTERS", len(values) if seen else 2)
    monkeypatch.setattr(footers, "SPREAD_FOOTERS", 2)
    for number, value in enumerate(values):
        write(tmp_path / f"{number}.parquet", {"x": [wrapped(value), None]})
    with pytest.raises(SchemaError, match=r"'x' has the type .*(decimal|double).* in .*0\.parquet' and .*1\.parquet'"):
        read_parquet(tmp_path).compute()


def test_decimals_of_other_widths_and_whole_numbers_are_widened(tmp_path):
    for number, value in enumerate([decimal.Decimal("0.25"), decimal.Decimal(12345678901234567890), 7]):
        write(tmp_path / f"{number}.parquet", {"x": [value]})
    assert read_parquet(tmp_path).compute()["x"].tolist() == [decimal.Decimal("0.25"), 12345678901234567890, 7]


def test_floats_become_decimals_only_with_all_digits(tmp_path):
    write(tmp_path / "a.parquet", {"x": [0.5, None]})
    assert read_parquet(tmp_path, dtype={"x": pa.decimal128(5, 1)}).compute()["x"].tolist()[0] == decimal.Decimal("0.5")
    with pytest.raises(SchemaError, match=r"a\.parquet': the column 'x' has .*does not fit decimal128\(5, 0\)"):
        read_parquet(tmp_path, dtype={"x": pa.decimal128(5, 0)}).compute()


@pytest.mark.parametrize(
    ("column", "message"),
    [
        ("x", r"'x' has the type int64 in .*0\.parquet' and .*string in .*1\.parquet'"),
        ("y", r"1\.parquet' has the column 'y'.*columns="),
    ],
)
def test_what_was_not_seen_at_the_door_is_an_error_later(tmp_path, monkeypatch, column, message):
    monkeypatch.setattr(footers, "ALL_FOOTERS", 2)
    monkeypatch.setattr(footers, "SPREAD_FOOTERS", 2)
    for number in range(3):
        write(tmp_path / f"{number}.parquet", {"x": [1]} | ({column: ["s"]} if number == 1 else {}))
    df = read_parquet(tmp_path)
    with pytest.raises(SchemaError, match=message):
        df.compute()
    if column == "y":
        assert len(read_parquet(tmp_path, columns=["x"]).compute()) == 3


def test_columns_source_and_projection(tmp_path):
    path = write(tmp_path / "a.parquet", {"a": [1, 2, 3], "b": ["x", "y", "z"]}, row_group_size=2)
    block = read_parquet(path, columns="b", add_source=True).compute()
    assert block.columns.tolist() == ["b", "source_file", "source_line"]
    assert block["source_line"].tolist() == [1, 2, 3]
    assert set(block["source_file"]) == {str(path)}
    assert read_parquet(path, add_source=True)["source_line"].compute().tolist() == [1, 2, 3]
    with pytest.raises(ColumnError, match=r"has 'text', which is not in the files\. They have: 'a', 'b'"):
        read_parquet(path, columns=["text"])
    with pytest.raises(ColumnError, match="would overwrite the column 'source_line'"):
        read_parquet(write(tmp_path / "b.parquet", {"source_line": [1]}), add_source=True)


def test_few_files_larger_than_a_piece_are_split_and_many_are_not(tmp_path, monkeypatch):
    for number in range(3):
        write(tmp_path / f"{number}.parquet", {"t": ["x" * 100, "y" * 100]}, row_group_size=1)
    source = source_of(read_parquet(tmp_path))
    assert len(source.cut(10)) == 6
    monkeypatch.setattr(parquet, "MOST_FOOTERS", 2)
    assert len(source.cut(10)) == 3


def test_files_per_partition(tmp_path):
    for number in range(5):
        write(tmp_path / f"{number}.parquet", {"n": [number]})
    df = read_parquet(tmp_path, files_per_partition=2)
    assert df.npartitions == 3
    assert df.compute()["n"].tolist() == list(range(5))
    with pytest.raises(ParameterError, match="read_parquet: set blocksize or files_per_partition, not both"):
        read_parquet(tmp_path, files_per_partition=2, blocksize=5)


@pytest.mark.parametrize("wanted", [[], [0, 4, 5], [1, 2, 3, 6]])
def test_rows_that_are_not_wanted_are_left_out(tmp_path, wanted):
    write(tmp_path / "a.parquet", {"id": [0, 1, 2, 3], "text": list("abcd")}, row_group_size=2)
    write(tmp_path / "b.parquet", {"id": [4, 5, 6], "text": list("efg")})
    source = source_of(read_parquet(tmp_path))
    rows = pd.concat(all_blocks(source))
    chosen = rows[rows["id"].isin(wanted)]
    found = all_blocks(source, block_bytes=20, wanted=among(chosen.index.to_numpy()))
    pd.testing.assert_frame_equal(pd.concat([rows.iloc[:0], *found]), chosen)


def test_two_columns_of_one_name_are_an_error(tmp_path):
    pq.write_table(pa.Table.from_arrays([pa.array([1]), pa.array([2])], ["n", "n"]), tmp_path / "a.parquet")
    with pytest.raises(SchemaError, match=r"a\.parquet' has 2 columns named 'n'"):
        read_parquet(tmp_path)


@pytest.mark.parametrize("inside", ["the column", "a list", "a map", "an object"])
@pytest.mark.parametrize("is_later", [False, True], ids=["first file", "later file"])
def test_two_fields_of_one_name_are_an_error_and_other_columns_are_read(tmp_path, monkeypatch, inside, is_later):
    def nested(*names):
        values = pa.StructArray.from_arrays([pa.array([number]) for number, _ in enumerate(names)], names=[*names])
        if inside == "a list":
            return pa.ListArray.from_arrays([0, 1], values)
        if inside == "a map":
            return pa.MapArray.from_arrays([0, 1], ["key"], values)
        return pa.StructArray.from_arrays([values], names=["deep"]) if inside == "an object" else values

    monkeypatch.setattr(footers, "ALL_FOOTERS", 1)
    monkeypatch.setattr(footers, "SPREAD_FOOTERS", 1)
    for place, names in enumerate([["a", "b"], ["a", "a"]] if is_later else [["a", "a"]]):
        pq.write_table(pa.table({"id": [place], "meta": nested(*names)}), tmp_path / f"{place}.parquet")
    said = rf"{len(list(tmp_path.iterdir())) - 1}\.parquet' has a column 'meta' whose objects have two fields named 'a'.*columns="
    with pytest.raises(SchemaError, match=said):
        read_parquet(tmp_path).compute()
    assert read_parquet(tmp_path, columns=["id"]).compute()["id"].tolist() == list(range(1 + is_later))


def test_types_of_columns_that_are_not_read_do_not_matter(tmp_path):
    pq.write_table(pa.table({"id": [1], "meta": ["text"]}), tmp_path / "a.parquet")
    pq.write_table(pa.table({"id": [2], "meta": [[1]]}), tmp_path / "b.parquet")
    with pytest.raises(SchemaError, match="'meta'"):
        read_parquet(tmp_path)
    assert read_parquet(tmp_path, columns=["id"]).compute()["id"].tolist() == [1, 2]
    assert read_parquet(tmp_path, columns="id").compute()["id"].tolist() == [1, 2]


def wide(columns):
    """Return a table with many columns and two rows."""
    return {f"c{place}": [place, place + 1] for place in range(columns)}


def test_thousands_of_columns_are_read_in_little_memory(tmp_path):
    path = write(tmp_path / "a.parquet", wide(3000))
    source = source_of(read_parquet(path))
    pool = pa.default_memory_pool()
    before = pool.bytes_allocated()
    with footers.open_parquet(source.listing, 0, names=source.schema.names) as file:
        batches = file.iter_batches(1, columns=source.schema.names, use_threads=False)
        assert next(batches).num_columns == 3000
        assert pool.bytes_allocated() - before < 150_000_000  # 256 kB for each were 770 MB
    assert read_parquet(path).compute().iloc[1].tolist() == list(range(1, 3001))


def test_a_block_without_rows_has_the_types_of_one_with_rows(tmp_path):
    fields = {
        "number": pa.int16(),
        "text": pa.string(),
        "long": pa.large_string(),
        "list": pa.list_(pa.int8()),
        "object": pa.struct([("day", pa.date32())]),
        "time": pa.timestamp("us", "UTC"),
        "kind": pa.dictionary(pa.int32(), pa.string()),
        "nothing": pa.null(),
        "share": pa.float32(),
        "again": pa.float32(),
        "is": pa.bool_(),
        "price": pa.decimal128(5, 2),
    }
    schema = pa.schema(fields)
    expected = pandas_block(schema.empty_table())
    expected.index = pd.Index([], dtype="int64", name="address")
    for _ in range(2):
        found = frames.empty_block(schema)
        pd.testing.assert_frame_equal(found, expected)
        found["number"] = "text"  # changes neither another column nor the next block
        found["again"] += 1
        assert found["share"].dtype == "Float32"
    assert frames.empty_block(pa.schema([])).shape == (0, 0)


def test_too_many_columns_are_refused_with_the_number(tmp_path, monkeypatch):
    path = write(tmp_path / "a.parquet", wide(30))
    (tmp_path / "a.jsonl").write_text(json.dumps(wide(30)) + "\n")
    monkeypatch.setattr(frames, "MOST_COLUMNS", 29)
    for read, file in ((read_parquet, path), (read_jsonl, tmp_path / "a.jsonl")):
        with pytest.raises(
            SchemaError, match=f"{read.__name__}: the files have 30 columns, but a table can have 29.*columns="
        ):
            read(file)
        assert read(file, columns=["c1", "c2"]).compute().shape[1] == 2


def test_names_of_columns_are_not_looked_for_one_by_one():
    class Schema:
        asked = 0

        @property
        def names(self):
            self.asked += 1
            return ["a", "b", "c"]

    schema = Schema()
    assert frames.chosen_columns(schema, ["a", "b", "c"], "read_parquet") == ["a", "b", "c"]
    assert schema.asked <= 2
