# SPDX-License-Identifier: Apache-2.0
"""Rejects say why each row went and, for duplicates, which row it matched."""

import json

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import curator_df as cdf
from curator_df.core.planning.lowering import lower
from curator_df.core.ranges.blocks import Outcome
from curator_df.core.ranges.rejects import reject_rows
from curator_df.models.classifiers.class_scores import ClassScores
from curator_df.models.classifiers.classification import _threshold
from tests.core.runner.fake_client import inline_cluster


@pytest.fixture(scope="module", autouse=True)
def cluster():
    with inline_cluster("2GB", 2) as running:
        yield running


def write_files(folder, texts, files):
    folder.mkdir()
    for number, part in enumerate(np.array_split(np.arange(len(texts)), files)):
        lines = [json.dumps({"id": int(row), "text": texts[row], "score": int(row % 7)}) + "\n" for row in part]
        (folder / f"{number:03d}.jsonl").write_text("".join(lines))
    return cdf.read_jsonl(folder)


def rejects_of(docs, folder, **options):
    cdf.write_parquet(docs, folder / "out", rejects=folder / "rejects", **options)
    table = pd.concat(pd.read_parquet(path) for path in (folder / "rejects").glob("*.parquet"))
    return table.sort_values("id", ignore_index=True)


def alike_texts(groups=40, copies=4):
    """Groups of texts, in each of which some words differ; the copies of a group are far apart in the input."""
    rng = np.random.default_rng(7)
    texts = []
    for copy in range(copies):
        for group in range(groups):
            words = [f"word{group}_{number}" for number in range(120)]
            for place in rng.choice(120, size=copy, replace=False):
                words[place] = f"other{copy}_{place}"
            texts.append(" ".join(words))
    return texts


@pytest.mark.parametrize("jaccard_threshold", [0.7, None])
def test_near_duplicates_have_the_similarity_and_the_row_that_the_table_of_groups_names(tmp_path, jaccard_threshold):
    docs = write_files(tmp_path / "in", alike_texts(), 20)  # 20 ranges, 3 in each group of them
    options = {"scheme": cdf.minhash.FINEWEB, "jaccard_threshold": jaccard_threshold}
    gone = rejects_of(docs.curate.drop_near_duplicates(**options), tmp_path)
    groups = cdf.find_near_duplicates(docs, workdir=tmp_path / "groups", **options).compute()
    wanted = groups[~groups["kept"]].sort_values(["file", "offset"], ignore_index=True)
    gone = gone.sort_values(["reject_file", "reject_offset"], ignore_index=True)
    assert len(gone) > 100
    assert gone["reject_offset"].tolist() == wanted["offset"].tolist()
    assert gone["reject_matched_file"].tolist() == wanted["matched_file"].tolist()
    assert gone["reject_matched_offset"].tolist() == wanted["matched_offset"].tolist()
    if jaccard_threshold is None:
        assert gone[["reject_value", "reject_threshold"]].isna().all(axis=None)
        assert set(gone["reject_rule"]) == {"the same band"}
    else:
        assert gone["reject_value"].tolist() == wanted["jaccard"].tolist()
        assert (gone["reject_value"] >= 0.7).all()
        assert set(gone["reject_threshold"]) == {0.7}
        assert set(gone["reject_rule"]) == {"jaccard >= 0.7"}


def test_near_duplicates_of_kept_signatures_name_the_file_of_these(tmp_path):
    texts = alike_texts(groups=10, copies=2)
    old, new = write_files(tmp_path / "old", texts[:10], 2), write_files(tmp_path / "new", texts[10:], 3)
    signed = cdf.write_parquet(old.curate.add_minhash(), tmp_path / "signed").output
    chain = new.curate.add_minhash().curate.drop_near_duplicates(signatures="minhash", against=cdf.read_parquet(signed))
    gone = rejects_of(chain, tmp_path)
    assert len(gone) == 10
    assert all(name.startswith(f"{tmp_path}/signed/part-") for name in gone["reject_matched_file"])


def test_exact_duplicates_have_the_kept_row(tmp_path):
    texts = [f"text {number % 30}" for number in range(90)]
    docs = write_files(tmp_path / "in", texts, 9)
    gone = rejects_of(docs.curate.drop_exact_duplicates(keep="last"), tmp_path)
    kept = docs.curate.add_ids(into="place").compute().set_index("place")["text"]
    files = {str(path): number for number, path in enumerate(sorted((tmp_path / "in").iterdir()))}
    matched = [
        (files[name] << 40) + offset
        for name, offset in zip(gone["reject_matched_file"], gone["reject_matched_offset"], strict=True)
    ]
    assert gone["id"].tolist() == list(range(60))
    assert kept.loc[matched].tolist() == gone["text"].tolist()
    assert {name[-8:] for name in gone["reject_matched_file"]} == {"06.jsonl", "07.jsonl", "08.jsonl"}
    assert gone[["reject_rule", "reject_value", "reject_threshold"]].isna().all(axis=None)


def is_short(block):
    return block["score"] > 3


class Above:
    """A function with a setup."""

    def setup(self):
        self.least = 3

    def __call__(self, block):
        return block["score"] > self.least


@pytest.mark.parametrize(
    ("chain", "rule"),
    [
        (lambda docs: docs[docs["score"] > 3], "df[df['score'] > 3]"),
        (lambda docs: docs[~(docs["score"] < 4) & (docs["id"] < 99)], "df[~(df['score'] < 4) & (df['id'] < 99)]"),
        (lambda docs: docs.query("score > 3"), "df.query(expr='score > 3')"),
        (lambda docs: docs[docs["text"].str.len() > 6], "df[df['text'].str.len() > 6]"),
        (lambda docs: docs.loc[docs["score"] > 3], "df.loc[df['score'] > 3]"),
        (lambda docs: docs.loc[docs["score"] > 3, ["text"]], "df[['text']].loc[df['score'] > 3]"),
        (lambda docs: docs[docs["score"].isin([1, 2])], "df[df['score'].isin(values=[1, 2])]"),
        (
            lambda docs: docs[docs["score"].isin(list(range(1, 99)))],
            "df[df['score'].isin(values=[1, 2, 3, 4, 5, 6, ...])]",
        ),
        (lambda docs: docs.curate.keep_where("score > 3"), "score > 3"),
        (lambda docs: docs.curate.keep_where(is_short), "is_short(block)"),
        (lambda docs: docs.curate.keep_where(Above()), "Above(block)"),
        (lambda docs: docs.curate.sample_rows(0.25, seed=3), "fraction=0.25, seed=3"),
    ],
)
def test_filters_say_what_they_are(tmp_path, chain, rule):
    docs = write_files(tmp_path / "in", [f"text {number}" for number in range(30)], 3)
    gone = rejects_of(chain(docs), tmp_path)
    assert set(gone["reject_rule"]) == {rule}


def test_a_filter_whose_column_is_named_like_an_attribute_of_dask_is_said_too(tmp_path):
    (tmp_path / "in.jsonl").write_text('{"_operator_repr": 1, "meta": 2, "text": "a"}\n' * 3)
    docs = cdf.read_jsonl(tmp_path / "in.jsonl")
    (step,) = lower(docs[docs["_operator_repr"] > docs["meta"]]).steps
    assert step.action.text == "df[df['_operator_repr'] > df['meta']]"


@pytest.mark.parametrize("by", ["address", "content"])
def test_rows_that_are_not_sampled_have_a_number_that_is_not_below_the_fraction(tmp_path, by):
    docs = write_files(tmp_path / "in", [f"text {number}" for number in range(200)], 3)
    gone = rejects_of(docs.curate.sample_rows(0.25, by=by), tmp_path)
    assert gone["reject_value"].between(0.25, 1).all()
    assert set(gone["reject_threshold"]) == {0.25}
    more = rejects_of(docs.curate.sample_rows(0.5, by=by), tmp_path / "more")
    assert more["id"].tolist() == gone.loc[gone["reject_value"] >= 0.5, "id"].tolist()


@pytest.mark.parametrize(
    ("code", "keep", "threshold"),
    [
        (0, ("high",), 2.0),
        (1, ("high",), 2.0),
        (0, ("middle", "high"), 1.0),
        (2, ("low",), 1.0),
        (2, ("low", "middle"), 2.0),
    ],
)
def test_tiers_have_the_bound_of_the_nearest_class_that_is_kept(code, keep, threshold):
    scores = ClassScores(("low", "middle", "high"), "one", (1.0, 2.0))
    assert _threshold(code, scores, keep) == threshold
    assert _threshold(-1, scores, keep) is None


def test_a_value_that_is_no_number_is_missing():
    block = pd.DataFrame({"text": ["a", "b"]}, index=pd.Index([0, 5]))
    outcome = Outcome(
        block.iloc[:0], {"x": 2}, rejects=lambda: (block, {"reason": ["x"] * 2, "value": np.array([np.nan, 1.5])})
    )
    table = reject_rows("step", block, outcome, ["a.jsonl"], block.iloc[:0])
    assert table["reject_value"].isna().tolist() == [True, False]
    assert table[["reject_rule", "reject_threshold", "reject_matched_offset"]].isna().all(axis=None)


TEXT, WHOLE = pd.StringDtype("pyarrow"), pd.Int64Dtype()


@pytest.mark.parametrize(
    ("values", "read", "kept"),
    [
        (pd.array(["a", None], dtype=pd.StringDtype("pyarrow", na_value=float("nan"))), TEXT, ["a", None]),
        (np.array(["a", None], dtype=object), TEXT, ["a", None]),
        (pd.array(["a", None], dtype=pd.ArrowDtype(pa.large_string())), TEXT, ["a", None]),
        (np.array(["a", 1], dtype=object), TEXT, [None, None]),
        (np.array([[1], [2], None], dtype=object)[:2], TEXT, [None, None]),
        (np.array([1, 2]), WHOLE, [1, 2]),
        (np.array([1, 1 << 40]), pd.ArrowDtype(pa.int32()), [None, None]),
        (np.array([1.5, 2.0]), WHOLE, [None, None]),
        (np.array([1.5, 2.0]), pd.Float64Dtype(), [1.5, 2.0]),
        (np.array([True, False]), pd.BooleanDtype(), [True, False]),
    ],
)
def test_values_that_a_step_assigned_are_kept_where_the_read_type_holds_them(values, read, kept):
    block = pd.DataFrame({"new": values}, index=pd.Index([0, 9], name="address"))
    meta = pd.DataFrame({"new": pd.array([], dtype=read)})
    gone = reject_rows("step", block, Outcome(block.iloc[:0], dropped={"short": 2}), ["a.jsonl"], meta)
    assert gone.dtypes["new"] == read
    assert [None if pd.isna(value) else value for value in gone["new"]] == kept


def test_a_text_that_was_assigned_is_in_the_rejects(tmp_path):
    docs = write_files(tmp_path / "in", [f"text {row}" for row in range(6)], 2).assign(text="the same")
    gone = rejects_of(docs.curate.drop_exact_duplicates(), tmp_path)
    assert gone["text"].tolist() == ["the same"] * 5
