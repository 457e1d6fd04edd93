# SPDX-License-Identifier: Apache-2.0
"""Thresholds of C4's rules for whole documents, as datatrove and FineWeb set them; `remove_c4_lines` removes lines.

C4 tests lines first and texts afterwards: these profiles choose the kept texts, and `remove_c4_lines` then removes the
other lines from them, in that order. `DATATROVE_C4` and `FINEWEB_C4` differ in one test of lines.

Sentences are counted as datatrove counts them, on spaCy's tokens. With ``words="whitespace"`` they are counted on words
between white space, which is faster; on 2,941 real documents 4 verdicts differ.
"""

from __future__ import annotations

from curator_df.ops.filters.rules import Comparison, Profile, Rule

_PAPER = "https://arxiv.org/abs/1910.10683, section 2.2"
_CODE = "datatrove 0.10.0, pipeline/filters/c4_filters.py, C4QualityFilter"
_FINEWEB = "datatrove 0.10.0, examples/fineweb.py: C4QualityFilter(filter_no_terminal_punct=False)"


def _rules(prefix: str) -> tuple[Rule, ...]:
    def rule(metric: str, comparison: Comparison, threshold: float, reason: str, argument: str) -> Rule:
        return Rule(f"{prefix}_{metric}", comparison, threshold, reason, f"{_CODE}: {argument}")

    # At most one of the first two is 1: the first line that fails a text decides.
    return (
        rule("lorem_ipsum", "<", 1, "lorem_ipsum", "filter_lorem_ipsum=True"),
        rule("curly_bracket", "<", 1, "curly_bracket", "filter_curly_bracket=True"),
        # Paper: "discarded any page with fewer than 5 sentences" (3 in later versions of the paper).
        rule("sentence_count", ">=", 5, "too_few_sentences", "min_num_sentences=5"),
    )


DATATROVE_C4 = Profile(
    name="datatrove_c4", version="0.10.0", source=f"{_CODE}; {_PAPER}", rules=_rules("c4"), words="datatrove"
)

FINEWEB_C4 = Profile(
    name="fineweb_c4",
    version="0.10.0",
    source=f"{_FINEWEB}; {_CODE}",
    rules=_rules("c4_unpunctuated"),
    words="datatrove",
)
