# SPDX-License-Identifier: Apache-2.0
"""Rows of a Parquet batch that are too long for the memory budget: refused, or skipped and reported."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pyarrow as pa

from curator_df.errors import OversizeRowError


def without_long_rows(
    table: pa.Table,
    path: str,
    first: int,
    largest_row_bytes: int | None,
    on_long_row: Callable[[OversizeRowError], None] | None,
) -> Iterator[tuple[int, pa.Table]]:
    """Yield a table in the parts between rows that are too long, each with the number of its first row.

    Parameters
    ----------
    table : pyarrow.Table
        Consecutive rows of a file.
    path : str
        The file.
    first : int
        Number of the first row in it, from 0.
    largest_row_bytes : int, optional
        Maximum bytes of a row.
    on_long_row : callable, optional
        Function that receives the error of a longer row; without it the error is raised.
    """
    start = 0
    if largest_row_bytes is not None and table.nbytes > largest_row_bytes:
        for place in range(len(table)):
            row_bytes = table.slice(place, 1).nbytes
            if row_bytes <= largest_row_bytes:
                continue
            error = _error(path, first + place, row_bytes, largest_row_bytes)
            if on_long_row is None:
                raise error
            on_long_row(error)
            if place > start:
                yield first + start, table.slice(start, place - start)
            start = place + 1
    if start < len(table):
        yield first + start, table.slice(start)


def _error(path: str, row: int, row_bytes: int, largest_row_bytes: int) -> OversizeRowError:
    error = OversizeRowError(
        f"{path!r}, row {row + 1:,}: the row has {row_bytes:,} bytes, but only {largest_row_bytes:,} fit into the memory "
        "budget. Use a larger memory=, or remove the row from the file"
    )
    error.path, error.line, error.offset, error.row_bytes = path, row + 1, row, row_bytes
    return error
