# SPDX-License-Identifier: Apache-2.0
"""Step that copies blocks from a GPU to the host, and its place in a run: before the writer, which needs host blocks."""

from __future__ import annotations

import dataclasses
from typing import Any

from curator_df.core.backend import is_on_device
from curator_df.core.host_blocks import host_block
from curator_df.core.planning.program import Program, Step
from curator_df.core.ranges.blocks import BlockKernel
from curator_df.core.ranges.price import Price

TO_HOST_FACTOR = 2.0
"""Peak factor on the host (an assumption): the transferred data, and another copy of texts and numbers in pandas' form
(64-bit offsets, masks).
"""
DEVICE_TO_HOST_FACTOR = 0.5
"""Peak factor on the GPU (an assumption): truth values and offsets that are packed again before the transfer."""
TO_HOST = BlockKernel(
    "to_backend(pandas)", host_block, price=Price(TO_HOST_FACTOR, device_peak_factor=DEVICE_TO_HOST_FACTOR)
)
"""Kernel that copies a block to the host."""


def for_sink(program: Program) -> Program:
    """Return a program whose final blocks are on the host: one that leaves them on a GPU gets an additional step."""
    if not is_on_device(program.meta):
        return program
    step = Step(TO_HOST.name, TO_HOST, TO_HOST.price, takes_device=True)
    meta: Any = host_block(program.meta)
    return dataclasses.replace(program, steps=(*program.steps, step), meta=meta)
