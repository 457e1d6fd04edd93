# SPDX-License-Identifier: Apache-2.0
"""Compile every kernel for devices to PTX, without a GPU, and print how much came out: a script.

numba asks the GPU what it is before it compiles a function that a kernel calls, so that question is answered here.
"""

import json
import sys

from numba import cuda, types
from numba.core.errors import NumbaError
from numba.cuda import compiler, dispatcher

from curator_df.kernels.device import measured, signatures, tables

BYTES, TABLE = types.uint8[::1], types.int64[:, ::1]
CLASSES = (types.uint8[::1], types.uint16[::1], types.uint8[:, ::1])
STEPS = (types.uint8[::1], types.uint16[::1], types.int32[:, ::1])
RULE = (types.int64, types.float64, types.int64, types.int64)
PLACES = types.int64[::1]
VALID = types.boolean[::1]
HASHES = types.uint64[:, ::1]
CELLS_KERNELS, TABLE_KERNELS = zip(*tables.TABLE_KERNELS.values(), strict=True)
WINDOWS = (types.uint64[:, :, ::1], types.int64[:, :, ::1])


def arguments(offsets):
    """Return the types of each kernel's arguments."""
    texts = (BYTES, offsets)
    counted = (*texts, *CLASSES)
    numbers = {kind: (kind[::1], kind[::1], kind[:, ::1]) for kind in (types.uint32, types.uint64)}
    short = (*counted, types.int64, PLACES, TABLE, types.uint64[::1], PLACES, TABLE)
    long = (*counted, types.int64, PLACES, *WINDOWS, types.uint32[::1], PLACES)
    return {
        signatures.hash_texts_kernel: (*texts, VALID, HASHES),
        signatures.hash_normalized_kernel: (*texts, VALID, *STEPS, types.uint8[:, ::1], HASHES),
        signatures.lay_normalized_kernel: (*texts, *STEPS, BYTES, PLACES, PLACES),
        signatures.lay_words_kernel: (*texts, types.boolean, *STEPS, BYTES, BYTES, PLACES, PLACES),
        signatures.signatures_32_kernel: (BYTES, offsets, offsets, BYTES, types.int64, *numbers[types.uint32]),
        signatures.signatures_64_kernel: (BYTES, offsets, offsets, BYTES, types.int64, *numbers[types.uint64]),
        measured.words_kernel: (*counted, types.int64, TABLE),
        measured.listed_words_kernel: (*counted, BYTES, PLACES, PLACES, types.int32[:, ::1], types.int64, TABLE),
        measured.characters_kernel: (*counted, types.int32[:, ::1], TABLE),
        **dict.fromkeys(measured.PLAIN_KERNELS.values(), (*counted, TABLE)),
        **dict.fromkeys(CELLS_KERNELS, (*counted, types.int64, PLACES)),
        **dict.fromkeys(TABLE_KERNELS, (*counted, types.int64, types.uint32[::1], PLACES, TABLE)),
        tables.gram_needs_kernel: (*counted, types.int64, TABLE),
        tables.short_grams_kernel: short,
        tables.short_repeats_kernel: short,
        tables.long_grams_kernel: (*long, TABLE),
        tables.long_repeats_kernel: (*long, BYTES, PLACES, TABLE),
        measured.count_kernel: (TABLE, types.int64, types.int64[::1]),
        measured.quotient_kernel: (TABLE, types.int64, TABLE, types.int64, types.float64, types.float64[::1]),
        measured.pass_kernel: (VALID, types.int64, types.int16[::1]),
        measured.rule_kernel: (types.int64[::1], *RULE, types.int16[::1]),
        measured.outcome_kernel: (types.int16[::1], VALID, types.int64[::1]),
    }


class Device:
    """What is asked of a GPU: a Hopper's compute capability."""

    compute_capability = (9, 0)


def main(offsets):
    width = {"32": types.int32, "64": types.int64}[offsets]
    dispatcher.get_current_device = compiler.get_current_device = lambda: Device
    try:
        cuda.compile_ptx(lambda values: None, types.void(BYTES), cc=Device.compute_capability)
    except (OSError, RuntimeError, ValueError, NumbaError) as exc:
        sys.exit(f"no compiler for devices: {exc}")
    sizes = {}
    for kernel, types_of in arguments(width[::1]).items():
        ptx, _ = cuda.compile_ptx(kernel.py_func, types.void(*types_of), cc=Device.compute_capability)
        assert ".visible .entry" in ptx
        assert ".target sm_90" in ptx
        sizes[f"{kernel.py_func.__name__} {types_of[-1]}"] = len(ptx)
    print(json.dumps(sizes))  # noqa: T201 (a script)


if __name__ == "__main__":
    main(*sys.argv[1:])
