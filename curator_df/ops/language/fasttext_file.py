# SPDX-License-Identifier: Apache-2.0
"""Layout of a fastText model file: its labels, and whether the file is complete, which fastText itself does not check.

fastText's loader does not look for the end of the file: a truncated file is read as numbers left over in memory, so that every
text gets a wrong label without an error, or the process crashes.

References
----------
fastText 0.9.2, ``src/fasttext.cc``, ``src/dictionary.cc``, ``src/densematrix.cc``, ``src/quantmatrix.cc`` and
``src/productquantizer.cc``: the functions named ``load``.
"""

from __future__ import annotations

import mmap
import os
import struct
from collections.abc import Sequence

from curator_df.errors import CorruptFileError, InputError
from curator_df.ops.language.language_labels import LABEL

MAGIC = 793712314
_HEAD = struct.Struct("<ii12id")
_DICTIONARY = struct.Struct("<iiiqq")
_MATRIX = struct.Struct("<qq")
_QUANTIZED = struct.Struct("<?qqi")
_QUANTIZER = struct.Struct("<iiii")
_CENTROIDS = 256
_PRUNED_BYTES = 8
_ENTRY_BYTES = 10
"""Bytes of an entry of the dictionary after its text: a zero byte, the count, and the kind."""


def fasttext_labels(operator: str, path: str) -> tuple[str, ...]:
    """Return the labels of a fastText model, without their prefix, from the dictionary in its file; nothing is loaded.

    Raises
    ------
    InputError
        If the file is not a fastText model with labels.
    CorruptFileError
        If it is truncated or damaged.
    """
    size = os.path.getsize(path)
    with open(path, "rb") as file:
        if size < 4 or int.from_bytes(file.read(4), "little") != MAGIC:
            raise InputError(
                f"{operator}: {path!r} is not a fastText model. Use a file that save_model() of fastText wrote"
            )
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            try:
                labels, wanted = _read(content)
            except _DamagedError as exc:
                raise CorruptFileError(
                    f"{operator}: the fastText model {path!r} is damaged: its header has {exc}. Copy or download the file again"
                ) from exc
            except (struct.error, IndexError, OverflowError) as exc:
                raise _truncated(operator, path, size) from exc
    if wanted > size:
        raise _truncated(operator, path, size, wanted)
    if not labels:
        raise InputError(f"{operator}: {path!r} is a fastText model of words, without labels. Use a supervised model")
    return tuple(labels)


class _DamagedError(Exception):
    """Number in a file that no model has."""


def _require_counts(**counts: int) -> None:
    for name, number in counts.items():
        if number < 0:
            raise _DamagedError(f"{name}={number}")


def _truncated(operator: str, path: str, size: int, wanted: int | None = None) -> CorruptFileError:
    should = "" if wanted is None else f"should have {wanted:,} bytes according to its header, but "
    return CorruptFileError(
        f"{operator}: the fastText model {path!r} {should}has {size:,} bytes: it is truncated. Copy or download the file again"
    )


def _read(content: mmap.mmap) -> tuple[Sequence[str], int]:
    """Return the labels, and how many bytes the file must have."""
    entries, _, _, _, pruned = _DICTIONARY.unpack_from(content, _HEAD.size)
    _require_counts(entries=entries)
    at, labels = _HEAD.size + _DICTIONARY.size, list[str]()
    for _ in range(entries):
        end = content.find(b"\0", at)
        if end < 0:
            raise IndexError(at)
        if content[end + _ENTRY_BYTES - 1]:  # 0 for a word, 1 for a label
            labels.append(content[at:end].decode("utf-8", "replace").removeprefix(LABEL))
        at = end + _ENTRY_BYTES
    at += _PRUNED_BYTES * max(pruned, 0)
    is_quantized = bool(content[at])
    at = _after_matrix(content, at + 1, is_quantized=is_quantized)
    return labels, _after_matrix(content, at + 1, is_quantized=is_quantized and bool(content[at]))


def _after_matrix(content: mmap.mmap, at: int, *, is_quantized: bool) -> int:
    """Return the position of the byte after a matrix that begins at a position."""
    if not is_quantized:
        rows, columns = _MATRIX.unpack_from(content, at)
        _require_counts(rows=rows, columns=columns)
        return at + _MATRIX.size + 4 * int(rows) * int(columns)
    has_norms, rows, columns, code_bytes = _QUANTIZED.unpack_from(content, at)
    _require_counts(rows=rows, columns=columns, code_bytes=code_bytes)
    at = _after_quantizer(content, at + _QUANTIZED.size + int(code_bytes))
    return _after_quantizer(content, at + int(rows)) if has_norms else at


def _after_quantizer(content: mmap.mmap, at: int) -> int:
    width, *_ = _QUANTIZER.unpack_from(content, at)
    _require_counts(width=width)
    return at + _QUANTIZER.size + 4 * _CENTROIDS * int(width)
