# SPDX-License-Identifier: Apache-2.0
"""The constants of the DCLM profiles, and metrics and verdicts worked out by hand."""

import math

import pandas as pd
import pytest

from curator_df.errors import ParameterError
from curator_df.kernels.metrics.measure import measure
from curator_df.ops.filters.profile import add_profile_block
from curator_df.profiles import DCLM_QUALITY, DCLM_REPETITION
from tests.kernels.plain_dclm_metrics import spoken_words

PROSE = [f"The {word} of it came with a letter and went" for word in ("first", "second", "third", "fourth", "fifth")]


def measured(text, metric):
    [span] = measure(pd.Series([text], dtype="string[pyarrow]"), [metric])
    return span.values[metric][0].item()


def reason_of(text, profile):
    block = pd.DataFrame({"text": pd.array([text], "string[pyarrow]")})
    reason = add_profile_block(block, profile=profile, text="text", reason="reason", add_metrics=False)["reason"].iloc[
        0
    ]
    return None if pd.isna(reason) else reason


def test_the_quality_filters_are_those_of_the_configuration_in_its_order():
    assert [(rule.metric, rule.comparison, rule.threshold) for rule in DCLM_QUALITY.rules] == [
        ("dclm_word_count", ">=", 50),
        ("dclm_word_count", "<=", 100_000),
        ("mean_word_length", ">=", 3),
        ("mean_word_length", "<=", 10),
        ("dclm_symbol_word_ratio", "<=", 0.1),
        ("dclm_bullet_line_ratio", "<=", 0.9),
        ("dclm_ellipsis_line_ratio", "<=", 0.3),
        ("alpha_word_ratio", ">=", 0.8),
        ("dclm_stop_word_count", ">=", 2),
    ]


def test_the_repetition_filters_are_in_the_order_of_the_code():
    assert [(rule.metric, rule.threshold) for rule in DCLM_REPETITION.rules] == [
        ("dclm_repeated_line_ratio", 0.3),
        ("dclm_repeated_paragraph_ratio", 0.3),
        ("dclm_repeated_line_character_ratio", 0.2),
        ("dclm_repeated_paragraph_character_ratio", 0.2),
        ("dclm_top_2_gram_character_ratio", 0.2),
        ("dclm_top_3_gram_character_ratio", 0.18),
        ("dclm_top_4_gram_character_ratio", 0.16),
        ("dclm_repeated_5_gram_character_ratio", 0.15),
        ("dclm_repeated_6_gram_character_ratio", 0.14),
        ("dclm_repeated_7_gram_character_ratio", 0.13),
        ("dclm_repeated_8_gram_character_ratio", 0.12),
        ("dclm_repeated_9_gram_character_ratio", 0.11),
        ("dclm_repeated_10_gram_character_ratio", 0.1),
    ]
    assert {rule.comparison for rule in DCLM_REPETITION.rules} == {"<="}


@pytest.mark.parametrize(
    ("metric", "text", "value"),
    [
        ("dclm_repeated_line_ratio", "Hello, World.\nHello, World.\n\nHello", 2 / 3),
        ("dclm_repeated_line_character_ratio", "Hello, World.\nHello, World.\n\nHello", 26 / 31),
        ("dclm_repeated_line_ratio", "one\n \n", 0),
        ("dclm_repeated_line_ratio", " \n\t", 1),
        ("dclm_repeated_line_ratio", " a\r\n\u3000a\nab", 2 / 3),
        # The third line feed is the white space of the second paragraph.
        ("dclm_repeated_paragraph_ratio", "a\n\n\na \n\na\nb", 2 / 3),
        ("dclm_repeated_paragraph_character_ratio", "é\n\né\n\nabc", 2 / 5),
        ("dclm_word_count", "a\xa0b c\0d \u3000e (f) 'g' 7", 4),
        ("dclm_symbol_word_ratio", "a # .... . . . . . . … #", 6 / 11),
        ("dclm_symbol_word_ratio", " ", 1),
        ("dclm_bullet_line_ratio", "- a\n \u2022b\n\n*\n● c\n– d", 4 / 5),
        ("dclm_ellipsis_line_ratio", "a... \nb . . .\n…\n..\n. ..", 3 / 5),
        ("dclm_stop_word_count", "The THAT the, of\u3000With be-", 4),
        # "ab cd" and "cd ab" occur twice: both are of four characters.
        ("dclm_top_2_gram_character_ratio", "ab, cd; ab (cd) ab x", 8 / 11),
        # The longer one of two that are as frequent.
        ("dclm_top_2_gram_character_ratio", "a b. a b! long words: long words", 18 / 22),
        ("dclm_top_3_gram_character_ratio", "a b c d e f", 0),
        # Words 1 to 7 are in a 5-gram that occurs twice, and 8 to 14, but not the last one.
        ("dclm_repeated_5_gram_character_ratio", "a b c d e f g a b c d e f g h", 14 / 15),
        ("dclm_repeated_6_gram_character_ratio", "ab, cd. ef gh ij", 0),
    ],
)
def test_metric_of_a_text(metric, text, value):
    assert math.isclose(measured(text, metric), value, rel_tol=1e-15)


def test_words_of_unicode_go_on_over_marks_and_stop_at_others():
    text = "can't don’t e.g. 3.14 1,5 a,b x_y _z שׁ״ה アイ漢字 a\u0308\xad\u200d❤ b ²5"
    assert spoken_words(text) == [
        *("can't", "don’t", "e.g", "3.14", "1,5", "a", "b", "x_y", "שׁ״ה", "アイ", "漢", "字"),
        *("a\u0308\xad\u200d❤", "b", "²", "5"),
    ]
    # The compiled cutter: the words are of 41 code points, the longest two neighbours, can't and don’t, of ten.
    assert measured(f"{text} . {text}", "dclm_top_2_gram_character_ratio") == 20 / 82
    assert measured(f"{text} . {text}", "dclm_repeated_10_gram_character_ratio") == 1


def test_a_text_passes_or_is_dropped_by_the_first_rule_that_it_breaks():
    assert reason_of("\n".join(PROSE[1:]), DCLM_QUALITY + DCLM_REPETITION) == "page_length_min"
    long = "\n".join(f"{line} {number}th time" for number, line in enumerate(PROSE))
    assert reason_of(long, DCLM_QUALITY) is None
    assert reason_of(long.replace("\n", "...\n") + "...", DCLM_QUALITY) == "ellipsis_count"
    assert reason_of("- " + long.replace("\n", "\n- "), DCLM_QUALITY) == "bullet_count"
    assert reason_of(long + " # # # # # # #", DCLM_QUALITY) == "symbol_ratio"
    assert reason_of(long + " 12 13 14" * 7, DCLM_QUALITY) == "alphabetic_word_ratio"
    assert reason_of("word " * 60, DCLM_QUALITY) == "stop_word"
    assert reason_of("\n".join([*PROSE, PROSE[0], PROSE[0]]), DCLM_REPETITION) == "repetition_line"
    assert reason_of("word " * 60, DCLM_REPETITION) == "repetition_2_gram"


@pytest.mark.parametrize("text", ["", " \n\n\t"])
def test_a_text_without_words_is_dropped_by_the_first_filter_of_either(text):
    assert reason_of(text, DCLM_QUALITY) == "page_length_min"
    assert reason_of(text, DCLM_REPETITION) == "repetition_line"


def test_a_share_is_judged_as_a_product_would_be():
    """DCLM compares the number of lines with a share of all; both round, but never to another side of the threshold."""
    for share, parts in ((0.9, 9), (0.3, 3)):
        for tens in range(1, 20_000):
            assert (parts * tens) / (10 * tens) <= share and not parts * tens > share * (10 * tens)
            assert (parts * tens + 1) / (10 * tens) > share and parts * tens + 1 > share * (10 * tens)
    for fives in range(1, 20_000):
        assert fives / (5 * fives) <= 0.2 and (4 * fives) / (5 * fives) >= 0.8
        assert (fives + 1) / (5 * fives) > 0.2 and (4 * fives - 1) / (5 * fives) < 0.8


@pytest.mark.parametrize("profile", [DCLM_QUALITY, DCLM_REPETITION])
def test_its_words_are_its_own(profile):
    with pytest.raises(ParameterError, match=r"words='datatrove' cannot be used for .*dclm_"):
        profile.replace(words="datatrove")
