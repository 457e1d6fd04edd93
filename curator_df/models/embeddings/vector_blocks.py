# SPDX-License-Identifier: Apache-2.0
"""Extract vectors from a column of lists, for the stages of semantic duplicates."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from curator_df.core.ranges.source import OFFSET_BITS
from curator_df.dedup.vectors.settings import NOT_FINITE, Vectors
from curator_df.errors import ParameterError, SchemaError
from curator_df.exchange.content_keys import ranked_keys


def vectors_of(block: Any, *, embedding: str, width: int, dtype: str, ranked_by: str | None) -> Vectors:
    """Return the vectors of a block; null, an empty list, zeros, and a vector with NaN or infinity count as none.

    Numbers of float64 beyond the range of float32 are scaled, because a cosine does not depend on the length of a vector.

    Examples
    --------
    >>> import pandas as pd
    >>> lists = pd.array([[3.0, 4.0], None, [0.0, 0.0]], dtype=pd.ArrowDtype(pa.list_(pa.float32(), 2)))
    >>> vectors_of(pd.DataFrame({"v": lists}), embedding="v", width=2, dtype="float32", ranked_by=None)[:2]
    (array([[3., 4.]], dtype=float32), array([ True, False, False]))
    """
    held: Any = block[embedding].array.__arrow_array__()
    chunks = held.chunks if isinstance(held, pa.ChunkedArray) else [held]
    numbers = np.zeros((len(block), width), dtype=dtype)
    lists, empty = np.zeros(len(block), dtype=np.bool_), np.zeros(len(block), dtype=np.bool_)
    at = 0
    for chunk in chunks:
        part = slice(at, at + len(chunk))
        lists[part] = np.asarray(chunk.is_valid())
        empty[part] = lists[part] & (_lengths(chunk) == 0)
        given = lists[part] & ~empty[part]
        wrong = given & (_lengths(chunk) != width)
        if wrong.any():
            raise _wrong_length(block.index[part], embedding, width, _lengths(chunk), int(wrong.argmax()))
        flat = np.asarray(chunk.flatten().to_numpy(zero_copy_only=False))
        with np.errstate(over="ignore"):  # of a row with an infinity
            numbers[part][given] = _in_range(flat.reshape(-1, width), numbers.dtype)
        at += len(chunk)
    finite, nonzero = np.isfinite(numbers).all(axis=1), (numbers != 0).any(axis=1)
    given = lists & ~empty
    valid = given & finite & nonzero
    unusable = {"null": ~lists, "empty": empty, "zeros": given & ~nonzero, NOT_FINITE: given & ~finite}
    keys = ranked_keys(np.empty((len(block), 0), dtype=np.uint64), block, (), ranked_by)
    return Vectors(numbers[valid], valid, keys.values, keys.missing, unusable)


def _lengths(chunk: Any) -> npt.NDArray[np.int64]:
    """Return the length of each list of a chunk; 0 for null."""
    if pa.types.is_fixed_size_list(chunk.type):
        return np.full(len(chunk), chunk.type.list_size, dtype=np.int64)
    return np.asarray(chunk.value_lengths().fill_null(0), dtype=np.int64)


def _wrong_length(addresses: Any, embedding: str, width: int, lengths: npt.NDArray[np.int64], at: int) -> SchemaError:
    file, offset = divmod(int(addresses[at]), 1 << OFFSET_BITS)
    return SchemaError(
        f"all lists in the column {embedding!r} must have {width:,} numbers, but the row at offset {offset:,} of input file "
        f"{file:,} has a list of {int(lengths[at]):,}, not of {width:,} numbers. Drop such rows with keep_where, or set the "
        "length of the others with dimensions="
    )


def _in_range(rows: npt.NDArray[Any], dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    """Return rows in the range of ``dtype``: rows whose largest number is beyond it are divided by that number."""
    if rows.dtype.itemsize <= dtype.itemsize or not len(rows):
        return rows
    limits: Any = np.finfo(dtype)
    largest = np.abs(rows).max(axis=1)
    outside = np.isfinite(largest) & (largest > 0) & ((largest > limits.max) | (largest < limits.smallest_normal))
    if outside.any():
        rows = rows.copy()
        rows[outside] /= largest[outside, None]
    return rows


def absent(block: Any, *, embedding: str, width: int, dtype: str, ranked_by: str | None) -> npt.NDArray[np.bool_]:  # noqa: ARG001
    """Return which rows have no list."""
    missing: npt.NDArray[np.bool_] = block[embedding].isna().to_numpy(dtype=np.bool_)
    return missing


def vector_type(df: Any, operator: str, embedding: str, dimensions: int | None) -> tuple[int, str]:
    """Return the length of the vectors of a column, and the dtype of their numbers.

    Raises
    ------
    SchemaError
        If the column does not contain lists of numbers.
    ParameterError
        If ``dimensions`` is needed, or differs from the column's.
    """
    kind: Any = getattr(df.dtypes[embedding], "pyarrow_dtype", None)
    lists = kind is not None and (
        pa.types.is_fixed_size_list(kind) or pa.types.is_list(kind) or pa.types.is_large_list(kind)
    )
    if not lists or not pa.types.is_floating(kind.value_type):
        raise SchemaError(
            f"{operator} needs lists of floating-point numbers in the column {embedding!r}, as add_embedding makes them, but it "
            f"has {df.dtypes[embedding]}"
        )
    precision = "float16" if pa.types.is_float16(kind.value_type) else "float32"
    width = kind.list_size if pa.types.is_fixed_size_list(kind) else dimensions
    if width is None:
        raise ParameterError(
            f"{operator}: the type of the column {embedding!r}, {kind}, does not specify the length of its lists. Set it with "
            "dimensions="
        )
    if not isinstance(width, int) or width < 1 or dimensions not in (None, width):
        raise ParameterError(
            f"{operator}: dimensions={dimensions!r}, but the lists of {embedding!r} have {width} numbers"
        )
    return width, precision
