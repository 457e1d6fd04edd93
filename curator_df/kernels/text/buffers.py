# SPDX-License-Identifier: Apache-2.0
"""The Arrow buffers of a text column, without a copy, and text columns made back from buffers.

Covers ``StringDtype`` (storage pyarrow or python), ``ArrowDtype`` strings and, by conversion, object and categorical
columns. A column is read as *spans*: consecutive rows of one Arrow chunk, few enough that what a kernel holds for each row
stays small.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa

from curator_df.core.columns import is_text
from curator_df.errors import SchemaError

SPAN_ROWS = 4096
"""Rows of a span: at ten counts of 8 bytes a row, 330 KB of working memory, independent of the block."""
CHANGED_TEXT = (
    "The input is read several times, and this time an earlier step gave another text. Make each step give the same result for "
    "the same row, without random numbers, the time or shared state, and do not change the input files during a run"
)
"""Cause and cure of texts that are not those of the first pass."""


@dataclass(frozen=True)
class TextSpan:
    """Consecutive rows of a text column, as views of its Arrow buffers."""

    first_row: int
    """Position in the column (or array) of the first row."""
    data: npt.NDArray[np.uint8]
    """UTF-8 bytes of the whole Arrow chunk, read-only."""
    offsets: npt.NDArray[np.int64]
    """Shape (rows + 1): where each row starts in ``data``, and the end of the last."""
    valid: npt.NDArray[np.bool_] | None
    """Shape (rows): False where the text is null; None when no row of the chunk is null."""

    def __len__(self) -> int:
        return len(self.offsets) - 1


def is_arrow_text(dtype: Any) -> bool:
    """Return whether a dtype is a string dtype, not object or a category of strings."""
    return isinstance(dtype, pd.StringDtype | pd.ArrowDtype) and is_text(dtype)


def text_chunks(texts: pd.Series) -> pa.ChunkedArray:
    """Return a text column as Arrow strings, sharing its buffers where it is stored as Arrow."""
    array: Any = texts.array
    try:
        if isinstance(array, pd.Categorical):
            return pa.chunked_array([_category_texts(array)])
        held = array.__arrow_array__() if hasattr(array, "__arrow_array__") else pa.array(array, pa.large_string())
    except (pa.ArrowInvalid, pa.ArrowTypeError) as exc:
        raise SchemaError(
            f"the column {texts.name!r} has values that are not text: {exc}. Convert it first, for example with "
            "astype('string[pyarrow]')"
        ) from exc
    return held if isinstance(held, pa.ChunkedArray) else pa.chunked_array([held])


def _category_texts(values: pd.Categorical) -> pa.Array:
    """Return the text of each value of a categorical column, null where the value is null."""
    categories = pa.array(values.categories.to_numpy(dtype=object), pa.large_string())
    return repeated_strings(categories, np.asarray(values.codes))


def text_spans(texts: pd.Series, rows: int = SPAN_ROWS) -> Iterator[TextSpan]:
    """Walk a text column in spans of at most ``rows`` rows."""
    first_row = 0
    for chunk in text_chunks(texts).chunks:
        yield from array_spans(chunk, first_row, rows)
        first_row += len(chunk)


def text_lengths(span: TextSpan) -> npt.NDArray[np.int64]:
    """Return the bytes of each text of a span, 0 for null."""
    lengths: npt.NDArray[np.int64] = np.diff(span.offsets)
    return lengths if span.valid is None else np.where(span.valid, lengths, 0)


def text_bytes(texts: pd.Series) -> int:
    """Return the bytes of all texts of a column."""
    return sum(int(text_lengths(span).sum()) for span in text_spans(texts))


def array_spans(chunk: pa.Array, first_row: int = 0, rows: int = SPAN_ROWS) -> Iterator[TextSpan]:
    """Walk one Arrow string array in spans of at most ``rows`` rows. Slices are respected."""
    data, offsets = string_buffers(chunk)
    for start in range(0, len(chunk), rows):
        stop = min(start + rows, len(chunk))
        # Offsets of 32 bits are widened span by span; those of 64 bits stay views.
        widened = np.asarray(offsets[start : stop + 1], dtype=np.int64)
        valid = None
        if chunk.null_count:
            valid = chunk.slice(start, stop - start).is_valid().to_numpy(zero_copy_only=False)
        yield TextSpan(first_row + start, data, widened, valid)


def string_buffers(chunk: pa.Array) -> tuple[npt.NDArray[np.uint8], npt.NDArray[Any]]:
    """Return views of the bytes and of the offsets (rows + 1 of them, in the array's own width) of a string array."""
    width: Any = np.int64 if pa.types.is_large_string(chunk.type) else np.int32
    _, offsets, data = chunk.buffers()
    # An Arrow array of no rows may come without buffers.
    held = np.frombuffer(offsets, dtype=width) if offsets is not None and offsets.size else np.zeros(1, dtype=width)
    text = np.frombuffer(data, dtype=np.uint8) if data is not None and data.size else _no_bytes()
    text.flags.writeable = False
    return text, held[chunk.offset : chunk.offset + len(chunk) + 1]


def large_strings(data: Any, offsets: npt.NDArray[np.int64], valid: npt.NDArray[np.bool_] | None) -> pa.Array:
    """Make a ``large_string`` array from buffers, without copying the bytes."""
    bitmap = None if valid is None else pa.py_buffer(np.packbits(valid, bitorder="little"))
    return pa.LargeStringArray.from_buffers(len(offsets) - 1, pa.py_buffer(offsets), pa.py_buffer(data), bitmap)


def text_series(chunks: list[pa.Array], like: pd.Series, index: Any = None) -> pd.Series:
    """Return a text column of these arrays with the name, the dtype (`text_dtype`) and the index of ``like``."""
    array = text_dtype(like.dtype).__from_arrow__(pa.chunked_array(chunks, type=pa.large_string()))
    return pd.Series(array, index=like.index if index is None else index, name=like.name, copy=False)


def repeated_texts(values: Sequence[str | None], codes: npt.NDArray[np.integer[Any]]) -> Any:
    """Return the pandas array of ``values[code]`` for each code, null where the code is negative."""
    array = repeated_strings(pa.array(values, pa.large_string()), codes)
    dtype: Any = pd.StringDtype("pyarrow")
    return dtype.__from_arrow__(pa.chunked_array([array]))


def repeated_strings(values: pa.Array, codes: npt.NDArray[np.integer[Any]]) -> pa.Array:
    """Return the Arrow strings of ``values[code]`` for each code, null where the code is negative."""
    indices = pa.array(codes, mask=codes < 0)
    return pa.DictionaryArray.from_arrays(indices, values).cast(pa.large_string())


def text_dtype(dtype: Any) -> Any:
    """Return the dtype of a text column after its text was changed: the same, but Arrow strings for objects and categories."""
    is_other = pd.api.types.is_object_dtype(dtype) or isinstance(dtype, pd.CategoricalDtype)
    return pd.StringDtype("pyarrow") if is_other else dtype


def with_plain_text(block: pd.DataFrame, text: str) -> pd.DataFrame:
    """Return a block whose text column has the dtype that it has after its text was changed, if it is a categorical one.

    Examples
    --------
    >>> str(with_plain_text(pd.DataFrame({"text": pd.Categorical(["a", None])}), "text")["text"].dtype)
    'string'
    """
    if not isinstance(block.dtypes[text], pd.CategoricalDtype):
        return block
    return block.assign(**{text: text_series(text_chunks(block[text]).chunks, block[text])})


def read_only(data: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
    """Return a read-only view of bytes, as compiled kernels need it."""
    view = data.view()
    view.flags.writeable = False
    return view


def _no_bytes() -> npt.NDArray[np.uint8]:
    return np.frombuffer(b"\0", dtype=np.uint8)[:0]
