# SPDX-License-Identifier: Apache-2.0
"""Exact duplicates, through whole runs in this process."""

import json
import random
from unittest import mock

import pandas as pd
import pyarrow.parquet as pq
import pytest

import curator_df as cdf
from curator_df import errors
from curator_df.core.ranges import deferred_step
from curator_df.core.runner import run
from tests.core.runner.fake_client import inline_cluster

ROWS = [
    {"id": 0, "text": "one", "url": "a", "score": 1.0},
    {"id": 1, "text": "two", "url": "b", "score": None},
    {"id": 2, "text": "one", "url": "a", "score": 9.0},
    {"id": 3, "text": "One ", "url": "a", "score": 5.0},
    {"id": 4, "text": None, "url": "c", "score": 2.0},
    {"id": 5, "text": "two", "url": "b", "score": 3.0},
    {"id": 6, "text": None, "url": "d", "score": 2.0},
    {"id": 7, "text": "one", "url": "e", "score": 9.0},
]


@pytest.fixture(scope="module", autouse=True)
def cluster():
    with inline_cluster(memory="2GB", cpus=2) as running:
        yield running


def docs_of(tmp_path, rows, files=3, **options):
    folder = tmp_path / "in"
    folder.mkdir(exist_ok=True)
    for part in range(files):
        mine = rows[part * len(rows) // files : (part + 1) * len(rows) // files]
        (folder / f"{part}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in mine))
    return cdf.read_jsonl(str(folder), **options)


def kept(docs, target, **options):
    receipt = cdf.write_parquet(docs, target, **options)
    files = sorted(target.glob("*.parquet"))
    return pd.concat([pq.read_table(path).to_pandas() for path in files]).id.tolist(), receipt


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, [0, 1, 3, 4]),
        ({"keep": "last"}, [3, 5, 6, 7]),
        ({"normalize": "case_and_spaces"}, [0, 1, 4]),
        ({"normalize": "case_and_spaces", "keep": "longest"}, [1, 3, 4]),
        ({"keep": cdf.best("score")}, [2, 3, 4, 5]),
        ({"keep": cdf.best("score", "min")}, [0, 3, 4, 5]),
        ({"subset": "url"}, [0, 1, 4, 6, 7]),
        ({"subset": ["text", "url"]}, [0, 1, 3, 4, 6, 7]),
    ],
)
def test_one_of_each_group_stays(tmp_path, options, expected):
    ids, receipt = kept(docs_of(tmp_path, ROWS).curate.drop_exact_duplicates(**options), tmp_path / "out")
    assert ids == expected
    assert receipt.reasons()[["reason", "rows"]].values.tolist() == [["exact_duplicate", len(ROWS) - len(expected)]]
    assert not (tmp_path / "out/_curator/stages").exists()


def test_the_same_rows_whatever_the_cut(tmp_path, monkeypatch):
    choices = random.Random(5)
    rows = [{"id": n, "text": f"text {choices.randrange(300)}"} for n in range(2_000)]
    expected = pd.DataFrame(rows).drop_duplicates("text").id.tolist()
    for number, (files, range_bytes) in enumerate([(1, 10**9), (1, 5_000), (7, 1_000)]):
        monkeypatch.setattr(run, "SMALL_RANGE_BYTES", range_bytes)
        folder = tmp_path / str(number)
        folder.mkdir()
        docs = docs_of(folder, rows, files, blocksize=700)
        assert kept(docs.curate.drop_exact_duplicates(), folder / "out")[0] == expected


def test_two_drops_and_filters_in_one_chain(tmp_path):
    docs = docs_of(tmp_path, ROWS).curate.keep_where("score > 1 or score != score")
    docs = docs.curate.drop_exact_duplicates(subset="url").curate.drop_exact_duplicates()
    ids, receipt = kept(docs[docs.id != 6], tmp_path / "out")
    assert ids == [2, 4, 5]
    assert [step.name for step in receipt.steps].count("drop_exact_duplicates") == 2
    assert receipt.rows_read == receipt.rows_written + receipt.rows_dropped


def test_all_equal_and_all_different(tmp_path):
    same = docs_of(tmp_path, [{"id": n, "text": "x"} for n in range(5_000)])
    assert kept(same.curate.drop_exact_duplicates(), tmp_path / "out")[0] == [0]
    (tmp_path / "b").mkdir()
    unlike = docs_of(tmp_path / "b", [{"id": n, "text": f"x{n}"} for n in range(5_000)])
    assert kept(unlike.curate.drop_exact_duplicates(), tmp_path / "b/out")[0] == list(range(5_000))


def test_dropped_duplicates_can_be_kept_with_their_address(tmp_path):
    kept(docs_of(tmp_path, ROWS, 1).curate.drop_exact_duplicates(), tmp_path / "out", rejects=tmp_path / "rejects")
    (path,) = (tmp_path / "rejects").glob("*.parquet")
    rejects = pq.read_table(path).to_pandas()
    assert rejects.id.tolist() == [2, 5, 6, 7]
    assert set(rejects.reject_reason) == {"exact_duplicate"}


def by_chance(block):
    return block.id + random.SystemRandom().randrange(2) > 1_000


def test_a_step_before_that_depends_on_chance_is_caught(tmp_path):
    rows = [{"id": 1_000, "text": f"text {n}"} for n in range(200)]
    docs = docs_of(tmp_path, rows, blocksize=100).curate.keep_where(by_chance).curate.drop_exact_duplicates()
    with pytest.raises(errors.RowCountError, match=r"(?s)before 'drop_exact_duplicates' gave different results"):
        kept(docs, tmp_path / "out")


def test_a_pending_drop_cannot_be_computed_without_its_cluster(tmp_path):
    docs = docs_of(tmp_path, ROWS).curate.drop_exact_duplicates()
    said = "run this pass only in a cluster of curator_df"
    with mock.patch.object(deferred_step, "_evaluators", []), pytest.raises(errors.PendingError, match=said):
        docs.compute(scheduler="synchronous")


def test_explain_shows_both_passes(tmp_path):
    plan = cdf.explain(docs_of(tmp_path, ROWS).curate.drop_exact_duplicates())
    assert [stage.title for stage in plan.stages] == ["keys for drop_exact_duplicates, then merge them", "write"]
    assert "read 2 times" in str(plan)


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"subset": "body"}, errors.ColumnError),
        ({"subset": []}, errors.ParameterError),
        ({"keep": "any"}, errors.ParameterError),
        ({"keep": cdf.best("url")}, errors.SchemaError),
        ({"keep": cdf.best("rank")}, errors.ColumnError),
        ({"normalize": "stem"}, errors.ParameterError),
    ],
)
def test_what_cannot_work_is_refused_at_the_door(tmp_path, options, error):
    with pytest.raises(error, match="drop_exact_duplicates"):
        docs_of(tmp_path, ROWS).curate.drop_exact_duplicates(**options)
