# SPDX-License-Identifier: Apache-2.0
"""Cut texts are those of plain Python."""

from __future__ import annotations

import re

import pandas as pd
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from curator_df.kernels.edits.boilerplate import BOILERPLATE_PHRASES
from curator_df.kernels.edits.clean_texts import clean_texts
from curator_df.kernels.edits.cut_texts import (
    SliceEnds,
    slices_of,
    without_boilerplate,
    without_lines,
    without_markdown,
    without_quotation_marks,
)
from tests.examples import examples

MARKS = ['"', "*", "**", "_", "__", "[", "](", ")", "[a](b)", "!", "a", "b c", "snake_case", "2 * 3"]
PIECES = st.one_of(
    st.sampled_from(["\n", "\n\n", "\r\n", " ", "\t", "\u3000", "\u2028", "\x1f", "\x85", "é", "漢", "🙂", *MARKS]),
    st.sampled_from(["Privacy Policy", "lorem ipsum", "use coo\u212aies", "a\n\nb"]),
    st.text(max_size=3),
)
TEXTS = st.lists(PIECES, max_size=16).map("".join)
COLUMNS = st.lists(st.none() | TEXTS, max_size=4)


def assert_changed(cut, texts, reference):
    """Compare what a function of a column returns with what plain Python makes of each text."""
    column = pd.Series(texts, dtype="string[pyarrow]", name="text", index=range(5, 5 + len(texts)))
    changed, rows_changed = cut(column)
    wanted = [None if text is None else reference(text) for text in texts]
    assert [None if text is pd.NA else text for text in changed] == wanted
    assert rows_changed == sum(text != after for text, after in zip(texts, wanted, strict=True))
    assert changed.index.equals(column.index) and changed.name == "text" and changed.dtype == column.dtype
    assert rows_changed or changed is column


def unquoted(text: str) -> str:
    is_quoted = len(text) > 2 and text[0] == text[-1] == '"'
    return text[1:-1] if is_quoted and ("\n" not in text or not text.split("\n", maxsplit=1)[0].endswith('"')) else text


def without_notices(text: str) -> str:
    paragraphs = text.split("\n\n")
    # The Kelvin sign, and nothing else that is not ASCII, has a lower case in ASCII.
    lowered = [paragraph.replace("\u212a", "k").lower() for paragraph in paragraphs]
    if any("lorem ipsum" in paragraph for paragraph in lowered):
        return ""
    found = [number for number, one in enumerate(lowered) if any(phrase in one for phrase in BOILERPLATE_PHRASES)]
    is_run = found and found == list(range(found[0], found[-1] + 1)) and len(found) < len(paragraphs)
    if not is_run or (found[0] > 0 and found[-1] < len(paragraphs) - 1):
        return text
    return "\n\n".join(one for number, one in enumerate(paragraphs) if number not in found)


def nemo_markdown(text: str) -> str:
    lines = text.split("\n")
    for pattern in (r"\*\*(.*?)\*\*", r"\*(.*?)\*", r"_(.*?)_", r"\[.*?\]\((.*?)\)"):
        lines = [re.sub(pattern, r"\1", line) for line in lines]
    return "\n".join(lines)


def plain_markdown(text: str) -> str:
    lines = text.split("\n")
    for mark in (r"\*\*", r"\*", "__", "_"):
        pattern = rf"(?<![A-Za-z0-9]){mark}(?![ \t])(.+?)(?<![ \t]){mark}(?![A-Za-z0-9])"
        lines = [re.sub(pattern, r"\1", line) for line in lines]
    return "\n".join(re.sub(r"!?\[(.*?)\]\((.*?)\)", r"\1", line) for line in lines)


def single_spaced(text: str) -> str:
    lines = zip(text.splitlines(keepends=True), text.splitlines(), strict=True)
    return "".join(" ".join(line.split()) + whole[len(line) :] for whole, line in lines)


@settings(max_examples=examples(400))
@given(COLUMNS)
@example(['"a"', '""', '"', '"a"\nb"', '"\n"a"', '"a\n"b"', None, '"é"', ' "a"'])
def test_quotation_marks(texts):
    assert_changed(without_quotation_marks, texts, unquoted)


@settings(max_examples=examples(400))
@given(COLUMNS)
@example(["Privacy policy", "a\n\nprivacy policy", "privacy policy\n\na", "a\n\n\nprivacy policy\n\n", "\n\n", ""])
@example(["privacy policy\n\nuse cookies\n\na\n\nb", "use cookies\n\na\n\nuse cookies", "a\n\nuse cookies\n\nb"])
def test_boilerplate(texts):
    assert_changed(without_boilerplate, texts, without_notices)


@settings(max_examples=examples(600))
@given(COLUMNS)
@example(["**a**", "*****", "***a***", "* a *b*", "_a_b_", "[[a](b)](c)", "[a]( [b](c", "](a)[", "[a](b\n)"])
def test_markdown_as_nemo(texts):
    assert_changed(lambda column: without_markdown(column, keep_url=True, inside_words=True), texts, nemo_markdown)


@settings(max_examples=examples(600))
@given(COLUMNS)
@example(["**a**b **c**", "snake_case_name _a_", "2 * 3 * 4", "*a *b*", "__init__", "![a](b) a!", "**", "* a\n* b"])
def test_markdown_of_words(texts):
    assert_changed(lambda column: without_markdown(column, keep_url=False, inside_words=False), texts, plain_markdown)


@settings(max_examples=examples(300))
@given(COLUMNS, st.lists(st.one_of(st.just(""), TEXTS.filter(lambda text: "\n" not in text)), min_size=1, max_size=5))
@example(["a\nb\na", "a", "", "\n", "a\n", "\na", "aa\na"], ["a", ""])
def test_lines(texts, lines):
    def reference(text):
        return "\n".join(line for line in text.split("\n") if line not in lines)

    assert_changed(lambda column: without_lines(column, lines), texts, reference)


PLACES = st.one_of(st.none(), st.integers(-9, 9), PIECES.filter(bool))


@settings(max_examples=examples(600))
@given(COLUMNS, PLACES, PLACES, st.booleans(), st.booleans(), st.booleans())
@example(["🙂a漢", "\u3000 a\x1f", "aa", ""], -2, 5, True, True, True)
@example(["abcabc", "b", "ba"], "a", "b", False, False, False)
def test_slices(texts, left, right, include_left, include_right, strip):
    def reference(text):
        begin, end = left, right
        if isinstance(left, str):
            if left not in text:
                return ""
            begin = text.find(left) + (0 if include_left else len(left))
        if isinstance(right, str):
            if right not in text:
                return ""
            end = text.rfind(right) + (len(right) if include_right else 0)
        cut = text[begin:end]
        return cut.strip() if strip else cut

    ends = SliceEnds(left, right, include_left, include_right)
    assert_changed(lambda column: slices_of(column, ends, strip=strip), texts, reference)


@settings(max_examples=examples(400))
@given(COLUMNS)
@example(["\ta  b \r\n\u00a0c", "x\ty", " ", "a \u2028 b", "\x1f", "a\x85 b"])
def test_white_space(texts):
    assert_changed(lambda column: clean_texts(column, "spaces"), texts, single_spaced)


@pytest.mark.parametrize(
    "text", ["[" * 1_000_000, "](" * 500_000, "[](" * 300_000, "**" * 500_000 + "*", "_a" * 500_000]
)
def test_a_megabyte_of_marks_takes_no_time_with_its_square(text):
    # With the expressions of NeMo hours, where there are no pairs.
    column = pd.Series([text], dtype="string[pyarrow]")
    for inside in (False, True):
        cut, _ = without_markdown(column, keep_url=inside, inside_words=inside)
        assert len(cut[0]) <= len(text)
