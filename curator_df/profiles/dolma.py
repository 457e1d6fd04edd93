# SPDX-License-Identifier: Apache-2.0
"""Rules of Gopher and C4 as dolma's taggers measure them, with the thresholds of the mixes that used them.

dolma tags texts, and a mixer drops them by expressions over the tags. Three of those use
``fraction_of_characters_in_most_common_2gram`` to ``4gram``, while the tagger writes ``2grams``: they never dropped a text.
Here they do; ``DOLMA_GOPHER_V1.replace(most_common_2gram=None, most_common_3gram=None, most_common_4gram=None)`` is what
the mix did. The two versions of the tagger differ in empty lines: the second ignores them.
"""

from __future__ import annotations

from curator_df.ops.filters.rules import Comparison, Profile, Rule

_MIX = "dolma, configs/dolma-v1_6/mixing/cc-head.yaml"
_CCCC = "dolma's mix of the Creative Commons Common Crawl (CCCC), filter over the tags of c4_v2 and gopher_v2"
_TAGGER = "dolma 1.2.1, taggers/gopher.py"


def _profile(version: str, prefix: str, mix: str) -> Profile:
    def rule(metric: str, comparison: Comparison, threshold: float, reason: str) -> Rule:
        dropped = {">=": "<", "<=": ">"}[comparison]
        return Rule(metric, comparison, threshold, reason, f"{mix}: excludes {reason} {dropped} {threshold:g}")

    return Profile(
        name=f"dolma_gopher_{version}",
        version="1.2.1",
        source=f"{mix}; {_TAGGER}, gopher_{version}",
        rules=(
            rule("word_count", ">=", 50, "word_count_min"),
            rule("word_count", "<=", 100_000, "word_count_max"),
            rule("median_word_length", ">=", 3, "median_word_length_min"),
            rule("median_word_length", "<=", 10, "median_word_length_max"),
            rule("dolma_symbol_word_ratio", "<=", 0.1, "symbol_to_word_ratio"),
            rule("alpha_word_ratio", ">=", 0.8, "fraction_of_words_with_alpha_character"),
            rule("stop_word_occurrences", ">=", 2, "required_word_count"),
            rule(f"{prefix}_bullet_line_ratio", "<=", 0.9, "fraction_of_lines_starting_with_bullet_point"),
            rule(f"{prefix}_ellipsis_line_ratio", "<=", 0.3, "fraction_of_lines_ending_with_ellipsis"),
            rule(f"{prefix}_repeated_line_ratio", "<=", 0.3, "fraction_of_duplicate_lines"),
            # Gopher's table A1 has 0.2 here.
            rule("dolma_repeated_line_character_ratio", "<=", 0.3, "fraction_of_characters_in_duplicate_lines"),
            *(
                rule(f"dolma_top_{n}_gram_character_ratio", "<=", threshold, f"most_common_{n}gram")
                for n, threshold in ((2, 0.2), (3, 0.18), (4, 0.16))
            ),
            *(
                rule(f"dolma_repeated_{n}_gram_character_ratio", "<=", threshold, f"duplicate_{n}grams")
                for n, threshold in ((5, 0.15), (6, 0.14), (7, 0.13), (8, 0.12), (9, 0.11), (10, 0.1))
            ),
        ),
    )


DOLMA_GOPHER_V1 = _profile("v1", "dolma", _MIX)
# Same thresholds as Dolma 1.6.
DOLMA_GOPHER_V2 = _profile("v2", "dolma_v2", _CCCC)

# The tagger also finds lines without punctuation, short lines, and words of a list of bad ones; this mix does not drop by those.
DOLMA_C4 = Profile(
    name="dolma_c4",
    version="1.2.1",
    source=f"{_CCCC}; dolma 1.2.1, taggers/c4.py, c4_v2",
    rules=tuple(
        Rule(f"has_{name}", "<", 1, reason, f"{_CCCC}: excludes {reason} > 0.5")
        for name, reason in (
            ("curly_bracket", "has_curly_brace"),
            ("lorem_ipsum", "has_lorem_ipsum"),
            ("javascript", "has_javascript"),
        )
    ),
)
