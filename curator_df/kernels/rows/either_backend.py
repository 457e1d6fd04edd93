# SPDX-License-Identifier: Apache-2.0
"""Operations on blocks of pandas or cuDF.

Texts of cuDF blocks stay on the device; to the host go numbers of rows, and their hashes. Compiled kernels of the
device are imported where there is such a block, and nowhere else.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from curator_df.core.backend import is_on_device
from curator_df.core.columns import is_text
from curator_df.errors import UnsupportedBackendError
from curator_df.kernels.device.columns import host_numbers, kept_rows, texts_of
from curator_df.kernels.device.support import SIGNATURE_ROWS
from curator_df.kernels.minhash.scheme import Scheme
from curator_df.kernels.minhash.signatures import signature_bands
from curator_df.kernels.rows.content_hash import Normalize, row_hashes
from curator_df.kernels.rows.keep_rows import keep_rows


def device_band_hashes(texts: Any, scheme: Scheme) -> npt.NDArray[np.uint64]:
    """Return the hash of each band of the texts of a cuDF Series; to the host go signatures, a group of rows after the other."""
    from curator_df.kernels.device.signatures import text_signatures

    hashes = np.empty((len(texts), scheme.num_bands), dtype=np.uint64)
    for start in range(0, len(texts), SIGNATURE_ROWS):
        with texts_of(texts.iloc[start : start + SIGNATURE_ROWS]) as part:
            signatures = text_signatures(part, scheme).copy_to_host()
        hashes[start : start + SIGNATURE_ROWS] = signature_bands(signatures, scheme)
    return hashes


def rows_where(block: Any, keep: npt.NDArray[np.bool_]) -> Any:
    """Return the rows of a block, of pandas or cuDF, for which a mask of the host is True."""
    if not is_on_device(block):
        return keep_rows(block, keep)
    return block if keep.all() else kept_rows(block, keep)


def lengths_on_host(texts: Any) -> npt.NDArray[np.int64]:
    """Return the characters of each text of a Series, of pandas or cuDF, on the host; 0 where it is null."""
    lengths = texts.str.len()
    if not is_on_device(texts):
        counted: npt.NDArray[np.int64] = lengths.fillna(0).to_numpy(dtype=np.int64)
        return counted
    on_host: npt.NDArray[np.int64] = host_numbers(lengths, "int64")
    return on_host


def ranks_on_host(values: Any) -> tuple[npt.NDArray[Any], npt.NDArray[np.bool_]]:
    """Return a column of numbers, of pandas or cuDF, as 8 bytes a row of the host, 0 where it is null; and where it is null."""
    dtype = "int64" if getattr(values.dtype, "kind", "f") in "iub" else "float64"
    if not is_on_device(values):
        return values.fillna(0).to_numpy(dtype=dtype), values.isna().to_numpy(dtype=np.bool_)
    return host_numbers(values, dtype), host_numbers(values.isna(), "bool")


def nulls_on_host(values: Any) -> npt.NDArray[np.bool_]:
    """Return where a column, of pandas or cuDF, is null, as a mask of the host."""
    if not is_on_device(values):
        missing: npt.NDArray[np.bool_] = values.isna().to_numpy(dtype=np.bool_)
        return missing
    on_host: npt.NDArray[np.bool_] = host_numbers(values.isna(), "bool")
    return on_host


def require_device_text(operator: str, meta: Any, columns: Sequence[str]) -> None:
    """Raise `UnsupportedBackendError` unless the hashes of rows are of one column of text, where blocks are of cuDF."""
    if is_on_device(meta) and not (len(columns) == 1 and is_text(meta.dtypes[columns[0]])):
        raise UnsupportedBackendError(
            f"{operator} can hash only one column of text of a table on a GPU (cudf blocks), but was given "
            f"{', '.join(map(repr, columns))}; convert the table first with to_backend(df, 'pandas')"
        )


def block_hashes(block: Any, columns: Sequence[str], *, normalize: Normalize | None = None) -> npt.NDArray[np.uint64]:
    """Return the hash of each row, on the host; texts of cuDF blocks are hashed where they are.

    Returns
    -------
    ndarray of uint64, shape (rows, 2)
    """
    if not is_on_device(block):
        return row_hashes(block, columns, normalize=normalize)
    from curator_df.kernels.device.signatures import text_hashes

    with texts_of(block[columns[0]]) as texts:
        hashes: npt.NDArray[np.uint64] = text_hashes(texts, normalize=normalize).copy_to_host()
    return hashes
