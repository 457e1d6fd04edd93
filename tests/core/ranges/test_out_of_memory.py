# SPDX-License-Identifier: Apache-2.0
"""What counts as out of memory, and what one range does about it; real limits and kills are in tests/faults/test_memory.py."""

import errno
import json

import cloudpickle
import numba
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import curator_df as cdf
from curator_df.core.planning.branches import Branch, fork
from curator_df.core.planning.lowering import lower
from curator_df.core.ranges.out_of_memory import (
    SMALLEST_BLOCK_BYTES,
    RowAside,
    RowsLackMemoryError,
    Span,
    Unit,
    UnitLog,
    cut_block,
    is_out_of_memory,
    smaller_units,
    unit_left,
)
from curator_df.core.ranges.source import ADDRESS
from curator_df.core.tasks import step_runner as stretch
from curator_df.core.tasks.task import Attempt, Job, run_range
from curator_df.errors import ColumnError, OversizeRowError
from curator_df.files.storage import Folder
from curator_df.io.output.files import FileSink
from curator_df.io.output.formats import ParquetFormat

ROWS = 40


class OutOfMemoryError(RuntimeError):
    """Stands for ``torch.OutOfMemoryError``, which is known by its name."""


def caused_by(cause):
    error = ValueError("the parser gave up")
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    ("exc", "expected"),
    [
        (MemoryError(), True),
        (pa.ArrowMemoryError("malloc of size 64 failed"), True),
        (OversizeRowError("a row of 3 GB"), True),
        (OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB"), True),
        (
            RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to allocate 8 bytes"),
            True,
        ),
        (RuntimeError("can't start new thread"), True),
        (pa.ArrowException("Unknown error: Failed to launch worker thread: Resource temporarily unavailable"), True),
        (RuntimeError("std::bad_alloc: out_of_memory: CUDA error"), True),
        (OSError(errno.ENOMEM, "Cannot allocate memory"), True),
        (ImportError("libfoo.so: failed to map segment: Cannot allocate memory"), True),
        (caused_by(MemoryError()), True),
        (ValueError("out of memory"), False),
        (RuntimeError("no"), False),
        (OSError(errno.ENOSPC, "No space left on device"), False),
        (ColumnError("no column 'text'"), False),
    ],
    ids=lambda value: f"{type(value).__name__}: {value}"[:40] if isinstance(value, BaseException) else str(value),
)
def test_allocations_that_fail_are_told_from_other_errors(exc, expected):
    assert is_out_of_memory(exc) is expected


def test_what_pyarrow_and_numba_raise_is_recognised():
    @numba.njit
    def too_much(count):
        return np.empty(count).sum()

    for allocate in (lambda: pa.allocate_buffer(1 << 60), lambda: too_much(1 << 58)):
        with pytest.raises(Exception) as caught:  # noqa: PT011 - which class it is, is the question
            allocate()
        assert is_out_of_memory(caught.value)


def test_a_block_is_cut_so_that_spans_pass_in_units():
    block = pd.DataFrame({"id": range(10)}, index=pd.Index(np.arange(10) * 100, name="address"))
    spans = (Span(200, 700, 3), Span(500, 700, 1))
    parts = [part.id.tolist() for part in cut_block(block, spans)]
    assert parts == [[0, 1], [2], [3, 4], [5], [6], [7], [8, 9]]
    assert [part.id.tolist() for part in cut_block(block, ())] == [list(range(10))]


def test_the_record_of_the_rows_in_progress_survives_the_task_and_blames_them_once(tmp_path):
    folder, addresses = Folder(str(tmp_path)), pd.Index([4, 4, 7], name=ADDRESS)
    log = UnitLog(3, folder)
    log.enter("parse", pd.DataFrame({"text": ["a", "b", "c"]}, index=addresses))
    log.close()  # as if the process ended here
    assert unit_left(folder, 2) is None
    assert unit_left(folder, 3) == Unit(4, 7, 2, "parse")
    assert unit_left(folder, 3) is None


def test_no_rows_are_blamed_where_none_were_in_progress(tmp_path):
    folder = Folder(str(tmp_path))
    log = UnitLog(3, folder)
    log.enter("parse", pd.DataFrame({"text": ["a"]}, index=pd.Index([4], name=ADDRESS)))
    log.leave()
    log.close()
    assert unit_left(folder, 3) is None


def test_large_units_are_cut_in_parts_and_small_ones_in_rows():
    assert smaller_units(Unit(0, 9, 1600, "write")).rows == 100
    assert smaller_units(Unit(0, 9, 256, "write")).rows == 1


def most_rows(limit, too_large=()):
    """Return a predicate that runs out of memory on more rows than so many, and on some rows even alone."""

    def predicate(block):
        if len(block) > limit or block.id.isin(too_large).any():
            raise MemoryError("no room")
        return block.id % 5 != 0

    return predicate


@pytest.fixture
def docs(tmp_path):
    rows = [{"id": number, "text": f"row {number} é"} for number in range(ROWS)]
    (tmp_path / "in.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return cdf.read_jsonl(tmp_path / "in.jsonl")


def run(df, tmp_path, rejects=True, **attempt):
    sinks = [FileSink(Folder(str(tmp_path / name)), ParquetFormat("zstd"), 10**6) for name in ("out", "rejects")]
    job = Job(fork([Branch(lower(df), sinks[0], sinks[1] if rejects else None)]), "raise")
    piece = job.fork.source.cut(10**6)[0]
    attempt = {"exclusive_bytes": 10**9, "halves": True, **attempt}
    return run_range(cloudpickle.dumps(job), Attempt(piece, SMALLEST_BLOCK_BYTES, 10**6, **attempt))


def ids(folder):
    return [number for path in sorted(folder.glob("*.parquet")) for number in pq.read_table(path)["id"].to_pylist()]


def aside(tmp_path):
    return [json.loads(line) for line in (tmp_path / "out/_quarantine/part-000000.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("limit", [ROWS, 7, 1])
def test_halving_changes_no_row_no_order_and_no_count(docs, tmp_path, limit):
    df = docs.curate.keep_where("id != 3").curate.keep_where(most_rows(limit), reason="fifth")
    manifest = run(df, tmp_path)
    kept = [number for number in range(ROWS) if number % 5 != 0 and number != 3]
    assert manifest.outcome == "done"
    assert ids(tmp_path / "out") == kept
    assert sorted(ids(tmp_path / "rejects")) == sorted(set(range(ROWS)) - set(kept))
    assert [step.rows_in for step in manifest.steps] == [ROWS, ROWS - 1]
    assert (manifest.rows_read, manifest.rows_written, manifest.rows_quarantined) == (ROWS, len(kept), 0)


def test_rows_that_do_not_fit_alone_are_set_aside_with_file_offset_and_size(docs, tmp_path):
    manifest = run(docs.curate.keep_where(most_rows(9, too_large=(6, 31))), tmp_path)
    assert manifest.outcome == "done"
    assert (manifest.rows_quarantined, manifest.rows_out_of_memory) == (2, 2)
    assert ids(tmp_path / "out") == [number for number in range(ROWS) if number % 5 != 0 and number not in (6, 31)]
    lines = (tmp_path / "in.jsonl").read_bytes().splitlines(keepends=True)
    for record, number in zip(aside(tmp_path), (6, 31), strict=True):
        assert record["file"].endswith("in.jsonl")
        assert record["offset"] == sum(map(len, lines[:number]))
        assert 0 < record["bytes"] < 1000
        assert json.loads(record["raw"]) == {"id": number, "text": f"row {number} é"}
        assert "step 'keep_where' raised MemoryError on this row, which ran exclusively: no room" in record["reason"]


def test_a_step_that_never_has_enough_is_an_error_and_no_row_is_blamed(docs, tmp_path):
    manifest = run(docs.curate.keep_where(most_rows(0)), tmp_path)
    assert manifest.outcome == "memory"
    assert "So the step itself needs more memory than is available" in str(manifest.error)
    assert not (tmp_path / "out/_quarantine").exists()


def counted(docs, tmp_path, fits):
    """Run a step that has memory for some blocks; return what the run told and the rows that the step got each time."""
    calls = tmp_path / "calls"

    def predicate(block):
        with calls.open("a") as file:
            file.write(f"{block.id.tolist()}\n")
        if not fits(block):
            raise MemoryError("no room")
        return block.id >= 0

    manifest = run(docs.curate.keep_where(predicate), tmp_path)
    return manifest, [json.loads(line) for line in calls.read_text().splitlines()]


def test_a_step_that_lacks_memory_for_the_first_rows_and_the_shortest_fails_at_once(docs, tmp_path):
    manifest, calls = counted(docs, tmp_path, lambda block: False)
    assert isinstance(manifest.error, RowsLackMemoryError)
    assert calls == [list(range(ROWS)), [0], [1], [2]]  # rows 2 to 9 are equally short


def test_first_rows_that_do_not_fit_are_set_aside_if_the_shortest_does(docs, tmp_path):
    manifest, calls = counted(docs, tmp_path, lambda block: block.id.min() > 4 or block.id.tolist() == [2])
    assert (manifest.outcome, manifest.rows_out_of_memory) == ("done", 4)
    assert calls[:5] == [list(range(ROWS)), [0], [1], [2], [2]]


def test_after_a_failure_a_step_gets_one_row_then_twice_as_many_as_long_as_they_fit(docs, tmp_path):
    manifest, calls = counted(docs, tmp_path, lambda block: len(block) <= 7)
    assert [len(rows) for rows in calls] == [40, 1, 2, 4, 8, 4, *[4] * 7, 1]
    assert manifest.fitting_bytes > 0


def test_no_row_is_blamed_by_a_process_that_is_full(docs, tmp_path, monkeypatch):
    monkeypatch.setattr(stretch, "has_room", lambda: False)
    manifest = run(docs.curate.keep_where(most_rows(9, too_large=(6,))), tmp_path)
    assert manifest.outcome == "memory"


def test_without_halving_the_first_failure_ends_the_attempt_and_tells_its_rows(docs, tmp_path):
    manifest = run(docs.curate.keep_where(most_rows(9)), tmp_path, halves=False)
    assert manifest.outcome == "memory"
    assert (manifest.unit.rows, manifest.unit.first, manifest.unit.step) == (ROWS, 0, "keep_where")
    assert not list((tmp_path / "out").glob("*.parquet"))


def test_rows_named_by_an_earlier_attempt_are_set_aside_before_the_first_step(docs, tmp_path):
    address = int(docs.compute().index[8])
    manifest = run(docs, tmp_path, aside=(RowAside(address, "its worker process ended"),), spans=(Span(0, address, 2),))
    assert (manifest.rows_read, manifest.rows_written, manifest.rows_out_of_memory) == (ROWS, ROWS - 1, 1)
    assert ids(tmp_path / "out") == [number for number in range(ROWS) if number != 8]
    assert aside(tmp_path)[0]["reason"] == "its worker process ended"


def test_an_index_that_is_not_the_address_is_not_taken_for_one(docs, tmp_path):
    df = docs.map_partitions(lambda block: block.reset_index(drop=True), meta=docs._meta.reset_index(drop=True))
    manifest = run(df.map_partitions(lambda block: block.set_index("text", drop=False)), tmp_path, rejects=False)
    assert manifest.outcome == "done"
    assert manifest.rows_written == ROWS


@pytest.mark.parametrize("block_bytes", [500, 20_000])
def test_rows_too_long_to_be_read_are_set_aside_when_their_range_is_alone(tmp_path, block_bytes):
    rows = [{"id": n, "text": "x" * (5_000 if n in (2, 5) else 10)} for n in range(8)]
    (tmp_path / "in.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    pd.DataFrame(rows).to_parquet(tmp_path / "in.parquet", row_group_size=3)
    for name, read in (("in.jsonl", cdf.read_jsonl), ("in.parquet", cdf.read_parquet)):
        home = tmp_path / name.partition(".")[2]
        home.mkdir()
        sink = FileSink(Folder(str(home / "out")), ParquetFormat("zstd"), 10**6)
        job = Job(fork([Branch(lower(read(tmp_path / name)), sink)]), "raise")
        attempt = Attempt(job.fork.source.cut(10**6)[0], block_bytes, 1_000)
        assert run_range(cloudpickle.dumps(job), attempt).outcome == "oversize"
        attempt = Attempt(job.fork.source.cut(10**6)[0], block_bytes, 1_000, exclusive_bytes=10**9)
        manifest = run_range(cloudpickle.dumps(job), attempt)
        assert (manifest.outcome, manifest.rows_read, manifest.rows_written) == ("done", 8, 6)
        assert ids(home / "out") == [0, 1, 3, 4, 6, 7]
        assert [record["bytes"] > 5_000 for record in aside(home)] == [True, True]
        assert [record["line"] for record in aside(home)] == [3, 6]
        assert all("raw" not in record for record in aside(home))
