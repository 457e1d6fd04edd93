# SPDX-License-Identifier: Apache-2.0
import bz2
import gzip
import json
import lzma
import pickle
import warnings

import fsspec
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

import curator_df as cdf
from curator_df.core.planning.lowering import ReadPartition
from curator_df.core.ranges.source import OFFSET_BITS, Range, among
from curator_df.errors import (
    BadRowError,
    ColumnError,
    CorruptFileError,
    InputError,
    OversizeRowError,
    ParameterError,
    SchemaError,
)
from curator_df.io.jsonl.reader import read_jsonl
from tests.core.runner.fake_client import inline_cluster


def write(folder, **files):
    """Write each file, named ``name_jsonl`` -> ``name.jsonl``."""
    for name, data in files.items():
        (folder / name.replace("_", ".")).write_bytes(data.encode() if isinstance(data, str) else data)
    return folder


def source_of(df):
    return df.expr.operand("func").source


def values(df, column="text"):
    return df.compute()[column].to_list()


def all_blocks(source, piece_bytes=10**12, block_bytes=10**6, **kwargs):
    return [
        block for piece in map(source.cut(piece_bytes).__getitem__, range(len(source.cut(piece_bytes))))
        for block in source.blocks(piece, block_bytes=block_bytes, **kwargs)
    ]  # fmt: skip


def test_text_ids_and_addresses(tmp_path):
    write(
        tmp_path, a_jsonl='{"id":1,"text":"one"}\n{"id":2,"text":null}\n', b_jsonl='{"id":9007199254740993,"text":"é"}'
    )
    block = read_jsonl(tmp_path).compute()
    assert block.index.tolist() == [0, 22, 1 << OFFSET_BITS]
    assert block.index.name == "address"
    assert block["id"].tolist() == [1, 2, 9007199254740993]
    assert block["text"].tolist() == ["one", pd.NA, "é"]
    assert block.dtypes["text"] == pd.StringDtype("pyarrow")


def test_building_computes_nothing_and_the_meta_is_what_comes(tmp_path):
    write(tmp_path, a_jsonl='{"i":1,"f":1.5,"b":true,"s":"x","l":[1,null],"o":{"k":["y"]},"n":null}\n')
    df = read_jsonl(tmp_path)
    block = df.compute()
    assert block.dtypes.to_dict() == df.dtypes.to_dict()
    types = pa.Table.from_pandas(block, preserve_index=False).schema
    assert [str(types.field(name).type) for name in "lo"] == ["list<item: int64>", "struct<k: list<item: string>>"]
    assert block.dtypes["n"] == pd.StringDtype("pyarrow")


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ("", []),
        ("\n \n\t\r\n", []),
        ('{"text":"a"}', ["a"]),
        ('{"text":"a"}\r\n\r\n{"text":"b"}\r\n', ["a", "b"]),
        ('  {"text":"a"}  \n' + " " * 50 + '{"text":"b"}' + " " * 50, ["a", "b"]),
        ('\ufeff{"text":"a"}\n', ["a"]),
        ('{"text":"a\u2028b\x85c\x7f"}\n{"text":"d"}', ["a\u2028b\x85c\x7f", "d"]),
        ('{"text":"a\\u000bb\\u000cc\\n\\u0000"}', ["a\x0bb\x0cc\n\x00"]),
        ('{"text":"\\ud83d\\ude00 漢"}', ["😀 漢"]),
        ("{}\n{}", [pd.NA, pd.NA]),
    ],
)
def test_what_lines_hold(tmp_path, data, expected):
    write(tmp_path, a_jsonl=data)
    assert values(read_jsonl(tmp_path, dtype={"text": "string"})) == expected


GOOD = b'{"id": 1, "text": "good"}'


def test_types_of_several_files_are_unified(tmp_path):
    write(
        tmp_path, a_jsonl='{"x": 1, "n": null, "only_a": true}', b_jsonl='{"x": 2.5, "n": [1]}', c_jsonl='{"n": null}'
    )
    block = read_jsonl(tmp_path).compute()
    assert block["x"].tolist() == [1.0, 2.5, pd.NA]
    assert block["only_a"].tolist() == [True, pd.NA, pd.NA]
    assert str(block.dtypes["n"]) == "list<item: int64>[pyarrow]"


def test_a_name_in_dtype_that_is_almost_one_of_the_columns_is_told(tmp_path):
    write(tmp_path, a_jsonl='{"id": 1, "text": "s"}')
    with pytest.warns(UserWarning, match=r"dtype has 'txt', .* Did you mean 'text'\?") as told:
        rows = read_jsonl(tmp_path, dtype={"id": "string", "txt": "string"})
    assert told[0].filename == __file__
    assert list(rows.columns) == ["id", "text", "txt"]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        read_jsonl(tmp_path, dtype={"text": "string", "texts": "string", "score": "float64"})


def test_types_that_do_not_go_together_are_an_error_at_the_door(tmp_path):
    write(tmp_path, a_jsonl='{"x": 1}', b_jsonl='{"x": "s"}')
    message = r"the column 'x' has int64 in .*a\.jsonl' and string in .*b\.jsonl'\. .*dtype={'x': \.\.\.}"
    with pytest.raises(SchemaError, match=message):
        read_jsonl(tmp_path)
    with pytest.warns(UserWarning, match="1 bad row was"):
        assert len(read_jsonl(tmp_path, dtype={"x": "int64"}, on_bad_rows="quarantine").compute()) == 1
    assert read_jsonl(tmp_path, dtype={"x": "string"}).compute()["x"].tolist() == ["1", "s"]


def test_columns_choose_and_order(tmp_path):
    write(tmp_path, a_jsonl='{"a": 1, "b": 2, "c": "x"}', b_jsonl='{"a": "mixed", "b": 3}')
    block = read_jsonl(tmp_path, columns=["c", "b"]).compute()
    assert list(block.columns) == ["c", "b"]
    assert (block["c"].tolist(), block["b"].tolist()) == (["x", pd.NA], [2, 3])
    with pytest.raises(
        ColumnError, match=r"columns= has 'text', which is not in the files. They have: 'a', 'b', 'c'\. .*dtype="
    ):
        read_jsonl(tmp_path, columns=["text"])
    assert read_jsonl(tmp_path, columns="text", dtype={"text": "string"}).compute()["text"].tolist() == [pd.NA, pd.NA]


def test_a_projection_is_read_by_the_source_alone(tmp_path):
    write(tmp_path, a_jsonl='{"a": 1, "b": 2}\n{"a": 3, "b": 4}')
    df = read_jsonl(tmp_path, add_source=True)
    assert df[["b"]].optimize().compute().to_dict("list") == {"b": [2, 4]}
    assert df["source_line"].compute().tolist() == [1, 2]
    selected = source_of(df).select(["source_file", "a"])
    assert list(selected.meta.columns) == ["a", "source_file"]


@pytest.mark.parametrize(
    ("alias", "value", "expected"),
    [("int32", 5, 5), ("float64", 5, 5.0), ("timestamp[ms]", "2020-01-02", pd.Timestamp("2020-01-02")),
     (pa.string(), "x", "x"), ("bool", True, True)],
)  # fmt: skip
def test_dtype_sets_the_type(tmp_path, alias, value, expected):
    write(tmp_path, a_jsonl=json.dumps({"x": value}))
    assert read_jsonl(tmp_path, dtype={"x": alias}).compute()["x"].tolist() == [expected]


def test_a_string_that_looks_like_a_date_stays_a_string(tmp_path):
    write(tmp_path, a_jsonl='{"x": "2020-01-02T00:00:00Z"}')
    assert values(read_jsonl(tmp_path), "x") == ["2020-01-02T00:00:00Z"]


def test_source_file_and_line_across_cuts(tmp_path):
    write(tmp_path, a_jsonl='\n{"t": 1}\n\n{"t": 2}\n' + '{"t": 3}\n' * 20, b_jsonl='{"t": 4}\n{"t": 5}')
    df = read_jsonl(tmp_path, add_source=True, blocksize=30)
    block = df.compute()
    assert block["source_line"].tolist() == [2, *range(4, 25), 1, 2]
    assert block["source_file"].tolist() == [str(tmp_path / "a.jsonl")] * 22 + [str(tmp_path / "b.jsonl")] * 2
    backwards = [df.partitions[number].compute() for number in reversed(range(df.npartitions))]
    assert pd.concat(backwards[::-1]).equals(block)


def test_source_columns_may_not_clash(tmp_path):
    write(tmp_path, a_jsonl='{"source_file": 1}')
    with pytest.raises(ColumnError, match="add_source=True would overwrite the column 'source_file'"):
        read_jsonl(tmp_path, add_source=True)


@pytest.mark.parametrize("suffix", ["gz", "zst"])
def test_compressed_files_are_read_whole_and_streamed(tmp_path, suffix):
    compress = {"gz": gzip.compress, "zst": zstandard.compress}[suffix]
    text = b"".join(b'{"text":"%d"}\n' % number for number in range(1000))
    (tmp_path / f"a.jsonl.{suffix}").write_bytes(compress(text[:500]) + compress(text[500:]))
    df = read_jsonl(tmp_path, blocksize=500)
    assert len(df.expr.operand("func").ranges) == 1
    assert df.npartitions > 4
    assert df.compute()["text"].tolist() == [str(number) for number in range(1000)]
    blocks = all_blocks(source_of(df), 100, 1000)
    assert len(blocks) > 10
    assert [value for block in blocks for value in block["text"]] == [str(number) for number in range(1000)]
    (tmp_path / f"a.jsonl.{suffix}").write_bytes(compress(text)[:-9])
    with pytest.raises(CorruptFileError, match="decompressed bytes could be read"):
        read_jsonl(tmp_path, dtype={"text": "string"}, columns=["text"]).compute()


def test_five_thousand_tiny_files_are_few_partitions(tmp_path):
    for number in range(5000):
        (tmp_path / f"{number:04d}.jsonl").write_text(f'{{"n": {number}}}')
    df = read_jsonl(tmp_path)
    assert df.npartitions == 3
    block = df.compute()
    assert block["n"].tolist() == list(range(5000))
    assert (block.index == [number << OFFSET_BITS for number in range(5000)]).all()
    assert read_jsonl(tmp_path, files_per_partition=2000).npartitions == 3


def test_one_line_longer_than_the_block_is_a_block_of_its_own(tmp_path):
    write(tmp_path, a_jsonl='{"t":"a"}\n{"t":"' + "x" * 3_000_000 + '"}\n{"t":"b"}\n')
    source = source_of(read_jsonl(tmp_path, dtype={"t": "string"}))
    blocks = all_blocks(source, block_bytes=1000, largest_row_bytes=4_000_000)
    assert [[len(value) for value in block["t"]] for block in blocks] == [[1], [3_000_000], [1]]
    with pytest.raises(OversizeRowError, match=r"line 2 \(byte 10\): the row has 3,000,008 bytes") as caught:
        all_blocks(source, block_bytes=1000, largest_row_bytes=2_000_000)
    assert (caught.value.line, caught.value.offset, caught.value.row_bytes) == (2, 10, 3_000_008)
    with pytest.raises(OversizeRowError, match="row has 3,000,008 bytes"):
        all_blocks(source, block_bytes=10**7, largest_row_bytes=2_000_000)


def test_a_first_row_longer_than_the_head_gives_its_fields(tmp_path):
    write(tmp_path, a_jsonl='{"id": 7, "tags": ["a"], "text": "' + "y" * 1_500_000 + '"}\n')
    df = read_jsonl(tmp_path)
    assert list(df.columns) == ["id", "tags", "text"]
    assert df.compute()["text"].str.len().tolist() == [1_500_000]


def test_short_lines_make_more_blocks(tmp_path):
    write(tmp_path, a_jsonl="{}\n" * 10_000 + "\n" * 10_000 + '{"t":"x"}\n')
    source = source_of(read_jsonl(tmp_path, dtype={"t": "string"}))
    blocks = all_blocks(source, block_bytes=40_000)
    assert sum(map(len, blocks)) == 10_001
    assert max(map(len, blocks)) <= 2 * 40_000 // 57


@pytest.mark.parametrize("name", ["a[1].jsonl", "sp ace.jsonl", "new\nline.jsonl", "ü漢😀.jsonl", "*.jsonl"])
def test_weird_names(tmp_path, name):
    (tmp_path / name).write_text('{"t": 1}')
    assert read_jsonl(tmp_path / name, add_source=True).compute()["source_file"].tolist() == [str(tmp_path / name)]


def test_a_name_that_is_not_utf8_is_shown_escaped(tmp_path):
    with open(bytes(tmp_path) + b"/\xff.jsonl", "wb") as file:
        file.write(b'{"t": 1}')
    assert values(read_jsonl(tmp_path, add_source=True), "source_file") == [f"{tmp_path}/\\xff.jsonl"]


def test_urls(tmp_path):
    fsspec.filesystem("memory").pipe_file("/jsonl/a.jsonl", b'{"t": 1}\n{"t": 2}\n{"t": 3}\n')
    df = read_jsonl("memory://jsonl/*.jsonl", blocksize=10)
    assert df.npartitions == 3
    assert values(df, "t") == [1, 2, 3]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"blocksize": 5, "files_per_partition": 1}, "blocksize or files_per_partition, not both"),
        ({"blocksize": "many"}, "blocksize='many' is not a number of bytes"),
        ({"blocksize": 0}, "blocksize=0 must be more than zero bytes"),
        (
            {"files_per_partition": 10**30},
            r"files_per_partition=[\d_]+ is more than the 8,388,608 files that a table can have",
        ),
        ({"files_per_partition": 0}, "files_per_partition=0 must be a whole number of 1 or more"),
        ({"on_bad_rows": "skip"}, "on_bad_rows='skip' is not one of 'raise', 'quarantine'"),
        ({"dtype": {"x": "texty"}}, r"dtype= of the column 'x': 'texty' is not a type"),
        ({"columns": ["t", "t"]}, "has a column twice"),
    ],
)
def test_wrong_arguments_are_refused_at_the_door(tmp_path, arguments, message):
    write(tmp_path, a_jsonl='{"t": 1}')
    with pytest.raises(ParameterError, match=message):
        read_jsonl(tmp_path, **arguments)


def test_nothing_there_is_an_error(tmp_path):
    with pytest.raises(InputError, match="does not exist"):
        read_jsonl(tmp_path / "no.jsonl")


def test_a_file_that_holds_no_row_is_an_error_at_the_door(tmp_path):
    write(tmp_path, a_json='\n[{"t": 1},\n{"t": 2}]\n')
    message = r"a\.json', line 2 \(byte 1\): it is not one JSON object on one line: the file is a JSON array; .*jq -c '\.\[\]'.*"
    message += r"No valid row was found at the start of 1 file\. read_jsonl needs one JSON object on each line: correct the input"
    for on_bad_rows in ("raise", "quarantine"):
        with pytest.raises(BadRowError, match=message):
            read_jsonl(tmp_path, on_bad_rows=on_bad_rows)


def test_the_dask_expression_shows_what_is_read(tmp_path):
    write(tmp_path, a_jsonl='{"t": 1}')
    reader = read_jsonl(tmp_path, blocksize="1MB").expr.operand("func")
    assert isinstance(reader, ReadPartition)
    assert (reader.block_bytes, reader.explicit, reader.ranges[0]) == (1_000_000, True, Range(0, 0, 0, 0, 8))
    assert not read_jsonl(tmp_path).expr.operand("func").explicit
    assert pickle.loads(pickle.dumps(reader.source)).fingerprint == reader.source.fingerprint


def test_the_fingerprint_follows_what_is_read(tmp_path):
    write(tmp_path, a_jsonl='{"t": 1, "u": 2}')
    prints = [
        source_of(read_jsonl(tmp_path, **arguments)).fingerprint
        for arguments in ({}, {"columns": ["t"]}, {"dtype": {"t": "float64"}}, {"add_source": True}, {"blocksize": 9})
    ]
    assert len(set(prints)) == 4
    assert prints[0] == prints[4]


JSON = st.dictionaries(st.sampled_from(["i", "f", "s", "l", "o"]), st.nothing(), max_size=0) | st.fixed_dictionaries(
    {},
    optional={
        "i": st.none() | st.integers(-(2**63), 2**63 - 1),
        "f": st.none() | st.floats(allow_nan=False, allow_infinity=False),
        "s": st.none() | st.text(st.characters(exclude_categories=["Cs"])),
        "l": st.none() | st.lists(st.none() | st.text("ab\n\u2028", max_size=3), max_size=3),
        "o": st.none() | st.fixed_dictionaries({"k": st.none() | st.booleans()}),
    },
)
TYPES = {
    "i": "int64", "f": "float64", "s": "string", "l": pa.list_(pa.string()), "o": pa.struct([("k", pa.bool_())]),
}  # fmt: skip


@given(
    files=st.lists(
        st.lists(st.tuples(JSON, st.booleans(), st.sampled_from(["\n", "\r\n", "\n\n", " \n"]))), min_size=1, max_size=3
    ),
    last_line_end=st.booleans(),
    piece_bytes=st.integers(1, 300),
    block_bytes=st.integers(1, 300),
)
def test_any_cut_and_block_size_give_every_row_once(tmp_path_factory, files, last_line_end, piece_bytes, block_bytes):
    folder = tmp_path_factory.mktemp("any")
    expected, addresses = [], []
    for number, lines in enumerate(files):
        data = b""
        for row, escaped, end in lines:
            addresses.append((number << OFFSET_BITS) + len(data))
            expected.append({name: row.get(name) for name in TYPES})
            data += json.dumps(row, ensure_ascii=escaped).encode() + end.encode()
        (folder / f"{number}.jsonl").write_bytes(data if last_line_end else data.rstrip())
    source = source_of(read_jsonl(folder, columns=list(TYPES), dtype=TYPES))
    blocks = all_blocks(source, piece_bytes, block_bytes)
    assert [address for block in blocks for address in block.index] == addresses
    found = [row for block in blocks for row in pa.Table.from_pandas(block, preserve_index=False).to_pylist()]
    assert found == expected


def test_reading_leaks_no_warning(tmp_path):
    write(tmp_path, a_jsonl=GOOD)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        read_jsonl(tmp_path, add_source=True).head()


@given(st.sets(st.integers(0, 30)), st.sampled_from([40, 200, 10**6]))
def test_rows_that_are_not_wanted_are_passed_over(tmp_path_factory, wanted, block_bytes):
    folder = tmp_path_factory.mktemp("in")
    lines = [json.dumps({"id": number, "text": "é\u2028" * (number % 7)}) + "\n\n" for number in range(31)]
    write(folder, a_jsonl="".join(lines[:20]), b_jsonl="".join(lines[20:]))
    source = source_of(read_jsonl(folder))
    rows = pd.concat(all_blocks(source, block_bytes=block_bytes))
    chosen = rows[rows["id"].isin(wanted)]
    found = all_blocks(source, block_bytes=block_bytes, wanted=among(chosen.index.to_numpy()))
    pd.testing.assert_frame_equal(pd.concat([rows.iloc[:0], *found]), chosen)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (gzip.compress(b"{}", mtime=0), r"rename it so that its name ends in \.gz"),
        (b"\x28\xb5\x2f\xfd rest", r"rename it so that its name ends in \.zst"),
        (b"PAR1 rest", "read it with read_parquet"),
    ],
)
def test_another_format_under_the_name_of_json_lines_is_told_by_its_first_bytes(tmp_path, data, message):
    (tmp_path / "a.jsonl").write_bytes(data)
    with pytest.raises(BadRowError, match=message):
        read_jsonl(tmp_path)


@pytest.mark.parametrize("suffix", ["gz", "zst", "bz2", "xz"])
def test_data_after_the_compressed_data_is_one_bad_row_and_the_rows_are_kept(tmp_path, suffix):
    rows = b"".join(b'{"text": "row %d"}\n' % number for number in range(3_000))
    folder = tmp_path / "in"
    folder.mkdir()
    pack = {"gz": gzip.compress, "zst": zstandard.compress, "bz2": bz2.compress, "xz": lzma.compress}[suffix]
    packed = pack(rows)
    for name in ("a", "b"):
        (folder / f"{name}.jsonl.{suffix}").write_bytes(packed + b"# written by hand\n" * (name == "a"))
    with pytest.raises(CorruptFileError, match=r"other data follows the compressed data .*on_bad_rows='quarantine'"):
        read_jsonl(folder).compute()
    table = read_jsonl(folder, on_bad_rows="quarantine")
    with inline_cluster():
        receipt = cdf.write_parquet(table, tmp_path / "out")
    assert (receipt.rows_written, receipt.rows_quarantined) == (6_000, 1)
    (file,) = (tmp_path / "out" / "_quarantine").iterdir()
    (record,) = map(json.loads, file.read_text().splitlines())
    assert record == {
        "file": str(folder / f"a.jsonl.{suffix}"),
        "offset": len(rows),
        "reason": f"18 bytes of other data follow the compressed data, from byte {len(packed):,} of the file on",
        "raw": "# written by han",
    }
    with pytest.warns(UserWarning, match="other data follow the compressed data"):
        assert len(table.compute()) == 6_000


@pytest.mark.parametrize(
    ("count", "suffix", "said"), [(200_000, "", "at least "), (30_000, "", ""), (30_000, ".gz", "at least ")]
)
def test_columns_of_a_row_are_counted_only_where_it_was_read_whole(tmp_path, count, suffix, said):
    row = json.dumps({f"k{place}": 0 for place in range(count)}).encode()
    (tmp_path / f"a.jsonl{suffix}").write_bytes(gzip.compress(row) if suffix else row)
    number = r"\d\d,\d\d\d" if said and not suffix else f"{count:,}"
    with pytest.raises(SchemaError, match=f"the files have {said}{number} columns, but a table can have 20,000"):
        read_jsonl(tmp_path)


@pytest.mark.parametrize("every", [1, 2, 7, 1_000])
def test_lines_that_are_left_out_need_not_be_parseable(tmp_path, every):
    lines = [json.dumps({"n": number, "more": [number]}) if number % every == 0 else "{]}" for number in range(500)]
    (tmp_path / "a.jsonl").write_text("".join(f" {line} \n\n" for line in lines))
    source = cdf.read_jsonl(tmp_path / "a.jsonl", dtype={"n": "int64"}, columns=["n"]).expr.operand("func").source
    starts = np.cumsum([0, *(len(line) + 4 for line in lines)])[:-1]
    found = pd.concat(source.blocks(source.cut(10**9)[0], block_bytes=2_000, wanted=among(starts[::every])))
    assert found["n"].tolist() == list(range(0, 500, every))
    assert found.index.tolist() == starts[::every].tolist()
