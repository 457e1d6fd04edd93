# SPDX-License-Identifier: Apache-2.0
"""Eight bytes at a time, against one byte at a time; what is one instruction also as Python."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numba import njit

from curator_df.kernels.text import swar as module


@njit
def places(data: Any, start: int) -> tuple[int, int, int]:
    """Return the first dark byte, the first full stop and the letters, as bits, of eight bytes."""
    word = module.word_at(data, np.uint64(start))
    dark = module.first_mark(module.dark_marks(word))
    stop = module.first_mark(module.zero_marks(word ^ np.uint64(0x2E2E2E2E2E2E2E2E)))
    return dark, stop, module.letter_marks(word)


@njit
def copied(data: Any, start: int, target: Any, place: int) -> None:
    """Copy eight bytes."""
    module.put_word(target, np.uint64(place), module.word_at(data, np.uint64(start)))


@njit
def first_of(data: Any, count: int) -> int:
    """Return the first bytes of eight."""
    return module.first_bytes(module.word_at(data, np.uint64(0)), np.uint64(count))


@njit
def zeros_below(number: int) -> int:
    """Return the zero bits below the lowest that is set."""
    return module.zero_bits(number)


def forms(function: Any) -> list[Callable[..., Any]]:
    return [function, function.py_func]


def first(data: bytes, is_it: Callable[[int], bool]) -> int:
    return next((place for place, byte in enumerate(data) if is_it(byte)), len(data))


OFTEN = st.lists(st.sampled_from([*b" \n\t.aZz@[`{/!0~\x7f\x80\xc3\x00"]) | st.integers(0, 255), min_size=8, max_size=8)


@given(bytes_=OFTEN.map(bytes), before=st.integers(0, 9))
def test_what_is_found_in_eight_bytes_is_what_is_found_in_each(bytes_: bytes, before: int) -> None:
    data = np.frombuffer(b"." * before + bytes_ + b" .", dtype=np.uint8)
    dark, stop, letters = places(data, before)
    assert dark == first(bytes_, lambda byte: byte <= 0x20 or byte >= 0x80)
    assert stop == first(bytes_, lambda byte: byte == 0x2E)
    if bytes_.isascii():
        assert int(letters).to_bytes(8, "little") == bytes(0x80 * chr(byte).isalpha() for byte in bytes_)


@given(bytes_=OFTEN.map(bytes), before=st.integers(0, 9), place=st.integers(0, 9))
def test_eight_bytes_are_copied_wherever_they_stand(bytes_: bytes, before: int, place: int) -> None:
    data = np.frombuffer(b"x" * before + bytes_ + b"y", dtype=np.uint8)
    for copy in forms(copied):
        target = np.full(20, 7, dtype=np.uint8)
        copy(data, before, target, place)
        assert bytes(target) == b"\7" * place + bytes_ + b"\7" * (12 - place)


@pytest.mark.parametrize("count", range(1, 9))
def test_first_bytes_are_at_the_top(count: int) -> None:
    data = np.arange(1, 9, dtype=np.uint8)
    assert int(first_of(data, count)).to_bytes(8, "little") == bytes(8 - count) + bytes(data[:count])


def test_zero_bits_below_the_lowest() -> None:
    for zeros in forms(zeros_below):
        assert [zeros(np.uint64(1 << bit | 1 << 63)) for bit in range(64)] == [*range(64)]
        assert zeros(np.uint64(0)) == 64
