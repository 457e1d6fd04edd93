# SPDX-License-Identifier: Apache-2.0
"""A table says what it is without being computed."""

from __future__ import annotations

import dask.dataframe as dd
import pandas as pd
import pytest

import curator_df as cdf
from curator_df.core.planning.lowering import ReadPartition
from curator_df.ops.table_summary import summarize_table


@pytest.fixture
def docs(tmp_path, monkeypatch):
    """A table of two files whose reading fails."""
    pd.DataFrame({"n": range(10), "text": ["word"] * 10}).to_parquet(tmp_path / "a.parquet")
    pd.DataFrame({"n": range(5), "text": ["word"] * 5}).to_parquet(tmp_path / "b.parquet")
    monkeypatch.setattr(
        ReadPartition, "__call__", lambda self, number, columns=None: pytest.fail("a partition was read")
    )
    return cdf.read_parquet(tmp_path)


def facts_of(df) -> dict[str, str]:
    return dict(summarize_table(df).lines)


def test_files_rows_and_columns_of_a_reader(docs, tmp_path):
    facts = facts_of(docs)
    assert facts["reads"].startswith("2 files, ")
    assert facts["reads"].endswith(f"{tmp_path}/a.parquet, ...")
    assert facts["rows"] == "about 15 in the files"
    assert facts["columns"] == "n (Int64), text (string)"
    assert facts["steps"] == "none"
    assert "deferred" not in facts


def test_rows_of_json_lines_are_unknown(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"text": "word"}\n')
    facts = facts_of(cdf.read_jsonl(tmp_path))
    assert facts["rows"] == "unknown before the files are read"
    assert facts["reads"] == f"{tmp_path}/a.jsonl, 17 B"


def test_steps_in_order_and_what_is_deferred(docs):
    chain = docs.pipe(cdf.keep_where, "n > 2").pipe(cdf.drop_exact_duplicates)
    facts = facts_of(chain[chain["n"] < 9].assign(twice=lambda block: block["n"] * 2))
    steps = facts["steps"].split(", ")
    assert steps[:2] == ["keep_where", "drop_exact_duplicates (deferred until all rows were read)"]
    assert steps[-1] == "assign"
    assert facts["deferred"].startswith(
        "drop_exact_duplicates needs a full pass over the rows. head(), len() and compute()"
    )
    assert "write_parquet()" in facts["deferred"]


def test_steps_that_dask_computes_are_named_as_well(docs):
    steps = facts_of(docs.pipe(cdf.drop_exact_duplicates).merge(docs, on="n"))["steps"]
    assert "drop_exact_duplicates (deferred until all rows were read)" in steps
    assert steps.endswith("merge")


def test_many_columns_are_counted(tmp_path):
    pd.DataFrame({f"c{number}": [1] for number in range(30)}).to_parquet(tmp_path / "a.parquet")
    columns = facts_of(cdf.read_parquet(tmp_path))["columns"]
    assert columns.startswith("c0 (Int64), c1 (Int64)")
    assert columns.endswith("c11 (Int64) and 18 more")


def test_a_table_of_dask_alone_has_no_summary():
    table = dd.from_pandas(pd.DataFrame({"n": [1, 2]}), npartitions=1)
    assert summarize_table(table) is None
    assert "Dask DataFrame Structure" in repr(table.curate)
    assert table.curate._repr_html_() is None


def test_the_accessor_shows_the_summary_and_escapes_names(docs):
    odd = docs.rename(columns={"text": "<b>text"})
    assert repr(odd.curate) == str(summarize_table(odd))
    assert "<b>text (string)" in repr(odd.curate)
    assert "&lt;b&gt;text (string)" in odd.curate._repr_html_()
