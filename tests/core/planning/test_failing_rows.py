# SPDX-License-Identifier: Apache-2.0
"""A user's function that raises on some rows, on all, or on none alone: what is set aside, and what the error says."""

import json
import multiprocessing

import pytest

import curator_df as cdf
from curator_df import errors
from tests.core.runner.fake_client import inline_cluster
from tests.core.runner.test_run import fails_on_seven, write_rows


@pytest.fixture(scope="module", autouse=True)
def cluster():
    with inline_cluster(memory="2GB", cpus=2) as running:
        yield running


@pytest.fixture
def corpus(tmp_path):
    for part in range(3):
        write_rows(tmp_path / f"in/part-{part}.jsonl", 500, start=500 * part)
    return str(tmp_path / "in")


def test_each_row_set_aside_has_its_own_reason_place_and_content(tmp_path):
    def broken(block):
        if (block.id % 3 == 0).any():
            raise ZeroDivisionError(f"first is {block.id.iloc[0]}")
        return block.id >= 0

    rows = [{"id": i, "text": f"line\u2028break\n{i}"} for i in range(9)]
    (tmp_path / "in.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    docs = cdf.read_jsonl(str(tmp_path / "in.jsonl")).curate.keep_where(broken)
    cdf.write_parquet(docs, tmp_path / "out", on_error="quarantine")
    (aside,) = (tmp_path / "out/_quarantine").iterdir()
    records = [json.loads(line) for line in aside.read_text().split("\n") if line]
    length = len(json.dumps(rows[0])) + 1
    assert [(json.loads(record["raw"]), record["offset"]) for record in records] == [
        (rows[i], i * length) for i in (0, 3, 6)
    ]
    assert [record["reason"][-10:] for record in records] == ["first is 0", "first is 3", "first is 6"]


@pytest.mark.parametrize("step", ["keep_where", "map_partitions"])
def test_a_users_function_that_raises_on_every_row_sets_all_aside(tmp_path, step):
    def broken(block):
        return block["nope"]

    write_rows(tmp_path / "in/a.jsonl", 50)
    docs = cdf.read_jsonl(str(tmp_path / "in"), blocksize="3kB")
    chain = docs.curate.keep_where(broken) if step == "keep_where" else docs.map_partitions(broken, meta=docs._meta)
    receipt = cdf.write_parquet(chain.curate.add_ids(into="key"), tmp_path / "out", on_error="quarantine")
    assert (receipt.rows_quarantined, receipt.rows_written, receipt.rows_dropped) == (50, 0, 0)
    assert list(cdf.read_parquet(str(tmp_path / "out")).columns) == ["id", "text", "lang", "key"]


def test_a_users_function_that_raises_on_rows_together_but_on_none_alone_is_named(corpus, tmp_path):
    def broken(block):
        if len(block) > 1 or (block.id == 7).any():
            raise ZeroDivisionError("together")
        return block.id >= 0

    docs = cdf.read_jsonl(corpus).curate.keep_where(broken)
    with pytest.raises(errors.OperatorError, match=r"(?s)keep_where.*together.*part-\d\.jsonl"):
        cdf.write_parquet(docs, tmp_path / "out", on_error="quarantine")


def test_a_pool_in_a_step_is_an_error_that_says_what_to_use(corpus, tmp_path, monkeypatch):
    monkeypatch.setitem(multiprocessing.current_process()._config, "daemon", True)  # as in a worker

    def pooled(block):
        with multiprocessing.get_context("fork").Pool(1) as pool:
            return block[pool.map(bool, block.id)]

    docs = cdf.read_jsonl(corpus)
    with pytest.raises(
        errors.OperatorError, match=r"step 'map_partitions\(pooled\)'.* use threads \(concurrent\.futures"
    ):
        cdf.write_parquet(docs.map_partitions(pooled, meta=docs._meta), tmp_path / "out")


def test_rows_without_their_address_are_not_set_aside_under_another(corpus, tmp_path):
    docs = cdf.read_jsonl(corpus).map_partitions(lambda block: block.reset_index(drop=True))
    with pytest.raises(errors.OperatorError, match=r"seven.*needs the index that the reader created"):
        cdf.write_parquet(docs.curate.keep_where(fails_on_seven), tmp_path / "out", on_error="quarantine")


@pytest.mark.parametrize("on_error", ["raise", "quarantine"])
def test_a_users_function_that_raises_on_a_block_without_rows_is_an_error(corpus, tmp_path, on_error):
    docs = cdf.read_jsonl(corpus).curate.keep_where("id < 0").curate.keep_where(lambda block: 1 / 0)
    with pytest.raises(errors.OperatorError, match="division by zero on a block without rows"):
        cdf.write_parquet(docs, tmp_path / "out", on_error=on_error)
