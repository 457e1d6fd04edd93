# SPDX-License-Identifier: Apache-2.0
import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from curator_df.errors import CorruptFileError, OversizeRowError
from curator_df.io.jsonl import lines as under_test
from curator_df.io.jsonl.lines import Part, count_lines, first_newline, last_newline, newline_positions, read_chunks
from curator_df.io.streams.file_stream import open_bytes


def chunks(parts, block_bytes=16, largest=None):
    result = []
    for chunk in read_chunks(parts, open_bytes, block_bytes=block_bytes, largest_row_bytes=largest):
        segments = [(item.file, item.position, item.offset) for item in chunk.segments]
        result.append((chunk.take().tobytes(), segments))
    return result


def part(path, start, stop, file=0):
    return Part(file, str(path), start, stop)


def texts(parts, **kwargs):
    return [text for text, _ in chunks(parts, **kwargs)]


def test_chunks_end_on_line_ends_and_carry_offsets(tmp_path):
    path = tmp_path / "a"
    path.write_bytes(b"aaaa\nbbbb\ncccc\ndddd\n")
    assert chunks([part(path, 0, 20)], block_bytes=12) == [
        (b"aaaa\nbbbb\n", [(0, 0, 0)]),
        (b"cccc\ndddd\n", [(0, 0, 10)]),
    ]


def test_a_line_longer_than_the_block_is_a_chunk_of_its_own(tmp_path):
    path = tmp_path / "a"
    path.write_bytes(b"a\nb\n" + b"x" * 50 + b"\nc\nd\n")
    assert texts([part(path, 0, 59)], block_bytes=8) == [b"a\nb\n", b"x" * 50 + b"\n", b"c\nd\n"]


def test_a_chunk_goes_on_from_file_to_file_and_ends_the_last_line(tmp_path):
    for name, data in (("a", b"a"), ("b", b""), ("c", b"c\n"), ("d", b"d")):
        (tmp_path / name).write_bytes(data)
    parts = [
        part(tmp_path / name, 0, size, number)
        for number, (name, size) in enumerate(zip("abcd", (1, 0, 2, 1), strict=True))
    ]
    assert chunks(parts) == [(b"a\nc\nd\n", [(0, 0, 0), (1, 2, 0), (2, 2, 0), (3, 4, 0)])]


@pytest.mark.parametrize(
    ("start", "stop", "expected"),
    [(0, 3, b"ab\n"), (0, 4, b"ab\ncdef\n"), (1, 3, b""), (1, 4, b"cdef\n"), (3, 4, b"cdef\n"), (4, 8, b""),
     (4, 9, b"g\n"), (8, 10, b"g\n"), (9, 10, b"")],
)  # fmt: skip
def test_a_part_owns_the_lines_that_begin_in_it(tmp_path, start, stop, expected):
    path = tmp_path / "a"
    path.write_bytes(b"ab\ncdef\ng\n")
    assert b"".join(texts([part(path, start, stop)])) == expected


@given(
    data=st.lists(st.sampled_from([b"", b"a", b"bb", b"c" * 30, b"\xe2\x80\xa8\x0b\x0c\xc2\x85"])).map(b"\n".join),
    cuts=st.lists(st.integers(0, 200)),
    block_bytes=st.integers(1, 40),
)
def test_any_cut_and_block_size_give_every_line_once(tmp_path_factory, data, cuts, block_bytes):
    path = tmp_path_factory.getbasetemp() / "lines"
    path.write_bytes(data)
    bounds = sorted({0, len(data), *(cut for cut in cuts if cut < len(data))})
    found = b""
    for start, stop in itertools.pairwise(bounds):
        for text, segments in chunks([part(path, start, stop)], block_bytes=block_bytes):
            assert [position for _, position, _ in segments] == [0]
            assert segments[0][2] == len(found)
            assert text.endswith(b"\n")
            found += text
    assert found == data + (b"" if not data or data.endswith(b"\n") else b"\n")


def test_a_byte_order_mark_becomes_white_space(tmp_path):
    path = tmp_path / "a"
    path.write_bytes(b"\xef\xbb\xbf{}\n\xef\xbb\xbf\n")
    assert texts([part(path, 0, 10)]) == [b"   {}\n\xef\xbb\xbf\n"]


@pytest.mark.parametrize("tail", [b"\nshort\n", b""])
def test_a_line_that_is_too_long_is_measured_and_not_held(tmp_path, tail):
    path = tmp_path / "a"
    path.write_bytes(b"one\n\n" + b"x" * 2_000_000 + tail)
    with pytest.raises(
        OversizeRowError, match=r"line 3 \(byte 5\): the row has 2,000,000 bytes, but only 1,000 fit"
    ) as caught:
        chunks([part(path, 0, path.stat().st_size)], block_bytes=100, largest=1000)
    error = caught.value
    assert (error.path, error.line, error.offset, error.row_bytes) == (str(path), 3, 5, 2_000_000)


def test_a_file_that_shrank_is_an_error(tmp_path):
    path = tmp_path / "a"
    path.write_bytes(b"a\n")
    with pytest.raises(CorruptFileError, match="ends at byte 2, but had at least 9 bytes when it was listed"):
        chunks([part(path, 0, 9)])


def test_lines_are_counted_from_and_to_any_place(tmp_path):
    path = tmp_path / "a"
    path.write_bytes(b"a\nb\n\nc\n")
    assert [count_lines(str(path), open_bytes, 2, stop) for stop in range(2, 8)] == [0, 0, 1, 2, 2, 3]


def test_newlines_are_found_across_windows(monkeypatch):
    monkeypatch.setattr(under_test, "WINDOW_BYTES", 4)
    data = np.frombuffer(b"abc\n\nefghijklmn\nop", np.uint8)
    assert newline_positions(data, 3).tolist() == newline_positions(data, 9).tolist() == [3, 4, 15]
    assert (newline_positions(data, 2).tolist(), newline_positions(data[:2], 2).tolist()) == ([3, 4], [])
    assert (first_newline(data), last_newline(data), first_newline(data[5:9])) == (3, 15, None)


@pytest.mark.parametrize("share", [0.0001, 0.001, 0.01, 1.0])
def test_newlines_of_short_lines_are_those_of_long_ones(share):
    data = np.where(np.random.default_rng(7).random(600_000) < share, 10, 65).astype(np.uint8)
    every = np.flatnonzero(data == 10)
    for most in (1, 511, 512, 513, len(every), len(every) + 1):
        assert np.array_equal(newline_positions(data, most), every[:most])
