# SPDX-License-Identifier: Apache-2.0
# numba has no types.
# mypy: disable-error-code="untyped-decorator,no-any-return"
"""Compiled hashes of every window of a text in a time independent of its width: for comparing sets, not for signatures.

A window is ``width`` consecutive code points. Its hash is a polynomial of its bytes modulo 2^61 - 1 at a fixed point, computed
from the previous one (Karp and Rabin 1987, doi:10.1147/rd.312.0249): two windows of n bytes have the same hash for at most n of
the 2^61 points. For other compiled functions.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from curator_df.kernels.compiling.compiled import helper, intrinsic, kernel, types
from curator_df.kernels.text.murmur_windows import CHUNK_WINDOWS, WIDE_WINDOWS, ascii_bytes, code_points_on

_U: Any = np.uint64
_PRIME, _PRIME_BITS = _U((1 << 61) - 1), _U(61)
_POINT, _SPREAD = _U(0xA9DA00B1D1784FD), _U(0xFCC61C7631AFD64D)
"""Random constants; the second is odd."""
_ZERO = _U(2 * ((1 << 61) - 1))
"""Multiple of the prime, larger than any folded number."""
_0, _1, _3, _32 = (_U(number) for number in (0, 1, 3, 32))
_ASCII = 128
_SIGNATURE = types.UniTuple(types.int64, 2)(
    types.Array(types.uint8, 1, "C", readonly=True),
    types.int64,
    types.int64,
    types.int64,
    types.int64[::1],
    types.uint64[::1],
)
_LEAST_LANE = 16
"""Minimum number of windows of a lane; with fewer than four times as many, there is one lane."""


@intrinsic(target="generic")
def _high_product(typing_context: Any, one: Any, other: Any) -> Any:  # noqa: ARG001 - numba gives it
    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:  # noqa: ARG001 - numba gives them
        from llvmlite import ir

        wide, word = ir.IntType(128), ir.IntType(64)
        product = builder.mul(*(builder.zext(argument, wide) for argument in arguments))
        return builder.trunc(builder.lshr(product, ir.Constant(wide, 64)), word)

    return types.uint64(types.uint64, types.uint64).made, code


@helper
def _folded(number: int) -> int:
    """Return a number modulo the prime, or that plus the prime: at most 7 above it."""
    return (number & _PRIME) + (number >> _PRIME_BITS)


@helper
def _product(one: int, other: int) -> int:
    """Return a product of folded numbers, below 2^62 + 16."""
    low = one * other
    return (low & _PRIME) + ((_high_product(one, other) << _3) | (low >> _PRIME_BITS))


@helper
def _hash(state: int) -> int:
    """Spread a state over 64 bits, one to one."""
    state = (state if state < _PRIME else state - _PRIME) * _SPREAD
    return state ^ (state >> _32)


@helper
def _next(state: int, coming: int, going: int) -> int:
    """Return the state of the next window: ``coming`` is the byte that enters, ``going`` the number to add for the other."""
    return _folded(_product(state, _POINT) + _U(coming) + _1 + going)


@helper
def _power(count: int) -> int:
    """Return the point to a power."""
    found, factor = _1, _POINT
    while count > 0:
        if count & 1:
            found = _folded(_product(found, factor))
        factor = _folded(_product(factor, factor))
        count >>= 1
    return found


@helper
def _state_of(data: Any, at: int, end: int) -> int:
    state = _0
    for place in range(at, end):
        state = _next(state, data[place], _0)
    return state


@helper
def _roll_lane(part: Any, first: int, last: int, width: int, going: Any, hashes: Any) -> None:
    state = _state_of(part, first, first + width)
    hashes[first] = _hash(state)
    for number in range(first + 1, last):
        state = _next(state, part[number + width - 1], _U(going[part[number - 1]]))
        hashes[number] = _hash(state)


@helper
def _roll_plain(part: Any, windows: int, width: int, going: Any, hashes: Any) -> None:
    """Hash the windows of ASCII in four lanes, because each product must be waited for."""
    step, total = _power(width), _0
    for byte in range(_ASCII):
        total = _folded(total + step)
        going[byte] = types.int64(_ZERO - total)
    lane = windows // 4
    if lane < _LEAST_LANE:
        _roll_lane(part, 0, windows, width, going, hashes)
        return
    first, second, third, fourth = part, part[lane:], part[2 * lane :], part[3 * lane :]
    one, two = _state_of(first, 0, width), _state_of(second, 0, width)
    three, four = _state_of(third, 0, width), _state_of(fourth, 0, width)
    ahead = _U(width - 1)
    hashes[0], hashes[lane], hashes[2 * lane], hashes[3 * lane] = _hash(one), _hash(two), _hash(three), _hash(four)
    of_first, of_second, of_third, of_fourth = hashes, hashes[lane:], hashes[2 * lane :], hashes[3 * lane :]
    for number in range(_1, _U(lane)):
        one = _next(one, first[number + ahead], _U(going[first[number - _1]]))
        two = _next(two, second[number + ahead], _U(going[second[number - _1]]))
        three = _next(three, third[number + ahead], _U(going[third[number - _1]]))
        four = _next(four, fourth[number + ahead], _U(going[fourth[number - _1]]))
        of_first[number], of_second[number] = _hash(one), _hash(two)
        of_third[number], of_fourth[number] = _hash(three), _hash(four)
    if 4 * lane < windows:
        _roll_lane(part, 4 * lane, windows, width, going, hashes)


@helper
def _roll_wide(data: Any, at: int, stop: int, width: int, hashes: Any) -> tuple[int, int]:
    """Hash windows of any bytes, also of those that are not UTF-8, where a code point may be as long as the text."""
    end, windows = code_points_on(data, at, stop, width), 0
    if end < 0:
        return at, 0
    state, bytes_held = _state_of(data, at, end), end - at
    power = _power(bytes_held)
    while True:
        hashes[windows] = _hash(state)
        windows += 1
        first_end, next_end = code_points_on(data, at, stop, 1), code_points_on(data, end, stop, 1)
        if next_end < 0 or windows == WIDE_WINDOWS:
            return first_end, windows
        if next_end - first_end != bytes_held:
            bytes_held = next_end - first_end
            power = _power(bytes_held)
        if first_end - at == 1 and next_end - end == 1:  # the leaving byte is known before the state
            state = _next(state, data[end], _ZERO - _folded(_product(_U(data[at]) + _1, power)))
        else:
            gone = _state_of(data, at, first_end)
            for place in range(end, next_end):
                state = _next(state, data[place], _0)
            state = _folded(state + _ZERO - _folded(_product(gone, power)))
        at, end = first_end, next_end


@kernel(_SIGNATURE)
def roll_windows(data: Any, at: int, stop: int, width: int, going: Any, hashes: Any) -> tuple[int, int]:
    """Hash the next windows from ``at`` on; return the start of the next one, and their number, 0 if none is complete.

    ``going``: int64, at least 128, overwritten.
    """
    plain = ascii_bytes(data, at, min(stop, at + CHUNK_WINDOWS + width - 1))
    windows = plain - width + 1
    if windows > 0 and (windows >= WIDE_WINDOWS or at + plain == stop):
        _roll_plain(data[at : at + plain], windows, width, going, hashes)
        return at + windows, windows
    return _roll_wide(data, at, stop, width, hashes)
