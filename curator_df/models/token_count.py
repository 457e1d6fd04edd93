# SPDX-License-Identifier: Apache-2.0
"""Count the tokens of a tokenizer as columns: `add_token_count`."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import dask.dataframe as dd
import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow.compute as pc

from curator_df.arguments import choose, did_you_mean_path, path_of
from curator_df.core.columns import refuse_columns, require_text
from curator_df.core.ranges.blocks import BlockKernel, Outcome, map_blocks
from curator_df.core.ranges.out_of_memory import is_out_of_memory
from curator_df.core.ranges.price import Price
from curator_df.errors import InputError, ParameterError
from curator_df.extras import missing_extra, require_package
from curator_df.kernels.text.buffers import TextSpan, text_chunks, text_spans
from curator_df.memory.process_cache import held
from curator_df.models.files import HUB_NAME, digest_of, download, is_read, require_both_ends, require_tokenizer
from curator_df.ops.host_only import require_host

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
    """Path of a ``json``, or of a folder without one; the same for all workers."""
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
        A ``json``; a folder with one, or with files that transformers converts; or the id of a model of the Hugging
        Face hub, whose tokenizer is then downloaded into its cache.
    revision : str, optional
        Commit, tag or branch, of a model of the hub.

    Raises
    ------
    MissingExtraError
        If the package tokenizers is not installed.
    InputError
        If the tokenizer does not exist.
    CorruptFileError
        If one of its files is empty, truncated or not JSON.
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
        raise InputError(
            f"{operator}: {text!r} is neither an existing file or folder nor the ID of a model"
            + did_you_mean_path(text)
        )
    folder = Path(download(text, revision, OTHER_FILES, ignore_patterns=["*/*"]))
    return _described(operator, text, folder, folder.name)


def _described(operator: str, name: str, path: Path, revision: str | None) -> Tokenizer:
    if path.is_dir() and (path / FILE).is_file():
        path /= FILE
    files = [path] if path.is_file() else sorted({file for kind in OTHER_FILES for file in path.glob(kind)})
    if not files:
        raise InputError(f"{operator}: {str(path)!r} has neither {FILE} nor other files of a tokenizer")
    for file in files:
        if is_read(file) or (file == path and file.suffix == ".json"):
            require_both_ends(file)
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
    path = Path(tokenizer.path)
    if not path.exists():
        raise InputError(
            f"the tokenizer {tokenizer.path!r} is not on this machine. Put it in a folder that all workers can read"
        )
    if path.is_dir():
        return _converted(tokenizer)
    return require_tokenizer(path)


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


PerToken = Literal["characters", "bytes"]
NO_TOKENS = -1.0
"""Ratio of a text without tokens, as in NeMo Curator."""
PEAK_FACTOR = 0.6
"""Memory multiplier: a number and its mask of 9 bytes for each row and column, and intermediate counts; for rows of 100 bytes."""


def add_token_count(
    df: dd.DataFrame,
    tokenizer: str | os.PathLike[str],
    *,
    into: str = "token_count",
    per_token: PerToken | None = None,
    special_tokens: bool = False,
    revision: str | None = None,
    text: str = "text",
) -> dd.DataFrame:
    """Add the number of tokens of each text, as counted by a tokenizer from the Hugging Face hub.

    Parameters
    ----------
    df : dask.dataframe.DataFrame
        The table.
    tokenizer : str or path
        A file ``json``; a folder with one (or with other files, which transformers converts); or the id of a
        model on the Hugging Face hub.
    into : str, default "token_count"
        Name of the column.
    per_token : {"characters", "bytes"}, optional
        Also add ``characters_per_token`` or ``bytes_per_token``: the length of the text (code points, or bytes of
        UTF-8) divided by its number of tokens, without special tokens; -1 for a text without tokens.
    special_tokens : bool, default False
        Also count the special tokens that the tokenizer adds to a text.
    revision : str, optional
        Commit, tag or branch of a model on the hub.
    text : str, default "text"
        The text column.

    Returns
    -------
    dask.dataframe.DataFrame
        The same rows with a column ``Int64`` and, if requested, one ``Float64``; null where the text is null.

    Raises
    ------
    MissingExtraError
        If the package tokenizers is not installed.
    ColumnError
        If the text column is missing, or a new column already exists.
    InputError
        If the tokenizer does not exist.
    ParameterError
        If ``per_token`` is neither of these, or ``revision`` is given for local files.
    UnsupportedBackendError
        If the blocks are cuDF blocks.

    Notes
    -----
    Rows: same. Columns: plus ``token_count``; with ``per_token`` also ``characters_per_token`` or ``bytes_per_token``.
    Backends: pandas. Peak extra memory: 0.6 x block, 60 MB in each task, and a tokenizer in each worker. Computes: no; it
    reads the tokenizer's files once for their digest.

    Profile rules can refer to these columns (``token_count``, ``characters_per_token``, ``bytes_per_token``):
    `keep_profile` after this operator reads them in addition to the text. The receipt counts ``tokens``.

    The plan reserves memory for the tokenizer once in each worker, and for a batch of texts in each task. Each thread
    counts by itself, and the tokenizer starts no further threads. A text of more than 131,072 bytes is counted in
    pieces, split before white space. If a tokenizer adds a marker at the beginning of every text, the count may be off by
    one token per piece.

    References
    ----------
    .. [1] https://huggingface.co/docs/tokenizers

    Examples
    --------
    >>> docs.pipe(cdf.add_token_count, "tokenizer.json", per_token="characters")  # doctest: +SKIP
    """
    operator = "add_token_count"
    require_text(df, operator, text)
    require_host(df._meta, operator)
    if per_token is not None:
        choose(operator, "per_token", per_token, PerToken)
    ratio = None if per_token is None else f"{per_token}_per_token"
    refuse_columns(df, operator, into, *([ratio] if ratio else []))
    found = find_tokenizer(operator, tokenizer, revision)
    parameters = {
        "text": text,
        "tokenizer": found,
        "into": into,
        "ratio": ratio,
        "special_tokens": bool(special_tokens),
    }
    kernel = BlockKernel(
        operator,
        add_token_count_block,
        parameters,
        price=Price(
            PEAK_FACTOR,
            fixed_bytes=CALL_BYTES,
            held_bytes=found.held_bytes,
            libraries={"tokenizers": LIBRARY_BYTES},
            is_measured=True,
        ),
    )
    new = {into: pd.Series(dtype="Int64"), **({ratio: pd.Series(dtype="Float64")} if ratio else {})}
    return map_blocks(df, kernel, meta=df._meta.assign(**new))


def add_token_count_block(
    block: Any, *, text: str, tokenizer: Tokenizer, into: str, ratio: str | None, special_tokens: bool
) -> Outcome:
    """Kernel of `add_token_count`."""
    require_host(block, "add_token_count")
    counter = loaded(tokenizer)
    tokens, is_null = counter.count(block[text]), block[text].isna().to_numpy(dtype=bool)
    total = int(tokens.sum())
    columns: dict[str, Any] = {}
    if ratio is not None:
        lengths = _lengths(block[text], in_bytes=ratio == "bytes_per_token")
        ratios = np.divide(lengths, tokens, out=np.full(len(tokens), NO_TOKENS), where=tokens > 0)
        columns[ratio] = pd.arrays.FloatingArray(ratios, is_null.copy())
    if special_tokens:
        tokens += counter.special_tokens
    columns = {into: pd.arrays.IntegerArray(tokens, is_null), **columns}
    added = {name: pd.Series(values, index=block.index, copy=False) for name, values in columns.items()}
    return Outcome(block.assign(**added), counters={"tokens": total})


def _lengths(texts: pd.Series, *, in_bytes: bool) -> npt.NDArray[np.int64]:
    chunks = text_chunks(texts)
    lengths = pc.binary_length(chunks) if in_bytes else pc.utf8_length(chunks)
    return np.asarray(pc.fill_null(lengths, 0), dtype=np.int64)
