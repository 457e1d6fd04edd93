# SPDX-License-Identifier: Apache-2.0
# numba has no types.
# mypy: disable-error-code="untyped-decorator,no-any-return"
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

from curator_df.kernels.compiling.compiled import helper, inlined, intrinsic, kernel, types
from curator_df.kernels.english_tokens.affixes import find_phrase, is_of_kind, phrase_byte
from curator_df.kernels.english_tokens.rules import (
    CUTS_WORD,
    FIRST_PHRASE,
    FIRST_SLOT,
    IS_EXCEPTION,
    IS_RESTORED,
    IS_TAIL,
    KIND_WORD,
    LONGEST,
    PATTERN_WORD,
    PHRASE_WORDS,
    SLOTS,
    class_table,
    rules,
)
from curator_df.kernels.english_tokens.split import MOST_TOKENS, NOTHING, ONE_SPACE, OTHER_SPACE, split_text
from curator_df.kernels.metrics.catalog import Words
from curator_df.kernels.metrics.words.word_counts import BYTES
from curator_df.kernels.text.buffers import TextSpan, read_only

PIECE_BYTES = 1 << 15
"""Bytes passed to ICU in each call: their words are Python objects of 70 bytes each."""
_LOCALE = "root"
"""Locale of the break iterator; dictionaries are chosen by script, not by locale."""


def split_texts(
    data: npt.NDArray[np.uint8],
    offsets: npt.NDArray[np.int64],
    room: npt.NDArray[np.uint8],
    stops: npt.NDArray[np.int64],
) -> None:
    """Write the words of several texts into ``room``, each followed by a space, and the end of each text into ``stops``.

    ``stops`` has one more entry than there are texts, and begins with 0. Bytes that are not UTF-8 are omitted.
    """
    from icu4py.breakers import WordBreaker

    at = stops[0] = 0
    for row in range(len(stops) - 1):
        for start, stop in pieces(data, int(offsets[row]), int(offsets[row + 1])):
            piece = data[start:stop].tobytes().decode(errors="ignore")
            words = (" ".join(WordBreaker(piece, _LOCALE)) + " ").encode()
            room[at : at + len(words)] = np.frombuffer(words, dtype=np.uint8)
            at += len(words)
        stops[row + 1] = at


def pieces(data: npt.NDArray[np.uint8], start: int, stop: int) -> Iterator[tuple[int, int]]:
    """Split a text into pieces of at most `PIECE_BYTES`: after a line feed, else after a space, else between characters.

    Examples
    --------
    >>> list(pieces(np.frombuffer(b"a b", dtype=np.uint8), 0, 3))
    [(0, 3)]
    """
    while stop - start > PIECE_BYTES:
        end = start + PIECE_BYTES
        piece = data[start:end].tobytes()
        cut = max(piece.rfind(b"\n"), 0) or piece.rfind(b" ")
        if cut > 0:
            end = start + cut + 1
        else:
            while data[end] & 0xC0 == 0x80 and end > start + PIECE_BYTES - 4:
                end -= 1
        yield start, end
        start = end
    if start < stop:
        yield start, stop


@intrinsic()
def unowned(typing_context: Any, array: Any) -> Any:  # noqa: ARG001 - numba gives it
    """Return the array without its owner, valid as long as the caller holds the array itself."""

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        from numba.core import cgutils

        kind = signature.args[0]
        view = context.make_array(kind)(context, builder, arguments[0])
        view.meminfo = cgutils.get_null_value(view.meminfo.type)
        view.parent = cgutils.get_null_value(view.parent.type)
        return view._getvalue()

    return array(array), code


_PENDING = 128
"""Number of pending sequences, more than those that begin with any of `MOST_TOKENS` tokens: at most ten with each."""
_NEAR = 32
"""Number of nearby tokens, more than those whose longest sequences are compared: the tokens before and after `MOST_TOKENS`."""


@inlined
def _is_end(byte: int) -> bool:
    return byte in (NOTHING, ONE_SPACE, OTHER_SPACE)


@helper
def _matches(tokens: Any, at: int, stop: int, phrases: Any, letters: Any, found: Any) -> int:
    """Find the exceptions that begin with the token here; return their number.

    Each is a row of ``found``: its description, its number of tokens, the position after its last one, and whether all are
    adjacent. The last row has most tokens.
    """
    total, length, count, pattern, joined = 0, 0, 0, types.uint32(0), 1
    while at < stop and count < MOST_TOKENS:
        if not _is_end(tokens[at]):
            if length == LONGEST:
                break
            letters[length] = tokens[at]
            length += 1
            at += 1
            continue
        count += 1
        pattern |= types.uint32(1) << types.uint32(length - 1)
        if count > 1:
            row = find_phrase(letters, 0, length, phrases, IS_EXCEPTION)
            if row >= 0 and phrases[row + PATTERN_WORD] == pattern:
                found[total, 0], found[total, 1], found[total, 2], found[total, 3] = row, count, at + 1, joined
                total += 1
        if tokens[at] == OTHER_SPACE:
            break
        joined &= tokens[at] == NOTHING
        at += 1
    return total


@helper
def _has_better(longest: Any, index: int, count: int) -> bool:
    """Return whether a longer (or equally long earlier) sequence covers the first or last of ``count`` tokens from this one on.

    ``longest`` has the number of tokens of the longest sequence that begins with each token.
    """
    for shift in range(min(MOST_TOKENS, index + 1)):
        length = longest[(index - shift) % _NEAR]
        if length > shift and (length > count or (length == count and shift)):
            return True
    later = index + 1
    while later < index + count and longest[later % _NEAR] <= count:
        later += 1
    return later < index + count


@helper
def _put_back(tokens: Any, at: int, end: int, row: int, phrases: Any) -> None:
    """Write the tokens of an exception over those between two positions, and white space if they are shorter."""
    cuts, length = phrases[row + CUTS_WORD], types.int64(phrases[row + KIND_WORD]) & 255
    last = tokens[end - 1]
    for byte in range(length):
        tokens[at] = phrase_byte(phrases, row, byte)
        at += 1
        if (cuts >> types.uint32(byte)) & types.uint32(1) and at < end:
            tokens[at] = NOTHING
            at += 1
    tokens[at:end] = NOTHING
    tokens[end - 1] = last


@helper
def restore_exceptions(tokens: Any, start: int, stop: int, phrases: Any) -> None:
    """Restore the exceptions in the tokens of a text.

    An exception is decided, and written, when all tokens with which it is compared have been read.
    """
    letters, found = np.empty(LONGEST, dtype=np.uint8), np.empty((MOST_TOKENS, 4), dtype=np.int64)
    longest, pending = np.zeros(_NEAR, dtype=np.int64), np.empty((_PENDING, 5), dtype=np.int64)
    first = last = index = 0
    at = start
    while at < stop or first < last:
        longest[index % _NEAR] = 0
        if at < stop:
            total = _matches(tokens, at, stop, phrases, letters, found)
            longest[index % _NEAR] = found[total - 1, 1] if total else 0
            for match in range(total):
                if found[match, 3] and is_of_kind(phrases, found[match, 0], IS_RESTORED):
                    pending[last % _PENDING, :3] = found[match, :3]
                    pending[last % _PENDING, 3], pending[last % _PENDING, 4] = at, index
                    last += 1
            while not _is_end(tokens[at]):
                at += 1
            at += 1
        index += 1
        while first < last and pending[first % _PENDING, 4] + MOST_TOKENS <= index:
            row, count, end, place, number = pending[first % _PENDING]
            if not _has_better(longest, number, count):
                _put_back(tokens, place, end, row, phrases)
            first += 1


_OFFSETS = types.Array(types.int64, 1, "C", readonly=True)


@kernel(types.void(BYTES, _OFFSETS, types.uint16[::1], types.uint32[::1], types.uint8[::1], types.int64[::1]))
def split_span(data: Any, offsets: Any, classes: Any, phrases: Any, out: Any, stops: Any) -> None:
    """Write the tokens of each text into ``out``, which has twice the size of the texts; ``stops`` are its offsets.

    Each token is followed by one byte of white space or more. ``classes`` and ``phrases`` are those of `rules` and `spans`.
    """
    texts, rules, found, tokens = unowned(data), unowned(classes), unowned(phrases), unowned(out)
    to = 0
    stops[0] = 0
    for row in range(len(offsets) - 1):
        first = to
        to, may_restore = split_text(texts, offsets[row], offsets[row + 1], rules, found, tokens, to)
        if may_restore:
            restore_exceptions(tokens, first, to, found)
        stops[row + 1] = to


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
