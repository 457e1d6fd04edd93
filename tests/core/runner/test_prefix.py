# SPDX-License-Identifier: Apache-2.0
"""First steps that run once for all passes of a later drop: whole runs in this process, with rows stored and not stored."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import curator_df as cdf
from curator_df import errors
from curator_df.core.runner import prefix, run
from curator_df.core.runner.prefix import Trial
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


@pytest.mark.parametrize("damage", ["changed", "cut", "gone"])
def test_a_damaged_file_of_stored_rows_is_an_error_that_names_it(corpus, tmp_path, monkeypatch, damage):
    docs = corpus.pipe(cdf.normalize_unicode).pipe(cdf.drop_exact_duplicates, subset="text")
    stored_prefix = prefix.stored_prefix

    def then_damage(*given):
        found = stored_prefix(*given)
        (path,) = (tmp_path / "out").rglob("blocks/part-000001.arrows")
        content = path.read_bytes()
        middle = len(content) // 2
        changed = content[:middle] + bytes([content[middle] ^ 0xFF]) + content[middle + 1 :]
        path.unlink() if damage == "gone" else path.write_bytes(changed if damage == "changed" else content[:middle])
        return found

    with monkeypatch.context() as patch:
        patch.setattr("curator_df.core.runner.passes.stored_prefix", then_damage)
        with pytest.raises(errors.CorruptFileError, match=r"part-000001\.arrows is damaged or gone"):
            cdf.write_parquet(docs, tmp_path / "out", reuse="always")
    cdf.write_parquet(docs, tmp_path / "out", reuse="always", on_existing="resume")
    assert list(table(tmp_path / "out").id) == list(range(300))


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
