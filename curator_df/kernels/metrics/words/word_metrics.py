# SPDX-License-Identifier: Apache-2.0
"""Metrics of Gopher's quality rules: words, symbols, bullets, ellipses and stop words."""

from __future__ import annotations

from curator_df.kernels.metrics.metric import Metric

_GOPHER = "Rae et al. 2021 (Gopher), appendix A.1.1, as computed by datatrove 0.10.0, GopherQualityFilter"
TEXT_COUNTS = ("hashes", "ellipses", "text_lines", "bullet_lines", "ellipsis_lines")
"""Counts in `counts.WORD_COUNTS` that are made of the text itself, independent of how it is split into words."""

_NO_WORDS = "0 for a text without words"
_NO_LINES = "0 for an empty text; a line of only white space counts as a line"

WORD_METRICS = (
    Metric(
        name="word_count",
        dtype="Int64",
        numerator="words",
        denominator=None,
        definition="Number of words.",
        source="Rae et al. 2021 (Gopher), appendix A.1.1",
        edge_cases=_NO_WORDS,
    ),
    Metric(
        name="non_symbol_word_count",
        dtype="Int64",
        numerator="non_symbol_words",
        denominator=None,
        definition="Number of words with at least one character outside datatrove's PUNCTUATION_SET.",
        source=_GOPHER,
        edge_cases=_NO_WORDS + "; '…', '--' and a single control character are symbols, '€' and '•' are not",
    ),
    Metric(
        name="non_symbol_word_mean_length",
        dtype="Float64",
        numerator="non_symbol_code_points",
        denominator="non_symbol_words",
        definition="Mean length in code points of the words that non_symbol_word_count counts.",
        source=_GOPHER,
        edge_cases="0 without such words; combining marks are separate code points",
    ),
    Metric(
        name="hash_ratio",
        dtype="Float64",
        numerator="hashes",
        denominator="words",
        definition="Number of '#' divided by the number of words.",
        source=_GOPHER,
        edge_cases=_NO_WORDS + "; can exceed 1",
    ),
    Metric(
        name="ellipsis_ratio",
        dtype="Float64",
        numerator="ellipses",
        denominator="words",
        definition="Number of '...' (not overlapping) and '…' divided by the number of words.",
        source=_GOPHER,
        edge_cases=_NO_WORDS + "; can exceed 1; '.....' counts once",
    ),
    Metric(
        name="bullet_line_ratio",
        dtype="Float64",
        numerator="bullet_lines",
        denominator="text_lines",
        definition="Fraction of lines (str.splitlines) whose first character after white space is '•' or '-'.",
        source=_GOPHER,
        edge_cases=_NO_LINES + "; '*' is not a bullet",
    ),
    Metric(
        name="ellipsis_line_ratio",
        dtype="Float64",
        numerator="ellipsis_lines",
        denominator="text_lines",
        definition="Fraction of lines (str.splitlines) that end, before trailing white space, in '...' or '…'.",
        source=_GOPHER,
        edge_cases=_NO_LINES,
    ),
    Metric(
        name="alpha_word_ratio",
        dtype="Float64",
        numerator="alpha_words",
        denominator="words",
        definition="Fraction of words with at least one alphabetic character of any script (str.isalpha).",
        source=_GOPHER,
        edge_cases=_NO_WORDS,
    ),
    Metric(
        name="stop_word_count",
        dtype="Int64",
        numerator="stop_words",
        denominator=None,
        definition="Number of distinct stop words (the, be, to, of, and, that, have, with) in the text; case-sensitive.",
        source=_GOPHER,
        edge_cases="0 to 8; 'The' and 'the,' are not 'the'",
    ),
)
"""Metrics of Gopher's quality rules, in the order in which datatrove uses them."""
