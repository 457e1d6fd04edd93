# SPDX-License-Identifier: Apache-2.0
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from curator_df.files.row_order import rows_up_to, sorted_order, take_rows

TOP = (1 << 64) - 1


def table(rows):
    return np.array(rows, dtype=np.uint64).reshape(len(rows), -1)


@pytest.mark.parametrize(
    ("rows", "order"),
    [
        ([], []),
        ([[9, 9]], [0]),
        ([[3, 0], [1, 0], [2, 0]], [1, 2, 0]),
        ([[1, 5], [1, 4], [0, 9]], [2, 1, 0]),
        ([[TOP, 1], [0, 1], [TOP, 0]], [1, 2, 0]),
        ([[7, 7], [7, 7], [7, 7]], [0, 1, 2]),
    ],
)
def test_order_of_small_tables(rows, order):
    assert sorted_order(np.array(rows, dtype=np.uint64).reshape(-1, 2)).tolist() == order


words = st.one_of(
    st.integers(0, 3), st.integers(TOP - 3, TOP), st.integers(0, TOP), st.integers(1 << 62, (1 << 62) + 9)
)


@given(st.integers(1, 4).flatmap(lambda width: st.lists(st.tuples(*[words] * width), min_size=1)))
def test_any_table_is_sorted_like_a_list_of_tuples(rows):
    held = table(rows)
    assert [tuple(row) for row in take_rows(held, sorted_order(held)).tolist()] == sorted(rows)


@given(st.lists(st.tuples(words, words), min_size=1), st.tuples(words, words))
def test_rows_up_to_counts_what_is_not_after(rows, last):
    assert rows_up_to(table(sorted(rows)), list(last)) == sum(row <= last for row in rows)


def test_first_words_that_differ_only_in_their_lowest_bits():
    rows = np.zeros((100_000, 2), dtype=np.uint64)
    rows[:, 0] = np.arange(100_000)[::-1] % 7
    rows[0, 0] = TOP  # the span is now so wide that packing loses the lowest bits of all others
    rows[:, 1] = np.arange(100_000)[::-1]
    ordered = take_rows(rows, sorted_order(rows))
    assert (ordered == rows[np.lexsort((rows[:, 1], rows[:, 0]))]).all()
