# SPDX-License-Identifier: Apache-2.0
"""Metrics of FineWeb's and C4's rules: the ends, lengths and contents of lines."""

from __future__ import annotations

from curator_df.kernels.metrics.metric import Metric

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
