# SPDX-License-Identifier: Apache-2.0
"""The metrics of FineWeb's and C4's rules: how lines end, how long they are, and what they contain."""

from __future__ import annotations

from curator_df.kernels.metric import Metric

_FINEWEB = "Penedo et al. 2024 (FineWeb), section 3.6, as computed by datatrove 0.10.0, FineWebQualityFilter"
_C4 = "Raffel et al. 2020 (C4), section 2.2, as computed by datatrove 0.10.0, C4QualityFilter"
_FILLED = "Filled lines stand between single line feeds and have more than white space."
_NO_LINES = "0 for a text without filled lines"
_C4_LINES = (
    "A line (str.splitlines, stripped) stays if no word has more than 1,000 characters, and if without citations "
    "([1], [edit], [citation needed]){ends} it has at least 3 words and names no javascript, terms of use, privacy policy, "
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
            definition=f"1 if the first line that fails the text has 'lorem ipsum' in any case. {lines}",
            source=_C4,
            edge_cases="Lines that are gone by then do not count, but those with 'javascript' after it do",
        ),
        Metric(
            name=f"{prefix}_curly_bracket",
            dtype="Int64",
            numerator=f"{prefix}_curly_bracket",
            denominator=None,
            definition=f"1 if the first line that fails the text has a curly bracket, '{{'. {lines}",
            source=_C4,
            edge_cases="A bracket in a line that is gone by then does not count",
        ),
        Metric(
            name=f"{prefix}_sentence_count",
            dtype="Int64",
            numerator=f"{prefix}_sentences",
            denominator=None,
            definition=(
                "Sentences of the lines that stay (kernels/sentences.py; with datatrove's words kernels/token_sentences.py), up "
                f"to a line that fails the text. {lines}"
            ),
            source=_C4,
            edge_cases="Every line that stays has at least one sentence; 0 for a text without such lines",
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
        definition=f"Share of filled lines whose last character is in datatrove's TERMINAL_PUNCTUATION. {_FILLED}",
        source=_FINEWEB,
        edge_cases=_NO_LINES + "; a line that ends in a space, a CR or a quotation mark is not one",
    ),
    Metric(
        name="short_line_ratio",
        dtype="Float64",
        numerator="short_lines",
        denominator="filled_lines",
        definition=f"Share of filled lines of at most 30 code points. {_FILLED}",
        source=_FINEWEB,
        edge_cases=_NO_LINES,
    ),
    Metric(
        name="duplicate_filled_line_character_ratio",
        dtype="Float64",
        numerator="duplicate_filled_line_code_points",
        denominator="code_points_but_line_feeds",
        definition=(
            "Code points in filled lines that are the same as one before, divided by the code points of the text that are "
            f"no line feeds. {_FILLED}"
        ),
        source=_FINEWEB,
        edge_cases=_NO_LINES,
    ),
    Metric(
        name="line_feed_word_ratio",
        dtype="Float64",
        numerator="line_feeds",
        denominator="words",
        definition="Line feeds divided by the number of words.",
        source=_FINEWEB,
        edge_cases="0 for a text without words",
    ),
    *_c4_metrics("c4", _ENDS),
    *_c4_metrics("c4_unpunctuated", ""),
)
"""In the order in which datatrove uses them."""
