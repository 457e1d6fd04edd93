# SPDX-License-Identifier: Apache-2.0
"""Document filters of DCLM-Baseline (Li et al. 2024), in the order of its own configuration.

The two profiles are consecutive in DCLM: ``DCLM_QUALITY + DCLM_REPETITION`` gives the chain's verdicts. Reasons are the names
of the filters. The steps before and after them (URLs, languages, lines, the quality model) are described in docs/profiles.md.
"""

from __future__ import annotations

from curator_df.ops.filters.rules import Comparison, Profile, Rule

_CHAIN = "DCLM (mlfoundations/dclm, commit 8383011), baselines/baselines_configs/dclm_baseline_refinedweb.yaml"
_FILTERS = "baselines/mappers/filters/content_filters.py, commit c7ed275"
_PAPER = "https://arxiv.org/abs/2406.11794"
_COMMIT = "c7ed275"


def _rule(metric: str, comparison: Comparison, threshold: float, reason: str, filter_and_argument: str) -> Rule:
    return Rule(metric, comparison, threshold, reason, f"{_CHAIN}: {filter_and_argument}")


DCLM_QUALITY = Profile(
    name="dclm_quality",
    version=_COMMIT,
    source=f"{_CHAIN}; {_FILTERS}; {_PAPER}",
    rules=(
        _rule("dclm_word_count", ">=", 50, "page_length_min", "page_length_filter: min_length=50"),
        _rule("dclm_word_count", "<=", 100_000, "page_length_max", "page_length_filter: max_length=100000"),
        _rule("mean_word_length", ">=", 3, "word_length_min", "word_length_filter: min_length=3"),
        _rule("mean_word_length", "<=", 10, "word_length_max", "word_length_filter: max_length=10"),
        _rule("dclm_symbol_word_ratio", "<=", 0.1, "symbol_ratio", "symbol_ratio_filter: max_symbol_to_word_ratio=0.1"),
        _rule("dclm_bullet_line_ratio", "<=", 0.9, "bullet_count", "bullet_count_filter: max_bullet_start_ratio=0.9"),
        _rule(
            "dclm_ellipsis_line_ratio",
            "<=",
            0.3,
            "ellipsis_count",
            "ellipsis_count_filter: max_ellipsis_end_ratio=0.3",
        ),
        # DCLM: at most 0.2 of the words without a letter.
        _rule("alpha_word_ratio", ">=", 0.8, "alphabetic_word_ratio", "alphabetic_word_ratio_filter: max_ratio=0.2"),
        _rule("dclm_stop_word_count", ">=", 2, "stop_word", "stop_word_filter: min_stop_word=2, count_unique=False"),
    ),
)


def _at_most(metric: str, threshold: float, reason: str, granularity: str) -> Rule:
    source = f"massive_web_repetition_filters ({_FILTERS}): {granularity}, max_fraction={threshold:g}"
    return _rule(f"dclm_{metric}", "<=", threshold, f"repetition_{reason}", source)


DCLM_REPETITION = Profile(
    name="dclm_repetition",
    version=_COMMIT,
    source=f"{_CHAIN}; {_FILTERS}; {_PAPER}",
    rules=(
        _at_most("repeated_line_ratio", 0.3, "line", "line, count_characters=False"),
        _at_most("repeated_paragraph_ratio", 0.3, "paragraph", "paragraph, count_characters=False"),
        _at_most("repeated_line_character_ratio", 0.2, "line_characters", "line"),
        _at_most("repeated_paragraph_character_ratio", 0.2, "paragraph_characters", "paragraph"),
        *(
            _at_most(f"top_{n}_gram_character_ratio", threshold, f"{n}_gram", f"{n}")
            for n, threshold in ((2, 0.2), (3, 0.18), (4, 0.16))
        ),
        *(
            _at_most(f"repeated_{n}_gram_character_ratio", threshold, f"{n}_gram", f"{n}")
            for n, threshold in ((5, 0.15), (6, 0.14), (7, 0.13), (8, 0.12), (9, 0.11), (10, 0.1))
        ),
    ),
)
