# SPDX-License-Identifier: Apache-2.0
# numba has no types.
# mypy: disable-error-code="untyped-decorator,no-any-return"
"""MinHash signatures and hashes of texts on a device: bit for bit those of `minhash` and `content_hash`.

A block of threads takes one text after the other: its threads hash the shingles that begin in a piece of the text, in shared
memory, and then each lowers its own permutations to their minimum. Memory: only the signatures, and what
`shingle_texts` lays out if shingles are words, or texts are normalized.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numba import cuda, types

from curator_df.kernels.device.launch import THREADS_PER_BLOCK, allocate, for_device, one_by_one, to_device
from curator_df.kernels.device.support import SHINGLE_ROW_BYTES
from curator_df.kernels.device.texts import DeviceTexts
from curator_df.kernels.metrics.ngrams.word_windows import fill_words
from curator_df.kernels.minhash.scheme import Scheme, shingle_settings
from curator_df.kernels.minhash.signatures import word_dtype
from curator_df.kernels.minhash.sketch import least_32, least_64
from curator_df.kernels.rows.content_hash import NULL_HASH, Normalize
from curator_df.kernels.text.lower_case import lower_bytes, lower_steps
from curator_df.kernels.text.murmur_hash import PIECE_ROOM, fill_normalized, hash_normalized_text, hash_text
from curator_df.kernels.text.murmur_windows import code_points_on, is_continuation, murmur_32, murmur_64


def text_hashes(texts: DeviceTexts, *, normalize: Normalize | None = None, most_threads: int | None = None) -> Any:
    """Hash each text.

    Parameters
    ----------
    texts : DeviceTexts
        The column.
    normalize : {"case_and_spaces"}, optional
        Normalization of texts before they are hashed; see `content_hash.row_hashes`.
    most_threads : int, optional
        Maximum number of threads of a launch.

    Returns
    -------
    device array of uint64, shape (rows, 2)
        Hashes; `content_hash.NULL_HASH` for null.
    """
    hashes = allocate((len(texts), 2), np.uint64)
    if not len(texts):
        return hashes
    blocks, threads = one_by_one(len(texts), *(() if most_threads is None else (most_threads,)))
    if normalize is None:
        hash_texts_kernel[blocks, threads](texts.data, texts.offsets, texts.valid, hashes)
        return hashes
    table = lower_steps()
    tables = [to_device(values) for values in (lower_bytes(), table.page_of, table.pages)]
    pieces = allocate((blocks * threads, PIECE_ROOM), np.uint8)
    hash_normalized_kernel[blocks, threads](texts.data, texts.offsets, texts.valid, *tables, pieces, hashes)
    return hashes


@cuda.jit
def hash_texts_kernel(data: Any, offsets: Any, valid: Any, hashes: Any) -> None:
    """Hash each text unchanged into its row of ``hashes``."""
    for row in range(cuda.grid(1), len(hashes), cuda.gridsize(1)):
        hashes[row, 0], hashes[row, 1] = hash_text(data, np.int64(offsets[row]), np.int64(offsets[row + 1]))
        if len(valid) > 0 and not valid[row]:
            hashes[row, 0], hashes[row, 1] = NULL_HASH, NULL_HASH


@cuda.jit
def hash_normalized_kernel(
    data: Any, offsets: Any, valid: Any, lowered: Any, page_of: Any, pages: Any, pieces: Any, hashes: Any
) -> None:
    """Hash each normalized text into its row of ``hashes``; ``pieces``: a row of `PIECE_ROOM` bytes for each thread."""
    piece = pieces[cuda.grid(1)]
    for row in range(cuda.grid(1), len(hashes), cuda.gridsize(1)):
        start, stop = np.int64(offsets[row]), np.int64(offsets[row + 1])
        hashes[row, 0], hashes[row, 1] = hash_normalized_text(data, start, stop, lowered, page_of, pages, piece)
        if len(valid) > 0 and not valid[row]:
            hashes[row, 0], hashes[row, 1] = NULL_HASH, NULL_HASH


_WORDS_AT_ONCE = 32
"""Number of words of a text whose ends a thread holds in its own memory."""


@dataclass(frozen=True)
class ShingleTexts:
    """Texts in which a shingle is a run of bytes."""

    data: Any
    """Bytes in UTF-8, uint8."""
    starts: Any
    """Start of each text in ``data``, shape (rows), int32 or int64."""
    stops: Any
    """End of each text, shape (rows), same type; the bytes between it and the next start are meaningless."""
    word_starts: Any
    """Marks, uint8, as long as ``data``: not 0 at the start of a word. Of length 0 for shingles of characters."""


def shingle_texts(texts: DeviceTexts, scheme: Scheme) -> ShingleTexts:
    """Lay out texts for the shingles of a scheme.

    Parameters
    ----------
    texts : DeviceTexts
        The column; null counts as empty, which is how it is stored.
    scheme : Scheme
        Definition of the shingles.

    Returns
    -------
    ShingleTexts
        Texts; for unchanged characters the same memory, otherwise at most `support.signatures_price`.
    """
    rows, in_words = len(texts), scheme.ngrams == "words"
    if not rows or (not in_words and not scheme.normalize):
        return ShingleTexts(texts.data, texts.offsets[:-1], texts.offsets[1:], allocate(0, np.uint8))
    _, _, *tables = shingle_settings(scheme)
    tables = [to_device(table) for table in tables]
    begin, end = (int(texts.offsets[place : place + 1].copy_to_host()[0]) for place in (0, rows))
    laid = allocate(room_before(end - begin, rows), np.uint8)
    starts, stops = (allocate(rows, np.int64) for _ in range(2))
    launch = one_by_one(rows)
    if not in_words:
        lay_normalized_kernel[launch](texts.data, texts.offsets, *tables, laid, starts, stops)
        return ShingleTexts(laid, starts, stops, allocate(0, np.uint8))
    word_starts = allocate(len(laid), np.uint8)
    lower = scheme.normalize is not None
    lay_words_kernel[launch](texts.data, texts.offsets, lower, *tables, laid, word_starts, starts, stops)
    return ShingleTexts(laid, starts, stops, word_starts)


def room_before(text_bytes: int, rows: int) -> int:
    """Return the bytes kept for ``rows`` texts: lower case takes at most half as many more, and a little padding is written.

    Examples
    --------
    >>> room_before(100, 2)
    198
    """
    return text_bytes + (text_bytes + 1) // 2 + rows * SHINGLE_ROW_BYTES


_room_before = cuda.jit(room_before, device=True)


@cuda.jit
def lay_normalized_kernel(
    data: Any, offsets: Any, lowered: Any, page_of: Any, pages: Any, laid: Any, starts: Any, stops: Any
) -> None:
    """Write each text in lower case, with runs of white space as one space and none at its ends."""
    for row in range(cuda.grid(1), len(starts), cuda.gridsize(1)):
        at, stop = np.int64(offsets[row]), np.int64(offsets[row + 1])
        end = _room_before(at - np.int64(offsets[0]), row)
        starts[row], spaced = end, 0
        while at < stop:
            at, held, spaced = fill_normalized(data, at, stop, laid[end:], 0, spaced, lowered, page_of, pages)
            end += held
        stops[row] = end


@cuda.jit
def lay_words_kernel(
    data: Any,
    offsets: Any,
    lower: bool,
    byte_of: Any,
    page_of: Any,
    pages: Any,
    laid: Any,
    word_starts: Any,
    starts: Any,
    stops: Any,
) -> None:
    """Write the words of each text without separators, and their starts."""
    word_ends = cuda.local.array(_WORDS_AT_ONCE, types.int64)
    for row in range(cuda.grid(1), len(starts), cuda.gridsize(1)):
        first, at, stop = np.int64(offsets[0]), np.int64(offsets[row]), np.int64(offsets[row + 1])
        end, full = _room_before(at - first, row), _room_before(stop - first, row + 1)
        starts[row], held = end, 0
        while at < stop or held > 0:
            at, held, words = fill_words(
                data, at, stop, laid[end:full], held, word_ends, 0, byte_of, page_of, pages, lower, 0
            )
            word = end
            for number in range(words):
                word_end = end + word_ends[number]
                word_starts[word] = 1
                for place in range(word + 1, word_end):
                    word_starts[place] = 0
                word = word_end
            held -= word - end
            end = word
        stops[row] = end


PIECE_BYTES = 1024
"""Bytes of a text whose shingles are hashed in each step: 4 or 8 KB of shared memory."""
MOST_BLOCKS = 65_535
"""Maximum number of blocks of a launch."""


def text_signatures(texts: DeviceTexts, scheme: Scheme, *, threads: int = THREADS_PER_BLOCK) -> Any:
    """Compute the signature of each text.

    Parameters
    ----------
    texts : DeviceTexts
        The column; null counts as empty, which is how it is stored.
    scheme : Scheme
        Shingles and permutations.
    threads : int
        Number of threads of a block.

    Returns
    -------
    device array of uint32 or uint64, shape (rows, hashes)
        Signatures; zeros if the text has no shingle: if it is empty or, with words, white space.
    """
    signatures = allocate((len(texts), scheme.num_hashes), word_dtype(scheme))
    if len(texts):
        laid = shingle_texts(texts, scheme)
        permutations = [to_device(numbers) for numbers in scheme.permutations()]
        kernel = signatures_64_kernel if scheme.use_64_bit_hash else signatures_32_kernel
        kernel[min(len(texts), MOST_BLOCKS), threads](
            laid.data, laid.starts, laid.stops, laid.word_starts, scheme.ngram_size, *permutations, signatures
        )
    return signatures


@cuda.jit(device=True)
def _fill(signature: Any, value: Any, thread: int, threads: int) -> None:
    for number in range(thread, len(signature), threads):
        signature[number] = value


@cuda.jit(device=True)
def _shingle_end(data: Any, word_starts: Any, at: int, stop: int, size: int) -> int:
    """Return the end of the shingle that starts at a byte; -1 if none starts there, or the text ends first."""
    if len(word_starts) == 0:
        return -1 if is_continuation(data[at]) else code_points_on(data, at, stop, size)
    if not word_starts[at]:
        return -1
    for end in range(at + 1, stop):
        if word_starts[end]:
            size -= 1
            if size == 0:
                return end
    return stop if size == 1 else -1


def _kernel_of(word: Any, murmur: Any, least: Any) -> Any:
    """Return the kernel for hashes of this type."""
    largest = np.iinfo(np.dtype(str(word))).max

    @cuda.jit(device=True)
    def hash_piece(
        data: Any, word_starts: Any, first: int, stop: int, size: int, seed: Any, hashes: Any, found: Any
    ) -> None:
        """Hash the shingles that begin in a piece of a text, in any order, which does not affect the minimum."""
        last = min(first + PIECE_BYTES, stop)
        for at in range(first + cuda.threadIdx.x, last, cuda.blockDim.x):
            end = _shingle_end(data, word_starts, at, stop, size)
            if end >= 0:
                place = cuda.atomic.add(found, 0, 1)
                hashes[place] = murmur(data, np.uint64(at), np.uint64(end - at), seed)

    @cuda.jit
    def signatures_kernel(
        data: Any,
        starts: Any,
        stops: Any,
        word_starts: Any,
        size: int,
        multipliers: Any,
        increments: Any,
        signatures: Any,
    ) -> None:
        hashes = cuda.shared.array(PIECE_BYTES, word)
        found = cuda.shared.array(1, types.int32)
        thread, threads, seed = cuda.threadIdx.x, cuda.blockDim.x, multipliers[0]
        for row in range(cuda.blockIdx.x, len(signatures), cuda.gridDim.x):
            start, stop = np.int64(starts[row]), np.int64(stops[row])
            signature, total = signatures[row], 0
            _fill(signature, word(largest) if start < stop else word(0), thread, threads)
            for first in range(start, stop, PIECE_BYTES):
                if thread == 0:
                    found[0] = 0
                cuda.syncthreads()
                hash_piece(data, word_starts, first, stop, size, seed, hashes, found)
                cuda.syncthreads()
                if thread == 0 and first + PIECE_BYTES >= stop and total + found[0] == 0:
                    # A text shorter than a shingle is one shingle.
                    hashes[0] = murmur(data, np.uint64(start), np.uint64(stop - start), seed)
                    found[0] = 1
                cuda.syncthreads()
                count = found[0]
                for number in range(thread, len(signature), threads):
                    one = slice(number, number + 1)
                    least(hashes, count, multipliers[one], increments[one], signature[one])
                cuda.syncthreads()
                total += count

    return signatures_kernel


signatures_32_kernel = _kernel_of(types.uint32, for_device(murmur_32), least_32)
signatures_64_kernel = _kernel_of(types.uint64, for_device(murmur_64), least_64)
