# SPDX-License-Identifier: Apache-2.0
"""One range in this process: what a task leaves behind when it ends well, and when it does not."""

import json
import pickle
from dataclasses import dataclass

import cloudpickle
import pytest

import curator_df as cdf
from curator_df.core.planning.branches import Branch, fork
from curator_df.core.planning.lowering import lower
from curator_df.core.ranges.source import Range
from curator_df.core.tasks.task import Attempt, Job, run_guarded, run_range
from curator_df.files.storage import Folder
from curator_df.io.output.files import FileSink, RangeFiles
from curator_df.io.output.formats import ParquetFormat


@dataclass(frozen=True)
class FullSink:
    """A sink whose range cannot be committed."""

    inner: FileSink

    folder = property(lambda self: self.inner.folder)
    writer_factor = 1.0

    def open(self, number, meta, buffer_bytes):
        writer = self.inner.open(number, meta, buffer_bytes)
        writer.commit = _no_memory
        return writer


def _no_memory():
    raise MemoryError("no room for the last row group")


@pytest.fixture
def docs(tmp_path):
    rows = [{"id": number, "text": f"row {number}"} for number in range(10)]
    (tmp_path / "in.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return cdf.read_jsonl(tmp_path / "in.jsonl")


def run(branches):
    job = Job(fork(branches), "raise")
    piece = job.fork.source.cut(10**6)[0]
    return run_range(cloudpickle.dumps(job), Attempt(piece, 10**6, 10**6))


def sink_at(folder):
    return FileSink(Folder(str(folder)), ParquetFormat("zstd"), 10**6)


def files_in(folder):
    return sorted(path.name for path in folder.rglob("*") if path.is_file())


def test_every_branch_has_a_manifest_of_its_own(docs, tmp_path):
    base = docs.curate.keep_where("id > 1")
    manifest = run(
        [
            Branch(lower(base), sink_at(tmp_path / "a")),
            Branch(lower(base.curate.keep_where("id > 4")), sink_at(tmp_path / "b")),
        ]
    )
    assert manifest.outcome == "done"
    parts = [manifest, *manifest.others]
    assert [part.branch for part in parts] == [0, 1]
    assert [part.rows_read for part in parts] == [10, 10]
    assert [part.rows_written for part in parts] == [8, 5]
    assert [[step.rows_in for step in part.steps] for part in parts] == [[10], [10, 8]]
    assert [[file.rows for file in part.files] for part in parts] == [[8], [5]]


def test_a_branch_that_has_the_range_already_is_left_out(docs, tmp_path):
    first = Branch(lower(docs), sink_at(tmp_path / "a"), finished=frozenset({0}))
    manifest = run([first, Branch(lower(docs), sink_at(tmp_path / "b"))])
    assert (manifest.branch, manifest.others, manifest.rows_written) == (1, [], 10)
    assert not files_in(tmp_path / "a")


def test_when_one_output_cannot_be_committed_no_file_of_the_others_stays(docs, tmp_path):
    failing = Branch(lower(docs), FullSink(sink_at(tmp_path / "b")))
    manifest = run([Branch(lower(docs), sink_at(tmp_path / "a")), failing])
    assert manifest.outcome == "memory"
    assert not files_in(tmp_path / "a")
    assert not files_in(tmp_path / "b")


@dataclass(frozen=True)
class ClosedSink:
    """A sink whose folder cannot be written to."""

    inner: FileSink

    folder = property(lambda self: self.inner.folder)
    writer_factor = 1.0

    def open(self, number, meta, buffer_bytes):
        raise PermissionError("read-only")


def test_a_writer_is_discarded_when_that_of_the_rejects_cannot_be_opened(docs, tmp_path, monkeypatch):
    discarded = []
    monkeypatch.setattr(RangeFiles, "discard", lambda files: discarded.append(files._number))
    rejects = ClosedSink(sink_at(tmp_path / "rejects"))
    manifest = run([Branch(lower(docs), sink_at(tmp_path / "out"), rejects)])
    assert isinstance(manifest.error, PermissionError)
    assert discarded == [0]


@dataclass
class TwoArgumentsError(Exception):
    """An error whose arguments are not what it says."""

    one: int
    other: int

    def __str__(self):
        return f"{self.one} of {self.other}"


class UnpicklableError(Exception):
    def __init__(self, one, other):
        super().__init__(f"{one} of {other}")


@pytest.mark.parametrize(
    "error",
    [
        UnicodeDecodeError("utf-8", b"caf\xe9", 3, 4, "invalid continuation byte"),
        UnicodeEncodeError("ascii", "é", 0, 1, "ordinal not in range"),
        UnicodeTranslateError("é", 0, 1, "no such character"),
        TwoArgumentsError(1, 2),
        UnpicklableError(1, 2),
        ValueError("plain"),
        KeyError("key"),
        OSError(2, "No such file", "a.parquet"),
        SystemExit(3),
    ],
    ids=lambda error: type(error).__name__,
)
def test_an_error_says_the_same_when_it_has_travelled(error):
    def fail(manifest):
        raise error

    def one_line(exc):
        return str(exc).strip().splitlines()[-1]

    manifest = run_guarded(Attempt(Range(0, 0, 0, 0, 0), 1000, 1000), fail)
    arrived = pickle.loads(pickle.dumps(manifest)).error
    assert one_line(error) in one_line(arrived)
    assert any("On the worker" in note for note in arrived.__notes__)
