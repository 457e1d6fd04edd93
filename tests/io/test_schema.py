# SPDX-License-Identifier: Apache-2.0
import pyarrow as pa
import pytest

from curator_df.errors import ParameterError
from curator_df.io.schema import first_fields, infer, requested_types, rows_of, type_of, unify


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, pa.null()),
        (True, pa.bool_()),
        (2**63 - 1, pa.int64()),
        (2**63, pa.uint64()),
        (2**64, pa.float64()),
        ([], pa.list_(pa.null())),
        ([{"a": 1}, {"b": [None]}], pa.list_(pa.struct([("a", pa.int64()), ("b", pa.list_(pa.null()))]))),
        ({}, pa.struct([])),
    ],
)
def test_types_of_values(value, expected):
    assert type_of(value) == expected


@pytest.mark.parametrize(
    ("one", "other"), [(pa.string(), pa.int64()), (pa.bool_(), pa.int64()), (pa.list_(pa.null()), pa.string())]
)
def test_types_that_do_not_go_together(one, other):
    with pytest.raises(TypeError, match="and"):
        unify(one, other)


def test_origins_are_the_files_that_set_the_type():
    heads = [(0, [{"a": None, "b": 1}]), (3, [{"a": "x"}, {"b": 2.5}]), (5, [{"b": 1}])]
    types, origins = infer(heads, {}, str)
    assert types == {"a": pa.string(), "b": pa.float64()}
    assert origins == {"a": 3, "b": 3}


def test_a_head_that_is_cut_off_gives_whole_rows_only():
    assert rows_of(b'{"a":1}\n\nnull\n{bad\n{"a":2}\n{"a":', whole=False) == [{"a": 1}, {"a": 2}]
    assert rows_of(b'\xef\xbb\xbf{"a":1}', whole=True) == [{"a": 1}]


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
