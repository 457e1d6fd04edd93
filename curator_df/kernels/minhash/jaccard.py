# SPDX-License-Identifier: Apache-2.0
"""Exact Jaccard similarity of pairs of texts: the fraction of shingles that their sets share.

Shingles are compared by a hash: of words, with a space between them, other than in signatures, 62 bits of
MurmurHash3_x64_128 with seed 0; of characters a polynomial modulo 2^61 - 1 (`rolled_windows`). Among a million shingles of two
texts the chance that any two collide is about 10^-7 with words, and at most 10^-5 with 24 characters of ASCII; the
similarity would then be off by 10^-6.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa

from curator_df.errors import ParameterError
from curator_df.kernels.minhash import shingle_sets
from curator_df.kernels.minhash.scheme import Scheme, shingle_settings, shingle_unit
from curator_df.kernels.minhash.shingle_hashes import WITH_GAPS
from curator_df.kernels.text.buffers import string_buffers, text_chunks

TABLE_BYTES = 8 << 20
"""Default size of the table of shingles: pairs of up to half a million bytes are read once, longer ones several times."""
_LEAST_TABLE_BYTES = 1 << 10


def jaccard_similarities(
    left: pd.Series,
    right: pd.Series,
    pairs: npt.NDArray[np.int64],
    scheme: Scheme,
    *,
    table_bytes: int = TABLE_BYTES,
) -> npt.NDArray[np.float64]:
    """Compute the Jaccard similarity of pairs of texts.

    Parameters
    ----------
    left, right : pandas.Series of strings
        Texts; they may be the same series. Null counts as empty.
    pairs : ndarray of int64, shape (pairs, 2)
        Position in ``left`` and position in ``right``.
    scheme : Scheme
        Definition of a shingle: only the fields ``ngrams``, ``ngram_size`` and ``normalize`` are used.
    table_bytes : int
        Size of the table of shingles; rounded down to a power of two.

    Returns
    -------
    ndarray of float64, shape (pairs,)
        Similarities from 0 to 1. A text shorter than a shingle is one shingle. Two texts without shingles have 1.

    Raises
    ------
    ParameterError
        If a pair has a row that does not exist, or the table would be smaller than 1 KiB.

    Notes
    -----
    Memory: ``table_bytes``, 0.2 MB, and a copy of a series that has several Arrow chunks. Time: both texts of a pair are
    read once for every ``table_bytes / 16`` bytes that they have together, at about 100 MB/s with characters and
    280 MB/s with words; for pairs of very long texts a larger table is faster.

    Examples
    --------
    >>> texts = pd.Series(["one two three four", "one two three five"])
    >>> jaccard_similarities(texts, texts, np.array([[0, 1], [1, 1]]), Scheme("words", 2, 1, 1))
    array([0.5, 1. ])
    """
    if table_bytes < _LEAST_TABLE_BYTES:
        raise ParameterError(f"table_bytes={table_bytes} is less than the minimum of {_LEAST_TABLE_BYTES}")
    wanted = np.ascontiguousarray(pairs, dtype=np.int64).reshape(-1, 2)
    for name, rows, column in (("left", len(left), 0), ("right", len(right), 1)):
        if len(wanted) and not 0 <= wanted[:, column].min() <= wanted[:, column].max() < rows:
            raise ParameterError(
                f"pairs has rows from {wanted[:, column].min()} to {wanted[:, column].max()}; {name} has {rows}"
            )
    table = np.empty(1 << ((table_bytes // 8).bit_length() - 1), dtype=np.uint64)
    similarities = np.empty(len(wanted), dtype=np.float64)
    kind, *settings = shingle_settings(scheme)
    if scheme.ngrams == "words":
        kind += WITH_GAPS
    similarities_of = getattr(shingle_sets, f"similarities_of_{shingle_unit(scheme)}")
    similarities_of(*_buffers(left), *_buffers(right), wanted, kind, *settings, table, similarities)
    return similarities


def _buffers(texts: pd.Series) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
    chunks = text_chunks(texts).chunks
    whole: Any = chunks[0] if len(chunks) == 1 else pa.chunked_array(chunks, pa.large_string()).combine_chunks()
    if whole.null_count:
        # A null may cover any bytes.
        whole = whole.fill_null("")
    data, offsets = string_buffers(whole)
    return data, np.asarray(offsets, dtype=np.int64)
