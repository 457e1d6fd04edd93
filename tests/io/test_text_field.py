# SPDX-License-Identifier: Apache-2.0
"""What is read by way of `TextField` beside what pyarrow.json alone makes of the same lines."""

import json

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import curator_df as cdf
from curator_df.io.jsonl import blocks as text_field
from curator_df.io.jsonl.blocks import TextField
from curator_df.io.jsonl.lines import newline_positions
from curator_df.io.jsonl.parse import try_parse
from curator_df.io.jsonl.scan import scan_lines

SCHEMA = pa.schema(
    [("id", pa.int64()), ("text", pa.large_string()), ("meta", pa.struct([("text", pa.large_string())]))]
)
PROSE = 'Words that are long enough to be most of any line, with a "quotation", a \\ and an é. ' * 3


@pytest.fixture(autouse=True)
def _few_bytes_are_enough(monkeypatch):
    monkeypatch.setattr(text_field, "LEAST_BYTES", 1)


def parsed(raw, *, schema=SCHEMA, ignore_unknown=False):
    """Return what the fast way makes of lines (None: nothing), and the table or the error of pyarrow alone."""
    data = np.frombuffer(raw, np.uint8).copy()
    lines, reasons = scan_lines(data, newline_positions(data, len(data)))
    assert not reasons
    fast = TextField().parse(data, lines, schema, ignore_unknown=ignore_unknown)
    return fast, try_parse(data, lines, schema, ignore_unknown=ignore_unknown)


def both_equal(raw, **how):
    fast, slow = parsed(raw, **how)
    assert fast is not None
    fast.validate(full=True)
    assert fast.equals(slow)
    return fast


def line(**fields):
    return json.dumps(fields).encode() + b"\n"


@pytest.mark.parametrize("escapes", [True, False])
def test_texts_are_those_that_pyarrow_reads(escapes):
    texts = [
        PROSE,
        "",
        '\n\t\r\b\f"\\/',
        "naïve 𝄞 \u0000 \ud7ff\ue000\uffff",
        "x" * 7,
        "x" * 8,
        "é" * 50,
        "\\u0041\\",
        None,
    ]
    rows = [{"id": number, "text": text, "meta": {"text": text}} for number, text in enumerate(texts)]
    rows.insert(0, {"id": None, "text": PROSE * 19, "meta": None})
    raw = "".join(json.dumps(row, ensure_ascii=escapes) + "\n" for row in rows).encode()
    assert both_equal(raw).column("text").to_pylist() == [row["text"] for row in rows]


@pytest.mark.parametrize(
    "odd",
    [
        b'{ "text" : "a\\/b\\u0041\\u00e9\\ud834\\udd1e" , "id":1}',
        b'{"meta":{"text":"inner \\" }"},"text":"outer ]"}',
        b'{"text":null,"id":2}',
        b'{"id":3}',
        b"{}",
        b'\t {"id":4,"text":"a"}\r',
        b'{"id":5,"text":"","meta":null}',
    ],
)
def test_odd_lines_that_are_right_are_read(odd):
    raw = line(id=0, text=PROSE * 9, meta={}) + odd + b"\n" + line(id=1, text=PROSE, meta={"text": "x"})
    both_equal(raw)


@pytest.mark.parametrize(
    "wrong",
    [
        b'{"text":"a\\x"}',
        b'{"text":"a\tb"}',
        b'{"text":"\\u12"}',
        b'{"text":"\\ud834"}',
        b'{"text":"\\ud834\\u0041"}',
        b'{"text":"\\udd1e"}',
        b'{"text":"a","text":"b"}',
        b'{"te\\u0078t":"a"}',
        b'{"text":"a}',
        b'{"text":"a"}}',
        b'{"text":"a"} {"text":"b"}',
        b'{"text":"a"',
        b'{"text":"a\\"}',
        b'{"text" "a"}',
        b'{"text":"a" "b"}',
        b'{"text":"text":"b"}',
        b'{"text":5}',
        b'{"text":["a"]}',
        b'{"text":{"text":"a"}}',
        b'{"id":"text"}',
        b'{"new":"text"}',
        b'{"id":1,}',
        b'{"meta":{"text":"a"]}',
    ],
)
def test_of_lines_that_are_wrong_nothing_is_read(wrong):
    """Or what pyarrow reads, which takes a few of them."""
    raw = line(id=0, text=PROSE * 9, meta={}) + line(id=1, text=PROSE)
    data = np.frombuffer(raw + wrong + b"\n", np.uint8).copy()
    lines, _ = scan_lines(data, newline_positions(data, len(data)))
    fast = TextField().parse(data, lines, SCHEMA, ignore_unknown=False)
    slow = try_parse(data, lines, SCHEMA, ignore_unknown=False)
    assert fast is None or fast.equals(slow)


TOKENS = [
    b"{", b"}", b"[", b"]", b",", b":", b'"text":', b'"id":1', b'"meta":{"text":', b'"a"', b'"', b"\\", b"\\n", b"\\u00e9",
    b"\\ud834\\udd1e", b"\\ud834", b"null", b"5", b" ", b"\t", b"x" * 20, b'"text":"' + b"y" * 30 + b'"', b"\xc3\xa9", b"\x01",
]  # fmt: skip


@given(st.lists(st.lists(st.sampled_from(TOKENS), max_size=12), min_size=1, max_size=3), st.booleans())
def test_lines_of_any_tokens_are_read_as_pyarrow_does_or_not_at_all(made, ignore_unknown):
    raw = b"".join(b"{" + b"".join(tokens) + b"}\n" for tokens in made)
    data = np.frombuffer(line(text=PROSE * 20) + raw, np.uint8).copy()
    lines, reasons = scan_lines(data, newline_positions(data, len(data)))
    mask = np.ones(len(lines), np.bool_)
    mask[list(reasons)] = False
    lines = lines.keep(mask)
    field = TextField()
    fast = field.parse(data, lines, SCHEMA, ignore_unknown=ignore_unknown)
    for start, stop in zip(lines.stops[:-1], lines.starts[1:], strict=True):
        data[start:stop] = np.where(data[start:stop] == 10, 10, 32)
    slow = try_parse(data, lines, SCHEMA, ignore_unknown=ignore_unknown)
    if fast is not None:
        fast.validate(full=True)
        assert not isinstance(slow, str), (raw, slow)
        assert fast.equals(slow)


def test_fields_that_are_not_wanted_are_passed_over():
    raw = line(other="o" * 20, text=PROSE, id=1) + line(text=PROSE, id=2, more={"text": "no"})
    assert parsed(raw)[0] is None
    both_equal(raw, schema=pa.schema([("text", pa.large_string())]), ignore_unknown=True)


def test_lines_that_are_mostly_something_else_are_left_to_pyarrow():
    raw = line(id=1, text="short", meta={"text": PROSE}) * 3
    assert parsed(raw)[0] is None
    few = line(id=1, text=PROSE, meta=None) + line(id=1, text="short", meta={"text": PROSE}) * 50
    assert parsed(few)[0] is None  # what is left of the lines has no room


def test_a_corpus_is_read_the_same_with_bad_rows_among_it(tmp_path, monkeypatch):
    rows = [{"id": number, "text": f"{number} {PROSE}", "meta": None} for number in range(2_000)]
    lines = [json.dumps(row) for row in rows]
    lines[70], lines[1_500] = '{"id": 70, "text": "a \\x"}', '{"id": 1500.5, "text": "b"}'
    (tmp_path / "a.jsonl").write_text("\n".join(lines))
    docs = cdf.read_jsonl(
        tmp_path / "a.jsonl", dtype={"id": "int64", "meta": "string"}, blocksize=100_000, on_bad_rows="quarantine"
    )
    with pytest.warns(UserWarning, match="bad"):
        fast = docs.compute()
    monkeypatch.setattr(text_field, "LEAST_BYTES", 1 << 40)
    with pytest.warns(UserWarning, match="bad"):
        slow = docs.compute()
    assert fast.equals(slow)
    assert len(fast) == 1_998


def test_the_longest_of_many_texts_is_found_without_taking_out_each(monkeypatch):
    names = [f"column_{place}" for place in range(500)]
    rows = [{**dict.fromkeys(names, "x"), "column_321": PROSE * 200, "other": "中" * 90, "n": 1.5} for _ in range(20)]
    schema = pa.schema([*((name, pa.large_string()) for name in (*names, "other")), ("n", pa.float64())])
    tried, take = [], text_field._Taken.of.__func__
    monkeypatch.setattr(
        text_field._Taken, "of", classmethod(lambda cls, *given: tried.append(given[-1]) or take(cls, *given))
    )
    fast, slow = parsed("".join(json.dumps(row) + "\n" for row in rows).encode(), schema=schema)
    assert fast.equals(slow)
    assert set(tried) <= {"column_321", "other", "column_0"}
    assert len(tried) <= text_field.CANDIDATES + 1
