# SPDX-License-Identifier: Apache-2.0
"""How long a text is, in characters, sentences and paragraphs. Words and lines are counted by metrics of other systems."""

from __future__ import annotations

from curator_df.kernels.metric import Metric

SIZE_METRICS = (
    Metric(
        name="character_count",
        dtype="Int64",
        numerator="code_points",
        denominator=None,
        definition="Number of code points.",
        source="len of Python",
        edge_cases="0 for an empty text; a letter with a combining mark is two",
    ),
    Metric(
        name="sentence_count",
        dtype="Int64",
        numerator="sentences",
        denominator=None,
        definition=(
            "Number of sentences, which go on over the ends of lines: on words between white space (kernels/sentences.py), "
            "with datatrove's words on its tokens (kernels/token_sentences.py)."
        ),
        source="ours; with datatrove's words datatrove 0.10.0, SpaCyTokenizer.sent_tokenize",
        edge_cases=(
            "0 for a text without words, at least 1 for any other; a heading without a mark at its end is part of the next "
            "sentence; with ICU's words as on words between white space"
        ),
    ),
    Metric(
        name="paragraph_count",
        dtype="Int64",
        numerator="paragraphs",
        denominator=None,
        definition="Number of paragraphs. Paragraphs stand between two or more line feeds, white space at the ends of the text "
        "taken off.",
        source="Rae et al. 2021 (Gopher), appendix A.1.1, as computed by datatrove 0.10.0, GopherRepetitionFilter",
        edge_cases="1 for an empty text",
    ),
)
