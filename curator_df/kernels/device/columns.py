# SPDX-License-Identifier: Apache-2.0
"""Between cuDF's columns and the arrays of kernels, without a copy: the one place that knows how cuDF 26.10 holds a column.

Its buffers are asked for inside ``column.access``, so that cuDF neither spills them while a kernel reads them nor takes them
for exposed for good. ``tests/gpu/test_rapids_uses.py`` holds what is used here to the installed packages.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from curator_df.kernels.device.launch import allocate, array_at, shared_array
from curator_df.kernels.device.texts import DeviceTexts


@contextmanager
def texts_of(texts: Any) -> Iterator[DeviceTexts]:
    """Yield the arrays of a cuDF Series of strings, which stay where they are for as long as that.

    Notes
    -----
    Memory of the device: a byte a row if there are nulls. Nothing goes to the host.
    """
    # What cuDF's public functions give (`to_pylibcudf`) is not kept from being spilled.
    column = texts._column
    with column.access(mode="read", scope="internal"):
        valid = shared_array(texts.notna().values) if texts.null_count else allocate(0, np.bool_)
        yield _texts(column.plc_column, valid)


def _texts(column: Any, valid: Any) -> DeviceTexts:
    if column.size() == 0:  # then it may have no offsets
        return DeviceTexts(allocate(0, np.uint8), allocate(1, np.int32), valid)
    places, characters = column.child(0), column.data()
    dtype = np.int64 if places.type().id().name == "INT64" else np.int32
    first = places.offset() + column.offset()
    offsets = array_at(places.data(), first + column.size() + 1, dtype)[first:]
    data = allocate(0, np.uint8) if characters is None else array_at(characters, characters.size, np.uint8)
    return DeviceTexts(data, offsets, valid)


def number_column(values: Any, texts: Any) -> Any:
    """Return an array of a device as a cuDF Series with the index of a text column, null where that is null."""
    import cudf

    numbers = cudf.Series(values, index=texts.index)
    return numbers.where(texts.notna()) if texts.null_count else numbers


def host_numbers(numbers: Any, dtype: str) -> Any:
    """Return a cuDF Series of numbers on the host, 0 where it is null."""
    zero = False if getattr(numbers.dtype, "kind", "f") == "b" else 0
    return shared_array(numbers.fillna(zero).astype(dtype).values).copy_to_host()


def empty_column(dtype: str) -> Any:
    """Return a cuDF Series without rows."""
    import cudf

    return cudf.Series([], dtype=dtype)


def picked_texts(texts: list[str | None], places: Any, index: Any) -> Any:
    """Return a cuDF Series that has, for each row, the text at a place in a short list."""
    import cudf

    picked = cudf.Series(texts, dtype="str").take(places)
    picked.index = index
    return picked


def kept_rows(block: Any, passes: Any) -> Any:
    """Return the rows of a cuDF block for which an array of bool, on the device or the host, is True."""
    import cudf

    return block[cudf.Series(passes, index=block.index)]
