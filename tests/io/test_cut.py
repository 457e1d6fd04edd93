# SPDX-License-Identifier: Apache-2.0
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from curator_df.errors import ParameterError
from curator_df.io.cut import cut_bytes, cut_files


def table(sizes, piece_bytes, compressed=None):
    sizes = np.array(sizes, np.int64)
    mask = np.zeros(len(sizes), bool) if compressed is None else np.array(compressed)
    return cut_bytes(sizes, mask, piece_bytes).table.tolist()


def test_a_large_file_is_split_evenly():
    assert table([10_000], 4000) == [[0, 0, 0, 3334], [0, 3334, 0, 6668], [0, 6668, 0, 10_000]]


def test_a_compressed_file_is_never_split_and_counts_four_times():
    assert table([10_000, 10_000, 10_000], 41_000, [True, True, False]) == [[0, 0, 1, 10_000], [2, 0, 2, 10_000]]
    assert table([10**9], 1000, [True]) == [[0, 0, 0, 10**9]]


def test_small_files_share_a_range_and_empty_ones_count_too():
    assert table([0] * 10, 8192) == [[number, 0, number + 1, 0] for number in range(0, 10, 2)]
    assert table([], 5) == []


def test_whole_files_per_range():
    assert cut_files(np.array([5, 0, 7]), 2).table.tolist() == [[0, 0, 1, 0], [2, 0, 2, 7]]


def test_a_piece_has_at_least_a_byte():
    with pytest.raises(ParameterError, match="input splits of 0 bytes"):
        table([5], 0)


@given(
    files=st.lists(st.tuples(st.integers(0, 100_000), st.booleans()), max_size=20),
    piece_bytes=st.integers(1000, 50_000),
)
def test_ranges_are_consecutive_and_cover_every_file(files, piece_bytes):
    sizes = [size for size, _ in files]
    ranges = table(sizes, piece_bytes, [packed for _, packed in files])
    position = (0, 0)
    for first, start, last, stop in ranges:
        assert (first, start) == position
        assert (first, start) == (last, stop) == (first, 0) or (first, start) < (last, stop)
        position = (last, stop) if stop < sizes[last] else (last + 1, 0)
        if first == last and not files[first][1]:
            assert stop - start <= piece_bytes
    assert position == (len(files), 0)


def test_a_sparse_multi_terabyte_file_and_many_small_ones_are_cheap():
    assert len(cut_bytes(np.array([10**12], np.int64), np.zeros(1, bool), 10**7)) == 100_000
    assert len(cut_bytes(np.full(100_000, 5000), np.zeros(100_000, bool), 5000)) == 100_000
