# SPDX-License-Identifier: Apache-2.0
"""The constants of the Gopher profiles, held to the published tables."""

from curator_df.profiles import DATATROVE_GOPHER_QUALITY, DATATROVE_GOPHER_REPETITION


def test_datatrove_gopher_quality_is_the_table_of_0_10_0():
    assert (DATATROVE_GOPHER_QUALITY.version, DATATROVE_GOPHER_QUALITY.words) == ("0.10.0", "datatrove")
    assert [(rule.metric, rule.comparison, rule.threshold, rule.reason) for rule in DATATROVE_GOPHER_QUALITY.rules] == [
        ("non_symbol_word_count", ">=", 50, "gopher_short_doc"),
        ("non_symbol_word_count", "<=", 100_000, "gopher_long_doc"),
        ("non_symbol_word_mean_length", ">=", 3, "gopher_below_avg_threshold"),
        ("non_symbol_word_mean_length", "<=", 10, "gopher_above_avg_threshold"),
        ("hash_ratio", "<=", 0.1, "gopher_too_many_hashes"),
        ("ellipsis_ratio", "<=", 0.1, "gopher_too_many_ellipsis"),
        ("bullet_line_ratio", "<=", 0.9, "gopher_too_many_bullets"),
        ("ellipsis_line_ratio", "<=", 0.3, "gopher_too_many_end_ellipsis"),
        ("alpha_word_ratio", ">=", 0.8, "gopher_below_alpha_threshold"),
        ("stop_word_count", ">=", 2, "gopher_enough_stop_words"),
    ]


def test_every_threshold_names_its_source():
    assert all("GopherQualityFilter: m" in rule.source for rule in DATATROVE_GOPHER_QUALITY.rules)


def test_datatrove_gopher_repetition_is_the_table_of_0_10_0():
    assert (DATATROVE_GOPHER_REPETITION.version, DATATROVE_GOPHER_REPETITION.words) == ("0.10.0", "datatrove")
    assert {rule.comparison for rule in DATATROVE_GOPHER_REPETITION.rules} == {"<="}
    assert [(rule.metric, rule.threshold, rule.reason) for rule in DATATROVE_GOPHER_REPETITION.rules] == [
        ("duplicate_paragraph_ratio", 0.3, "dup_para_frac"),
        ("duplicate_paragraph_character_ratio", 0.2, "dup_para_char_frac"),
        ("duplicate_line_ratio", 0.3, "dup_line_frac"),
        ("duplicate_line_character_ratio", 0.2, "dup_line_char_frac"),
        ("top_2_gram_character_ratio", 0.2, "top_2_gram"),
        ("top_3_gram_character_ratio", 0.18, "top_3_gram"),
        ("top_4_gram_character_ratio", 0.16, "top_4_gram"),
        ("repeated_5_gram_character_ratio", 0.15, "duplicated_5_n_grams"),
        ("repeated_6_gram_character_ratio", 0.14, "duplicated_6_n_grams"),
        ("repeated_7_gram_character_ratio", 0.13, "duplicated_7_n_grams"),
        ("repeated_8_gram_character_ratio", 0.12, "duplicated_8_n_grams"),
        ("repeated_9_gram_character_ratio", 0.11, "duplicated_9_n_grams"),
        ("repeated_10_gram_character_ratio", 0.1, "duplicated_10_n_grams"),
    ]
    assert all("GopherRepetitionFilter: " in rule.source for rule in DATATROVE_GOPHER_REPETITION.rules)
