# SPDX-License-Identifier: Apache-2.0
import dataclasses
import errno
import pickle
import zlib

import pytest

from curator_df.core.ranges.journal import Journal
from curator_df.errors import CuratorError, DiskFullError, OutputChangedError, ParameterError
from curator_df.files.storage import MANY_NAMES, STALE_LOOKS, Folder, disk_errors


@pytest.fixture(params=["local", "memory"])
def folder(request, tmp_path):
    if request.param == "local":
        return Folder(str(tmp_path / "out"))
    return Folder(f"memory://{tmp_path.name}/out")


def test_a_file_appears_whole_with_its_checksum(folder):
    with folder.create("a=1/part.bin") as file:
        file.write(b"hello ")
        file.write(b"world")
        record = file.commit(rows=2)
    assert folder.read("a=1/part.bin") == b"hello world"
    assert (record.rows, record.size_bytes) == (2, 11)
    assert record.checksum == zlib.crc32(b"hello world")
    assert "a=1/part.bin" in folder.names()


def test_only_what_nobody_writes_again_waits_for_the_disk(tmp_path, monkeypatch):
    synced = []
    monkeypatch.setattr("os.fsync", synced.append)
    lasting = Folder(str(tmp_path))
    passing = dataclasses.replace(lasting, is_durable=False).below("keys")
    with passing.create("part.bin") as file:
        file.write(b"x")
        file.commit()
    assert synced == []
    assert passing.read("part.bin") == b"x"
    passing.write("plan.json", b"{}")
    assert len(synced) == 2  # the file and its folder
    with lasting.below("out").create("part.bin") as file:
        file.commit()
    assert len(synced) == 4


def test_without_commit_nothing_stays(folder):
    with folder.create("part.bin") as file:
        file.write(b"x" * 3_000_000)
    assert folder.names() == []


def test_a_sealed_file_is_not_visible_before_commit(tmp_path):
    folder = Folder(str(tmp_path))
    with folder.create("part.bin") as file:
        file.write(b"x")
        file.seal()
        assert not folder.exists("part.bin")
        file.commit()
    assert folder.exists("part.bin")


def test_a_full_disk_is_named_with_the_way_out(tmp_path):
    with pytest.raises(DiskFullError, match="on_existing='resume'"), disk_errors(Folder(str(tmp_path))):
        raise OSError(errno.ENOSPC, "No space left on device")


def test_a_relative_path_stays_where_it_was_named(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    folder = Folder("out")
    folder.write("a.txt", b"x")
    monkeypatch.chdir("/")
    passed_on = dataclasses.replace(pickle.loads(pickle.dumps(folder)), is_durable=False)
    assert passed_on.read("a.txt") == passed_on.below("..").read("out/a.txt") == b"x"
    assert folder.url == str(tmp_path / "out")


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("file", "file is a file, not a folder"),
        ("file/out", "file is a file, not a folder"),
        ("nowhere", "nowhere is a link to 'gone', not a folder"),
        ("/proc/out", "No such file"),
        ("a" * 300, "too long"),
    ],
)
def test_a_folder_that_cannot_be_made_is_an_error_that_says_why(tmp_path, path, message):
    (tmp_path / "file").write_text("mine")
    (tmp_path / "nowhere").symlink_to("gone")
    with pytest.raises(CuratorError, match=f"cannot be written to: .*{message}"), Journal(Folder(str(tmp_path / path))):
        pass


@pytest.mark.parametrize("count", [3, MANY_NAMES + 2])
def test_files_that_are_gone_or_were_cut_short_are_seen(folder, count, monkeypatch):
    files = []
    for number in range(count):
        with folder.create(f"below/{number}") as file:
            file.write(b"x" * number)
            files.append(file.commit())
    if count > MANY_NAMES and not folder.is_local:  # a store is not asked for each of many
        monkeypatch.setattr(Folder, "info", lambda *_: pytest.fail("a file was asked for by itself"))
    assert folder.holds(files)
    states = folder.states_of([file.name for file in files])
    assert [states[file.name].size_bytes for file in files] == [file.size_bytes for file in files]
    assert not folder.holds([*files[:-1], dataclasses.replace(files[-1], size_bytes=count)])
    folder.delete("below/1")
    assert not folder.holds(files)
    assert folder.holds([files[0], *files[2:]])


def test_local_files_copied_to_a_store_are_known_by_their_sizes(tmp_path):
    with Folder(str(tmp_path)).create("a") as file:
        file.write(b"some rows")
        record = file.commit()
    store = Folder("memory://copied")
    store.write("a", b"some rows")
    assert record.modified_ns
    assert store.holds([record])
    store.write("a", b"fewer")
    assert not store.holds([record])


def test_a_url_of_no_known_store_is_an_error_that_names_it():
    with pytest.raises(ParameterError, match=r"'nosuch://x' cannot be used: .*nosuch"):
        Folder("nosuch://x").exists("a")


def test_a_name_that_vanishes_while_a_folder_is_listed_is_left_out(tmp_path, monkeypatch):
    folder = Folder(str(tmp_path))
    folder.write("here", b"x")
    monkeypatch.setattr(Folder, "names", lambda self: ["_curator/unfinished/gone", "here"])
    assert folder.sizes() == {"here": 1}


def test_a_file_that_cannot_be_renamed_leaves_nothing(tmp_path):
    folder = Folder(str(tmp_path))
    (tmp_path / "part").mkdir()
    with pytest.raises(IsADirectoryError):
        folder.write("part", b"x")
    assert [name for name in folder.names() if "unfinished" in name] == []


def test_a_file_that_nfs_calls_stale_is_looked_at_again(tmp_path, monkeypatch):
    folder = Folder(str(tmp_path))
    folder.write("a.json", b"new")
    filesystem, looks = folder._filesystem[0], []
    cat = filesystem.cat_file

    def stale_at_first(path):
        looks.append(path)
        if len(looks) < STALE_LOOKS:
            raise OSError(errno.ESTALE, "Stale file handle")
        return cat(path)

    monkeypatch.setattr(filesystem, "cat_file", stale_at_first)
    assert folder.read("a.json") == b"new"
    assert len(looks) == STALE_LOOKS
    monkeypatch.setattr(filesystem, "cat_file", lambda path: (_ for _ in ()).throw(OSError(errno.ESTALE, "stale")))
    with pytest.raises(FileNotFoundError, match="stale on every attempt"):
        folder.read("a.json")
    monkeypatch.setattr(filesystem, "cat_file", lambda path: (_ for _ in ()).throw(OSError(errno.EIO, "broken")))
    with pytest.raises(OSError, match="broken"):
        folder.read("a.json")


def test_a_file_of_somebody_else_that_is_missing_is_not_blamed_on_the_folder(tmp_path):
    with pytest.raises(FileNotFoundError) as told, disk_errors(Folder(str(tmp_path / "out"))):
        open(tmp_path / "outer")  # noqa: SIM115
    assert type(told.value) is FileNotFoundError
    with pytest.raises(OutputChangedError, match="/out was renamed"), disk_errors(Folder(str(tmp_path / "out"))):
        open(tmp_path / "out/part-0.parquet")  # noqa: SIM115


def test_a_file_over_the_limit_of_the_shell_names_that_limit(tmp_path):
    said = r"larger than a limit of this shell \(ulimit -f\).*target_file_size="
    with pytest.raises(DiskFullError, match=said), disk_errors(Folder(str(tmp_path))):
        raise OSError(errno.EFBIG, "File too large")
