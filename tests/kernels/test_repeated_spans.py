# SPDX-License-Identifier: Apache-2.0
"""Stretches against plain readings of their definition, and removed spans against sets of bytes."""

from unittest import mock

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from curator_df.kernels.edits import repeated_spans
from curator_df.kernels.edits.repeated_spans import (
    byte_hashes,
    joined_stretches,
    stretch_pieces,
    text_stretches,
    window_hashes,
    without_spans,
)

TEXTS = st.lists(st.none() | st.text(alphabet="ab \né", max_size=60), max_size=8)
NAMES = ("rows", "firsts", "counts", "places", "cores")
SIZES = st.sampled_from([(3, 2), (8, 4), (7, 7), (12, 1)])


def column(texts):
    return pd.Series(texts, dtype="string[pyarrow]")


def found_in(texts, window_bytes, core_bytes):
    """Return (text, first window, windows, hash of the anchor, position over all texts) of each stretch."""
    return [
        stretch
        for _, found in text_stretches(column(texts), window_bytes, core_bytes)
        for stretch in zip(*(getattr(found, name).tolist() for name in NAMES), strict=True)
    ]


@given(TEXTS, SIZES, st.sampled_from([1, 2, 16_384]))
def test_every_window_is_in_one_stretch_whatever_the_batch(texts, sizes, at_a_time):
    with mock.patch.object(repeated_spans, "STRETCHES_AT_A_TIME", at_a_time):
        found = found_in(texts, *sizes)
    assert found == found_in(texts, *sizes)
    windows, expected, begin = [], [], 0
    for row, text in enumerate(texts):
        encoded = (text or "").encode()
        expected += [(row, place, begin + place) for place in range(len(encoded) - sizes[0] + 1)]
        begin += len(encoded)
    for row, first, count, place, _ in found:
        windows += [(row, first + number, place + number) for number in range(count)]
    assert windows == expected


@given(TEXTS, SIZES)
def test_equal_windows_have_equal_anchors_and_cores_tell_others_apart(texts, sizes):
    window_bytes, core_bytes = sizes
    anchors, cores = {}, {}
    for row, first, count, _, core in found_in(texts, *sizes):
        encoded = texts[row].encode()
        shared = encoded[first + count - 1 : first + window_bytes]
        for window in range(first, first + count):
            anchors.setdefault(encoded[window : window + window_bytes], set()).add(core)
        places = range(len(shared) - core_bytes + 1)
        cores.setdefault(core, []).append({shared[place : place + core_bytes] for place in places})
    assert all(len(found) == 1 for found in anchors.values())
    assert all(set.intersection(*found) for found in cores.values())  # the bytes of the anchor are in all of them


def test_a_stretch_is_half_as_long_as_the_difference_of_window_and_core():
    text = np.random.default_rng(1).integers(97, 123, 1 << 18, dtype=np.uint8).tobytes().decode()
    assert len(text) / len(found_in([text], 100, 50)) == pytest.approx(26, rel=0.05)


@given(TEXTS, SIZES, st.sampled_from([1, 3, 16_384]))
def test_stretches_and_windows_with_equal_bytes_have_equal_hashes(texts, sizes, at_a_time):
    window_bytes, _ = sizes
    bytes_of, pairs = {}, []
    for span, found in text_stretches(column(texts), *sizes):
        hashes = byte_hashes(span, found.rows, found.firsts, found.counts + window_bytes - 1).tolist()
        for row, first, count, key in zip(found.rows, found.firsts, found.counts, hashes, strict=True):
            pairs.append((texts[row].encode()[first : first + count - 1 + window_bytes], tuple(key)))
        with mock.patch.object(repeated_spans, "WINDOWS_AT_A_TIME", at_a_time):
            windows = list(window_hashes(span, found.rows, found.firsts, found.counts, window_bytes))
        assert sum(len(rows) for rows, *_ in windows) == found.counts.sum()
        for rows, firsts, keys in windows:
            for row, first, key in zip(rows, firsts, keys.tolist(), strict=True):
                pairs.append((texts[row].encode()[first : first + window_bytes], tuple(key)))
    for content, key in pairs:
        assert bytes_of.setdefault(content, key) == key
    assert len(set(bytes_of.values())) == len(bytes_of)


@given(TEXTS, st.sampled_from([(8, 4), (12, 1), (30, 10)]), st.sampled_from([1, 3, 5]))
def test_every_window_is_in_one_piece_and_equal_windows_share_what_they_are_compared_by(texts, sizes, each):
    window_bytes, seen, windows, stretches = sizes[0], {}, [], []
    for _, found in text_stretches(column(texts), *sizes):
        pieces = stretch_pieces(found.rows, found.firsts, found.anchors, found.counts, each)
        stretches += [(row, first + n) for row, first, count in zip(*found[:2], found.counts) for n in range(count)]  # noqa: B905
        for row, first, count, core in zip(*(values.tolist() for values in pieces), strict=True):
            encoded = texts[row].encode()
            assert 1 <= count <= each
            for window in range(first, first + count):
                windows.append((row, window))
                shared = (core - window, encoded[core : core + window_bytes - each + 1])
                assert window <= core <= window + each - 1
                assert len(shared[1]) == window_bytes - each + 1
                assert seen.setdefault(encoded[window : window + window_bytes], shared) == shared
    assert windows == stretches


@pytest.mark.parametrize("period", ["a", "ab", "abcde"])
def test_a_text_of_a_short_period_has_few_stretches(period):
    [(span, found)] = text_stretches(column([period * 2_000, period]), 100, 50)
    alone = ~found.follows
    assert alone.sum() < 110
    joined, hashes = joined_stretches(found, byte_hashes(span, found.rows, found.firsts, found.counts + 99))
    assert len(joined.rows) == len(hashes) < 110
    assert joined.counts.sum() == found.counts.sum() == len(period) * 2_000 - 99
    assert (joined.firsts[1:] == joined.firsts[:-1] + joined.counts[:-1]).all()


def plainly_without(text, covered):
    """Remove the code points all bytes of which are covered."""
    kept, at, removed = "", 0, 0
    for character in text:
        width = len(character.encode())
        if set(range(at, at + width)) <= covered:
            removed += width
        else:
            kept += character
        at += width
    return kept, removed


@given(TEXTS, st.data(), st.sampled_from([1, 2, 1_024]), st.sampled_from([1, 3, 4_096]))
def test_whole_code_points_go_whatever_the_pieces(texts, data, at_a_time, span_rows):
    spans = []
    for row, text in enumerate(texts):
        size = len((text or "").encode())
        for start, length in data.draw(st.lists(st.tuples(st.integers(0, 60), st.integers(1, 9)), max_size=4)):
            if start + length <= size:
                spans.append((row, start, length))

    def covering(span):
        mine = [piece for piece in spans if span.first_row <= piece[0] < span.first_row + len(span)]
        return (tuple(np.array([value]) for value in piece) for piece in reversed(mine))

    rows = mock.patch.object(repeated_spans, "SPANS_AT_A_TIME", at_a_time)
    with rows, mock.patch("curator_df.kernels.text.buffers.SPAN_ROWS", span_rows):
        found = without_spans(column(texts), covering)
    covered = {row: set() for row in range(len(texts))}
    for row, start, length in spans:
        covered[row] |= set(range(start, start + length))
    expected = [None if text is None else plainly_without(text, covered[row]) for row, text in enumerate(texts)]
    left = found.texts.astype(object).where(found.texts.notna(), None).tolist()
    assert left == [None if one is None else one[0] for one in expected]
    assert found.removed_bytes == sum(one[1] for one in expected if one)
    assert found.removed_characters == sum(len(text or "") - len(one[0]) for text, one in zip(texts, expected) if one)  # noqa: B905
    emptied = [bool(one and one[1] and not one[0].strip(" \n")) for one in expected]
    assert found.emptied.tolist() == emptied


def test_a_text_that_became_shorter_is_an_error():
    too_long = (np.array([0]), np.array([1]), np.array([5]))
    with pytest.raises(ValueError, match="is shorter than when the input was first read"):
        without_spans(column(["abcde"]), lambda _: iter([too_long]))
