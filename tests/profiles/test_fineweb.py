# SPDX-License-Identifier: Apache-2.0
"""The constants of the FineWeb profiles: the code's, and the one that the paper states otherwise."""

from curator_df.profiles import DATATROVE_FINEWEB, FINEWEB_PAPER


def test_datatrove_fineweb_is_the_table_of_0_10_0():
    assert (DATATROVE_FINEWEB.version, DATATROVE_FINEWEB.words) == ("0.10.0", "datatrove")
    assert [(rule.metric, rule.comparison, rule.threshold, rule.reason) for rule in DATATROVE_FINEWEB.rules] == [
        ("filled_line_count", ">=", 1, "empty"),
        ("terminal_line_ratio", ">=", 0.12, "line_punct_ratio"),
        ("short_line_ratio", "<=", 0.67, "short_line_ratio"),
        ("duplicate_filled_line_character_ratio", "<=", 0.01, "char_dup_ratio"),
        ("line_feed_word_ratio", "<=", 0.3, "list_ratio"),
    ]
    assert all("FineWebQualityFilter: " in rule.source for rule in DATATROVE_FINEWEB.rules)


def test_the_paper_differs_in_one_rule():
    pairs = zip(DATATROVE_FINEWEB.rules, FINEWEB_PAPER.rules, strict=True)
    (differing,) = [paper for code, paper in pairs if code != paper]
    assert (differing.reason, differing.comparison, differing.threshold) == ("char_dup_ratio", "<", 0.1)
    assert "arxiv.org/abs/2406.17557" in differing.source
    assert FINEWEB_PAPER.name == "fineweb_paper"
