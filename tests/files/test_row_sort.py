# SPDX-License-Identifier: Apache-2.0
"""Sorting and merging give the same rows whatever the memory, the pages and the cut into pieces."""

import tempfile
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from curator_df.files import slice_file
from curator_df.files.row_sort import RowSorter, ScratchRuns, merge_slices
from curator_df.files.slice_file import open_slices
from curator_df.files.storage import Folder

WORD = st.one_of(st.integers(0, 2), st.integers(0, (1 << 64) - 1))
TABLES = st.lists(st.lists(st.tuples(WORD, WORD), max_size=40), max_size=9)


def table(rows):
    return np.array(rows, dtype=np.uint64).reshape(len(rows), 2)


def tuples(pieces):
    return [tuple(row) for piece in pieces for row in piece.tolist()]


@given(TABLES, st.sampled_from([1, 300, 3000, 10**6]), st.sampled_from([16, 48, 32_000]))
def test_merged_slices_are_all_rows_in_order(tables, memory_bytes, page_bytes):
    with mock.patch.object(slice_file, "PAGE_BYTES", page_bytes), ScratchRuns() as runs:
        slices = [runs.write(iter([table(sorted(rows))]), 2) for rows in tables]
        merged = tuples(merge_slices(slices, memory_bytes=memory_bytes))
    assert merged == sorted(row for rows in tables for row in rows)


@given(TABLES, st.sampled_from([1, 500, 5000, 10**6]), st.lists(WORD, max_size=4))
def test_a_sorter_writes_the_same_file_whatever_its_memory(tables, memory_bytes, bounds):
    bounds = np.array(sorted({0, *bounds}), dtype=np.uint64)
    folder = Folder("memory://row-sort")
    with mock.patch.object(slice_file, "PAGE_BYTES", 64):
        sorter = RowSorter(folder, "rows.slices", words=2, bounds=bounds, memory_bytes=memory_bytes)
        for rows in tables:
            sorter.append(table(rows))
        record = sorter.commit()
        slices = [open_slices(folder, [record], number)[0] for number in range(len(bounds))]
        found = [tuples(merge_slices([piece], memory_bytes=10**6)) for piece in slices]
    everything = sorted(row for rows in tables for row in rows)
    assert [row for rows in found for row in rows] == everything
    stops = [*bounds.tolist()[1:], 1 << 64]
    for rows, start, stop in zip(found, bounds.tolist(), stops, strict=True):
        assert all(start <= first < stop for first, _ in rows)
    assert record.rows == len(everything)


def test_spilled_rows_leave_nothing_behind(tmp_path):
    scratch, folder = tmp_path / "scratch", Folder(str(tmp_path / "out"))
    sorter = RowSorter(
        folder, "a.slices", words=2, bounds=np.zeros(1, np.uint64), memory_bytes=7200, scratch=str(scratch)
    )
    rows = np.arange(4000, dtype=np.uint64).reshape(2000, 2)[::-1]
    sorter.append(rows)
    assert sorter.spilled_bytes > 0
    assert list(scratch.iterdir()) == []  # the file has no name
    record = sorter.commit()
    [piece] = open_slices(folder, [record], 0)
    assert (np.concatenate(list(merge_slices([piece], memory_bytes=10**6))) == rows[::-1]).all()


def test_what_is_discarded_is_not_there(tmp_path):
    folder = Folder(str(tmp_path / "out"))
    sorter = RowSorter(folder, "a.slices", words=2, bounds=np.zeros(1, np.uint64), memory_bytes=10**6)
    sorter.append(np.zeros((5, 2), np.uint64))
    sorter.discard()
    assert folder.names() == []


def test_slices_that_share_no_rows_are_passed_on_in_whole_chunks():
    with ScratchRuns() as runs:
        parts = [np.arange(20_000, dtype=np.uint64).reshape(-1, 2) + np.uint64(10**6 * number) for number in range(3)]
        slices = [runs.write(iter([part]), 2) for part in parts]
        pieces = list(merge_slices(slices, memory_bytes=3 * 2000 * 88))
    assert {len(piece) for piece in pieces} == {2000, 4000}  # two chunks where one slice ends
    assert (np.concatenate(pieces) == np.concatenate(parts)).all()


def test_scratch_is_made_where_it_is_asked_for(tmp_path):
    with ScratchRuns(str(tmp_path / "deep" / "scratch")) as runs:
        runs.write(iter([np.zeros((1, 2), np.uint64)]), 2)
        assert Path(tmp_path / "deep" / "scratch").is_dir()
    with ScratchRuns() as runs:
        assert tempfile.gettempdir() in runs.write(iter([np.zeros((1, 2), np.uint64)]), 2).name


@pytest.mark.parametrize("count", [0, 1])
def test_nothing_to_merge(count):
    with ScratchRuns() as runs:
        slices = [runs.write(iter([]), 2) for _ in range(count)]
        assert list(merge_slices(slices, memory_bytes=1)) == []
