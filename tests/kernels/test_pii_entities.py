# SPDX-License-Identifier: Apache-2.0
"""Pieces of texts that a model is given, and what it finds beside what rules find."""

from __future__ import annotations

import dataclasses
import re

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from curator_df.ops.cleaning import redaction as pii_entities
from curator_df.ops.cleaning.redaction import RedactionSettings, pieces, redact_texts


@dataclasses.dataclass(frozen=True)
class Found:
    """A model that has found something already."""

    spans: tuple[tuple[int, int, str], ...]
    entities: tuple[str, ...] = ("PERSON",)
    held_bytes: int = 0
    call_bytes: int = 0
    libraries: tuple[()] = ()
    shared: tuple[()] = ()

    def find(self, text):
        return self.spans


def of_column(texts, found, replacement="label", kinds=("email",)):
    column = pd.Series(texts, dtype="string[pyarrow]")
    changed, counts = redact_texts(column, RedactionSettings(kinds, replacement, b"", found))
    return changed.tolist(), counts


def test_a_digest_of_a_long_name_of_an_entity_is_told_apart_by_all_of_it():
    one, other = (Found(((0, 1, name),)) for name in ("US_DRIVER_LICENSE", "US_DRIVER_LICENCE"))
    (first,), (second,) = (of_column(["7"], found, "hash")[0] for found in (one, other))
    assert re.fullmatch(r"<US_DRIVER_LICENSE_[0-9a-f]{16}>", first)
    assert first[-17:] != second[-17:]


def test_a_value_in_two_lines_has_the_digest_of_one():
    assert of_column(["A B"], Found(((0, 3, "X"),)), "hash")[0] == of_column(["A\nB"], Found(((0, 3, "X"),)), "hash")[0]


@pytest.mark.parametrize(
    ("span", "said"),
    [
        ((0, 3), "<PERSON> <EMAIL> b"),
        ((0, 4), "<PERSON><EMAIL> b"),
        ((0, 5), "Ann <EMAIL> b"),
        ((5, 8), "Ann <EMAIL> b"),
        ((0, 13), "Ann <EMAIL> b"),
        ((10, 13), "Ann <EMAIL> b"),
        ((11, 13), "Ann <EMAIL><PERSON>"),
        ((12, 13), "Ann <EMAIL> <PERSON>"),
    ],
)
def test_where_both_overlap_the_rule_wins_and_is_whole(span, said):
    texts, counts = of_column(["Ann a@b.org b"], Found(((*span, "PERSON"),)))
    assert texts == [said]
    assert (counts["email"], counts["PERSON"]) == (1, said.count("<PERSON>"))


def cut(text):
    data = np.frombuffer(text.encode(), np.uint8)
    found = list(pieces(data, 0, len(data)))
    assert [start for start, _ in found] == [0, *(stop for _, stop in found)][:-1]
    return [data[start:stop].tobytes().decode() for start, stop in found]


@pytest.mark.parametrize(
    ("unit", "ends"),
    [
        ("A line. It ends\n", "ends\n"),
        ("It ends. And ", "ends. "),
        ("one word ", " "),
        ("漢。", "。"),
        ("漢", "漢"),
        ("😀", "😀"),
    ],
)
def test_pieces_end_with_lines_or_sentences_or_words(unit, ends):
    made = cut(unit * 3_000)
    assert "".join(made) == unit * 3_000
    assert all(one.endswith(ends) for one in made[:-1])
    assert max(len(one.encode()) for one in made) <= pii_entities.PIECE_BYTES


def test_what_has_no_white_space_is_cut_often():
    made = cut("some words " + ".,;" * 3_000 + " and more")
    assert max(len(run) for one in made for run in one.split()) <= pii_entities.RUN_BYTES
    assert cut("") == []


@given(st.lists(st.sampled_from(["a", "é", "漢", "😀", "。", " ", "\n", ". ", "x" * 300, "," * 501]), max_size=80))
def test_pieces_are_all_of_a_text(parts):
    text = "".join(parts * 4)
    made = cut(text)
    assert "".join(made) == text
    assert all(0 < len(one.encode()) <= pii_entities.PIECE_BYTES for one in made)
