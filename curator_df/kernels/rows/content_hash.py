# SPDX-License-Identifier: Apache-2.0
"""128-bit content hash of each row of a block: the same on every machine, in every process and on either backend.

One text column: MurmurHash3_x64_128 with seed 0 of its UTF-8 bytes, as cuDF's ``murmurhash3_x64_128`` and mmh3's
``hash64`` compute it; null is `NULL_HASH`, which no known text has. A number: the same hash of its 8 bytes, as int64 or
float64. Several columns: the same hash of the 16-byte hashes of the columns one after the other, little-endian, so that
the boundaries between values are part of the hash. The compiled functions are in `murmur_hash`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pandas as pd

from curator_df.core.columns import is_text
from curator_df.errors import SchemaError
from curator_df.kernels.text.buffers import text_spans
from curator_df.kernels.text.lower_case import lower_bytes, lower_steps
from curator_df.kernels.text.murmur_hash import hash_normalized, hash_texts

Normalize = Literal["case_and_spaces"]
"""Normalization of texts. ``case_and_spaces``: simple lower case by code point, runs of white space as one space, none at the
ends."""

Hashes = npt.NDArray[np.uint64]
"""Hashes, shape (rows, 2): the two halves, in the order in which the algorithm returns them."""

NULL_HASH = np.uint64((1 << 64) - 1)
"""Both halves of the hash of a missing value."""


def row_hashes(block: pd.DataFrame, columns: Sequence[str], *, normalize: Normalize | None = None) -> Hashes:
    """Hash each row of a block.

    Parameters
    ----------
    block : pandas.DataFrame
        The block.
    columns : sequence of str
        One column or several, whose order counts. Text, integers, booleans or floats.
    normalize : {"case_and_spaces"}, optional
        Normalization of texts before they are hashed; none by default.

    Returns
    -------
    ndarray of uint64, shape (rows, 2)
        Hashes, uniform in all bits.

    Notes
    -----
    Memory: 16 bytes a row, and for several columns 16 more for each; no text is copied.

    Examples
    --------
    >>> block = pd.DataFrame({"text": ["A  b", "a b ", None]})
    >>> first, second, null = row_hashes(block, ["text"], normalize="case_and_spaces").tolist()
    >>> first == second, null == [NULL_HASH, NULL_HASH]
    (True, True)
    """
    if len(columns) == 1:
        return column_hashes(block[columns[0]], normalize=normalize)
    joined = np.empty((len(block), len(columns), 2), dtype="<u8")
    for number, name in enumerate(columns):
        joined[:, number] = column_hashes(block[name], normalize=normalize)
    return _fixed_width_hashes(joined.view(np.uint8).ravel(), len(block), 16 * len(columns))


def column_hashes(values: pd.Series, *, normalize: Normalize | None = None) -> Hashes:
    """Hash each value of a column (see `row_hashes`); a value of a categorical column has the hash of its category."""
    if isinstance(values.dtype, pd.CategoricalDtype):
        return _category_hashes(values, normalize)
    if not is_text(values.dtype):
        return _number_hashes(values)
    hashes = np.empty((len(values), 2), dtype=np.uint64)
    for span in text_spans(values):
        _hash_span(span.data, span.offsets, hashes[span.first_row : span.first_row + len(span)], normalize)
        if span.valid is not None:
            hashes[span.first_row : span.first_row + len(span)][~span.valid] = NULL_HASH
    return hashes


def _category_hashes(values: pd.Series, normalize: Normalize | None) -> Hashes:
    used, places = np.unique(values.cat.codes.to_numpy(), return_inverse=True)
    hashes = np.full((len(used), 2), NULL_HASH, dtype=np.uint64)
    categories = pd.Series(values.cat.categories[used[used >= 0]], name=values.name)
    hashes[used >= 0] = column_hashes(categories, normalize=normalize)
    return hashes[places]


def _hash_span(data: Any, offsets: Any, hashes: Hashes, normalize: Normalize | None) -> None:
    if normalize is None:
        hash_texts(data, offsets, hashes)
    else:
        table = lower_steps()
        hash_normalized(data, offsets, lower_bytes(), table.page_of, table.pages, hashes)


def span_hashes(data: Any, offsets: npt.NDArray[np.int64], normalize: Normalize | None = None) -> Hashes:
    """Hash the bytes between each offset and the next: shape (offsets - 1, 2)."""
    hashes = np.empty((len(offsets) - 1, 2), dtype=np.uint64)
    _hash_span(data, offsets, hashes, normalize)
    return hashes


def _number_hashes(values: pd.Series) -> Hashes:
    if pd.api.types.is_integer_dtype(values.dtype) or pd.api.types.is_bool_dtype(values.dtype):
        numbers: Any = values.to_numpy(dtype="<i8", na_value=0) if values.hasnans else values.to_numpy(dtype="<i8")
    elif pd.api.types.is_float_dtype(values.dtype):
        numbers = values.to_numpy(dtype="<f8", na_value=np.nan) + 0.0  # -0.0 equals 0.0
    else:
        raise SchemaError(
            f"the column {values.name!r} has dtype {values.dtype}, which cannot be hashed. Choose columns of text, integers, "
            "booleans or floats"
        )
    hashes = _fixed_width_hashes(np.ascontiguousarray(numbers).view(np.uint8), len(values), 8)
    hashes[values.isna().to_numpy(dtype=bool)] = NULL_HASH
    return hashes


def _fixed_width_hashes(data: npt.NDArray[np.uint8], rows: int, width: int) -> Hashes:
    hashes = np.empty((rows, 2), dtype=np.uint64)
    _hash_span(data, np.arange(rows + 1, dtype=np.int64) * width, hashes, None)
    return hashes
