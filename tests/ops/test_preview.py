# SPDX-License-Identifier: Apache-2.0
"""A preview runs a chain over rows from places that are spread over the input, and shows what is kept and dropped."""

from __future__ import annotations

import json
from pathlib import Path

import dask.dataframe as dd
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import curator_df as cdf
from curator_df.errors import NoClusterError, ParameterError
from curator_df.ops.preview import SAMPLE_BYTES, places
from tests.core.runner.fake_client import inline_cluster

ROWS = 4_000


@pytest.fixture
def cluster():
    with inline_cluster(memory="4GB", cpus=2) as session:
        yield session


@pytest.fixture
def docs(tmp_path):
    path = tmp_path / "a.jsonl"
    rows = ({"n": number, "text": f"text {number // 2} " + "word " * 20} for number in range(ROWS))
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return cdf.read_jsonl(str(path), blocksize="10kB")


def test_rows_come_from_the_whole_input_and_pending_drops_are_carried_out(docs, cluster):
    clean = docs.pipe(cdf.drop_exact_duplicates).pipe(cdf.keep_where, "n % 10 != 0", reason="round")
    found = cdf.preview(clean, rows=200)
    assert found.places == 4
    assert found.receipt.rows_read == 200
    everything = pd.concat([found.kept, found.dropped])
    assert everything["n"].is_unique
    assert len(everything) == 200
    assert everything["n"].max() > ROWS * 0.7
    assert set(found.dropped["reject_reason"]) == {"exact_duplicate", "round"}
    assert not [name for name in found.dropped.columns if name.endswith(("file", "offset"))]
    assert not (found.kept["n"] % 10 == 0).any()
    # 50 consecutive rows at a place have 25 different texts; a place may begin with the second row of a pair.
    assert 95 <= (found.dropped["reject_reason"] == "exact_duplicate").sum() <= 100


def test_more_rows_are_the_same_rows_and_others(docs, cluster):
    few, more, most = (set(cdf.preview(docs, rows=rows).kept["n"]) for rows in (60, 500, 2 * ROWS))
    assert len(few) == 60
    assert few < more < most
    assert len(most) == ROWS


def test_nothing_is_left_on_disk(docs, cluster):
    cdf.preview(docs, rows=100)
    assert not [path for path in Path(cluster.workdir).rglob("*") if path.is_file()]


def test_it_shows_the_steps_the_reasons_and_the_first_rows(docs, cluster):
    found = cdf.preview(docs.pipe(cdf.keep_where, "n > 2", reason="early"), rows=50)
    said = str(found)
    assert said.startswith(
        "50 rows read at 1 place of the input: 47 kept, 3 dropped. Duplicates are searched for among"
    )
    assert "rows out" in said
    assert "early" in said
    kept, dropped = found._repr_html_().split("A dropped row for each reason:")
    assert "text 3 word" in kept
    assert dropped.count("early") == 1
    assert "text 0 word" in dropped
    assert "A dropped row" not in cdf.preview(docs, rows=50)._repr_html_()


def test_a_compressed_file_is_read_from_its_beginning_only_as_far_as_needed(tmp_path, cluster):
    pd.DataFrame({"n": range(ROWS)}).to_json(tmp_path / "a.jsonl.gz", orient="records", lines=True)
    found = cdf.preview(cdf.read_jsonl(str(tmp_path / "a.jsonl.gz")), rows=70)
    assert found.kept["n"].tolist() == list(range(70))


def test_long_rows_are_fewer_rows_and_too_long_ones_are_left_out(tmp_path, cluster):
    texts = ["x" * 1_500_000] * 40 + ["y" * 5_000_000] * 2
    pq.write_table(pa.table({"text": texts}), tmp_path / "a.parquet", row_group_size=4)
    found = cdf.preview(cdf.read_parquet(str(tmp_path / "a.parquet")), rows=42)
    sizes = found.kept["text"].str.len()
    assert 1 <= len(sizes) < 40
    assert sizes.sum() <= SAMPLE_BYTES
    assert sizes.max() == 1_500_000


def test_tables_of_other_origin_are_computed_first(cluster):
    table = dd.from_pandas(pd.DataFrame({"n": range(300)}), npartitions=3)
    found = cdf.preview(table.pipe(cdf.keep_where, "n >= 10"), rows=30)
    assert found.kept["n"].tolist() == list(range(10, 30))


def test_an_empty_table_is_an_empty_preview(tmp_path, cluster):
    pq.write_table(pa.table({"text": pa.array([], pa.string())}), tmp_path / "a.parquet")
    found = cdf.preview(cdf.read_parquet(str(tmp_path / "a.parquet")))
    assert (len(found.kept), len(found.dropped), found.receipt.rows_read) == (0, 0, 0)


def test_refusals(docs, tmp_path):
    with pytest.raises(NoClusterError, match="start_cluster"):
        cdf.preview(docs)
    for rows, said in ((0, "1 or more"), (1.5, "whole number"), (True, "whole number")):
        with pytest.raises(ParameterError, match=said):
            cdf.preview(docs, rows=rows)


@pytest.mark.parametrize("ranges", [1, 2, 3, 7, 64, 1000])
def test_places_are_nested_and_distinct(ranges):
    before = {}
    for rows in (1, 30, 50, 51, 400, 5_000, 100_000):
        taken = places(ranges, rows)
        assert list(taken) == sorted(taken)
        assert max(taken) < ranges
        assert sum(taken.values()) == rows
        assert all(taken.get(number, 0) >= count for number, count in before.items())
        before = taken
