# SPDX-License-Identifier: Apache-2.0
"""Files between two stages that are damaged or gone are written again: whole runs in this process."""

import json
import os
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import curator_df as cdf
from curator_df.core.runner import passes, run
from curator_df.core.runner.session import close_session, open_session
from curator_df.core.tasks.task import run_guarded
from curator_df.dedup.near import grouping as near_grouping
from curator_df.dedup.near import stages as near_passes
from curator_df.dedup.near import stages as near_stages
from curator_df.errors import CorruptFileError
from curator_df.exchange import key_stages, keys
from curator_df.files.row_sort import merge_row_bytes
from tests.core.runner.fake_client import inline_cluster

ROWS = 400
EXPECTED = list(range(100))


@pytest.fixture(scope="module", autouse=True)
def cluster():
    with inline_cluster(memory="2GB", cpus=2) as running:
        yield running


@pytest.fixture(scope="module")
def workers(cluster):
    """Worker processes, for what is measured."""
    close_session(cluster)
    with cdf.start_cluster(memory="2GB", cpus=2) as running:
        yield running
    open_session(cluster)


@pytest.fixture
def docs(tmp_path, monkeypatch):
    monkeypatch.setattr(run, "SMALL_RANGE_BYTES", 1_000)
    (tmp_path / "in.jsonl").write_text(
        "".join(json.dumps({"id": n, "text": f"text {n % 100}"}) + "\n" for n in range(ROWS))
    )
    return cdf.read_jsonl(tmp_path / "in.jsonl").curate.drop_exact_duplicates()


@pytest.fixture
def near_corpus(tmp_path, monkeypatch):
    """Rows of which row n + 100 k has the words of row n, and one more that is k."""
    monkeypatch.setattr(run, "SMALL_RANGE_BYTES", 20_000)
    lines = []
    for n in range(ROWS):
        words = " ".join(f"w{n % 100}.{i}" for i in range(80))
        lines.append(json.dumps({"id": n, "text": f"{words} {n // 100}"}) + "\n")
    (tmp_path / "near.jsonl").write_text("".join(lines))
    return cdf.read_jsonl(tmp_path / "near.jsonl")


@pytest.fixture
def docs_with_near(near_corpus):
    return near_corpus.pipe(cdf.drop_near_duplicates, scheme=cdf.minhash.FINEWEB, jaccard_threshold=0.8)


def ids_in(folder):
    return [number for path in sorted(folder.glob("*.parquet")) for number in pq.read_table(path)["id"].to_pylist()]


def flip_a_byte(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0xFF
    path.write_bytes(content)


def empty(path):
    path.write_bytes(b"")


def cut_short(path):
    path.write_bytes(path.read_bytes()[:-20])


@pytest.mark.parametrize("damage", [flip_a_byte, cut_short, Path.unlink])
def test_a_damaged_key_file_is_written_again(docs, tmp_path, monkeypatch, damage):
    """The file is damaged between the pass that writes keys and the merge that reads them."""
    merge, damaged = key_stages.KeyStages._merge, []

    def damage_once(run, name, exchange, files, count):
        if not damaged:
            damaged.append(Path(run.home.path(files[3].name)))
            damage(damaged[0])
        return merge(run, name, exchange, files, count)

    monkeypatch.setattr(key_stages.KeyStages, "_merge", damage_once)
    receipt = cdf.write_parquet(docs, tmp_path / "out")
    assert damaged
    assert ids_in(tmp_path / "out") == EXPECTED
    assert receipt.rows_read == ROWS


@pytest.mark.parametrize("kind", ["keys", "texts", "locations"])
@pytest.mark.parametrize("damage", [empty, Path.unlink])
def test_files_of_near_duplicates_that_a_crash_took_are_written_again(
    docs_with_near, tmp_path, monkeypatch, kind, damage
):
    """After a crash of the machine, files that were not waited for may be empty or gone, all of them."""
    name, damaged = "take_keys" if kind == "keys" else "fetch_texts", []
    write = getattr(near_passes.NearPasses, name)

    def damage_once(passes, *given, **how):
        manifests = write(passes, *given, **how)
        if not damaged:
            damaged.extend((tmp_path / "out/_curator/stages").glob(f"*/{kind}/part-*"))
            for path in damaged:
                damage(path)
        return manifests

    monkeypatch.setattr(near_passes.NearPasses, name, damage_once)
    receipt = cdf.write_parquet(docs_with_near, tmp_path / "out")
    assert len(damaged) > 3
    assert ids_in(tmp_path / "out") == EXPECTED
    assert receipt.rows_read == ROWS


def test_a_file_that_stays_damaged_is_an_error_that_names_it(docs, tmp_path, monkeypatch):
    merge = key_stages.KeyStages._merge

    def damage_always(run, name, exchange, files, count):
        flip_a_byte(Path(run.home.path(files[3].name)))
        return merge(run, name, exchange, files, count)

    monkeypatch.setattr(key_stages.KeyStages, "_merge", damage_always)
    with pytest.raises(CorruptFileError, match=r"keys/part-000003\.slices is damaged"):
        cdf.write_parquet(docs, tmp_path / "out")


def test_files_of_drops_that_are_gone_are_written_again_by_a_resumed_run(docs, tmp_path, monkeypatch):
    dispatch = run.Dispatcher.run

    def stop_before_the_last_pass(dispatcher, pieces):
        job = dispatcher.job
        if job.__class__.__name__ == "Job" and job.fork.branches[0].sink.folder.url == str(tmp_path / "out"):
            raise KeyboardInterrupt
        dispatch(dispatcher, pieces)

    monkeypatch.setattr(run.Dispatcher, "run", stop_before_the_last_pass)
    with pytest.raises(KeyboardInterrupt):
        cdf.write_parquet(docs, tmp_path / "out")
    monkeypatch.undo()
    for path in (tmp_path / "out/_curator/stages").glob("*/drops/*"):
        path.unlink()
    monkeypatch.setattr(run, "SMALL_RANGE_BYTES", 1_000)
    cdf.write_parquet(docs, tmp_path / "out", on_existing="resume")
    assert ids_in(tmp_path / "out") == EXPECTED


def stop(*_, **__):
    raise KeyboardInterrupt


def lose_notes(out, stage, left):
    """Leave so many notes of finished tasks in a stage's journal, as a machine may that went down; return how many were lost."""
    (journal,) = (out / "_curator/stages").glob(f"*/{stage}/_curator/done.jsonl")
    notes = journal.read_bytes().splitlines(keepends=True)
    journal.write_bytes(b"".join(notes[:left]))
    return len(notes) - left


@pytest.mark.parametrize("left", [0, 1])
def test_merges_whose_notes_a_crash_took_are_run_again(docs, tmp_path, monkeypatch, left):
    project = keys.project_exchange
    monkeypatch.setattr(keys, "project_exchange", lambda *given, **how: project(*given, **{**how, "reducers": 8}))
    with monkeypatch.context() as patched:
        patched.setattr(key_stages, "Found", stop)  # when drops are found and keys are gone
        with pytest.raises(KeyboardInterrupt):
            cdf.write_parquet(docs, tmp_path / "out")
    assert not list((tmp_path / "out/_curator/stages").glob("*/keys/*"))
    assert lose_notes(tmp_path / "out", "merge", left) == 8 - left
    receipt = cdf.write_parquet(docs, tmp_path / "out", on_existing="resume")
    assert ids_in(tmp_path / "out") == EXPECTED
    assert receipt.rows_written == len(EXPECTED)


def test_comparisons_whose_notes_a_crash_took_are_run_again(docs_with_near, tmp_path, monkeypatch):
    with monkeypatch.context() as patched:
        patched.setattr(near_stages, "cover_rows", stop)
        with pytest.raises(KeyboardInterrupt):
            cdf.write_parquet(docs_with_near, tmp_path / "out")
    assert not list((tmp_path / "out/_curator/stages").glob("*/keys/*"))
    assert lose_notes(tmp_path / "out", "contents", 0) > 0
    cdf.write_parquet(docs_with_near, tmp_path / "out", on_existing="resume")
    assert ids_in(tmp_path / "out") == EXPECTED


@pytest.mark.parametrize("damage", [empty, Path.unlink])
def test_pairs_that_are_lost_are_made_again_from_the_keys(docs_with_near, tmp_path, monkeypatch, damage):
    with monkeypatch.context() as patched:
        patched.setattr(near_stages, "cover_rows", stop)
        with pytest.raises(KeyboardInterrupt):
            cdf.write_parquet(docs_with_near, tmp_path / "out")
    pairs = list((tmp_path / "out/_curator/stages").glob("*/iteration-*/edges/part-*"))
    assert pairs
    for path in pairs:
        damage(path)
    for path in (tmp_path / "out/_curator/stages").glob("*/verify/_curator/receipt.json"):
        path.unlink()  # so that pairs are read again
    cdf.write_parquet(docs_with_near, tmp_path / "out", on_existing="resume")
    assert ids_in(tmp_path / "out") == EXPECTED


def test_links_of_groups_that_are_lost_are_made_again_from_the_edges(near_corpus, tmp_path, monkeypatch):
    docs = near_corpus.pipe(
        cdf.drop_near_duplicates, scheme=cdf.minhash.FINEWEB, jaccard_threshold=0.8, linkage="transitive"
    )

    def no_room(job_bytes, attempt):
        return run_guarded(attempt, lambda manifest: None)

    monkeypatch.setattr(near_grouping, "run_components", no_room)  # so they are made on disk
    link = near_grouping._stars

    def link_and_stop(*given):
        link(*given)
        stop()

    with monkeypatch.context() as patched:
        patched.setattr(near_grouping, "_stars", link_and_stop)
        with pytest.raises(KeyboardInterrupt):
            cdf.write_parquet(docs, tmp_path / "out")
    links = list((tmp_path / "out/_curator/stages").glob("*/stars/round-*/small/part-*"))
    assert links
    for path in links:
        path.unlink()
    cdf.write_parquet(docs, tmp_path / "out", on_existing="resume")
    assert ids_in(tmp_path / "out") == EXPECTED


def test_all_notes_are_on_disk_when_the_tasks_of_a_stage_are_done(docs_with_near, tmp_path, monkeypatch):
    synced, sync, run_tasks = {}, os.fsync, passes.PassRunner.run_tasks
    seen = []

    def sync_and_note(descriptor):
        sync(descriptor)
        synced[os.readlink(f"/proc/self/fd/{descriptor}")] = os.fstat(descriptor).st_size

    def run_and_look(runner, journal, *given, **how):
        done = run_tasks(runner, journal, *given, **how)
        notes = Path(journal.folder.path("_curator/done.jsonl"))
        if done:
            assert synced[str(notes)] == notes.stat().st_size > 0
            seen.append(journal.folder.url)
        return done

    monkeypatch.setattr(os, "fsync", sync_and_note)
    monkeypatch.setattr(passes.PassRunner, "run_tasks", run_and_look)
    cdf.write_parquet(docs_with_near, tmp_path / "out")
    assert {Path(url).name for url in seen} >= {"contents", "buckets", "pairs", "fetch", "compare"}


def test_what_ran_again_before_the_last_pass_is_in_the_receipt(tmp_path, monkeypatch):
    monkeypatch.setattr(run, "SMALL_RANGE_BYTES", 1_000)
    rows = "".join(json.dumps({"id": n, "text": f"text {n % 100}"}) + "\n" for n in range(ROWS))
    (tmp_path / "in.jsonl").write_text(rows)
    marker = str(tmp_path / "failed")

    def fails_at_first(block):
        if len(block) and not Path(marker).exists():  # in the pass that takes keys
            Path(marker).touch()
            raise MemoryError("for once")
        return block

    table = cdf.read_jsonl(tmp_path / "in.jsonl")
    table = table.map_partitions(fails_at_first, meta=table._meta).curate.drop_exact_duplicates()
    receipt = cdf.write_parquet(table, tmp_path / "out")
    assert ids_in(tmp_path / "out") == EXPECTED
    assert set(receipt.retries) == {"memory"}


@pytest.mark.proof  # a whole run with many keys is below its estimate in tests/contracts/test_budget.py
@pytest.mark.parametrize("find", [False, True], ids=["drop", "find"])
def test_the_projection_of_a_receipt_has_room_for_keys_that_were_many(workers, tmp_path, find):
    rows = 1_200_000
    pq.write_table(pa.table({"text": pa.array([f"{n % 1_000_000}" for n in range(rows)])}), tmp_path / "in.parquet")
    docs = cdf.read_parquet(tmp_path / "in.parquet", blocksize="1MB")
    chain = docs.curate.drop_exact_duplicates()
    planned = cdf.explain(chain)
    if find:
        receipt = cdf.read_receipt(cdf.find_exact_duplicates(docs, workdir=tmp_path / "work"))
    else:
        receipt = cdf.write_parquet(chain, tmp_path / "out")
    [exchange] = receipt.exchanges
    assert (exchange.keys, exchange.unique) == (rows, 1_000_000)
    room = merge_row_bytes(3) * rows / exchange.hash_ranges
    assert planned.layout.threads * planned.stages[-1].task_bytes < room < planned.layout.thread_bytes
    assert planned.projected_bytes + room < receipt.projected_bytes <= receipt.allowed_bytes
    assert receipt.measured_bytes <= receipt.projected_bytes
