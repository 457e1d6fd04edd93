# SPDX-License-Identifier: Apache-2.0
"""Quality and repetition rules of Gopher (Rae et al. 2021), as datatrove applies them.

The profiles have the tests, thresholds, order, reasons and words of datatrove 0.10.0, and therefore its verdicts. Its
words are spaCy tokens, where punctuation marks are tokens too. ``DATATROVE_GOPHER_QUALITY.replace(words="whitespace")``
splits texts at white space, which is 3 to 10 times as fast. Verdicts then differ, most of all for
``gopher_below_alpha_threshold``, which is less strict, and for texts near the limits of length.
"""

from __future__ import annotations

from curator_df.ops.filters.rules import Comparison, Profile, Rule

_PAPER = "https://arxiv.org/abs/2112.11446, appendix A.1.1"
_TABLE = "https://arxiv.org/abs/2112.11446, table A1"
_CODE = "datatrove 0.10.0, pipeline/filters/gopher_quality_filter.py, GopherQualityFilter"
_REPETITION = "datatrove 0.10.0, pipeline/filters/gopher_repetition_filter.py, GopherRepetitionFilter"


def _rule(metric: str, comparison: Comparison, threshold: float, reason: str, argument: str) -> Rule:
    return Rule(metric, comparison, threshold, reason, f"{_CODE}: {argument}={threshold:g}")


# Thresholds: the defaults of GopherQualityFilter.__init__. A text at the threshold is kept, as in datatrove.
DATATROVE_GOPHER_QUALITY = Profile(
    name="datatrove_gopher_quality",
    version="0.10.0",
    source=f"{_CODE}; {_PAPER}",
    rules=(
        # Paper: "between 50 and 100,000 words".
        _rule("non_symbol_word_count", ">=", 50, "gopher_short_doc", "min_doc_words"),
        _rule("non_symbol_word_count", "<=", 100_000, "gopher_long_doc", "max_doc_words"),
        # Paper: "mean word length ... 3 to 10 characters".
        _rule("non_symbol_word_mean_length", ">=", 3, "gopher_below_avg_threshold", "min_avg_word_length"),
        _rule("non_symbol_word_mean_length", "<=", 10, "gopher_above_avg_threshold", "max_avg_word_length"),
        # Paper: "symbol-to-word ratio greater than 0.1 for either the hash symbol or the ellipsis".
        _rule("hash_ratio", "<=", 0.1, "gopher_too_many_hashes", "max_symbol_word_ratio"),
        _rule("ellipsis_ratio", "<=", 0.1, "gopher_too_many_ellipsis", "max_symbol_word_ratio"),
        # Paper: "more than 90% of lines starting with a bullet point, or more than 30% ending with an ellipsis".
        _rule("bullet_line_ratio", "<=", 0.9, "gopher_too_many_bullets", "max_bullet_lines_ratio"),
        _rule("ellipsis_line_ratio", "<=", 0.3, "gopher_too_many_end_ellipsis", "max_ellipsis_lines_ratio"),
        # Paper: "80% of words in a document contain at least one alphabetic character".
        _rule("alpha_word_ratio", ">=", 0.8, "gopher_below_alpha_threshold", "max_non_alpha_words_ratio"),
        # Paper: "at least two of the following English words".
        _rule("stop_word_count", ">=", 2, "gopher_enough_stop_words", "min_stop_words"),
    ),
    words="datatrove",
)


def _at_most(metric: str, threshold: float, reason: str, argument: str) -> Rule:
    return Rule(metric, "<=", threshold, reason, f"{_REPETITION}: {argument}; {_TABLE}")


# Table A1, and the defaults of GopherRepetitionFilter.__init__, in its order.
DATATROVE_GOPHER_REPETITION = Profile(
    name="datatrove_gopher_repetition",
    version="0.10.0",
    source=f"{_REPETITION}; {_TABLE}",
    rules=(
        _at_most("duplicate_paragraph_ratio", 0.3, "dup_para_frac", "dup_para_frac=0.3"),
        _at_most("duplicate_paragraph_character_ratio", 0.2, "dup_para_char_frac", "dup_para_char_frac=0.2"),
        _at_most("duplicate_line_ratio", 0.3, "dup_line_frac", "dup_line_frac=0.3"),
        _at_most("duplicate_line_character_ratio", 0.2, "dup_line_char_frac", "dup_line_char_frac=0.2"),
        *(
            _at_most(f"top_{n}_gram_character_ratio", threshold, f"top_{n}_gram", f"top_n_grams: ({n}, {threshold})")
            for n, threshold in ((2, 0.2), (3, 0.18), (4, 0.16))
        ),
        *(
            _at_most(
                f"repeated_{n}_gram_character_ratio",
                threshold,
                f"duplicated_{n}_n_grams",
                f"dup_n_grams: ({n}, {threshold})",
            )
            for n, threshold in ((5, 0.15), (6, 0.14), (7, 0.13), (8, 0.12), (9, 0.11), (10, 0.1))
        ),
    ),
    words="datatrove",
)
