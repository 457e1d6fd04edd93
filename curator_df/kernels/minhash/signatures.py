# SPDX-License-Identifier: Apache-2.0
# numba has no types.
# mypy: disable-error-code="untyped-decorator"
"""MinHash signatures of texts and the hashes of their bands.

The shingles of a text are all its n-grams of code points or words, each hashed with MurmurHash3. Each permutation
``value = a * hash + b`` orders the shingles in its own way; the minimum of each forms the signature. Two texts agree in a
value with a probability that is the Jaccard similarity of their sets of shingles.

Bits. The bits are those of libcudf 26.10 (``nvtext::minhash``, ``minhash64``, and their ``_ngrams`` forms with one word more
than their argument says):

- 32 bits: MurmurHash3_x86_32 of the shingle's UTF-8 bytes; ``a * hash + b`` modulo 2^32.
- 64 bits: first word of MurmurHash3_x64_128; ``a * hash + b`` modulo 2^64, and that modulo 2^61 - 1.
- The seed of the shingle hash is the first multiplier. A hash of 0 counts as 1.
- Words are joined without white space between them.
- A text with fewer code points (or words) than a shingle has is one shingle; a text without any has zeros.

Proved: all values that libcudf's own tests expect, in both widths and both forms; agreement with a second, plain version
on any text; and the two formulas in the released binary: the PTX of ``minhash_kernel`` in libcudf-cu13 26.10.2 has
``mad.lo.s32`` followed by ``min.u32`` and no remainder (so the documented ``mod 2^61 - 1`` does nothing at 32 bits), and
``mad.lo.s64`` followed by the remainder by 2^61 - 1. Not proved: agreement with a run on a GPU.

References
----------
A. Broder, "On the resemblance and containment of documents", SEQUENCES 1997.
libcudf 26.10, nvtext/minhash.hpp; NeMo Curator 0.9, modules/fuzzy_dedup/minhash.py.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from curator_df.errors import ParameterError
from curator_df.kernels.compiling.compiled import helper, kernel, types
from curator_df.kernels.minhash import sketch as minhash_sketch
from curator_df.kernels.minhash.scheme import Scheme, shingle_settings, shingle_unit
from curator_df.kernels.text.buffers import TextSpan, text_spans
from curator_df.kernels.text.murmur_hash import finished


@helper
def _hash_bands(signatures: Any, minhashes_per_band: int, hashes: Any) -> None:
    for row in range(len(hashes)):
        for band in range(hashes.shape[1]):
            mixed = np.uint64(minhashes_per_band)
            for number in range(band * minhashes_per_band, (band + 1) * minhashes_per_band):
                mixed = finished(mixed ^ np.uint64(signatures[row, number]))
            hashes[row, band] = mixed


@kernel(types.void(types.uint32[:, ::1], types.int64, types.uint64[:, ::1]))
def hash_bands_32(signatures: Any, minhashes_per_band: int, hashes: Any) -> None:
    """Hash consecutive values of each signature into ``hashes``, shape (rows, bands)."""
    _hash_bands(signatures, minhashes_per_band, hashes)


@kernel(types.void(types.uint64[:, ::1], types.int64, types.uint64[:, ::1]))
def hash_bands_64(signatures: Any, minhashes_per_band: int, hashes: Any) -> None:
    """Hash signatures of 64 bits as `hash_bands_32` does."""
    _hash_bands(signatures, minhashes_per_band, hashes)


SPAN_ROWS = 512
"""Number of rows whose signatures are computed in each step: at 260 hashes of 32 bits, 0.5 MB of signatures."""


def minhash_signatures(texts: pd.Series, scheme: Scheme) -> npt.NDArray[Any]:
    """Compute the signature of each text.

    Parameters
    ----------
    texts : pandas.Series of strings
        The column; null is allowed.
    scheme : Scheme
        Shingles and permutations.

    Returns
    -------
    ndarray of uint32 or uint64, shape (rows, hashes)
        Signatures; zeros if the text has no shingle: if it is empty or, with words, white space. Null is treated as
        empty; `has_shingles` finds such rows.

    Notes
    -----
    Memory: the result (1,040 bytes a row with 260 hashes of 32 bits), and 0.1 MB independent of the texts. With words, a text
    whose n-grams are longer than 32 KB needs up to 1.5 times its bytes more.

    Examples
    --------
    >>> scheme = Scheme("characters", 5, num_bands=2, minhashes_per_band=2, use_64_bit_hash=True)
    >>> minhash_signatures(pd.Series(["A test string", ""]), scheme)[:, :2].tolist()
    [[223193964715524651, 281856243729200576], [0, 0]]
    """
    signatures = np.empty((len(texts), scheme.num_hashes), dtype=word_dtype(scheme))
    for span in text_spans(texts):
        sketch_span(span, scheme, signatures[span.first_row : span.first_row + len(span)])
    return signatures


def band_hashes(texts: pd.Series, scheme: Scheme) -> npt.NDArray[np.uint64]:
    """Compute the hash of each band of each text's signature.

    Parameters
    ----------
    texts : pandas.Series of strings
        The column; null is allowed.
    scheme : Scheme
        Shingles, permutations and bands.

    Returns
    -------
    ndarray of uint64, shape (rows, bands)
        Hashes, uniform in all bits. Two texts are candidates if they agree in a column.

    Notes
    -----
    Memory: the result (8 bytes a row and band), and 0.6 MB; signatures are never held for a whole block.

    Examples
    --------
    >>> scheme = Scheme("words", 2, num_bands=4, minhashes_per_band=2, normalize="case_and_spaces")
    >>> first, second = band_hashes(pd.Series(["one two three", "One  two three"]), scheme).tolist()
    >>> first == second, len(first)
    (True, 4)
    """
    hashes = np.empty((len(texts), scheme.num_bands), dtype=np.uint64)
    signatures = np.empty((SPAN_ROWS, scheme.num_hashes), dtype=word_dtype(scheme))
    for span in text_spans(texts, SPAN_ROWS):
        sketch_span(span, scheme, signatures[: len(span)])
        hashes[span.first_row : span.first_row + len(span)] = signature_bands(signatures[: len(span)], scheme)
    return hashes


def signature_bands(signatures: npt.NDArray[Any], scheme: Scheme) -> npt.NDArray[np.uint64]:
    """Hash the bands of signatures.

    Parameters
    ----------
    signatures : ndarray of uint32 or uint64, shape (rows, hashes)
        Signatures, band after band.
    scheme : Scheme
        Scheme of the bands, which may differ from that of the signatures if they use no more hashes.

    Returns
    -------
    ndarray of uint64, shape (rows, bands)
        For each band ``h = mix(h ^ value)`` over its values, from h = their number, where mix is the finalizer of
        MurmurHash3_x64_128.

    Raises
    ------
    ParameterError
        If the bands need more hashes than the signatures have.
    """
    if signatures.shape[1] < scheme.num_hashes:
        raise ParameterError(
            f"the signatures have {signatures.shape[1]} hashes, but num_bands={scheme.num_bands} of minhashes_per_band="
            f"{scheme.minhashes_per_band} needs {scheme.num_hashes}. Use fewer bands, or fewer hashes per band"
        )
    hashes = np.empty((len(signatures), scheme.num_bands), dtype=np.uint64)
    hash_bands = hash_bands_32 if signatures.dtype == np.uint32 else hash_bands_64
    hash_bands(signatures, scheme.minhashes_per_band, hashes)
    return hashes


def has_shingles(signatures: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    """Return which rows have a shingle: the others are empty, or white space if shingles are words.

    Examples
    --------
    >>> has_shingles(np.array([[0, 0], [0, 7]], dtype=np.uint32)).tolist()
    [False, True]
    """
    found: npt.NDArray[np.bool_] = np.any(signatures, axis=1)
    return found


def sketch_span(span: TextSpan, scheme: Scheme, signatures: npt.NDArray[Any]) -> None:
    """Compute the signatures of a span into ``signatures``, shape (rows, hashes)."""
    multipliers, increments = scheme.permutations()
    signatures.fill(np.iinfo(signatures.dtype).max)
    seed = multipliers[0]
    sketch = getattr(minhash_sketch, f"sketch_{shingle_unit(scheme)}_{8 * signatures.itemsize}")
    sketch(span.data, span.offsets, *shingle_settings(scheme), seed, multipliers, increments, signatures)


def word_dtype(scheme: Scheme) -> np.dtype[Any]:
    """Return the dtype of a hash."""
    return np.dtype(np.uint64 if scheme.use_64_bit_hash else np.uint32)
