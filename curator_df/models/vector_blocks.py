# SPDX-License-Identifier: Apache-2.0
"""Vectors out of a column of lists, as the stages of semantic duplicates take them from a block."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from curator_df.core.exchange.vector_barrier import Vectors
from curator_df.errors import ParameterError, SchemaError
from curator_df.ops.duplicates import ranked_keys


def vectors_of(block: Any, *, embedding: str, width: int, dtype: str, ranked_by: str | None) -> Vectors:
    """Return the vectors of a block; null, a vector of zeros, and one with NaN or infinity count as none.

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
    valid = np.zeros(len(block), dtype=np.bool_)
    at = 0
    for chunk in chunks:
        found = np.asarray(chunk.is_valid())
        flat = np.asarray(chunk.flatten().to_numpy(zero_copy_only=False))
        if len(flat) != width * int(found.sum()) or not _all_of_width(chunk, width):
            raise SchemaError(
                f"the column {embedding!r} has a list that is not of {width:,} numbers; leave such rows out with keep_where"
            )
        part = slice(at, at + len(chunk))
        numbers[part][found] = flat.reshape(-1, width)
        valid[part] = found
        at += len(chunk)
    valid &= np.isfinite(numbers).all(axis=1) & (numbers != 0).any(axis=1)
    keys = ranked_keys(np.empty((len(block), 0), dtype=np.uint64), block, (), ranked_by)
    return Vectors(numbers[valid], valid, keys.values, keys.missing)


def _all_of_width(chunk: Any, width: int) -> bool:
    return pa.types.is_fixed_size_list(chunk.type) or bool(
        (np.asarray(chunk.value_lengths().drop_null()) == width).all()
    )


def absent(block: Any, *, embedding: str, width: int, dtype: str, ranked_by: str | None) -> npt.NDArray[np.bool_]:  # noqa: ARG001
    """Return which rows have no list."""
    missing: npt.NDArray[np.bool_] = block[embedding].isna().to_numpy(dtype=np.bool_)
    return missing


def vector_type(df: Any, operator: str, embedding: str, dimensions: int | None) -> tuple[int, str]:
    """Return how long the vectors of a column are, and as what their numbers are kept.

    Raises
    ------
    SchemaError
        If the column holds no lists of numbers.
    ParameterError
        If ``dimensions`` is needed, or is another than the column's.
    """
    kind: Any = getattr(df.dtypes[embedding], "pyarrow_dtype", None)
    lists = kind is not None and (
        pa.types.is_fixed_size_list(kind) or pa.types.is_list(kind) or pa.types.is_large_list(kind)
    )
    if not lists or not pa.types.is_floating(kind.value_type):
        raise SchemaError(
            f"{operator} needs lists of floating-point numbers in the column {embedding!r}, as add_embedding makes them; it "
            f"holds {df.dtypes[embedding]}"
        )
    precision = "float16" if pa.types.is_float16(kind.value_type) else "float32"
    width = kind.list_size if pa.types.is_fixed_size_list(kind) else dimensions
    if width is None:
        raise ParameterError(
            f"{operator}: the type of the column {embedding!r}, {kind}, does not say how long its lists are; say it with "
            "dimensions="
        )
    if not isinstance(width, int) or width < 1 or dimensions not in (None, width):
        raise ParameterError(
            f"{operator}: dimensions={dimensions!r}, but the lists of {embedding!r} have {width} numbers"
        )
    return width, precision
