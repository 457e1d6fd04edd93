# SPDX-License-Identifier: Apache-2.0
"""Sources as Dask DataFrames. A partition is an input split; the runner makes its own input splits from the source instead."""

from __future__ import annotations

import sys
from typing import Any

import dask
import dask.dataframe as dd
import numpy as np
from dask.dataframe.dask_expr import new_collection
from dask.dataframe.dask_expr.io import FromMapProjectable

from curator_df.core.backend import Backend
from curator_df.core.planning.lowering import EmptyTable, ReadPartition
from curator_df.core.ranges.source import Ranges
from curator_df.core.ranges.stream_parts import PARTED_FROM, Parts
from curator_df.core.runner.session import warn_without_budget
from curator_df.errors import ParameterError
from curator_df.io.cut import COMPRESSION_RATIO
from curator_df.io.device_transfer import to_backend
from curator_df.io.frames import MOST_FILES
from curator_df.io.streams.file_stream import is_compressed, said_bytes
from curator_df.memory.sizes import read_size

DEFAULT_BLOCK_BYTES = 8_000_000
"""Default block size of a small input. It is for Dask's own operations, some of which hold ten copies of a partition or a
Python object for each word; the runner chooses its own blocks."""
LARGEST_DEFAULT_BLOCK_BYTES = 32_000_000
"""Default block size of a large input."""
DEFAULT_PARTITIONS = 4_000
"""Partitions above which the default blocks grow: Dask's graph of a table grows with their number."""
INSPECTORS = ("IPython.core.oinspect", "jedi.")
"""Modules that show help about an object. They ask for its length, for which Dask computes the whole table."""


class ReadTable(FromMapProjectable):  # type: ignore[misc]
    """Partitions of a table of ours, in a Dask expression, which Dask lowers before it computes them.

    Help about a table (``docs?`` in IPython) then reads nothing, and a computation without a cluster begins with a warning.
    """

    def _lower(self) -> Any:
        if is_inspected():
            raise TypeError(
                "IPython's help (docs?) asked for the length of a lazy table, which is unknown before the table is "
                "computed. To compute it, use len(docs) outside of help."
            )
        warn_without_budget()
        return super()._lower()


def is_inspected() -> bool:
    """Tell whether this is called, directly or not, by a module of `INSPECTORS`."""
    if "IPython" not in sys.modules:
        return False
    frame = sys._getframe(1)
    while frame is not None:
        if str(frame.f_globals.get("__name__")).startswith(INSPECTORS):
            return True
        frame = frame.f_back  # type: ignore[assignment]
    return False


MOST_ASKED = 1_000
"""Files that are opened for the size that they state; more of them take too long, and are estimated."""
MOST_TIMES = 300
"""Factor below the estimated size from which on the stated size is read; deflate makes text up to 1,000 times smaller."""


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
        if files_per_partition > MOST_FILES:
            raise ParameterError(
                f"{reader}: files_per_partition={files_per_partition:_} is more than the {MOST_FILES:,} files that a table "
                "can have. Use a smaller number"
            )
        return DEFAULT_BLOCK_BYTES
    if blocksize is None:
        return min(max(input_bytes // DEFAULT_PARTITIONS, DEFAULT_BLOCK_BYTES), LARGEST_DEFAULT_BLOCK_BYTES)
    return read_size(f"{reader}: blocksize", blocksize)


def from_source(
    source: Any,
    ranges: Ranges,
    *,
    block_bytes: int,
    explicit: bool,
    backend: Backend = "pandas",
    in_parts: bool = False,
) -> Any:
    """Make a lazy table of a source: one Dask partition for each range, or several for a large compressed file.

    Notes
    -----
    Rows: all. Peak extra memory: none. Computes: no.
    """
    parts = _parts(source, ranges, block_bytes) if in_parts else None
    read = ReadPartition(source, ranges, block_bytes, explicit, parts)
    meta = EmptyTable(source.meta)
    with dask.config.set({"dataframe.convert-string": False}):
        # Otherwise Dask converts blocks, and turns lists and dicts into their text. It takes time for each column of a table.
        mapped = dd.from_map(
            read, range(len(ranges if parts is None else parts)), meta=EmptyTable(meta.block[[]]), label="read"
        )
    operands = dict(zip(mapped.expr._parameters, mapped.expr.operands, strict=True)) | {"user_meta": meta}
    table = new_collection(ReadTable(*operands.values()))
    return to_backend(table, backend)


def _parts(source: Any, ranges: Ranges, block_bytes: int) -> Parts | None:
    """Return how ranges of one file each, which cannot be split, are read in parts; None if each is about a block, or smaller."""
    first, start, last, stop = ranges.table.T
    single = first == last
    counts = np.ones(len(ranges), np.int64)
    numbers = np.flatnonzero(single & (stop > start)).tolist()
    is_whole = getattr(source, "is_whole_file", None)
    for number in numbers:
        path = source.files[int(first[number])]
        is_packed = is_compressed(path)
        if is_packed or (is_whole is not None and is_whole(int(first[number]))):
            about = int(stop[number] - start[number]) * (COMPRESSION_RATIO if is_packed else 1)
            if is_packed and not start[number] and about * MOST_TIMES > block_bytes and len(numbers) <= MOST_ASKED:
                about = max(about, said_bytes(path))
            if about > PARTED_FROM * block_bytes:
                counts[number] = -(-about // block_bytes)
    return Parts.of(ranges, counts) if (counts > 1).any() else None
