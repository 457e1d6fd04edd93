# SPDX-License-Identifier: Apache-2.0
"""Texts split into words other than those between white space: tokens with white space between, for kernels that read words.

Also the table of exceptions that the splitting of English words looks up (`phrases`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from curator_df.kernels.english_tokens.rules import (
    CUTS_WORD,
    FIRST_PHRASE,
    FIRST_SLOT,
    IS_EXCEPTION,
    IS_RESTORED,
    IS_TAIL,
    KIND_WORD,
    PATTERN_WORD,
    PHRASE_WORDS,
    SLOTS,
    class_table,
    rules,
)
from curator_df.kernels.english_tokens.token_pass import split_span
from curator_df.kernels.metrics.catalog import Words
from curator_df.kernels.text.buffers import TextSpan, read_only
from curator_df.kernels.text.icu_words import split_texts


@lru_cache(maxsize=1)
def phrases() -> npt.NDArray[np.uint32]:
    """Return the exceptions, and the units cut off after digits, to be found by a hash.

    First, by six bits of the first byte and six of the last, a bit for each length of such a phrase. Then, by hash, the number
    of a phrase plus one, or 0. Then, for each phrase, `PHRASE_WORDS`: its bytes in eight words, zero-padded; its length, and
    from bit 8 on `IS_EXCEPTION`, `IS_TAIL` and `IS_RESTORED`; for an exception, a bit for each byte after which one of its tokens
    ends, and such bits for the tokens that the other rules make of it.
    """
    exceptions = {tokens.replace(" ", ""): tokens.split(" ") for tokens in rules()["exceptions"]}
    tails = rules()["after_digits"]
    data = "".join(exceptions).encode()
    ends = np.cumsum([len(phrase.encode()) for phrase in exceptions])
    # Tokens that the other rules make of an exception: the same kernel with no exceptions.
    offsets = np.concatenate([[0], ends]).astype(np.int64)
    out, stops = np.empty(2 * len(data), dtype=np.uint8), np.empty(len(offsets), dtype=np.int64)
    split_span(np.frombuffer(data, dtype=np.uint8), offsets, class_table(), _phrases({}, tails, []), out, stops)
    made = [out[start:stop].tobytes().split() for start, stop in pairwise(stops)]
    return _phrases(exceptions, tails, [_ends(tokens) for tokens in made])


def _ends(tokens: Sequence[bytes]) -> int:
    """Return a bit for each byte after which a token ends."""
    return sum(1 << int(end) - 1 for end in np.cumsum([len(token) for token in tokens]))


def _phrases(exceptions: dict[str, list[str]], tails: Sequence[str], patterns: Sequence[int]) -> npt.NDArray[np.uint32]:
    names = [phrase.encode() for phrase in dict.fromkeys([*exceptions, *tails])]
    table = np.zeros(FIRST_PHRASE + PHRASE_WORDS * len(names), dtype=np.uint32)
    for number, name in enumerate(names):
        table[(name[0] & 63) << 6 | name[-1] & 63] |= np.uint32(1 << len(name))
        slot = phrase_hash(name) & SLOTS - 1
        while table[FIRST_SLOT + slot]:
            slot = (slot + 1) % SLOTS
        table[FIRST_SLOT + slot] = number + 1
        row = table[FIRST_PHRASE + PHRASE_WORDS * number :][:PHRASE_WORDS]
        row[:KIND_WORD] = np.frombuffer(name.ljust(4 * KIND_WORD, b"\0"), dtype="<u4")
        kind = IS_TAIL if name.decode() in tails else 0
        if number < len(exceptions):
            cuts, pattern = _ends([token.encode() for token in exceptions[name.decode()]]), patterns[number]
            row[CUTS_WORD], row[PATTERN_WORD] = cuts, pattern
            kind |= IS_EXCEPTION
            # An exception has no more tokens than it was cut into; for the three others see `split`.
            is_shorter = cuts.bit_count() <= pattern.bit_count() > 1
            kind |= IS_RESTORED if is_shorter and cuts != pattern else 0
        row[KIND_WORD] = len(name) | kind << 8
    return table


def phrase_hash(phrase: bytes) -> int:
    """Return the hash that compiled kernels compute too (FNV-1a, 64 bits, folded)."""
    found = 0xCBF29CE484222325
    for byte in phrase:
        found = (found ^ byte) * 0x100000001B3 & (1 << 64) - 1
    return found ^ found >> 32


BATCH_BYTES = 1 << 18
"""Bytes of texts whose tokens are held in each step, unless one text is longer: small enough to stay in the cache for the
counters."""

Split = Callable[[npt.NDArray[np.uint8], npt.NDArray[np.int64], npt.NDArray[np.uint8], npt.NDArray[np.int64]], None]
"""Function that writes the tokens of texts (data, offsets), white space after each, and the end of each text. It writes at
most two bytes for each byte of the texts."""


def token_spans(span: TextSpan, words: Words = "datatrove") -> Iterator[TextSpan]:
    """Walk the rows of a span as texts of tokens, in batches of rows.

    Parameters
    ----------
    span : TextSpan
        Texts.
    words : {"datatrove", "icu"}
        Kind of tokens; see `metrics.Words`.

    Yields
    ------
    TextSpan
        The next rows: each has the tokens of its text, each followed by white space. Valid until the next span is requested.

    Notes
    -----
    Memory: 2 x the longest text or `BATCH_BYTES`, whichever is more; a text of punctuation alone fills it.

    Examples
    --------
    >>> import pandas as pd
    >>> from curator_df.kernels.text.buffers import text_spans
    >>> [span] = text_spans(pd.Series(["He can't (e.g. at 5p.m.) stop.", "U.S. www.a.org/b:c"], dtype="string[pyarrow]"))
    >>> [tokens] = token_spans(span)
    >>> rows = zip(tokens.offsets[:-1], tokens.offsets[1:])
    >>> [tokens.data[start:stop].tobytes().decode().split() for start, stop in rows]
    [['He', 'ca', "n't", '(', 'e.g.', 'at', '5', 'p.m.', ')', 'stop', '.'], ['U.S.', 'www.a.org/b:c']]
    """
    split = _splitter(words)
    sizes = np.diff(span.offsets)
    room = np.empty(2 * max(BATCH_BYTES, int(sizes.max(initial=0))), dtype=np.uint8)
    first = 0
    while first < len(span):
        ends = span.offsets[first + 1 :] - span.offsets[first]
        rows = max(1, int(np.searchsorted(ends, len(room) // 2, side="right")))
        stops = np.empty(rows + 1, dtype=np.int64)
        split(span.data, span.offsets[first : first + rows + 1], room, stops)
        valid = None if span.valid is None else span.valid[first : first + rows]
        yield TextSpan(span.first_row + first, read_only(room), stops, valid)
        first += rows


def _splitter(words: Words) -> Split:
    if words == "icu":
        return split_texts

    classes, exceptions = class_table(), phrases()

    def split(data: Any, offsets: Any, room: Any, stops: Any) -> None:
        split_span(data, offsets, classes, exceptions, room, stops)

    return split
