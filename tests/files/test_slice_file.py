# SPDX-License-Identifier: Apache-2.0
"""Slices come back as they were written, and any byte that changed is found, with file and offset."""

from unittest import mock

import numpy as np
import pytest

from curator_df.errors import CorruptFileError
from curator_df.files import slice_file
from curator_df.files.row_sort import merge_slices
from curator_df.files.slice_file import HEADER, SliceWriter, open_slices, part_of_slice, read_rows
from curator_df.files.storage import Folder

ROWS = np.array([[1, 10], [2, 20], [2, 21], [7, 70], [8, 80], [9, 90]], dtype=np.uint64)
BOUNDS = np.array([0, 2, 5, 7], dtype=np.uint64)


@pytest.fixture(autouse=True)
def pages_of_two_rows():
    with mock.patch.object(slice_file, "PAGE_BYTES", 32):
        yield


@pytest.fixture(params=["local", "memory"])
def folder(request, tmp_path):
    return Folder(str(tmp_path) if request.param == "local" else f"memory://{tmp_path.name}")


def written(folder, rows=ROWS, bounds=BOUNDS, step=4):
    with folder.create("keys/part-000000.slices") as file:
        writer = SliceWriter(file, 2, bounds)
        for start in range(0, len(rows), step):
            writer.append(rows[start : start + step])
        writer.finish()
        return file.commit(len(rows))


def everything(folder, record, bounds=BOUNDS):
    found = []
    for number in range(len(bounds)):
        [piece] = open_slices(folder, [record], number)
        found.append(read_rows(piece, 0, 10).tolist())
    return found


@pytest.mark.parametrize("step", [1, 2, 3, 6])
def test_each_slice_holds_the_rows_from_its_bound_on(folder, step):
    assert everything(folder, written(folder, step=step)) == [
        [[1, 10]],
        [[2, 20], [2, 21]],
        [],
        [[7, 70], [8, 80], [9, 90]],
    ]


def test_pages_are_read_one_by_one(folder):
    [piece] = open_slices(folder, [written(folder)], 3)
    assert (piece.rows, piece.page_rows) == (3, 2)
    assert [read_rows(piece, page, 1).tolist() for page in range(3)] == [[[7, 70], [8, 80]], [[9, 90]], []]


def test_a_file_without_rows(folder):
    record = written(folder, rows=ROWS[:0])
    assert everything(folder, record) == [[], [], [], []]


def test_every_flipped_byte_is_found(tmp_path):
    folder = Folder(str(tmp_path))
    record = written(folder)
    path = tmp_path / record.name
    whole = path.read_bytes()
    for at in range(len(whole)):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 0x10]) + whole[at + 1 :])
        with pytest.raises(CorruptFileError, match=r"part-000000\.slices"):
            everything(folder, record)
    path.write_bytes(whole)
    everything(folder, record)


def test_the_error_names_file_and_offset(tmp_path):
    folder = Folder(str(tmp_path))
    record = written(folder)
    path = tmp_path / record.name
    damaged = bytearray(path.read_bytes())
    damaged[HEADER.size + 8] ^= 1
    path.write_bytes(damaged)
    [piece] = open_slices(folder, [record], 0)
    with pytest.raises(CorruptFileError, match=rf"{path} is damaged: the page at byte 32 does not match its checksum"):
        read_rows(piece, 0, 1)


def test_pages_that_changed_places_are_found(tmp_path):
    rows = np.array([[1, 1], [1, 2], [1, 3], [1, 4]], dtype=np.uint64)
    folder = Folder(str(tmp_path))
    record = written(folder, rows)
    path = tmp_path / record.name
    whole = path.read_bytes()
    first, second = HEADER.size, HEADER.size + 40
    path.write_bytes(whole[:first] + whole[second : second + 40] + whole[first:second] + whole[second + 40 :])
    with pytest.raises(CorruptFileError, match="page at byte 32"):
        everything(folder, record)


def test_a_file_cut_short_is_damaged_and_a_lost_one_is_said_to_be_gone(tmp_path):
    folder = Folder(str(tmp_path))
    record = written(folder)
    path = tmp_path / record.name
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(CorruptFileError, match="it ends at byte"):
        open_slices(folder, [record], 3)
    path.unlink()
    with pytest.raises(CorruptFileError, match=r"it is missing\. Delete this file, and repeat the run"):
        open_slices(folder, [record], 3)


@pytest.mark.parametrize(("first", "last"), [(0, 1), (7, 7), (8, 8), (9, 30), (5, 20), (0, 99), (40, 50), (11, 12)])
def test_a_part_of_a_slice_has_the_rows_between_two_words_and_few_others(folder, first, last):
    words = np.array([2, 3, 5, 7, 7, 7, 7, 7, 9, 11, 12, 20, 21, 22, 30], dtype=np.uint64)
    rows = np.stack([words, np.arange(len(words), dtype=np.uint64)], axis=1)
    [piece] = open_slices(folder, [written(folder, rows, np.zeros(1, dtype=np.uint64))], 0)
    part = part_of_slice(piece, first, last)
    found = [row for merged in merge_slices([part], memory_bytes=10**6) for row in merged.tolist()]
    wanted = [row for row in rows.tolist() if first <= row[0] <= last]
    assert [row for row in found if first <= row[0] <= last] == wanted
    assert len(found) <= len(wanted) + 2 * piece.page_rows  # of a page at each end
    both = [row for merged in merge_slices([part, part], memory_bytes=10**6) for row in merged.tolist()]
    assert both == sorted(2 * found)
