# SPDX-License-Identifier: Apache-2.0
"""`read_csv`: the rows that Python's csv module finds, for any size of blocks; types; bad rows; damaged files."""

import csv
import gzip
import io
import os
import random
import re
import types

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import zstandard
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import curator_df as cdf
from curator_df import errors
from curator_df.core.ranges.source import OFFSET_BITS, among
from curator_df.io.csv import blocks
from curator_df.io.csv.columns import converted, infer_types, parse
from curator_df.io.csv.records import Dialect, RecordReader, TooLong
from curator_df.io.formats import latin_1
from tests.core.runner.fake_client import inline_cluster
from tests.examples import examples

COMMA = Dialect(",", '"')


@pytest.fixture(scope="module")
def cluster():
    with inline_cluster(memory="1.5GB", cpus=2) as running:
        yield running


class Stream:
    """Bytes as an open file."""

    def __init__(self, data):
        self._file = io.BytesIO(data)
        self.readinto, self.seek = self._file.readinto, self._file.seek

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass


def records_of(data, block_bytes, *, most=100, limit=None, path="a.csv"):
    """Return (bytes, fields, fault, offset, line) of each record."""
    found = []
    reader = RecordReader(
        path, lambda: Stream(data), COMMA, block_bytes=block_bytes, most_records=most, largest_row_bytes=limit
    )
    for piece in reader.pieces():
        if isinstance(piece, TooLong):
            found.append((piece.size, piece.offset, piece.lines))
            continue
        for number, (start, stop) in enumerate(zip(piece.starts[:-1], piece.starts[1:], strict=True)):
            lines = piece.lines + piece.data[:start].tobytes().count(b"\n")
            fault, fields = int(piece.faults[number]), int(piece.fields[number])
            found.append((piece.data[start:stop].tobytes(), fields, fault, int(piece.offset + start), lines))
    return found


def read(path, *, block_bytes=10**6, largest=None, wanted=None, **arguments):
    """Return the rows of all blocks, and the bad rows."""
    source = cdf.read_csv(path, **arguments).expr.operand("func").source
    bad, long = [], []
    blocks = [
        block
        for piece in source.cut(10**12)
        for block in source.blocks(
            piece,
            block_bytes=block_bytes,
            largest_row_bytes=largest,
            on_bad_row=bad.append,
            on_long_row=long.append,
            wanted=wanted,
        )
    ]
    assert all(len(block) for block in blocks)
    return pd.concat(blocks) if blocks else source.meta, bad, long


MARKS = st.sampled_from([b",", b'"', b"\n", b"\r", b"a", b'""', b'"a,\nb"', "é".encode()])


@settings(max_examples=examples(200), deadline=None)
@given(st.lists(MARKS, max_size=30).map(b"".join), st.integers(3, 12), st.integers(1, 3))
def test_records_do_not_depend_on_blocks_and_are_those_of_the_csv_module(data, block_bytes, most):
    whole = records_of(data, 10_000)
    assert records_of(data, block_bytes, most=most) == whole
    assert b"".join(record[0] for record in whole) == data
    if not any(record[2] for record in whole):
        rows = list(csv.reader(io.StringIO(data.decode(), newline="")))
        assert [record[1] for record in whole] == [len(row) or 1 for row in rows]


@settings(max_examples=examples(100), deadline=None)
@given(st.lists(MARKS, max_size=30).map(b"".join), st.integers(3, 6))
def test_records_that_are_too_long_leave_the_others_as_they_are(data, limit):
    whole = records_of(data, 10_000)
    for found, record in zip(records_of(data, 3, limit=limit), whole, strict=True):
        size = len(record[0])
        is_skipped = len(found) == 3
        assert found[-2:] == record[-2:]
        assert found[0] == (size if is_skipped else record[0])
        assert not is_skipped or size > limit or record[2] == 2


TEXTS = st.one_of(st.none(), st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=12))


@settings(max_examples=examples(80), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    rows=st.lists(st.tuples(st.integers(-(2**63), 2**63 - 1), TEXTS, st.booleans()), min_size=1, max_size=20),
    block_bytes=st.integers(3, 200),
    quoting=st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_NONNUMERIC, csv.QUOTE_ALL]),
    line_end=st.sampled_from(["\n", "\r\n", "\r"]),
    delimiter=st.sampled_from([",", "\t", ";"]),
    packing=st.sampled_from(["", ".gz", ".zst"]),
)
def test_what_the_csv_module_writes_is_read(rows, block_bytes, quoting, line_end, delimiter, packing, tmp_path):
    if quoting == csv.QUOTE_MINIMAL:  # in which the module quotes no line ends other than its own
        rows = [(number, text and " ".join(text.split("\r")).replace("\n", " "), truth) for number, text, truth in rows]
    written = io.StringIO(newline="")
    writer = csv.writer(written, quoting=quoting, lineterminator=line_end, delimiter=delimiter)
    writer.writerows([("n", "text", "yes"), *rows])
    data = written.getvalue().encode()
    packed = {"": bytes, ".gz": gzip.compress, ".zst": zstandard.compress}[packing](data)
    path = tmp_path / f"a.csv{packing}"
    path.write_bytes(packed)
    dtype = {"text": "string"}
    found, bad, _ = read(path, block_bytes=block_bytes, delimiter=delimiter, dtype=dtype)
    assert not bad
    assert found["n"].tolist() == [number for number, _, _ in rows]
    assert found["yes"].tolist() == [truth for _, _, truth in rows]
    expected = [text or None for _, text, _ in rows]
    assert [None if pd.isna(text) or not text else text for text in found["text"]] == expected
    starts = np.array([record[3] for record in records_in(data, delimiter)][1:])
    assert (found.index.to_numpy() == starts).all()
    wanted = found.index.to_numpy()[::2]
    some, _, _ = read(path, block_bytes=block_bytes, delimiter=delimiter, dtype=dtype, wanted=among(wanted))
    pd.testing.assert_frame_equal(some, found.iloc[::2])


def records_in(data, delimiter):
    reader = RecordReader("a.csv", lambda: Stream(data), Dialect(delimiter, '"'), block_bytes=10_000, most_records=100)
    for piece in reader.pieces():
        for start in piece.starts[:-1].tolist():
            yield None, None, None, piece.offset + start


def test_an_empty_field_is_null_and_an_empty_text_in_quotes_is_not(tmp_path):
    (tmp_path / "a.csv").write_text('n,text\n1,\n2,""\n"",x\n')
    found, _, _ = read(tmp_path / "a.csv")
    assert found["text"].isna().tolist() == [True, False, False]
    assert found["text"].tolist()[1:] == ["", "x"]
    assert found["n"].tolist() == [1, 2, pd.NA]


def test_a_byte_order_mark_and_blank_lines_are_skipped(tmp_path):
    (tmp_path / "a.csv").write_bytes(b"\xef\xbb\xbf\n\r\n\nid,n\r\n\r\n1,2\n\n3,4")
    found, bad, _ = read(tmp_path / "a.csv", block_bytes=3, add_source=True)
    assert (found["id"].tolist(), found["n"].tolist(), bad) == ([1, 3], [2, 4], [])
    assert found["source_line"].tolist() == [6, 8]
    assert found.index.tolist() == [15, 20]


def test_types_are_those_of_json_and_whole_numbers_are_never_rounded(tmp_path):
    head = "whole,unsigned,large,digits,real,mixed,truth,date,zip\n"
    rows = [
        "1,18446744073709551615,18446744073709551616,9007199254740993,1.5,1,true,2024-01-01,007",
        "-2,0,0,0.5,-2e3,x,False,2024-01-02,123",
    ]
    (tmp_path / "a.csv").write_text(head + "\n".join(rows))
    found, _, _ = read(tmp_path / "a.csv")
    kinds = {name: str(dtype) for name, dtype in found.dtypes.items()}
    assert kinds == {
        "whole": "Int64",
        "unsigned": "UInt64",
        "large": "string",
        "digits": "string",
        "real": "Float64",
        "mixed": "string",
        "truth": "boolean",
        "date": "string",
        "zip": "string",
    }
    assert found["large"].tolist()[0] == "18446744073709551616"
    assert found["digits"].tolist()[0] == "9007199254740993"
    assert found["unsigned"].tolist()[0] == 2**64 - 1


@pytest.mark.parametrize(
    ("kind", "texts", "is_given", "values", "failing"),
    [
        (pa.int64(), ["1", "007", "+5", "0x1F", " 1", None, ""], False, [1] + [None] * 6, [1, 2, 3, 4]),
        (pa.int64(), ["007", "+5", "9223372036854775808", "1.0"], True, [7, 5, None, None], [2, 3]),
        (pa.float64(), ["1.5", "9007199254740993", ".5", "NaN1"], False, [1.5, 2.0**53, None, None], [1, 2, 3]),
        (pa.float64(), [".5", "inf", "9007199254740993"], True, [0.5, np.inf, 2.0**53], []),
        (pa.bool_(), ["true", "FALSE", "1", "yes"], False, [True, False, None, None], [2, 3]),
        (pa.date32(), ["2024-13-01", None], True, [None, None], [0]),
        (pa.int8(), ["127", "128"], True, [127, None], [1]),
    ],
)
def test_values_that_do_not_fit_are_found(kind, texts, is_given, values, failing):
    found, faults = converted(pa.chunked_array([pa.array(texts, pa.large_string())]), "c", kind, is_given=is_given)
    assert found.to_pylist() == values
    assert [fault.row for fault in faults] == failing
    assert all(fault.reason.startswith(f"column 'c': {texts[fault.row]!r} is ") for fault in faults)


def test_a_column_is_inferred_from_all_files():
    heads = [pa.table({"a": ["1", None], "b": ["", None]}), pa.table({"a": ["1.5"], "c": ["NaN"]})]
    found = {name: str(kind) for name, kind in infer_types(heads, {}).items()}
    assert found == {"a": "double", "b": "large_string", "c": "double"}


BAD = [
    (b"5", 3, 14, "it has 1 field, but the header has 2"),
    (b"6,7,8", 4, 16, "it has 3 fields, but the header has 2"),
    (b'"a"b,9', 5, 22, "text follows the closing quotation mark of a field"),
    (b"\xff,10", 6, 29, f"it has text that is not UTF-8. {latin_1('csv')}"),
    (b'x,"eleven', 8, 40, "the quotation mark of a field never closes"),
]


@pytest.mark.parametrize("block_bytes", [3, 7, 10_000])
def test_bad_rows_are_quarantined_with_their_places(tmp_path, block_bytes):
    rows = b"\n".join([b"id,text", b"a,one", *(row for row, *_ in BAD[:4]), b"b,two", BAD[4][0], b"c,3\n"])
    (tmp_path / "a.csv").write_bytes(rows)
    found, bad, _ = read(tmp_path / "a.csv", block_bytes=block_bytes, on_bad_rows="quarantine")
    assert [(row.raw, row.line, row.offset, row.reason) for row in bad] == BAD
    assert found["id"].tolist() == ["a", "b", "c"]


@pytest.mark.parametrize("block_bytes", [3, 7, 10_000])
@pytest.mark.parametrize("line_end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("names", [None, ["id", "text"]])
def test_a_header_inside_a_file_that_was_joined_is_a_bad_row(tmp_path, block_bytes, line_end, names):
    path, mark = tmp_path / "a.csv", "\ufeff"
    lines = ["id,text", "1,a", "id,text", "2,id", mark + "id,text", "3,text", "id,texts", "id,test", "id,text"]
    path.write_text(line_end.join(lines[names is not None :]), encoding="utf-8", newline="")
    found, bad, _ = read(path, block_bytes=block_bytes, on_bad_rows="quarantine", names=names, dtype={"id": "string"})
    assert found.to_numpy().tolist() == [["1", "a"], ["2", "id"], ["3", "text"], ["id", "texts"], ["id", "test"]]
    assert [row.raw.decode() for row in bad] == ["id,text", mark + "id,text", "id,text"]
    assert {row.reason for row in bad} == {
        "it repeats the names of all fields in their order, like a header, as after joining files"
    }
    path.write_text("id,text\n1,a\nid,text\n2,b\n")
    found, _, _ = read(path, on_bad_rows="quarantine")
    assert found["id"].tolist() == [1, 2]
    with pytest.raises(errors.BadRowError, match=r"a\.csv', line 3 \(byte 12\): it repeats the names of all fields"):
        read(path)


@pytest.mark.parametrize("header", ["id,text", '"id","text"'])
@pytest.mark.parametrize(
    "repeated", [b"id,text", b'"id",text', b'"id","text"', b'\xef\xbb\xbf"id","text"', b'id,"text"\r']
)
def test_a_repeated_header_is_found_however_it_is_spelled(tmp_path, header, repeated):
    path = tmp_path / "a.csv"
    path.write_bytes(b"\n".join([header.encode(), b"a,b", repeated, b"id,b", b"id,id", b"c,text\n"]))
    found, bad, _ = read(path, on_bad_rows="quarantine")
    assert [row.line for row in bad] == [3]
    assert found.to_numpy().tolist() == [["a", "b"], ["id", "b"], ["id", "id"], ["c", "text"]]
    found, bad, _ = read(path, on_bad_rows="quarantine", columns="text")
    assert [row.line for row in bad] == [3]
    assert len(found) == 4


@pytest.mark.parametrize("repeated", [b",text", b'"",text', b'"","text"', b"\xef\xbb\xbf,text"])
def test_a_repeated_header_is_found_where_its_first_name_is_empty(tmp_path, repeated):
    path = tmp_path / "a.csv"
    path.write_bytes(b"\n".join([b",text", b"1,a", repeated, b"2,b", b",texts\n"]))
    found, bad, _ = read(path, on_bad_rows="quarantine")
    assert [row.line for row in bad] == [3]
    assert found["text"].tolist() == ["a", "b", "texts"]


@pytest.mark.parametrize("first", ["src,dst", "1,2"])
def test_the_names_of_fields_in_another_order_are_values(tmp_path, first):
    path, names = tmp_path / "a.csv", first.split(",")
    path.write_text(f"{first}\n0,3\n{names[1]},{names[0]}\n{names[1]},{names[1]}\n")
    assert read(path)[0].astype("str").to_numpy().tolist() == [["0", "3"], names[::-1], 2 * names[1:]]


@pytest.mark.parametrize(("columns", "times"), [(None, 1), ("kind", 2)])
def test_rows_that_begin_like_the_header_are_not_parsed_one_by_one(tmp_path, monkeypatch, columns, times):
    (tmp_path / "a.csv").write_text("kind,label\n" + 1000 * "kind,abcde\n" + "kind,label\n")
    parsed = list[int]()

    def counted(data, *rest):
        parsed.append(len(data))
        return parse(data, *rest)

    monkeypatch.setattr(blocks, "parse", counted)
    found, bad, _ = read(tmp_path / "a.csv", on_bad_rows="quarantine", columns=columns)
    assert (len(found), [row.line for row in bad]) == (1000, [1002])
    line_bytes = len("kind,label\n")
    assert parsed == [line_bytes, line_bytes] + times * [1001 * line_bytes]  # the header is parsed for the types, too


def test_the_name_of_a_single_column_may_be_a_value_of_it(tmp_path):
    (tmp_path / "a.csv").write_text("word\na\nword\nb\n")
    assert read(tmp_path / "a.csv")[0]["word"].tolist() == ["a", "word", "b"]


def refused(tmp_path, content, error, match, **arguments):
    path = tmp_path / "a.csv"
    path.write_bytes(content)
    with pytest.raises(error, match=match):
        read(path, **arguments)


@pytest.mark.parametrize(
    "content",
    [
        b'{"a":1}\n{"a":2}\n',
        b'\xef\xbb\xbf{"a":1,"b":"x, y"}\n',
        b'[{"a":1},{"a":2}]',
        b'[\n{"a":1}\n]\n',
        b'{\n "a": 1}\n',
    ],
)
def test_json_is_not_read_as_a_header(tmp_path, content):
    refused(
        tmp_path, content, errors.BadRowError, r"byte 0: the file is JSON \(by its first bytes\); .* with read_jsonl$"
    )


def test_json_in_a_field_is_read(tmp_path):
    (tmp_path / "a.tsv").write_bytes(b'{"a":1}\t2\n')
    found, _, _ = read(tmp_path / "a.tsv", delimiter="\t", quote=None, names=["json", "n"])
    assert found.to_dict("records") == [{"json": '{"a":1}', "n": 2}]


@pytest.mark.parametrize("content", [b"\0" * 600, b"a,\0\0b\n1,2\n"])
def test_a_header_that_a_crash_left_is_not_a_name(tmp_path, content):
    said = "this is the header, and it has NUL bytes, which a crash while it was written leaves behind"
    refused(tmp_path, content, errors.BadRowError, said)


class Name(str):
    """Name that counts how often it is compared."""

    __slots__ = ()
    compared = 0
    __hash__ = str.__hash__

    def __eq__(self, other):
        Name.compared += 1
        return str.__eq__(self, other)


def test_a_name_of_a_header_is_not_compared_with_each_other_one(tmp_path, monkeypatch):
    def parsed(data, *_):
        names = map(Name, data.tobytes().decode().strip().split(","))
        return types.SimpleNamespace(columns=[[types.SimpleNamespace(as_py=lambda name=name: name)] for name in names])

    monkeypatch.setattr(blocks, "parse", parsed)
    header = ",".join(f"c{number}" for number in range(500))
    refused(tmp_path, f"{header},c499\n".encode(), errors.ColumnError, "the header has the name 'c499' twice")
    assert Name.compared < 5_000


def test_errors_say_where_and_what_to_do(tmp_path):
    where = r"a.csv', line 3 \(byte 8\): "
    refused(tmp_path, b"a,b\n1,2\n3\n", errors.BadRowError, where + "it has 1 field, but the header has 2.*quarantine")
    refused(tmp_path, b'a,b\n1,2\n3,"x', errors.BadRowError, where + "the quotation mark of a field never closes")
    rows = b"n\n" + b"1\n" * 3000 + b"x\n"
    match = r"line 3,002 \(byte 6,002\): column 'n': 'x' is not int64\. The type was inferred.*dtype=\{'n': \.\.\.\}"
    refused(tmp_path, rows, errors.SchemaError, match)
    refused(tmp_path, b"n\nx\n", errors.BadRowError, "column 'n': 'x' is not int64", dtype={"n": "int64"})
    refused(tmp_path, b"a,b,a\n", errors.ColumnError, r"line 1 \(byte 0\): the header has the name 'a' twice")
    refused(
        tmp_path, b'a,"b\n', errors.BadRowError, "this is the header, and the quotation mark of a field never closes"
    )
    refused(tmp_path, "a,b\n1,é".encode("utf-16"), errors.BadRowError, "UTF-16.*iconv")
    latin = "not UTF-8. If the file is Latin-1 or Windows-1252, convert it .*iconv -f WINDOWS-1252 -t UTF-8 old.csv"
    refused(tmp_path, b"caf\xe9,b\n1,2\n", errors.BadRowError, "this is the header, and it is " + latin)
    refused(tmp_path, b"a,b\n1,caf\xe9\n", errors.BadRowError, r"line 2 \(byte 4\): it has text that is " + latin)
    refused(tmp_path, b"\x89PNG\r\n", errors.BadRowError, "byte 0: the file is a picture")
    refused(tmp_path, b"a,b\n", errors.ColumnError, "columns= has 'c'", columns=["c"])
    refused(tmp_path, b"a,b\n", errors.SchemaError, "'list<.* is not possible", dtype={"a": pa.list_(pa.int64())})
    refused(
        tmp_path, b"a,b\n", errors.ParameterError, "names= has the column .* not Unicode text", names=["\ud800", "b"]
    )
    for name, value in (("delimiter", ",,"), ("delimiter", "\n"), ("quote", "é"), ("delimiter", '"')):
        refused(tmp_path, b"a,b\n", errors.ParameterError, name, **{name: value})
    refused(tmp_path, b"a,b\n", errors.ParameterError, "one name for each field", names=["a", "a"])


def test_headers_of_files_are_matched_by_name(tmp_path):
    (tmp_path / "a.csv").write_text("id,text\n1,one\n")
    (tmp_path / "b.csv").write_text("text,id\ntwo,2\n")
    (tmp_path / "c.csv").write_text("id\n3\n")
    found, _, _ = read(tmp_path)
    assert (found["id"].tolist(), found["text"].tolist()) == ([1, 2, 3], ["one", "two", pd.NA])
    assert (found.index.to_numpy() >> OFFSET_BITS).tolist() == [0, 1, 2]
    for number in range(20):
        (tmp_path / f"d{number:02d}.csv").write_text("id,text\n1,one\n")
    (tmp_path / "d00.csv").write_text("id,extra\n1,x\n")
    with pytest.raises(errors.SchemaError, match=r"d00.csv': the header has 'extra'.*dtype=\{'extra': \.\.\.\}"):
        read(tmp_path)
    assert len(read(tmp_path, columns=["id"])[0]) == 23
    assert read(tmp_path, dtype={"extra": "string"})[0]["extra"].notna().sum() == 1


def test_names_are_those_of_files_without_a_header(tmp_path):
    (tmp_path / "a.tsv").write_text('1\t"x\n2\t5" pipe\n')
    found, bad, _ = read(tmp_path / "a.tsv", delimiter="\t", quote=None, names=["id", "text"])
    assert (found["id"].tolist(), found["text"].tolist(), bad) == ([1, 2], ['"x', '5" pipe'], [])
    assert found.index.tolist() == [0, 5]


def test_a_field_larger_than_a_block_is_one_block_and_one_too_large_is_reported(tmp_path):
    text = "line\n" * 5_000
    (tmp_path / "a.csv").write_text(f'id,text\n1,"{text}"\n2,short\n3,"{text * 2}"\n4,end\n')
    found, _, long = read(tmp_path / "a.csv", block_bytes=1_000)
    assert found["text"].tolist() == [text, "short", text * 2, "end"]
    found, _, long = read(tmp_path / "a.csv", block_bytes=1_000, largest=30_000)
    assert found["id"].tolist() == [1, 2, 4]
    assert [(error.line, error.offset, error.row_bytes) for error in long] == [(5_004, 25_021, 50_005)]


def test_small_files_share_a_block(tmp_path):
    for number in range(50):
        (tmp_path / f"{number:02d}.csv").write_text(f"id\n{number}\n")
    source = cdf.read_csv(tmp_path).expr.operand("func").source
    (piece,) = source.cut(10**9)
    (block,) = source.blocks(piece, block_bytes=10_000)
    assert block["id"].tolist() == list(range(50))


def test_a_changed_file_is_the_error_and_not_what_is_read_of_it(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("id,text\n" + "1,one\n" * 100)
    docs = cdf.read_csv(path)
    path.write_text("id,text\n" + "1,one,more\n" * 100)
    with pytest.raises(errors.InputChangedError):
        docs.compute()


def test_damaged_files_lose_no_record_and_no_block_size_matters(tmp_path):
    """Damage a hundred files in several ways: each record is a row, a bad row or blank, with its own bytes."""
    chance = random.Random(7)
    path, counts = tmp_path / "a.csv", [0, 0]
    for number_of_file in range(100):
        rows = [f'{number},"{chance.choice(["a", "b,c", "d" + chr(10), "e" * 40])}",{number}.5' for number in range(12)]
        data = bytearray("\n".join(["n,text,x", *rows]).encode())
        for _ in range(chance.randrange(1, 6)):
            place = chance.randrange(8, len(data))
            damage = chance.choice([b'"', b"\n", b",", b"\r", b"\xff", b"\0", b"", b'""'])
            data[place : place + chance.randrange(3)] = damage
        path.write_bytes(data)
        os.utime(path, ns=(number_of_file, number_of_file))  # a file of long ago, whose state is known at once
        dtype = {"n": "int64", "text": "string", "x": "float64"}
        found, bad, _ = read(path, dtype=dtype, on_bad_rows="quarantine")
        again, bad_again, _ = read(path, dtype=dtype, on_bad_rows="quarantine", block_bytes=chance.randrange(3, 60))
        pd.testing.assert_frame_equal(again, found)
        assert sorted(bad_again, key=lambda row: row.offset) == sorted(bad, key=lambda row: row.offset)
        records = records_of(bytes(data), 10_000)[1:]
        offsets = {record[3] for record in records if record[0].strip(b"\r\n")}
        assert sorted([*found.index.tolist(), *(row.offset for row in bad)]) == sorted(offsets)
        by_offset = {record[3]: record for record in records}
        for row in bad:
            assert by_offset[row.offset][0].removesuffix(b"\n").removesuffix(b"\r") == row.raw
        for offset, row in zip(found.index.tolist(), found.itertuples(index=False), strict=True):
            (fields,) = csv.reader(io.StringIO(by_offset[offset][0].decode(), newline=""))
            assert ("" if pd.isna(row.text) else row.text) == fields[1]
            assert (None if pd.isna(row.n) else row.n) == (int(fields[0]) if fields[0] else None)
        counts[0] += len(found)
        counts[1] += len(bad)
    assert min(counts) > 80


def test_a_run_quarantines_bad_rows_and_resumes(cluster, tmp_path, monkeypatch):
    (tmp_path / "in").mkdir()
    for number in range(3):
        (tmp_path / "in" / f"{number}.csv").write_text(f'id,text\n{number},one\nragged\n{number},"two\nlines"\n')
    docs = cdf.read_csv(tmp_path / "in", on_bad_rows="quarantine")
    out = tmp_path / "out"
    receipt = cdf.write_parquet(docs, out)
    assert (receipt.rows_read, receipt.rows_written, receipt.rows_quarantined) == (9, 6, 3)
    quarantined = pd.concat([pd.read_json(path, lines=True) for path in sorted((out / "_quarantine").glob("*.jsonl"))])
    assert quarantined["offset"].tolist() == [14, 14, 14]
    assert quarantined["line"].tolist() == [3, 3, 3]
    assert cdf.write_parquet(docs, out, on_existing="resume").rows_written == 6
    other = cdf.read_csv(tmp_path / "in", on_bad_rows="quarantine", quote=None)
    with pytest.raises(errors.ResumeError, match="quote changed from"):
        cdf.write_parquet(other, out, on_existing="resume")
    exact = cdf.drop_exact_duplicates(cdf.read_csv(tmp_path / "in", on_bad_rows="quarantine"))
    assert cdf.write_parquet(exact, tmp_path / "unique").rows_written == 2


def test_partitions_of_a_large_file_are_parts_of_it(cluster, tmp_path):
    rows = "".join(f'{number},"text\n{number}"\n' for number in range(5_000))
    (tmp_path / "a.csv").write_text("n,text\n" + rows)
    docs = cdf.read_csv(tmp_path / "a.csv", blocksize=20_000)
    assert docs.npartitions > 3
    assert docs.head(3)["n"].tolist() == [0, 1, 2]


def test_the_parser_keeps_text_as_it_is():
    data = np.frombuffer(b'1,"a""b"\r\n2,NA\n3,null\n4, x \n', np.uint8)
    assert parse(data, 10, ["n", "t"], ["t"], COMMA)["t"].to_pylist() == ['a"b', "NA", "null", " x "]


def test_each_of_many_columns_is_found_without_a_look_at_all_names():
    """With a search among all names for each column, 20,000 columns took minutes before they were refused."""

    class Head:
        listed = 0

        def __init__(self, table):
            self.columns, self._names = table.columns, table.column_names

        @property
        def column_names(self):
            Head.listed += 1
            return self._names

    head = Head(pa.table({f"c{number}": ["1"] for number in range(50)}))
    assert set(infer_types([head], {}).values()) == {pa.int64()}
    assert Head.listed == 1


@pytest.mark.parametrize(
    ("header", "delimiter", "other"), [("id\ttext", ",", "\\t"), ("id;text", ",", ";"), ("id,text", "\t", ",")]
)
def test_a_header_with_another_delimiter_is_a_warning(tmp_path, header, delimiter, other):
    path = tmp_path / "a.tsv"
    path.write_text(f"{header}\n1\n")
    with pytest.warns(UserWarning, match=re.escape(f"set delimiter='{other}'")):
        assert cdf.read_csv(path, delimiter=delimiter).columns.tolist() == [header]
    cdf.read_csv(path, delimiter="\t" if "\t" in header else header[2])  # without a warning, which would be an error
