# SPDX-License-Identifier: Apache-2.0
"""Passes of tables that were looked at: what runs again, what a writer takes over, and what is deleted."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pandas as pd
import pytest

import curator_df as cdf
from curator_df.core.runner import run as run_module
from curator_df.core.runner.events import StageStarted
from curator_df.errors import DiskFullError
from curator_df.files.storage import Folder, NewFile
from tests.core.runner.fake_client import inline_cluster

ROWS = pd.DataFrame({"n": range(40), "text": [f"text {number // 2}" for number in range(40)]})
KEPT = list(range(0, 40, 2))


@pytest.fixture
def cluster():
    with inline_cluster(memory="4GB", cpus=2) as session:
        yield session


@pytest.fixture
def docs(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in ROWS.to_dict("records")))
    return cdf.read_jsonl(str(path), blocksize="200B")


class Passes:
    """Counts the tasks of passes that run, by their stage."""

    def __init__(self, session):
        self._session, self.ran = session, {}

    def __call__(self, event):
        if isinstance(event, StageStarted) and event.tasks > event.done:
            self.ran[event.stage] = self.ran.get(event.stage, 0) + event.tasks - event.done

    def __enter__(self):
        self._session.watchers.append(self)
        return self.ran

    def __exit__(self, *_):
        self._session.watchers.remove(self)


def written(table, folder: Path, **options) -> list[int]:
    cdf.write_parquet(table, folder, **options)
    return [int(number) for number in cdf.read_parquet(str(folder)).compute()["n"]]


def stages(session) -> list[Path]:
    return sorted(Path(session.workdir).glob("looks/**/_curator/plan.json"))


def test_partitions_are_not_the_splits_of_the_passes(docs, cluster):
    kept = docs.pipe(cdf.drop_exact_duplicates)
    assert kept.npartitions > 4
    assert kept.compute()["n"].tolist() == KEPT
    assert kept.partitions[1].compute()["n"].tolist() == [n for n in docs.partitions[1].compute()["n"] if n % 2 == 0]


def test_a_table_is_looked_at_again_with_other_partitions(docs, cluster, tmp_path):
    assert len(docs.pipe(cdf.drop_exact_duplicates)) == 20
    again = cdf.read_jsonl(str(tmp_path / "a.jsonl"), blocksize="300B").pipe(cdf.drop_exact_duplicates)
    with Passes(cluster) as ran:
        assert again.compute()["n"].tolist() == KEPT
    assert not ran


def test_a_writer_runs_the_last_pass_alone(docs, cluster, tmp_path):
    kept = docs.pipe(cdf.drop_exact_duplicates)
    kept.head(2)
    with Passes(cluster) as ran:
        assert written(kept, tmp_path / "out") == KEPT
    assert list(ran) == ["write"]


def test_a_writer_of_a_longer_chain_runs_what_is_new(docs, cluster, tmp_path):
    docs.pipe(cdf.drop_exact_duplicates).head(2)
    longer = docs.pipe(cdf.drop_exact_duplicates).pipe(cdf.keep_where, "n < 20").pipe(cdf.drop_near_duplicates)
    with Passes(cluster) as ran:
        assert written(longer, tmp_path / "out") == KEPT[:10]
    assert not [stage for stage in ran if stage.startswith("drop_exact_duplicates")]
    assert "drop_near_duplicates: signatures" in ran


def test_a_changed_threshold_computes_what_follows_it(docs, cluster, tmp_path):
    def chain(most):
        return docs.pipe(cdf.drop_exact_duplicates).pipe(cdf.keep_where, f"n < {most}").pipe(cdf.drop_near_duplicates)

    assert len(chain(20)) == 10
    with Passes(cluster) as ran:
        assert len(chain(30)) == 15
    assert not [stage for stage in ran if stage.startswith("drop_exact_duplicates")]
    assert "drop_near_duplicates: signatures" in ran
    with Passes(cluster) as ran:
        assert written(chain(30), tmp_path / "out") == KEPT[:15]
    assert list(ran) == ["write"]


def test_files_are_linked_and_journals_are_not(docs, cluster, tmp_path, monkeypatch):
    kept = docs.pipe(cdf.drop_exact_duplicates)
    kept.head(2)
    stop_before_the_receipt(monkeypatch)
    with pytest.raises(RuntimeError):
        cdf.write_parquet(kept, tmp_path / "out")
    drops = [path for path in (tmp_path / "out/_curator/stages").glob("*/drops/*") if path.is_file()]
    assert drops
    assert all(os.stat(path).st_nlink == 2 for path in drops)
    journals = list((tmp_path / "out/_curator/stages").glob("**/done.jsonl"))
    assert journals
    assert all(os.stat(path).st_nlink == 1 for path in journals)


def stop_before_the_receipt(monkeypatch) -> None:
    def stop(self):
        raise RuntimeError("stopped")

    monkeypatch.setattr(run_module._Target, "finish", stop)


def test_files_are_copied_to_another_file_system(docs, cluster, tmp_path, monkeypatch):
    def refuse(old, new):
        raise OSError(18, "Invalid cross-device link")

    monkeypatch.setattr(os, "link", refuse)
    kept = docs.pipe(cdf.drop_exact_duplicates)
    kept.head(2)
    with Passes(cluster) as ran:
        assert written(kept, tmp_path / "out") == KEPT
    assert list(ran) == ["write"]


@pytest.mark.parametrize("reuse", ["always", "never"])
def test_rows_of_first_steps_are_not_stored_for_the_last_pass_alone(docs, cluster, tmp_path, reuse):
    kept = docs.pipe(cdf.normalize_whitespace).pipe(cdf.drop_exact_duplicates)
    kept.head(2)
    with Passes(cluster) as ran:
        assert written(kept, tmp_path / "out", reuse=reuse) == KEPT
    assert list(ran) == ["write"]


def test_a_writer_to_a_store_takes_the_passes_of_a_look(docs, cluster):
    kept = docs.pipe(cdf.drop_exact_duplicates)
    kept.head(2)
    with Passes(cluster) as ran:
        assert written(kept, "memory://looked/out") == KEPT
    assert list(ran) == ["write"]


def test_a_run_that_was_stopped_goes_on_without_the_look(docs, tmp_path, monkeypatch):
    kept = docs.pipe(cdf.drop_exact_duplicates)
    with inline_cluster(memory="4GB", cpus=2), monkeypatch.context() as stopped:
        kept.head(2)
        stop_before_the_receipt(stopped)
        with pytest.raises(RuntimeError):
            cdf.write_parquet(kept, tmp_path / "out")
    for part in (tmp_path / "out").glob("*.parquet"):
        part.unlink()
    with inline_cluster(memory="4GB", cpus=2) as session, Passes(session) as ran:
        assert written(kept, tmp_path / "out", on_existing="resume") == KEPT
    assert list(ran) == ["write"]


def test_a_damaged_look_is_not_taken(docs, cluster, tmp_path):
    kept = docs.pipe(cdf.drop_exact_duplicates)
    kept.head(2)
    damaged = next(path for path in Path(cluster.workdir).glob("looks/*/drops/*") if path.is_file())
    content = bytearray(damaged.read_bytes())
    content[len(content) // 2] ^= 1
    damaged.write_bytes(content)
    with Passes(cluster) as ran:
        assert written(kept, tmp_path / "out") == KEPT
    assert "drop_exact_duplicates: keys" in ran
    assert kept.compute()["n"].tolist() == KEPT


def test_a_look_whose_files_were_deleted_runs_again(docs, cluster):
    kept = docs.pipe(cdf.drop_exact_duplicates)
    kept.head(2)
    cluster.looks.folder.delete_tree("")
    assert kept.compute()["n"].tolist() == KEPT
    assert stages(cluster)


def test_too_small_a_disk_is_refused_before_a_look_starts(docs, cluster, monkeypatch):
    monkeypatch.setattr(Folder, "free_bytes", lambda self: 100)
    with pytest.raises(
        DiskFullError, match=r"needs .* for temporary files: .*100 .* are free in .*looks.*Nothing was started"
    ):
        docs.pipe(cdf.drop_exact_duplicates).head(2)
    assert not stages(cluster)


def test_a_disk_that_fills_during_a_look_is_named_and_nothing_stays(docs, cluster, monkeypatch):
    docs.pipe(cdf.drop_exact_duplicates).head(2)
    before = stages(cluster)

    def full(self, content):
        raise OSError(28, "No space left on device")

    longer = docs.pipe(cdf.drop_exact_duplicates).pipe(cdf.keep_where, "n < 30").pipe(cdf.drop_near_duplicates)
    with monkeypatch.context() as patched:
        patched.setattr(NewFile, "write", full)
        with pytest.raises(
            DiskFullError, match=r"No space is left in .*looks .*for the temporary files of drop_near_duplicates"
        ) as failed:
            longer.head(2)
    assert "deleted" in str(failed.value)
    assert stages(cluster) == before
    assert len(longer) == 15
