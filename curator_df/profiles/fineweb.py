# SPDX-License-Identifier: Apache-2.0
"""FineWeb's own rules (Penedo et al. 2024): line ends, short lines and repeated lines.

The paper removes texts with at least a tenth of the characters in duplicated lines; the code that made the data
set does so from a hundredth on. `DATATROVE_FINEWEB` is the code; `FINEWEB_PAPER` differs only in that rule. Both count
words as datatrove does; ``words="whitespace"`` is faster and changes ``list_ratio`` alone.
"""

from __future__ import annotations

from dataclasses import replace

from curator_df.ops.filters.rules import Comparison, Profile, Rule

_PAPER = "https://arxiv.org/abs/2406.17557, section 3.6"
_CODE = "datatrove 0.10.0, pipeline/filters/fineweb_quality_filter.py, FineWebQualityFilter"


def _rule(metric: str, comparison: Comparison, threshold: float, reason: str, argument: str) -> Rule:
    return Rule(metric, comparison, threshold, reason, f"{_CODE}: {argument}")


# Thresholds: the defaults of FineWebQualityFilter.__init__. A text at the threshold is kept, as in datatrove.
DATATROVE_FINEWEB = Profile(
    name="datatrove_fineweb",
    version="0.10.0",
    source=f"{_CODE}; {_PAPER}",
    rules=(
        _rule("filled_line_count", ">=", 1, "empty", "a text without lines"),
        _rule("terminal_line_ratio", ">=", 0.12, "line_punct_ratio", "line_punct_thr=0.12"),
        _rule("short_line_ratio", "<=", 0.67, "short_line_ratio", "short_line_thr=0.67"),
        _rule("duplicate_filled_line_character_ratio", "<=", 0.01, "char_dup_ratio", "char_duplicates_ratio=0.01"),
        _rule("line_feed_word_ratio", "<=", 0.3, "list_ratio", "new_line_ratio=0.3"),
    ),
    words="datatrove",
)

_PAPER_RULE = Rule(
    "duplicate_filled_line_character_ratio",
    "<",
    0.1,
    "char_dup_ratio",
    f"{_PAPER}: the fraction of characters in duplicated lines is >= 0.1",
)

FINEWEB_PAPER = replace(
    DATATROVE_FINEWEB,
    name="fineweb_paper",
    version="2024",
    source=f"{_PAPER}; {_CODE}",
    rules=tuple(_PAPER_RULE if rule.reason == _PAPER_RULE.reason else rule for rule in DATATROVE_FINEWEB.rules),
)
