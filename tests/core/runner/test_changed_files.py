# SPDX-License-Identifier: Apache-2.0
"""Inputs and outputs that somebody changes, moves or deletes while a run goes on; on a small cluster that all tests share."""

import json
import os
import shutil

import pandas as pd
import pyarrow.parquet as pq
import pytest

import curator_df as cdf
from curator_df.core.runner import run
from curator_df.core.runner.events import StageStarted, TaskEnded
from curator_df.core.runner.session import current_session
from curator_df.errors import InputChangedError, OutputChangedError
from tests.core.runner.fake_client import inline_cluster

ROWS = 400


@pytest.fixture(scope="module", autouse=True)
def cluster():
    with inline_cluster("2GB", 1) as running:
        yield running


@pytest.fixture
def corpus(tmp_path, monkeypatch):
    monkeypatch.setattr(run, "SMALL_RANGE_BYTES", 2_000)
    (tmp_path / "in").mkdir()
    for part in range(2):
        write(tmp_path / f"in/{part}.jsonl", "a", part)
    return tmp_path / "in"


def write(path, letter, part):
    rows = ({"id": number, "text": f"{letter * 20} {number:04}"} for number in range(part, ROWS, 2))
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def ids(folder):
    files = sorted(path for path in folder.glob("*.parquet"))
    return sorted(pd.concat([pq.read_table(path).to_pandas() for path in files]).id.tolist())


@pytest.fixture
def at():
    """Do something once, when so many tasks of a stage are done (0: when it begins); tell whether it was done."""
    session, done = current_session(), []
    before = list(session.watchers)

    def at(stage, count, call):
        seen = []

        def watch(event):
            if isinstance(event, (StageStarted, TaskEnded)) and event.stage.endswith(stage):
                seen.append(event)
                if len(seen) == count + 1:
                    call()
                    done.append(stage)

        session.watchers.append(watch)
        return done

    yield at
    session.watchers[:] = before


@pytest.mark.parametrize("stage", ["keys", "write"])
@pytest.mark.parametrize("count", [0, 2])
def test_a_file_replaced_in_or_between_the_passes_of_a_drop_ends_the_run(corpus, tmp_path, at, stage, count):
    def replace():
        write(tmp_path / "new", "b", 1)
        os.replace(tmp_path / "new", corpus / "1.jsonl")

    docs = cdf.read_jsonl(corpus).pipe(cdf.drop_exact_duplicates)
    done = at(stage, count, replace)
    with pytest.raises(InputChangedError, match=r"in/1\.jsonl' changed .*: it was last modified at"):
        cdf.write_parquet(docs, tmp_path / "out")
    assert done
    with pytest.raises(cdf.errors.ResumeError, match=r"the list of input files .* changed"):
        cdf.write_parquet(
            cdf.read_jsonl(corpus).pipe(cdf.drop_exact_duplicates), tmp_path / "out", on_existing="resume"
        )
    assert not (tmp_path / "out/_curator/receipt.json").exists()


def keep_most(block):
    return block.id % 10 != 0


@pytest.mark.parametrize(
    ("which", "change"), [("out", "deleted"), ("rejects", "cut"), ("rejects", "moved"), ("out", "replaced")]
)
def test_files_of_finished_ranges_that_are_gone_end_the_run_which_then_resumes(corpus, tmp_path, at, which, change):
    def spoil():
        file = min((tmp_path / which).glob("*.parquet"))
        if change == "cut":
            os.truncate(file, 10)
        elif change == "deleted":
            file.unlink()
        elif change == "replaced":
            file.write_bytes(file.read_bytes()[::-1])
        else:
            file.rename(tmp_path / "elsewhere")

    docs = cdf.read_jsonl(corpus).curate.keep_where(keep_most)
    done = at("write", 4, spoil)
    how = {"rejects": tmp_path / "rejects"}
    with pytest.raises(OutputChangedError, match=rf"/{which}/part-\d+-\d+\.parquet' .*Files of 1 of \d+ finished"):
        cdf.write_parquet(docs, tmp_path / "out", **how)
    assert done
    assert not (tmp_path / "out/_curator/receipt.json").exists()
    receipt = cdf.write_parquet(docs, tmp_path / "out", on_existing="resume", **how)
    assert receipt.ranges - receipt.ranges_resumed == 1
    assert (receipt.rows_read, receipt.rows_written) == (ROWS, ROWS * 9 // 10)
    assert ids(tmp_path / "out") == [number for number in range(ROWS) if number % 10]
    assert ids(tmp_path / "rejects") == list(range(0, ROWS, 10))


def test_notes_that_are_gone_end_the_run(corpus, tmp_path, at):
    at("write", 4, (tmp_path / "out/_curator/done.jsonl").unlink)
    with pytest.raises(OutputChangedError, match=r"out/_curator/done\.jsonl' .* is now missing"):
        cdf.write_parquet(cdf.read_jsonl(corpus), tmp_path / "out")


@pytest.mark.parametrize(
    ("folder", "stage", "change"),
    [
        ("out", "write", "renamed"),
        ("out", "write", "deleted"),
        ("work", "keys", "deleted"),
        ("work", "merge", "renamed"),
    ],
)
def test_a_folder_that_is_renamed_or_deleted_under_the_run_is_named(corpus, tmp_path, at, folder, stage, change):
    def spoil():
        (tmp_path / folder).rename(tmp_path / "renamed")
        if change == "deleted":
            shutil.rmtree(tmp_path / "renamed", ignore_errors=True)

    docs = cdf.read_jsonl(corpus).pipe(cdf.drop_exact_duplicates)
    done = at(stage, 2 if stage != "merge" else 0, spoil)
    with pytest.raises(OutputChangedError, match=rf"/{folder}(/\S*)? was renamed, moved or deleted"):
        cdf.write_parquet(docs, tmp_path / "out", workdir=tmp_path / "work")
    assert done
    if change == "renamed":  # what was finished is of use, once it is back
        shutil.rmtree(tmp_path / folder, ignore_errors=True)
        (tmp_path / "renamed").rename(tmp_path / folder)
    how = "resume" if (tmp_path / "out/_curator/plan.json").exists() else "overwrite"
    receipt = cdf.write_parquet(docs, tmp_path / "out", workdir=tmp_path / "work", on_existing=how)
    assert receipt.rows_written == ROWS
    assert ids(tmp_path / "out") == list(range(ROWS))
