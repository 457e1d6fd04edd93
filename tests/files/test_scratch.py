# SPDX-License-Identifier: Apache-2.0
"""Columns of numbers in memory or in a file: the same numbers; and files of a task lie in its worker's folder."""

from __future__ import annotations

import errno
import os
import tempfile
from pathlib import Path

import numpy as np
import pytest
from distributed import Client, LocalCluster

from curator_df.errors import DiskFullError, OutputChangedError
from curator_df.files import scratch
from curator_df.files.scratch import PAGE_NUMBERS, ScratchColumn, scratch_directory


@pytest.mark.parametrize("dtype", [np.uint64, np.int64, np.float32])
@pytest.mark.parametrize("memory_bytes", [0, 10**8])
def test_numbers_are_those_that_were_put_there(tmp_path, dtype, memory_bytes):
    chance = np.random.default_rng(7)
    with ScratchColumn(dtype, memory_bytes, str(tmp_path)) as column:
        for length in (10, 20_000):  # begun again, what was there before is gone
            column.clear()
            wanted = np.empty(0, dtype)
            while len(wanted) < length:
                piece = chance.integers(0, 1_000, size=chance.integers(0, length)).astype(dtype)
                column.append(piece)
                wanted = np.concatenate([wanted, piece])
                places = chance.integers(0, max(len(wanted), 1), size=min(len(wanted), 700))
                np.testing.assert_array_equal(column.take(places), wanted[places])
                changed = np.unique(places)
                wanted[changed] = chance.integers(0, 1_000, size=len(changed))
                column.put(changed, wanted[changed])
            assert len(column) == len(wanted)
            np.testing.assert_array_equal(column.read(0, len(wanted) + 5), wanted)
            start = len(wanted) // 2
            np.testing.assert_array_equal(column.read(start, start + 7), wanted[start : start + 7])
            is_in_file = memory_bytes == 0 and len(wanted) > scratch.LEAST_NUMBERS
            assert column.spilled_bytes == (wanted.nbytes if is_in_file else 0)
    assert list(tmp_path.iterdir()) == []


def test_what_was_read_is_no_view_of_what_changes_later():
    with ScratchColumn(np.int64, 10**6) as column:
        column.append(np.arange(10))
        before = column.read(0, 10)
        column.put(np.array([3]), np.array([-1]))
        assert before.tolist() == list(range(10))


def test_a_full_disk_says_where(tmp_path, monkeypatch):
    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "pwrite", full)
    with (
        ScratchColumn(np.int64, 0, str(tmp_path)) as column,
        pytest.raises(DiskFullError, match=str(tmp_path)),
    ):
        column.append(np.zeros(10 * PAGE_NUMBERS, np.int64))


def test_files_of_a_task_lie_in_the_folder_of_its_worker(tmp_path):
    with (
        LocalCluster(
            n_workers=1, processes=False, dashboard_address="127.0.0.1:0", local_directory=tmp_path
        ) as cluster,
        Client(cluster) as client,
    ):
        found = Path(client.submit(scratch_directory).result())
    assert tmp_path in found.parents
    assert scratch_directory() == tempfile.gettempdir()


def test_a_scratch_folder_that_was_deleted_is_named(tmp_path):
    gone = tmp_path / "gone"
    with (
        ScratchColumn(np.int64, memory_bytes=0, directory=str(gone)) as column,
        pytest.raises(OutputChangedError, match=r"/gone was renamed, moved or deleted .* start the cluster again"),
    ):
        column.append(np.arange(10_000))
