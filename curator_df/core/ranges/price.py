# SPDX-License-Identifier: Apache-2.0
"""Price of a step: the memory that it costs. `core.planning.price` adds up the prices of a run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from curator_df.memory.resources import NO_LIMITS, Resources


@dataclass(frozen=True)
class Price:
    """Memory that a call of a step costs in addition to its block, and what its worker keeps for all calls."""

    peak_factor: float = 1.0
    """Peak extra memory of one call as a multiple of the block's bytes, including its result."""
    is_measured: bool = False
    """False if the factor was assumed: `explain` shows which."""
    fixed_bytes: int = 0
    """Extra memory of one call in bytes, whatever the block."""
    row_bytes: int = 0
    """Longest row in bytes that it may make from several rows: later steps keep one in memory in addition to a block."""
    held_bytes: int = 0
    """Bytes that a worker keeps once for all calls, such as a lookup table."""
    libraries: Mapping[str, int] = field(default_factory=dict)
    """Part of ``held_bytes`` that stays in the process when the run is over: imported packages, and their bytes."""
    shared: Mapping[str, int] = field(default_factory=dict)
    """Part of ``held_bytes`` that is released with the run, such as weights. Steps that use the same name share it."""
    held_by_task: Mapping[str, int] = field(default_factory=dict)
    """Bytes that a worker keeps for each of its tasks, such as a process that each of them uses. Steps that use the same name
    share it.
    """
    resources: Resources = NO_LIMITS
    """Resources of a call, which limit the concurrent calls (the function calls `memory.resources.admitted`)."""
    resource_bytes: int = 0
    """Extra bytes of a call only while it has these resources."""
    device_peak_factor: float | None = None
    """Value of ``peak_factor`` for GPU memory, if the block is there; None if the cost on a GPU is unknown."""
    device_fixed_bytes: int = 0
    """Extra GPU memory of one call in bytes, whatever the block."""

    @property
    def held_together(self) -> Mapping[str, int]:
        """Part of ``held_bytes`` that a worker shares among all steps that name it, in bytes by name."""
        return {**self.libraries, **self.shared}
