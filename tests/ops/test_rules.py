# SPDX-License-Identifier: Apache-2.0
"""Rules and profiles as values."""

import pickle

import numpy as np
import pytest

from curator_df.errors import ParameterError
from curator_df.ops.filters.rules import Profile, Rule
from curator_df.profiles import DATATROVE_GOPHER_QUALITY as GOPHER

SHORT = Rule("word_count", ">=", 3, "too_short")
LONG = Rule("word_count", "<=", 9, "too_long")
OURS = Profile("ours", "1", "example", (SHORT, LONG))


@pytest.mark.parametrize(
    ("keep", "broken"),
    [
        (">=", [True, False, False]),
        ("<=", [False, False, True]),
        (">", [True, True, False]),
        ("<", [False, True, True]),
    ],
)
def test_breaks_is_the_opposite_of_keep(keep, broken):
    assert Rule("word_count", keep, 2, "x").breaks(np.array([1, 2, 3])).tolist() == broken


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("words", ">=", 1, "x"), "unknown metric 'words'. Did you mean 'word_count'"),
        (("word_count", "=>", 1, "x"), "comparison='=>' is not one of '>=', '<=', '>', '<'"),
        (("word_count", ">=", float("nan"), "x"), "threshold=nan must be a finite number"),
        (("word_count", ">=", 1, ""), "reason='' is empty or a name that curator_df itself uses"),
        (
            ("word_count", ">=", 1, "missing_text"),
            "reason='missing_text' is empty or a name that curator_df itself uses",
        ),
    ],
)
def test_wrong_rules_are_refused(arguments, message):
    with pytest.raises(ParameterError, match=message):
        Rule(*arguments)


def test_profiles_refuse_equal_reasons_and_unknown_words():
    with pytest.raises(ParameterError, match="more than one rule for 'too_short'"):
        Profile("ours", "1", "example", (SHORT, SHORT))
    with pytest.raises(ParameterError, match="words='spacy' is not one of 'whitespace'"):
        Profile("ours", "1", "example", (SHORT,), words="spacy")


def test_replace_by_reason_or_metric_and_none_takes_out():
    changed = GOPHER.replace(gopher_short_doc=20, hash_ratio=0.2, gopher_long_doc=None)
    assert changed.rules[0] == Rule("non_symbol_word_count", ">=", 20, "gopher_short_doc")
    assert "gopher_long_doc" not in changed.reasons and len(changed.rules) == len(GOPHER.rules) - 1
    assert {rule.reason: rule.threshold for rule in changed.rules}["gopher_too_many_hashes"] == 0.2
    assert (changed.version, changed.replace(hash_ratio=1).version) == ("0.10.0+modified", "0.10.0+modified")
    assert GOPHER.rules[0].threshold == 50


def test_replace_lists_the_names_there_are():
    with pytest.raises(
        ParameterError, match=r"'ours' has no rule 'x'\. Its rules are: too_short \(word_count >= 3\), too_long"
    ):
        OURS.replace(x=1)
    with pytest.raises(ParameterError, match=r"several rules on 'word_count', .*, one of: too_short, too_long"):
        OURS.replace(word_count=1)


def test_profiles_add_up_in_order():
    both = Profile("a", "1", "s", (SHORT,)) + Profile("b", "2", "t", (LONG,))
    assert (both.name, both.version, both.rules) == ("a + b", "1 + 2", (SHORT, LONG))
    assert (Profile("a", "1", "s", (SHORT,)) + LONG).rules == (SHORT, LONG)
    assert OURS.metrics == ("word_count",)
    with pytest.raises(TypeError):
        OURS + 1


def test_profiles_are_plain_values():
    assert pickle.loads(pickle.dumps(GOPHER)) == GOPHER
    assert hash(GOPHER) == hash(pickle.loads(pickle.dumps(GOPHER)))
