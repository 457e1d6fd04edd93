# SPDX-License-Identifier: Apache-2.0
"""Reports on groups of equal rows and of similar vectors, held against the tables of groups."""

from __future__ import annotations

import collections

import dask.dataframe as dd
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import curator_df as cdf
from curator_df import errors
from curator_df.core.runner import run
from tests.core.runner.fake_client import inline_cluster
from tests.models.vector_rows import vectors
from tests.ops.test_near_duplicates import write_rows


@pytest.fixture(scope="module", autouse=True)
def cluster():
    with inline_cluster(memory="2GB", cpus=2) as running:
        yield running


@pytest.mark.parametrize("keep", ["first", "none"])
def test_equal_rows_are_reported_by_size(tmp_path, monkeypatch, keep):
    monkeypatch.setattr(run, "SMALL_RANGE_BYTES", 500)
    texts = [f"text {(n * n) % (61 + n % 5 * 100)} {'<b>' * 40}" for n in range(200)]
    docs = cdf.read_jsonl(write_rows(tmp_path / "in", texts))
    groups = cdf.find_exact_duplicates(docs, keep=keep, workdir=tmp_path / "work")
    sizes = sorted(collections.Counter(texts).values(), reverse=True)
    several = [size for size in sizes if size > 1]
    for given in (groups, cdf.read_receipt(groups).output):
        report = cdf.describe_exact_duplicates(given, docs=docs, largest=3, max_chars=12)
        assert (report.rows, report.rows_in_groups) == (200, sum(several))
        assert report.rows_going == sum(several) - (len(several) if keep == "first" else 0)
        assert report.share_going == report.rows_going / 200
        assert report.sizes["groups"].to_dict() == collections.Counter(several)
        assert report.largest.group_size.tolist() == sizes[:3]
        assert report.similarities is None
        rows = docs.compute().text
        assert report.examples.text.tolist() == rows.loc[report.largest.group].str.slice(0, 12).tolist()
    assert f"200, of which {sum(several)} are in {len(several)} groups" in str(report)
    assert "keep=" in str(report)
    assert "&lt;b&gt;" in report._repr_html_()
    assert "<b>" not in report._repr_html_()
    assert cdf.describe_exact_duplicates(groups).examples is None


def test_a_table_in_memory_has_no_folder_of_a_run():
    table = dd.from_pandas(pd.DataFrame({"text": ["a"]}), npartitions=1)
    for call in (cdf.describe_exact_duplicates, cdf.read_receipt):
        with pytest.raises(errors.ExpressionError, match="was not read from the output folder of a run"):
            call(table)


def test_equal_rows_of_another_table_are_refused(tmp_path):
    docs = cdf.read_jsonl(write_rows(tmp_path / "in", ["a", "b", "a"], 1))
    groups = cdf.find_exact_duplicates(docs, workdir=tmp_path / "work")
    with pytest.raises(errors.ParameterError, match="another table"):
        cdf.describe_exact_duplicates(groups, docs=docs.pipe(cdf.keep_where, "id > 0"))
    with pytest.raises(errors.ColumnError, match="body"):
        cdf.describe_exact_duplicates(groups, docs=docs, text="body")
    with pytest.raises(errors.ParameterError, match="largest=0 is not a whole number"):
        cdf.describe_exact_duplicates(groups, largest=0)
    near = cdf.find_near_duplicates(docs, workdir=tmp_path / "work")
    with pytest.raises(errors.InputError, match="were found by find_near_duplicates"):
        cdf.describe_exact_duplicates(near)


def test_nothing_to_report(tmp_path):
    docs = cdf.read_jsonl(write_rows(tmp_path / "in", ["a", "b"], 1))
    report = cdf.describe_exact_duplicates(cdf.find_exact_duplicates(docs, workdir=tmp_path / "work"), docs=docs)
    assert (report.rows, report.rows_going, report.share_going) == (2, 0, 0.0)
    assert report.sizes.empty
    assert "2, of which 0 are in 0 groups" in str(report)


def test_similar_vectors_are_reported_for_one_eps(tmp_path, monkeypatch):
    pytest.importorskip("sklearn", reason="needs the models extra (scikit-learn is not installed)")
    monkeypatch.setattr(run, "SMALL_RANGE_BYTES", 2_000)
    numbers = vectors(300, seed=2)
    lists = pa.array(numbers.tolist(), pa.list_(pa.float32(), numbers.shape[1]))
    rows = {"id": np.arange(300), "text": [f"text {n}" for n in range(300)], "embedding": lists}
    pq.write_table(pa.table(rows), tmp_path / "in.parquet", row_group_size=50)
    docs = cdf.read_parquet(tmp_path / "in.parquet")
    groups = cdf.find_semantic_duplicates(docs, eps=[0.001, 0.05], num_clusters=3, workdir=tmp_path / "work")
    found = groups.compute()
    for eps in (0.001, 0.05):
        table = found[found.eps == eps]
        report = cdf.describe_semantic_duplicates(groups, eps=eps, docs=docs, largest=2, examples=2)
        assert (report.rows, report.rows_in_groups) == (300, len(table))
        assert report.rows_going == int((~table.kept).sum())
        assert report.settings["eps"] == eps
        bins = [*report.similarities.index, 1.1]
        cosines = table[~table.kept].cosine.astype(float).clip(1 - eps + 1e-9, 1)
        assert report.similarities.going.sum() == report.rows_going
        expected = np.histogram(cosines, bins=bins)[0]
        assert np.abs(report.similarities.going.to_numpy() - expected).sum() <= 2  # rounding at the edges
        assert report.largest.group_size.tolist() == sorted(table[table.kept].group_size, reverse=True)[:2]
        shown = report.examples
        assert shown.kept.tolist() == [True, False] * 2
        texts = docs.compute().text
        assert shown.text.iloc[0] == texts.loc[report.largest.group.iloc[0]]
        last = table[(table.group == report.largest.group.iloc[0]) & ~table.kept]
        assert shown.cosine.iloc[1] == last.cosine.min()
    with pytest.raises(errors.ParameterError, match=r"has results for eps=0\.001, 0\.05\. Choose one of them"):
        cdf.describe_semantic_duplicates(groups)
    with pytest.raises(errors.ParameterError, match=r"but not for eps=0\.2\. Choose one of them"):
        cdf.describe_semantic_duplicates(groups, eps=0.2)
    with pytest.raises(errors.ParameterError, match="another table than docs=: its steps are different"):
        cdf.describe_semantic_duplicates(groups, eps=0.05, docs=docs.pipe(cdf.keep_where, "id > 3"))
    one = cdf.find_semantic_duplicates(docs, eps=0.0, num_clusters=3, workdir=tmp_path / "one")
    assert isinstance(cdf.describe_semantic_duplicates(one).similarities, pd.DataFrame)


def test_rows_whose_vector_is_not_finite_are_reported(tmp_path):
    pytest.importorskip("sklearn", reason="needs the models extra (scikit-learn is not installed)")
    rows = [[1.0, 0.0], [float("inf"), 0.0], [0.0, 1.0], [0.0, float("nan")], None, [0.0, 0.0], [1.0, 0.0]]
    table = pa.table({"id": range(len(rows)), "embedding": pa.array(rows, pa.list_(pa.float64()))})
    pq.write_table(table, tmp_path / "in.parquet")
    docs = cdf.read_parquet(tmp_path / "in.parquet")
    groups = cdf.find_semantic_duplicates(docs, dimensions=2, num_clusters=1, workdir=tmp_path / "work")
    report = cdf.describe_semantic_duplicates(groups)
    assert report.not_compared == {"null": 1, "zeros": 1, "not finite": 2}
    assert "4 rows without a usable vector, not compared: 1 null, 1 zeros, 2 not finite" in str(report)
    assert report.rows_going == 1
