# SPDX-License-Identifier: Apache-2.0
"""What a journal keeps, what it makes of a crash, and when a run is new, resumed, complete or refused."""

import dataclasses
import json
import os
from pathlib import Path

import numpy as np
import pytest

from curator_df.core.ranges import journal as journals
from curator_df.core.ranges.journal import (
    FORMAT,
    Identity,
    Journal,
    all_done,
    delete_unfinished,
    difference,
    open_run,
    settle_files,
    whole_ranges,
)
from curator_df.core.ranges.manifest import TaskRecord
from curator_df.core.ranges.source import Ranges
from curator_df.core.ranges.step_counts import StepCounts
from curator_df.errors import OutputChangedError, OutputExistsError, OutputInUseError, ResumeError
from curator_df.files.storage import Folder
from curator_df.io.output.files import FileSink
from curator_df.io.output.formats import ParquetFormat

IDENTITY = Identity(
    "input",
    "program",
    "sink",
    (("read", "a"), ("keep", "b")),
    ({}, {"least": ("1", "digest of 1")}),
    {"compression": ("'zstd'", "of zstd")},
)
RANGES = Ranges(np.array([[0, 0, 0, 10], [0, 10, 0, 20], [0, 20, 0, 30]]))


@pytest.fixture
def out(tmp_path):
    return tmp_path / "out"


@pytest.fixture
def sink(out):
    return FileSink(Folder(str(out)), ParquetFormat("zstd"), 10**6)


def finished(out, number, *, content=b"rows", name=None, others=()):
    """Write the file of a range; return what its task tells."""
    out.mkdir(exist_ok=True)
    name = name or f"part-{number:06d}-000.parquet"
    file = written(out, name, content)
    return TaskRecord(number, rows_read=1, rows_written=1, files=(file,), other_files=tuple(others))


def written(out, name, content):
    """Write a file as a task does; return its record."""
    with Folder(str(out)).create(name) as file:
        file.write(content)
        return file.commit(rows=1)


def journal_of(out):
    return Journal(Folder(str(out)))


def begun(out, numbers=(0, 1)):
    """Leave a run in which some ranges are finished."""
    with journal_of(out) as journal:
        journal.start(IDENTITY, RANGES)
        for number in numbers:
            journal.record([finished(out, number)])


def test_what_was_noted_is_there_for_the_next_process_and_the_last_note_of_a_range_counts(out):
    begun(out)
    with journal_of(out) as journal:
        journal.record([finished(out, 1, content=b"other rows")])
        assert [note.number for note in journal.done()] == [0, 1, 1]
        assert journal.records()[1].files[0].size_bytes == len(b"other rows")
        assert np.array_equal(journal.resume(IDENTITY).table, RANGES.table)


def test_a_line_that_a_crash_cut_short_is_cut_off_before_the_next_one(out):
    begun(out)
    lines = out / "_curator/done.jsonl"
    whole = lines.read_bytes()
    lines.write_bytes(whole + b'{"number": 2, "rows_re')
    with journal_of(out) as journal:
        assert [note.number for note in journal.done()] == [0, 1]
        journal.record([finished(out, 2)])
        assert [note.number for note in journal.done()] == [0, 1, 2]
    assert lines.read_bytes().startswith(whole)


def test_notes_of_a_lost_machine_are_passed_over(out):
    begun(out, ())
    lines = b'{"number": 0}\n' + b"\0" * 40 + b'{"number": 1}\n{"number": 2}\n{"num'
    (out / "_curator/done.jsonl").write_bytes(lines)
    assert [note.number for note in journal_of(out).done()] == [0, 2]


@pytest.fixture
def synced(monkeypatch):
    """Names of the files and folders that were written to disk, in order."""
    names, sync = [], os.fsync

    def note(descriptor):
        names.append(Path(os.readlink(f"/proc/self/fd/{descriptor}")).name)
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", note)
    return names


def test_all_records_are_on_disk_before_a_run_counts_as_complete(out, synced, monkeypatch):
    monkeypatch.setattr(journals, "SYNC_SECONDS", 1e9)
    with journal_of(out) as journal:
        journal.start(IDENTITY, RANGES)
        journal.record([finished(out, 0)])
        journal.sync()
        journal.record([finished(out, 1)])
        synced.clear()
        journal.finish({"rows": 2})
    receipt_at = synced.index("_curator")  # the receipt became visible
    assert synced.index("done.jsonl") < receipt_at


def test_records_reach_the_disk_while_a_run_goes_on_and_so_does_the_name_of_their_file(out, synced, monkeypatch):
    monkeypatch.setattr(journals, "SYNC_SECONDS", 1e-9)
    with journal_of(out) as journal:
        journal.start(IDENTITY, RANGES)
        done = [finished(out, number) for number in range(3)]  # they write files, which reach the disk as well
        synced.clear()
        for record in done:
            journal.record([record])
    assert synced == ["_curator", *["done.jsonl"] * 3]


def test_all_notes_or_none_of_a_stage(out):
    begun(out)
    assert all_done(journal_of(out), 3) is None
    assert [note.number for note in all_done(journal_of(out), 2)] == [0, 1]


def test_a_record_is_the_same_after_it_was_stored(out):
    tally = StepCounts(5, 3, 0.25, {"too_short": 2}, {"tokens": 12}, {"model": 7})
    record = dataclasses.replace(
        finished(out, 0), steps=(tally,), summary={"key_checksum": 2**63 + 1}, device_peak_bytes=5
    )
    with journal_of(out) as journal:
        journal.start(IDENTITY, RANGES)
        journal.record([record])
        assert list(journal.done()) == [record]


def test_a_part_of_the_work_has_no_owner_of_its_own(out):
    with journal_of(out) as journal:
        journal.start(IDENTITY, RANGES)
        with journal.part("stage") as part, part.part("tasks") as tasks:
            tasks.record([finished(out, 0)])
            tasks.finish({"files": {}})
            assert [path.parent for path in out.rglob("owners/*")] == [out / "_curator/owners"]
        out.rename(out.with_name("moved"))
        with pytest.raises(OutputChangedError):
            journal.part("stage").record([finished(out, 1)])


def damages():
    yield "gone", lambda path: path.unlink()
    yield "shorter, within a tick of the clock", cut_at_once
    yield "longer", lambda path: path.write_bytes(path.read_bytes() + b"x")
    yield "other content of the same size", lambda path: (path.write_bytes(path.read_bytes()[::-1]), touched(path))


def cut_at_once(path):
    """Truncate a file and restore its modification time, as if both happened within one tick of the file system clock."""
    found = path.stat()
    path.write_bytes(path.read_bytes()[:-1])
    os.utime(path, ns=(found.st_atime_ns, found.st_mtime_ns))


def touched(path):
    """Give a file another modification time, whatever the file system's clock."""
    found = path.stat()
    os.utime(path, ns=(found.st_atime_ns, found.st_mtime_ns + 1))


@pytest.mark.parametrize("damage", [damage for _, damage in damages()], ids=[name for name, _ in damages()])
@pytest.mark.parametrize("which", ["out/part-000001-000.parquet", "rejects/r-1", "out/_quarantine/q-1"])
def test_a_range_is_whole_if_all_its_files_are_as_they_were_written(out, tmp_path, which, damage):
    others = []
    for name, home in (("r-1", tmp_path / "rejects"), ("_quarantine/q-1", out)):
        others.append(written(home, name, b"12345"))
    with journal_of(out) as journal:
        journal.start(IDENTITY, RANGES)
        journal.record([finished(out, 0), finished(out, 1, others=others)])
    rejects = Folder(str(tmp_path / "rejects"))
    assert [note.number for note in whole_ranges(journal_of(out), rejects)] == [0, 1]
    touched(tmp_path / which)  # as after a copy
    assert [note.number for note in whole_ranges(journal_of(out), rejects)] == [0, 1]
    damage(tmp_path / which)
    assert [note.number for note in whole_ranges(journal_of(out), rejects)] == [0]


@pytest.fixture
def read_again(monkeypatch):
    """Names of the files whose checksums were computed, in order."""
    names, check = [], Folder._has_checksum
    monkeypatch.setattr(Folder, "_has_checksum", lambda self, file: names.append(file.name) or check(self, file))
    return names


def test_copied_files_are_read_once_and_not_by_each_resume(out, sink, read_again, caplog):
    begun(out)
    names = [f"part-{number:06d}-000.parquet" for number in range(2)]
    for copies in (1, 2):
        for name in names:
            touched(out / name)
        with journal_of(out) as journal:
            assert [note.number for note in whole_ranges(journal)] == [0, 1]
        assert read_again == names * copies
        assert [record.message.partition(". ")[0] for record in caplog.records] == [
            f"{out}: files of 2 finished input splits have another modification time than when they were written, as after a copy"
        ] * copies
        with journal_of(out) as journal:
            assert [note.number for note in whole_ranges(journal)] == [0, 1]
            settle_files(journal, 2, sink)
        assert read_again == names * copies
    assert len(caplog.records) == 2
    (out / names[0]).write_bytes(b"swor")
    with journal_of(out) as journal:
        assert [note.number for note in whole_ranges(journal)] == [1]


def test_a_file_that_was_written_again_does_not_count_as_copied(out, read_again, caplog):
    begun(out)
    again, path = finished(out, 1), out / "part-000001-000.parquet"
    touched(path)
    file = dataclasses.replace(again.files[0], modified_ns=path.stat().st_mtime_ns)
    with journal_of(out) as journal:
        journal.record([dataclasses.replace(again, files=(file,))])
        assert [note.number for note in whole_ranges(journal)] == [0, 1]
    assert (read_again, caplog.records) == ([], [])


def test_a_folder_without_anything_is_a_new_run_and_one_with_a_journal_is_resumed(out, sink):
    with journal_of(out) as journal:
        assert open_run(journal, sink, IDENTITY, "raise") == (None, None)
    begun(out)
    with journal_of(out) as journal:
        ranges, receipt = open_run(journal, sink, IDENTITY, "resume")
        assert (len(ranges), receipt) == (3, None)
        with pytest.raises(OutputExistsError, match=r"already contains an interrupted run.*'resume'.*'overwrite'"):
            open_run(journal, sink, IDENTITY, "raise")


def test_a_complete_run_has_a_receipt_as_long_as_its_files_are_whole(out, sink):
    begun(out, (0, 1, 2))
    with journal_of(out) as journal:
        journal.finish({"rows": 3})
        assert open_run(journal, sink, IDENTITY, "resume")[1] == {"rows": 3}
        with pytest.raises(OutputExistsError, match="already contains a complete run"):
            open_run(journal, sink, IDENTITY, "raise")
        (out / "part-000001-000.parquet").unlink()
        ranges, receipt = open_run(journal, sink, IDENTITY, "resume")
        assert (len(ranges), receipt) == (3, None)


def test_overwrite_deletes_what_a_run_left_and_nothing_else(out, sink):
    begun(out)
    (out / "thesis.txt").write_text("mine")
    with journal_of(out) as journal:
        with pytest.raises(OutputExistsError, match=r"1 other file \(the first is 'thesis\.txt'"):
            open_run(journal, sink, IDENTITY, "overwrite")
        assert (out / "part-000000-000.parquet").exists()
        (out / "thesis.txt").unlink()
        assert open_run(journal, sink, IDENTITY, "overwrite") == (None, None)
    assert not (out / "part-000000-000.parquet").exists()
    assert not journal_of(out).is_started


@pytest.mark.parametrize("on_existing", ["raise", "resume", "overwrite"])
def test_documents_about_an_output_do_not_prevent_a_run_and_stay(out, sink, on_existing):
    if on_existing == "overwrite":
        begun(out)
    out.mkdir(exist_ok=True)
    for name in ("croissant.jsonld", "README.md"):
        (out / name).write_text("mine")
    with journal_of(out) as journal:
        assert open_run(journal, sink, IDENTITY, on_existing) == (None, None)
    assert not (out / "part-000000-000.parquet").exists()
    assert [(out / name).read_text() for name in ("croissant.jsonld", "README.md")] == ["mine", "mine"]


def test_only_documents_at_the_top_of_a_folder_are_left(out, sink):
    begun(out)
    (out / "lang=en").mkdir()
    (out / "lang=en/README.md").write_text("mine")
    with (
        journal_of(out) as journal,
        pytest.raises(OutputExistsError, match=r"1 other file \(the first is 'lang=en/README\.md'"),
    ):
        open_run(journal, sink, IDENTITY, "overwrite")


def test_files_without_a_journal_cannot_be_resumed(out, sink):
    finished(out, 0)
    with journal_of(out) as journal, pytest.raises(ResumeError, match="has not recorded a run in it"):
        open_run(journal, sink, IDENTITY, "resume")


@pytest.mark.parametrize(
    ("other", "said"),
    [
        ({"input": "another"}, "the input changed"),
        ({"program": "x", "steps": (("read", "a"),)}, "the steps changed from read -> keep to read"),
        ({"program": "x", "steps": (("read", "a"), ("drop", "c"))}, "step 2 changed from keep to drop"),
        (
            {
                "program": "x",
                "steps": (("read", "a"), ("keep", "c")),
                "parameters": ({}, {"least": ("2", "digest of 2")}),
            },
            r"in step 2 \(keep\), least changed from 1 to 2",
        ),
        (
            {"sink": "another", "output": {"compression": ("'snappy'", "of snappy")}},
            "the output option compression changed from 'zstd' to 'snappy'",
        ),
        ({"sink": "another"}, "the output's format or its parameters changed"),
        (
            {"sink": "another", "output": {"compression": ("'none'", "of none"), "lines": ("1", "of 1")}},
            r"/out: the output's format or its parameters changed\.",
        ),
        (
            {
                "sink": "another",
                "output": {"format": ("'parquet'", "parquet"), "compression": ("'snappy'", "of snappy")},
            },
            "the output option compression changed from 'zstd' to 'snappy'",
        ),
    ],
)
def test_another_run_is_refused_with_what_differs(out, sink, other, said):
    begun(out)
    with journal_of(out) as journal, pytest.raises(ResumeError, match=said):
        open_run(journal, sink, dataclasses.replace(IDENTITY, **other), "resume")


def test_a_journal_of_another_format_is_refused():
    plan = {**json.loads(json.dumps(dataclasses.asdict(IDENTITY))), "format": 1}
    assert (
        difference(plan, IDENTITY) == "another version of curator_df started the run (format 1 of its records, not 5)"
    )
    assert difference({**plan, "format": FORMAT}, IDENTITY) == ""


def test_files_of_ranges_without_a_note_are_deleted_before_a_run_goes_on(out, sink):
    begun(out)
    finished(out, 2)
    finished(out, 2, name="part-000002-001.parquet")
    delete_unfinished(sink.folder, sink, np.array([True, True, False]))
    assert sorted(path.name for path in out.glob("part-*")) == ["part-000000-000.parquet", "part-000001-000.parquet"]


def test_files_that_no_finished_range_has_are_deleted_at_the_end(out, sink):
    begun(out)
    finished(out, 1, name="part-000001-007.parquet")
    settle_files(journal_of(out), 2, sink)
    assert sorted(path.name for path in out.glob("part-*")) == ["part-000000-000.parquet", "part-000001-000.parquet"]


def test_a_finished_file_that_was_replaced_by_another_of_its_size_is_an_error_at_the_end(out, sink):
    begun(out)
    path = out / "part-000001-000.parquet"
    path.write_bytes(path.read_bytes()[::-1])
    touched(path)
    with pytest.raises(OutputChangedError, match=r"part-000001-000.parquet' was .* content. Files of 1 of 2 finished"):
        settle_files(journal_of(out), 2, sink)


def test_rejects_of_finished_ranges_stay_and_those_of_others_go(out, sink, tmp_path):
    rejects = FileSink(Folder(str(tmp_path / "rejects")), ParquetFormat("zstd"), 10**6)
    [kept] = finished(tmp_path / "rejects", 0, name="part-000000-003.parquet").files
    finished(tmp_path / "rejects", 0, name="part-000000-004.parquet")
    with journal_of(out) as journal:
        journal.start(IDENTITY, RANGES)
        journal.record([finished(out, 0, others=[kept])])
        settle_files(journal, 1, sink, rejects)
    assert [path.name for path in (tmp_path / "rejects").glob("part-*")] == [kept.name]


def test_one_process_at_a_time_has_the_journal(out):
    with journal_of(out), pytest.raises(OutputInUseError), journal_of(out):
        pass
    with journal_of(out):
        pass
