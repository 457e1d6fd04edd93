# SPDX-License-Identifier: Apache-2.0
"""Sequences have every token of every document, in order, whatever the blocks; whole documents stay whole."""

from __future__ import annotations

import itertools
import tracemalloc
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from curator_df.models.tokens import packing
from curator_df.models.tokens.packing import Documents, packer, piece_bytes

PAD = 99
LENGTHS = st.lists(st.integers(0, 25), max_size=40)


def documents_of(lengths: list[int]) -> list[list[int]]:
    """Return documents whose tokens are all different."""
    ends = np.cumsum([0, *lengths])
    return [list(range(100 + start, 100 + stop)) for start, stop in itertools.pairwise(ends)]


def run(lengths: list[int], cuts: list[int], pack: int | None, *, split: bool) -> tuple[list[Any], list[Any], int]:
    """Return the sequences, the pieces as (first token, tokens, document, address), and the number of padding tokens."""
    made = packer(pack, PAD, split_documents=split)
    documents = documents_of(lengths)
    bounds = [0, *sorted(min(cut, len(documents)) for cut in cuts), len(documents)]
    found = []
    for start, stop in itertools.pairwise(bounds):
        ids = np.array([token for each in documents[start:stop] for token in each], dtype=np.uint32)
        block = Documents(ids, np.array(lengths[start:stop], dtype=np.int64), np.arange(start, stop) * 10)
        # Copied, because a packer may reuse what it has filled.
        found += [(one.ids.copy(), one.lengths, one.pieces, one.padding) for one in made.add(block)]
    found += [(one.ids.copy(), one.lengths, one.pieces, one.padding) for one in made.finish()]
    sequences = []
    for ids, sizes, _, _ in found:
        assert sizes.sum() == len(ids)
        sequences += [each.tolist() for each in np.split(ids, np.cumsum(sizes)[:-1])] if len(sizes) else []
    pieces = [tuple(row) for one in found for row in zip(*(column.tolist() for column in one[2]), strict=True)]
    return sequences, pieces, sum(one[3] for one in found)


@given(LENGTHS, st.lists(st.integers(0, 40), max_size=4), st.sampled_from([None, 2, 7, 16]), st.booleans())
def test_no_token_is_lost(lengths, cuts, pack, split):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(packing, "MOST_OPEN", 3)
        sequences, pieces, padding = run(lengths, cuts, pack, split=split)
        assert (sequences, sorted(pieces), padding) == (
            run(lengths, [], pack, split=split)[0],
            *_sorted(lengths, pack, split),
        )
    flat = [token for sequence in sequences for token in sequence]
    found: dict[int, list[int]] = {number: [] for number in range(len(lengths))}
    for first, tokens, document, address in sorted(
        pieces, key=lambda piece: (piece[2], flat[piece[0]] if piece[1] else 0)
    ):
        assert address == document * 10
        found[document] += flat[first : first + tokens]
    assert list(found.values()) == documents_of(lengths)
    assert len(flat) == sum(lengths) + padding
    assert flat.count(PAD) == padding
    if pack is not None:
        assert {len(sequence) for sequence in sequences} <= {pack}


def _sorted(lengths: list[int], pack: int | None, split: bool) -> tuple[list[Any], int]:
    _, pieces, padding = run(lengths, [], pack, split=split)
    return sorted(pieces), padding


@given(LENGTHS, st.sampled_from([2, 7, 16]))
def test_only_the_last_sequence_of_a_split_is_padded(lengths, pack):
    sequences, _, padding = run(lengths, [], pack, split=True)
    assert padding == -sum(lengths) % pack
    flat = [token for sequence in sequences for token in sequence]
    assert flat[: sum(lengths)] == [token for document in documents_of(lengths) for token in document]


@given(LENGTHS, st.sampled_from([2, 7, 16]))
def test_whole_documents_stay_in_one_sequence(lengths, pack):
    _, pieces, _ = run(lengths, [], pack, split=False)
    assert all(first // pack == (first + tokens - 1) // pack for first, tokens, _, _ in pieces if tokens)
    for number, length in enumerate(lengths):
        assert sum(piece[2] == number for piece in pieces) == max(1, -(-length // pack))


def test_a_document_goes_to_the_first_sequence_with_room():
    sequences, _, padding = run([5, 6, 3, 4, 2], [], 8, split=False)
    a, b, c, d, e = documents_of([5, 6, 3, 4, 2])
    assert sequences == [[*a, *c], [*b, *e], [*d, *[PAD] * 4]]
    assert padding == 4


def test_the_fullest_sequence_is_closed_if_too_many_are_open(monkeypatch):
    monkeypatch.setattr(packing, "MOST_OPEN", 2)
    sequences, _, _ = run([5, 6, 7, 3], [], 8, split=False)
    a, b, c, d = documents_of([5, 6, 7, 3])
    assert sequences == [[*b, PAD, PAD], [*a, *d], [*c, PAD]]


@given(st.lists(st.integers(0, 4), max_size=60), st.lists(st.integers(0, 60), max_size=4))
def test_open_sequences_have_a_limited_number_of_documents(lengths, cuts):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(packing, "MOST_PIECES", 9)
        made = packer(7, PAD, split_documents=False)
        for number, length in enumerate(lengths):
            ids = np.full(length, 5, dtype=np.uint32)
            list(made.add(Documents(ids, np.array([length]), np.array([number]))))
            assert made._pieces == sum(len(one.pieces) // 4 for one in made._open) <= 9
        sequences, pieces, padding = run(lengths, cuts, 7, split=False)
        assert (sequences, sorted(pieces), padding) == (
            run(lengths, [], 7, split=False)[0],
            *_sorted(lengths, 7, split=False),
        )
        assert sum(map(len, sequences)) == sum(lengths) + padding
        assert {piece[2] for piece in pieces} == set(range(len(lengths)))


@pytest.mark.parametrize(
    ("pack", "blocks"), [(70_000, 8), *(pytest.param(pack, 32, marks=pytest.mark.proof) for pack in (2_000, 300_000))]
)
def test_the_documents_of_open_sequences_take_the_stated_memory(pack, blocks):
    made, rows = packer(pack, PAD, split_documents=False), 10_000
    stated = packing.PIECE_BYTES * packing.MOST_PIECES + piece_bytes(pack, split_documents=False)
    block = Documents(np.zeros(rows, dtype=np.uint16), np.ones(rows, dtype=np.int64), np.full(rows, 1 << 50))
    found = peak = 0
    tracemalloc.start()
    try:
        for _ in range(blocks):
            for one in made.add(block):
                found += len(one.pieces.tokens)
            peak = max(peak, tracemalloc.get_traced_memory()[0])
    finally:
        tracemalloc.stop()
    assert found == blocks * rows // pack * pack
    assert peak < stated + packing.OPEN_BYTES


def test_long_sequences_leave_fewer_of_them_open():
    assert packer(2048, 0, split_documents=False)._most == 256
    assert packer(packing.MOST_TOKENS, 0, split_documents=False)._most == 2
