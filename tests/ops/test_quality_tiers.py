# SPDX-License-Identifier: Apache-2.0
"""Scores of several classifiers into tiers, each in its own folder, and the best of them taken more often."""

from __future__ import annotations

import json

import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest

import curator_df as cdf
from curator_df import errors
from tests.core.runner.fake_client import inline_cluster

ROWS = pd.DataFrame(
    {
        "edu": pd.array([5.0, 2.5, None, 0.0, None, 7.0], "Float64"),
        "fluent": pd.array([0.2, 0.9, 0.5, 0.1, None, np.nan], "Float32"),
        "votes": pd.array([1, 2, 3, 4, None, 6], "Int64"),
        "name": pd.array(["a"] * 6, "string[pyarrow]"),
    }
)
TIERS = {"high": 0.8, "low": 0.0, "medium": 0.4}


def made(**how):
    docs = dd.from_pandas(ROWS, npartitions=2).pipe(cdf.add_quality_tier, **{"thresholds": TIERS, **how})
    return docs.compute(scheduler="synchronous")


def tiers_and_scores(found):
    scores = found["quality_tier_score"].astype("float64").round(6)
    return [
        (None if pd.isna(tier) else tier, None if pd.isna(score) else score)
        for tier, score in zip(found["quality_tier"], scores, strict=True)
    ]


def test_the_largest_of_scaled_scores_decides():
    found = made(scores=["edu", "fluent"], scale={"edu": (0, 5)})
    assert tiers_and_scores(found) == [
        ("high", 1.0),
        ("high", 0.9),
        ("medium", 0.5),
        ("low", 0.1),
        (None, None),
        ("high", 1.0),
    ]
    assert str(found["quality_tier_score"].dtype) == "Float32"


def test_the_smallest_or_the_weighted_mean_decides():
    smallest = made(scores=["edu", "fluent"], scale={"edu": (0, 5)}, combine="min")
    assert [tier for tier, _ in tiers_and_scores(smallest)] == ["low", "medium", "medium", "low", None, "high"]
    weighted = made(scores={"edu": 1, "fluent": 3}, scale={"edu": (0, 5)}, combine="weighted")
    assert [score for _, score in tiers_and_scores(weighted)] == [0.4, 0.8, 0.5, 0.075, None, 1.0]


def test_quantiles_make_scores_comparable():
    found = made(scores=["votes"], scale={"votes": (1, 1, 2, 4)}, thresholds={"top": 0.9, "rest": 0})
    assert tiers_and_scores(found) == [
        ("rest", 0.333333),
        ("rest", 0.666667),
        ("rest", 0.833333),
        ("top", 1.0),
        (None, None),
        ("top", 1.0),
    ]


@pytest.mark.parametrize(
    ("wrong", "error", "said"),
    [
        ({"scores": []}, errors.ParameterError, "list of columns"),
        ({"scores": "edu"}, errors.ParameterError, "list of columns"),
        ({"scores": ["other"]}, errors.ColumnError, "other"),
        ({"scores": ["name"]}, errors.SchemaError, "needs numbers"),
        (
            {"scores": {"edu": -1}, "combine": "weighted"},
            errors.ParameterError,
            r"not above 0\. Leave out .* count: \['edu'\]",
        ),
        ({"scores": {"edu": 2}}, errors.ParameterError, r"does not accept weights, .* or pass scores=\['edu'\]"),
        ({"thresholds": {"a": 1, "b": 1}}, errors.ParameterError, "must give each tier a different minimum score"),
        ({"thresholds": {}}, errors.ParameterError, "must give each tier a different minimum score"),
        ({"scale": {"edu": (5, 0)}}, errors.ParameterError, "in ascending order"),
        ({"scale": {"votes": (0, 5)}}, errors.ParameterError, r"not one of scores=\[.*\]\. Leave it out"),
        ({"into": "name"}, errors.ColumnError, "name"),
    ],
)
def test_what_makes_no_sense_is_refused(wrong, error, said):
    with pytest.raises(error, match=said):
        made(**{"scores": ["edu"], **wrong})


def count_words(texts):
    return [[-len(text.split()), len(text.split())] for text in texts]


def count_capitals(texts):
    return [[0.5, sum(map(str.isupper, text)) / len(text)] for text in texts]


def test_tiers_have_their_own_folders_and_the_best_is_taken_more_often(tmp_path):
    texts = ["word " * (number % 9 + 1) + ("LOUD" if number % 5 == 0 else "low") for number in range(450)]
    rows = [{"id": number, "text": text} for number, text in enumerate(texts)]
    (tmp_path / "in.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    docs = cdf.read_jsonl(str(tmp_path / "in.jsonl"))
    docs = docs.pipe(cdf.add_class, count_words, labels=["short", "long"], score_of="long", into="length")
    docs = docs.pipe(cdf.add_class, count_capitals, labels=["quiet", "loud"], score_of="loud", into="loudness")
    docs = docs.pipe(
        cdf.add_quality_tier,
        scores={"length_score": 1, "loudness_score": 1},
        combine="weighted",
        scale={"length_score": (2, 10), "loudness_score": (0, 0.4)},
        thresholds={"high": 0.6, "medium": 0.3, "low": 0},
    )
    with inline_cluster(memory="2GB", cpus=2):
        tiers = cdf.write_by(docs, tmp_path / "tiers", partition_on="quality_tier")
        assert set(tiers) == {"high", "medium", "low"}
        assert sum(tiers.rows.values()) == 450
        epochs = {"high": 3, "medium": 1, "low": 0}
        mixed = cdf.blend(dict(tiers), tmp_path / "mixed", epochs=epochs).compute()
    assert {path.name for path in (tmp_path / "tiers").glob("quality_tier=*")} == {
        f"quality_tier={one}" for one in tiers
    }
    taken = mixed["id"].value_counts()
    expected = {}
    for number, text in enumerate(texts):
        length, capitals = len(text.split()), sum(map(str.isupper, text)) / len(text)
        score = np.float32((np.clip((length - 2) / 8, 0, 1) + np.clip(capitals / 0.4, 0, 1)) / 2)
        expected[number] = 3 if score >= np.float32(0.6) else 1 if score >= np.float32(0.3) else 0
    assert set(expected.values()) == {0, 1, 3}
    assert taken.to_dict() == {number: times for number, times in expected.items() if times}
