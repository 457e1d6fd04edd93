# SPDX-License-Identifier: Apache-2.0
"""The metrics of Gopher's quality rules: words, symbols, bullets, ellipses and stop words."""

from __future__ import annotations

from curator_df.kernels.metric import Metric

_GOPHER = "Rae et al. 2021 (Gopher), appendix A.1.1, as computed by datatrove 0.10.0, GopherQualityFilter"
TEXT_COUNTS = ("hashes", "ellipses", "text_lines", "bullet_lines", "ellipsis_lines")
"""Of `counts.WORD_COUNTS`, those that are made of the text itself, however it is cut into words."""

_NO_WORDS = "0 for a text without words"
_NO_LINES = "0 for an empty text; a line of white space alone counts as a line"

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
        edge_cases=_NO_WORDS + "; '…', '--' and a lone control character are symbols, '€' and '•' are not",
    ),
    Metric(
        name="non_symbol_word_mean_length",
        dtype="Float64",
        numerator="non_symbol_code_points",
        denominator="non_symbol_words",
        definition="Mean length in code points of the words that non_symbol_word_count counts.",
        source=_GOPHER,
        edge_cases="0 without such words; combining marks are code points of their own",
    ),
    Metric(
        name="hash_ratio",
        dtype="Float64",
        numerator="hashes",
        denominator="words",
        definition="Occurrences of '#' divided by the number of words.",
        source=_GOPHER,
        edge_cases=_NO_WORDS + "; can exceed 1",
    ),
    Metric(
        name="ellipsis_ratio",
        dtype="Float64",
        numerator="ellipses",
        denominator="words",
        definition="Occurrences of '...' (not overlapping) and of '…' divided by the number of words.",
        source=_GOPHER,
        edge_cases=_NO_WORDS + "; can exceed 1; '.....' is one",
    ),
    Metric(
        name="bullet_line_ratio",
        dtype="Float64",
        numerator="bullet_lines",
        denominator="text_lines",
        definition="Share of lines (str.splitlines) whose first character after white space is '•' or '-'.",
        source=_GOPHER,
        edge_cases=_NO_LINES + "; '*' is not a bullet",
    ),
    Metric(
        name="ellipsis_line_ratio",
        dtype="Float64",
        numerator="ellipsis_lines",
        denominator="text_lines",
        definition="Share of lines (str.splitlines) that end, before trailing white space, in '...' or '…'.",
        source=_GOPHER,
        edge_cases=_NO_LINES,
    ),
    Metric(
        name="alpha_word_ratio",
        dtype="Float64",
        numerator="alpha_words",
        denominator="words",
        definition="Share of words with at least one alphabetic character (str.isalpha, so of any script).",
        source=_GOPHER,
        edge_cases=_NO_WORDS,
    ),
    Metric(
        name="stop_word_count",
        dtype="Int64",
        numerator="stop_words",
        denominator=None,
        definition="How many of the, be, to, of, and, that, have, with occur at least once as a word, in this case.",
        source=_GOPHER,
        edge_cases="0 to 8; 'The' and 'the,' are not 'the'",
    ),
)
"""In the order in which datatrove uses them."""
