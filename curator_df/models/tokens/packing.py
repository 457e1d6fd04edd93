# SPDX-License-Identifier: Apache-2.0
"""Documents as sequences of tokens: each document alone, or several in sequences of a fixed length.

The result depends only on the documents of an input split and their order, not on the blocks in which they come.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

Ids = npt.NDArray[Any]
"""Tokens, in the type of the file."""
Numbers = npt.NDArray[np.int64]
OPEN_BYTES = 8_000_000
"""Memory of the sequences that are being filled with whole documents."""
MOST_OPEN = 256
MOST_TOKENS = 1_000_000
"""Longest sequence of a pack."""
MOST_PIECES = 100_000
"""Number of documents, or parts of them, in the sequences that are being filled, unless a sequence has more tokens."""
PIECE_BYTES = 40
"""Memory of each of them: four integers, and room to grow."""


class Documents(NamedTuple):
    """Consecutive documents."""

    ids: Ids
    """Tokens of all of them."""
    lengths: Numbers
    """Number of tokens of each."""
    addresses: Numbers
    """Row ID of each."""


class Pieces(NamedTuple):
    """Parts of documents, where they were written."""

    first_token: Numbers
    """Position of the first token among those of the file."""
    tokens: Numbers
    """Number of tokens of each."""
    document: Numbers
    """Number of the document in the input split."""
    addresses: Numbers
    """Row ID of the document."""


class Sequences(NamedTuple):
    """Consecutive sequences of a file."""

    ids: Ids
    """Tokens of all of them."""
    lengths: Numbers
    """Number of tokens of each."""
    pieces: Pieces
    """Documents, or their parts, whose place is known now. They need not be those of these sequences."""
    padding: int
    """Number of tokens that are padding."""


class Packer(Protocol):
    """Maker of sequences from the documents of one input split."""

    def add(self, documents: Documents) -> Iterator[Sequences]:
        """Yield the sequences that are complete with these documents."""

    def finish(self) -> Iterator[Sequences]:
        """Yield the remaining sequences."""


def packer(pack: int | None, pad_id: int, *, split_documents: bool) -> Packer:
    """Return the packer for these options of `write_tokens`."""
    if pack is None:
        return _Alone()
    return _Split(pack, pad_id) if split_documents else _Whole(pack, pad_id)


class _Alone:
    """Each document is a sequence."""

    def __init__(self) -> None:
        self._documents = self._tokens = 0

    def add(self, documents: Documents) -> Iterator[Sequences]:
        yield Sequences(documents.ids, documents.lengths, self._placed(documents), 0)

    def finish(self) -> Iterator[Sequences]:
        yield from ()

    def _placed(self, documents: Documents) -> Pieces:
        """Return the place of each document behind the earlier ones."""
        ends = self._tokens + np.cumsum(documents.lengths)
        numbers = np.arange(self._documents, self._documents + len(ends))
        self._documents += len(ends)
        self._tokens += len(documents.ids)
        return Pieces(ends - documents.lengths, documents.lengths, numbers, documents.addresses)


class _Split(_Alone):
    """All tokens one after the other, cut into sequences."""

    def __init__(self, pack: int, pad_id: int) -> None:
        super().__init__()
        self._pack, self._pad_id = pack, pad_id
        self._begun: Ids | None = None
        self._length = 0

    def add(self, documents: Documents) -> Iterator[Sequences]:
        pieces, ids = self._placed(documents), documents.ids
        if self._begun is None:
            self._begun = np.empty(self._pack, dtype=ids.dtype)
        if self._length:
            missing = min(self._pack - self._length, len(ids))
            self._begun[self._length : self._length + missing] = ids[:missing]
            self._length += missing
            ids = ids[missing:]
            if self._length == self._pack:
                yield self._sequences(self._begun, _no_pieces())
                self._length = 0
        whole = len(ids) // self._pack * self._pack
        yield self._sequences(ids[:whole], pieces)
        rest = len(ids) - whole
        if rest:
            self._begun[:rest] = ids[whole:]
            self._length = rest

    def finish(self) -> Iterator[Sequences]:
        if self._length and self._begun is not None:
            self._begun[self._length :] = self._pad_id
            yield self._sequences(self._begun, _no_pieces(), self._pack - self._length)

    def _sequences(self, ids: Ids, pieces: Pieces, padding: int = 0) -> Sequences:
        return Sequences(ids, np.full(len(ids) // self._pack, self._pack), pieces, padding)


def piece_bytes(pack: int | None, *, split_documents: bool) -> int:
    """Return the memory of the pieces in the sequences of a pack that are being filled, beyond that of `MOST_PIECES`."""
    if pack is None or split_documents:
        return 0
    return PIECE_BYTES * max(pack - MOST_PIECES, 0)


class _Whole:
    """Whole documents in the first sequence with enough room; only a document longer than a sequence is split.

    A limited number of sequences is open, with a limited number of documents, so that memory stays bounded. If a document fits
    into none, or they have too many documents, the fullest is closed.
    """

    def __init__(self, pack: int, pad_id: int) -> None:
        self._pack, self._pad_id = pack, pad_id
        self._most = max(1, min(MOST_OPEN, OPEN_BYTES // (4 * pack)))
        self._open: list[_OpenSequence] = []
        self._room = np.empty(self._most, dtype=np.int64)
        self._most_pieces = max(MOST_PIECES, pack)
        self._documents = self._written = self._pieces = 0

    def add(self, documents: Documents) -> Iterator[Sequences]:
        start = 0
        for length, address in zip(documents.lengths.tolist(), documents.addresses.tolist(), strict=True):
            ids = documents.ids[start : start + length]
            start += length
            number = self._documents
            self._documents += 1
            if not length:
                yield Sequences(ids, _numbers(), Pieces(*map(_numbers, (self._written, 0, number, address))), 0)
            for begin in range(0, length, self._pack):
                yield from self._place(ids[begin : begin + self._pack], number, address)

    def finish(self) -> Iterator[Sequences]:
        while self._open:
            yield self._closed(0)

    def _place(self, ids: Ids, number: int, address: int) -> Iterator[Sequences]:
        fitting = np.flatnonzero(self._room[: len(self._open)] >= len(ids))
        if len(fitting):
            place = int(fitting[0])
        else:
            if len(self._open) == self._most:
                yield self._closed(self._fullest())
            place = len(self._open)
            self._open.append(_OpenSequence(np.empty(self._pack, dtype=ids.dtype)))
            self._room[place] = self._pack
        sequence = self._open[place]
        sequence.ids[sequence.length : sequence.length + len(ids)] = ids
        sequence.pieces.extend((sequence.length, len(ids), number, address))
        sequence.length += len(ids)
        self._pieces += 1
        self._room[place] -= len(ids)
        if not self._room[place]:
            yield self._closed(place)
        elif self._pieces > self._most_pieces:
            yield self._closed(self._fullest())

    def _fullest(self) -> int:
        return int(np.argmin(self._room[: len(self._open)]))

    def _closed(self, place: int) -> Sequences:
        sequence = self._open.pop(place)
        self._room[place:-1] = self._room[place + 1 :].copy()
        sequence.ids[sequence.length :] = self._pad_id
        first, tokens, number, address = np.frombuffer(sequence.pieces, dtype=np.int64).reshape(-1, 4).T
        self._pieces -= len(first)
        pieces = Pieces(first + self._written, tokens, number, address)
        self._written += self._pack
        return Sequences(sequence.ids, _numbers(self._pack), pieces, self._pack - sequence.length)


class _OpenSequence:
    def __init__(self, ids: Ids) -> None:
        self.ids, self.length = ids, 0
        self.pieces = array("q")  # a list of tuples would take 200 bytes for each


def _numbers(*values: int) -> Numbers:
    return np.array(values, dtype=np.int64)


def _no_pieces() -> Pieces:
    return Pieces(_numbers(), _numbers(), _numbers(), _numbers())
