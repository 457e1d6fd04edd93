# SPDX-License-Identifier: Apache-2.0
# numba and llvmlite have no types.
# mypy: disable-error-code="untyped-decorator,no-any-return"
"""LLVM code of `murmur_windows.hash_lanes`: MurmurHash3 of sixteen runs of bytes at once. It imports llvmlite and numba."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.core import cgutils

LANES = 16
"""Number of runs hashed at once: two vector registers of AVX2, whose rounds do not wait for each other, or one of AVX-512."""

_WORD, _ADDRESS, _BIT = ir.IntType(32), ir.IntType(64), ir.IntType(1)
_WORDS, _ADDRESSES, _BITS = (ir.VectorType(kind, LANES) for kind in (_WORD, _ADDRESS, _BIT))
_POINTERS = ir.VectorType(_WORD.as_pointer(), LANES)
_C1, _C2, _ADD, _MIX_1, _MIX_2 = 0xCC9E2D51, 0x1B873593, 0xE6546B64, 0x85EBCA6B, 0xC2B2AE35


def _all(number: int) -> Any:
    return ir.Constant(_WORDS, [number] * LANES)


def _spread(builder: Any, number: Any, kind: Any) -> Any:
    """Return a vector with a number in every lane, as LLVM code."""
    empty = ir.Constant(kind, ir.Undefined)
    first = builder.insert_element(empty, number, ir.Constant(_WORD, 0))
    return builder.shuffle_vector(first, empty, _all(0))


def _rotated(builder: Any, words: Any, bits: int) -> Any:
    return builder.or_(builder.shl(words, _all(bits)), builder.lshr(words, _all(32 - bits)))


def _mixed(builder: Any, words: Any) -> Any:
    return builder.mul(_rotated(builder, builder.mul(words, _all(_C1)), 15), _all(_C2))


def _round(builder: Any, state: Any, words: Any) -> Any:
    turned = _rotated(builder, builder.xor(state, _mixed(builder, words)), 13)
    return builder.add(builder.add(builder.shl(turned, _all(2)), turned), _all(_ADD))


def _finished(builder: Any, state: Any, lengths: Any) -> Any:
    state = builder.xor(state, lengths)
    state = builder.mul(builder.xor(state, builder.lshr(state, _all(16))), _all(_MIX_1))
    state = builder.mul(builder.xor(state, builder.lshr(state, _all(13))), _all(_MIX_2))
    state = builder.xor(state, builder.lshr(state, _all(16)))
    return builder.select(builder.icmp_unsigned("==", state, _all(0)), _all(1), state)


def _gather(builder: Any, addresses: Any, wanted: Any) -> Any:
    """Return four bytes from each requested address, as LLVM code."""
    name = f"llvm.masked.gather.v{LANES}i32.v{LANES}p0"
    kind = ir.FunctionType(_WORDS, [_POINTERS, _WORD, _BITS, _WORDS])
    gather = builder.module.globals.get(name) or ir.Function(builder.module, kind, name=name)
    pointers = builder.inttoptr(addresses, _POINTERS)
    return builder.call(gather, [pointers, ir.Constant(_WORD, 1), wanted, _all(0)])


def write_hashes(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    """Write the code of `murmur_windows.hash_lanes`."""

    def begin(number: int) -> Any:
        return context.make_array(signature.args[number])(context, builder, arguments[number]).data

    def lanes(number: int) -> Any:
        return builder.bitcast(builder.gep(begin(number), [arguments[4]]), _WORDS.as_pointer())

    run_starts = builder.zext(builder.load(lanes(1), align=4), _ADDRESSES)
    run_lengths = builder.load(lanes(2), align=4)
    runs = builder.add(_spread(builder, builder.ptrtoint(begin(0), _ADDRESS), _ADDRESSES), run_starts)
    blocks_end, rest = builder.and_(run_lengths, _all(~3 & 0xFFFFFFFF)), builder.and_(run_lengths, _all(3))
    state = cgutils.alloca_once_value(builder, _spread(builder, arguments[6], _WORDS))
    step = ir.Constant(_ADDRESS, 4)
    with cgutils.for_range_slice(builder, ir.Constant(_ADDRESS, 0), arguments[5], step) as (place, _):
        at = _spread(builder, builder.trunc(place, _WORD), _WORDS)
        is_inside = builder.icmp_unsigned(">", blocks_end, at)
        words = _gather(builder, builder.add(runs, builder.zext(at, _ADDRESSES)), is_inside)
        before = builder.load(state)
        builder.store(builder.select(is_inside, _round(builder, before, words), before), state)
    has_rest = builder.icmp_unsigned(">", rest, _all(0))
    words = _gather(builder, builder.add(runs, builder.zext(blocks_end, _ADDRESSES)), has_rest)
    of_rest = builder.sub(builder.shl(_all(1), builder.shl(rest, _all(3))), _all(1))
    last = builder.xor(builder.load(state), _mixed(builder, builder.and_(words, of_rest)))
    builder.store(_finished(builder, last, run_lengths), lanes(3), align=4)
    return context.get_dummy_value()
