# SPDX-License-Identifier: Apache-2.0
"""The constants of the NeMo profiles."""

from curator_df.profiles import NEMO_CODE, NEMO_CODE_COMMENTS, NEMO_CODE_HTML, NEMO_CODE_TOKENS, NEMO_ENGLISH


def table(profile):
    return [(rule.metric, rule.comparison, rule.threshold, rule.reason) for rule in profile.rules]


def test_nemo_english_is_the_chain_of_0_9_0():
    assert (NEMO_ENGLISH.version, NEMO_ENGLISH.words) == ("0.9.0", "whitespace")
    assert table(NEMO_ENGLISH) == [
        ("non_alphanumeric_ratio", "<=", 0.25, "alpha_numeric"),
        ("nemo_symbol_word_ratio", "<=", 0.1, "symbol_to_word"),
        ("digit_ratio", "<=", 0.15, "numbers_ratio"),
        ("url_character_ratio", "<=", 0.2, "urls_ratio"),
        ("white_space_ratio", "<=", 0.25, "white_space"),
        ("parenthesis_ratio", "<=", 0.1, "parentheses_ratio"),
        ("boilerplate_paragraph_ratio", "<=", 0.4, "boilerplate_string_ratio"),
        ("unique_line_ratio", ">=", 0.7, "repeated_lines"),
        ("unique_paragraph_ratio", ">=", 0.7, "repeated_paragraphs"),
        ("unique_line_character_ratio", ">=", 0.8, "repeated_lines_char"),
        ("unique_paragraph_character_ratio", ">=", 0.8, "repeated_paragraphs_char"),
        ("word_count", ">=", 50, "word_count_min"),
        ("word_count", "<=", 100_000, "word_count_max"),
        ("unpunctuated_line_ratio", "<=", 0.85, "punctuation"),
        ("alphabetic_word_ratio", ">=", 0.8, "words_without_alphabets"),
        ("stop_word_occurrences", ">=", 2, "common_english_words"),
        ("mean_word_length", ">=", 3, "mean_word_length_min"),
        ("mean_word_length", "<=", 10, "mean_word_length_max"),
        ("longest_word_length", "<=", 1000, "max_word_length"),
        ("nemo_ellipsis_line_ratio", "<=", 0.3, "ellipsis"),
        ("nemo_top_2_gram_character_ratio", "<=", 0.2, "repeating_top_2grams"),
        ("nemo_top_3_gram_character_ratio", "<=", 0.18, "repeating_top_3grams"),
        ("nemo_top_4_gram_character_ratio", "<=", 0.16, "repeating_top_4grams"),
        ("nemo_duplicate_5_gram_character_ratio", "<=", 0.15, "repeating_dup_5gram"),
        ("nemo_duplicate_6_gram_character_ratio", "<=", 0.14, "repeating_dup_6gram"),
        ("nemo_duplicate_7_gram_character_ratio", "<=", 0.13, "repeating_dup_7gram"),
        ("nemo_duplicate_8_gram_character_ratio", "<=", 0.12, "repeating_dup_8gram"),
        ("nemo_duplicate_9_gram_character_ratio", "<=", 0.11, "repeating_dup_9gram"),
        ("nemo_duplicate_10_gram_character_ratio", "<=", 0.1, "repeating_dup_10gram"),
        ("nemo_bullet_line_ratio", "<=", 0.9, "bullet_ratio"),
    ]
    assert all("heuristic_filter_en.yaml: " in rule.source for rule in NEMO_ENGLISH.rules)


def test_nemo_code_on_columns_is_the_rest_of_the_chain():
    assert table(NEMO_CODE_COMMENTS) == [
        ("comment_ratio", ">=", 0.001, "comment_ratio_min"),
        ("comment_ratio", "<=", 0.85, "comment_ratio_max"),
    ]
    assert table(NEMO_CODE_TOKENS) == [("characters_per_token", ">=", 2, "tokenizer_fertility")]
    for profile in (NEMO_CODE_COMMENTS, NEMO_CODE_TOKENS):
        assert all("heuristic_filter_code.yaml: " in rule.source for rule in profile.rules)
        assert profile.text_metrics == ()


def test_nemo_code_html_is_the_default_of_its_filter():
    assert table(NEMO_CODE_HTML) == [("html_text_ratio", ">=", 0.2, "html_boilerplate")]


def test_nemo_code_is_what_needs_no_parser():
    assert table(NEMO_CODE) == [
        ("line_count", ">=", 5, "num_lines_min"),
        ("line_count", "<=", 20_000, "num_lines_max"),
        ("xml_header", "<", 1, "xml_header"),
        ("alphabetic_ratio", ">=", 0.25, "alpha_filter"),
    ]
    assert all("nemo_curator 0.9.0" in rule.source for rule in NEMO_CODE.rules)
