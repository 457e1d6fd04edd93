# SPDX-License-Identifier: Apache-2.0
"""Hashes are MurmurHash3_x64_128, checked against published values, a plain Python version and, where there, mmh3."""

import importlib.util
import unicodedata

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from curator_df.errors import SchemaError
from curator_df.kernels.rows.content_hash import NULL_HASH, column_hashes, row_hashes
from curator_df.kernels.text.lower_case import SPACE_STEP, WHITE_SPACE, lower_steps

MASK = (1 << 64) - 1
NULL = [int(NULL_HASH)] * 2


def rotated(word, bits):
    return (word << bits | word >> (64 - bits)) & MASK


def finished(word):
    word = (word ^ word >> 33) * 0xFF51AFD7ED558CCD & MASK
    word = (word ^ word >> 33) * 0xC4CEB9FE1A85EC53 & MASK
    return word ^ word >> 33


def murmur(data):
    """MurmurHash3_x64_128, seed 0, one block of 16 bytes at a time."""
    c1, c2, high, low = 0x87C37B91114253D5, 0x4CF5AD432745937F, 0, 0
    for at in range(0, len(data), 16):
        block = data[at : at + 16].ljust(16, b"\0")
        whole = at + 16 <= len(data)
        first, second = (int.from_bytes(half, "little") for half in (block[:8], block[8:]))
        high ^= rotated(first * c1 & MASK, 31) * c2 & MASK
        if whole:
            high = ((rotated(high, 27) + low) * 5 + 0x52DCE729) & MASK
        low ^= rotated(second * c2 & MASK, 33) * c1 & MASK
        if whole:
            low = ((rotated(low, 31) + high) * 5 + 0x38495AB5) & MASK
    high, low = high ^ len(data), low ^ len(data)
    high = (high + low) & MASK
    low = (low + high) & MASK
    high, low = finished(high), finished(low)
    high = (high + low) & MASK
    return [high, (low + high) & MASK]


def simple_lower(character):
    lowered = character.lower()
    return lowered if len(lowered) == 1 else "i"


def normalized(text):
    return " ".join("".join(map(simple_lower, text)).split())


def hashes_of(texts, dtype="string[pyarrow]", **settings):
    return column_hashes(pd.Series(texts, dtype=dtype), **settings).tolist()


# From mmh3 5.3.1, `hash64(text, signed=False)`; "foo" is in its documentation.
PUBLISHED = {
    "": [0, 0],
    "foo": [16316970633193145697, 9128664383759220103],
    "The quick brown fox jumps over the lazy dog": [16378391709484522348, 8809951995912426311],
}


def test_published_values():
    assert hashes_of(list(PUBLISHED)) == list(PUBLISHED.values())
    assert [murmur(text.encode()) for text in PUBLISHED] == list(PUBLISHED.values())


@pytest.mark.parametrize("dtype", ["string[pyarrow]", "string[python]", object, pd.ArrowDtype(pa.string())])
def test_the_same_text_has_the_same_hash_however_it_is_stored(dtype):
    assert hashes_of(["foo", None, ""], dtype) == [PUBLISHED["foo"], NULL, [0, 0]]


def test_every_length_around_a_block():
    texts = ["abcdefghijklmnopqrstuvwxyz0123456789"[:length] * times for length in range(36) for times in (1, 50)]
    assert hashes_of(texts) == [murmur(text.encode()) for text in texts]


@given(st.lists(st.none() | st.text(), max_size=20))
def test_any_text(texts):
    texts = [None if text is None else text.encode("utf-8", "ignore").decode() for text in texts]
    assert hashes_of(texts) == [NULL if text is None else murmur(text.encode()) for text in texts]
    chunked = pa.chunked_array(
        [pa.array(["no", *texts], pa.large_string()).slice(1), pa.array(texts, pa.large_string())]
    )
    assert column_hashes(pd.Series(pd.StringDtype("pyarrow").__from_arrow__(chunked))).tolist() == 2 * hashes_of(texts)


ALIKE = st.text(st.sampled_from("aAzZ 09.\t\n\r\x1c\x85\xa0\u2003\u3000\u200bßİıΣςÉéДд\u212aǅᾼ我Ａ𐐀\U0001f600\0"))


@given(st.lists(ALIKE | st.text(), max_size=20))
@example(["İ" * 3000 + " " * 3000 + "𐐀" * 3000, "A" * 1023 + "É" + " x", "a " * 2000, " "])
def test_normalised_text_is_hashed_as_if_the_string_was_made(texts):
    texts = [text.encode("utf-8", "ignore").decode() for text in texts]
    expected = [murmur(normalized(text).encode()) for text in texts]
    assert hashes_of(texts, normalize="case_and_spaces") == expected


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("A  b", " a B\n", True),
        ("É\u3000x", "é x", True),
        ("e\u0301", "\u00e9", False),
        ("ab", "a b", False),
        ("ΟΔΟΣ", "οδοσ", True),
        ("ß", "SS", False),
        ("\u200bx", "x", False),
    ],
)
def test_what_case_and_spaces_makes_alike(one, other, same):
    first, second = hashes_of([one, other], normalize="case_and_spaces")
    assert (first == second) is same


def test_bytes_that_are_not_utf8_are_hashed_as_they_are():
    broken = pa.array([b"A\xff B\xe4", b"\xf0\x9f", b"A\xfe B\xe4"]).view(pa.string())
    texts = pd.Series(pd.ArrowDtype(pa.string()).__from_arrow__(broken))
    assert column_hashes(texts).tolist() == [murmur(raw) for raw in (b"A\xff B\xe4", b"\xf0\x9f", b"A\xfe B\xe4")]
    # Where a sequence ends is not defined: what counts is that damaged texts have hashes, and different ones.
    assert len({tuple(row) for row in column_hashes(texts, normalize="case_and_spaces").tolist()}) == 3


def test_lower_case_is_that_of_unicode_14_and_agrees_with_this_interpreter():
    table = lower_steps()
    differ = [code for code in range(0x40000) if table[code] not in (0, SPACE_STEP)]
    assert (len(differ), sum(differ), sum(code + table[code] for code in differ)) == (1433, 32_222_311, 34_914_171)
    for code in range(0x40000):
        if chr(code).isspace():
            assert table[code] == SPACE_STEP
        elif table[code] or unicodedata.unidata_version == "14.0.0":
            assert chr(code + table[code]) == simple_lower(chr(code)), hex(code)
    assert sum(table[code] == SPACE_STEP for code in range(0x40000)) == len(WHITE_SPACE)


def test_several_columns_cannot_be_mistaken_for_one_another():
    block = pd.DataFrame({"a": ["ab", "a", None, ""], "b": ["c", "bc", "", None]}, dtype="string[pyarrow]")
    both = row_hashes(block, ["a", "b"]).tolist()
    assert len({tuple(row) for row in both}) == 4
    joined = b"".join(word.to_bytes(8, "little") for word in murmur(b"ab") + murmur(b"c"))
    assert both[0] == murmur(joined)
    assert row_hashes(block, ["b", "a"]).tolist() != both
    assert row_hashes(block, ["a"]).tolist() == column_hashes(block["a"]).tolist()


@pytest.mark.parametrize("dtype", ["int64", "Int32", "uint8", "int64[pyarrow]"])
def test_integers_are_eight_bytes_whatever_their_width(dtype):
    assert hashes_of([1, 200], dtype) == [murmur((number).to_bytes(8, "little")) for number in (1, 200)]


def test_other_numbers_and_nulls():
    assert hashes_of([0.0, -0.0, np.nan], "float64") == [murmur(bytes(8)), murmur(bytes(8)), NULL]
    assert hashes_of([7, None], "Int64") == [murmur((7).to_bytes(8, "little")), NULL]
    assert hashes_of([7, None], "int64[pyarrow]") == [murmur((7).to_bytes(8, "little")), NULL]
    assert hashes_of([True, None], "boolean") == [murmur((1).to_bytes(8, "little")), NULL]
    with pytest.raises(SchemaError, match="the column 'when' has dtype datetime64"):
        column_hashes(pd.Series(pd.to_datetime(["2020-01-01"]), name="when"))


@pytest.mark.parametrize(
    "values",
    [
        pd.Series(["a", None, "", "a", "c"], dtype="string[pyarrow]"),
        pd.Series([2**60 + 1, None, 3, -1], dtype="Int64"),
        pd.Series([True, None, False], dtype="boolean"),
        pd.Series([0.5, None, -0.0], dtype="Float64"),
        pd.Series([None, None], dtype="string[pyarrow]"),
    ],
    ids=str,
)
def test_a_category_has_the_hash_of_its_value(values):
    assert column_hashes(values.astype("category")).tolist() == column_hashes(values).tolist()
    unused = pd.Series(values.astype("category").array[1:])
    assert column_hashes(unused).tolist() == column_hashes(values[1:]).tolist()
    with pytest.raises(SchemaError, match="'when' has dtype datetime64"):
        column_hashes(pd.Series([pd.Timestamp(0)], name="when").astype("category"))


def test_no_rows():
    assert column_hashes(pd.Series([], dtype="string[pyarrow]")).shape == (0, 2)
    assert row_hashes(pd.DataFrame({"a": [], "b": []}, dtype="string[pyarrow]"), ["a", "b"]).shape == (0, 2)


@pytest.mark.skipif(
    importlib.util.find_spec("mmh3") is None, reason="mmh3 is not installed: the plain version stands in"
)
def test_mmh3_agrees():
    import mmh3

    texts = ["é" * length for length in range(100)]
    assert hashes_of(texts) == [list(mmh3.hash64(text, signed=False)) for text in texts]
