# SPDX-License-Identifier: Apache-2.0
import pytest

from curator_df.io.jsonl import blocks as line_numbers
from curator_df.io.jsonl.blocks import lines_before, note_lines
from curator_df.io.streams.file_stream import open_bytes


@pytest.fixture(autouse=True)
def nothing_known(monkeypatch):
    monkeypatch.setattr(line_numbers, "_known", {})


def test_only_what_lies_beyond_the_nearest_known_place_is_read(tmp_path):
    path = tmp_path / "a"
    path.write_bytes(b"a\nb\nc\nd\n")
    assert lines_before(str(path), 1, 4, open_bytes) == 2
    path.write_bytes(b"....c\nd\n")  # the beginning is not read again, under the same stamp
    assert lines_before(str(path), 1, 8, open_bytes) == 4
    assert lines_before(str(path), 1, 4, open_bytes) == 2
    assert lines_before(str(path), 2, 8, open_bytes) == 2


def test_a_place_that_was_noted_is_not_counted(tmp_path):
    note_lines("gone", 1, 100, 7)
    assert lines_before("gone", 1, 100, open_bytes) == 7
    assert lines_before("gone", 1, 0, open_bytes) == 0


def test_the_first_file_is_forgotten_first(monkeypatch):
    monkeypatch.setattr(line_numbers, "MOST_FILES", 2)
    for path in "abc":
        note_lines(path, 1, 10, 1)
    assert [path for path, _ in line_numbers._known] == ["b", "c"]
