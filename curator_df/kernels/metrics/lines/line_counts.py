# SPDX-License-Identifier: Apache-2.0
# numba has no types.
# mypy: disable-error-code="untyped-decorator,no-any-return"
"""Compiled counts of lines and paragraphs between line feeds: their lengths, ends and repetitions; and metrics of lines.

The metrics are those of FineWeb's and C4's rules: the ends, lengths and contents of lines.

Distinct lines are held in a table of positions in the text, 4 bytes each and at most
half full, and compared with the text itself: at most 4 x the text, where every other byte is a line feed.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from curator_df.kernels.compiling.compiled import helper, inlined, kernel, types
from curator_df.kernels.metrics.counts import COUNT_LENGTH, COUNT_LINES, COUNT_PARAGRAPHS, COUNTS, LENGTH_COUNTS
from curator_df.kernels.metrics.metric import Metric
from curator_df.kernels.metrics.words.word_counts import COUNTS_TYPE, SPAN, code_point
from curator_df.kernels.text.code_points import SPACE, TERMINAL
from curator_df.kernels.text.swar import first_bytes, first_mark, word_at, zero_marks
from curator_df.kernels.text.word_reading import next_word

SHORT_LINE = 30
"""Maximum number of code points of a short line: datatrove 0.10.0, FineWebQualityFilter: short_line_length=30."""
MANY_LINES = 4096
"""Number of lines up to which a table is a quarter full; larger ones are half full."""

_FINEWEB = "Penedo et al. 2024 (FineWeb), section 3.6, as computed by datatrove 0.10.0, FineWebQualityFilter"
_C4 = "Raffel et al. 2020 (C4), section 2.2, as computed by datatrove 0.10.0, C4QualityFilter"
_FILLED = "Filled lines are separated by single line feeds and contain more than white space."
_NO_LINES = "0 for a text without filled lines"
_C4_LINES = (
    "A line (str.splitlines, stripped) is kept if no word has more than 1,000 characters and if, without citations "
    "([1], [edit], [citation needed]){ends} it has at least 3 words and no javascript, terms of use, privacy policy, "
    "cookie policy or use of cookies."
)
_ENDS = " it ends in one of . ? ! \" ' but not in ...,"

_U: Any = np.uint64
_FEEDS, _LOWS, _HIGHS = _U(0x0A0A0A0A0A0A0A0A), _U(0x0101010101010101), _U(0x8080808080808080)
_MIX, _ADD = _U(0xD6E8FEB86659FD93), _U(0x9E3779B97F4A7C15)
_0, _1, _7, _8, _29, _32, _56 = (_U(number) for number in (0, 1, 7, 8, 29, 32, 56))


@inlined
def _continuation_bytes(word: int) -> int:
    return ((word & ~(word << _1) & _HIGHS) >> _7) * _LOWS >> _56


@helper
def read_line(data: Any, start: int, stop: int) -> tuple[int, int, int]:
    """Return the end of the line that starts here, a hash of its bytes, and its code points."""
    at, end = _U(start), _U(stop)
    total, continuation, last, rest = _ADD, _0, _0, _0
    while at + _8 <= end:
        word = word_at(data, at)
        rest = first_mark(zero_marks(word ^ _FEEDS))
        if rest < _8:
            last = first_bytes(word, rest) if rest else _0
            break
        total = (total ^ word) * _MIX
        total ^= total >> _29
        if word & _HIGHS:
            continuation += _continuation_bytes(word)
        at += _8
    if at + _8 > end:
        rest = _0
        while at + rest < end and data[at + rest] != 0x0A:
            last = last >> _8 | _U(data[at + rest]) << _56
            rest += _1
    at += rest
    if last & _HIGHS:
        continuation += _continuation_bytes(last)
    total = (total ^ last ^ (at - _U(start)) << _56) * _MIX
    line_stop = types.int64(at)
    return line_stop, (total ^ (total >> _32)) * _ADD, line_stop - start - types.int64(continuation)


@helper
def earlier_line(
    data: Any, start: int, stop: int, line: int, line_stop: int, mixed: int, table: Any, slots: int, feeds: int
) -> int:
    """Return the position in the text, from 1, of an earlier equal line; otherwise record this one, and return 0."""
    slot = types.int64((mixed >> _32) * _U(slots) >> _32)
    length = line_stop - line
    while table[slot]:
        place = start + types.int64(table[slot]) - 1
        end = place + length
        if end <= stop:
            ends_too = end == stop or (data[end] == 0x0A and (feeds == 1 or (end + 1 < stop and data[end + 1] == 0x0A)))
            if ends_too and _is_equal(data, place, line, length):
                return types.int64(table[slot])
        slot += 1
        if slot == slots:
            slot = 0
    table[slot] = types.uint32(line - start + 1)
    return 0


@helper
def _is_equal(data: Any, first: int, second: int, length: int) -> bool:
    one, two, end = _U(first), _U(second), _U(first + length)
    while one + _8 <= end:
        if word_at(data, one) != word_at(data, two):
            return False
        one += _8
        two += _8
    while one < end:
        if data[one] != data[two]:
            return False
        one += _1
        two += _1
    return True


@helper
def _filled_pieces(data: Any, start: int, stop: int) -> int:
    """Return the number of pieces between line feeds that are not empty."""
    pieces, before = 0, 0x0A
    for at in range(_U(start), _U(stop)):
        byte = types.int64(data[at])
        pieces += types.int64(byte != 0x0A) & types.int64(before == 0x0A)
        before = byte
    return pieces


@helper
def last_flags(data: Any, start: int, stop: int, classes: Any) -> tuple[int, int]:
    """Return the classes of the last character of ``data[start:stop]``, which is not empty, and where it starts."""
    byte_classes, page_of, pages = classes
    at = stop - 1
    if data[at] < 0x80:
        return types.int64(byte_classes[data[at]]), at
    while at > start and at > stop - 4 and data[at] & 0xC0 == 0x80:
        at -= 1
    code, _ = code_point(data, at, stop)
    return types.int64(pages[page_of[code >> 8], code & 255]), at


@helper
def _count_lines(data: Any, start: int, stop: int, classes: Any, table: Any, slots: int, row: Any) -> None:
    lines = duplicates = duplicate_code_points = 0
    filled = terminal = short = duplicate_filled_code_points = 0
    at = start
    while at < stop:
        line = at
        at, mixed, code_points = read_line(data, line, stop)
        if at > line:
            is_filled = next_word(data, line, at, classes) < at
            lines += 1
            if is_filled:
                filled += 1
                short += code_points <= SHORT_LINE
                terminal += (last_flags(data, line, at, classes)[0] & TERMINAL) != 0
            if earlier_line(data, start, stop, line, at, mixed, table, slots, 1):
                duplicates += 1
                duplicate_code_points += code_points
                duplicate_filled_code_points += code_points if is_filled else 0
        at += 1
    # There is an empty piece before a line feed at the start, and after one at the end.
    starts_empty = start == stop or data[start] == 0x0A
    ends_empty = start < stop and data[stop - 1] == 0x0A
    row[0] = lines + starts_empty + ends_empty
    row[1] = duplicates + (1 if starts_empty and ends_empty else 0)
    row[2], row[3], row[4], row[5], row[6] = (
        duplicate_code_points,
        filled,
        terminal,
        short,
        duplicate_filled_code_points,
    )


@helper
def _count_paragraphs(data: Any, start: int, stop: int, classes: Any, table: Any, slots: int, row: Any) -> None:
    start = next_word(data, start, stop, classes)
    while stop > start:
        flags, before = last_flags(data, start, stop, classes)
        if not flags & SPACE:
            break
        stop = before
    paragraphs = duplicates = duplicate_code_points = 0
    at = start
    while at < stop:
        paragraph, code_points, mixed = at, -1, _ADD
        while True:
            at, mixed_line, code_points_of_line = read_line(data, at, stop)
            mixed = (mixed ^ mixed_line) * _MIX
            code_points += code_points_of_line + 1
            if at == stop or data[at + 1] == 0x0A:
                break
            at += 1
        paragraphs += 1
        if earlier_line(data, start, stop, paragraph, at, mixed, table, slots, 2):
            duplicates += 1
            duplicate_code_points += code_points
        while at < stop and data[at] == 0x0A:
            at += 1
    row[0], row[1], row[2] = max(paragraphs, 1), duplicates, duplicate_code_points


@helper
def count_length(data: Any, start: int, stop: int, row: Any) -> None:
    """Count code points, line feeds, and the code points that are not line feeds."""
    code_points = line_feeds = 0
    for at in range(_U(start), _U(stop)):
        code_points += types.int64(data[at] & 0xC0 != 0x80)
        line_feeds += types.int64(data[at] == 0x0A)
    row[0], row[1], row[2] = code_points, line_feeds, code_points - line_feeds


@helper
def count_lines(data: Any, start: int, stop: int, classes: Any, features: int, table: Any, row: Any) -> Any:
    """Make the counts ``LENGTH_COUNTS``, ``LINE_COUNTS`` and ``PARAGRAPH_COUNTS`` in the columns of ``row``.

    Returns the table, which is larger than the one given if the text has more lines than any before.
    """
    slots = line_slots(data, start, stop, features)
    if len(table) < slots:
        table = np.empty(slots, dtype=np.uint32)
    count_lines_within(data, start, stop, classes, features, table[:slots], row)
    return table


@helper
def line_slots(data: Any, start: int, stop: int, features: int) -> int:
    """Return the slots of the table that `count_lines_within` needs for a text."""
    return piece_slots(data, start, stop) if features & (COUNT_LINES | COUNT_PARAGRAPHS) else 0


@helper
def piece_slots(data: Any, start: int, stop: int) -> int:
    """Return the slots of a table for all pieces of a text between line feeds."""
    pieces = _filled_pieces(data, start, stop)
    return 4 * pieces + 4 if pieces <= MANY_LINES else 2 * pieces


@helper
def count_lines_within(data: Any, start: int, stop: int, classes: Any, features: int, table: Any, row: Any) -> None:
    """Count as `count_lines` does, with a table of `line_slots` slots, which is overwritten."""
    if features & COUNT_LENGTH:
        count_length(data, start, stop, row[:3])
    if features & COUNT_LINES:
        table[:] = 0
        _count_lines(data, start, stop, classes, table, len(table), row[3:10])
    if features & COUNT_PARAGRAPHS:
        table[:] = 0
        _count_paragraphs(data, start, stop, classes, table, len(table), row[10:13])


_FIRST = COUNTS.index(LENGTH_COUNTS[0])


@kernel(types.void(*SPAN, types.int64, COUNTS_TYPE))
def count_lines_of_span(
    data: Any, offsets: Any, byte_classes: Any, page_of: Any, pages: Any, features: int, counts: Any
) -> None:
    """Count each text of a span into its row of ``counts``: the columns from `counts.LENGTH_COUNTS` on."""
    classes = (byte_classes, page_of, pages)
    table = np.empty(0, dtype=np.uint32)
    for row in range(len(counts)):
        table = count_lines(data, offsets[row], offsets[row + 1], classes, features, table, counts[row, _FIRST:])


def _c4_metrics(prefix: str, ends: str) -> tuple[Metric, ...]:
    lines = _C4_LINES.format(ends=ends)
    return (
        Metric(
            name=f"{prefix}_lorem_ipsum",
            dtype="Int64",
            numerator=f"{prefix}_lorem_ipsum",
            denominator=None,
            definition=f"1 if the first line that rejects the text contains 'lorem ipsum' (case-insensitive). {lines}",
            source=_C4,
            edge_cases="Lines that were already removed do not count; a line that has 'javascript' after it does",
        ),
        Metric(
            name=f"{prefix}_curly_bracket",
            dtype="Int64",
            numerator=f"{prefix}_curly_bracket",
            denominator=None,
            definition=f"1 if the first line that rejects the text contains a curly bracket, '{{'. {lines}",
            source=_C4,
            edge_cases="A bracket in a line that was already removed does not count",
        ),
        Metric(
            name=f"{prefix}_sentence_count",
            dtype="Int64",
            numerator=f"{prefix}_sentences",
            denominator=None,
            definition=(
                "Sentences in the kept lines (by words between white space; with datatrove's words, by its tokens), up "
                f"to the line that rejects the text. {lines}"
            ),
            source=_C4,
            edge_cases="Every kept line has at least one sentence; 0 for a text without kept lines",
        ),
    )


LINE_METRICS = (
    Metric(
        name="filled_line_count",
        dtype="Int64",
        numerator="filled_lines",
        denominator=None,
        definition=f"Number of filled lines. {_FILLED}",
        source=_FINEWEB,
        edge_cases=_NO_LINES,
    ),
    Metric(
        name="terminal_line_ratio",
        dtype="Float64",
        numerator="terminal_lines",
        denominator="filled_lines",
        definition=f"Fraction of filled lines whose last character is in datatrove's TERMINAL_PUNCTUATION. {_FILLED}",
        source=_FINEWEB,
        edge_cases=_NO_LINES + "; a line that ends in a space, a CR or a quotation mark does not count",
    ),
    Metric(
        name="short_line_ratio",
        dtype="Float64",
        numerator="short_lines",
        denominator="filled_lines",
        definition=f"Fraction of filled lines with at most 30 code points. {_FILLED}",
        source=_FINEWEB,
        edge_cases=_NO_LINES,
    ),
    Metric(
        name="duplicate_filled_line_character_ratio",
        dtype="Float64",
        numerator="duplicate_filled_line_code_points",
        denominator="code_points_but_line_feeds",
        definition=(
            "Number of code points in filled lines that repeat an earlier one, divided by the code points of the text that are "
            f"not line feeds. {_FILLED}"
        ),
        source=_FINEWEB,
        edge_cases=_NO_LINES,
    ),
    Metric(
        name="line_feed_word_ratio",
        dtype="Float64",
        numerator="line_feeds",
        denominator="words",
        definition="Number of line feeds divided by the number of words.",
        source=_FINEWEB,
        edge_cases="0 for a text without words",
    ),
    *_c4_metrics("c4", _ENDS),
    *_c4_metrics("c4_unpunctuated", ""),
)
"""Metrics of FineWeb and C4, in the order in which datatrove uses them."""
