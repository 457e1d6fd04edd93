# SPDX-License-Identifier: Apache-2.0
"""MinHash signatures as values of a column, each with a header that identifies its scheme.

A value, little-endian: 8 bytes that identify how it was made (`sketch_id`), 16 bytes content hash of the text, then
the hashes, 4 or 8 bytes each. All values of a scheme have the same width, so that Parquet stores them as
``FIXED_LEN_BYTE_ARRAY``, and any program can read them.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa

from curator_df.errors import SchemaError
from curator_df.kernels.minhash.scheme import Scheme
from curator_df.kernels.minhash.signatures import SPAN_ROWS, sketch_span, word_dtype
from curator_df.kernels.rows.content_hash import Hashes, column_hashes
from curator_df.kernels.text.buffers import text_spans

ID_BYTES = 8
"""Bytes at the beginning of a value that identify how it was made."""
HEADER_BYTES = 24
"""Bytes before the hashes."""
VALUE_VERSION = 2
"""Version of the header: since 2, the content hash is that of the unchanged text, before that of the compared text."""
_BANDS = ("num_bands", "minhashes_per_band")


class Stored(NamedTuple):
    """Contents of some values."""

    contents: Hashes
    """Content hashes of the texts, shape (rows, 2)."""
    signatures: npt.NDArray[Any]
    """Signatures, shape (rows, hashes)."""


def sketch_id(scheme: Scheme, value_version: int = VALUE_VERSION) -> int:
    """Return the ID that two signatures must share to be compared: the scheme without its bands, and the version.

    Examples
    --------
    >>> first, second = Scheme("characters", 24, 20, 13), Scheme("characters", 24, 10, 26)
    >>> sketch_id(first) == sketch_id(second), sketch_id(first) == sketch_id(Scheme("characters", 25, 20, 13))
    (True, False)
    """
    header: dict[str, Any] = {name: value for name, value in scheme.header().items() if name not in _BANDS}
    if value_version > 1:  # the first version had no number
        header["value_version"] = value_version
    digest = hashlib.blake2b(json.dumps(header, sort_keys=True).encode(), digest_size=ID_BYTES)
    return int.from_bytes(digest.digest(), "little")


def stored_dtype(scheme: Scheme) -> pd.ArrowDtype:
    """Return the dtype of the column."""
    return pd.ArrowDtype(pa.binary(HEADER_BYTES + scheme.signature_bytes))


def pack_signatures(texts: pd.Series, scheme: Scheme) -> pd.Series:
    """Compute a value for each text; null is treated as empty.

    Notes
    -----
    Memory: the result, 16 bytes a row, and 0.6 MB.
    """
    dtype = stored_dtype(scheme)
    width = dtype.pyarrow_dtype.byte_width
    values = np.empty((len(texts), width), dtype=np.uint8)
    values[:, :ID_BYTES] = np.array([sketch_id(scheme)], dtype="<u8").view(np.uint8)
    values[:, ID_BYTES:HEADER_BYTES] = column_hashes(texts).astype("<u8").view(np.uint8)
    signatures = np.empty((SPAN_ROWS, scheme.num_hashes), dtype=word_dtype(scheme))
    for span in text_spans(texts, SPAN_ROWS):
        sketch_span(span, scheme, signatures[: len(span)])
        values[span.first_row : span.first_row + len(span), HEADER_BYTES:] = signatures[: len(span)].view(np.uint8)
    array = pa.FixedSizeBinaryArray.from_buffers(dtype.pyarrow_dtype, len(texts), [None, pa.py_buffer(values)])
    return pd.Series(pd.arrays.ArrowExtensionArray(array), index=texts.index)


def unpack_signatures(column: pd.Series, scheme: Scheme) -> Stored:
    """Return the contents of the values of a column, without a copy if they are contiguous.

    Raises
    ------
    SchemaError
        If a value is null, was made with another scheme, or has fewer hashes than the bands need.
    """
    require_stored(column.dtype, column.name, scheme)
    values = fixed_width_values(column, "add_minhash never writes. Compute the column again with add_minhash")
    return read_values(values, scheme, f"the column {column.name!r}")


def fixed_width_values(column: pd.Series, never: str) -> npt.NDArray[np.uint8]:
    """Return the bytes of a column of fixed-width values, shape (rows, width), without a copy if they are contiguous.

    Raises
    ------
    SchemaError
        If a value is null; ``never`` ends the message.
    """
    held: Any = column.array.__arrow_array__()
    array = held.combine_chunks() if isinstance(held, pa.ChunkedArray) else held
    if isinstance(array, pa.ChunkedArray):  # there is no chunk without rows
        array = pa.array([], type=column.dtype.pyarrow_dtype)  # type: ignore[union-attr]
    if array.null_count:
        raise SchemaError(f"the column {column.name!r} has nulls, which {never}")
    width = array.type.byte_width
    data = array.buffers()[1]
    flat = np.frombuffer(data, dtype=np.uint8, count=len(array) * width, offset=array.offset * width)
    return flat.reshape(len(array), width)


def read_values(values: npt.NDArray[np.uint8], scheme: Scheme, where: str) -> Stored:
    """Return the contents of contiguous values, shape (rows, width) (see `unpack_signatures`)."""
    word = word_dtype(scheme)
    ids = np.ascontiguousarray(values[:, :ID_BYTES]).view("<u8").ravel()
    if (others := ids != np.uint64(sketch_id(scheme))).any():
        first = int(others.argmax())
        if ids[first] in [np.uint64(sketch_id(scheme, version)) for version in range(1, VALUE_VERSION)]:
            raise SchemaError(
                f"{where} has signatures that an earlier version of curator_df computed (the first is in row {first:,} of a "
                "block). Compute them again with add_minhash"
            )
        raise SchemaError(
            f"{where} has signatures that were made with other parameters than requested, from row {first:,} of a "
            f"block on. Requested: {scheme.ngrams} {scheme.ngram_size}, {scheme.bits} bits, seed={scheme.seed}, normalize="
            f"{scheme.normalize!r}. Use the scheme= with which add_minhash was called"
        )
    contents = np.ascontiguousarray(values[:, ID_BYTES:HEADER_BYTES]).view("<u8").astype(np.uint64, copy=False)
    whole = HEADER_BYTES + (values.shape[1] - HEADER_BYTES) // word.itemsize * word.itemsize
    return Stored(contents, values[:, HEADER_BYTES:whole].view(word))


def require_stored(dtype: Any, name: Any, scheme: Scheme) -> None:
    """Raise `SchemaError` unless a column can hold signatures of a scheme."""
    kind = getattr(dtype, "pyarrow_dtype", None)
    if kind is None or not pa.types.is_fixed_size_binary(kind) or kind.byte_width < HEADER_BYTES:
        raise SchemaError(
            f"the column {name!r} has dtype {dtype}, so it does not hold signatures. Add such a column with add_minhash"
        )
    hashes = (kind.byte_width - HEADER_BYTES) * 8 // scheme.bits
    if hashes < scheme.num_hashes:
        raise SchemaError(
            f"the column {name!r} has signatures of {hashes} hashes, but num_bands={scheme.num_bands} of "
            f"minhashes_per_band={scheme.minhashes_per_band} needs {scheme.num_hashes}. Use the settings with which "
            "add_minhash was called, or compute the signatures again"
        )


def similarity_estimates(first: npt.NDArray[Any], second: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    """Return the fraction of equal hashes, an unbiased estimate of the Jaccard similarity.

    Parameters
    ----------
    first, second : ndarray of uint32 or uint64, shape (pairs, hashes)
        Signatures.

    Notes
    -----
    The standard error is ``sqrt(J * (1 - J) / hashes)``: 0.025 at J = 0.8 with 260 hashes.

    Examples
    --------
    >>> similarity_estimates(np.array([[1, 2, 3, 4]]), np.array([[1, 2, 0, 4]])).tolist()
    [0.75]
    """
    estimates: npt.NDArray[np.float64] = (first == second).mean(axis=1)
    return estimates
