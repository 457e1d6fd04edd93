# SPDX-License-Identifier: Apache-2.0
"""Reader of fastText model files (``.bin``, ``.ftz``): labels, layout, and the arrays that `kernels.fasttext` evaluates.

fastText's own loader does not look for the end of a file: it reads a truncated one as numbers left over in memory. This reader
computes from the header where each part lies, and refuses a file that is shorter, or whose numbers contradict each other.

References
----------
fastText 0.9.2, ``src/fasttext.cc``, ``src/args.cc``, ``src/dictionary.cc``, ``src/densematrix.cc``, ``src/quantmatrix.cc`` and
``src/productquantizer.cc``: the functions named ``load``.
"""

from __future__ import annotations

import mmap
import os
import struct
from dataclasses import dataclass
from typing import Any, BinaryIO, NamedTuple

import numpy as np
import numpy.typing as npt

from curator_df.errors import CorruptFileError, InputError
from curator_df.kernels.fasttext.model_tables import (
    CENTROIDS,
    END,
    ENTRY_BYTES,
    HIERARCHICAL,
    LARGEST_WEIGHT,
    ONE_VS_ALL,
    FastTextTables,
    bucket_words,
    fixed,
    indexed_buckets,
    indexed_dictionary,
    label_tree,
    sigmoid_table,
    slots_for,
)
from curator_df.kernels.fasttext.word_vectors import MOST_NGRAM, MOST_SUBWORD, padded
from curator_df.ops.language.language_labels import LABEL

MAGIC = 793712314
VERSIONS = (11, 12)
SUPERVISED = 3
_HEAD = struct.Struct("<ii12id")
_DICTIONARY = struct.Struct("<iiiqq")
_MATRIX = struct.Struct("<qq")
_QUANTIZED = struct.Struct("<?qqi")
_QUANTIZER = struct.Struct("<iiii")
_PAIR_BYTES = 8
"""Bytes of a kept bucket and its row in a file."""
_MOST = (1 << 31) - 1
"""Largest number of rows or columns: fastText counts rows in 32 bits."""


class _Quantizer(NamedTuple):
    """Codes and centroids of a product quantizer."""

    codes_at: int
    centroids_at: int
    width: int
    parts: int
    step: int
    last_step: int


class _Matrix(NamedTuple):
    """Place of a matrix in a file."""

    at: int
    rows: int
    columns: int
    vectors: _Quantizer | None
    """Quantizer of the rows; None if the matrix is not quantized."""
    norms: _Quantizer | None
    stop: int


@dataclass(frozen=True)
class FastTextLayout:
    """Settings of a model, and the places of its parts in the file."""

    dim: int
    """Width of a vector."""
    word_ngrams: int
    """Longest n-gram of words."""
    loss: int
    """Loss that the model was trained with."""
    buckets: int
    """Number of buckets of subwords and n-grams."""
    subwords: tuple[int, int]
    """Shortest and longest subword, in characters; 0 as the longest if there are none."""
    words: int
    """Number of words."""
    labels: tuple[str, ...]
    """Labels, without their prefix."""
    label_counts: tuple[int, ...]
    """Number of occurrences of each label in training."""
    entries: tuple[int, int]
    """Start and end of the dictionary's entries in the file."""
    kept: int
    """Number of buckets that were kept; -1 if all were."""
    inputs: _Matrix
    """Vectors of words and buckets."""
    outputs: _Matrix
    """Vectors of labels."""

    @property
    def held_bytes(self) -> int:
        """Bytes of the arrays of the model once it is loaded."""
        entries = self.words + len(self.labels)
        bytes_held = self.entries[1] - self.entries[0] + 12 * entries + 4 * slots_for(entries)
        bytes_held += 16 * bucket_words(self.buckets if self.kept > 0 else 0) + 4 * len(self.labels) * (self.dim + 2)
        rows, vectors = self.inputs.rows, self.inputs.vectors
        if vectors is None:
            return bytes_held + 4 * rows * self.dim
        is_normed = self.inputs.norms is not None
        return bytes_held + rows * (vectors.parts + is_normed) + 4 * CENTROIDS * (self.dim + vectors.step)


class _DamagedError(Exception):
    """Number in a file that no model has."""


def fasttext_layout(operator: str, path: str) -> FastTextLayout:
    """Return the layout of a fastText model, from its header and dictionary; its matrices are not read.

    Raises
    ------
    InputError
        If the file is not a fastText model with labels.
    CorruptFileError
        If it is truncated or damaged; the message names the byte at which that shows.
    """
    size = os.path.getsize(path)
    with open(path, "rb") as file:
        if size < 4 or int.from_bytes(file.read(4), "little") != MAGIC:
            raise InputError(
                f"{operator}: {path!r} is not a fastText model. Use a file that save_model() of fastText wrote"
            )
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            try:
                layout = _read(content)
            except _DamagedError as exc:
                raise CorruptFileError(
                    f"{operator}: the fastText model {path!r} is damaged: it has {exc}. Copy or download the file again"
                ) from exc
            except (struct.error, IndexError, OverflowError) as exc:
                raise _truncated(operator, path, size) from exc
    if layout is None:
        raise InputError(f"{operator}: {path!r} is a fastText model of words, without labels. Use a supervised model")
    if layout.outputs.stop > size:
        raise _truncated(operator, path, size, layout.outputs.stop)
    return layout


def _require_from_zero(at: int, **counts: int) -> None:
    for name, number in counts.items():
        _require(0 <= number <= _MOST, at, **{name: number})


def _require(is_sound: bool, at: int, **numbers: Any) -> None:
    if not is_sound:
        said = " and ".join(f"{name}={number}" for name, number in numbers.items())
        raise _DamagedError(f"{said} at byte {at:,}")


def _truncated(operator: str, path: str, size: int, wanted: int | None = None) -> CorruptFileError:
    should = "" if wanted is None else f"should have {wanted:,} bytes according to its header, but "
    return CorruptFileError(
        f"{operator}: the fastText model {path!r} {should}has {size:,} bytes: it is truncated. Copy or download the file again"
    )


def _read(content: mmap.mmap) -> FastTextLayout | None:
    """Return the layout of a file; None of a model without labels."""
    _, version, dim, _, _, _, _, ngrams, loss, kind, buckets, shortest, longest, _, _ = _HEAD.unpack_from(content)
    _require(version in VERSIONS, 4, version=version)
    _require(0 < dim <= _MOST, 8, dim=dim)
    entries, words, labels, _, kept = _DICTIONARY.unpack_from(content, _HEAD.size)
    _require_from_zero(_HEAD.size, entries=entries, words=words, labels=labels)
    start = _HEAD.size + _DICTIONARY.size
    names, counts, stop = _entries(content, start, entries)
    at = stop + _PAIR_BYTES * max(kept, 0)
    is_quantized = bool(content[at])
    inputs = _matrix(content, at + 1, is_quantized=is_quantized)
    outputs = _matrix(content, inputs.stop + 1, is_quantized=is_quantized and bool(content[inputs.stop]))
    if not names or kind != SUPERVISED:
        return None
    _require(len(names) == labels and words + labels == entries, _HEAD.size, words=words, labels=labels)
    _require(HIERARCHICAL <= loss <= ONE_VS_ALL, 32, loss=loss)
    has_sound_counts = min(counts) >= 0 and sum(counts) < LARGEST_WEIGHT
    _require(loss != HIERARCHICAL or has_sound_counts, _HEAD.size, sum_of_label_counts=sum(counts))
    _require(ngrams <= MOST_NGRAM, 28, wordNgrams=ngrams)
    longest = 0 if version < 12 else max(longest, 0)  # older supervised models have no subwords, as in fastText
    _require(longest <= MOST_SUBWORD, 48, maxn=longest)
    hashes = (longest > 0 or ngrams > 1) and kept != 0
    _require(not hashes or buckets > 0, 40, bucket=buckets)
    rows = words + (max(kept, 0) if kept >= 0 else buckets * hashes)
    _require(inputs.columns == dim and inputs.rows >= rows, at + 1, rows=inputs.rows, columns=inputs.columns)
    _require(
        outputs.columns == dim and outputs.rows == labels, inputs.stop + 1, rows=outputs.rows, columns=outputs.columns
    )
    _require(is_quantized or kept < 0, _HEAD.size, pruned_buckets=kept)
    subwords = (shortest, longest)
    return FastTextLayout(
        dim, ngrams, loss, buckets, subwords, words, tuple(names), tuple(counts), (start, stop), kept, inputs, outputs
    )


def _entries(content: mmap.mmap, at: int, entries: int) -> tuple[list[str], list[int], int]:
    """Return the labels of a dictionary that begins at a position, their counts, and the end of the dictionary."""
    labels, counts = list[str](), list[int]()
    for _ in range(entries):
        end = content.find(b"\0", at)
        if end < 0:
            raise IndexError(at)
        if content[end + ENTRY_BYTES - 1]:  # 0 for a word, 1 for a label
            labels.append(content[at:end].decode("utf-8", "replace").removeprefix(LABEL))
            counts.append(struct.unpack_from("<q", content, end + 1)[0])
        elif labels:
            raise _DamagedError(f"a word after a label at byte {at:,}")
        at = end + ENTRY_BYTES
    return labels, counts, at


def _matrix(content: mmap.mmap, at: int, *, is_quantized: bool) -> _Matrix:
    """Return the place of a matrix that begins at a position."""
    if not is_quantized:
        rows, columns = _MATRIX.unpack_from(content, at)
        _require_from_zero(at, rows=rows, columns=columns)
        begin = at + _MATRIX.size
        return _Matrix(begin, rows, columns, None, None, begin + 4 * rows * columns)
    has_norms, rows, columns, code_bytes = _QUANTIZED.unpack_from(content, at)
    _require_from_zero(at, rows=rows, columns=columns, code_bytes=code_bytes)
    begin = at + _QUANTIZED.size
    vectors, stop = _quantizer(content, begin, code_bytes)
    _require(vectors.width == columns and vectors.parts * rows == code_bytes, at, rows=rows, code_bytes=code_bytes)
    norms = None
    if has_norms:
        norms, stop = _quantizer(content, stop, rows)
        _require(norms.width == norms.parts == 1, at, norms=norms.width)
    return _Matrix(begin, rows, columns, vectors, norms, stop)


def _quantizer(content: mmap.mmap, at: int, code_bytes: int) -> tuple[_Quantizer, int]:
    """Return the place of a quantizer whose codes begin at a position, and its end."""
    begin = at + code_bytes
    width, parts, step, last_step = _QUANTIZER.unpack_from(content, begin)
    _require_from_zero(begin, width=width, parts=parts)
    is_sound = parts > 0 and 0 < last_step <= step and (parts - 1) * step + last_step == width
    _require(is_sound, begin, width=width, parts=parts)
    centroids = begin + _QUANTIZER.size
    # Of a single part, fastText has a step that may be any number: it is not used.
    return _Quantizer(
        at, centroids, width, parts, step if parts > 1 else last_step, last_step
    ), centroids + 4 * CENTROIDS * width


def read_model(operator: str, path: str) -> FastTextTables:
    """Read a model.

    Raises
    ------
    InputError
        If the file is not a fastText model with labels.
    CorruptFileError
        If it is truncated or damaged.
    """
    layout = fasttext_layout(operator, path)
    with open(path, "rb") as file:
        start, stop = layout.entries
        entries = _array(file, start, "u1", stop - start)
        pairs = _array(file, stop, "<i4", 2 * max(layout.kept, 0)).reshape(-1, 2)
        buckets, rows = _kept_rows(operator, path, layout, pairs)
        inputs, width = _inputs(file, layout.inputs, rows)
        vectors = _outputs(file, layout.outputs)
        dictionary = indexed_dictionary(entries, layout.words + len(layout.labels))
        end = _entry(file, layout, dictionary[1], END)
    is_tree = layout.loss == HIERARCHICAL
    tree = label_tree(np.array(layout.label_counts)) if is_tree else np.zeros((0, 2), np.int32)
    outputs = (np.array(vectors if is_tree else vectors.T, order="C"), tree, sigmoid_table())
    numbers = (
        *(*layout.subwords, max(layout.buckets, 1), layout.word_ngrams, layout.words, layout.loss),
        *(end if end < layout.words else -1, int(layout.kept > 0), int(layout.kept == 0), padded(width)),
    )
    kept = indexed_buckets(buckets, layout.buckets if len(buckets) else 0)
    return FastTextTables(layout.labels, numbers, dictionary, inputs, kept, tuple(fixed(one) for one in outputs))


def _kept_rows(
    operator: str, path: str, layout: FastTextLayout, pairs: npt.NDArray[np.int32]
) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int64] | None]:
    """Return the kept buckets, sorted, and the rows of the words and of these buckets in this order; None: all, unchanged."""
    if layout.kept < 0:
        return pairs[:, 0], None
    buckets, last = np.unique(pairs[::-1, 0], return_index=True)  # of equal ones the last counts, as in fastText
    rows = pairs[::-1, 1][last]
    most = layout.inputs.rows - layout.words
    if (
        min(rows.min(initial=0), buckets.min(initial=0)) < 0
        or rows.max(initial=-1) >= most
        or buckets.max(initial=-1) >= layout.buckets
    ):
        raise CorruptFileError(
            f"{operator}: the fastText model {path!r} is damaged: it has a bucket without a row, in the table at byte "
            f"{layout.entries[1]:,}. Copy or download the file again"
        )
    return buckets, np.concatenate([np.arange(layout.words), layout.words + rows.astype(np.int64)])


def _entry(file: BinaryIO, layout: FastTextLayout, starts: npt.NDArray[np.int64], word: bytes) -> int:
    """Return the number of an entry of the dictionary, or -1."""
    first, stop = layout.entries
    with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        place = content.find(word + b"\0", first, stop)
        while place >= 0:
            number = int(np.searchsorted(starts, place - first))
            if starts[number] == place - first:
                return number
            place = content.find(word + b"\0", place + 1, stop)
    return -1


def _array(file: BinaryIO, at: int, dtype: str, count: int) -> npt.NDArray[Any]:
    """Read numbers, straight into the array that keeps them."""
    file.seek(at)
    return np.fromfile(file, dtype=dtype, count=count)


def _mapped(file: BinaryIO, at: int, dtype: str, count: int) -> npt.NDArray[Any]:
    """Return numbers that are read when they are copied, so that memory holds them once."""
    return np.memmap(file, dtype=dtype, mode="r", offset=at, shape=(count,)) if count else np.zeros(0, dtype)


def _centroids(file: BinaryIO, place: _Quantizer) -> npt.NDArray[np.float32]:
    """Return centroids, shape (parts, centroids, step); those of the last part end in zeros if it is narrower."""
    held = np.zeros((place.parts, CENTROIDS, place.step), dtype=np.float32)
    numbers = _array(file, place.centroids_at, "<f4", CENTROIDS * place.width)
    whole = (place.parts - 1) * CENTROIDS * place.step
    held[:-1] = numbers[:whole].reshape(place.parts - 1, CENTROIDS, place.step)
    held[-1, :, : place.last_step] = numbers[whole:].reshape(CENTROIDS, place.last_step)
    return held


def _inputs(
    file: BinaryIO, place: _Matrix, chosen: npt.NDArray[np.int64] | None
) -> tuple[tuple[npt.NDArray[Any], ...], int]:
    """Return the arrays of the input matrix, and the width of its rows."""
    rows, codes = np.zeros((0, 0), np.float32), np.zeros((0, 0), np.uint8)
    centroids, norm_codes, norms = np.zeros((0, 0, 0), np.float32), np.zeros(0, np.uint8), np.zeros(0, np.float32)
    if place.vectors is None:
        rows = _array(file, place.at, "<f4", place.rows * place.columns).reshape(place.rows, place.columns)
        width = place.columns
    else:
        parts = place.vectors.parts
        read = _array if chosen is None else _mapped
        codes = read(file, place.vectors.codes_at, "u1", place.rows * parts).reshape(place.rows, parts)
        codes = codes if chosen is None else np.asarray(codes)[chosen]
        centroids = _centroids(file, place.vectors)
        width = parts * place.vectors.step
        if place.norms is not None:
            norm_codes = read(file, place.norms.codes_at, "u1", place.rows)
            norm_codes = norm_codes if chosen is None else np.asarray(norm_codes)[chosen]
            norms = _centroids(file, place.norms)[0, :, 0].copy()
    return tuple(fixed(one) for one in (rows, codes, centroids, norm_codes, norms)), width


def _outputs(file: BinaryIO, place: _Matrix) -> npt.NDArray[np.float32]:
    """Return the output matrix, without its quantization; the caller copies it."""
    if place.vectors is None:
        return _mapped(file, place.at, "<f4", place.rows * place.columns).reshape(place.rows, place.columns)
    codes = _array(file, place.vectors.codes_at, "u1", place.rows * place.vectors.parts).reshape(place.rows, -1)
    centroids = _centroids(file, place.vectors)
    vectors = centroids[np.arange(place.vectors.parts), codes].reshape(place.rows, -1)[:, : place.columns]
    if place.norms is not None:
        norms = _centroids(file, place.norms)[0, :, 0]
        vectors = vectors * norms[_array(file, place.norms.codes_at, "u1", place.rows)][:, None]
    return np.ascontiguousarray(vectors, dtype=np.float32)
