# SPDX-License-Identifier: Apache-2.0
"""Length of a text in characters, sentences and paragraphs. Words and lines are counted by the metrics of other systems."""

from __future__ import annotations

from curator_df.kernels.metrics.metric import Metric

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
