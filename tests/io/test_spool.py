# SPDX-License-Identifier: Apache-2.0
"""Tables that a run cannot stream go through working files: rows in memory, Dask's readers, sorts, merges."""

from __future__ import annotations

import json
from pathlib import Path

import dask.dataframe as dd
import pandas as pd
import pytest

import curator_df as cdf
from curator_df import errors
from curator_df.core.planning.program import foreign_part
from curator_df.core.runner.session import current_session

ROWS = pd.DataFrame({"n": range(60), "text": [f"text {number // 2}" for number in range(60)]})


@pytest.fixture(scope="module", autouse=True)
def cluster():
    with cdf.start_cluster(memory="2GB", cpus=2) as running:
        yield running


@pytest.fixture
def docs(tmp_path):
    folder = tmp_path / "in"
    folder.mkdir()
    for start in (0, 20, 40):
        rows = ROWS.iloc[start : start + 20].to_dict("records")
        (folder / f"{start}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return cdf.read_jsonl(str(folder))


def written(table, folder: Path) -> list[int]:
    cdf.write_parquet(table, folder)
    return [int(number) for number in dd.read_parquet(folder)["n"].compute()]


def spooled() -> set[Path]:
    return set(Path(str(current_session().workdir)).glob("spool/*"))


def test_rows_of_pandas_are_written(tmp_path):
    assert written(dd.from_pandas(ROWS, npartitions=4), tmp_path / "out") == list(range(60))


def test_rows_of_pandas_go_through_operators_and_full_passes(tmp_path):
    table = dd.from_pandas(ROWS, npartitions=4).pipe(cdf.normalize_whitespace).pipe(cdf.drop_exact_duplicates)
    assert written(table, tmp_path / "out") == list(range(0, 60, 2))


def test_nested_values_and_nulls_are_kept(tmp_path):
    rows = pd.DataFrame({"n": [1, 2, 3], "tags": [["a"], None, ["b", "c"]], "f": [0.5, None, 1.5]})
    cdf.write_parquet(dd.from_pandas(rows, npartitions=2), tmp_path / "out")
    found = pd.read_parquet(tmp_path / "out")
    assert found["tags"].dropna().map(list).to_dict() == {0: ["a"], 2: ["b", "c"]}
    assert found["f"].isna().tolist() == [False, True, False]


@pytest.mark.parametrize(
    ("operation", "expected"),
    [
        (lambda d: d[d["n"] < 9].persist(), list(range(9))),
        (lambda d: d.sort_values("n", ascending=False), list(range(59, -1, -1))),
        (lambda d: dd.concat([d, d]), [*range(60), *range(60)]),
        (lambda d: d.repartition(npartitions=2), list(range(60))),
        (lambda d: d.set_index("n").reset_index(), list(range(60))),
    ],
    ids=["persist", "sort", "concat", "repartition", "set_index"],
)
def test_what_dask_computes_is_streamed_from_its_files(docs, operation, expected, tmp_path):
    assert written(operation(docs).pipe(cdf.normalize_whitespace), tmp_path / "out") == expected


def test_an_index_that_was_set_becomes_a_column(docs, tmp_path):
    assert sorted(written(docs.set_index("n"), tmp_path / "out")) == list(range(60))


def test_a_merge_keeps_its_rows(docs, tmp_path):
    labels = dd.from_pandas(pd.DataFrame({"n": [3, 5], "label": ["a", "b"]}).astype({"n": "Int64"}), npartitions=1)
    cdf.write_parquet(docs.merge(labels, on="n").pipe(cdf.drop_exact_duplicates), tmp_path / "out")
    found = pd.read_parquet(tmp_path / "out").sort_values("n")
    assert found[["n", "label"]].to_numpy().tolist() == [[3, "a"], [5, "b"]]


def test_a_table_of_a_reader_of_dask_is_streamed(tmp_path):
    ROWS.to_parquet(tmp_path / "in.parquet")
    assert written(dd.read_parquet(tmp_path / "in.parquet"), tmp_path / "out") == list(range(60))


def test_steps_after_a_sort_are_streamed_and_the_sort_runs_once(docs, tmp_path):
    before = spooled()
    ordered = docs.sort_values("n", ascending=False)
    assert written(ordered.pipe(cdf.keep_where, "n < 3"), tmp_path / "a") == [2, 1, 0]
    assert written(ordered.pipe(cdf.keep_where, "n < 2"), tmp_path / "b") == [1, 0]
    assert len(spooled() - before) == 1


def test_a_drop_before_a_sort_is_resolved(docs, tmp_path):
    table = docs.pipe(cdf.drop_exact_duplicates).sort_values("n", ascending=False).pipe(cdf.keep_where, "n < 6")
    assert written(table, tmp_path / "out") == [4, 2, 0]


def test_a_table_of_ours_is_not_spooled(docs, tmp_path):
    before = spooled()
    assert written(docs[docs["n"] > 57].assign(m=1), tmp_path / "out") == [58, 59]
    assert spooled() == before
    assert foreign_part(docs[docs["n"] > 57].expr) is None


@pytest.mark.parametrize(
    "operation", [lambda d: d.sample(frac=0.5), lambda d: d.partitions[:1]], ids=["sample", "partitions"]
)
def test_what_depends_on_the_block_size_is_refused(docs, operation, tmp_path):
    with pytest.raises(errors.ExpressionError, match="sample_rows"):
        cdf.write_parquet(operation(docs), tmp_path / "out")
    with pytest.raises(errors.ExpressionError, match="sample_rows"):
        cdf.write_parquet(operation(docs).sort_values("n"), tmp_path / "out")


def test_columns_that_are_not_named_by_text_are_refused(tmp_path):
    with pytest.raises(errors.SchemaError, match="Rename them first"):
        cdf.write_parquet(dd.from_pandas(pd.DataFrame({0: [1]}), npartitions=1), tmp_path / "out")


def test_groups_are_found_in_rows_of_pandas(tmp_path):
    assert len(cdf.find_exact_duplicates(dd.from_pandas(ROWS, npartitions=2), workdir=tmp_path)) == 60
