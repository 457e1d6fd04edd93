# SPDX-License-Identifier: Apache-2.0
# numba has no types.
# mypy: disable-error-code="untyped-decorator,no-any-return"
"""Compiled counts of repeated n-grams as NeMo Curator and dolma count them, and the metrics of repetition.

N-grams are the same if their words are, one by one. NeMo counts the characters of the second occurrence and those after
it, no word twice; dolma those of every occurrence, over those of all n-grams, which overlap. Distinct n-grams are held as
in `short_grams` and `gram_counts`; in long texts a bit for each byte marks the n-grams whose first occurrence is already counted.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from curator_df.kernels.compiling.compiled import borrowing, helper, kernel, types
from curator_df.kernels.metrics.counts import (
    COUNT_FIRST_DUPLICATE,
    COUNT_FIRST_REMOVED,
    COUNT_FIRST_TOP_LETTERS,
    COUNTS,
    REMOVED_GRAM_COUNTS,
    REPEATED_GRAMS,
    SHORT_TEXT_BYTES,
    TOP_GRAMS,
)
from curator_df.kernels.metrics.metric import Metric
from curator_df.kernels.metrics.ngrams.gram_counts import (
    after_space,
    find_slot,
    gram_code_points,
    gram_hash,
    is_space,
    long_top_gram,
    table_slots,
)
from curator_df.kernels.metrics.ngrams.short_grams import (
    choose_marked,
    choose_repeated,
    choose_repeated_pairs,
    has_same_words,
    is_same_gram,
    joined_hash,
    new_short_text,
    read_words,
    top_gram,
    with_words_after,
)
from curator_df.kernels.metrics.words.word_counts import COUNTS_TYPE, SPAN
from curator_df.kernels.text.word_reading import fill_window, keep_last, new_reading, new_window, word_total

_REPETITION = "Rae et al. 2021 (Gopher), table A1, as computed by datatrove 0.10.0, GopherRepetitionFilter"
_EMPTY = "0 for an empty text (datatrove divides by zero)"


def _top_gram(n: int) -> Metric:
    return Metric(
        name=f"top_{n}_gram_character_ratio",
        dtype="Float64",
        numerator=f"top_{n}_gram_code_points",
        denominator="code_points",
        definition=(
            f"Length of the most frequent {n}-gram, joined by single spaces, times its occurrences, divided "
            "by the length of the text, in code points."
        ),
        source=_REPETITION,
        edge_cases=(
            f"0 for a text of fewer than {n} words; among equally frequent ones, the first in the text, even if every {n}-gram "
            "occurs once; occurrences overlap and cross line ends"
        ),
    )


def _repeated_gram(n: int) -> Metric:
    return Metric(
        name=f"repeated_{n}_gram_character_ratio",
        dtype="Float64",
        numerator=f"repeated_{n}_gram_code_points",
        denominator="code_points",
        definition=(
            f"Code points in repeated {n}-grams divided by the length of the text. Scanning left to right, each {n}-gram "
            f"seen before is counted, and the scan then skips {n} words."
        ),
        source=_REPETITION,
        edge_cases=(
            f"0 for a text of fewer than {n} words; {n}-grams are equal if their words are when joined without spaces; white "
            "space is ignored"
        ),
    )


REPETITION_METRICS = (
    Metric(
        name="duplicate_paragraph_ratio",
        dtype="Float64",
        numerator="duplicate_paragraphs",
        denominator="paragraphs",
        definition=(
            "Fraction of paragraphs that repeat an earlier one. Paragraphs are separated by two or more line feeds, after white "
            "space is stripped from the ends of the text."
        ),
        source=_REPETITION,
        edge_cases="A text without words has one paragraph; a line of spaces does not separate paragraphs",
    ),
    Metric(
        name="duplicate_paragraph_character_ratio",
        dtype="Float64",
        numerator="duplicate_paragraph_code_points",
        denominator="code_points",
        definition="Number of code points in paragraphs that repeat an earlier one, divided by the length of the text.",
        source=_REPETITION,
        edge_cases=_EMPTY,
    ),
    Metric(
        name="duplicate_line_ratio",
        dtype="Float64",
        numerator="duplicate_lines",
        denominator="lines",
        definition="Fraction of lines that repeat an earlier one. Lines are separated by one or more line feeds.",
        source=_REPETITION,
        edge_cases=(
            "The empty lines before a leading line feed and after a trailing one count: a text of only line "
            "feeds has two lines, one of them a duplicate; CR is part of a line"
        ),
    ),
    Metric(
        name="duplicate_line_character_ratio",
        dtype="Float64",
        numerator="duplicate_line_code_points",
        denominator="code_points",
        definition="Number of code points in lines that repeat an earlier one, divided by the length of the text.",
        source=_REPETITION,
        edge_cases=_EMPTY,
    ),
    *map(_top_gram, TOP_GRAMS),
    *map(_repeated_gram, REPEATED_GRAMS),
)
"""Metrics of Gopher's repetition rules, in the order in which datatrove uses them."""


_BASE = np.uint64(0x9E3779B97F4A7C15)


@helper
def _hash_gram(data: Any, place: int, stop: int, classes: Any, n: int) -> tuple[Any, int, int]:
    """Return the hash, the bytes and the code points of the n words from here on, joined by single spaces."""
    total, length, code_points = np.uint64(0), 0, 0
    for word in range(n):
        if word:
            place = after_space(data, place, stop, classes)
            total = total * _BASE + np.uint64(0x20)
            length += 1
            code_points += 1
        while place < stop and not is_space(data, place, stop, classes):
            # One character in each step: its later bytes are not characters.
            total = total * _BASE + np.uint64(data[place])
            place += 1
            length += 1
            code_points += 1
            while place < stop and data[place] & 0xC0 == 0x80:
                total = total * _BASE + np.uint64(data[place])
                place += 1
                length += 1
    return total, length, code_points


@helper
def _is_gram_at(data: Any, at: int, end: int, place: int, stop: int, classes: Any) -> bool:
    """Return whether ``data[at:end]``, as long as the joined words from ``place`` on, equals them."""
    while at < end:
        if is_space(data, place, stop, classes):
            if data[at] != 0x20:
                return False
            place = after_space(data, place, stop, classes)
            at += 1
            continue
        if data[at] != data[place]:
            return False
        at += 1
        place += 1
        while at < end and place < stop and data[place] & 0xC0 == 0x80:
            if data[at] != data[place]:
                return False
            at += 1
            place += 1
    return True


@helper
def removed_code_points(data: Any, start: int, stop: int, place: int, classes: Any, n: int) -> int:
    """Return the code points removed when all occurrences of the n words from ``place`` on are deleted."""
    wanted, length, code_points = _hash_gram(data, place, stop, classes, n)
    if length > stop - start:
        return 0
    power = np.uint64(1)
    for _ in range(length - 1):
        power *= _BASE
    found, removed = np.uint64(0), 0
    # The hashed bytes begin at ``first``.
    at = first = start
    while at < stop:
        if at - first == length:
            found -= np.uint64(data[first]) * power
            first += 1
        found = found * _BASE + np.uint64(data[at])
        at += 1
        if at - first == length and found == wanted and _is_gram_at(data, first, at, place, stop, classes):
            removed += code_points
            first, found = at, np.uint64(0)
    return removed


_U: Any = np.uint64
_LOW, _32 = _U(0xFFFFFFFF), _U(32)
_TOP_FIRST, _TOP_COUNT = TOP_GRAMS[0], len(TOP_GRAMS)
_FIRST, _COUNT = REPEATED_GRAMS[0], len(REPEATED_GRAMS)
_REMOVED, _LETTERS, _DUPLICATE, _REPEATED, _TOTAL = (
    0,
    _TOP_COUNT,
    2 * _TOP_COUNT,
    2 * _TOP_COUNT + _COUNT,
    2 * _TOP_COUNT + 2 * _COUNT,
)
"""Starts of each kind of count in a row."""


@helper
def _new_code_points(letters: Any, word: int, n: int, overlap: int) -> int:
    """Return the code points of an n-gram and its spaces, beyond its first words, which are already counted."""
    return letters[word + n] - letters[word + overlap] + min(n - overlap, n - 1)


@helper
def _count_short_repeats(text: Any, words: int, n: int, chosen: int, sums: Any) -> int:
    """Count the repeated n-grams of a short text into ``sums``: NeMo's, dolma's, and dolma's of all n-grams.

    Only ``chosen`` words are considered. Afterwards they are those at which a repeated n-gram starts; returns their number.
    """
    sums[:] = 0
    for number in range(words - n + 1):
        sums[2] += text.letters[number + n] - text.letters[number]
    chosen = with_words_after(text, chosen, words, n)
    slots, step, covered = _U(4 * chosen), _U(n), 0
    text.table[: 4 * chosen] = 0
    for place in range(_U(chosen)):
        word = _U(text.chosen[place])
        number = types.int64(word)
        letters = text.letters[word + step] - text.letters[word]
        text.marks[word] = 0
        slot = (joined_hash(text, word, step) & _LOW) * slots >> _32
        while True:
            if not text.table[slot]:
                text.table[slot] = types.uint16(number + 1)
                break
            held = _U(text.table[slot]) - _U(1)
            if has_same_words(text, held, word, step) and is_same_gram(text, held, word, step):
                sums[1] += letters * (1 if text.marks[held] else 2)
                sums[0] += _new_code_points(text.letters, number, n, max(covered - number, 0))
                covered = number + n
                text.marks[held] = text.marks[word] = 1
                break
            slot += _U(1)
            if slot == slots:
                slot = _U(0)
    return choose_marked(text, chosen)


@helper
def _count_long_repeats(
    data: Any, start: int, stop: int, classes: Any, window: Any, table: Any, twice: Any, words: int, n: int, sums: Any
) -> None:
    """Count as `_count_short_repeats` does, for a long text; ``twice`` has `repeat_bytes` bytes."""
    sums[:] = 0
    if words < n:
        return
    hashes, places = window
    twice[:] = 0
    slots, before, covered = len(table), 0, 0
    table[:] = 0
    reading, held = fill_window(data, stop, classes, new_reading(start), hashes, places, 0)
    while True:
        for number in range(held - n + 1):
            letters = places[2, number + n] - places[2, number]
            sums[2] += letters
            slot = types.int64((gram_hash(hashes, number, n) >> _32) * _U(slots) >> _32)
            if table[slot]:
                slot = find_slot(data, start, stop, classes, table, slot, places, number, n, True)
            if not table[slot]:
                table[slot] = types.uint32(places[0, number] - start + 1)
                continue
            place = types.int64(table[slot]) - 1
            bit = np.uint8(1 << (place & 7))
            sums[1] += letters * (1 if twice[place >> 3] & bit else 2)
            twice[place >> 3] |= bit
            sums[0] += _new_code_points(places[2], number, n, max(covered - before - number, 0))
            covered = before + number + n
        if reading[0] >= stop:
            return
        first = held - n + 1
        before += first
        held = keep_last(hashes, places, held, first)
        reading, held = fill_window(data, stop, classes, reading, hashes, places, held)


@helper
def _code_points(data: Any, start: int, stop: int) -> int:
    code_points = 0
    for at in range(_U(start), _U(stop)):
        code_points += types.int64(data[at] & 0xC0 != 0x80)
    return code_points


@borrowing
def count_short_repeats(data: Any, start: int, stop: int, classes: Any, features: int, text: Any, row: Any) -> None:
    """Count as `count_repeats` does, for a short text, with a `ShortText` that has room for its words."""
    words = read_words(data, start, stop, classes, text)
    chosen = choose_repeated_pairs(text, words)
    for number in range(_TOP_COUNT):
        wanted = features & ((COUNT_FIRST_REMOVED | COUNT_FIRST_TOP_LETTERS) << number)
        if wanted:
            n = _TOP_FIRST + number
            best, word, chosen = top_gram(text, words, n, chosen)
            row[_LETTERS + number] = best * (text.letters[word + n] - text.letters[word]) if best else 0
            if best and features & (COUNT_FIRST_REMOVED << number):
                row[_REMOVED + number] = removed_code_points(data, start, stop, text.places[word], classes, n)
    # A chosen word may start an n-gram that equals another only when joined without spaces.
    chosen = choose_repeated(text, words) if features >= COUNT_FIRST_DUPLICATE else 0
    for number in range(_COUNT):
        if features & (COUNT_FIRST_DUPLICATE << number):
            chosen = _count_short_repeats(text, words, _FIRST + number, chosen, row[-3:])
            row[_DUPLICATE + number], row[_REPEATED + number], row[_TOTAL + number] = row[-3], row[-2], row[-1]
    _put_few_words(data, start, stop, words, row)


@helper
def repeat_bytes(size: int) -> int:
    """Return the bytes needed for one bit for each byte of a text."""
    return (size >> 3) + 1


@helper
def count_long_repeats(
    data: Any,
    start: int,
    stop: int,
    classes: Any,
    features: int,
    window: Any,
    table: Any,
    twice: Any,
    words: int,
    row: Any,
) -> None:
    """Count as `count_repeats` does, for any text, with a window of its first words, `table_slots` and `repeat_bytes`."""
    for number in range(_TOP_COUNT):
        if features & ((COUNT_FIRST_REMOVED | COUNT_FIRST_TOP_LETTERS) << number):
            n = _TOP_FIRST + number
            best, place = long_top_gram(data, start, stop, classes, window, table, words, n)
            letters = gram_code_points(data, place, stop, classes, n) - n + 1
            row[_LETTERS + number] = best * letters
            if best and features & (COUNT_FIRST_REMOVED << number):
                row[_REMOVED + number] = removed_code_points(data, start, stop, place, classes, n)
    for number in range(_COUNT):
        if features & (COUNT_FIRST_DUPLICATE << number):
            _count_long_repeats(data, start, stop, classes, window, table, twice, words, _FIRST + number, row[-3:])
            row[_DUPLICATE + number], row[_REPEATED + number], row[_TOTAL + number] = row[-3], row[-2], row[-1]
    _put_few_words(data, start, stop, words, row)


@helper
def _put_few_words(data: Any, start: int, stop: int, words: int, row: Any) -> None:
    """Give a text of too few words for an n-gram the highest score, as NeMo does."""
    if words >= REPEATED_GRAMS[-1]:
        return
    code_points = _code_points(data, start, stop)
    for number in range(_TOP_COUNT):
        if words < _TOP_FIRST + number:
            row[_REMOVED + number] = code_points
    for number in range(_COUNT):
        if words < _FIRST + number:
            row[_DUPLICATE + number] = code_points


@helper
def count_repeats(
    data: Any, start: int, stop: int, classes: Any, features: int, room: Any, table: Any, row: Any
) -> Any:
    """Make the counts from ``REMOVED_GRAM_COUNTS`` on, in ``row``, whose last three columns are working memory.

    ``room`` is a `ShortText` and a window. Returns the table, which is larger than the one given if the text is longer
    than any before.
    """
    window = room[1]
    if stop - start <= SHORT_TEXT_BYTES:
        count_short_repeats(data, start, stop, classes, features, room[0], row)
        return table
    words = word_total(data, start, stop, classes, window[0], window[1])
    slots = table_slots(words)
    if len(table) < slots:
        table = np.empty(slots, dtype=np.uint32)
    twice = np.empty(repeat_bytes(stop - start), dtype=np.uint8)
    count_long_repeats(data, start, stop, classes, features, window, table[:slots], twice, words, row)
    return table


_FIRST_COLUMN = COUNTS.index(REMOVED_GRAM_COUNTS[0])


@kernel(types.void(*SPAN, types.int64, COUNTS_TYPE))
def count_repeats_of_span(
    data: Any, offsets: Any, byte_classes: Any, page_of: Any, pages: Any, features: int, counts: Any
) -> None:
    """Count each text of a span into its row of ``counts``: the columns from `counts.REMOVED_GRAM_COUNTS` on."""
    classes = (byte_classes, page_of, pages)
    room = (new_short_text(), new_window())
    table = np.empty(0, dtype=np.uint32)
    work = np.zeros(counts.shape[1] - _FIRST_COLUMN + 3, dtype=np.int64)
    for row in range(len(counts)):
        table = count_repeats(data, offsets[row], offsets[row + 1], classes, features, room, table, work)
        counts[row, _FIRST_COLUMN:] = work[:-3]
