# SPDX-License-Identifier: Apache-2.0
"""Batches by padded tokens: what a batch holds, what happens when it does not fit, and when larger ones are tried again."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from curator_df.models.batches import GROW_AFTER, BatchCounts, BatchSize, run_batches, windows


class OutOfMemoryError(RuntimeError):
    """As torch names it."""


def batches_of(lengths, size, *, most_padded=None):
    """Return the batches that went well; a larger one than ``most_padded`` tokens runs out of memory."""
    lengths, seen, counts = np.asarray(lengths), [], BatchCounts()

    def forward(places):
        if most_padded is not None and len(places) * lengths[places].max() > most_padded:
            raise OutOfMemoryError("not enough memory: you tried to allocate")
        seen.append(places.tolist())

    run_batches(lengths, size, forward, counts)
    return seen, counts


def test_documents_of_like_length_come_together_the_longest_first():
    seen, counts = batches_of([3, 9, 1, 8, 2, 4], BatchSize(18))
    assert seen == [[1, 3], [5, 0, 4, 2]]
    assert (counts.documents, counts.tokens, counts.padding_tokens, counts.batches) == (6, 27, 1 + 6, 2)


@given(
    st.lists(st.integers(1, 40), max_size=60),
    st.integers(1, 90),
    st.integers(1, 9) | st.none(),
    st.integers(40, 200) | st.none(),
)
def test_every_document_is_in_one_batch_that_fits(lengths, tokens, rows, most_padded):
    seen, counts = batches_of(lengths, BatchSize(tokens, rows), most_padded=most_padded)
    assert sorted(place for batch in seen for place in batch) == list(range(len(lengths)))
    for batch in seen:
        padded = len(batch) * max(lengths[place] for place in batch)
        assert len(batch) == 1 or (padded <= tokens and len(batch) <= (rows or padded))
    assert (counts.documents, counts.tokens, counts.batches) == (len(lengths), sum(lengths), len(seen))


def test_a_batch_that_does_not_fit_is_halved_and_the_size_that_did_is_remembered():
    size = BatchSize(64)
    seen, counts = batches_of([8] * 16, size, most_padded=20)
    assert [len(batch) for batch in seen] == [2] * 8
    assert (counts.batches_halved, counts.documents, size.tokens) == (2, 16, 16)
    again, counts = batches_of([8] * 4, size, most_padded=20)
    assert ([len(batch) for batch in again], counts.batches_halved) == ([2, 2], 0)


def test_what_a_document_takes_however_short_counts_as_tokens_of_it():
    seen, counts = batches_of([1] * 9, BatchSize(20, row_tokens=4))
    assert [len(batch) for batch in seen] == [4, 4, 1]
    assert (counts.tokens, counts.padding_tokens) == (9, 0)
    seen, counts = batches_of([1] * 9, BatchSize(20, row_tokens=4), most_padded=2)
    assert [len(batch) for batch in seen] == [2, 2, 2, 2, 1]
    assert counts.batches_halved == 1


def test_after_many_good_batches_larger_ones_are_tried_up_to_the_first_size():
    size = BatchSize(64)
    size.failed(8, 8)
    assert size.tokens == 32
    for _ in range(2 * GROW_AFTER):
        assert size.tokens == 32
        size.succeeded()
    assert size.tokens == 41
    for _ in range(20 * GROW_AFTER):
        size.succeeded()
    assert size.tokens == 64


def test_one_document_that_does_not_fit_is_an_error_and_so_is_any_other_failure():
    with pytest.raises(OutOfMemoryError):
        batches_of([8, 30], BatchSize(64), most_padded=20)

    def fails(places):
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        run_batches(np.array([1, 2]), BatchSize(8), fails, BatchCounts())


@given(st.lists(st.integers(0, 30), max_size=30), st.integers(1, 40))
def test_windows_follow_each_other_and_hold_no_more_than_they_may(sizes, most):
    found = list(windows(np.array(sizes, dtype=np.int64), most))
    assert [row for rows in found for row in range(len(sizes))[rows]] == list(range(len(sizes)))
    assert all(sum(sizes[rows]) <= most or rows.stop - rows.start == 1 for rows in found)
