# SPDX-License-Identifier: Apache-2.0
"""Kinds of values, strings and structures that parsers of JSON disagree on, as lines between two good ones.

RFC 8259 decides: what its grammar has is read to its value, what it does not have is a bad row with its line. Where it leaves the
choice (numbers beyond the range of the reader, half a surrogate pair, names given twice) the choice is fixed here. NaN and
Infinity, which Python and pandas write, are read though the grammar lacks them: NaN as NaN.
"""

import math

import pyarrow as pa
import pytest

from curator_df.errors import BadRowError
from curator_df.io.jsonl.reader import read_jsonl

GOOD = b'{"i": 1, "f": 0.5, "s": "x", "l": [1], "o": {"a": 1}}'
TYPES = {
    "i": "int64",
    "f": "float64",
    "s": "string",
    "l": pa.list_(pa.int64()),
    "o": pa.struct([("a", pa.int64())]),
}
BAD = object()
INF = float("inf")

INTEGERS = {
    "0": 0,
    "-0": 0,
    "1": 1,
    "-1": -1,
    " 7 ": 7,
    "\t7\r": 7,
    "null": None,
    "9223372036854775807": 2**63 - 1,
    "-9223372036854775808": -(2**63),
    "9223372036854775808": BAD,
    "-9223372036854775809": BAD,
    "1" * 5000: BAD,
    "01": BAD,
    "-01": BAD,
    "00": BAD,
    "+1": BAD,
    "--1": BAD,
    "- 1": BAD,
    "-": BAD,
    "+": BAD,
    "1_000": BAD,
    "1,000": BAD,
    "1 000": BAD,
    "0x1": BAD,
    "0xFF": BAD,
    "0b1": BAD,
    "0o7": BAD,
    "1a": BAD,
    "1L": BAD,
    "'1'": BAD,
    "(1)": BAD,
    "1.": BAD,
    "\u0661": BAD,
    "\uff11": BAD,
    "true": BAD,
    "false": BAD,
    '"1"': BAD,
    "[1]": BAD,
    '{"a": 1}': BAD,
    "": BAD,
    ",": BAD,
    "1.5": BAD,
    "1.0": BAD,
    "1e2": BAD,
    "nul": BAD,
    "Null": BAD,
    "NULL": BAD,
    "nulll": BAD,
    "None": BAD,
    "undefined": BAD,
}
FLOATS = {
    "0": 0.0,
    "-0": -0.0,
    "-0.0": -0.0,
    "0e1": 0.0,
    "0e+1": 0.0,
    "1e1": 10.0,
    "1E1": 10.0,
    "1e-2": 0.01,
    "1E+2": 100.0,
    "1.0e1": 10.0,
    "123.456e78": 123.456e78,
    "0.1": 0.1,
    "1.7976931348623157e308": 1.7976931348623157e308,
    "5e-324": 5e-324,
    "1e-9999": 0.0,
    "-1e-9999": -0.0,
    "0.30000000000000004": 0.30000000000000004,
    "3.141592653589793238462643383279": math.pi,
    "0." + "3" * 1000: 1 / 3,
    "null": None,
    "NaN": math.nan,
    "Infinity": INF,
    "-Infinity": -INF,
    "1e9999": BAD,
    "-1e9999": BAD,
    "1e309": BAD,
    ".5": BAD,
    "-.5": BAD,
    "1.": BAD,
    "-1.": BAD,
    "1.e1": BAD,
    "2.e3": BAD,
    "0.e1": BAD,
    "1e": BAD,
    "1e+": BAD,
    "1.0e-": BAD,
    "1eE2": BAD,
    "1e1.5": BAD,
    "1.2.3": BAD,
    "1..2": BAD,
    "0.1.2": BAD,
    "+.5": BAD,
    "++1.5": BAD,
    "1,5": BAD,
    "1e 5": BAD,
    "1 .5": BAD,
    "nan": BAD,
    "+NaN": BAD,
    "inf": BAD,
    "+Infinity": BAD,
    "infinity": BAD,
    "Infinit": BAD,
    "1#INF": BAD,
    "0x1.8p1": BAD,
    "1.5f": BAD,
    "\u00bd": BAD,
    "01.5": BAD,
    '"0.5"': BAD,
    "true": BAD,
    "[0.5]": BAD,
}
STRINGS = {
    b'""': "",
    b'"a"': "a",
    b'"\\""': '"',
    b'"\\\\"': "\\",
    b'"\\/"': "/",
    b'"\\b\\f\\n\\r\\t"': "\b\f\n\r\t",
    b'"\\u0041"': "A",
    b'"\\u00e9"': "\u00e9",
    b'"\\uABCD"': "\uabcd",
    b'"\\uabcd"': "\uabcd",
    b'"\\u0000"': "\0",
    b'"\\ud83d\\ude00"': "\U0001f600",
    b'"\\uDBFF\\uDFFF"': "\U0010ffff",
    b'"\\uFFFF"': "\uffff",
    b'"\\u2028"': "\u2028",
    b'"\\\\u0041"': "\\u0041",
    b'"\\\\n"': "\\n",
    b'"\x7f"': "\x7f",
    b'"\xc2\x85"': "\x85",
    b'"\xe2\x80\xa8"': "\u2028",
    b'"\xef\xbb\xbf"': "\ufeff",
    b'"\xef\xbf\xbf"': "\uffff",
    b'"\xf4\x8f\xbf\xbf"': "\U0010ffff",
    b'"{}[],:"': "{}[],:",
    b'"/* c */"': "/* c */",
    b'"<!-- -->"': "<!-- -->",
    b'"' + b"x" * 100_000 + b'"': "x" * 100_000,
    b"null": None,
    b"7": "7",
    b"-0": "-0",
    b"1.50": "1.50",
    b"true": "true",
    b"9007199254740993": "9007199254740993",
    b"1e9999": "1e9999",
    b"NaN": BAD,
    b"01": BAD,
    b'"\\x41"': BAD,
    b'"\\a"': BAD,
    b'"\\\'"': BAD,
    b'"\\"': BAD,
    b'"\\u"': BAD,
    b'"\\u00"': BAD,
    b'"\\u00g0"': BAD,
    b'"\\U00000041"': BAD,
    b'"\\u{41}"': BAD,
    b'"\\0"': BAD,
    b'"\\e"': BAD,
    b'"\\ "': BAD,
    b'"\\\xc3\xa9"': BAD,
    b'"\\ud800"': BAD,
    b'"\\udfaa"': BAD,
    b'"\\udc00\\ud800"': BAD,
    b'"\\ud800\\ud800"': BAD,
    b'"\\ud800x"': BAD,
    b'"\\ud800\\u0041"': BAD,
    b'"\\ud83d\\n"': BAD,
    b'"\\uD83D\\x"': BAD,
    b'"\xed\xa0\x80"': BAD,
    b'"\xed\xa0\xbd\xed\xb8\x80"': BAD,
    b'"\xff"': BAD,
    b'"\xfe"': BAD,
    b'"\x80"': BAD,
    b'"\xc3"': BAD,
    b'"\xc3\x28"': BAD,
    b'"\xc0\x80"': BAD,
    b'"\xc0\xaf"': BAD,
    b'"\xe0\x80\xaf"': BAD,
    b'"\xf0\x80\x80\xaf"': BAD,
    b'"\xf4\x90\x80\x80"': BAD,
    b'"\xf5\x80\x80\x80"': BAD,
    b'"\xe9"': BAD,
    b'"\xe2\x82"': BAD,
    b'"\t"': BAD,
    b'"\x00"': BAD,
    b'"\x01"': BAD,
    b'"\x1f"': BAD,
    b'"a': BAD,
    b"a": BAD,
    b"'a'": BAD,
    b'"a" "b"': BAD,
    b'"a""b"': BAD,
    b'"a"x': BAD,
    b'["a"]': BAD,
    b'{"a": "b"}': BAD,
    b"`a`": BAD,
    b"\xe2\x80\x9ca\xe2\x80\x9d": BAD,
}
LISTS = {
    "[]": [],
    "[ ]": [],
    "[1]": [1],
    "[1,2]": [1, 2],
    "[ 1 , 2 ]": [1, 2],
    "[null]": [None],
    "[null,1,null]": [None, 1, None],
    "null": None,
    "[1,]": BAD,
    "[,1]": BAD,
    "[1,,2]": BAD,
    "[,]": BAD,
    "[1 2]": BAD,
    "[1": BAD,
    "1]": BAD,
    "[1]]": BAD,
    "[[1]": BAD,
    "[1}": BAD,
    "[1:2]": BAD,
    "[1;2]": BAD,
    "(1,2)": BAD,
    "[1,...]": BAD,
    "[1] // c": BAD,
    "[/* c */1]": BAD,
    "[# c\r1]": BAD,
    "[1.5]": BAD,
    '["1"]': BAD,
    "[[1]]": BAD,
    "[true]": BAD,
    "[\x0b1]": BAD,
    "[\x0c1]": BAD,
    "[\u00a01]": BAD,
    "[\u20601]": BAD,
    "[" * 100_000: BAD,
    "[" * 100_000 + "]" * 100_000: BAD,
    "[1]" * 2: BAD,
}
OBJECTS = {
    "{}": {"a": None},
    '{"a": 2}': {"a": 2},
    '{ "a" : 2 }': {"a": 2},
    '{"a":null}': {"a": None},
    '{"\\u0061": 2}': {"a": 2},
    "null": None,
    '{"a": 1,}': BAD,
    '{,"a": 1}': BAD,
    '{"a" 1}': BAD,
    '{"a":}': BAD,
    '{"a"}': BAD,
    '{"a":: 1}': BAD,
    "{a: 1}": BAD,
    "{'a': 1}": BAD,
    "{1: 1}": BAD,
    "{null: 1}": BAD,
    '{"a": 1 "b": 2}': BAD,
    '{"a": 1, "a": 2}': BAD,
    '{"a": 1, "\\u0061": 1}': BAD,
    '{"a": 1': BAD,
    '{"a": 1]': BAD,
    '{"a": 1}}': BAD,
    '{"a": 1; "b": 2}': BAD,
    '{"a" = 1}': BAD,
    '{"a": 1} /* c */': BAD,
    '{"b": 1}': BAD,
    '{"\\ud800": 1}': BAD,
    '{"a\\u0000": 1}': BAD,
    '{"": 1}': BAD,
    '{"a": {"a": 1}}': BAD,
    '{"a": "1"}': BAD,
    '{"a":' * 100_000 + "1" + "}" * 100_000: BAD,
    '{"a":' * 100_000: BAD,
    "{": BAD,
    "}": BAD,
    "{{}}": BAD,
    "{[1]}": BAD,
}
ROWS = {
    b"": [],
    b" ": [],
    b"\t \r": [],
    b"{}": [{}],
    b' {"i": 3}\t\r': [{"i": 3}],
    b'{"i":3}': [{"i": 3}],
    b'{"i" : 3 , "f" : 2}': [{"i": 3, "f": 2.0}],
    b'\xef\xbb\xbf{"i": 3}': BAD,
    b'\xff\xfe{\0"\0i\0"\0:\x001\0}\0': BAD,
    b'\0{\0"\0i\0"\0:\x001\0}': BAD,
    b"\0": BAD,
    b"\0" * 4096: BAD,
    b"null": BAD,
    b"true": BAD,
    b"7": BAD,
    b'"text"': BAD,
    b"[]": BAD,
    b'[{"i": 3}]': BAD,
    b'{"i": 3}{"i": 4}': BAD,
    b'{"i": 3} {"i": 4}': BAD,
    b'{"i": 3},{"i": 4}': BAD,
    b'{"i": 3},': BAD,
    b'{"i": 3};': BAD,
    b'{"i": 3} # c': BAD,
    b'{"i": 3} // c': BAD,
    b'// {"i": 3}': BAD,
    b'/* {"i": 3} */': BAD,
    b'{"i": 3}\r{"i": 4}': BAD,
    b'\x0b{"i": 3}': BAD,
    b'\x0c{"i": 3}': BAD,
    b'\xc2\xa0{"i": 3}': BAD,
    b'\xe2\x81\xa0{"i": 3}': BAD,
    b'{"i": 3}\x0b': BAD,
    b'\x1e{"i": 3}': BAD,
    b'{"i": 3': BAD,
    b'"i": 3}': BAD,
    b'{"i": 3}}': BAD,
    b'{{"i": 3}': BAD,
    b"{": BAD,
    b"}": BAD,
    b"}{": BAD,
    b"{}{}": BAD,
    b"{}null{}": BAD,
    b'{"i": 3, "i": 3}': BAD,
    b'{"i": 3, "\\u0069": 4}': BAD,
    b'{"new": 1}': [{"new": 1}],
    b'{"i": 3, "\\udfaa": 4}': BAD,
    b'{"\xff": 4}': BAD,
    b"{'i': 3}": BAD,
    b"{i: 3}": BAD,
    b"<i>3</i>": BAD,
    b"i=3": BAD,
    b'data: {"i": 3}': BAD,
    b'{"i": 3}\0': BAD,
    b'{"i":\x003}': BAD,
    b"[" * 100_000: BAD,
    b'{"i":' * 100_000: BAD,
    b'{"i": ' + b"[" * 100_000 + b"]" * 100_000 + b"}": BAD,
}


def lines():
    """Return each line with the rows expected of it, or BAD."""
    for column, values in (("i", INTEGERS), ("f", FLOATS), ("s", STRINGS), ("l", LISTS), ("o", OBJECTS)):
        for number, (value, expected) in enumerate(values.items()):
            raw = value if isinstance(value, bytes) else value.encode()
            row = BAD if expected is BAD else [{column: expected}]
            yield pytest.param(b'{"%s": %s}' % (column.encode(), raw), row, id=f"{column} {number} {raw[:30]!a}")
    for number, (raw, expected) in enumerate(ROWS.items()):
        yield pytest.param(raw, expected, id=f"row {number} {raw[:30]!a}")


def same(found, expected):
    if isinstance(expected, dict):
        return all(same(found[name], value) for name, value in expected.items())
    if isinstance(expected, float) and math.isnan(expected):
        return isinstance(found, float) and math.isnan(found)
    if isinstance(expected, float):
        return found == expected and math.copysign(1, found) == math.copysign(1, expected)
    return found == expected and type(found) is type(expected)


def test_the_table_has_many_lines():
    assert len(list(lines())) > 300


@pytest.mark.parametrize(("raw", "expected"), list(lines()))
def test_a_line_is_read_to_its_value_or_is_a_bad_row_with_its_line(tmp_path, raw, expected):
    (tmp_path / "a.jsonl").write_bytes(b"\n".join([GOOD, raw, GOOD]))
    source = read_jsonl(tmp_path, dtype=TYPES, on_bad_rows="quarantine").expr.operand("func").source
    aside = []
    whole = source.cut(10**9)[0]
    rows = [row for block in source.blocks(whole, block_bytes=10**6, on_bad_row=aside.append) for row in plain(block)]
    if expected is BAD:
        assert [(row.path, row.line, row.offset, row.raw) for row in aside] == [
            (str(tmp_path / "a.jsonl"), 2, len(GOOD) + 1, raw.rstrip(b" \t\r"))
        ]
        assert aside[0].reason
        assert len(rows) == 2
        with pytest.raises((BadRowError, TypeError), match=r"line 2 \(byte 54\): "):
            read_jsonl(tmp_path, dtype=TYPES).compute()
        return
    assert not aside
    assert len(rows) == 2 + len(expected)
    assert all(same(row, want) for row, want in zip(rows[1:-1], expected, strict=True)), rows[1:-1]
    assert rows[0] == rows[-1]


def plain(block):
    """Return the rows of a block as dicts of Python's values; what is null is None."""
    columns = {name: block[name].array for name in block}
    return [{name: value(values, place) for name, values in columns.items()} for place in range(len(block))]


def value(values, place):
    """Return one value; a masked array tells null and NaN apart."""
    if hasattr(values, "_mask"):
        return None if values._mask[place] else values._data[place].item()
    return values._pa_array[place].as_py()
