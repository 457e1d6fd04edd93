# SPDX-License-Identifier: Apache-2.0
"""Tokenizers of Hugging Face: their files, and the tokens of texts of any length in bounded memory.

A process loads a tokenizer once for a run. Short texts are passed to it together. A long text is passed in pieces that overlap,
and the tokens of two pieces are joined where both pieces have the same ones.
"""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import orjson
import pandas as pd

from curator_df.arguments import did_you_mean_path, path_of
from curator_df.core.ranges.out_of_memory import is_out_of_memory
from curator_df.errors import CorruptFileError, InputError, ParameterError, type_and_text
from curator_df.extras import missing_extra, require_package
from curator_df.files.hub import download
from curator_df.files.storage import reading_errors
from curator_df.kernels.text.buffers import TextSpan, text_spans
from curator_df.memory.process_cache import cached
from curator_df.models.files import AGAIN, HUB_NAME, digest_of, is_read, require_both_ends, require_tokenizer

FILE = "tokenizer.json"
OTHER_FILES = ("*.json", "*.txt", "*.model")
"""Files from which transformers makes a tokenizer if a folder has none."""
MOST_PIECES = 4096
PIECE_BYTES = 1 << 17
"""Bytes of short texts passed to the tokenizer in each call."""
LONG_PIECE_BYTES = 1 << 16
"""Bytes of a long text passed in each call: fewer, because a call also returns the position of each token."""
OVERLAP_BYTES = 1 << 12
"""Bytes that two pieces of a long text have in common; `WIDER` times as many if their tokens differ there."""
WIDER = 4
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
        with reading_errors(text):
            return _described(operator, text, Path(text).absolute(), None)
    if not HUB_NAME.fullmatch(text):
        raise InputError(
            f"{operator}: {text!r} is neither an existing file or folder nor the ID of a model, such as "
            f"'organization/name'. Correct it{did_you_mean_path(text)}"
        )
    folder = Path(download(text, revision, OTHER_FILES, ignore_patterns=["*/*"]))
    return _described(operator, text, folder, folder.name)


def _described(operator: str, name: str, path: Path, revision: str | None) -> Tokenizer:
    if path.is_dir() and (path / FILE).is_file():
        path /= FILE
    files = [path] if path.is_file() else sorted({file for kind in OTHER_FILES for file in path.glob(kind)})
    if not files:
        raise InputError(
            f"{operator}: {str(path)!r} has neither {FILE} nor other files of a tokenizer. Use a folder that "
            "save_pretrained() of a tokenizer wrote"
        )
    for file in files:
        if is_read(file) or (file == path and file.suffix == ".json"):
            require_both_ends(file)
        elif file.suffix in (".txt", ".model"):
            _require_whole_vocabulary(file)
    if path.is_file() and path.suffix != ".json" and not _begins(path).lstrip().startswith(b"{"):
        raise InputError(
            f"{operator}: {str(path)!r} is not a {FILE}, but a file from which transformers makes a tokenizer. Pass its folder, "
            f"{str(path.parent)!r}, instead, or write a {FILE} with save_pretrained() of a fast tokenizer of transformers"
        )
    return Tokenizer(name, str(path), revision, digest_of(files), sum(file.stat().st_size for file in files))


def _begins(path: Path) -> bytes:
    with open(path, "rb") as file:
        return file.read(64)


def _require_whole_vocabulary(path: Path) -> None:
    """Raise `CorruptFileError` for a vocabulary or SentencePiece model that is damaged; transformers would not name the file."""
    content = path.read_bytes()
    problem = "" if content else "is empty"
    if path.suffix == ".txt" and b"\0" in content:
        problem = "is not text"
    elif path.suffix == ".model" and content[:1] == b"\n":  # the first piece of a SentencePiece model
        problem = "" if _is_whole_message(content) else "is truncated or damaged"
    elif path.suffix == ".model" and content and not content[:64].isascii():
        problem = "is neither a SentencePiece model nor a vocabulary of tiktoken"
    if problem:
        raise CorruptFileError(f"{path} {problem}. {AGAIN}")


def _is_whole_message(content: bytes) -> bool:
    r"""Return whether a message in the format of Protocol Buffers, of which only the outermost fields are read, is whole.

    Examples
    --------
    >>> _is_whole_message(b"\n\x03abc\x10\x01"), _is_whole_message(b"\n\x03ab")
    (True, False)
    """
    at, size = 0, len(content)
    while at < size:
        numbers: list[int] = []  # the tag, and for some types the length or the value
        while len(numbers) < 1 or (len(numbers) < 2 and numbers[0] & 7 in (0, 2)):
            number = shift = 0
            while at < size and content[at] & 128:
                number, shift, at = number | (content[at] & 127) << shift, shift + 7, at + 1
            if at >= size:
                return False
            numbers.append(number | content[at] << shift)
            at += 1
        kind = numbers[0] & 7
        if kind not in (0, 1, 2, 5):
            return False
        at += {0: 0, 1: 8, 2: numbers[-1], 5: 4}[kind]
    return at == size


@dataclass(frozen=True)
class Vocabulary:
    """Tokens that a tokenizer knows."""

    size: int
    """Number of tokens, added ones included."""
    largest_id: int
    """Largest token ID, which a gap in the IDs makes larger than ``size - 1``."""
    eos_id: int | None
    """Token at the end of a document, if the tokenizer names one."""
    pad_id: int | None
    """Token that fills sequences, if the tokenizer names one."""


NAMING_FILES = ("tokenizer_config.json", "special_tokens_map.json")
"""Files next to a tokenizer that name its EOS and padding tokens; the first that names one counts."""


def vocabulary_of(operator: str, tokenizer: Tokenizer, eos_token: str | int | None = None) -> Vocabulary:
    """Return what is known about the tokens of a tokenizer.

    A ``tokenizer.json`` is read as JSON, because loading the tokenizer would take more memory in this process.

    Parameters
    ----------
    operator : str
        Name of the operator, for errors.
    tokenizer : Tokenizer
        Files of the tokenizer.
    eos_token : str or int, optional
        Token at the end of a document, or its ID, instead of the one that the tokenizer names.

    Raises
    ------
    CorruptFileError
        If the file is not that of a tokenizer.
    ParameterError
        If the tokenizer does not have ``eos_token``.
    """
    path = Path(tokenizer.path)
    ids = _ids_in(path) if path.is_file() else _load(tokenizer).get_vocab(with_added_tokens=True)
    if not ids:
        raise CorruptFileError(
            f"{operator}: {str(path)!r} has no vocabulary. Use a complete folder, such as save_pretrained() of a tokenizer writes"
        )
    largest_id = max(ids.values())
    named = [_named_tokens(file) for file in _naming_files(path)]
    if isinstance(eos_token, int):
        if not 0 <= eos_token <= largest_id:
            raise ParameterError(
                f"{operator}: eos_token={eos_token} is not a token of {tokenizer.name!r}. Use an ID from 0 to "
                f"{largest_id:,}"
            )
        eos_id: int | None = eos_token
    elif eos_token is not None:
        if eos_token not in ids:
            raise ParameterError(
                f"{operator}: eos_token={eos_token!r} is not a token of {tokenizer.name!r}. Use one of its "
                f"tokens.{_special_tokens(ids)}"
            )
        eos_id = ids[eos_token]
    else:
        eos_id = _first_known("eos_token", named, ids)
    return Vocabulary(len(ids), largest_id, eos_id, _first_known("pad_token", named, ids))


def require_eos(operator: str, tokenizer: Tokenizer, vocabulary: Vocabulary) -> int:
    """Return the EOS token; raise `ParameterError` if the tokenizer does not name one."""
    if vocabulary.eos_id is None:
        raise ParameterError(
            f"{operator}: add_eos=True needs an EOS token, but the tokenizer {tokenizer.name!r} does not name one in "
            f"{' or '.join(NAMING_FILES)}. Name it with eos_token=, or set add_eos=False"
        )
    return vocabulary.eos_id


def _ids_in(path: Path) -> dict[str, int]:
    """Return the ID of each token in a ``tokenizer.json``, as the package tokenizers counts them."""
    content = orjson.loads(path.read_bytes())
    try:
        vocabulary = content["model"]["vocab"]
        is_list = isinstance(vocabulary, list)  # that of a unigram model has scores
        ids = {entry[0]: place for place, entry in enumerate(vocabulary)} if is_list else dict(vocabulary)
        return ids | {token["content"]: int(token["id"]) for token in content.get("added_tokens") or ()}
    except (KeyError, TypeError, IndexError, ValueError) as exc:
        raise CorruptFileError(
            f"{path} is not the file of a tokenizer, because it lacks {exc}. Copy or download the file again"
        ) from exc


def _naming_files(path: Path) -> list[Path]:
    folder = path if path.is_dir() else path.parent
    return [folder / name for name in NAMING_FILES if (folder / name).is_file()]


def _named_tokens(file: Path) -> dict[str, Any]:
    try:
        content = orjson.loads(file.read_bytes())
    except orjson.JSONDecodeError as exc:
        raise CorruptFileError(f"{file} is not JSON: {exc}. Copy or download the file again") from exc
    return content if isinstance(content, dict) else {}


def _first_known(key: str, named: list[dict[str, Any]], ids: dict[str, int]) -> int | None:
    """Return the ID of the token that the first of these files names."""
    for content in named:
        token = content.get(key)
        token = token.get("content") if isinstance(token, dict) else token
        if isinstance(token, str) and token in ids:
            return ids[token]
    return None


def _special_tokens(ids: dict[str, int]) -> str:
    """Return a sentence with tokens that may end a document; empty if there are none."""
    likely = [token for token in ids if re.fullmatch(r"<\|?[\w ]*(end|eos|eot|/s)[\w ]*\|?>|\[SEP\]", token)][:5]
    return f" It has {', '.join(map(repr, likely))}" if likely else ""


class Encoded(NamedTuple):
    """Tokens of some rows, or of a part of one long text."""

    rows: list[int]
    """Position of each row in the column, ascending."""
    lengths: list[int]
    """Number of tokens of each."""
    ids: npt.NDArray[np.uint32]
    """Tokens of all of them."""


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
                if pieces is None:
                    counts[rows[0]] = sum(len(ids) for ids in self._ids_of_long(*_place(span, rows[0])))
                    continue
                found = self._tokenizer.encode_batch_fast(pieces, add_special_tokens=False)
                counts[rows] = [len(encoded) for encoded in found]
        return counts

    def encoded(
        self, texts: pd.Series, *, special_tokens: bool = False, eos_id: int | None = None
    ) -> Iterator[Encoded]:
        """Yield the tokens of texts in order; nothing for a null.

        Parameters
        ----------
        texts : pandas.Series
            Text column.
        special_tokens : bool, default False
            Include the special tokens that the tokenizer adds to a text.
        eos_id : int, optional
            Token to append to each text that has tokens.
        """
        before, after = self._special_ids() if special_tokens else ([], [])
        last = [] if eos_id is None else [eos_id]
        for span in text_spans(texts):
            for rows, pieces in _batches(span):
                if pieces is not None:
                    found = self._tokenizer.encode_batch_fast(pieces, add_special_tokens=False)
                    ids = [[*before, *encoded.ids, *after] for encoded in found]
                    ids = [[*each, *last] if each else each for each in ids]
                    lengths = [len(each) for each in ids]
                    flat = np.fromiter(itertools.chain.from_iterable(ids), np.uint32, sum(lengths))
                    yield Encoded(rows, lengths, flat)
                    continue
                parts = self._ids_of_long(*_place(span, rows[0]))
                for part in itertools.chain(
                    [np.array(before, np.uint32)], parts, [np.array([*after, *last], np.uint32)]
                ):
                    yield Encoded(rows, [len(part)], part)

    def _special_ids(self) -> tuple[list[int], list[int]]:
        """Return the tokens that the tokenizer adds before and after a text."""
        example = self._tokenizer.encode("a", add_special_tokens=True)
        own = [place for place, is_special in enumerate(example.special_tokens_mask) if not is_special]
        if not own:
            return list(example.ids), []
        return list(example.ids[: own[0]]), list(example.ids[own[-1] + 1 :])

    def _ids_of_long(self, data: npt.NDArray[np.uint8], start: int, stop: int) -> Iterator[npt.NDArray[np.uint32]]:
        """Yield the tokens of a long text, from pieces that overlap.

        In the middle half of the overlap of two pieces, both must have the same tokens at the same positions. The tokens of
        the first piece then count up to that place, and those of the second from there on. Where they differ even with the
        largest overlap, as in a megabyte of one letter, the text is split before white space if possible.
        """
        piece, first = self._piece(data, start, _cut(data, start, stop)), 0
        while piece.stop < stop:
            joint, overlap = None, OVERLAP_BYTES
            while joint is None and overlap <= LONG_PIECE_BYTES // 4:
                begin = _lead(data, piece.stop - overlap, piece.stop)
                following = self._piece(data, begin, _cut(data, begin, stop))
                joint = _joint(
                    piece, following, _characters(data, piece.start, begin), _characters(data, begin, piece.stop)
                )
                overlap *= WIDER
            if joint is None:
                following = self._piece(data, piece.stop, _cut(data, piece.stop, stop))
                joint = len(piece.ids), 0
            yield piece.ids[first : joint[0]]
            piece, first = following, joint[1]
        yield piece.ids[first:]

    def _piece(self, data: npt.NDArray[np.uint8], start: int, stop: int) -> _Piece:
        (encoded,) = self._tokenizer.encode_batch([_decoded(data, start, stop)], add_special_tokens=False)
        ids = np.array(encoded.ids, dtype=np.uint32)
        starts = np.fromiter((begin for begin, _ in encoded.offsets), np.int64, len(ids))
        return _Piece(start, stop, ids, starts)


class _Piece(NamedTuple):
    """Tokens of a part of a long text."""

    start: int
    """First byte in the data."""
    stop: int
    """End in the data."""
    ids: npt.NDArray[np.uint32]
    """Tokens."""
    starts: npt.NDArray[np.int64]
    """Character of the piece at which each token begins."""


def _joint(piece: _Piece, following: _Piece, shift: int, common: int) -> tuple[int, int] | None:
    """Return the first token in the middle of the overlap of two pieces, in each of them; None if they differ there.

    Parameters
    ----------
    piece, following : _Piece
        Pieces that overlap.
    shift : int
        Character of the first piece at which the second one begins.
    common : int
        Number of characters in common.
    """
    lowest, highest = shift + common // 4, shift + common * 3 // 4
    here = np.flatnonzero((piece.starts >= lowest) & (piece.starts < highest))
    there = np.flatnonzero((following.starts + shift >= lowest) & (following.starts + shift < highest))
    if not len(here) or len(here) != len(there):
        return None
    is_same = np.array_equal(piece.ids[here], following.ids[there])
    if not is_same or not np.array_equal(piece.starts[here], following.starts[there] + shift):
        return None
    return int(here[0]), int(there[0])


def _decoded(data: npt.NDArray[np.uint8], start: int, stop: int) -> str:
    return data[start:stop].tobytes().decode("utf-8", "replace")


def _characters(data: npt.NDArray[np.uint8], start: int, stop: int) -> int:
    return len(_decoded(data, start, stop))


def _place(span: TextSpan, row: int) -> tuple[npt.NDArray[np.uint8], int, int]:
    """Return the data of a row of a column, and where it is."""
    place = row - span.first_row
    return span.data, int(span.offsets[place]), int(span.offsets[place + 1])


def loaded(tokenizer: Tokenizer) -> LoadedTokenizer:
    """Return a tokenizer, which this process loads once for a run."""
    return cached(tokenizer, lambda: LoadedTokenizer(tokenizer))


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
            f"{type_and_text(exc)}. Write one with save_pretrained() of a fast tokenizer of transformers"
        ) from exc
    if not getattr(found, "is_fast", False):
        raise ParameterError(
            f"the tokenizer {tokenizer.name!r} has only a Python implementation, which would be too slow. Use a fast "
            "tokenizer of transformers, which has a tokenizer.json"
        )
    return found.backend_tokenizer


def _batches(span: TextSpan) -> Iterator[tuple[list[int], list[str] | None]]:
    """Yield rows of a span with their texts, about `PIECE_BYTES` in each batch; a long text alone, as None."""
    rows, pieces, held_bytes = list[int](), list[str](), 0
    for row in range(len(span)):
        if span.valid is not None and not span.valid[row]:
            continue
        start, stop = int(span.offsets[row]), int(span.offsets[row + 1])
        if pieces and (held_bytes + stop - start > PIECE_BYTES or len(pieces) == MOST_PIECES):
            yield rows, pieces
            rows, pieces, held_bytes = [], [], 0
        if stop - start > PIECE_BYTES:
            yield [span.first_row + row], None
            continue
        rows.append(span.first_row + row)
        pieces.append(_decoded(span.data, start, stop))
        held_bytes += stop - start
    if pieces:
        yield rows, pieces


def _cut(data: npt.NDArray[np.uint8], start: int, stop: int) -> int:
    """Return the end of a piece of a text: before white space in its second half, else between code points."""
    if stop - start <= LONG_PIECE_BYTES:
        return stop
    half = data[start + LONG_PIECE_BYTES // 2 : start + LONG_PIECE_BYTES]
    spaces = np.flatnonzero((half == 0x20) | (half == 0x0A))
    # In a run of white space, before the first character.
    first = spaces[np.diff(spaces, prepend=-2) > 1]
    if len(first):
        return start + LONG_PIECE_BYTES // 2 + int(first[-1])
    return _lead(data, start + LONG_PIECE_BYTES, start + LONG_PIECE_BYTES)


def _lead(data: npt.NDArray[np.uint8], place: int, otherwise: int) -> int:
    """Return the last place up to this one at which a code point begins; ``otherwise`` if the bytes are not UTF-8."""
    for back in range(4):
        if data[place - back] & 0xC0 != 0x80:
            return place - back
    return otherwise
