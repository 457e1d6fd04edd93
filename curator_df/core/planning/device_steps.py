# SPDX-License-Identifier: Apache-2.0
"""The step that brings blocks back from a GPU, and where a run puts it: before its writer, which takes blocks of the host."""

from __future__ import annotations

import dataclasses
from typing import Any

from curator_df.core.backend import is_on_device
from curator_df.core.host_blocks import host_block
from curator_df.core.planning.program import Program, Step
from curator_df.core.ranges.blocks import BlockKernel

TO_HOST_FACTOR = 2.0
"""Assumed: what comes over, and texts and numbers once more as pandas has them (offsets of 64 bits, masks)."""
DEVICE_TO_HOST_FACTOR = 0.5
"""Assumed: truth values and offsets that are packed anew before they go."""
TO_HOST = BlockKernel(
    "to_backend(pandas)", host_block, peak_factor=TO_HOST_FACTOR, device_peak_factor=DEVICE_TO_HOST_FACTOR
)
"""Copies a block to the host."""


def for_sink(program: Program) -> Program:
    """Return a program whose blocks are on the host at its end: one that leaves them on a GPU gets a step more."""
    if not is_on_device(program.meta):
        return program
    step = Step(TO_HOST.name, TO_HOST, TO_HOST.peak_factor, TO_HOST.peak_is_measured, takes_device=True)
    meta: Any = host_block(program.meta)
    return dataclasses.replace(program, steps=(*program.steps, step), meta=meta)
