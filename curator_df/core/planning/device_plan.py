# SPDX-License-Identifier: Apache-2.0
"""Estimated GPU memory of a run on each worker, for blocks on it and for models, and the step that copies blocks to the host.

The factors of steps on cuDF blocks follow from the allocations of their kernels. None was measured on a GPU.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from curator_df.core.backend import is_on_device
from curator_df.core.host_blocks import host_block
from curator_df.core.planning.branches import Fork
from curator_df.core.planning.program import Program, Step
from curator_df.core.ranges.blocks import BlockKernel
from curator_df.core.ranges.price import Price
from curator_df.errors import BudgetError
from curator_df.memory.resources import DEVICE_PARTS, Capacity
from curator_df.memory.sizes import show_size, size_to_type

DEVICE_SLACK_FACTOR = 0.5
"""Memory multiplier added to every task's factor (an assumption): rounded allocations, and delayed releases."""
DEVICE_FIXED_BYTES = 32_000_000
"""Fixed bytes of a task (an assumption): tables of characters, and cuDF's own allocations in a call."""

BLOCKS_SHARE = 0.5
"""Maximum fraction, of the GPU memory left by the models' weights, for blocks whose size the user did not set."""
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


@dataclass(frozen=True)
class DeviceNeed:
    """GPU memory of the tasks of one worker."""

    factor: float
    """Peak memory of a task as a multiple of its block's bytes; 0 if blocks stay on the host and only models are on the GPU."""
    fixed_bytes: int
    """Fixed bytes of a task, whatever its block."""
    held_bytes: int
    """Bytes of models, for all concurrent calls."""
    tasks: int
    """Number of concurrent tasks."""
    allowed_bytes: int
    """GPU memory that may be used, in bytes."""

    def bytes_of(self, block_bytes: int) -> int:
        """Return the peak bytes of all concurrent tasks with blocks of this size."""
        return self.held_bytes + self.tasks * (self.fixed_bytes + int(self.factor * block_bytes))

    def alone(self, block_bytes: int) -> int:
        """Return the peak bytes of one task with a block (or row) of this size."""
        return self.held_bytes + self.fixed_bytes + int(self.factor * block_bytes)

    @property
    def largest_block(self) -> int:
        """Largest block in bytes with which all concurrent tasks fit."""
        return self._block_of((self.allowed_bytes - self.held_bytes) / self.tasks - self.fixed_bytes)

    @property
    def largest_alone(self) -> int:
        """Largest block (or row) in bytes with which one task fits."""
        return self._block_of(self.allowed_bytes - self.held_bytes - self.fixed_bytes)

    def _block_of(self, peak_bytes: float) -> int:
        return max(0, int(peak_bytes / self.factor)) if self.factor else sys.maxsize

    def fitting(self, block_bytes: int, explicit: int | None, least: int) -> int:
        """Return the block size of a run: the one that fits on the host, or less if the GPU has room for less.

        Raises
        ------
        BudgetError
            If the minimum does not fit, or the size that the user set.
        """
        asked = least if explicit is None else explicit
        if asked > self.largest_block:
            smaller = (
                f"blocksize={size_to_type(self.largest_block, up=False)} or " if self.largest_block >= least else ""
            )
            models = f", in addition to {show_size(self.held_bytes)} for models" if self.held_bytes else ""
            raise BudgetError(
                f"blocks of {show_size(asked)} do not fit on a GPU: each of the {self.tasks} concurrent tasks needs "
                f"{self.factor:.1f} x the block size + {show_size(self.fixed_bytes)}{models}, but only "
                f"{show_size(self.allowed_bytes)} of each GPU may be used. Use {smaller}"
                f"start_cluster(device_memory={size_to_type(self.bytes_of(asked))})"
            )
        return block_bytes if explicit is not None else min(block_bytes, self.largest_block)

    def said(self, block_bytes: int) -> str:
        """Return the description for `explain`."""
        each = f"{self.factor:.1f} x {show_size(block_bytes)} + {show_size(self.fixed_bytes)} for each of {self.tasks} tasks"
        models = f"{show_size(self.held_bytes)} for models"
        parts = [each] * bool(self.factor) + [models] * bool(self.held_bytes)
        return (
            f"{show_size(self.bytes_of(block_bytes))} estimated peak on each (assumed: {', '.join(parts)}), "
            f"{show_size(self.allowed_bytes)} budget"
        )


def device_need(joined: Fork, capacity: Capacity, tasks: int) -> DeviceNeed | None:
    """Return the GPU memory of a run on each worker; None if none of its blocks or models is ever on a GPU.

    Raises
    ------
    BudgetError
        If the plan does not know of a GPU of the workers.
    """
    steps = _own_steps(joined)
    on_device = [step for step in steps if step.on_device]
    models_bytes = _model_bytes(steps, capacity, tasks)
    if not on_device:
        on_gpu = any(step.price.resources.of_gpu for step in steps)
        return DeviceNeed(0.0, 0, models_bytes, tasks, capacity.device_bytes) if on_gpu else None
    if not capacity.device_bytes:
        raise BudgetError(
            f"{on_device[0].name}: its blocks are in GPU memory, and these workers have no GPU. Start the cluster with "
            "start_cluster(gpus='auto') on a machine with GPUs, or remove backend='cudf' and to_backend"
        )
    return DeviceNeed(device_factor(joined), _fixed_bytes(on_device), models_bytes, tasks, capacity.device_bytes)


def capacity_with_blocks(joined: Fork, capacity: Capacity, tasks: int, block_bytes: int) -> Capacity:
    """Return the resources that calls of models share on a GPU that also has blocks.

    Blocks get the memory they need, but at most half of the memory left by the models' weights; all of it if the user set
    their size.

    Raises
    ------
    BudgetError
        If too little remains for a call.
    """
    steps = _own_steps(joined)
    on_device, of_gpu = ([s for s in steps if s.on_device], [s for s in steps if s.price.resources.of_gpu])
    if not on_device or not of_gpu:
        return capacity
    need = DeviceNeed(device_factor(joined), _fixed_bytes(on_device), 0, tasks, capacity.device_bytes)
    needed = need.bytes_of(block_bytes)
    if joined.explicit_block_bytes is None:
        needed = min(needed, int(BLOCKS_SHARE * capacity.free_of_models()))
    capacity = dataclasses.replace(capacity, device_block_bytes=needed)
    for step in of_gpu:
        capacity.require(step.name, step.price.resources)
    return capacity


def _own_steps(joined: Fork) -> list[Step]:
    return [*joined.stem, *(step for branch in joined.branches for step in joined.own_steps(branch))]


def _fixed_bytes(on_device: Sequence[Step]) -> int:
    return DEVICE_FIXED_BYTES + max(step.device_fixed_bytes for step in on_device)


def device_factor(joined: Fork) -> float:
    """Return the peak GPU memory of a task as a multiple of its block's bytes."""
    stem = joined.stem
    shared = 1.0 if stem and stem[-1].gives_device and len(joined.branches) > 1 else 0.0
    worst = max_peak_factor(stem, keeps_rejects=any(branch.rejects is not None for branch in joined.branches))
    for branch in joined.branches:
        own = joined.own_steps(branch)
        if own:
            worst = max(worst, shared + max_peak_factor(own, keeps_rejects=branch.rejects is not None))
    return worst + DEVICE_SLACK_FACTOR


def max_peak_factor(steps: Sequence[Step], *, keeps_rejects: bool) -> float:
    """Return the factor of the most expensive step with its input block; removed rows are copied once more before they leave."""
    removed = 1.0 if keeps_rejects else 0.0
    return max(((1.0 + removed if s.takes_device else 0.0) + s.device_peak_factor for s in steps), default=0.0)


def _model_bytes(steps: Sequence[Step], capacity: Capacity, tasks: int) -> int:
    """Return the GPU memory of models in bytes, with all concurrent calls."""
    parts = 0
    for step in steps:
        if step.price.resources.of_gpu:
            parts += capacity.at_once(step.price.resources, tasks) * capacity.device_parts(step.price.resources)
    # Calls of different steps wait for each other: together they never use more than the GPU has.
    calls = capacity.free_of_models() * min(parts, DEVICE_PARTS) // DEVICE_PARTS
    return capacity.device_held_bytes + calls


def for_sink(program: Program) -> Program:
    """Return a program whose final blocks are on the host: one that leaves them on a GPU gets an additional step."""
    if not is_on_device(program.meta):
        return program
    step = Step(TO_HOST.name, TO_HOST, TO_HOST.price, takes_device=True)
    meta: Any = host_block(program.meta)
    return dataclasses.replace(program, steps=(*program.steps, step), meta=meta)
