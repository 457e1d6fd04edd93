# SPDX-License-Identifier: Apache-2.0
"""Disks that are full, files that someone cut, and two runs that want the same folder."""

import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys

import pytest

import curator_df as cdf
from curator_df.cluster.spill_folder import LOCK, SpillFolder
from tests.faults.runs import EXPECTED, PATIENCE_SECONDS, ROWS, finish, ids, wait_for_ranges, write_corpus

KEYS = "_curator/stages/*/_curator/done.jsonl"
LONG = pytest.mark.timeout(3 * PATIENCE_SECONDS)
UNIQUE = [number for number in EXPECTED if number < ROWS // 2]


def kill(process):
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()


def cut(path):
    size = path.stat().st_size
    os.truncate(path, size // 2)


@pytest.mark.proof
@LONG
def test_a_file_that_was_cut_before_the_run_resumes_is_written_again(start, script, corpus, tmp_path):
    out = tmp_path / "out"
    process = start(script, corpus, out)
    wait_for_ranges(out, 3, process)
    kill(process)
    done = [json.loads(line) for line in (out / "_curator/done.jsonl").read_text().splitlines()]
    cut(out / done[0]["files"][0]["name"])
    (out / done[1]["files"][0]["name"]).unlink()
    receipt = finish(start(script, corpus, out, on_existing="resume", SLEEP="0"))
    assert receipt["ranges_resumed"] == len(done) - 2
    assert (receipt["rows_read"], receipt["rows_written"]) == (ROWS, len(EXPECTED))
    assert ids(out) == EXPECTED
    # Also when the run was complete; the notes of the first attempt are still in the journal.
    cut(out / done[2]["files"][0]["name"])
    receipt = finish(start(script, corpus, out, on_existing="resume", SLEEP="0"))
    assert receipt["ranges_resumed"] == receipt["ranges"] - 1
    assert receipt["rows_written"] == len(EXPECTED)
    assert ids(out) == EXPECTED


def test_a_folder_that_a_killed_session_left_goes_at_the_next_start(tmp_path):
    program = (
        "import signal, sys; from curator_df.cluster.spill_folder import SpillFolder; "
        "folder = SpillFolder(sys.argv[1]); print(folder.path, flush=True); signal.pause()"
    )
    killed = subprocess.Popen([sys.executable, "-c", program, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    left = killed.stdout.readline().strip()
    mine = SpillFolder(str(tmp_path))
    assert os.path.isdir(left)  # it lives
    killed.kill()
    killed.communicate()
    mine.delete()
    strange = tmp_path / "curator-df-by-hand"
    strange.mkdir()
    elsewhere = tmp_path / "curator-df-elsewhere"
    elsewhere.mkdir()
    (elsewhere / LOCK).write_text("another-machine")
    again = SpillFolder(str(tmp_path))
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(
        [os.path.basename(again.path), strange.name, elsewhere.name]
    )
    again.delete()
    assert not os.path.exists(again.path)


@pytest.mark.proof
@LONG
def test_a_killed_run_leaves_a_spill_folder_that_the_next_one_deletes(start, script, corpus, tmp_path):
    spill = tmp_path / "spill"
    spill.mkdir()
    process = start(script, corpus, tmp_path / "out", SPILL=str(spill))
    wait_for_ranges(tmp_path / "out", 2, process)
    kill(process)
    assert len(list(spill.iterdir())) == 1
    finish(start(script, corpus, tmp_path / "out", on_existing="resume", SPILL=str(spill), SLEEP="0"))
    assert list(spill.iterdir()) == []
    assert ids(tmp_path / "out") == EXPECTED


@pytest.mark.proof
@LONG
@pytest.mark.parametrize("damage", ["cut", "one byte"])
def test_a_damaged_file_of_keys_is_written_again(start, script, corpus, tmp_path, damage):
    write_corpus(corpus / "a.jsonl", ROWS // 2)
    out = tmp_path / "out"
    process = start(script, corpus, out, DROP="1", SLEEP="0.2")
    wait_for_ranges(out, 3, process, KEYS)
    kill(process)
    files = sorted(path for path in out.glob("_curator/stages/*/keys/**/*") if path.is_file())
    assert files
    if damage == "cut":
        cut(files[0])
    else:
        with open(files[0], "r+b") as file:
            file.seek(files[0].stat().st_size // 2)
            byte = file.read(1)
            file.seek(-1, os.SEEK_CUR)
            file.write(bytes([byte[0] ^ 255]))
    receipt = finish(start(script, corpus, out, on_existing="resume", DROP="1", SLEEP="0"))
    assert receipt["rows_read"] == ROWS
    assert ids(out) == UNIQUE


@pytest.mark.proof
@LONG
def test_a_full_disk_for_temporary_files_is_a_clear_error_and_the_run_resumes(
    start, script, corpus, tmp_path, small_disk
):
    write_corpus(corpus / "a.jsonl", ROWS // 2)
    out = tmp_path / "out"
    filler = small_disk / "filler"
    filler.write_bytes(b"x" * 570_000)
    there = {"DROP": "1", "WORKDIR": str(small_disk / "work"), "SLEEP": "0"}
    process = start(script, corpus, out, **there)
    _, err = process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode != 0
    assert "DiskFullError: " in err
    filler.unlink()
    assert finish(start(script, corpus, out, on_existing="resume", **there))["rows_read"] == ROWS
    assert ids(out) == UNIQUE


@pytest.mark.proof  # tests/files/test_storage.py names the folder, and tests/faults/test_runs.py fills a disk
@LONG
def test_a_full_disk_for_rejects_is_the_one_that_is_named_and_the_run_resumes(
    start, script, corpus, tmp_path, small_disk
):
    filler, rejects = small_disk / "filler", small_disk / "rejects"
    filler.write_bytes(b"x" * 560_000)
    there = {"REJECTS": str(rejects), "SLEEP": "0"}
    process = start(script, corpus, tmp_path / "out", **there)
    _, err = process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode != 0
    assert f"DiskFullError: no space left in {rejects} (" in err
    filler.unlink()
    receipt = finish(start(script, corpus, tmp_path / "out", on_existing="resume", **there))
    assert receipt["rows_read"] == ROWS
    assert ids(tmp_path / "out") == EXPECTED
    assert sorted(ids(rejects)) == [number for number in range(ROWS) if number % 5 == 0]


def test_a_cluster_whose_spill_disk_is_full_says_so(small_disk):
    with open(small_disk / "filler", "wb") as filler:
        os.posix_fallocate(filler.fileno(), 0, shutil.disk_usage(small_disk).free)
    said = rf"no space is left in spill_directory='{small_disk}' \(0 B free\). Free some"
    with pytest.raises(cdf.errors.DiskFullError, match=said):
        cdf.start_cluster(memory="2GB", cpus=1, spill_directory=small_disk)
    assert [path.name for path in small_disk.iterdir()] == ["filler"]


@pytest.mark.proof
@LONG
def test_a_full_disk_for_what_workers_spill_stops_nothing(start, script, corpus, tmp_path, small_disk):
    out = tmp_path / "out"
    process = start(script, corpus, out, SPILL=str(small_disk))
    wait_for_ranges(out, 2, process)
    filler = os.open(small_disk / "filler", os.O_CREAT | os.O_WRONLY)
    os.posix_fallocate(filler, 0, shutil.disk_usage(small_disk).free)
    os.close(filler)
    assert shutil.disk_usage(small_disk).free < 4096
    assert finish(process)["rows_read"] == ROWS
    assert ids(out) == EXPECTED


@pytest.mark.proof
@LONG
def test_of_two_runs_at_once_one_is_refused(start, script, corpus, tmp_path):
    out = tmp_path / "out"
    # A run longer than what one of the two may take longer to start: else the second finds a complete one.
    both = [start(script, corpus, out, on_existing="resume", SLEEP="1.5") for _ in range(2)]
    ended = [process.communicate(timeout=PATIENCE_SECONDS) for process in both]
    assert sorted(process.returncode for process in both) == [0, 1]
    (refused,) = [err for process, (_, err) in zip(both, ended, strict=True) if process.returncode]
    assert "OutputInUseError: another run is writing to" in refused
    assert ids(out) == EXPECTED
    with open(out / "_curator/lock") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # nobody holds it any more
