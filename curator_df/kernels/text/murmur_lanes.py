# SPDX-License-Identifier: Apache-2.0
# numba and llvmlite have no types.
# mypy: disable-error-code="untyped-decorator,no-any-return"
"""MurmurHash3_x86_32 of sixteen runs of bytes of any lengths at once, as vector code, which LLVM does not make of such a loop.

Each lane has its own run. A round reads the next four bytes of each lane, and skips lanes that are at their
end. Hashing runs one after the other takes 2.2 times as long, bound by two multiplications a round (AVX-512; words of 9 bytes,
runs of 5). Functions that other compiled functions call; nothing is compiled when this module is imported.

References
----------
Austin Appleby, MurmurHash3.cpp (public domain), ``MurmurHash3_x86_32``.
"""

from __future__ import annotations

from typing import Any

from curator_df.kernels.compiling.compiled import intrinsic, types
from curator_df.kernels.compiling.shipped_kernels import cpu_flags

LANES = 16
"""Number of runs hashed at once, as in `lane_code`."""
CAN_GATHER = "avx2" in cpu_flags()
"""Whether the processor reads from many addresses in one instruction."""


@intrinsic()
def hash_lanes(
    typing_context: Any,  # noqa: ARG001 - numba gives it
    data: Any,
    starts: Any,
    lengths: Any,
    hashes: Any,
    first: Any,  # noqa: ARG001 - numba gives their types
    longest: Any,  # noqa: ARG001
    seed: Any,  # noqa: ARG001
) -> Any:
    """Hash `LANES` runs of ``data`` (uint8), from number ``first`` (uint64) on, into their elements of ``hashes``.

    ``starts``, ``lengths``, ``hashes``: uint32. ``longest`` (int64): no run has more whole blocks of four bytes.
    ``seed``: uint32. No hash is 0. Up to three bytes after a run are read.
    """
    from curator_df.kernels.text.lane_code import write_hashes

    signature = types.void(data, starts, lengths, hashes, types.uint64, types.int64, types.uint32)
    return signature.made, write_hashes
