# SPDX-License-Identifier: Apache-2.0
"""Text metrics of a column, span by span, so that the memory for the rows does not add up over a block.

Words that are not those between white space are written out with white space between them, so that the same counters read them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from curator_df.arguments import choose
from curator_df.errors import ParameterError
from curator_df.kernels.compiling import kernel_sets
from curator_df.kernels.english_tokens.spans import BATCH_BYTES, token_spans
from curator_df.kernels.metrics.c4.c4_lines import count_c4_of_span
from curator_df.kernels.metrics.c4.c4_texts import token_sentences
from curator_df.kernels.metrics.catalog import Words, features_of, metric_values, require_metrics, require_words
from curator_df.kernels.metrics.counts import (
    C4_COUNTS,
    C4_FEATURES,
    C4_UNPUNCTUATED_COUNTS,
    CHARACTER_FEATURES,
    COUNT_C4,
    COUNT_C4_UNPUNCTUATED,
    COUNT_MARKS,
    COUNT_SENTENCES,
    COUNT_STOP_WORDS,
    COUNTS,
    DCLM_FEATURES,
    GRAM_FEATURES,
    LINE_FEATURES,
    REPEAT_FEATURES,
    SENTENCE_COUNTS,
    SOURCE_FEATURES,
    STOP_WORDS,
    WEB_FEATURES,
    WORD_FEATURES,
)
from curator_df.kernels.metrics.dclm.dclm_counts import count_dclm_of_span
from curator_df.kernels.metrics.lines.line_counts import count_lines_of_span
from curator_df.kernels.metrics.lines.text_sentences import text_sentences
from curator_df.kernels.metrics.nemo.character_classes import character_byte_classes, character_classes
from curator_df.kernels.metrics.nemo.character_counts import count_characters_of_span
from curator_df.kernels.metrics.nemo.nemo_line_counts import count_web_of_span
from curator_df.kernels.metrics.ngrams.gram_counts import count_grams_of_span
from curator_df.kernels.metrics.ngrams.gram_repeats import count_repeats_of_span
from curator_df.kernels.metrics.source.source_metrics import count_source_of_span
from curator_df.kernels.metrics.words.listed_words import count_listed_words_of_span, word_list
from curator_df.kernels.metrics.words.word_counts import count_words_of_span
from curator_df.kernels.metrics.words.word_metrics import TEXT_COUNTS
from curator_df.kernels.text.buffers import TextSpan, read_only, text_spans
from curator_df.kernels.text.code_points import word_byte_classes, word_classes
from curator_df.kernels.text.word_break import word_break_byte_classes, word_break_classes

MEASURED_ROWS = 512
"""Rows of a span: their counts take 530 KB, whatever the column."""
LONGEST_TEXT_BYTES = (1 << 32) - 2
"""Maximum size of a text: positions in it are stored in 32 bits."""


@dataclass(frozen=True)
class Measured:
    """Metrics of consecutive rows."""

    first_row: int
    """Position of the first row in the column."""
    values: dict[str, npt.NDArray[Any]]
    """Metric by name, int64 or float64, one value a row; meaningless if the text is null."""
    valid: npt.NDArray[np.bool_] | None
    """Validity of the rows: False for null texts; None if there are none."""
    rows: int
    """Number of rows."""


def measure(
    texts: pd.Series,
    metrics: Sequence[str],
    *,
    words: Words = "whitespace",
    stop_words: tuple[str, ...] = STOP_WORDS,
) -> Iterator[Measured]:
    """Measure a text column in spans of `MEASURED_ROWS` rows.

    Parameters
    ----------
    texts : pandas.Series of strings
        The column; null is allowed.
    metrics : sequence of str
        Names in the catalog (`metrics.METRICS`).
    words : {"whitespace", "datatrove", "icu"}
        How to split words; see `metrics.Words`.
    stop_words : tuple of str
        Words that ``stop_word_count`` counts.

    Yields
    ------
    Measured
        The metrics of the next rows.

    Notes
    -----
    Memory: about 2 MB, and `metrics.work_factor` times the longest text.

    Examples
    --------
    >>> [spans] = measure(pd.Series(["to be or", ""]), ["word_count", "stop_word_count"])
    >>> spans.values["word_count"].tolist(), spans.values["stop_word_count"].tolist()
    ([3, 0], [2, 0])
    """
    choose("measure", "words", words, Words)
    require_metrics(metrics)
    require_words("measure", metrics, words)
    features = features_of(metrics)
    counts = np.zeros((MEASURED_ROWS, len(COUNTS)), dtype=np.int64)
    for span in text_spans(texts, MEASURED_ROWS):
        _count(span, features, counts[: len(span)], words, stop_words)
        values = {name: metric_values(name, counts[: len(span)]).copy() for name in metrics}
        yield Measured(span.first_row, values, span.valid, len(span))


def metric_kernels(
    metrics: Sequence[str], words: Words = "whitespace", stop_words: tuple[str, ...] = STOP_WORDS
) -> tuple[str, ...]:
    """Return the kernels that metrics need."""
    features, by_tokens = features_of(metrics), words == "datatrove"
    needed = {
        kernel_sets.WORDS: WORD_FEATURES,
        kernel_sets.TOKENS: WORD_FEATURES | GRAM_FEATURES | C4_FEATURES | COUNT_SENTENCES if by_tokens else 0,
        kernel_sets.TOKEN_SENTENCES: C4_FEATURES | COUNT_SENTENCES if by_tokens else 0,
        kernel_sets.C4_LINES: C4_FEATURES if by_tokens else 0,
        kernel_sets.SENTENCES: COUNT_SENTENCES if not by_tokens else 0,
        kernel_sets.LINES: LINE_FEATURES,
        kernel_sets.GRAMS: GRAM_FEATURES,
        kernel_sets.C4: C4_FEATURES,
        kernel_sets.CHARACTERS: CHARACTER_FEATURES,
        kernel_sets.WEB: WEB_FEATURES,
        kernel_sets.REPEATS: REPEAT_FEATURES,
        kernel_sets.DCLM: DCLM_FEATURES,
        kernel_sets.SOURCE: SOURCE_FEATURES,
        kernel_sets.LISTED_WORDS: COUNT_STOP_WORDS if stop_words != STOP_WORDS else 0,
    }
    return tuple(kernel for kernels, wanted in needed.items() if features & wanted for kernel in kernels)


def _count(
    span: TextSpan, features: int, counts: npt.NDArray[np.int64], words: Words, stop_words: tuple[str, ...]
) -> None:
    """Make the requested counts. A span is small enough to stay in the cache for all groups of counts."""
    longest = int(np.diff(span.offsets).max(initial=0))
    most = LONGEST_TEXT_BYTES if words == "whitespace" else LONGEST_TEXT_BYTES // 2
    if longest > most:
        raise ParameterError(
            f"measure: a text of {longest:,} bytes is too long. The limit is {most:,} bytes. Split or drop such texts first"
        )
    if words != "whitespace":
        _count_tokens(span, features & (WORD_FEATURES | GRAM_FEATURES), counts, words, stop_words)
        features &= ~(WORD_FEATURES | GRAM_FEATURES)
    _count_text(span, longest, features, counts, stop_words)
    if words == "datatrove" and features & C4_FEATURES:
        _count_token_sentences(span, features, counts)
    # This pass is last, because an earlier one would clear the columns behind its own.
    if features & COUNT_SENTENCES:
        counts[:, COUNTS.index(SENTENCE_COUNTS[0])] = text_sentences(span, words)


def _count_token_sentences(span: TextSpan, features: int, counts: npt.NDArray[np.int64]) -> None:
    """Count the sentences of C4's lines by tokens, in texts that no line fails, in batches of rows."""
    groups = ((COUNT_C4, C4_COUNTS, True), (COUNT_C4_UNPUNCTUATED, C4_UNPUNCTUATED_COUNTS, False))
    first = 0
    while first < len(span):
        ends = span.offsets[first + 1 :] - span.offsets[first]
        stop = first + max(1, int(np.searchsorted(ends, BATCH_BYTES, side="right")))
        for feature, (lorem_ipsum, curly_bracket, sentences), is_punctuated in groups:
            if features & feature:
                rows = counts[first:stop]
                passes = (rows[:, COUNTS.index(lorem_ipsum)] | rows[:, COUNTS.index(curly_bracket)]) == 0
                offsets = span.offsets[first : stop + 1]
                found = token_sentences(span.data, offsets, require_punctuation=is_punctuated)
                rows[passes, COUNTS.index(sentences)] = found[passes]
        first = stop


def _count_tokens(
    span: TextSpan, features: int, counts: npt.NDArray[np.int64], words: Words, stop_words: tuple[str, ...]
) -> None:
    """Make the counts of words with tokens as words; counts made of the text itself do not change."""
    of_text = [COUNTS.index(name) for name in TEXT_COUNTS]
    kept = np.empty((0, 0), dtype=np.int64)
    if features & WORD_FEATURES:
        _count_text(span, 0, features & WORD_FEATURES, counts, STOP_WORDS)
        kept = counts[:, of_text]
    for tokens in token_spans(span, words) if features else ():
        first = tokens.first_row - span.first_row
        _count_text(tokens, 0, features, counts[first : first + len(tokens)], stop_words)
    if features & WORD_FEATURES:
        counts[:, of_text] = kept


def _count_text(
    span: TextSpan, longest: int, features: int, counts: npt.NDArray[np.int64], stop_words: tuple[str, ...]
) -> None:
    """Make the counts with words between white space; ``longest`` is the size of the longest text, only for C4's lines."""
    table = word_classes()
    byte_classes = word_byte_classes("#." if features & COUNT_MARKS else "")
    texts = (span.data, span.offsets, byte_classes, table.page_of, table.pages)
    if features & WORD_FEATURES:
        count_words_of_span(*texts, features, counts)
        if features & COUNT_STOP_WORDS and stop_words != STOP_WORDS:
            counts[:, COUNTS.index("stop_words")] = _stop_words_of(texts, stop_words)
    if features & LINE_FEATURES:
        count_lines_of_span(*texts, features, counts)
    if features & GRAM_FEATURES:
        count_grams_of_span(*texts, features, counts)
    if features & WEB_FEATURES:
        count_web_of_span(*texts, features, counts)
    if features & REPEAT_FEATURES:
        count_repeats_of_span(*texts, features, counts)
    if features & SOURCE_FEATURES:
        count_source_of_span(*texts, counts)
    if features & C4_FEATURES:
        # Unwritten pages, to which no line is copied, use zero memory.
        scratch = np.empty(longest, dtype=np.uint8)
        count_c4_of_span(*texts, features, scratch, read_only(scratch), counts)
    _count_by_other_classes(span, features, counts)


def _count_by_other_classes(span: TextSpan, features: int, counts: npt.NDArray[np.int64]) -> None:
    """Make the counts that look characters up in separate tables."""
    if features & DCLM_FEATURES:
        breaks = word_break_classes()
        breaks_of = (word_break_byte_classes(), breaks.page_of, breaks.pages)
        count_dclm_of_span(span.data, span.offsets, *breaks_of, features, counts)
    if features & CHARACTER_FEATURES:
        kinds = character_classes()
        kinds_of = (character_byte_classes(), kinds.page_of, kinds.pages)
        count_characters_of_span(span.data, span.offsets, *kinds_of, counts)


def _stop_words_of(texts: tuple[Any, ...], stop_words: tuple[str, ...]) -> npt.NDArray[np.int64]:
    """Return the number of distinct words of a list in each text."""
    listed = word_list(stop_words)
    found = np.empty(len(texts[1]) - 1, dtype=np.int64)
    count_listed_words_of_span(*texts, listed.data, listed.offsets, listed.slots, found)
    return found
