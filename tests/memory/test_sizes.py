# SPDX-License-Identifier: Apache-2.0
"""Sizes as users write them, and what is not one."""

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import curator_df
from curator_df.errors import ParameterError
from curator_df.memory.sizes import read_size, rounded_up, size_to_type


@pytest.mark.parametrize(
    ("written", "size_bytes"),
    [
        ("256 MB", 256_000_000),
        ("1.5kB", 1_500),
        ("1GiB", 1 << 30),
        ("7", 7),
        ("2.07MB", 2_070_000),
        ("2.07 MB", 2_070_000),
        (7, 7),
        (2.0, 2),
    ],
)
def test_a_size_is_read(written, size_bytes):
    assert read_size("memory", written) == size_bytes


@pytest.mark.parametrize(
    "written",
    ["", " ", "MB", "B", "lots", "1e400", "inf", "nan", float("inf"), float("nan"), "1,000MB", True, None, [], b"3MB"],
)
def test_what_is_no_size_is_refused(written):
    with pytest.raises(ParameterError, match=r"is not a number of bytes\. Write it like '256MB'"):
        read_size("memory", written)


@pytest.mark.parametrize("written", ["-5GB", "0", 0, "0.1", -1])
def test_less_than_one_byte_is_refused(written):
    with pytest.raises(ParameterError, match="must be more than zero bytes"):
        read_size("memory", written)


@pytest.mark.parametrize("written", [10**18 + 1, 10**30, 1e30, "1e30", "2000PB"])
def test_a_size_beyond_64_bits_is_refused(written):
    with pytest.raises(ParameterError, match=r"is more than 1,000 PB, which no machine has"):
        read_size("memory", written)


@given(st.integers(1, 10**14))
def test_a_size_to_type_is_read_as_no_less_and_at_most_one_percent_more(size_bytes):
    typed = read_size("memory", size_to_type(size_bytes).strip("'"))
    assert size_bytes <= typed == rounded_up(size_bytes) <= 1.01 * size_bytes
    assert size_to_type(typed) == size_to_type(size_bytes)
    fits = read_size("blocksize", size_to_type(size_bytes, up=False).strip("'"))
    assert size_bytes / 1.01 <= fits <= size_bytes


@pytest.mark.parametrize(
    ("size_bytes", "typed"),
    [(7, "'7B'"), (999_500, "'1MB'"), (34_700_000, "'34.7MB'"), (1_000_001, "'1.01MB'"), (10**13, "'10TB'")],
)
def test_a_size_to_type_has_three_digits_and_a_unit(size_bytes, typed):
    assert size_to_type(size_bytes) == typed


def test_no_message_recommends_a_size_in_single_bytes():
    package = Path(curator_df.__file__).parent
    digits = re.compile(r"\b(?:device_memory|memory|blocksize)=\{[^{}]*:_\}")
    assert [path.name for path in package.rglob("*.py") if digits.search(path.read_text(encoding="utf-8"))] == []
