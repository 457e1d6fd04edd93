# SPDX-License-Identifier: Apache-2.0
"""The constants of the dolma profiles."""

import pytest

from curator_df.profiles import DOLMA_C4, DOLMA_GOPHER_V1, DOLMA_GOPHER_V2


@pytest.mark.parametrize(("profile", "prefix"), [(DOLMA_GOPHER_V1, "dolma"), (DOLMA_GOPHER_V2, "dolma_v2")])
def test_dolma_gopher_is_the_filter_of_its_mix(profile, prefix):
    assert (profile.version, profile.words) == ("1.2.1", "whitespace")
    assert [(rule.metric, rule.comparison, rule.threshold) for rule in profile.rules] == [
        ("word_count", ">=", 50),
        ("word_count", "<=", 100_000),
        ("median_word_length", ">=", 3),
        ("median_word_length", "<=", 10),
        ("dolma_symbol_word_ratio", "<=", 0.1),
        ("alpha_word_ratio", ">=", 0.8),
        ("stop_word_occurrences", ">=", 2),
        (f"{prefix}_bullet_line_ratio", "<=", 0.9),
        (f"{prefix}_ellipsis_line_ratio", "<=", 0.3),
        (f"{prefix}_repeated_line_ratio", "<=", 0.3),
        ("dolma_repeated_line_character_ratio", "<=", 0.3),
        ("dolma_top_2_gram_character_ratio", "<=", 0.2),
        ("dolma_top_3_gram_character_ratio", "<=", 0.18),
        ("dolma_top_4_gram_character_ratio", "<=", 0.16),
        ("dolma_repeated_5_gram_character_ratio", "<=", 0.15),
        ("dolma_repeated_6_gram_character_ratio", "<=", 0.14),
        ("dolma_repeated_7_gram_character_ratio", "<=", 0.13),
        ("dolma_repeated_8_gram_character_ratio", "<=", 0.12),
        ("dolma_repeated_9_gram_character_ratio", "<=", 0.11),
        ("dolma_repeated_10_gram_character_ratio", "<=", 0.1),
    ]
    assert all(": excludes " in rule.source for rule in profile.rules)


def test_what_the_mix_did_is_one_replace_away():
    as_it_ran = DOLMA_GOPHER_V1.replace(most_common_2gram=None, most_common_3gram=None, most_common_4gram=None)
    assert len(as_it_ran.rules) == len(DOLMA_GOPHER_V1.rules) - 3


def test_dolma_c4_drops_whole_texts():
    assert [(rule.metric, rule.comparison, rule.threshold, rule.reason) for rule in DOLMA_C4.rules] == [
        ("has_curly_bracket", "<", 1, "has_curly_brace"),
        ("has_lorem_ipsum", "<", 1, "has_lorem_ipsum"),
        ("has_javascript", "<", 1, "has_javascript"),
    ]
