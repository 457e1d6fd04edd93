# SPDX-License-Identifier: Apache-2.0
"""One run at a time writes to a folder, with and without locks, and who is gone does not keep it."""

import dataclasses
import errno
import fcntl
import json
import os
import re
import socket
import subprocess
import sys
import time
import uuid
from pathlib import Path

import pytest

from curator_df.core.ranges.journal import Journal
from curator_df.errors import OutputExistsError
from curator_df.files import owner
from curator_df.files.owner import OWNERS_FOLDER, Owner, this_process
from curator_df.files.storage import Folder

HOLDING = """
import sys, time
from curator_df.core.ranges.journal import Journal
from curator_df.files.storage import Folder
with Journal(Folder(sys.argv[1])):
    print("holds", flush=True)
    time.sleep(600)
"""
"""Another process that has the folder until it is killed."""


@pytest.fixture(params=["local", "memory"])
def folder(request, tmp_path):
    if request.param == "local":
        return Folder(str(tmp_path / "out"))
    return Folder(f"memory://{tmp_path.name}/out")


@pytest.fixture(params=[errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS], ids=errno.errorcode.get)
def no_locks(request, monkeypatch):
    """A file system where flock does not work: NFS without lockd, Lustre without -o flock."""

    def flock(*_):
        raise OSError(request.param, os.strerror(request.param))

    monkeypatch.setattr(fcntl, "flock", flock)


@pytest.fixture
def soon(monkeypatch):
    """Signs of life and patience that do not make a test wait."""
    monkeypatch.setattr(owner, "BEAT_SECONDS", 0.05)
    monkeypatch.setattr(owner, "GONE_SECONDS", 1.0)
    monkeypatch.setattr(owner, "LOOK_SECONDS", 0.02)
    monkeypatch.setattr(owner, "YIELD_SECONDS", 0.2)


@pytest.fixture
def holding(tmp_path):
    with subprocess.Popen([sys.executable, "-c", HOLDING, str(tmp_path / "out")], stdout=subprocess.PIPE) as process:
        assert process.stdout.readline() == b"holds\n"
        yield process
        process.kill()


def owners(folder):
    return folder.below(OWNERS_FOLDER).names()


def left_by(folder, name="0" * 32, run=None, **who):
    """Leave the file of another process."""
    said = dataclasses.asdict(dataclasses.replace(this_process(), run=run or uuid.uuid4().hex, **who))
    folder.write(f"{OWNERS_FOLDER}/{name}.json", json.dumps(said).encode())


def test_a_folder_has_one_journal_at_a_time(folder, soon):
    with Journal(folder):
        here = re.escape(f"process {os.getpid()} on {socket.gethostname()}, since 2")
        with (
            pytest.raises(OutputExistsError, match=f"another run is writing to .*{here}.*on_existing='resume'"),
            Journal(folder),
        ):
            pass
        assert len(owners(folder)) == 1
    with Journal(folder):
        pass
    assert owners(folder) == []


def test_without_locks_too(tmp_path, soon, no_locks, holding):
    folder = Folder(str(tmp_path / "out"))
    for _ in range(4):  # whichever of the two names is the first
        with pytest.raises(OutputExistsError, match=f"process {holding.pid} on "), Journal(folder):
            pass
    holding.kill()
    os.waitid(os.P_PID, holding.pid, os.WEXITED | os.WNOWAIT)  # it has ended, though nobody has collected it
    started = time.monotonic()
    with Journal(folder):
        assert len(owners(folder)) == 1
    assert time.monotonic() - started < owner.GONE_SECONDS


def test_a_killed_run_can_be_resumed_at_once(tmp_path, holding):
    folder = Folder(str(tmp_path / "out"))
    holding.kill()
    holding.wait()
    assert len(owners(folder)) == 1
    started = time.monotonic()
    with Journal(folder):
        assert time.monotonic() - started < 5
        assert len(owners(folder)) == 1


@pytest.mark.parametrize("who", [{"started": 1}, {"pid": 2**22 + 1}])
def test_another_process_with_the_number_is_not_believed(folder, who):
    left_by(folder, **who)
    with Journal(folder):
        assert len(owners(folder)) == 1


def test_a_process_of_another_machine_is_gone_when_it_gives_no_sign_for_long(folder, soon, caplog):
    run = uuid.uuid4().hex
    left_by(folder, boot="another", host="far", run=run)
    left_by(folder.below("stage"), boot="another", host="far", run=run)
    started = time.monotonic()
    with Journal(folder):
        assert time.monotonic() - started > owner.GONE_SECONDS
        assert len(owners(folder)) == 1
        started = time.monotonic()
        with Journal(folder.below("stage")):  # what else it had is free at once
            assert time.monotonic() - started < owner.GONE_SECONDS / 2
    assert "on far, since " in caplog.text
    assert "waiting for up to 1 s" in caplog.text


def test_a_container_is_watched_unless_a_lock_tells(tmp_path, soon):
    folder = Folder(str(tmp_path / "out"))
    left_by(folder, namespace="pid:[1]", pid=1)
    started = time.monotonic()
    with Journal(folder):
        assert time.monotonic() - started < owner.GONE_SECONDS / 2  # it would have the lock if it were there
    left_by(folder, namespace="pid:[1]", pid=1)
    held = Owner(folder).claim()
    assert time.monotonic() - started > owner.GONE_SECONDS
    held.release()


def test_a_process_of_another_machine_that_gives_signs_has_the_folder(folder, soon, monkeypatch):
    other = Owner(folder)
    other._process = dataclasses.replace(other._process, boot="another", host="far")
    other.claim()
    for _ in range(4):
        with pytest.raises(OutputExistsError, match="on far, since "), Journal(folder):
            pass
    other.release()


def test_a_file_that_cannot_be_read_is_watched(folder, soon):
    folder.write(f"{OWNERS_FOLDER}/{'0' * 32}.json", b"\0\0")
    with Journal(folder):
        assert len(owners(folder)) == 1


@pytest.mark.parametrize("called", ["cat_file", "stat"])
def test_a_file_that_another_machine_deleted_meanwhile_is_no_owner(tmp_path, soon, monkeypatch, called):
    """NFS says of such a file that its handle is stale."""
    folder = Folder(str(tmp_path))
    left_by(folder, boot="another")
    real = {"cat_file": folder._filesystem[0].cat_file, "stat": os.stat}[called]

    def stale(path, *more, **named):
        if str(path).endswith(f"{'0' * 32}.json"):
            os.unlink(path) if os.path.lexists(path) else None
            raise OSError(errno.ESTALE, "Stale file handle")
        return real(path, *more, **named)

    monkeypatch.setattr(*((folder._filesystem[0], "cat_file") if called == "cat_file" else (os, "stat")), stale)
    with Journal(folder):
        assert len(owners(folder)) == 1


def test_who_was_taken_for_gone_writes_no_more(folder, soon):
    with Journal(folder) as journal:
        (name,) = owners(folder)
        folder.below(OWNERS_FOLDER).delete(name)
        time.sleep(0.5)
        with pytest.raises(OutputExistsError, match=r"because this run .* sent no heartbeat"):
            journal.record([])
        assert owners(folder) == []


def test_what_an_interrupt_left_in_this_process_keeps_nothing(folder):
    left_by(folder)
    with Journal(folder):
        assert len(owners(folder)) == 1


def test_of_many_that_come_together_at_most_one_has_the_folder(tmp_path):
    script = """
import sys
from curator_df.files import owner
from curator_df.files.storage import Folder
from curator_df.errors import OutputExistsError
print("is there", flush=True)
sys.stdin.readline()
try:
    held = owner.Owner(Folder(sys.argv[1])).claim()
    print("has it", flush=True)
    sys.stdin.readline()
    held.check()
    held.release()
except OutputExistsError:
    print("refused", flush=True)
"""
    command = [sys.executable, "-c", script, str(tmp_path / "out")]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    together = [subprocess.Popen(command, **pipes) for _ in range(3)]
    assert [process.stdout.readline() for process in together] == ["is there\n"] * 3
    for process in together:
        process.stdin.write("go\n")
        process.stdin.flush()
    said = [process.stdout.readline().strip() for process in together]
    for process in together:  # who has it has kept it until all others were refused
        process.communicate("let go\n", timeout=120)
    assert sorted(said) == ["has it", "refused", "refused"]
    assert not list(Path(tmp_path / "out" / OWNERS_FOLDER).iterdir())


def test_a_sign_of_life_on_its_way_does_not_outlive_the_release(monkeypatch):
    held = Owner(Folder(f"memory://{uuid.uuid4().hex}/out")).claim()
    write = held._write

    def release_and_write():
        held.release()
        write()

    monkeypatch.setattr(held, "_write", release_and_write)
    held._renew()
    assert owners(held.folder) == []
