# SPDX-License-Identifier: Apache-2.0
"""Tokenizer from Hugging Face as a value that is sent to workers: found by name, loaded there once, counting tokens in batches.

It is a ``tokenizer.json``, which the package tokenizers can read. Transformers converts other formats.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from curator_df.core.arguments import path_of
from curator_df.core.extras import missing_extra, require_package
from curator_df.core.memory.process_cache import held
from curator_df.core.ranges.out_of_memory import is_out_of_memory
from curator_df.errors import CorruptFileError, InputError, ParameterError
from curator_df.kernels.text.buffers import TextSpan, text_spans
from curator_df.models.files import HUB_NAME, digest_of, download

FILE = "tokenizer.json"
OTHER_FILES = ("*.json", "*.txt", "*.model")
"""Files from which transformers makes a tokenizer if a folder has none."""
MOST_PIECES = 4096
PIECE_BYTES = 1 << 17
"""Bytes of texts passed to the tokenizer in each call; a longer text is split before white space, in the second half of a
piece."""
CALL_BYTES = 60_000_000
"""Bytes that a call needs: at most 270 for each byte of a call were measured (words of one letter, a token for each byte), and
a reserve of half as much for many short texts."""
LIBRARY_BYTES = 20_000_000
HELD_FACTOR = 25
"""Memory of a loaded tokenizer, as a multiple of its file."""


@dataclass(frozen=True)
class Tokenizer:
    """Files of a tokenizer."""

    name: str = field(metadata={"identity": False})
    """Name as the user gave it."""
    path: str = field(metadata={"identity": False})
    """Path of a ``tokenizer.json``, or of a folder without one; the same for all workers."""
    revision: str | None = field(metadata={"identity": False})
    """Commit, for a tokenizer of the hub."""
    digest: str
    """Digest (BLAKE2b) of the files."""
    size_bytes: int
    """Size of the files."""

    @property
    def held_bytes(self) -> int:
        """Bytes that a worker holds once."""
        return LIBRARY_BYTES + HELD_FACTOR * self.size_bytes


def find_tokenizer(operator: str, name: str | os.PathLike[str], revision: str | None = None) -> Tokenizer:
    """Find a tokenizer without loading it.

    Parameters
    ----------
    operator : str
        Name of the operator, for errors.
    name : str or path
        A ``tokenizer.json``; a folder with one, or with files that transformers converts; or the id of a model of the Hugging
        Face hub, whose tokenizer is then downloaded into its cache.
    revision : str, optional
        Commit, tag or branch, of a model of the hub.

    Raises
    ------
    MissingExtraError
        If the package tokenizers is not installed.
    InputError
        If the tokenizer does not exist.
    ParameterError
        If a revision is given for local files.
    """
    require_package(operator, "tokenizers", "tokenizers")
    text = path_of(operator, "tokenizer", name)
    if os.path.exists(text):
        if revision is not None:
            raise ParameterError(
                f"{operator}: revision={revision!r} does not apply to the local files {text!r}. Leave it out"
            )
        return _described(operator, text, Path(text).absolute(), None)
    if not HUB_NAME.fullmatch(text):
        raise InputError(f"{operator}: {text!r} is neither an existing file or folder nor the ID of a model")
    folder = Path(download(text, revision, OTHER_FILES, ignore_patterns=["*/*"]))
    return _described(operator, text, folder, folder.name)


def _described(operator: str, name: str, path: Path, revision: str | None) -> Tokenizer:
    if path.is_dir() and (path / FILE).is_file():
        path /= FILE
    files = [path] if path.is_file() else sorted({file for kind in OTHER_FILES for file in path.glob(kind)})
    if not files:
        raise InputError(f"{operator}: {str(path)!r} has neither {FILE} nor other files of a tokenizer")
    return Tokenizer(name, str(path), revision, digest_of(files), sum(file.stat().st_size for file in files))


class LoadedTokenizer:
    """Tokenizer in this process. Several threads use it independently."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        # Only the worker's threads do work.
        os.environ["TOKENIZERS_PARALLELISM"] = "false"
        self._tokenizer = _load(tokenizer)
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        self.special_tokens = int(self._tokenizer.num_special_tokens_to_add(False))
        """Number of tokens that are added to each text."""

    def count(self, texts: pd.Series) -> npt.NDArray[np.int64]:
        """Return the number of tokens of each text, without special tokens; 0 for null."""
        counts = np.zeros(len(texts), dtype=np.int64)
        for span in text_spans(texts):
            for rows, pieces in _batches(span):
                found = self._tokenizer.encode_batch_fast(pieces, add_special_tokens=False)
                np.add.at(counts, rows, [len(encoded) for encoded in found])
        return counts


def loaded(tokenizer: Tokenizer) -> LoadedTokenizer:
    """Return a tokenizer, which this process loads once for a run."""
    return held(tokenizer, lambda: LoadedTokenizer(tokenizer))


def _load(tokenizer: Tokenizer) -> Any:
    import tokenizers

    path = Path(tokenizer.path)
    if not path.exists():
        raise InputError(
            f"the tokenizer {tokenizer.path!r} is not on this machine. Put it in a folder that all workers can read"
        )
    if path.is_dir():
        return _converted(tokenizer)
    try:
        return tokenizers.Tokenizer.from_file(str(path))
    except Exception as exc:  # the package raises nothing more specific
        raise CorruptFileError(f"the package tokenizers cannot read {path}: {exc}") from exc


def _converted(tokenizer: Tokenizer) -> Any:
    try:
        import transformers
    except ImportError as exc:
        raise missing_extra(
            f"the tokenizer {tokenizer.name!r} has no {FILE}, and converting its other files", "transformers", "models"
        ) from exc
    given = {"local_files_only": True, "trust_remote_code": False}
    try:
        found = transformers.AutoTokenizer.from_pretrained(tokenizer.path, use_fast=True, **given)
    except Exception as exc:  # transformers raises errors of many types
        if is_out_of_memory(exc):
            raise
        raise InputError(
            f"the tokenizer in {tokenizer.path!r} has no {FILE}, and transformers could not make one from its other files: "
            f"{type(exc).__name__}: {exc}. Write one with save_pretrained() of a fast tokenizer of transformers"
        ) from exc
    if not getattr(found, "is_fast", False):
        raise ParameterError(
            f"the tokenizer {tokenizer.name!r} is not a fast tokenizer, and would be too slow. Use a fast one"
        )
    return found.backend_tokenizer


def _batches(span: TextSpan) -> Iterator[tuple[list[int], list[str]]]:
    """Yield pieces of the texts of a span with their rows, about `PIECE_BYTES` in each batch."""
    rows, pieces, held_bytes = list[int](), list[str](), 0
    for row in range(len(span)):
        if span.valid is not None and not span.valid[row]:
            continue
        for start, stop in _cuts(span.data, int(span.offsets[row]), int(span.offsets[row + 1])):
            if pieces and (held_bytes + stop - start > PIECE_BYTES or len(pieces) == MOST_PIECES):
                yield rows, pieces
                rows, pieces, held_bytes = [], [], 0
            rows.append(span.first_row + row)
            pieces.append(span.data[start:stop].tobytes().decode("utf-8", "replace"))
            held_bytes += stop - start
    if pieces:
        yield rows, pieces


def _cuts(data: npt.NDArray[np.uint8], start: int, stop: int) -> Iterator[tuple[int, int]]:
    """Yield the bounds of the pieces of a text: of at most `PIECE_BYTES`, split before white space, else between code points."""
    while stop - start > PIECE_BYTES:
        half = data[start + PIECE_BYTES // 2 : start + PIECE_BYTES]
        spaces = np.flatnonzero((half == 0x20) | (half == 0x0A))
        # In a run of white space, before the first character.
        first = spaces[np.diff(spaces, prepend=-2) > 1]
        leads = first if len(first) else np.flatnonzero(half & 0xC0 != 0x80)
        cut = start + PIECE_BYTES // 2 + int(leads[-1]) if len(leads) else start + PIECE_BYTES
        yield start, cut
        start = cut
    if stop > start:
        yield start, stop
