# SPDX-License-Identifier: Apache-2.0
"""Catalog of text metrics, as data: each is a count, or a quotient of two counts that one pass over a text makes.

This module computes nothing and does not import numba; `measure` does, with the compiled passes. A new metric that
divides existing counts is one entry; a new count is a name in `counts` and a column in the pass.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from curator_df.errors import ParameterError
from curator_df.extras import require_package
from curator_df.kernels.metrics.counts import (
    C4_FEATURES,
    COUNT_DCLM_REPEATS,
    COUNT_LINES,
    COUNT_PARAGRAPHS,
    COUNT_SENTENCES,
    COUNT_UNICODE_GRAMS,
    COUNTS,
    GRAM_FEATURES,
    REPEAT_FEATURES,
    WEB_FEATURES,
    WORD_FEATURES,
    features_of_counts,
)
from curator_df.kernels.metrics.dclm_counts import DCLM_METRICS
from curator_df.kernels.metrics.lines.line_counts import LINE_METRICS
from curator_df.kernels.metrics.metric import Metric
from curator_df.kernels.metrics.nemo.web_metrics import DOLMA_METRICS, NEMO_METRICS
from curator_df.kernels.metrics.ngrams.gram_repeats import REPETITION_METRICS
from curator_df.kernels.metrics.source.source_metrics import SOURCE_METRICS
from curator_df.kernels.metrics.words.word_metrics import WORD_METRICS
from curator_df.suggestions import did_you_mean

_FILTERS = "nemo_curator 0.9.0, filters"
_OPERATOR = "add_token_count"

COLUMN_METRICS = (
    Metric(
        "token_count",
        "Int64",
        "",
        None,
        "Number of tokens, as counted by `add_token_count`.",
        f"{_FILTERS}/heuristic_filter.py, TokenCountFilter",
        "0 for an empty text, or the number of special tokens if they are counted",
        operator=_OPERATOR,
    ),
    Metric(
        "characters_per_token",
        "Float64",
        "",
        None,
        "Number of code points divided by the number of tokens, without special tokens.",
        f"{_FILTERS}/code.py, TokenizerFertilityFilter",
        "-1 for a text without tokens, as in NeMo",
        operator=_OPERATOR,
    ),
    Metric(
        "bytes_per_token",
        "Float64",
        "",
        None,
        "Number of UTF-8 bytes divided by the number of tokens, without special tokens.",
        "variant of tokenizer_fertility on bytes, so that scripts can be compared",
        "-1 for a text without tokens",
        operator=_OPERATOR,
    ),
    Metric(
        "comment_ratio",
        "Float64",
        "",
        None,
        "Fraction of the code points of source code that are in comments, as `add_comment_ratio` defines it for each language.",
        f"{_FILTERS}/code.py, PythonCommentToCodeFilter and GeneralCommentToCodeFilter",
        "0 for an empty text (NeMo divides by zero) and for Python that cannot be parsed; 9999 for an unterminated comment",
        operator="add_comment_ratio",
    ),
    Metric(
        "html_text_ratio",
        "Float64",
        "",
        None,
        "Fraction of the code points of an HTML page that are text, without scripts and styles, as in `add_html_text_ratio`.",
        f"{_FILTERS}/code.py, HTMLBoilerplateFilter",
        "0 for an empty page (NeMo divides by zero), for a page with too little text and for a page that cannot be parsed",
        operator="add_html_text_ratio",
    ),
)


SIZE_METRICS = (
    Metric(
        name="character_count",
        dtype="Int64",
        numerator="code_points",
        denominator=None,
        definition="Number of code points.",
        source="Python's len",
        edge_cases="0 for an empty text; a letter with a combining mark counts as two",
    ),
    Metric(
        name="sentence_count",
        dtype="Int64",
        numerator="sentences",
        denominator=None,
        definition=(
            "Number of sentences, which may span lines: by words between white space, or "
            "with datatrove's words by its tokens."
        ),
        source="curator_df; with datatrove's words, datatrove 0.10.0, SpaCyTokenizer.sent_tokenize",
        edge_cases=(
            "0 for a text without words, at least 1 for any other; a heading without a final mark is part of the next "
            "sentence; with ICU's words, sentences are counted by words between white space"
        ),
    ),
    Metric(
        name="paragraph_count",
        dtype="Int64",
        numerator="paragraphs",
        denominator=None,
        definition="Number of paragraphs. Paragraphs are separated by two or more line feeds, after white space is stripped "
        "from the ends of the text.",
        source="Rae et al. 2021 (Gopher), appendix A.1.1, as computed by datatrove 0.10.0, GopherRepetitionFilter",
        edge_cases="1 for an empty text",
    ),
)


Words = Literal["whitespace", "datatrove", "icu"]
"""Ways of splitting a text into words. ``whitespace``: as ``str.split`` does. ``datatrove``: the tokens of datatrove 0.10.0 for
English, which are spaCy's: punctuation marks are words, and ``can't`` is two. ``icu``: the words of any language by ICU, with
dictionaries of Chinese, Japanese, Thai, Lao, Khmer and Burmese; punctuation marks are words."""

_OWN_WORD_COUNTS = frozenset(
    (
        "word_characters",
        "longest_word",
        "alphabetic_words",
        "stop_word_occurrences",
        "nemo_symbol_words",
        "dolma_symbol_words",
        "middle_word_lengths",
        "middle_words",
        "fasttext_words",
        "dclm_symbols",
        "any_case_stop_words",
        "unicode_word_characters",
    )
)
"""Counts of words, other than n-grams, that are defined on words of their own, mostly those between white space."""

METRICS: Mapping[str, Metric] = MappingProxyType(
    {
        metric.name: metric
        for metric in (
            *WORD_METRICS,
            *REPETITION_METRICS,
            *LINE_METRICS,
            *NEMO_METRICS,
            *DOLMA_METRICS,
            *DCLM_METRICS,
            *SOURCE_METRICS,
            *SIZE_METRICS,
        )
    }
)
"""Metrics made of the text, by name."""


CATALOGUE: Mapping[str, Metric] = MappingProxyType({**METRICS, **{metric.name: metric for metric in COLUMN_METRICS}})
"""Metrics by name, including those that other operators add as columns: a rule reads them there."""


def require_rule_metrics(names: Iterable[str]) -> None:
    """Raise `ParameterError`, with the nearest names, unless every name is a metric that a rule can use.

    Examples
    --------
    >>> require_rule_metrics(["word_count", "token_count"])
    """
    _require_known(names, CATALOGUE, "CATALOGUE")


def require_metrics(names: Iterable[str]) -> None:
    """Raise `ParameterError`, with the nearest names, unless every name is a metric made of the text.

    Examples
    --------
    >>> require_metrics(["word_count"])
    """
    names = list(names)
    columns = [name for name in names if name in CATALOGUE and name not in METRICS]
    if columns:
        raise ParameterError(
            f"{columns[0]!r} is not a metric, but a column that {CATALOGUE[columns[0]].operator} adds. Call "
            f"{CATALOGUE[columns[0]].operator} for it"
        )
    _require_known(names, METRICS, "METRICS")


def _require_known(names: Iterable[str], metrics: Mapping[str, Metric], where: str) -> None:
    unknown = [name for name in names if name not in metrics]
    if unknown:
        raise ParameterError(
            f"unknown metric {', '.join(map(repr, unknown))}.{did_you_mean(str(unknown[0]), metrics)} "
            f"All {len(metrics)}: from curator_df.kernels.metrics.catalog import {where}; print(*{where})"
        )


def require_words(operator: str, names: Sequence[str], words: Words) -> None:
    """Raise `ParameterError` if a metric is defined only on words between white space, and other words are requested.

    Examples
    --------
    >>> require_words("add_metrics", ["word_count", "digit_ratio"], "datatrove")
    """
    if words == "whitespace":
        return
    others = [name for name in names if features_of([name]) & REPEAT_FEATURES or _counts_of(name) & _OWN_WORD_COUNTS]
    if others:
        raise ParameterError(
            f"{operator}: words={words!r} cannot be used for {', '.join(others)}, because NeMo Curator, dolma and DCLM "
            "define these with another way to split a text into words. Use words='whitespace' for these metrics, in a "
            "separate profile or call"
        )


def counts_words(names: Sequence[str]) -> bool:
    """Return whether the value of a metric depends on how a text is split into words.

    Examples
    --------
    >>> counts_words(["digit_ratio", "duplicate_line_ratio"]), counts_words(["word_count"])
    (False, True)
    """
    of_words = WORD_FEATURES | GRAM_FEATURES | C4_FEATURES | COUNT_SENTENCES | REPEAT_FEATURES
    return any(features_of([name]) & of_words or _counts_of(name) & _OWN_WORD_COUNTS for name in names)


def require_words_package(operator: str, words: Words) -> None:
    """Raise `MissingExtraError` if the package for these words is not installed, without importing it."""
    if words == "icu":
        require_package(f"{operator} with words='icu'", "icu4py", "icu")


def _counts_of(name: str) -> set[str]:
    return {count for count in (METRICS[name].numerator, METRICS[name].denominator) if count is not None}


def features_of(names: Iterable[str]) -> int:
    """Return the feature bits (`counts`) that the pass needs for these metrics."""
    metrics = [METRICS[name] for name in names]
    return features_of_counts(
        count for metric in metrics for count in (metric.numerator, metric.denominator) if count is not None
    )


def work_factor(names: Sequence[str], words: Words = "whitespace") -> float:
    """Return the working memory of the pass for these metrics as a multiple of the longest text, in the worst case.

    Repeated lines and n-grams: a table of 8 bytes for each word or line, of which the shortest take 2 bytes (prose:
    1.9). DCLM: for lines two bits a byte plus the table; for n-grams 24 bytes for each word of Unicode's rules, of which
    there are at most two in three bytes (a letter and a superscript). C4: a copy of a line with brackets; with datatrove's
    words a copy of the kept lines, and their positions. Tokens are copied with a byte after each, and the shortest take one
    byte: measured with ICU's words (benchmarks/kernel_memory.py, result included), 10.02 on one text of punctuation alone.

    Examples
    --------
    >>> work_factor(["word_count"]), work_factor(["c4_sentence_count"]), work_factor(["duplicate_line_ratio"])
    (0.0, 1.0, 4.0)
    >>> work_factor(["word_count"], "datatrove"), work_factor(["top_2_gram_character_ratio"], "datatrove")
    (2.0, 10.0)
    """
    features = features_of(names)
    if words == "datatrove" and features & C4_FEATURES:
        return max(10.0, _work_factor(features))
    of_tokens = WORD_FEATURES | GRAM_FEATURES | (COUNT_SENTENCES if words == "datatrove" else 0)
    if words != "whitespace" and features & of_tokens:
        rest = features & ~of_tokens
        return max(10.0 if features & GRAM_FEATURES else 2.0, _work_factor(rest))
    return _work_factor(features)


def _work_factor(features: int) -> float:
    if features & COUNT_UNICODE_GRAMS:
        return 16.0
    if features & COUNT_DCLM_REPEATS:
        return 4.25
    if features & (COUNT_LINES | COUNT_PARAGRAPHS | GRAM_FEATURES | WEB_FEATURES | REPEAT_FEATURES):
        return 4.0
    return 1.0 if features & C4_FEATURES else 0.0


def metric_values(name: str, counts: npt.NDArray[np.int64]) -> npt.NDArray[Any]:
    """Return a metric (int64 or float64, one value a row) from the counts of some rows, shape (rows, len(COUNTS))."""
    metric = METRICS[name]
    numerator = counts[:, COUNTS.index(metric.numerator)]
    if metric.denominator is None:
        return numerator
    denominator = counts[:, COUNTS.index(metric.denominator)]
    quotient = np.full(len(counts), metric.undefined, dtype=np.float64)
    np.divide(numerator, denominator, out=quotient, where=denominator > 0)
    return quotient
