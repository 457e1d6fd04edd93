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
from curator_df.kernels.compiling.compiled import kernel_named
from curator_df.kernels.english_tokens.spans import BATCH_BYTES, token_spans
from curator_df.kernels.metrics.c4.c4_texts import token_sentences
from curator_df.kernels.metrics.catalog import Words, features_of, metric_values, require_metrics, require_words
from curator_df.kernels.metrics.counts import (
    C4,
    C4_COUNTS,
    C4_FEATURES,
    C4_UNPUNCTUATED_COUNTS,
    COUNT_C4,
    COUNT_C4_UNPUNCTUATED,
    COUNT_MARKS,
    COUNT_SENTENCES,
    COUNT_STOP_WORDS,
    COUNTS,
    FAMILIES,
    GRAM_FEATURES,
    SENTENCE_COUNTS,
    STOP_WORDS,
    WORD_FEATURES,
    WORDS,
    Classes,
)
from curator_df.kernels.metrics.lines.text_sentences import text_sentences
from curator_df.kernels.metrics.nemo.character_counts import character_byte_classes, character_classes
from curator_df.kernels.metrics.words.listed_words import count_listed_words_of_span, word_list
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
    needed = [
        kernel
        for family in FAMILIES
        if features & family.features
        for kernel in (by_tokens and family.token_kernels) or family.kernels
    ]
    if features & COUNT_STOP_WORDS and stop_words != STOP_WORDS:
        needed += kernel_sets.LISTED_WORDS
    return tuple(dict.fromkeys(needed))


def _count(
    span: TextSpan, features: int, counts: npt.NDArray[np.int64], words: Words, stop_words: tuple[str, ...]
) -> None:
    """Make the requested counts. A span is small enough to stay in the cache for all groups of counts."""
    longest = int(np.diff(span.offsets).max(initial=0))
    most = LONGEST_TEXT_BYTES if words == "whitespace" else LONGEST_TEXT_BYTES // 2
    if longest > most:
        raise ParameterError(
            f"a text of {longest:,} bytes is too long to be measured: the limit is {most:,} bytes. Drop such texts before, for "
            "example with keep_where"
        )
    if words != "whitespace":
        _count_tokens(span, features & (WORD_FEATURES | GRAM_FEATURES), counts, words, stop_words)
        features &= ~(WORD_FEATURES | GRAM_FEATURES)
    _count_text(span, longest, features & ~COUNT_SENTENCES, counts, stop_words)
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
    for family in {family.kernels: family for family in FAMILIES if features & family.features}.values():
        texts = (span.data, span.offsets, *class_tables(family.classes, features))
        [kernel] = family.kernels
        if family is C4:
            # Unwritten pages, to which no line is copied, use zero memory.
            scratch = np.empty(longest, dtype=np.uint8)
            kernel_named(kernel)(*texts, features, scratch, read_only(scratch), counts)
            continue
        kernel_named(kernel)(*texts, features, counts)
        if family is WORDS and features & COUNT_STOP_WORDS and stop_words != STOP_WORDS:
            counts[:, COUNTS.index("stop_words")] = _stop_words_of(texts, stop_words)


def class_tables(classes: Classes, features: int) -> tuple[npt.NDArray[Any], npt.NDArray[Any], npt.NDArray[Any]]:
    """Return the tables in which passes look characters up: classes of bytes, and pages of the classes of code points."""
    if classes == "word_breaks":
        byte_classes, table = word_break_byte_classes(), word_break_classes()
    elif classes == "characters":
        byte_classes, table = character_byte_classes(), character_classes()
    else:
        byte_classes, table = word_byte_classes("#." if features & COUNT_MARKS else ""), word_classes()
    return byte_classes, table.page_of, table.pages


def _stop_words_of(texts: tuple[Any, ...], stop_words: tuple[str, ...]) -> npt.NDArray[np.int64]:
    """Return the number of distinct words of a list in each text."""
    listed = word_list(stop_words)
    found = np.empty(len(texts[1]) - 1, dtype=np.int64)
    count_listed_words_of_span(*texts, listed.data, listed.offsets, listed.slots, found)
    return found
