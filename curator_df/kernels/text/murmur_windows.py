# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: ARG001 - what stands for a function, or makes its code, has its parameters
# numba has no types.
# mypy: disable-error-code="untyped-decorator,no-any-return"
"""Compiled MurmurHash3 of every window of a text, in batches of some thousand windows.

A window is ``width`` consecutive code points. 32 bits: MurmurHash3_x86_32. 64 bits: the first word of
MurmurHash3_x64_128. Zero is replaced by one, as in libcudf, where zero means that there is not a window. Functions that other
compiled functions call; nothing is compiled when this module is imported.

References
----------
Austin Appleby, MurmurHash3.cpp (public domain).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from curator_df.kernels.compiling.compiled import chosen, helper, inlined, intrinsic, kernel, types
from curator_df.kernels.compiling.shipped_kernels import cpu_flags
from curator_df.kernels.text.murmur_hash import hash_blocks, hash_end

CHUNK_WINDOWS = 2048
"""Number of windows hashed in one batch: 8 or 16 KB of hashes, which stay in the first-level cache."""
LANES = 16
"""Number of runs hashed at once, as in `lane_code`."""
CAN_GATHER = "avx2" in cpu_flags()
"""Whether the processor reads from many addresses in one instruction."""
WIDE_WINDOWS = 256
"""Number of windows hashed over non-ASCII text before the next search for ASCII."""

_W: Any = np.uint32
_U: Any = np.uint64
_C1, _C2, _ADD, _FIVE = _W(0xCC9E2D51), _W(0x1B873593), _W(0xE6546B64), _W(5)
_MIX_1, _MIX_2 = _W(0x85EBCA6B), _W(0xC2B2AE35)
_1, _2, _3, _4, _8, _16, _24 = (_U(number) for number in (1, 2, 3, 4, 8, 16, 24))
_LANES, _MOST_BYTES = _U(LANES), 1 << 32

# Explicit, so that they are compiled once, for read-only bytes, and not again for writable ones.
_BYTES = types.Array(types.uint8, 1, "C", readonly=True)
_PLACE = types.UniTuple(types.int64, 2)
_HASH_SIGNATURES = {word: word(_BYTES, types.uint64, types.uint64, word) for word in (types.uint32, types.uint64)}
_WINDOW_SIGNATURES = {
    word: _PLACE(_BYTES, types.int64, types.int64, types.int64, word, types.uint32[::1], types.int64[::1], word[::1])
    for word in (types.uint32, types.uint64)
}


@intrinsic()
def hash_lanes(
    typing_context: Any,
    data: Any,
    starts: Any,
    lengths: Any,
    hashes: Any,
    first: Any,
    longest: Any,
    seed: Any,
) -> Any:
    """Hash `LANES` runs of ``data`` (uint8), from number ``first`` (uint64) on, into their elements of ``hashes``.

    This is vector code, which LLVM does not make of such a loop: each lane has its own run, a round reads the next four bytes of
    each, and skips lanes that are at their end. Hashing runs one after the other takes 2.2 times as long, bound by two
    multiplications a round (AVX-512; words of 9 bytes, runs of 5).

    ``starts``, ``lengths``, ``hashes``: uint32. ``longest`` (int64): no run has more whole blocks of four bytes.
    ``seed``: uint32. No hash is 0. Up to three bytes after a run are read.
    """
    from curator_df.kernels.text.lane_code import write_hashes

    signature = types.void(data, starts, lengths, hashes, types.uint64, types.int64, types.uint32)
    return signature.made, write_hashes


@inlined
def _rotated(word: int, bits: int) -> int:
    return _W((word << _W(bits)) | (word >> _W(32 - bits)))


@inlined
def _mixed(word: int) -> int:
    return _W(_rotated(_W(word * _C1), 15) * _C2)


@inlined
def _round(state: int, mixed: int) -> int:
    return _W(_rotated(_W(state ^ mixed), 13) * _FIVE + _ADD)


@inlined
def _finished(state: int, length: int) -> int:
    state = _W(state ^ length)
    state = _W(_W(state ^ (state >> _W(16))) * _MIX_1)
    state = _W(_W(state ^ (state >> _W(13))) * _MIX_2)
    return max(_W(state ^ (state >> _W(16))), _W(1))


@helper
def _tail(data: Any, at: int, rest: int) -> int:
    """Return the last ``rest`` bytes (under 4) as a number."""
    if at + _4 <= _U(len(data)):
        # Without a branch on the number of bytes, which is practically random: 210 MB/s of words instead of 190.
        word = data[at] | data[at + _1] << _8 | data[at + _2] << _16 | data[at + _3] << _24
        return _W(word & ((_1 << (_8 * rest)) - _1))
    word, place = _W(0), _U(0)
    while place < rest:
        word |= _W(_W(data[at + place]) << _W(_8 * place))
        place += _1
    return word


@kernel(_HASH_SIGNATURES[types.uint32])
def murmur_32(data: Any, at: int, length: int, seed: int) -> int:
    """Hash ``length`` bytes from ``at`` on (both uint64) to 32 bits, never 0."""
    state = seed
    blocks_end = at + (length & ~_3)
    while at < blocks_end:
        state = _round(state, _mixed(_W(data[at] | data[at + _1] << _8 | data[at + _2] << _16 | data[at + _3] << _24)))
        at += _4
    return _finished(_W(state ^ _mixed(_tail(data, at, length & _3))), _W(length))


@helper
def _hash_word_runs_32(
    data: Any, ends: Any, count: int, size: int, gap: int, seed: int, starts: Any, lengths: Any, hashes: Any
) -> None:
    start, runs, last = _U(0), _U(count), _U(size - 1)
    for number in range(runs):
        starts[number], lengths[number] = _W(start), _W(_U(ends[number + last]) - start)
        start = _U(ends[number] + gap)
    of_lanes = runs - runs % _LANES if CAN_GATHER and len(data) <= _MOST_BYTES else _U(0)
    for first in range(_U(0), of_lanes, _LANES):
        longest = _W(0)
        for number in range(first, first + _LANES):
            longest = max(longest, lengths[number])
        hash_lanes(data, starts, lengths, hashes, first, types.int64(longest & ~_W(3)), seed)
    for number in range(of_lanes, runs):
        start = _U(ends[number - _1] + gap) if number else _U(0)
        hashes[number] = murmur_32(data, start, _U(ends[number + last]) - start, seed)


@kernel(_HASH_SIGNATURES[types.uint64])
def murmur_64(data: Any, at: int, length: int, seed: int) -> int:
    """Hash ``length`` bytes from ``at`` on (both uint64) to 64 bits, never 0."""
    blocks = length >> _4
    high, low = hash_blocks(data, at, blocks, seed, seed)
    high, _ = hash_end(data, at + blocks * _16, length & _U(15), high, low, length)
    return max(high, _1)


@helper
def is_continuation(byte: int) -> bool:
    """Return whether a byte of UTF-8 continues a code point."""
    return (byte & 0xC0) == 0x80


@helper
def code_points_on(data: Any, at: int, stop: int, count: int) -> int:
    """Return the position ``count`` code points after ``at``; -1 if the text ends before."""
    while count > 0:
        if at >= stop:
            return -1
        at += 1
        while at < stop and is_continuation(data[at]):
            at += 1
        count -= 1
    return at


@helper
def ascii_bytes(data: Any, at: int, stop: int) -> int:
    """Return the number of ASCII bytes from ``at`` on."""
    part = data[at:stop]
    done, step = 0, 256
    while done + step <= len(part):
        seen = types.uint8(0)
        for number in range(step):
            seen = types.uint8(seen | part[done + number])
        if seen >= 0x80:
            break
        done += step
    while done < len(part) and part[done] < 0x80:
        done += 1
    return done


@helper
def _mix_blocks(part: Any, count: int, mixed: Any) -> None:
    """Mix the four bytes at every position, ready for `_round`."""
    first, second, third, fourth = part, part[1:], part[2:], part[3:]
    for place in range(count):
        mixed[place] = _mixed(_W(first[place] | second[place] << _8 | third[place] << _16 | fourth[place] << _24))


@helper
def _hash_plain(part: Any, windows: int, width: int, seed: int, mixed: Any, hashes: Any) -> None:
    """Hash the windows of ``width`` bytes at every byte. LLVM compiles each loop to vector instructions."""
    blocks, rest = width // 4, width % 4
    _mix_blocks(part, windows + 4 * (blocks - 1) if blocks else 0, mixed)
    for place in range(windows):
        hashes[place] = seed
    for block in range(blocks):
        ready = mixed[4 * block :]
        for place in range(windows):
            hashes[place] = _round(hashes[place], ready[place])
    if rest:
        for place in range(windows):
            mixed[place] = part[4 * blocks + place]
        for byte in range(1, rest):
            left, shift = part[4 * blocks + byte :], _W(8 * byte)
            for place in range(windows):
                mixed[place] = _W(mixed[place] | _W(_W(left[place]) << shift))
        for place in range(windows):
            hashes[place] = _W(hashes[place] ^ _mixed(mixed[place]))
    for place in range(windows):
        hashes[place] = _finished(hashes[place], _W(width))


@helper
def _find_code_points(part: Any, starts: Any) -> int:
    """Write the starts of code points, without a branch on the bytes; return their number."""
    found = _U(0)
    for place in range(len(part)):
        starts[found] = place
        found += _U(not is_continuation(part[place]))
    return types.int64(found)


@helper
def _window_starts(data: Any, at: int, stop: int, width: int, starts: Any) -> int:
    """Write the starts of code points, from ``at`` on, and the end of the last window; return the number of windows.

    The result is 0 if no window is complete in the bytes that are read.
    """
    end = min(stop, at + CHUNK_WINDOWS)
    found = _find_code_points(data[at:end], starts)
    if end == stop:
        starts[found] = end - at
        found += 1
    return max(found - width, 0)


@helper
def _hash_wide(
    data: Any, at: int, stop: int, width: int, seed: int, mixed: Any, starts: Any, hashes: Any
) -> tuple[int, int]:
    """Hash the windows of ``width`` code points over any bytes; 0 windows if none is complete in the bytes that are read."""
    windows = _window_starts(data, at, stop, width, starts)
    if windows == 0:
        return at, 0
    end = min(stop, at + CHUNK_WINDOWS)
    _mix_blocks(data[at:end], end - at - 3, mixed)
    for number in range(windows):
        place, window_end = _U(starts[number]), _U(starts[number + width])
        length, state = window_end - place, seed
        blocks_end = place + (length & ~_3)
        while place < blocks_end:
            state = _round(state, mixed[place])
            place += _4
        tail = _tail(data, _U(at) + place, length & _3)
        hashes[number] = _finished(_W(state ^ _mixed(tail)), _W(length))
    return at + starts[windows], windows


@helper
def _hash_one_by_one(data: Any, at: int, stop: int, width: int, seed: int, hashes: Any) -> tuple[int, int]:
    """Hash windows of any length, also of bytes that are not UTF-8, where a code point may be as long as the text."""
    end, windows = code_points_on(data, at, stop, width), 0
    while end >= 0 and windows < WIDE_WINDOWS:
        hashes[windows] = murmur_32(data, _U(at), _U(end - at), seed)
        at, end = code_points_on(data, at, stop, 1), code_points_on(data, end, stop, 1)
        windows += 1
    return at, windows


@kernel(_WINDOW_SIGNATURES[types.uint32])
def _hash_windows_32(
    data: Any, at: int, stop: int, width: int, seed: int, mixed: Any, starts: Any, hashes: Any
) -> tuple[int, int]:
    plain = ascii_bytes(data, at, min(stop, at + CHUNK_WINDOWS + width - 1))
    windows = plain - width + 1
    if windows > 0 and (windows >= WIDE_WINDOWS or at + plain == stop):
        _hash_plain(data[at : at + plain], windows, width, seed, mixed, hashes)
        return at + windows, windows
    at, windows = _hash_wide(data, at, stop, width, seed, mixed, starts, hashes)
    if windows == 0:
        return _hash_one_by_one(data, at, stop, width, seed, hashes)
    return at, windows


@kernel(_WINDOW_SIGNATURES[types.uint64])
def _hash_windows_64(
    data: Any, at: int, stop: int, width: int, seed: int, _mixed: Any, starts: Any, hashes: Any
) -> tuple[int, int]:
    plain = ascii_bytes(data, at, min(stop, at + CHUNK_WINDOWS + width - 1))
    windows = plain - width + 1
    if windows > 0 and (windows >= WIDE_WINDOWS or at + plain == stop):
        for number in range(windows):
            hashes[number] = murmur_64(data, _U(at + number), _U(width), seed)
        return at + windows, windows
    windows = _window_starts(data, at, stop, width, starts)
    for number in range(windows):
        start = starts[number]
        hashes[number] = murmur_64(data, _U(at + start), _U(starts[number + width] - start), seed)
    if windows > 0:
        return at + starts[windows], windows
    end = code_points_on(data, at, stop, width)
    while end >= 0 and windows < WIDE_WINDOWS:
        hashes[windows] = murmur_64(data, _U(at), _U(end - at), seed)
        at, end = code_points_on(data, at, stop, 1), code_points_on(data, end, stop, 1)
        windows += 1
    return at, windows


def _murmur(data: Any, at: Any, length: Any, seed: Any) -> Any:
    return murmur_32 if seed.bitwidth == 32 else murmur_64


@chosen(_murmur)
def murmur(data: Any, at: int, length: int, seed: int) -> int:
    """Hash ``length`` bytes from ``at`` on, to as many bits as the seed has; never 0. For compiled code only."""
    raise TypeError("murmur cannot be called from Python. Call it in a function that numba compiles")


@inlined
def _word_runs_32(
    data: Any, ends: Any, count: int, size: int, gap: int, seed: int, room: Any, starts: Any, hashes: Any
) -> None:
    _hash_word_runs_32(data, ends, count, size, gap, seed, room, starts.view(np.uint32), hashes)


@helper
def _word_runs_64(
    data: Any, ends: Any, count: int, size: int, gap: int, seed: int, room: Any, starts: Any, hashes: Any
) -> None:
    start = 0
    for number in range(count):
        hashes[number] = murmur_64(data, _U(start), _U(ends[number + size - 1] - start), seed)
        start = ends[number] + gap


def _word_runs(
    data: Any, ends: Any, count: Any, size: Any, gap: Any, seed: Any, room: Any, starts: Any, hashes: Any
) -> Any:
    return _word_runs_32 if seed.bitwidth == 32 else _word_runs_64


@chosen(_word_runs)
def hash_word_runs(
    data: Any, ends: Any, count: int, size: int, gap: int, seed: int, room: Any, starts: Any, hashes: Any
) -> None:
    """Hash ``count`` runs of ``size`` words, one starting at each word. For compiled code only.

    ``ends``: end of each word in ``data``; the next begins ``gap`` bytes after it, the first at 0. Three bytes follow the
    last. ``room`` (uint32) and ``starts`` (int64): at least ``count`` each, overwritten.
    """
    raise TypeError("hash_word_runs cannot be called from Python. Call it in a function that numba compiles")


def _windows(data: Any, at: Any, stop: Any, width: Any, seed: Any, mixed: Any, starts: Any, hashes: Any) -> Any:
    return _hash_windows_32 if seed.bitwidth == 32 else _hash_windows_64


@chosen(_windows)
def hash_windows(
    data: Any, at: int, stop: int, width: int, seed: int, mixed: Any, starts: Any, hashes: Any
) -> tuple[int, int]:
    """Hash windows from the one that begins at ``at`` on. For compiled code only.

    ``mixed`` (uint32) and ``starts`` (int64): at least ``CHUNK_WINDOWS + width`` each, overwritten. ``hashes``: uint32 or
    uint64 like the seed, at least `CHUNK_WINDOWS`. Returns the start of the first window that was not hashed, and the number
    of hashed windows, 0 at the end.
    """
    raise TypeError("hash_windows cannot be called from Python. Call it in a function that numba compiles")
