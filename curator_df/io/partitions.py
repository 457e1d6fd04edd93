# SPDX-License-Identifier: Apache-2.0
"""Sources as Dask DataFrames. A partition is an input split; the runner makes its own input splits from the source instead."""

from __future__ import annotations

from typing import Any

import dask
import dask.dataframe as dd
from dask.utils import parse_bytes

from curator_df.core.backend import Backend
from curator_df.core.planning.program import ReadPartition
from curator_df.core.ranges.source import Ranges
from curator_df.errors import ParameterError
from curator_df.io.moves import to_backend

DEFAULT_BLOCK_BYTES = 8_000_000
"""Default block size of a small input. It is for Dask's own operations, some of which hold ten copies of a partition or a
Python object for each word; the runner chooses its own blocks."""
LARGEST_DEFAULT_BLOCK_BYTES = 32_000_000
"""Default block size of a large input."""
DEFAULT_PARTITIONS = 4_000
"""Partitions above which the default blocks grow: Dask's graph of a table grows with their number."""


def block_bytes_of(
    reader: str, blocksize: int | str | None, files_per_partition: int | None, input_bytes: int = 0
) -> int:
    """Check the user's ``blocksize`` and ``files_per_partition``; return the bytes of a block.

    Examples
    --------
    >>> block_bytes_of("read_jsonl", "256MB", None)
    256000000
    >>> block_bytes_of("read_jsonl", None, None, 100_000_000_000)
    25000000
    """
    if blocksize is not None and files_per_partition is not None:
        raise ParameterError(f"{reader}: set blocksize or files_per_partition, not both")
    if files_per_partition is not None:
        if isinstance(files_per_partition, bool) or not isinstance(files_per_partition, int) or files_per_partition < 1:
            raise ParameterError(
                f"{reader}: files_per_partition={files_per_partition!r} must be a whole number of 1 or more"
            )
        return DEFAULT_BLOCK_BYTES
    if blocksize is None:
        return min(max(input_bytes // DEFAULT_PARTITIONS, DEFAULT_BLOCK_BYTES), LARGEST_DEFAULT_BLOCK_BYTES)
    try:
        block_bytes = int(parse_bytes(blocksize))
    except (ValueError, TypeError, AttributeError) as exc:
        raise ParameterError(
            f"{reader}: blocksize={blocksize!r} is not a size. Use bytes or text such as '256MB'"
        ) from exc
    if block_bytes < 1 or isinstance(blocksize, bool):
        raise ParameterError(f"{reader}: blocksize={blocksize!r} must be 1 byte or more")
    return block_bytes


def from_source(source: Any, ranges: Ranges, *, block_bytes: int, explicit: bool, backend: Backend = "pandas") -> Any:
    """Make a lazy table of a source: one Dask partition for each input split.

    Notes
    -----
    Rows: all. Peak extra memory: none. Computes: no.
    """
    read = ReadPartition(source, ranges, block_bytes, explicit)
    with dask.config.set({"dataframe.convert-string": False}):
        # Otherwise Dask converts blocks, and turns lists and dicts into their text.
        table = dd.from_map(read, range(len(ranges)), meta=source.meta, label="read")
    return to_backend(table, backend)
