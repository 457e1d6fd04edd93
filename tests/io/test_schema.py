# SPDX-License-Identifier: Apache-2.0
import pyarrow as pa
import pytest

from curator_df.errors import ParameterError, SchemaError
from curator_df.io.jsonl.parse import require_possible
from curator_df.io.jsonl.schema import first_fields, infer, requested_types, rows_of


def head(*values, file=0):
    """Return a head in which each line holds a value in the column ``a``."""
    return file, [(line, {"a": value}) for line, value in enumerate(values, start=1)]


def type_of(*values, **options):
    return infer([head(*values)], {}, str, **options)[0]["a"]


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([None], pa.null()),
        ([True, None], pa.bool_()),
        ([2**63 - 1, -1], pa.int64()),
        ([2**63, 0], pa.uint64()),
        ([2**64, 1], pa.float64()),
        ([2**53, 0.5], pa.float64()),
        ([[]], pa.list_(pa.null())),
        ([[1, 2.5, None]], pa.list_(pa.float64())),
        ([[None, "a"], ["b", "c"], None], pa.list_(pa.string())),
        ([[{"a": 1}, {"b": [None]}]], pa.list_(pa.struct([("a", pa.int64()), ("b", pa.list_(pa.null()))]))),
        ([{}], pa.struct([])),
        ([{"x": 1}, {"y": "s", "x": 0.5}], pa.struct([("x", pa.float64()), ("y", pa.string())])),
    ],
)
def test_types_of_values(values, expected):
    assert type_of(*values) == expected
    assert type_of(*values, quarantines=True) == expected


CLASHES = [
    ("s", 1, "string in line 1 of 'f0' and int64 in line 2 of 'f0'"),
    (True, 1, "bool in line 1 of 'f0' and int64 in line 2 of 'f0'"),
    ([], "s", "list<item: null> in line 1 of 'f0' and string in line 2"),
    (2**53 + 1, 0.5, r"a whole number beyond 2\^53 in line 1 of 'f0' and float64 in line 2"),
    (0.5, 2**63 + 1, r"float64 in line 1 of 'f0' and a whole number beyond 2\^63 in line 2"),
    (-1, 2**64 - 1, r"int64 in line 1 of 'f0' and a whole number beyond 2\^63 in line 2"),
    (1, 10**400, "int64 in line 1 of 'f0' and a whole number that no 64-bit number holds exactly in line 2"),
    ([0.5], [2**53 + 1], r"float64 in line 1 of 'f0' and a whole number beyond 2\^53 in line 2 of 'f0' \(at 'a\[\]'\)"),
    (
        {"x": [{"y": 1}]},
        {"x": [{"y": "s"}]},
        r"int64 in line 1 of 'f0' and string in line 2 of 'f0' \(at 'a\.x\[\]\.y'\)",
    ),
]


@pytest.mark.parametrize(("one", "other", "message"), CLASHES)
def test_types_that_do_not_go_together_are_an_error_that_names_the_lines(one, other, message):
    with pytest.raises(SchemaError, match=f"the column 'a' has {message}.*on_bad_rows='quarantine'"):
        infer([head(one, other)], {}, "f{}".format)


@pytest.mark.parametrize(("one", "other", "_"), CLASHES)
def test_with_quarantine_the_type_of_most_rows_of_a_file_counts(one, other, _):
    for most, few in ((one, other), (other, one)):
        if most != 10**400:
            assert type_of(few, most, most, quarantines=True) == type_of(most)


def test_each_depth_has_a_majority_of_its_own():
    rows = [{"x": "odd", "id": 0}, {"x": 1, "y": [1]}, {"x": 2, "z": "s"}, {"y": ["odd", "odd", "odd"]}, {"y": [2]}]
    fields = [("x", pa.int64()), ("id", pa.int64()), ("y", pa.list_(pa.int64())), ("z", pa.string())]
    assert type_of(*rows, quarantines=True) == pa.struct(fields)


def test_files_that_do_not_go_together_are_an_error_with_quarantine_too():
    with pytest.raises(SchemaError, match="int64 in line 1 of 'f0' and string in line 2 of 'f7'"):
        infer([head(1, "odd", 2), head(3, "s", "t", file=7)], {}, "f{}".format, quarantines=True)


def test_a_value_that_nests_too_deep_has_no_type():
    value = 1
    for _ in range(101):
        value = [value]
    assert type_of(value[0])
    with pytest.raises(SchemaError, match="lists or objects nested more than 100 levels deep in line 2"):
        infer([head("s", value)], {}, str)
    assert type_of(value, "s", quarantines=True) == pa.string()
    assert type_of(value, quarantines=True) == pa.null()


def test_a_long_name_is_shortened_in_messages():
    with pytest.raises(SchemaError) as told:
        infer([(0, [(1, {"k" * 10**6: 1}), (2, {"k" * 10**6: "s"})])], {}, str)
    assert "k... (1,000,000 characters)" in str(told.value)
    assert len(str(told.value)) < 1000


def test_origins_are_the_files_that_set_the_type():
    heads = [(0, [(1, {"a": None, "b": 1})]), (3, [(1, {"a": "x"}), (2, {"b": 2.5})]), (5, [(1, {"b": 1})])]
    types, origins = infer(heads, {}, str)
    assert types == {"a": pa.string(), "b": pa.float64()}
    assert origins == {"a": 3, "b": 3}


def test_a_head_that_is_cut_off_gives_whole_rows_only():
    assert rows_of(b'{"a":1}\n\nnull\n{bad\n{"a":2}\n{"a":', whole=False) == [(1, {"a": 1}), (5, {"a": 2})]
    assert rows_of(b'\xef\xbb\xbf{"a":1}', whole=True) == [(1, {"a": 1})]


@pytest.mark.parametrize(
    "line",
    [
        r'{"\udfaa": 1}',
        r'{"m": [{"\uD800": 1}]}',
        r'{"a": "\ud83d"}',
        '{"a": "\ud800"}',
        '{"a": 1}'.encode("utf-16-le"),
    ],
)
def test_rows_that_are_no_text_say_nothing_of_columns(line):
    data = line if isinstance(line, bytes) else line.encode("utf-8", "surrogatepass")
    assert rows_of(data, whole=True) == []
    assert rows_of(rb'{"\ud83d\ude00": "\ud83d\ude00"}', whole=True) == [(1, {"\U0001f600": "\U0001f600"})]
    assert rows_of(rb'{"\udfaa": "a long row', whole=False) == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (' { "a" : 1 , "b": {"c": [2]}, "t": "lo', {"a": 1, "b": {"c": [2]}, "t": ""}),
        ('{"a": [1, 2', {}),
        ('{"a', {}),
        ("[1", {}),
        ("", {}),
    ],
)
def test_first_fields(text, expected):
    assert first_fields(text) == expected


def test_dtype_must_be_a_mapping():
    with pytest.raises(ParameterError, match="dtype must map columns to types"):
        requested_types(["a"])


def test_a_name_that_no_file_can_hold_is_refused():
    with pytest.raises(ParameterError, match=r"dtype= has the column '.ud800', whose name is not Unicode text"):
        requested_types({"id": "int64", "\ud800": "string"})


@pytest.mark.parametrize(
    "kind",
    [pa.float16(), pa.struct([("a", pa.float16())]), pa.map_(pa.string(), pa.int64()), pa.duration("s"), pa.uuid()],
)
def test_a_type_that_no_value_of_json_has_is_refused(kind):
    with pytest.raises(SchemaError, match=r"dtype=\{'a': '.*'\} is not possible, because values of JSON"):
        require_possible({"id": pa.int64(), "a": kind})


@pytest.mark.parametrize(
    "kind", ["string", "decimal128", "date32", "time32[s]", "timestamp[us]", "binary", "null", "bool"]
)
def test_types_of_json_are_taken(kind):
    require_possible({"a": pa.decimal128(5, 2) if kind == "decimal128" else pa.type_for_alias(kind)})
