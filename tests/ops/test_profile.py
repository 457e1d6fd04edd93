# SPDX-License-Identifier: Apache-2.0
"""`keep_profile` and `add_profile`."""

import dask.dataframe as dd
import pandas as pd
import pytest

import curator_df as cdf
from curator_df.errors import ColumnError, CuratorError, ParameterError, SchemaError
from curator_df.ops.filters.profile import add_profile, add_profile_block, keep_profile, keep_profile_block
from curator_df.ops.filters.rules import Profile, Rule
from tests.contracts.operator_cases import fingerprints_of, kernels_of

OURS = Profile(
    "ours",
    "1",
    "example",
    (Rule("word_count", ">=", 2, "too_short"), Rule("hash_ratio", "<=", 0.5, "too_many_hashes")),
)
TEXTS = ["good text", "short", None, "# a # #", "", "漢字 です", "#"]
REASONS = [None, "too_short", "missing_text", "too_many_hashes", "too_short", None, "too_short"]
BLOCK = pd.DataFrame({"id": range(7), "text": pd.array(TEXTS, "string[pyarrow]")}, index=range(10, 80, 10))


def plain(values):
    return [None if value is pd.NA else value for value in values]


@pytest.fixture(params=["one", "three", "one empty"])
def docs(request):
    if request.param == "one empty":
        return dd.from_delayed([_piece(0, 3), _piece(3, 3), _piece(3, 7)], meta=BLOCK.iloc[:0], verify_meta=False)
    return dd.from_pandas(BLOCK, npartitions=1 if request.param == "one" else 3)


def _piece(start, stop):
    import dask

    return dask.delayed(BLOCK.iloc[start:stop])


def test_keep_profile_keeps_rows_and_order(docs):
    kept = docs.pipe(keep_profile, OURS).compute()
    pd.testing.assert_frame_equal(kept, BLOCK.loc[[10, 60]])


def test_keep_profile_adds_metrics(docs):
    lazy = docs.pipe(keep_profile, OURS, add_metrics=True)
    kept = lazy.compute()
    assert kept.dtypes.equals(lazy.dtypes)
    assert kept["word_count"].to_dict() == {10: 2, 60: 2}
    assert kept["hash_ratio"].to_dict() == {10: 0.0, 60: 0.0}


def test_add_profile_keeps_rows_and_says_why(docs):
    lazy = docs.pipe(add_profile, OURS)
    added = lazy.compute()
    pd.testing.assert_frame_equal(added[["id", "text"]], BLOCK)
    assert plain(added["reason"]) == REASONS
    assert plain(added["word_count"]) == [2, 1, None, 4, 0, 2, 1]
    assert plain(added["hash_ratio"]) == [0, 0, None, 0.75, 0, 0, 1]
    assert added.dtypes.equals(lazy.dtypes)


def test_add_profile_without_metrics():
    docs = dd.from_pandas(BLOCK, npartitions=1)
    assert list(docs.pipe(add_profile, OURS, into="why", add_metrics=False).columns) == ["id", "text", "why"]


def test_drops_are_counted_by_first_broken_rule_and_rejects_say_why():
    outcome = keep_profile_block(BLOCK, profile=OURS, text="text", add_metrics=False)
    assert outcome.dropped == {"too_short": 3, "too_many_hashes": 1, "missing_text": 1}
    removed, why = outcome.rejects()
    pd.testing.assert_frame_equal(removed, BLOCK.loc[[20, 30, 40, 50, 70]])
    assert plain(why["reason"]) == [reason for reason in REASONS if reason]
    assert plain(why["rule"]) == ["word_count >= 2", None, "hash_ratio <= 0.5", "word_count >= 2", "word_count >= 2"]
    assert [f"{value:g}" for value in why["value"]] == ["1", "nan", "0.75", "0", "1"]
    assert [f"{value:g}" for value in why["threshold"]] == ["2", "nan", "0.5", "2", "2"]


def test_empty_blocks_and_profiles_without_rules():
    empty = BLOCK.iloc[:0]
    assert len(keep_profile_block(empty, profile=OURS, text="text", add_metrics=True).block) == 0
    assert list(add_profile_block(empty, profile=OURS, text="text", reason="reason", add_metrics=True).columns) == [
        "id", "text", "reason", "word_count", "hash_ratio",
    ]  # fmt: skip
    outcome = keep_profile_block(BLOCK, profile=Profile("none", "1", "example", ()), text="text", add_metrics=True)
    assert outcome.dropped == {"missing_text": 1}


def test_the_block_is_not_modified_and_passes_whole_when_all_rows_pass():
    before = BLOCK.copy(deep=True)
    keep_profile_block(BLOCK, profile=OURS, text="text", add_metrics=True)
    add_profile_block(BLOCK, profile=OURS, text="text", reason="reason", add_metrics=True)
    pd.testing.assert_frame_equal(BLOCK, before)
    good = BLOCK.loc[[10, 60]]
    assert keep_profile_block(good, profile=OURS, text="text", add_metrics=False).block is good


def test_metrics_columns_do_not_share_their_masks():
    kept = keep_profile_block(BLOCK, profile=OURS, text="text", add_metrics=True).block
    kept.loc[10, "word_count"] = pd.NA
    assert kept["hash_ratio"].notna().all()


def test_wrong_arguments_are_refused_when_the_operator_is_called():
    docs = dd.from_pandas(BLOCK, npartitions=1)
    with pytest.raises(ColumnError, match="keep_profile needs the column 'body'; the table has: 'id', 'text'"):
        docs.pipe(keep_profile, OURS, text="body")
    with pytest.raises(SchemaError, match="keep_profile needs text in the column 'id', which holds int64"):
        docs.pipe(keep_profile, OURS, text="id")
    with pytest.raises(
        ParameterError,
        match=r"add_profile: profile='gopher' is neither .* Did you mean 'datatrove_gopher",
    ):
        docs.pipe(add_profile, "gopher")
    with pytest.raises(ParameterError, match="into='word_count' is also the name of a metric column"):
        docs.pipe(add_profile, OURS, into="word_count")
    clashing = dd.from_pandas(BLOCK.assign(word_count=1, reason="x"), npartitions=1)
    with pytest.raises(ColumnError, match="keep_profile would overwrite 'word_count'"):
        clashing.pipe(keep_profile, OURS, add_metrics=True)
    with pytest.raises(ColumnError, match="add_profile would overwrite 'reason'"):
        clashing.pipe(add_profile, OURS)


BY_LANGUAGE = {
    "de": Profile("de", "1", "example", (Rule("word_count", ">=", 3, "too_short"),)),
    "en": Profile(
        "en", "1", "example", (Rule("word_count", ">=", 2, "too_short"), Rule("hash_ratio", "<=", 0.1, "hashes"))
    ),
}


def languages(npartitions=2):
    rows = [
        ("one two", "de"),
        ("one two three", "de"),
        ("one two", "en"),
        ("# # #", "en"),
        (None, "en"),
        ("one two three four", "fr"),
        ("one", None),
        ("", "de"),
    ]
    made = pd.DataFrame(rows, columns=["text", "language"]).astype(
        {"text": "string[pyarrow]", "language": "string[pyarrow]"}
    )
    return dd.from_pandas(made, npartitions=npartitions)


@pytest.mark.parametrize("npartitions", [1, 3])
def test_the_profile_of_a_row_is_that_of_its_value(npartitions):
    df = languages(npartitions)
    kept = df.pipe(cdf.keep_profile, BY_LANGUAGE, by="language").compute()
    assert kept["text"].tolist() == ["one two three", "one two"]
    alone = [
        df[df["language"] == value].pipe(cdf.keep_profile, profile).compute() for value, profile in BY_LANGUAGE.items()
    ]
    pd.testing.assert_frame_equal(kept, pd.concat(alone).sort_index())


def test_the_reason_of_a_row_without_a_profile_is_its_own():
    rows = languages().pipe(cdf.add_profile, BY_LANGUAGE, by="language").compute()
    assert [None if pd.isna(reason) else reason for reason in rows["reason"]] == [
        "too_short",
        None,
        None,
        "hashes",
        "missing_text",
        "no_profile",
        "no_profile",
        "too_short",
    ]
    assert rows["word_count"].isna().tolist() == [False, False, False, False, True, True, True, False]
    assert rows["hash_ratio"].isna().tolist() == [True, True, False, False, True, True, True, True]
    assert str(rows.dtypes["word_count"]) == "Int64"


def test_a_profile_under_none_is_for_all_other_values():
    longer = Profile("other", "1", "example", (Rule("word_count", ">=", 4, "too_short_elsewhere"),))
    rows = languages().pipe(cdf.add_profile, {**BY_LANGUAGE, None: longer}, by="language").compute()
    assert rows["reason"].iloc[[5, 6]].fillna("").tolist() == ["", "too_short_elsewhere"]


def test_counts_and_rejects_are_by_reason():
    block = languages(1).compute()
    [kernel] = kernels_of(languages(1).pipe(cdf.keep_profile, BY_LANGUAGE, by="language"))
    outcome = kernel.run(block)
    assert outcome.dropped == {"too_short": 2, "hashes": 1, "missing_text": 1, "no_profile": 2}
    _, said = outcome.rejects()
    assert said["value"][0] == 2 and said["threshold"][0] == 3
    assert [None if pd.isna(rule) else rule for rule in said["rule"]][1:4] == ["hash_ratio <= 0.1", None, None]


@pytest.mark.parametrize("drop_text", [False, True])
def test_a_row_with_a_text_that_lacks_a_stored_metric_is_not_called_one_without_text(drop_text):
    # The metrics of each row are those of its own profile, so that rows in French have no share of hashes.
    measured = languages().pipe(cdf.add_profile, BY_LANGUAGE, by="language").drop(columns="reason")
    if drop_text:
        measured = measured.drop(columns="text")
    both = Profile(
        "both", "1", "example", (Rule("word_count", ">=", 1, "short"), Rule("hash_ratio", "<=", 0.1, "hashes"))
    )
    reasons = measured.pipe(cdf.add_profile, both, from_metrics=True).compute()["reason"]
    without_any = "missing_text" if drop_text else "missing_metric"
    expected = [
        "missing_metric",
        "missing_metric",
        None,
        "hashes",
        "missing_text",
        without_any,
        without_any,
        "missing_metric",
    ]
    assert [None if pd.isna(reason) else reason for reason in reasons] == expected
    counted = cdf.describe_drops(measured, both, from_metrics=True).set_index("reason")["rows_dropped"]
    assert counted["missing_metric"] == expected.count("missing_metric")


@pytest.mark.parametrize("drop_text", [False, True])
def test_a_row_with_the_metrics_of_another_profile_has_a_text(drop_text):
    hashes = Profile("hashes", "1", "example", (Rule("hash_ratio", "<=", 0.5, "hashes"),))
    words = Profile("words", "1", "example", (Rule("word_count", ">=", 2, "short"),))
    rows = pd.DataFrame({"text": ["a b", "a # b", None], "language": ["en", "de", "en"]})
    measured = dd.from_pandas(rows, npartitions=1).pipe(cdf.add_profile, {"en": words, "de": hashes}, by="language")
    measured = measured.drop(columns=["reason", *(["text"] if drop_text else [])])
    for profile, by in ((words, {}), ({None: words}, {"by": "language"})):
        reasons = measured.pipe(cdf.add_profile, profile, from_metrics=True, **by).compute()["reason"]
        assert reasons.tolist() == [pd.NA, "missing_metric", "missing_text"]
        kernel = measured.pipe(cdf.keep_profile, profile, from_metrics=True, **by).expr.operand("func")
        assert dict(kernel.run(measured.compute()).dropped) == {"missing_metric": 1, "missing_text": 1}


def test_stored_metrics_are_judged_by_the_profile_of_the_row():
    measured = languages().pipe(cdf.add_metrics, ["word_count", "hash_ratio"])
    kept = measured.pipe(cdf.keep_profile, BY_LANGUAGE, by="language", from_metrics=True).compute()
    assert kept["text"].tolist() == ["one two three", "one two"]


def test_the_column_is_part_of_the_program():
    df = languages().assign(other="de")
    one, two = (df.pipe(cdf.keep_profile, BY_LANGUAGE, by=name) for name in ("language", "other"))
    assert fingerprints_of(one) != fingerprints_of(two)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"profile": BY_LANGUAGE["de"], "by": "language"}, "or leave out by= to use one profile for all rows"),
        ({"profile": BY_LANGUAGE}, "by= does not name the column"),
        ({"profile": BY_LANGUAGE["de"], "by": "language"}, "needs a dict of a profile for each value"),
        ({"profile": {}, "by": "language"}, "the dict of profiles is empty"),
        ({"profile": {5: BY_LANGUAGE["de"]}, "by": "language"}, "key 5 of the profiles is of the type int"),
        ({"profile": {"de": "gopher"}, "by": "language"}, "neither a Profile nor the name"),
        ({"profile": BY_LANGUAGE, "by": "langauge"}, "Did you mean 'language'"),
    ],
)
def test_a_mapping_and_a_column_belong_together(arguments, said):
    for operator in (cdf.keep_profile, cdf.add_profile):
        with pytest.raises(CuratorError, match=said):
            languages().pipe(operator, **arguments)
