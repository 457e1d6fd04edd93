# SPDX-License-Identifier: Apache-2.0
"""First steps that run once for all passes of a later drop: whole runs in this process, with rows stored and not stored."""

import collections
import functools
import json
import re
from pathlib import Path

import cloudpickle
import numpy as np
import pandas as pd
import pytest

import curator_df as cdf
from curator_df import errors
from curator_df.core.ranges.blocks import BlockKernel, map_blocks
from curator_df.core.runner import prefix, run
from curator_df.core.runner.events import FINAL_STAGE, TaskEnded
from curator_df.core.runner.passes import PassRunner
from curator_df.core.runner.prefix import Trial
from curator_df.core.tasks.counts_by_step import counts_by_step
from curator_df.core.tasks.task import Attempt, left_by_steps
from tests.core.runner.fake_client import inline_cluster

ROWS = 400


@pytest.fixture(scope="module", autouse=True)
def cluster():
    with inline_cluster(memory="2GB", cpus=2) as running:
        yield running


@pytest.fixture
def corpus(tmp_path, monkeypatch):
    """Rows of which row n + 100 k has the words of row n, and one more that is k; rows 300 to 399 repeat rows 200 to 299."""
    monkeypatch.setattr(run, "SMALL_RANGE_BYTES", 20_000)
    lines = []
    for n in range(ROWS):
        words = " ".join(f"w{n % 100}.{i}" for i in range(80))
        lines.append(json.dumps({"id": n, "text": f"{words} {min(n // 100, 2)}", "site": f"s{n % 7}"}) + "\n")
    (tmp_path / "in.jsonl").write_text("".join(lines))
    return cdf.read_jsonl(tmp_path / "in.jsonl")


def cannot_read_40(block):
    if (block.id == 40).any():
        raise ValueError("forty")
    return block.id % 11 != 3


def chain(corpus):
    """Three steps that change, drop and fail on rows, and two drops that need all rows."""
    docs = corpus.pipe(cdf.normalize_unicode).pipe(cdf.keep_where, cannot_read_40).pipe(cdf.keep_where, "site != 's5'")
    return docs.pipe(cdf.drop_exact_duplicates, subset="text").pipe(cdf.drop_near_duplicates)


def table(folder):
    return pd.concat([pd.read_parquet(path) for path in sorted(Path(folder).glob("part-*"))], ignore_index=True)


def quarantined(folder):
    return sorted(line for path in Path(folder, "_quarantine").glob("*") for line in path.read_text().splitlines())


def figures(receipt):
    """What a receipt counts, without seconds and bytes."""
    steps = [(step.name, step.rows_in, step.rows_out, step.dropped, step.counters) for step in receipt.steps]
    rows = (receipt.rows_read, receipt.rows_written, receipt.rows_dropped, receipt.rows_quarantined)
    return steps, rows, [(one.step, one.keys, one.unique) for one in receipt.exchanges]


class Runs:
    """Counts the calls of a function of rows, also in a run that is resumed."""

    def __init__(self, path):
        self.path = str(path)

    def __call__(self, block):
        with open(self.path, "a") as file:
            file.write("".join(f"{number}\n" for number in block.id))
        return block.id >= 0

    @property
    def rows(self):
        return len(Path(self.path).read_text().splitlines())


@pytest.mark.quick
def test_stored_rows_change_neither_rows_nor_rejects_nor_counts(corpus, tmp_path):
    said = {}
    for reuse in ("never", "always"):
        out, rejects = tmp_path / reuse, tmp_path / f"rejects-{reuse}"
        receipt = cdf.write_parquet(chain(corpus), out, rejects=rejects, on_error="quarantine", reuse=reuse)
        by_row = table(rejects).sort_values("id", ignore_index=True)
        said[reuse] = (table(out), by_row, quarantined(out), figures(receipt), sorted(p.name for p in out.rglob("*")))
    (rows, by_row, *others), (stored_rows, stored_by_row, *stored_others) = said["never"], said["always"]
    pd.testing.assert_frame_equal(stored_rows, rows)
    pd.testing.assert_frame_equal(stored_by_row, by_row)
    assert stored_others == others
    assert 0 < len(rows) < ROWS / 2
    assert set(by_row.reject_step) == {"keep_where", "drop_exact_duplicates", "drop_near_duplicates"}
    assert len(quarantined(tmp_path / "always")) == 1


@pytest.mark.parametrize(("reuse", "passes"), [("never", 2), ("always", 1), ("auto", 2)])
def test_the_first_steps_run_once_if_their_rows_are_stored(corpus, tmp_path, reuse, passes):
    runs = Runs(tmp_path / "runs")
    docs = corpus.pipe(cdf.keep_where, runs).pipe(cdf.drop_exact_duplicates, subset="text")
    cdf.write_parquet(docs, tmp_path / "out", reuse=reuse)
    assert runs.rows == passes * ROWS


def test_outputs_of_one_run_share_stored_rows(corpus, tmp_path):
    runs = Runs(tmp_path / "runs")
    docs = corpus.pipe(cdf.keep_where, runs).pipe(cdf.drop_exact_duplicates, subset="text")
    tables = {
        tmp_path / "low": docs.pipe(cdf.keep_where, "id < 150"),
        tmp_path / "high": docs.pipe(cdf.keep_where, "id >= 150"),
    }
    receipts = cdf.write_many(tables, reuse="always")
    assert [receipt.rows_read for receipt in receipts.values()] == [ROWS, ROWS]
    assert [*table(tmp_path / "low").id, *table(tmp_path / "high").id] == list(range(300))
    assert runs.rows == ROWS


@pytest.mark.parametrize("again", ["always", "never"])
def test_an_interrupted_run_goes_on_with_or_without_stored_rows(corpus, tmp_path, monkeypatch, again):
    """It is interrupted in the last pass, which has given back the stored rows of the input splits that it finished."""
    runs, taken = Runs(tmp_path / "runs"), []
    docs = corpus.pipe(cdf.keep_where, runs).pipe(cdf.drop_exact_duplicates, subset="text")
    take = run._Target.take

    def interrupt(target, manifest):
        take(target, manifest)
        taken.append(manifest.number)
        if len(taken) == 3:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(run._Target, "take", interrupt)
        with pytest.raises(KeyboardInterrupt):
            cdf.write_parquet(docs, tmp_path / "out", workdir=tmp_path / "work", reuse="always")
    stored = {path.name for path in (tmp_path / "work").glob("stored-*/blocks/*")}
    whole = len(np.load(tmp_path / "out/_curator/ranges.npy"))
    assert whole - 3 <= len(stored) < whole
    receipt = cdf.write_parquet(docs, tmp_path / "out", workdir=tmp_path / "work", on_existing="resume", reuse=again)
    assert receipt.ranges_resumed >= 2
    assert (receipt.rows_read, list(table(tmp_path / "out").id)) == (ROWS, list(range(300)))
    assert ROWS <= runs.rows < (1.5 if again == "always" else 3) * ROWS
    assert not list((tmp_path / "work").rglob("*.arrows"))


@pytest.mark.parametrize(
    "kind", ["blocks/part-000001.arrows", "rejects/part-000001.arrows", "_quarantine/part-000001.jsonl"]
)
@pytest.mark.parametrize("damage", ["changed", "cut", "gone"])
def test_a_damaged_file_of_stored_rows_is_an_error_that_names_it(corpus, tmp_path, monkeypatch, damage, kind):
    """A resume writes it again, whether it contains rows that stay, rows that were dropped, or rows that were quarantined."""
    docs = chain(corpus).pipe(cdf.keep_where, "id >= 0")
    write = functools.partial(
        cdf.write_parquet, docs, tmp_path / "out", rejects=tmp_path / "rejects", on_error="quarantine", reuse="always"
    )
    stored_prefix = prefix.stored_prefix

    def then_damage(*given, **named):
        found = stored_prefix(*given, **named)
        (path,) = (tmp_path / "out/_curator/stages").glob(f"stored-*/{kind}")
        content = path.read_bytes()
        middle = len(content) // 2
        changed = content[:middle] + bytes([content[middle] ^ 0xFF]) + content[middle + 1 :]
        path.unlink() if damage == "gone" else path.write_bytes(changed if damage == "changed" else content[:middle])
        return found

    with monkeypatch.context() as patch:
        patch.setattr("curator_df.core.runner.passes.stored_prefix", then_damage)
        with pytest.raises(errors.CorruptFileError, match=re.escape(f"{kind} is damaged or gone")):
            write()
    receipt = write(on_existing="resume")
    assert (receipt.rows_quarantined, len(quarantined(tmp_path / "out"))) == (1, 1)
    assert len(table(tmp_path / "rejects")) == receipt.rows_dropped


def test_a_run_that_begins_again_takes_nothing_from_the_one_before(corpus, tmp_path, monkeypatch):
    """In one workdir: the rows that an earlier run quarantined are read again, and its files are deleted."""
    docs, down = chain(corpus), []
    folders = {"workdir": tmp_path / "work", "reuse": "always"}
    with monkeypatch.context() as patch:
        patch.setattr(run._Run, "_resolve", lambda *_: down.append(True) or 1 / 0)
        with pytest.raises(ZeroDivisionError):
            cdf.write_parquet(docs, tmp_path / "out", on_error="quarantine", **folders)
    (earlier,) = (tmp_path / "work").glob("stored-*")
    with pytest.raises(errors.OperatorError, match="forty"):
        cdf.write_parquet(docs, tmp_path / "out", on_existing="overwrite", **folders)
    assert not earlier.exists()


def test_runs_in_one_workdir_keep_their_stored_rows_apart(corpus, tmp_path, monkeypatch):
    docs, folders = corpus.pipe(cdf.normalize_unicode), {"workdir": tmp_path / "work"}
    begun = docs.pipe(cdf.drop_exact_duplicates, subset="text")
    with monkeypatch.context() as patch:
        patch.setattr(run._Run, "_resolve", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            cdf.write_parquet(begun, tmp_path / "out", reuse="always", **folders)
    stored = sorted(path for path in (tmp_path / "work").rglob("*.arrows"))
    cdf.write_parquet(docs.pipe(cdf.drop_exact_duplicates, subset="site"), tmp_path / "other", reuse="never", **folders)
    assert sorted((tmp_path / "work").rglob("*.arrows")) == stored


def test_rejects_of_an_output_that_is_finished_are_not_needed_again(corpus, tmp_path, monkeypatch):
    docs = chain(corpus)
    tables = {
        tmp_path / "low": docs.pipe(cdf.keep_where, "id < 150"),
        tmp_path / "high": docs.pipe(cdf.keep_where, "id >= 150"),
    }
    write = functools.partial(
        cdf.write_many,
        tables,
        rejects={tmp_path / "low": tmp_path / "rejects"},
        workdir=tmp_path / "work",
        on_error="quarantine",
        reuse="always",
    )
    finish = run._Target.finish

    def finish_one(target):
        if "high" in target.receipt.output:
            raise KeyboardInterrupt
        return finish(target)

    with monkeypatch.context() as patch:
        patch.setattr(run, "reversed", list, raising=False)  # the first output is finished first
        patch.setattr(run._Target, "finish", finish_one)
        with pytest.raises(KeyboardInterrupt):
            write()
    assert list((tmp_path / "work").glob("stored-*"))
    receipts = write(on_existing="resume")
    assert {receipt.rows_quarantined for receipt in receipts.values()} == {1}
    assert not list((tmp_path / "work").glob("stored-*"))


def test_one_of_several_outputs_is_resumed_by_itself(corpus, tmp_path, monkeypatch):
    """The rows that the interrupted call stored have other columns, and rejects, for the other output."""
    docs = chain(corpus)
    low, high = docs.pipe(cdf.keep_where, "id < 150")[["id"]], docs.pipe(cdf.keep_where, "id >= 150")
    with monkeypatch.context() as patch:
        patch.setattr(run._Run, "_resolve", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            cdf.write_many(
                {tmp_path / "low": low, tmp_path / "high": high},
                rejects={tmp_path / "high": tmp_path / "rejects"},
                on_error="quarantine",
                reuse="always",
            )
    receipt = cdf.write_parquet(low, tmp_path / "low", on_existing="resume", on_error="quarantine", reuse="always")
    assert (receipt.rows_read, receipt.rows_quarantined) == (ROWS, 1)


def test_whoever_watches_a_run_counts_all_its_rows(corpus, tmp_path, cluster):
    """Metrics and the live panel add up what the tasks of the last pass did, also in the steps that ran before."""
    told = {}
    for reuse in ("never", "always"):
        seen = []
        cluster.watchers.append(seen.append)
        try:
            cdf.write_parquet(chain(corpus), tmp_path / reuse, on_error="quarantine", reuse=reuse)
        finally:
            cluster.watchers.remove(seen.append)
        ended = [event for event in seen if isinstance(event, TaskEnded) and event.stage == FINAL_STAGE]
        rows = [(event.manifest.rows_read, event.manifest.rows_quarantined) for event in ended]
        by_step = collections.defaultdict(lambda: np.zeros(3, dtype=np.int64))
        for event in ended:
            for place, name, tally in counts_by_step(event.job, event.manifest):
                blocks = (
                    [tally.bytes_in, sum(tally.blocks_by_seconds)] if place < 4 else [0, 0]
                )  # later ones are cut otherwise
                by_step[place, name] += np.array([tally.rows_out, *blocks])
        told[reuse] = (np.sum(rows, axis=0).tolist(), {step: counts.tolist() for step, counts in by_step.items()})
    assert told["always"] == told["never"]
    assert told["never"][0] == [ROWS, 1]


def test_always_is_followed_after_the_first_splits_decided_otherwise(corpus, tmp_path, monkeypatch):
    runs = Runs(tmp_path / "runs")
    docs = corpus.pipe(cdf.keep_where, runs).pipe(cdf.drop_exact_duplicates, subset="text")
    monkeypatch.setattr(prefix, "LEAST_BYTES", 0)
    monkeypatch.setattr(Trial, "gain", 1.0)
    with monkeypatch.context() as patch:
        patch.setattr(run._Run, "_resolve", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            cdf.write_parquet(docs, tmp_path / "out", reuse="auto")
    before = runs.rows
    cdf.write_parquet(docs, tmp_path / "out", reuse="always", on_existing="resume")
    assert runs.rows - before <= ROWS


def whole_numbers_first(block):
    return block.assign(site=block.id if (block.id < 150).all() else block.id + 0.5)


def test_blocks_of_other_types_are_processed_in_each_pass(corpus, tmp_path, monkeypatch):
    monkeypatch.setattr(run, "SMALL_RANGE_BYTES", 1_000_000)
    corpus = cdf.read_jsonl(tmp_path / "in.jsonl", blocksize=50_000)  # several blocks in an input split
    kernel = BlockKernel("fractions", whole_numbers_first)
    meta = corpus._meta.assign(site=pd.array([], dtype="Float64"))
    docs = map_blocks(corpus, kernel, meta=meta).pipe(cdf.drop_exact_duplicates, subset="text")
    with pytest.raises(errors.ParameterError, match="different types of columns for different blocks"):
        cdf.write_parquet(docs, tmp_path / "always", reuse="always")
    monkeypatch.setattr(prefix, "LEAST_BYTES", 0)
    assert cdf.write_parquet(docs, tmp_path / "auto", reuse="auto").rows_written == 300
    assert not list(tmp_path.rglob("*.arrows"))


def test_the_first_input_splits_decide(corpus, tmp_path, monkeypatch):
    monkeypatch.setattr(prefix, "LEAST_BYTES", 0)
    docs = corpus.pipe(cdf.keep_where, "id >= 0").pipe(cdf.drop_exact_duplicates, subset="text")
    for gain, stores in ((prefix.LEAST_GAIN - 0.1, False), (prefix.LEAST_GAIN + 0.1, True)):
        monkeypatch.setattr(Trial, "gain", gain)
        receipt = cdf.write_parquet(docs, tmp_path / f"out-{stores}", reuse="auto")
        (said,) = [event.text for event in receipt.events if event.kind == "reuse"]
        assert ("keep_where run once" in said) == stores
        assert list(table(tmp_path / f"out-{stores}").id) == list(range(300))


@pytest.mark.quick
def test_rows_are_stored_if_the_steps_take_longer_than_the_disk_and_there_is_room():
    slow = Trial(work_seconds=10.0, write_seconds=1.0, passes=3, projected_bytes=100, free_bytes=1_000)
    assert slow.gain == pytest.approx(30 / 12.5)
    assert slow.pays
    assert not Trial(1.0, 1.0, 3, 100, 1_000).pays
    assert not Trial(10.0, 1.0, 3, 600, 1_000).pays
    assert Trial(10.0, 1.0, 3, 600, None).pays


def test_rows_after_a_function_of_the_users_are_not_stored(corpus, tmp_path):
    docs = corpus.map_partitions(lambda block: block).pipe(cdf.drop_exact_duplicates, subset="text")
    with pytest.raises(errors.ParameterError, match=r"'map_partitions.*' cannot be stored"):
        cdf.write_parquet(docs, tmp_path / "out", reuse="always")
    assert cdf.write_parquet(docs, tmp_path / "other", reuse="auto").rows_written == 300


def test_explain_says_what_would_run_once(corpus, monkeypatch):
    docs = corpus.pipe(cdf.normalize_unicode).pipe(cdf.drop_exact_duplicates, subset="text")
    assert "With reuse='always', normalize_unicode would run once instead of 2 times" in str(cdf.explain(docs))
    monkeypatch.setattr("curator_df.core.planning.first_steps.LEAST_BYTES", 0)
    assert "normalize_unicode run once instead of 2 times: their rows are then stored" in str(cdf.explain(docs))


def test_a_leak_is_looked_for_in_all_steps_also_after_stored_rows_are_gone(corpus, tmp_path, monkeypatch):
    """The task that is examined has finished: its stored rows have been deleted, so that the input is read again."""
    jobs, last_job = [], PassRunner.last_job

    def noted(runner, *given):
        jobs.append(last_job(runner, *given))
        return jobs[-1]

    monkeypatch.setattr(PassRunner, "last_job", noted)
    monkeypatch.setattr("curator_df.core.tasks.task.left_by", lambda calls: {name: call() for name, call in calls})
    docs = corpus.pipe(cdf.normalize_unicode).pipe(cdf.drop_exact_duplicates, subset="text")
    cdf.write_parquet(docs, tmp_path / "out", reuse="always")
    piece = corpus.expr.operand("func").source.cut(20_000)[0]
    attempt = Attempt(piece, 1_000_000, 1_000_000, stage_id="probe")
    left = left_by_steps(cloudpickle.dumps(jobs[0]), attempt)
    assert [step.name for step in jobs[0].fork.stem] == ["normalize_unicode", "drop_exact_duplicates"]
    assert list(left) == ["normalize_unicode"]
