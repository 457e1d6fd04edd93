# SPDX-License-Identifier: Apache-2.0
"""The constants of the C4 profiles."""

import pytest

from curator_df.profiles import DATATROVE_C4, FINEWEB_C4


@pytest.mark.parametrize(("profile", "prefix"), [(DATATROVE_C4, "c4"), (FINEWEB_C4, "c4_unpunctuated")])
def test_c4_is_the_table_of_0_10_0(profile, prefix):
    assert (profile.version, profile.words) == ("0.10.0", "datatrove")
    assert [(rule.metric, rule.comparison, rule.threshold, rule.reason) for rule in profile.rules] == [
        (f"{prefix}_lorem_ipsum", "<", 1, "lorem_ipsum"),
        (f"{prefix}_curly_bracket", "<", 1, "curly_bracket"),
        (f"{prefix}_sentence_count", ">=", 5, "too_few_sentences"),
    ]
    assert all("C4QualityFilter: " in rule.source for rule in profile.rules)
