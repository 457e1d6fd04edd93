# SPDX-License-Identifier: Apache-2.0
"""Lines and paragraphs against a reading of the definition with regular expressions, whatever the pieces."""

import re
from unittest import mock

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from curator_df.kernels.edits import text_parts
from curator_df.kernels.edits.text_parts import part_hashes, without_parts
from curator_df.kernels.rows.content_hash import row_hashes

SEPARATOR = {"lines": r"\n", "paragraphs": r"\n(?:[ \t\r\x0b\x0c]*\n)+"}
TEXTS = st.lists(st.none() | st.text(alphabet="ab \t\r\n\x0bé", max_size=25), max_size=12)
KINDS = st.sampled_from(["lines", "paragraphs"])


def split(text, kind):
    """Return (content, separator after it) of each part."""
    pieces = re.split(f"({SEPARATOR[kind]})", text)
    return list(zip(pieces[::2], [*pieces[1::2], ""], strict=True))


def column(texts):
    return pd.Series(texts, dtype="string[pyarrow]")


def expected_keys(texts, kind):
    return [
        (row, number, content)
        for row, text in enumerate(texts)
        if text is not None
        for number, (content, _) in enumerate(split(text, kind))
        if content.strip(" \t\r\n\x0b\x0c")
    ]


@given(TEXTS, KINDS, st.sampled_from([1, 2, 16_384]))
def test_parts_are_found_and_hashed_like_texts(texts, kind, at_a_time):
    with mock.patch.object(text_parts, "PARTS_AT_A_TIME", at_a_time):
        found = list(part_hashes(column(texts), kind))
    keys = expected_keys(texts, kind)
    assert [pair for parts in found for pair in zip(parts.rows, parts.ordinals, strict=True)] == [k[:2] for k in keys]
    hashes = [tuple(pair) for parts in found for pair in parts.hashes.tolist()]
    alone = row_hashes(pd.DataFrame({"text": column([content for *_, content in keys])}), ["text"])
    assert hashes == [tuple(pair) for pair in alone.tolist()]


def shortened(text, kind, going):
    parts = split(text, kind)
    kept = [part for number, part in enumerate(parts) if number not in going]
    if len(kept) == len(parts):
        return text, False
    emptied = not any(content.strip(" \t\r\n\x0b\x0c") for content, _ in kept)
    if len(parts) - 1 in going and kept:
        kept[-1] = (kept[-1][0], "")
    return "".join(content + after for content, after in kept), emptied


@given(TEXTS, KINDS, st.randoms(use_true_random=False), st.sampled_from([1, 3, 100]))
def test_texts_come_out_without_the_parts_that_go(texts, kind, choices, piece):
    going = [key[:2] for key in expected_keys(texts, kind) if choices.random() < 0.5]
    pieces = [np.array(going[start : start + piece]).T for start in range(0, len(going), piece)]
    found = without_parts(column(texts), kind, [(rows.copy(), ordinals.copy()) for rows, ordinals in pieces])
    expected = [
        (None, False) if text is None else shortened(text, kind, {n for r, n in going if r == row})
        for row, text in enumerate(texts)
    ]
    assert [None if pd.isna(text) else text for text in found.texts] == [text for text, _ in expected]
    assert found.emptied.tolist() == [emptied for _, emptied in expected]


def test_what_was_removed_is_counted_in_bytes():
    found = without_parts(column(["é\nb\nc"]), "lines", [(np.array([0, 0]), np.array([0, 1]))])
    assert found.texts.tolist() == ["c"]
    assert found.removed_bytes == 5


@pytest.mark.parametrize("going", [(0, 7), (3, 0)])
def test_a_part_that_is_not_there_is_an_error(going):
    with pytest.raises(ValueError, match=r"to be removed"):
        without_parts(column(["a\nb", "c"]), "lines", [(np.array([going[0]]), np.array([going[1]]))])


def test_a_part_of_a_row_that_is_null_is_an_error():
    with pytest.raises(ValueError, match=r"text 0 of a block no longer has the line or paragraph 0, .*random numbers"):
        without_parts(column([None, "c"]), "lines", [(np.array([0]), np.array([0]))])
