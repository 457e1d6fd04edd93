# SPDX-License-Identifier: Apache-2.0
"""Measure the memory of an operator, and report the values to declare: `profile_memory`."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, cast

import dask.dataframe as dd
import numpy as np
import pandas as pd

from curator_df.core.planning.lowering import lower
from curator_df.errors import OperatorError, ParameterError
from curator_df.io.parquet.reader import read_parquet
from curator_df.memory.sizes import read_size, show_size
from curator_df.monitor.fresh_process import FreshProcessError, run_fresh
from curator_df.monitor.profile_process import CallLine, ProfileJob
from curator_df.suggestions import suggests_names

ALLOWANCE_BYTES = 1_000_000
"""Bytes that a call may hold beyond its declared memory: pages that the system adds in batches, and small buffers."""


@dataclass(frozen=True)
class StepMemory:
    """Memory of one step."""

    step: str
    """Operator or Dask operation."""
    stated_factor: float
    """Memory multiplier that the step declares, or the default one."""
    is_measured: bool
    """Whether the declared multiplier was measured."""
    peak_factor: float | None
    """Measured memory multiplier: extra bytes of a call per byte of the block, including its result, rounded up to 0.1. None
    for a deferred operation, which does nothing to a single block."""
    fixed_bytes: int | None
    """Measured extra bytes that do not depend on the block."""
    held_bytes: int | None
    """Bytes that the first call left in the process: imports, models, caches."""
    stated_fixed_bytes: int = 0
    """Bytes that the step declares independently of the block."""
    extra_bytes: dict[int, int] = field(default_factory=dict)
    """Extra bytes of the call, by the size of the block."""
    allocations: tuple[tuple[str, int], ...] = ()
    """Lines of code with the bytes they hold at the peak of the call on the largest block, from memray; empty if it is not
    installed."""

    @property
    def is_within(self) -> bool:
        """Whether every call stayed within what the step declares, and larger blocks will not need more per byte."""
        stated = (self.stated_factor * size + self.stated_fixed_bytes for size in self.extra_bytes)
        within = all(
            extra <= most + ALLOWANCE_BYTES for extra, most in zip(self.extra_bytes.values(), stated, strict=True)
        )
        return within and self.peak_factor is not None and self.peak_factor <= self.stated_factor


@suggests_names
@dataclass(frozen=True)
class MemoryProfile:
    """Memory of the steps of an operator, measured on a sample.

    See Also
    --------
    profile_memory, explain
    """

    steps: tuple[StepMemory, ...]
    """Steps in the order of the chain."""

    def to_frame(self) -> pd.DataFrame:
        """Return one row for each step, with its declared and measured values.

        Returns
        -------
        pandas.DataFrame
            Shape (steps, 6): ``step``, ``stated_factor``, ``is_measured``, ``peak_factor``, ``fixed_bytes``,
            ``held_bytes``.
        """
        table = pd.DataFrame([asdict(step) for step in self.steps]).drop(
            columns=["stated_fixed_bytes", "extra_bytes", "allocations"]
        )
        return table.astype({"peak_factor": "Float64", "fixed_bytes": "Int64", "held_bytes": "Int64"})

    def __str__(self) -> str:
        return "\n".join(_line(step) for step in self.steps)

    __repr__ = __str__


def profile_memory(
    operator: Callable[[Any], Any], sample: dd.DataFrame | pd.DataFrame, *, sample_size: str | int = "16MB"
) -> MemoryProfile:
    """Measure, in a fresh process, how much memory an operator needs in addition to a block.

    Parameters
    ----------
    operator : callable
        A function from a lazy table to a lazy table: ``lambda df: df.pipe(cdf.keep_where, is_good)``.
    sample : dask.dataframe.DataFrame or pandas.DataFrame
        Rows like those that the operator will process. For a lazy table the first ``sample_size`` bytes are read, and
        its own steps run first. If there are few rows, they are repeated.
    sample_size : str or int
        Size of the largest block to try; a half and a quarter of it are tried too.

    Returns
    -------
    MemoryProfile
        The memory of each step of an operator, and the values to declare. ``steps`` and ``to_frame()`` have
        ``peak_factor`` (a multiple of the block size, rounded up to 0.1), ``fixed_bytes`` and ``held_bytes`` of each
        step; ``steps`` also have the lines of code that hold most, if memray is installed.

    Raises
    ------
    ParameterError
        If the sample has no rows, or ``operator`` adds no step.
    OperatorError
        If the operator raises in the fresh process; the message includes its error.

    See Also
    --------
    explain, monitor_memory

    Notes
    -----
    Rows: none. Peak extra memory: in a separate process, about 200 MB, 4 x ``sample_size`` and the memory of the
    operator. Computes: yes, a sample, in a fresh process. See ``docs/monitoring.md#profile-an-operator``.

    It is outside the budget of a running cluster, and other processes do not disturb it: it reads the peak resident
    memory of its own process.

    Examples
    --------
    >>> profile = cdf.profile_memory(lambda df: df.pipe(cdf.keep_where, is_good), docs)  # doctest: +SKIP
    >>> profile  # doctest: +SKIP
    keep_where: peak_factor 1.3 (declared: 1.2, measured)...
    """
    sample_bytes = read_size("sample_size", sample_size)
    with tempfile.TemporaryDirectory(prefix="curator-df-profile-") as folder:
        table = _lazy(sample, folder)
        before, after = lower(table), lower(operator(table))
        first = len(before.steps)
        if [step.fingerprint for step in after.steps[:first]] != [step.fingerprint for step in before.steps] or len(
            after.steps
        ) == first:
            raise ParameterError(
                "profile_memory: operator= returned the table without a new step, so there is nothing to measure. Pass a "
                "function that receives the sample's lazy table and returns it with the operator applied"
            )
        lines = _measured(ProfileJob(after.source, after.steps, first, sample_bytes))
    return MemoryProfile(
        tuple(
            _step_memory(step, [line for line in lines if line["step"] == place])
            for place, step in enumerate(after.steps)
            if place >= first
        )
    )


def _lazy(sample: Any, folder: str) -> Any:
    if not isinstance(sample, pd.DataFrame):
        return sample
    if not len(sample):
        raise ParameterError("profile_memory: the sample has no rows. Pass a sample with at least one row.")
    path = Path(folder) / "sample.parquet"
    sample.to_parquet(path, index=False)
    return read_parquet(path)


def _measured(job: ProfileJob) -> list[CallLine]:
    """Run a job in a fresh process, with the allocators and settings of a worker."""
    allocators = {"ARROW_DEFAULT_MEMORY_POOL": "system", "OMP_NUM_THREADS": "1", "MALLOC_ARENA_MAX": "2"}
    try:
        return cast("list[CallLine]", run_fresh("curator_df.monitor.profile_process", job, **allocators))
    except FreshProcessError as exc:
        if "NoRowsError" in str(exc):
            raise ParameterError(
                "profile_memory: the sample has no rows. Pass a sample with at least one row."
            ) from None
        raise OperatorError(f"profile_memory: {exc}") from None


def _step_memory(step: Any, lines: list[CallLine]) -> StepMemory:
    stated = (step.name, step.price.peak_factor, step.price.is_measured)
    sizes = {line["block_bytes"]: line["extra_bytes"] for line in lines if "block_bytes" in line}
    if not sizes:
        return StepMemory(*stated, None, None, None)
    factor, fixed_bytes = fit(sizes)
    held = max(line["held_bytes"] for line in lines if "held_bytes" in line)
    allocations = tuple((line, size) for found in lines for line, size in found.get("allocations", ()))
    return StepMemory(*stated, factor, fixed_bytes, held, step.price.fixed_bytes, sizes, allocations)


def fit(sizes: dict[int, int]) -> tuple[float, int]:
    """Return the factor (rounded up to 0.1) and the fixed bytes that no measured call exceeded.

    Parameters
    ----------
    sizes : dict of int to int
        Bytes of the block, and extra bytes of the call.

    Examples
    --------
    >>> fit({4_000_000: 8_000_000, 8_000_000: 16_000_000, 16_000_000: 32_000_000})
    (2.0, 0)
    >>> fit({4_000_000: 34_000_000, 8_000_000: 38_000_000, 16_000_000: 46_000_000})
    (1.0, 30000000)
    """
    blocks, extra = np.array(list(sizes), dtype=float), np.array(list(sizes.values()), dtype=float)
    slope = float(np.polyfit(blocks, extra, 1)[0]) if len(sizes) > 1 else float(extra[0] / blocks[0])
    factor = max(0.0, math.ceil(round(slope * 10, 2)) / 10)
    return factor, max(0, int((extra - factor * blocks).max()))


def _line(step: StepMemory) -> str:
    known = "measured" if step.is_measured else "assumed"
    if step.peak_factor is None or step.fixed_bytes is None or step.held_bytes is None:
        return f"{step.step}: a deferred operation, which does not change single blocks (declared: {step.stated_factor}, {known})"
    fixed = step.fixed_bytes if step.fixed_bytes > ALLOWANCE_BYTES else 0
    said = f"{step.step}: peak_factor {step.peak_factor:.1f} (declared: {step.stated_factor}, {known})"
    said += f", plus {show_size(fixed)} independent of the block" if fixed else ""
    said += (
        f"; its first call left {show_size(step.held_bytes)} in the process"
        if step.held_bytes > ALLOWANCE_BYTES
        else ""
    )
    if step.allocations:
        said += "; largest allocations: " + ", ".join(f"{line} {show_size(size)}" for line, size in step.allocations)
    if step.is_within:
        return f"{said}. This is within the declared memory"
    arguments = f"peak_factor={step.peak_factor:.1f}, " + (f"fixed_bytes={fixed:_}, " if fixed else "")
    return f"{said}. Declare BlockKernel(..., Price({arguments}is_measured=True))"
