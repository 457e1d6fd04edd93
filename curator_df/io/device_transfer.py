# SPDX-License-Identifier: Apache-2.0
"""Move blocks to the memory of a GPU and back: `to_backend`, and ``backend=`` of the readers.

Only this module moves texts. Each move is a step of the chain, with a cost in the plan and a line in the receipt.
"""

from __future__ import annotations

import importlib.util
from typing import Any

import dask.dataframe as dd
import pyarrow as pa

from curator_df.arguments import choose
from curator_df.core.backend import Backend, backend_of
from curator_df.core.columns import require_table
from curator_df.core.host_blocks import NUMBER_DTYPES, host_block
from curator_df.core.planning.device_plan import TO_HOST
from curator_df.core.ranges.blocks import BlockKernel, map_blocks
from curator_df.core.ranges.price import Price
from curator_df.errors import SchemaError, UnsupportedBackendError
from curator_df.extras import missing_extra
from curator_df.memory.device_peak import counting_resource, measured_by
from curator_df.memory.gpus import read_gpus, visible_gpus

TO_DEVICE_FACTOR = 1.0
"""Memory multiplier on the host, assumed: a copy of numbers in Arrow's format, and the driver's staging buffers."""
DEVICE_FACTOR = 1.5
"""Memory multiplier on the GPU, assumed: the block, and its booleans and masks as received, in addition to those that cuDF
makes of them."""
REQUIRED = ("cudf", "dask_cudf", "rmm")
"""Packages that cuDF blocks in Dask tables need (the gpu extra)."""


def to_backend(df: dd.DataFrame, backend: Backend) -> dd.DataFrame:
    """Move the blocks of a table to GPU memory, or back to the host.

    Parameters
    ----------
    df : dask.dataframe.DataFrame
        The table.
    backend : {"pandas", "cudf"}
        Target of the blocks.

    Returns
    -------
    dask.dataframe.DataFrame
        The same rows and index. On the way back, columns have the types of the readers: ``Int64``, ``string[pyarrow]``
        and so on. If the blocks are already there, the table itself is returned.

    Raises
    ------
    SchemaError
        If a column is of a type other than text, numbers, booleans, and times or durations without a time zone.
    UnsupportedBackendError
        If there is no GPU on this machine.
    MissingExtraError
        If the gpu extra is not installed.

    See Also
    --------
    read_parquet, start_cluster

    Notes
    -----
    Rows: same. Columns: same, of text, numbers, booleans and times. Backends: pandas, cudf. Peak extra memory: 1.0 x
    block to a GPU, 2.0 x block back (assumed, not measured). Computes: no. See ``docs/gpu.md#runs``.

    Each block is copied; no operator does this by itself. The writers add it to a chain that ends in cuDF blocks. The
    calling process needs a GPU too, to determine the columns of the table.

    Examples
    --------
    >>> docs = cdf.read_parquet("corpus/").pipe(cdf.to_backend, "cudf")  # doctest: +SKIP
    """
    require_table(df, "to_backend")
    choose("to_backend", "backend", backend, Backend)
    if backend_of(df._meta) == backend:
        return df
    if backend == "pandas":
        return map_blocks(df, TO_HOST, meta=host_block(df._meta))
    require_gpu("to_backend", backend)
    _require_movable(df._meta)
    return map_blocks(df, TO_DEVICE, meta=device_block(df._meta))


def require_gpu(operator: str, backend: Backend) -> None:
    """Raise `UnsupportedBackendError` without a GPU for blocks of this backend, `MissingExtraError` without its packages."""
    choose(operator, "backend", backend, Backend)
    if backend == "pandas":
        return
    missing = [name for name in REQUIRED if importlib.util.find_spec(name) is None]
    if missing:
        raise missing_extra(f"{operator} with backend='cudf'", missing, "gpu")
    if not read_gpus():
        why = "the driver finds no GPU on this machine, or there is no driver"
    elif not visible_gpus():
        why = "CUDA_VISIBLE_DEVICES hides all GPUs"
    else:
        return
    raise UnsupportedBackendError(f"{operator}: backend='cudf', but {why}. Leave backend= out to use the CPU")


def device_block(block: Any) -> Any:
    """Return a host block as a cuDF block with the same index."""
    import cudf

    measured_by(DeviceCounts)
    table = pa.Table.from_pandas(block, preserve_index=False, nthreads=1).replace_schema_metadata(None)
    moved = cudf.DataFrame.from_arrow(table)
    moved.index = cudf.Index(block.index.to_numpy(), name=block.index.name)
    return moved


TO_DEVICE = BlockKernel(
    "to_backend(cudf)", device_block, price=Price(TO_DEVICE_FACTOR, device_peak_factor=DEVICE_FACTOR)
)
"""Kernel that copies a block to a GPU."""


class DeviceCounts:
    """Peak bytes allocated by RMM, and bytes spilled by cuDF, from their own statistics; read by `memory.device_peak`."""

    def __init__(self) -> None:
        import rmm.statistics

        # cuDF adds its own resource on top when its spilling is first queried, and RMM's functions query only the top one.
        self._before = _spilled_bytes()
        rmm.statistics.enable_statistics()
        self._counting = counting_resource()
        self.start()

    def start(self) -> None:
        """Restart counting."""
        if self._counting is not None:
            self._counting.push_counters()
        self._before = _spilled_bytes()

    def peak_bytes(self) -> int:
        """Return the peak bytes since `start`."""
        return 0 if self._counting is None else int(self._counting.allocation_counts.peak_bytes)

    def spilled_bytes(self) -> int:
        """Return the bytes spilled from the GPU to the host since `start`; 0 if cuDF does not spill, or does not count."""
        return _spilled_bytes() - self._before


def _spilled_bytes() -> int:
    from cudf.core.buffer.spill_manager import get_global_manager

    manager = get_global_manager()
    totals = {} if manager is None else manager.statistics.spill_totals
    return int(totals.get(("gpu", "cpu"), (0, 0.0))[0])


def _require_movable(meta: Any) -> None:
    for field in pa.Schema.from_pandas(meta, preserve_index=False):
        if not _is_movable(field.type):
            raise SchemaError(
                f"to_backend: the column {field.name!r} has the type {field.type}, but only text, numbers, "
                "booleans, and times and durations without a time zone can be moved to a GPU. Leave it out (columns=, or "
                "df[[...]])"
            )


def _is_movable(kind: pa.DataType) -> bool:
    if pa.types.is_timestamp(kind):
        return kind.tz is None
    text = pa.types.is_string(kind) or pa.types.is_large_string(kind)
    return text or kind in NUMBER_DTYPES or pa.types.is_duration(kind)
