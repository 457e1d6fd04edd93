# SPDX-License-Identifier: Apache-2.0
# numba has no types.
# mypy: disable-error-code="untyped-decorator,no-any-return"
"""Operations on eight bytes of text as one little-endian number: which are plain, which are blank, and their lower case.

A mark is the top bit of a byte. Plain is ASCII from the space on, and the line feed; all else (other scripts, other white
space, control characters) is left to code that processes single code points. Functions that other compiled functions
call; nothing is compiled when this module is imported.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from curator_df.kernels.compiling.compiled import inlined, intrinsic, overload, types

_U: Any = np.uint64
_TOPS, _ONES = _U(0x8080808080808080), _U(0x0101010101010101)
_SPACES, _LINE_FEEDS, _TO_SPACE = _ONES * _U(0x20), _ONES * _U(0x0A), _U(0x20 - 0x0A)
_DARK_STOP = _ONES * _U(0x21)
_UPPER_FIRST, _UPPER_STOP = _ONES * _U(0x41), _ONES * _U(0x5B)
_2, _3, _7, _8 = (_U(number) for number in (2, 3, 7, 8))


def _place(context: Any, builder: Any, kind: Any, array: Any, at: Any) -> Any:
    """Return the address of eight bytes of an array, as LLVM code."""
    data = context.make_array(kind)(context, builder, array).data
    return builder.bitcast(builder.gep(data, [at]), context.get_value_type(types.uint64.made).as_pointer())


@intrinsic(target="generic")
def _load(typing_context: Any, data: Any, at: Any) -> Any:  # noqa: ARG001 - numba gives it
    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.load(_place(context, builder, signature.args[0], *arguments), align=1)

    return types.uint64(data, types.uint64).made, code


@intrinsic(target="generic")
def _store(typing_context: Any, data: Any, at: Any, word: Any) -> Any:  # noqa: ARG001 - numba gives it
    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        builder.store(arguments[2], _place(context, builder, signature.args[0], *arguments[:2]), align=1)
        return context.get_dummy_value()

    return types.void(data, types.uint64, types.uint64).made, code


@intrinsic(target="generic")
def _count_zero_bits(typing_context: Any, number: Any) -> Any:  # noqa: ARG001 - numba gives it
    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:  # noqa: ARG001 - numba gives them
        from numba.core.cgutils import false_bit

        return builder.cttz(arguments[0], false_bit)

    return types.uint64(types.uint64).made, code


# Each of the next three is one instruction in code that numba compiles, and a Python function elsewhere.
def word_at(data: Any, at: Any) -> Any:
    """Return the eight bytes from ``at`` (uint64) on as a number."""
    return _U(int.from_bytes(bytes(data[at : at + _8]), "little"))


def put_word(data: Any, at: Any, word: Any) -> None:
    """Write eight bytes from ``at`` (uint64) on."""
    data[at : at + _8] = np.frombuffer(int(word).to_bytes(8, "little"), dtype=np.uint8)


def zero_bits(number: Any) -> Any:
    """Return the number of zero bits below the lowest set bit; 64 if no bit is set (uint64)."""
    return _U((int(number) & -int(number) or 1 << 64).bit_length() - 1)


@overload(word_at, inline="always", target="generic")
def _word_at(data: Any, at: Any) -> Any:  # noqa: ARG001 - numba gives their types
    # Parameters and their types must be the same as those of the function.
    def compiled(data: Any, at: Any) -> Any:
        return _load(data, at)

    return compiled


@overload(put_word, inline="always", target="generic")
def _put_word(data: Any, at: Any, word: Any) -> Any:  # noqa: ARG001 - numba gives their types
    # Parameters and their types must be the same as those of the function.
    def compiled(data: Any, at: Any, word: Any) -> Any:
        return _store(data, at, word)

    return compiled


@overload(zero_bits, inline="always", target="generic")
def _zero_bits(number: Any) -> Any:  # noqa: ARG001 - numba gives its type
    # Parameters and their types must be the same as those of the function.
    def compiled(number: Any) -> Any:
        return _count_zero_bits(number)

    return compiled


@inlined
def line_feed_marks(word: int) -> int:
    """Mark line feeds. The mark of a byte that is not ASCII is meaningless."""
    return ~(((word ^ _LINE_FEEDS) | _TOPS) - _ONES) & _TOPS


@inlined
def space_marks(word: int) -> int:
    """Mark spaces. The mark of a byte that is not ASCII is meaningless."""
    return ~(((word ^ _SPACES) | _TOPS) - _ONES) & _TOPS


@inlined
def other_marks(word: int, line_feeds: int) -> int:
    """Mark bytes that are not plain."""
    return (word & _TOPS) | (~((word | _TOPS) - _SPACES) & _TOPS & ~line_feeds)


@inlined
def lower_word(word: int) -> int:
    """Return the lower case of eight bytes of ASCII; other bytes may become anything."""
    tops = word | _TOPS
    return word + (((tops - _UPPER_FIRST) & ~(tops - _UPPER_STOP) & _TOPS) >> _2)


@inlined
def spaced_word(word: int, line_feeds: int) -> int:
    """Return the word with spaces in place of the marked line feeds."""
    return word + (line_feeds >> _7) * _TO_SPACE


@inlined
def first_mark(marks: int) -> int:
    """Return the number of bytes before the first marked one; 8 if none is marked (uint64)."""
    return zero_bits(marks) >> _3


@inlined
def letter_marks(word: int) -> int:
    """Mark ASCII letters in bytes that are all ASCII."""
    lower = (word | _ONES * _U(0x20)) & ~_TOPS
    return (lower + _ONES * _U(0x80 - 0x61)) & ~(lower + _ONES * _U(0x80 - 0x7B)) & _TOPS


@inlined
def zero_marks(word: int) -> int:
    """Mark zero bytes, up to the first. The marks after the first are meaningless."""
    return (word - _ONES) & ~word & _TOPS


@inlined
def dark_marks(word: int) -> int:
    """Mark non-ASCII bytes, and the space, tab, line feed and everything below the space, up to the first such byte.

    The marks after the first are meaningless.
    """
    return (word - _DARK_STOP | word) & _TOPS


@inlined
def first_bytes(word: int, count: int) -> int:
    """Return the first ``count`` bytes of eight (uint64, 1 to 8), shifted to the top."""
    return word << (_U(64) - (count << _3))
