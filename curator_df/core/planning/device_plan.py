# SPDX-License-Identifier: Apache-2.0
"""What a run takes of the GPU of each worker: of blocks that are there, and of models beside them.

The factors of steps on cuDF blocks follow from what their kernels allocate. None was measured on a GPU.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from curator_df.core.memory.resources import DEVICE_PARTS, Capacity
from curator_df.core.planning.branches import Fork
from curator_df.core.planning.program import Step
from curator_df.core.sizes import show_size
from curator_df.errors import BudgetError

DEVICE_SLACK_FACTOR = 0.5
"""Assumed, added to every task's factor: allocations that are rounded up, and those that are given back late."""
DEVICE_FIXED_BYTES = 32_000_000
"""Assumed, of a task whatever its block: tables of characters, and what cuDF allocates for itself in a call."""

BLOCKS_SHARE = 0.5
"""Of what the weights of models leave of a GPU, at most for blocks beside them whose size the user did not name."""


@dataclass(frozen=True)
class DeviceNeed:
    """What the tasks of one worker take of its GPU."""

    factor: float
    """Peak bytes of a task as a multiple of its block's; 0 where blocks stay on the host, and only models are there."""
    fixed_bytes: int
    """Of a task whatever its block."""
    held_bytes: int
    """Of models, in all calls that there may be at a time."""
    tasks: int
    """Tasks at a time."""
    allowed_bytes: int
    """What may be used of the GPU."""

    def bytes_of(self, block_bytes: int) -> int:
        """Return the peak bytes of all tasks together with such blocks."""
        return self.held_bytes + self.tasks * (self.fixed_bytes + int(self.factor * block_bytes))

    def alone(self, block_bytes: int) -> int:
        """Return the peak bytes of one task with such a block (or row)."""
        return self.held_bytes + self.fixed_bytes + int(self.factor * block_bytes)

    @property
    def largest_block(self) -> int:
        """The largest block with which all tasks fit."""
        return self._block_of((self.allowed_bytes - self.held_bytes) / self.tasks - self.fixed_bytes)

    @property
    def largest_alone(self) -> int:
        """The largest block (or row) with which one task fits."""
        return self._block_of(self.allowed_bytes - self.held_bytes - self.fixed_bytes)

    def _block_of(self, peak_bytes: float) -> int:
        return max(0, int(peak_bytes / self.factor)) if self.factor else sys.maxsize

    def fitting(self, block_bytes: int, explicit: int | None, least: int) -> int:
        """Return the block size of a run: what fits on the host, or less where the GPU has room for less.

        Raises
        ------
        BudgetError
            If not even the least fits, or not what the user named.
        """
        asked = least if explicit is None else explicit
        if asked > self.largest_block:
            smaller = f"blocksize={self.largest_block:_} or " if self.largest_block >= least else ""
            models = f", beside {show_size(self.held_bytes)} for models" if self.held_bytes else ""
            raise BudgetError(
                f"blocks of {show_size(asked)} do not fit on a GPU: each of {self.tasks} tasks at a time needs "
                f"{self.factor:.1f} x that and {show_size(self.fixed_bytes)}{models}, and of each GPU "
                f"{show_size(self.allowed_bytes)} may be used. This would fit: {smaller}"
                f"start_cluster(device_memory={self.bytes_of(asked):_})"
            )
        return block_bytes if explicit is not None else min(block_bytes, self.largest_block)

    def said(self, block_bytes: int) -> str:
        """Return what `explain` says of it."""
        each = f"{self.factor:.1f} x {show_size(block_bytes)} and {show_size(self.fixed_bytes)} for each of {self.tasks} tasks"
        models = f"{show_size(self.held_bytes)} for models"
        parts = [each] * bool(self.factor) + [models] * bool(self.held_bytes)
        return (
            f"{show_size(self.bytes_of(block_bytes))} projected on each (assumed: {', '.join(parts)}), "
            f"{show_size(self.allowed_bytes)} allowed"
        )


def device_need(joined: Fork, capacity: Capacity, tasks: int) -> DeviceNeed | None:
    """Return what a run takes of each worker's GPU; None if neither a block nor a model of it is ever there.

    Raises
    ------
    BudgetError
        If the workers have no GPU that a plan knows of.
    """
    steps = _own_steps(joined)
    on_device = [step for step in steps if step.on_device]
    models_bytes = _model_bytes(steps, capacity, tasks)
    if not on_device:
        on_gpu = any(step.resources.of_gpu for step in steps)
        return DeviceNeed(0.0, 0, models_bytes, tasks, capacity.device_bytes) if on_gpu else None
    if not capacity.device_bytes:
        raise BudgetError(
            f"{on_device[0].name}: its blocks are in the memory of a GPU, and the workers here have none; "
            "start_cluster(gpus='auto') gives each one where there are GPUs, or leave backend='cudf' and to_backend out"
        )
    return DeviceNeed(device_factor(joined), _fixed_bytes(on_device), models_bytes, tasks, capacity.device_bytes)


def beside_blocks(joined: Fork, capacity: Capacity, tasks: int, block_bytes: int) -> Capacity:
    """Return what calls of models share of a GPU on which there are blocks, too.

    Blocks take what they need, but no more than half of what the models' weights leave; if the user named their size, all of it.

    Raises
    ------
    BudgetError
        If that is too little for a call.
    """
    steps = _own_steps(joined)
    on_device, of_gpu = ([s for s in steps if s.on_device], [s for s in steps if s.resources.of_gpu])
    if not on_device or not of_gpu:
        return capacity
    need = DeviceNeed(device_factor(joined), _fixed_bytes(on_device), 0, tasks, capacity.device_bytes)
    needed = need.bytes_of(block_bytes)
    if joined.explicit_block_bytes is None:
        needed = min(needed, int(BLOCKS_SHARE * capacity.free_of_models()))
    capacity = dataclasses.replace(capacity, device_block_bytes=needed)
    for step in of_gpu:
        capacity.require(step.name, step.resources)
    return capacity


def _own_steps(joined: Fork) -> list[Step]:
    return [*joined.stem, *(step for branch in joined.branches for step in joined.own_steps(branch))]


def _fixed_bytes(on_device: Sequence[Step]) -> int:
    return DEVICE_FIXED_BYTES + max(step.device_fixed_bytes for step in on_device)


def device_factor(joined: Fork) -> float:
    """Return the peak bytes of a task on a GPU as a multiple of its block's."""
    stem = joined.stem
    shared = 1.0 if stem and stem[-1].gives_device and len(joined.branches) > 1 else 0.0
    worst = _dearest(stem, keeps_rejects=any(branch.rejects is not None for branch in joined.branches))
    for branch in joined.branches:
        own = joined.own_steps(branch)
        if own:
            worst = max(worst, shared + _dearest(own, keeps_rejects=branch.rejects is not None))
    return worst + DEVICE_SLACK_FACTOR


def _dearest(steps: Sequence[Step], *, keeps_rejects: bool) -> float:
    """Return the block that the dearest step takes with what it adds; rows that go are copied once more before they leave."""
    removed = 1.0 if keeps_rejects else 0.0
    return max(((1.0 + removed if s.takes_device else 0.0) + s.device_peak_factor for s in steps), default=0.0)


def _model_bytes(steps: Sequence[Step], capacity: Capacity, tasks: int) -> int:
    """Return what models hold on a GPU, with all calls that there may be at a time."""
    parts = 0
    for step in steps:
        if step.resources.of_gpu:
            parts += capacity.at_once(step.resources, tasks) * capacity.device_parts(step.resources)
    # Calls of different steps wait for each other: together they never have more than there is.
    calls = capacity.free_of_models() * min(parts, DEVICE_PARTS) // DEVICE_PARTS
    return capacity.device_held_bytes + calls
