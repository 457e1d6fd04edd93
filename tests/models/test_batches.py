# SPDX-License-Identifier: Apache-2.0
"""Batches by padded tokens: what a batch holds, what happens when it does not fit, and when larger ones are tried again."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from curator_df.errors import OperatorError
from curator_df.models.batch_size_tuning import MEASURED_BATCHES, WARM_BATCHES, SizeTrial
from curator_df.models.batches import GROW_AFTER, BatchCounts, BatchSize, run_batches, windows
from curator_df.models.callables import UserModel


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
    size.failed(8, 8, BatchCounts())
    assert size.tokens == 32
    for _ in range(2 * GROW_AFTER):
        assert size.tokens == 32
        size.succeeded()
    assert size.tokens == 41
    for _ in range(20 * GROW_AFTER):
        size.succeeded()
    assert size.tokens == 64


EACH = WARM_BATCHES + MEASURED_BATCHES


@pytest.fixture
def clock():
    """Seconds that have passed, in a list of one."""
    return [0.0]


def tried(lengths, size, clock, rate, *, most_padded=None, counts=None):
    """Give documents to a model that makes so many padded tokens a second in a batch of so many; return the batches."""
    lengths, seen = np.asarray(lengths), []
    counts = BatchCounts() if counts is None else counts

    def forward(places):
        padded = len(places) * int(lengths[places].max())
        if most_padded is not None and padded > most_padded:
            raise OutOfMemoryError("not enough memory: you tried to allocate")
        clock[0] += padded / rate(padded)
        seen.append(places.tolist())

    run_batches(lengths, size, forward, counts)
    return seen, counts


@pytest.mark.parametrize(
    ("rate", "taken"),
    [
        (lambda padded: {400: 100, 200: 300, 100: 200}[padded], 200),
        (lambda padded: {400: 100, 200: 99, 100: 109}[padded], 400),  # 9% more is noise
    ],
    ids=["the middle one", "about as fast"],
)
def test_sizes_take_turns_and_the_fastest_stays(clock, rate, taken):
    size = BatchSize(400, trial=SizeTrial.below(400, 100), clock=lambda: clock[0])
    measured = EACH * (4 + 2 + 1)
    seen, counts = tried([100] * (measured + 12), size, clock, rate)
    assert sorted(place for batch in seen for place in batch) == list(range(measured + 12))
    assert [len(batch) for batch in seen[: 2 * 3]] == [4, 2, 1, 2, 1, 4]  # each begins a round once
    assert [len(batch) for batch in seen[3 * EACH :]] == [taken // 100] * (1200 // taken)
    assert (size.tokens, counts.trials[f"settled_on_batches_of_{taken}"]) == (taken, 1)
    for tokens in (400, 200, 100):
        assert counts.trials[f"tokens_in_batches_of_{tokens}"] == EACH * tokens
        spent = counts.trials[f"microseconds_in_batches_of_{tokens}"] / 1e6
        assert spent == pytest.approx(EACH * tokens / rate(tokens), abs=1e-5)
    assert counts.counters()["documents"] == measured + 12
    for _ in range(100 * GROW_AFTER):
        size.succeeded()
    assert size.tokens == taken


def test_a_trial_goes_on_in_the_next_block_and_a_batch_that_is_not_full_says_nothing(clock):
    size, counts = BatchSize(400, trial=SizeTrial.below(400, 200), clock=lambda: clock[0]), BatchCounts()
    for _ in range(EACH - 1):
        tried(
            [100] * 7, size, clock, lambda padded: 100, counts=counts
        )  # 4, 2 and a last one that could have been larger
    assert not [name for name in counts.trials if name.startswith("settled")]
    for _ in range(2):
        tried([100] * 7, size, clock, lambda padded: 100, counts=counts)
    assert counts.trials["settled_on_batches_of_400"] == 1
    assert counts.documents == 7 * (EACH + 1)


def test_a_batch_that_was_slow_by_chance_does_not_count():
    trial, seconds = SizeTrial([400, 200]), {400: [9.0, 7.0, 4.0, 4.0], 200: [1.9, 3.0, 1.9, 2.5]}
    while not trial.is_done:
        size = trial.turn()
        trial.note(size, tokens=size, seconds=seconds[size].pop(0))
    assert trial.best() == 400  # 100 a second at best, and 105


def test_no_size_is_tried_that_is_above_the_most_or_holds_no_long_document():
    assert SizeTrial.below(2_048, 512).sizes == (2_048, 1_024, 512)
    assert SizeTrial.below(2_048, 16).sizes == (2_048, 1_024, 512, 256)
    assert SizeTrial.below(600, 512).is_done
    assert BatchSize(600, trial=SizeTrial.below(600, 512)).turn() is None
    assert BatchSize(600).turn() is None


@pytest.mark.parametrize(("most_padded", "settled", "later"), [(250, 200, 250), (150, 100, 150)])
def test_sizes_that_do_not_fit_are_tried_no_more(clock, most_padded, settled, later):
    """The smaller ones go on; with one left there is nothing to compare."""
    size = BatchSize(400, trial=SizeTrial.below(400, 100), clock=lambda: clock[0])
    seen, counts = tried([100] * 60, size, clock, lambda padded: 100, most_padded=most_padded)
    assert sorted(place for batch in seen for place in batch) == list(range(60))
    assert counts.trials[f"settled_on_batches_of_{settled}"] == 1
    assert size.tokens <= later


@given(
    st.lists(st.integers(1, 40), max_size=200),
    st.integers(40, 200),
    st.integers(40, 200) | st.none(),
)
def test_while_sizes_take_turns_every_document_is_in_one_batch_that_fits(lengths, tokens, most_padded):
    size = BatchSize(tokens, trial=SizeTrial.below(tokens, 10))
    seen, counts = batches_of(lengths, size, most_padded=most_padded)
    assert sorted(place for batch in seen for place in batch) == list(range(len(lengths)))
    for batch in seen:
        assert len(batch) == 1 or len(batch) * max(lengths[place] for place in batch) <= tokens
    assert (counts.documents, counts.tokens, counts.batches) == (len(lengths), sum(lengths), len(seen))


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


def test_a_number_beyond_float32_is_an_error_and_an_infinity_of_the_function_stays():
    def made(texts):
        return [[float(text), 1.0] for text in texts]

    def vectors(texts):
        kept = []
        UserModel("add_embedding", made, 2, None, 8).run(pa.chunked_array([texts]), lambda _, each: kept.append(each))
        return np.concatenate(kept).tolist()

    assert vectors(["3", "inf"]) == [[3.0, 1.0], [np.inf, 1.0]]
    with pytest.raises(OperatorError, match=r"returned 1e\+300 for text 2 of 2, beyond the range of float32 .3.4e38."):
        vectors(["3", "1e300"])
