# SPDX-License-Identifier: Apache-2.0
# numba has no types.
# mypy: disable-error-code="untyped-decorator"
"""Compiled pass over the texts of a span that counts their sentences on words between white space, in constant memory.

Importing this module imports numba and compiles, or loads from the on-disk cache, one function. See `text_sentences` for the
function to call, and `sentences` for the rule.
"""

from __future__ import annotations

from typing import Any

from curator_df.kernels.compiling.compiled import kernel, types
from curator_df.kernels.metrics.lines.sentences import text_sentence_count
from curator_df.kernels.metrics.words.word_counts import SPAN


@kernel(types.void(*SPAN, types.int64[::1]))
def count_sentences_of_span(
    data: Any, offsets: Any, byte_classes: Any, page_of: Any, pages: Any, sentences: Any
) -> None:
    """Write the number of sentences of each text: 0 for a text without words."""
    classes = (byte_classes, page_of, pages)
    for row in range(len(sentences)):
        sentences[row] = text_sentence_count(data, offsets[row], offsets[row + 1], classes)
