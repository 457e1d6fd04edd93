# SPDX-License-Identifier: Apache-2.0
"""The runner from files to files: whole runs in this process, and at the end some on worker processes."""

import json
import os
import signal
import sys
import threading
import time

import pandas as pd
import pyarrow.parquet as pq
import pytest

import curator_df as cdf
from curator_df import errors
from curator_df.core.runner import passes as stages
from curator_df.core.runner import run
from curator_df.core.runner import session as sessions
from curator_df.core.runner.dispatch import Dispatcher
from curator_df.core.tasks.task import Job
from curator_df.memory.budget import MARGIN_FRACTION, choose_layout
from curator_df.memory.sizes import read_size
from tests.core.runner.fake_client import inline_cluster


def write_rows(path, count, start=0, words=30):
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = (
        {"id": i, "text": f"row {i} " + "word " * words, "lang": ("en", "de", None)[i % 3]}
        for i in range(start, start + count)
    )
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def rows_of(folder):
    files = sorted(path for path in folder.rglob("*.parquet") if "_curator" not in path.parts)
    return pd.concat([pq.read_table(path, partitioning=None).to_pandas() for path in files], ignore_index=True)


def is_even(block):
    return block.id % 2 == 0


def fails_on_seven(block):
    if (block.id == 7).any():
        raise ZeroDivisionError("seven")
    return block.id >= 0


@pytest.fixture(scope="module", autouse=True)
def cluster():
    with inline_cluster(memory="2GB", cpus=2) as running:
        yield running


@pytest.fixture(scope="module")
def workers(cluster):
    """Worker processes; open from the first test that takes them on, so that these come last."""
    sessions.close_session(cluster)
    with cdf.start_cluster(memory="2GB", cpus=2) as running:
        yield running
    sessions.open_session(cluster)


@pytest.fixture
def corpus(tmp_path):
    for part in range(3):
        write_rows(tmp_path / f"in/part-{part}.jsonl", 500, start=500 * part)
    return str(tmp_path / "in")


def test_dropped_rows_have_reasons_and_can_be_kept(corpus, tmp_path):
    docs = cdf.read_jsonl(corpus)
    docs = docs[docs.id >= 10].curate.keep_where(is_even, reason="odd")
    receipt = cdf.write_parquet(docs, tmp_path / "out", rejects=tmp_path / "rejects")
    assert receipt.reasons()[["step", "reason", "rows"]].values.tolist() == [
        ["keep_where", "odd", 745],
        ["filter", "filtered", 10],
    ]
    rejects = rows_of(tmp_path / "rejects")
    assert sorted(rejects.id) == sorted([*range(10), *range(11, 1500, 2)])
    first = rejects[rejects.id == 501].iloc[0]
    assert first.reject_reason == "odd"
    assert first.reject_file.endswith("part-1.jsonl")
    assert first.reject_offset == len((tmp_path / "in/part-1.jsonl").read_bytes().splitlines(keepends=True)[0])


def test_a_full_folder_is_refused_and_the_error_names_the_ways_out(corpus, tmp_path):
    docs = cdf.read_jsonl(corpus)
    cdf.write_parquet(docs, tmp_path / "out")
    with pytest.raises(errors.OutputExistsError, match=r"(?s)'resume'.*'overwrite'"):
        cdf.write_parquet(docs, tmp_path / "out")
    assert cdf.write_parquet(docs, tmp_path / "out", on_existing="resume").rows_written == 1500
    assert cdf.write_parquet(docs[docs.id < 5], tmp_path / "out", on_existing="overwrite").rows_written == 5
    assert rows_of(tmp_path / "out").id.tolist() == list(range(5))


def test_overwrite_deletes_nothing_that_a_run_did_not_write(corpus, tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out/thesis.txt").write_text("mine")
    with pytest.raises(errors.OutputExistsError, match=r"thesis\.txt"):
        cdf.write_parquet(cdf.read_jsonl(corpus), tmp_path / "out", on_existing="overwrite")
    assert (tmp_path / "out/thesis.txt").read_text() == "mine"


def test_another_program_cannot_resume(corpus, tmp_path):
    docs = cdf.read_jsonl(corpus)
    with pytest.raises(errors.OperatorError):
        cdf.write_parquet(docs.curate.keep_where(fails_on_seven), tmp_path / "out")
    with pytest.raises(errors.ResumeError, match=r"in step 1 \(keep_where\), predicate changed from the function"):
        cdf.write_parquet(docs.curate.keep_where(is_even), tmp_path / "out", on_existing="resume")


def test_a_list_of_values_filters_and_resumes_as_the_same_program(corpus, tmp_path):
    docs = cdf.read_jsonl(corpus, blocksize="20kB")
    first = cdf.write_parquet(docs[docs["lang"].isin(["en", "fr"])], tmp_path / "out")
    assert rows_of(tmp_path / "out").id.tolist() == list(range(0, 1500, 3))
    again = cdf.write_parquet(docs[docs["lang"].isin(["fr", "en"])], tmp_path / "out", on_existing="resume")
    assert again.rows_written == first.rows_written == 500
    with pytest.raises(errors.ResumeError):
        cdf.write_parquet(docs[docs["lang"].isin(["en", "de"])], tmp_path / "out", on_existing="resume")


def test_another_value_of_a_global_of_the_notebook_cannot_resume(corpus, tmp_path):
    def longer_than(least):
        space = {"__name__": "__main__", "LEAST": least}
        exec("keep = lambda block: block.id > LEAST", space)
        return cdf.read_jsonl(corpus).curate.keep_where(space["keep"])

    cdf.write_parquet(longer_than(5), tmp_path / "out")
    cdf.write_parquet(longer_than(5), tmp_path / "out", on_existing="resume")
    with pytest.raises(errors.ResumeError):
        cdf.write_parquet(longer_than(10), tmp_path / "out", on_existing="resume")


def test_changed_input_cannot_resume(corpus, tmp_path):
    with pytest.raises(errors.OperatorError):
        cdf.write_parquet(cdf.read_jsonl(corpus).curate.keep_where(fails_on_seven), tmp_path / "out")
    write_rows(tmp_path / "in/part-9.jsonl", 1)
    with pytest.raises(errors.ResumeError, match=r"the list of input files .* changed"):
        cdf.write_parquet(
            cdf.read_jsonl(corpus).curate.keep_where(fails_on_seven), tmp_path / "out", on_existing="resume"
        )


def test_an_exception_in_a_users_function_names_step_and_place(corpus, tmp_path):
    with pytest.raises(
        errors.OperatorError, match=r"(?s)keep_where.*ZeroDivisionError: seven.*part-0\.jsonl.*on_error='quarantine'"
    ):
        cdf.write_parquet(cdf.read_jsonl(corpus).curate.keep_where(fails_on_seven), tmp_path / "out")


def test_rows_on_which_a_users_function_raises_can_be_set_aside(corpus, tmp_path):
    docs = cdf.read_jsonl(corpus).curate.keep_where(fails_on_seven)
    receipt = cdf.write_parquet(docs, tmp_path / "out", on_error="quarantine")
    assert (receipt.rows_quarantined, receipt.rows_written) == (1, 1499)
    (aside,) = (tmp_path / "out/_quarantine").iterdir()
    record = json.loads(aside.read_text())
    assert "ZeroDivisionError: seven" in record["reason"]
    assert json.loads(record["raw"])["id"] == 7


def test_bad_rows_stop_the_run_or_are_set_aside(tmp_path):
    write_rows(tmp_path / "in/a.jsonl", 10)
    with open(tmp_path / "in/a.jsonl", "a") as file:
        file.write('{"id": 10, "text":\n')
    with pytest.raises(errors.BadRowError, match=r"(?s)a\.jsonl.*line 11"):
        cdf.write_parquet(cdf.read_jsonl(str(tmp_path / "in")), tmp_path / "out")
    receipt = cdf.write_parquet(cdf.read_jsonl(str(tmp_path / "in"), on_bad_rows="quarantine"), tmp_path / "out2")
    assert (receipt.rows_read, receipt.rows_written, receipt.rows_quarantined) == (11, 10, 1)
    (aside,) = (tmp_path / "out2/_quarantine").iterdir()
    assert json.loads(aside.read_text())["raw"] == '{"id": 10, "text":'


def test_partitions_by_value_are_hive_folders(corpus, tmp_path):
    cdf.write_parquet(cdf.read_jsonl(corpus), tmp_path / "out", partition_on="lang")
    names = sorted(path.name for path in (tmp_path / "out").iterdir() if not path.name.startswith("_"))
    assert names == ["lang=__HIVE_DEFAULT_PARTITION__", "lang=de", "lang=en"]
    assert rows_of(tmp_path / "out/lang=de").columns.tolist() == ["id", "text"]
    assert rows_of(tmp_path / "out/lang=de").id.tolist() == list(range(1, 1500, 3))


def test_values_that_are_no_folder_names_are_encoded(tmp_path):
    names = ["../up", "a/b", "", "100%", "ünï"]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps({"text": "x", "site": name}) + "\n" for name in names))
    cdf.write_parquet(cdf.read_jsonl(str(tmp_path / "a.jsonl")), tmp_path / "out", partition_on="site")
    table = pq.read_table(tmp_path / "out", partitioning="hive")
    assert sorted(value or "" for value in table["site"].to_pylist()) == sorted(names)
    assert not (tmp_path / "up").exists()


def test_json_lines_come_back_as_they_were(corpus, tmp_path):
    for compression in ("none", "gzip", "zstd"):
        cdf.write_jsonl(cdf.read_jsonl(corpus), tmp_path / compression, compression=compression)
        again = cdf.read_jsonl(str(tmp_path / compression)).compute()
        assert again.reset_index(drop=True).equals(cdf.read_jsonl(corpus).compute().reset_index(drop=True))


def test_an_output_without_rows_still_has_columns(corpus, tmp_path):
    docs = cdf.read_jsonl(corpus)
    receipt = cdf.write_parquet(docs[docs.id < 0], tmp_path / "out")
    assert receipt.rows_written == 0
    assert cdf.read_parquet(str(tmp_path / "out")).columns.tolist() == ["id", "text", "lang"]


def test_reading_rejects_of_a_run_that_rejected_nothing_says_so(corpus, tmp_path):
    cdf.write_parquet(cdf.read_jsonl(corpus), tmp_path / "out", rejects=tmp_path / "rejects")
    with pytest.raises(errors.InputError, match="It is the folder of a run that has written no rows to it"):
        cdf.read_parquet(tmp_path / "rejects")


def test_the_same_rows_for_every_block_size(corpus, tmp_path):
    found = []
    for number, blocksize in enumerate([700, 20_000, "16MB"]):
        docs = cdf.read_jsonl(corpus, blocksize=blocksize).curate.keep_where(is_even)
        cdf.write_parquet(docs, tmp_path / f"out{number}")
        found.append(rows_of(tmp_path / f"out{number}"))
    assert all(found[0].equals(other) for other in found[1:])


def test_large_files_are_finished_at_the_target_size(corpus, tmp_path):
    receipt = cdf.write_parquet(
        cdf.read_jsonl(corpus, blocksize=20_000), tmp_path / "out", target_file_size=2_000, compression="none"
    )
    assert receipt.files > 3
    assert rows_of(tmp_path / "out").id.tolist() == list(range(1500))


def test_a_block_size_that_cannot_fit_is_refused_before_the_first_task(corpus, tmp_path):
    docs = cdf.read_jsonl(corpus, blocksize="1GB")
    with pytest.raises(errors.BudgetError, match=r"blocksize='[\d.]+[kMG]B' or memory='[\d.]+[MG]B'"):
        cdf.write_parquet(docs, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_the_refusal_is_exact_at_the_limit(corpus, cluster, monkeypatch):
    # The process of the tests may grow from one plan to the next.
    layout = sessions.current_session().weigh_client()
    monkeypatch.setattr(sessions.Session, "weigh_client", lambda session: layout)
    with pytest.raises(errors.BudgetError) as refused:
        cdf.explain(cdf.read_jsonl(corpus, blocksize="1GB"))
    fits = read_size("blocksize", str(refused.value).split("blocksize=")[1].split(" ")[0].strip("'"))
    cdf.explain(cdf.read_jsonl(corpus, blocksize=fits))
    with pytest.raises(errors.BudgetError):
        cdf.explain(cdf.read_jsonl(corpus, blocksize=int(fits * 1.01)))
    memory = read_size("memory", str(refused.value).split("memory=")[1].strip("'"))
    cdf.explain(cdf.read_jsonl(corpus, blocksize="1GB"), memory=memory, cpus=2)
    # What this process held when the cluster started is in that number, and a plan for another process does not count it.
    held_bytes = cluster.layout.reserved_bytes - choose_layout(cluster.layout.allowed_bytes, cpus=2).reserved_bytes
    least = (memory - held_bytes / (1 - MARGIN_FRACTION)) / 1.01 * 0.99  # the message has three digits
    with pytest.raises(errors.BudgetError):
        cdf.explain(cdf.read_jsonl(corpus, blocksize="1GB"), memory=int(least), cpus=2)


def test_a_plan_of_steps_that_need_several_blocks_says_what_dask_computes_first(corpus):
    docs = cdf.read_jsonl(corpus)
    for foreign, step in ((docs.sort_values("id"), "sort_values"), (docs.merge(docs, on="id"), "merge")):
        said = dict(cdf.explain(foreign).remarks)["working files"]
        assert said.startswith(f"Dask computes {step} first and writes its rows to ")
    with pytest.raises(errors.ExpressionError, match="draws rows block by block"):
        cdf.explain(docs.sample(frac=0.5))


def test_a_block_that_is_not_as_announced_is_named(corpus, tmp_path):
    docs = cdf.read_jsonl(corpus)
    wrong = docs.map_partitions(
        lambda block: block.rename(columns={"id": "key"}), meta=docs._meta, enforce_metadata=False
    )
    with pytest.raises(errors.SchemaError, match="key"):
        cdf.write_parquet(wrong, tmp_path / "out")


def ends_the_program(block):
    sys.exit(3)


@pytest.mark.parametrize(
    "add",
    [
        lambda docs: docs.pipe(cdf.keep_where, ends_the_program),
        lambda docs: docs.map_partitions(ends_the_program, meta=docs._meta),
    ],
)
def test_a_step_that_calls_exit_is_an_error_and_not_the_end_of_the_program(corpus, tmp_path, add):
    with pytest.raises(Exception, match=r"called sys\.exit\(3\)"):
        cdf.write_parquet(add(cdf.read_jsonl(corpus)), tmp_path / "out")


def test_a_missing_partition_column_is_named(corpus, tmp_path):
    with pytest.raises(errors.ColumnError, match="'site'; the table has: 'id', 'text', 'lang'"):
        cdf.write_parquet(cdf.read_jsonl(corpus), tmp_path / "out", partition_on="site")


def test_files_that_no_finished_range_wrote_are_gone_at_the_end(tmp_path):
    """A worker that dies between making its files visible and telling so leaves them; its range is run again."""
    source = tmp_path / "in.jsonl"
    source.write_text("".join(json.dumps({"id": n, "text": "a"}) + "\n" for n in range(9)))
    out, rejects = tmp_path / "out", tmp_path / "rejects"

    def leave_files(block, folders=(str(out), str(rejects))):
        for folder in folders:
            os.makedirs(folder, exist_ok=True)
            with open(f"{folder}/part-000000-077.parquet", "wb") as file:
                file.write(b"of an attempt that died")
        return block

    docs = cdf.read_jsonl(source)
    chain = docs.map_partitions(leave_files, meta=docs._meta).curate.keep_where("id > 3")
    cdf.write_parquet(chain, out, rejects=rejects)
    assert [path.name for path in out.glob("*.parquet")] == ["part-000000-000.parquet"]
    assert [path.name for path in rejects.glob("*.parquet")] == ["part-000000-000.parquet"]


def without_memory_for_many(block):
    if len(block) > 600:
        raise MemoryError
    return block.id >= 0


def test_a_pass_begins_with_the_blocks_that_the_one_before_came_to(tmp_path, monkeypatch):
    class Watched(Dispatcher):
        def __post_init__(self):
            super().__post_init__()
            if isinstance(self.job, Job):
                began.append((self.start_bytes, self.stage.block_bytes))

    began = []
    for module in (run, stages):
        monkeypatch.setattr(module, "Dispatcher", Watched)
    for part in range(8):
        write_rows(tmp_path / f"in/part-{part}.jsonl", 2_000, start=2_000 * part)
    monkeypatch.setattr(run, "SMALL_RANGE_BYTES", 300_000)
    docs = cdf.read_jsonl(str(tmp_path / "in"), blocksize="400kB").pipe(cdf.keep_where, without_memory_for_many)
    receipt = cdf.write_parquet(docs.pipe(cdf.drop_exact_duplicates), tmp_path / "out")
    (first, whole), (second, same) = began
    assert first == whole == same
    assert second <= whole // 2
    assert "after input splits ran out of memory" in receipt.settings["blocks"]
    assert rows_of(tmp_path / "out").id.tolist() == list(range(16_000))


def test_all_rows_come_out_in_order_with_a_receipt(workers, corpus, tmp_path):
    receipt = cdf.write_parquet(cdf.read_jsonl(corpus), tmp_path / "out")
    assert rows_of(tmp_path / "out").id.tolist() == list(range(1500))
    assert (receipt.rows_read, receipt.rows_written, receipt.rows_dropped) == (1500, 1500, 0)
    assert receipt.to_frame().step.tolist() == ["read", "write"]
    assert 0 < receipt.measured_bytes <= receipt.allowed_bytes
    assert "1,500 read" in str(receipt)
    assert "<table>" in receipt._repr_html_()


class Slow:
    """Notes when it begins and ends with a block; raises on the first row, while another block is at work."""

    def __init__(self, notes):
        self.notes = str(notes)

    def __call__(self, block):
        self.note("begins")
        time.sleep(0.5 if (block.id == 0).any() else 2)
        if (block.id == 0).any():
            raise ZeroDivisionError("first row")
        self.note("ends")
        return block.id >= 0

    def note(self, what):
        with open(self.notes, "a") as notes:
            notes.write(what + "\n")


def test_nothing_of_a_run_works_after_its_error(workers, corpus, tmp_path, monkeypatch):
    monkeypatch.setattr(run, "SMALL_RANGE_BYTES", 5_000)
    notes = tmp_path / "notes"
    with pytest.raises(errors.OperatorError, match="first row"):
        cdf.write_parquet(cdf.read_jsonl(corpus).curate.keep_where(Slow(notes)), tmp_path / "out")
    done, files = notes.read_text().split(), sorted((tmp_path / "out").rglob("*"))
    assert done.count("begins") == done.count("ends") + 1 >= 2
    time.sleep(2.5)
    assert (notes.read_text().split(), sorted((tmp_path / "out").rglob("*"))) == (done, files)


def test_what_a_worker_told_before_it_died_is_told_again(workers, corpus, tmp_path):
    """The client hears late that tasks ended, and by then their workers are dead."""
    client, heard, results = workers.client, threading.Event(), []
    before = client.submit(abs, 1)
    before.add_done_callback(lambda _: heard.wait())  # the thread that calls back has this to do first
    write = threading.Thread(
        target=lambda: results.append(cdf.write_parquet(cdf.read_jsonl(corpus), tmp_path / "out", on_oom="raise"))
    )
    write.start()
    until(lambda: has_results(client) and not any(client.processing().values()))  # what is in work would fail
    killed = client.run(os.getpid)
    for process in killed.values():
        os.kill(process, signal.SIGKILL)
    until(lambda: not killed.keys() & client.has_what().keys())  # whatever restarted workers have by now
    heard.set()
    write.join()
    assert rows_of(tmp_path / "out").id.tolist() == list(range(1500))
    assert results[0].rows_written == 1500


def has_results(client):
    return any(key.startswith("curate-range") for keys in client.has_what().values() for key in keys)


def until(condition, seconds=60):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)
