# SPDX-License-Identifier: Apache-2.0
"""A user's function that raises on some rows, on all, or on none alone: what is set aside, and what the error says."""

import json
import multiprocessing

import pytest

import curator_df as cdf
from curator_df import errors
from curator_df.core.ranges.blocks import BlockKernel, Outcome, map_blocks
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


def fails_on_sevens(block):
    """Kernel of a step of the library that fails on some rows, and knows which."""
    failed = {place: f"failed on {number}" for place, number in enumerate(block.id.tolist()) if number % 7 == 0}
    keep = [place for place in range(len(block)) if place not in failed]
    return Outcome(block.iloc[keep].assign(text="done"), counters={"rows_seen": len(block)}, failed=failed)


def with_failures(docs):
    return map_blocks(docs, BlockKernel("add_failures", fails_on_sevens), meta=docs._meta)


def test_rows_on_which_a_step_says_that_it_fails_are_quarantined_without_another_call(corpus, tmp_path):
    chain = with_failures(cdf.read_jsonl(corpus, blocksize="9kB"))
    receipt = cdf.write_parquet(chain, tmp_path / "out", on_error="quarantine")
    assert (receipt.rows_quarantined, receipt.rows_written) == (215, 1285)
    step = next(step for step in receipt.steps if step.name == "add_failures")
    assert (step.rows_in, step.rows_out, step.counters["rows_seen"]) == (1285, 1285, 1500)
    records = [
        json.loads(line)
        for aside in sorted((tmp_path / "out/_quarantine").iterdir())
        for line in aside.read_text().splitlines()
    ]
    assert sorted(json.loads(record["raw"])["id"] for record in records) == list(range(0, 1500, 7))
    for record in records:
        row = json.loads(record["raw"])
        with open(record["file"], "rb") as file:
            file.seek(record["offset"])
            assert json.loads(file.readline()) == row
        assert record["reason"] == f"step 'add_failures' failed on {row['id']}"


def test_a_row_on_which_a_step_fails_stops_the_run_with_its_place(corpus, tmp_path):
    chain = with_failures(cdf.read_jsonl(corpus).curate.keep_where("id >= 600"))
    with pytest.raises(
        errors.OperatorError, match=r"step 'add_failures' failed on 602 on .*part-1\.jsonl offset [\d,]+ "
    ) as info:
        cdf.write_parquet(chain, tmp_path / "out")
    assert "on_error='quarantine'" in str(info.value)


def test_a_row_on_which_a_step_fails_is_an_error_of_compute_and_of_other_indexes(corpus, tmp_path):
    docs = cdf.read_jsonl(corpus)
    with pytest.raises(errors.OperatorError, match="failed on 0 on row 0 of a block"):
        with_failures(docs).partitions[0].compute(scheduler="synchronous")
    chain = with_failures(docs.map_partitions(reset, meta=reset(docs._meta)))
    with pytest.raises(errors.OperatorError, match="failed on 0 on row 0 of a block"):
        cdf.write_parquet(chain, tmp_path / "out", on_error="quarantine")


def reset(block):
    return block.reset_index(drop=True)


def test_a_block_whose_rows_all_fail_is_quarantined_whole(tmp_path):
    write_rows(tmp_path / "in/a.jsonl", 1)
    chain = with_failures(cdf.read_jsonl(str(tmp_path / "in")))
    receipt = cdf.write_parquet(chain, tmp_path / "out", on_error="quarantine")
    assert (receipt.rows_read, receipt.rows_quarantined, receipt.rows_written) == (1, 1, 0)
