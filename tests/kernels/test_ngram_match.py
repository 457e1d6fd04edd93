# SPDX-License-Identifier: Apache-2.0
"""Passages that have an n-gram of a benchmark, and texts without them, are those of plain Python."""

from __future__ import annotations

import pandas as pd
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from curator_df.kernels.edits.ngram_table import (
    count_ngrams,
    find_passages,
    make_table,
    places_of,
    rows_with_passages,
    table_bytes,
    table_slots,
    without_passages,
)
from curator_df.kernels.text.buffers import text_spans
from curator_df.kernels.text.code_points import SYMBOLS
from curator_df.kernels.text.lower_case import SPACE_STEP, WHITE_SPACE, lower_steps
from tests.examples import examples

SPACES = {chr(code) for code in WHITE_SPACE}
SIZE, LEAST = 5, 3


def table_for(texts, size=SIZE, least=LEAST):
    numbered = [(0, number, text) for number, text in enumerate(texts)]
    ngrams = sum(count_ngrams(text, size, least) for text in texts)
    return make_table(numbered, ngrams=ngrams, count=len(texts), size=size, least=least)


def plain_words(text: str) -> list[tuple[str, int, int]]:
    """Return the words of a text as they are compared, each with its first character and the one after its last."""
    words, word, first, last = [], "", 0, 0
    for place, character in enumerate(text + " "):
        if character in SPACES:
            if word:
                words.append((word, first, last))
            word = ""
        elif character not in SYMBOLS:
            step = lower_steps()[ord(character)] if ord(character) < 0x40000 else 0
            assert step != SPACE_STEP
            first, last = first if word else place, place + 1
            word += chr(ord(character) + step)
    return words


def plain_table(texts, size=SIZE, least=LEAST):
    table = {}
    for number, text in enumerate(texts):
        words = [word for word, _, _ in plain_words(text)]
        if least <= len(words) < size:
            table.setdefault(tuple(words), number)
        for at in range(len(words) - size + 1):
            table.setdefault(tuple(words[at : at + size]), number)
    return table


def plain_passages(text: str, table) -> list[tuple[int, int, int, int]]:
    """Return first character, the one after the last, number of the text found first, n-grams: joined where they share words."""
    words, sizes = plain_words(text), sorted({len(gram) for gram in table})
    joined: list[tuple[int, int, int, int]] = []
    for end in range(1, len(words) + 1):
        for size in sizes:
            gram = tuple(word for word, _, _ in words[max(end - size, 0) : end])
            if len(gram) == size and gram in table:
                start, found = words[end - size][1], table[gram]
                count = 1
                while joined and start < joined[-1][1]:
                    start, found, count = min(start, joined[-1][0]), joined[-1][2], count + joined[-1][3]
                    joined.pop()
                joined.append((start, words[end - 1][2], found, count))
    return joined


def found_in(texts, table, most=100):
    column = pd.Series(texts, dtype="string[pyarrow]")
    found = [[] for _ in texts]
    for span in text_spans(column):
        for row in rows_with_passages(span, table).tolist():
            regions = find_passages(span, row, table, most)
            places = places_of(span, row, regions)
            found[span.first_row + row] = [
                (*place, *region[2:]) for place, region in zip(places, regions.tolist(), strict=True)
            ]
    return found


WORDS = st.sampled_from(["a", "b", "A", "c", "É", "é", "İ", "漢", "🙂", "it's", "“a”", "--", "b.", "1"])
GAPS = st.sampled_from([" ", "  ", "\n", "\t", "\u00a0", "\u3000", "\r\n", " - ", "\x1f"])
TEXTS = st.lists(st.tuples(WORDS, GAPS).map("".join), max_size=24).map("".join)


@settings(max_examples=examples(600))
@given(st.lists(TEXTS, min_size=1, max_size=4), st.lists(st.none() | TEXTS, max_size=4))
@example(["a b c d e"], ["A, b. 'C' d\ne", "a b c d", "x a b c d e a b c d e", "a b c de"])
@example(["a b c", "a b c a b"], ["a b c a b c a b c"])
@example(["a b c", "x y z", "c q x y z"], ["a b c q x y z"])  # the last joins two that were apart
def test_passages_are_those_of_plain_python(benchmark, texts):
    table = plain_table(benchmark)
    wanted = [[] if text is None else plain_passages(text, table) for text in texts]
    assert found_in(texts, table_for(benchmark)) == wanted


@given(st.lists(TEXTS, min_size=1, max_size=4))
def test_the_table_has_room(benchmark):
    table = table_for(benchmark)
    assert (table.keys != 0).sum() == len(plain_table(benchmark))
    ngrams = sum(count_ngrams(text, SIZE, LEAST) for text in benchmark)
    assert len(table.keys) == table_slots(ngrams) >= 2 * ngrams
    held = sum(array.nbytes for array in (table.keys, table.numbers, table.benchmarks, table.items))
    assert held == table_bytes(ngrams, len(benchmark))


def test_the_first_passages_of_a_text_are_found():
    text = "a b c d e. x " * 20
    (passages,) = found_in([text], table_for(["a b c d e"]), most=3)
    assert passages == [(0, 9, 0, 1), (13, 22, 0, 1), (26, 35, 0, 1)]


def test_texts_too_short_to_compare_are_not_looked_for():
    assert found_in(["a b c", "a b"], table_for(["a b", "a - b"])) == [[], []]


def plain_cut(text: str, passages, margin: int, least: int) -> str:
    """Return what is left of a text, as NeMo cuts, but at the right places."""
    if not passages:
        return text
    pieces, kept_from = [], 0
    for start, stop, *_ in [*passages, (len(text), len(text) + 1)]:
        if stop <= kept_from:
            continue
        is_end = start == len(text)
        first = len(text) if is_end else max(start - margin, kept_from)
        while not is_end and first > kept_from and text[first] not in ".!?":
            first -= 1
        first += not is_end and first > kept_from
        pieces.append(text[kept_from:first])
        last = max(min(stop + margin, len(text)), kept_from)
        while last < len(text) and text[last] not in ".!?":
            last += 1
        last = min(last + 1, len(text))
        while last < len(text) and text[last] in " \t\n\x0b\x0c\r":
            last += 1
        kept_from = last
    return "\n\n".join(piece for piece in pieces if len(piece) > least)


@settings(max_examples=examples(600))
@given(st.lists(TEXTS, min_size=1, max_size=3), st.lists(TEXTS, max_size=3), st.integers(0, 9), st.integers(0, 5))
@example(["a b c d e"], ["One. Two a b c d e three! Four. a b c d e. Five"], 0, 0)
@example(["a b c d e"], ["a b c d e", "É. a b c d e É. É", "a b c d e a b c d e"], 2, 0)
def test_texts_are_cut_where_plain_python_cuts(benchmark, texts, margin, least):
    column = pd.Series(texts, dtype="string[pyarrow]")
    cut, counts = without_passages(column, table_for(benchmark), margin=margin, least=least)
    table = plain_table(benchmark)
    found = [plain_passages(text, table) for text in texts]
    assert cut.tolist() == [plain_cut(text, one, margin, least) for text, one in zip(texts, found, strict=True)]
    assert counts == {"rows_changed": sum(map(bool, found)), "passages": sum(map(len, found))}
    assert any(found) or cut is column


def test_places_are_those_of_the_text_whatever_is_before_them():
    # NeMo Curator 0.9 looks at the text without its punctuation and cuts the one with it.
    text = '"Well..." (she said), no, no! “Né”: find me in the middle of it now; and more.'
    (found,) = found_in([text], table_for(["find me in the middle of it now"]))
    start, stop, *_ = found[0]
    assert text[start:stop] == "find me in the middle of it now"
    (found,) = found_in(["so\nfind\nme\nin the\nmiddle"], table_for(["find me in the middle"]))
    assert found[0][:2] == (3, 24)


@pytest.mark.timeout(60)
@pytest.mark.parametrize("margin", [0, 200, 100_000])
@pytest.mark.parametrize(
    "text", ["a b c d e x " * 90_000, "a " * 500_000, "." * 1_000_000, " " * 1_000_000, "x" * 1_000_000]
)
def test_a_megabyte_of_anything_takes_seconds(text, margin):
    column = pd.Series([text], dtype="string[pyarrow]")
    without_passages(column, table_for(["a b c d e", "a a a a a a"]), margin=margin, least=0)
