# SPDX-License-Identifier: Apache-2.0
"""The constants of the Gopher profiles, held to the published tables."""

from curator_df.profiles import DATATROVE_GOPHER_QUALITY


def test_datatrove_gopher_quality_is_the_table_of_0_10_0():
    assert (DATATROVE_GOPHER_QUALITY.version, DATATROVE_GOPHER_QUALITY.words) == ("0.10.0", "whitespace")
    assert [(rule.metric, rule.keep, rule.threshold, rule.reason) for rule in DATATROVE_GOPHER_QUALITY.rules] == [
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
