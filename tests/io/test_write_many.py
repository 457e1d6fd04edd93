# SPDX-License-Identifier: Apache-2.0
"""Several outputs from one pass, through whole runs in this process."""

import json
import os
import warnings

import pandas as pd
import pyarrow.parquet as pq
import pytest

import curator_df as cdf
from curator_df import errors
from curator_df.core.runner import run
from tests.core.runner.fake_client import inline_cluster

SAME_IN_BOTH = ("rows_read", "rows_written", "rows_dropped", "rows_quarantined", "files", "ranges", "input_bytes")


@pytest.fixture(scope="module", autouse=True)
def cluster():
    with inline_cluster(memory="2GB", cpus=2) as running:
        yield running


@pytest.fixture
def corpus(tmp_path):
    (tmp_path / "in").mkdir()
    for part in range(3):
        rows = [
            {"id": i, "text": f"text {i % 300} " + "word " * 30, "lang": ("en", "de", None)[i % 3]}
            for i in range(500 * part, 500 * part + 500)
        ]
        (tmp_path / f"in/{part}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(tmp_path / "in")


def rows_of(folder):
    files = sorted(path for path in folder.rglob("*.parquet") if "_curator" not in path.parts)
    return pd.concat([pq.ParquetFile(path).read().to_pandas() for path in files], ignore_index=True)


def contents(folder):
    files = (path for path in folder.rglob("part-*") if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


def said(receipt):
    """Return what a receipt says of rows."""
    steps = [(step.name, step.rows_in, step.rows_out, step.dropped) for step in receipt.steps]
    return {name: getattr(receipt, name) for name in SAME_IN_BOTH}, steps


def is_even(block):
    return block.id % 2 == 0


def fails_on_eight(block):
    if (block.id == 8).any():
        raise ZeroDivisionError("eight")
    return block.id >= 0


class Counted:
    """Keeps every row, and notes each call in a file; or fails on one row until it is allowed."""

    def __init__(self, file, allowed=None):
        self.file, self.allowed = str(file), str(allowed or "")

    def __call__(self, block):
        with open(self.file, "ab", buffering=0) as calls:
            calls.write(b"%d\n" % len(block))
        if self.allowed and (block.id == 1400).any() and not os.path.exists(self.allowed):
            raise ZeroDivisionError("not yet")
        return block.id >= 0

    def rows(self):
        with open(self.file) as calls:
            return sum(int(line) for line in calls)


def test_each_output_is_what_it_would_be_alone(corpus, tmp_path):
    base = cdf.read_jsonl(corpus).curate.normalize_unicode().curate.keep_where(is_even, reason="odd")
    tables = {"en": base[base.lang == "en"], "all": base, "ids": base[["id"]].curate.keep_where("id > 700")}
    receipts = cdf.write_many(
        {tmp_path / "many" / name: df for name, df in tables.items()},
        rejects={tmp_path / "many" / name: tmp_path / "many-rejects" / name for name in tables},
    )
    for name, df in tables.items():
        alone = cdf.write_parquet(df, tmp_path / "one" / name, rejects=tmp_path / "one-rejects" / name)
        receipt = receipts[tmp_path / "many" / name]
        assert said(receipt) == said(alone)
        for kind in ("", "-rejects"):
            together, apart = (rows_of(tmp_path / f"{how}{kind}" / name) for how in ("many", "one"))
            pd.testing.assert_frame_equal(together, apart)
        assert cdf.read_receipt(tmp_path / "many" / name).rows_written == alone.rows_written
        assert receipt.rows_read == receipt.rows_written + receipt.rows_dropped
    assert (
        receipts[tmp_path / "many/en"].settings["shared"] == "read, normalize_unicode, keep_where: once for 3 outputs"
    )


def test_shared_steps_run_once(corpus, tmp_path):
    once = Counted(tmp_path / "calls")
    base = cdf.read_jsonl(corpus, blocksize="20kB").curate.keep_where(once)
    cdf.write_many({tmp_path / "even": base.curate.keep_where(is_even), tmp_path / "all": base})
    assert once.rows() == 1500


def test_a_shared_drop_compares_its_rows_once(corpus, tmp_path):
    once = Counted(tmp_path / "calls")
    base = cdf.read_jsonl(corpus).curate.keep_where(once).curate.drop_exact_duplicates()
    receipts = cdf.write_many({tmp_path / "even": base.curate.keep_where(is_even), tmp_path / "all": base})
    assert once.rows() == 2 * 1500  # for the keys, and for the files
    assert rows_of(tmp_path / "all").id.tolist() == list(range(300))
    assert rows_of(tmp_path / "even").id.tolist() == list(range(0, 300, 2))
    for receipt in receipts.values():
        assert [(exchange.step, exchange.keys) for exchange in receipt.exchanges] == [("drop_exact_duplicates", 1500)]


def test_a_drop_in_one_branch_sees_the_rows_of_that_branch(corpus, tmp_path):
    docs = cdf.read_jsonl(corpus)
    late = docs.curate.keep_where("id > 100").curate.drop_exact_duplicates()
    receipts = cdf.write_many({tmp_path / "late": late, tmp_path / "all": docs})
    assert rows_of(tmp_path / "late").id.tolist() == list(range(101, 401))
    assert rows_of(tmp_path / "all").id.tolist() == list(range(1500))
    assert [len(receipt.exchanges) for receipt in receipts.values()] == [1, 0]


def test_columns_that_no_branch_has_in_common_are_read_together(corpus, tmp_path):
    docs = cdf.read_jsonl(corpus)
    cdf.write_many(
        {tmp_path / "a": docs[["lang", "id"]], tmp_path / "b": docs[["text"]].curate.drop_exact_duplicates()}
    )
    assert rows_of(tmp_path / "a").columns.tolist() == ["lang", "id"]
    assert len(rows_of(tmp_path / "b")) == 300


def test_json_lines_and_partitions(corpus, tmp_path):
    docs = cdf.read_jsonl(corpus)
    receipts = cdf.write_many(
        {tmp_path / "a": docs, tmp_path / "b": docs.curate.keep_where(is_even)},
        format="jsonl",
        compression="gzip",
        partition_on="lang",
    )
    assert receipts[tmp_path / "a"].rows_by_folder["lang=de"] == 500
    assert cdf.read_jsonl(tmp_path / "b/lang=en").id.compute().tolist() == list(range(0, 1500, 6))


def test_each_output_in_a_format_of_its_own(corpus, tmp_path):
    docs = cdf.read_jsonl(corpus).pipe(cdf.keep_where, is_even)
    rows, lines, parts = (tmp_path / name for name in ("rows", "lines", "parts"))
    receipts = cdf.write_many(
        {rows: docs, lines: docs[["id", "text"]], parts: docs},
        format={lines: "jsonl"},
        compression={lines: "gzip", rows: "snappy"},
        partition_on={parts: "lang"},
    )
    cdf.write_parquet(docs, tmp_path / "alone", compression="snappy")
    cdf.write_jsonl(docs[["id", "text"]], tmp_path / "alone_lines", compression="gzip")
    assert contents(rows) == contents(tmp_path / "alone")
    assert contents(lines) == contents(tmp_path / "alone_lines")
    assert sorted(rows_of(parts).id) == sorted(rows_of(rows).id)
    assert {path.name for path in parts.glob("lang=*")} >= {"lang=en", "lang=de"}
    assert {receipt.rows_written for receipt in receipts.values()} == {750}


def test_the_same_rows_however_the_input_is_cut(corpus, tmp_path, monkeypatch):
    found = []
    for number, (blocksize, range_bytes) in enumerate([(2_000, 10**9), ("16MB", 20_000)]):
        monkeypatch.setattr(run, "SMALL_RANGE_BYTES", range_bytes)
        base = cdf.read_jsonl(corpus, blocksize=blocksize).curate.drop_exact_duplicates()
        out = [tmp_path / f"{number}-{name}" for name in ("all", "even")]
        cdf.write_many({out[0]: base, out[1]: base.curate.keep_where(is_even)})
        found.append([rows_of(folder) for folder in out])
    for other in found[1:]:
        assert all(one.equals(two) for one, two in zip(found[0], other, strict=True))


def test_rows_on_which_a_function_raises_are_set_aside_where_they_were_going(corpus, tmp_path):
    docs = cdf.read_jsonl(corpus)
    tables = {
        tmp_path / "fails": docs.curate.keep_where(fails_on_eight),
        tmp_path / "even": docs.curate.keep_where(is_even),
    }
    receipts = cdf.write_many(tables, on_error="quarantine")
    assert [receipt.rows_quarantined for receipt in receipts.values()] == [1, 0]
    assert [receipt.rows_written for receipt in receipts.values()] == [1499, 750]
    shared = docs.curate.keep_where(fails_on_eight)
    both = {tmp_path / "c": shared, tmp_path / "d": shared.curate.keep_where(is_even)}
    receipts = cdf.write_many(both, on_error="quarantine")
    assert [receipt.rows_quarantined for receipt in receipts.values()] == [1, 1]
    assert [len(list((folder / "_quarantine").iterdir())) for folder in both] == [1, 1]


def test_lines_that_cannot_be_read_are_set_aside_in_every_output(corpus, tmp_path):
    with open(tmp_path / "in/1.jsonl", "a") as file:
        file.write('{"id": 7, "text":\n')
    docs = cdf.read_jsonl(corpus, on_bad_rows="quarantine")
    receipts = cdf.write_many({tmp_path / "a": docs, tmp_path / "b": docs.curate.keep_where(is_even)})
    for receipt in receipts.values():
        assert (receipt.rows_read, receipt.rows_quarantined) == (1501, 1)


def test_a_failed_run_resumes_and_runs_nothing_twice(corpus, tmp_path, monkeypatch):
    monkeypatch.setattr(run, "SMALL_RANGE_BYTES", 5_000)
    steps = [Counted(tmp_path / name, tmp_path / "allowed") for name in ("shared", "own")]
    base = cdf.read_jsonl(corpus).curate.keep_where(steps[0])
    tables = {tmp_path / "a": base, tmp_path / "b": base.curate.keep_where(steps[1])}
    with pytest.raises(errors.OperatorError, match="not yet"):
        cdf.write_many(tables)
    (tmp_path / "allowed").touch()
    journal = tmp_path / "a/_curator/done.jsonl"
    lines = journal.read_bytes().splitlines(keepends=True)
    assert len(lines) > 10
    journal.write_bytes(b"".join(lines[:-3]))  # "b" has three ranges more than "a"
    before = [step.rows() for step in steps]
    receipts = cdf.write_many(tables, on_existing="resume")
    for folder, receipt in receipts.items():
        assert rows_of(folder).id.tolist() == list(range(1500))
        assert (receipt.rows_read, receipt.rows_written) == (1500, 1500)
    assert [receipt.ranges_resumed for receipt in receipts.values()] == [len(lines) - 3, len(lines)]
    done = [sum(json.loads(line)["rows_read"] for line in part) for part in (lines[:-3], lines)]
    assert [step.rows() - past for step, past in zip(steps, before, strict=True)] == [1500 - rows for rows in done]


def test_one_output_of_an_interrupted_run_can_be_finished_alone(corpus, tmp_path, monkeypatch):
    monkeypatch.setattr(run, "SMALL_RANGE_BYTES", 20_000)
    step = Counted(tmp_path / "calls", tmp_path / "allowed")
    base = cdf.read_jsonl(corpus).curate.keep_where(step)
    tables = {tmp_path / "a": base, tmp_path / "b": base.curate.keep_where(is_even)}
    with pytest.raises(errors.OperatorError, match="not yet"):
        cdf.write_many(tables)
    (tmp_path / "allowed").touch()
    alone = cdf.write_parquet(tables[tmp_path / "b"], tmp_path / "b", on_existing="resume")
    assert alone.ranges_resumed > 0
    assert rows_of(tmp_path / "b").id.tolist() == list(range(0, 1500, 2))
    assert cdf.write_many(tables, on_existing="resume")[tmp_path / "a"].rows_written == 1500


def test_a_complete_output_is_taken_as_it_is(corpus, tmp_path):
    docs = cdf.read_jsonl(corpus)
    first = cdf.write_parquet(docs, tmp_path / "a")
    written = {path: path.stat().st_mtime_ns for path in (tmp_path / "a").glob("*.parquet")}
    tables = {tmp_path / "a": docs, tmp_path / "b": docs.curate.keep_where(is_even)}
    receipts = cdf.write_many(tables, on_existing="resume")
    assert said(receipts[tmp_path / "a"]) == said(first)
    assert rows_of(tmp_path / "b").id.tolist() == list(range(0, 1500, 2))
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "a").glob("*.parquet")} == written
    again = cdf.write_many(tables, on_existing="resume")
    assert [said(receipt) for receipt in again.values()] == [said(receipt) for receipt in receipts.values()]


def test_no_folder_is_touched_when_one_of_them_is_refused(corpus, tmp_path):
    docs = cdf.read_jsonl(corpus)
    tables = {tmp_path / "a": docs, tmp_path / "b": docs.curate.keep_where(is_even)}
    cdf.write_parquet(docs, tmp_path / "a")
    (tmp_path / "b").mkdir()
    (tmp_path / "b/thesis.txt").write_text("mine")
    for on_existing in ("raise", "overwrite"):
        with pytest.raises(errors.OutputExistsError):
            cdf.write_many(tables, on_existing=on_existing)
        assert len(rows_of(tmp_path / "a")) == 1500
    (tmp_path / "b/thesis.txt").unlink()
    receipts = cdf.write_many(tables, on_existing="overwrite")
    assert [receipt.rows_written for receipt in receipts.values()] == [1500, 750]


def test_what_does_not_fit_is_refused_before_anything_is_written(corpus, tmp_path):
    docs = cdf.read_jsonl(corpus, blocksize="60MB")
    cdf.explain(docs)
    tables = {tmp_path / f"out/{number}": docs.curate.keep_where(f"id > {number}") for number in range(9)}
    with pytest.raises(errors.BudgetError, match="fewer than 9 outputs"):
        cdf.write_many(tables)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("one", "two", "message"),
    [
        ("out", "out/", "are the same folder"),
        ("out", "other/../out", "are the same folder"),
        ("out", "out/even", "out/even' is inside '.*/out'"),
        ("out/even/more", "out", "out/even/more' is inside '.*/out'"),
    ],
)
def test_folders_that_are_the_same_or_in_one_another_are_refused(corpus, tmp_path, monkeypatch, one, two, message):
    monkeypatch.chdir(tmp_path)
    docs = cdf.read_jsonl(corpus)
    with pytest.raises(errors.ParameterError, match=message):
        cdf.write_many({one: docs, two: docs})
    with pytest.raises(errors.ParameterError, match=message):
        cdf.write_many({one: docs}, rejects={one: two})


def test_a_folder_whose_name_begins_like_another_is_not_inside_it(corpus, tmp_path):
    docs = cdf.read_jsonl(corpus)
    assert len(cdf.write_many({tmp_path / "out": docs, tmp_path / "out-2": docs})) == 2


def test_wrong_arguments_are_named(corpus, tmp_path):
    docs = cdf.read_jsonl(corpus)
    for wrong, message in (({}, "an empty one"), ([docs], "got list")):
        with pytest.raises(errors.ParameterError, match=message):
            cdf.write_many(wrong)
    with pytest.raises(errors.ExpressionError, match=r"the table for 'out' must be a Dask DataFrame, not Series"):
        cdf.write_many({"out": docs.id})
    with pytest.raises(errors.ParameterError, match=r"rejects= has the key 'b', which is not .* Use one of: 'a'"):
        cdf.write_many({"a": docs}, rejects={"b": "c"})
    with pytest.raises(errors.ParameterError, match="compression='snappy' is not one of 'none'"):
        cdf.write_many({"a": docs}, format="jsonl", compression="snappy")
    (tmp_path / "other.jsonl").write_text('{"id": 1}\n')
    with pytest.raises(errors.ExpressionError, match="do not come from the same read"):
        cdf.write_many({tmp_path / "a": docs, tmp_path / "b": cdf.read_jsonl(tmp_path / "other.jsonl")})
    assert not (tmp_path / "a").exists()


def test_resuming_with_another_chain_in_one_branch_names_the_step(corpus, tmp_path):
    docs = cdf.read_jsonl(corpus)
    failing = docs.curate.keep_where(fails_on_eight)
    with pytest.raises(errors.OperatorError):
        cdf.write_many({tmp_path / "a": docs, tmp_path / "b": failing})
    with pytest.raises(errors.ResumeError, match=r"/b: in step 1 \(keep_where\), predicate changed from the function"):
        cdf.write_many({tmp_path / "a": docs, tmp_path / "b": docs.curate.keep_where(is_even)}, on_existing="resume")


def test_two_samples_that_share_rows_are_warned_of_and_parts_are_not(corpus, tmp_path):
    docs = cdf.read_jsonl(corpus)
    samples = {str(tmp_path / name): docs.curate.sample_rows(part) for name, part in (("a", 0.9), ("b", 0.1))}
    with pytest.warns(
        UserWarning, match=r"a and .*b are two samples of sample_rows, which share rows.* use split_rows"
    ):
        cdf.write_many(samples)
    parts = docs.curate.split_rows({"train": 0.6, "test": 0.4}, by="address")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        receipts = cdf.write_many({str(tmp_path / name): part for name, part in parts.items()})
    rows = sum(receipt.rows_written for receipt in receipts.values())
    assert rows == len(docs)
    split = [step for receipt in receipts.values() for step in receipt.steps if step.name == "split_rows"]
    assert [set(step.dropped) for step in split] == [{"other_part"}] * 2
