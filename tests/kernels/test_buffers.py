# SPDX-License-Identifier: Apache-2.0
"""Views of Arrow buffers, and columns made back from them."""

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from curator_df.errors import SchemaError
from curator_df.kernels.text.buffers import array_spans, large_strings, repeated_texts, text_chunks, text_spans


def rows_of(texts, rows=4096):
    found = []
    for span in text_spans(texts, rows):
        for number in range(len(span)):
            valid = span.valid is None or span.valid[number]
            held = span.data[span.offsets[number] : span.offsets[number + 1]].tobytes().decode()
            found.append(held if valid else None)
    return found


@pytest.mark.parametrize("width", [pa.string(), pa.large_string()])
@pytest.mark.parametrize("rows", [1, 2, 4096])
def test_spans_respect_slices_chunks_and_nulls(width, rows):
    first = pa.array(["no", "a", None, "ccc", "no"], width).slice(1, 3)
    chunked = pa.chunked_array([first, pa.array([], width), pa.array(["", "é"], width)])
    texts = pd.Series(pd.ArrowDtype(width).__from_arrow__(chunked))
    assert rows_of(texts, rows) == ["a", None, "ccc", "", "é"]
    assert [span.first_row for span in text_spans(texts, 2)] == [0, 2, 3]


def test_large_string_buffers_are_views():
    texts = pd.Series(["a", "bc"], dtype="string[pyarrow]")
    [span] = text_spans(texts)
    _, offsets, data = text_chunks(texts).chunk(0).buffers()
    assert (span.offsets.ctypes.data, span.data.ctypes.data) == (offsets.address, data.address)
    assert not span.data.flags.writeable


def test_object_columns_are_converted_and_refused_when_not_text():
    assert rows_of(pd.Series(["a", None], dtype=object)) == ["a", None]
    with pytest.raises(SchemaError, match="the column 'text' has values that are not text"):
        text_chunks(pd.Series(["a", 1], dtype=object, name="text"))


def test_categories_are_converted_and_refused_when_not_text():
    texts = pd.Series(["b", None, "", "b"], dtype="category", name="kind")
    assert rows_of(texts, 2) == ["b", None, "", "b"]
    assert rows_of(texts[:0]) == []
    with pytest.raises(SchemaError, match="'kind' has values that are not text"):
        text_chunks(pd.Series([1, None, 2], dtype="category", name="kind"))


def test_arrays_without_buffers_have_no_rows():
    assert list(array_spans(pa.array([], pa.large_string()))) == []
    assert rows_of(pd.Series([None, None], dtype="string[pyarrow]")) == [None, None]
    assert rows_of(pd.Series(["", ""], dtype="string[pyarrow]")) == ["", ""]


def test_large_strings_of_buffers():
    array = large_strings(bytearray("aé".encode()), np.array([0, 1, 1, 3]), np.array([True, False, True]))
    assert array.to_pylist() == ["a", None, "é"]
    array.validate(full=True)


def test_repeated_texts():
    assert repeated_texts(["x", "y"], np.array([1, -1, 0], dtype=np.int16)).tolist() == ["y", pd.NA, "x"]
    assert len(repeated_texts(["x"], np.array([], dtype=np.int16))) == 0
