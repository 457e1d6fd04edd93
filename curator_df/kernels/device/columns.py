# SPDX-License-Identifier: Apache-2.0
"""Convert between cuDF's columns and the arrays of kernels, without a copy; the only module that uses cuDF 26.10's column layout.

Buffers are requested inside ``column.access``, so that cuDF neither spills them while a kernel reads them nor marks them
as permanently exposed. ``tests/gpu/test_rapids_uses.py`` checks the interfaces used here against the installed packages.
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
    """Yield the arrays of a cuDF Series of strings, which do not move until the block ends.

    Notes
    -----
    Memory of the device: a byte a row if there are nulls. Nothing goes to the host.
    """
    # The result of cuDF's public function (`to_pylibcudf`) is not protected from spilling.
    column = texts._column
    with column.access(mode="read", scope="internal"):
        valid = shared_array(texts.notna().values) if texts.null_count else allocate(0, np.bool_)
        yield _texts(column.plc_column, valid)


def _texts(column: Any, valid: Any) -> DeviceTexts:
    if column.size() == 0:  # an empty column may have no offsets
        return DeviceTexts(allocate(0, np.uint8), allocate(1, np.int32), valid)
    places, characters = column.child(0), column.data()
    dtype = np.int64 if places.type().id().name == "INT64" else np.int32
    first = places.offset() + column.offset()
    offsets = array_at(places.data(), first + column.size() + 1, dtype)[first:]
    data = allocate(0, np.uint8) if characters is None else array_at(characters, characters.size, np.uint8)
    return DeviceTexts(data, offsets, valid)


def number_column(values: Any, texts: Any) -> Any:
    """Return a device array as a cuDF Series with the index of a text column, null where the text is null."""
    import cudf

    numbers = cudf.Series(values, index=texts.index)
    return numbers.where(texts.notna()) if texts.null_count else numbers


def host_numbers(numbers: Any, dtype: str) -> Any:
    """Return a cuDF Series of numbers on the host, with 0 for null."""
    zero = False if getattr(numbers.dtype, "kind", "f") == "b" else 0
    return shared_array(numbers.fillna(zero).astype(dtype).values).copy_to_host()


def empty_column(dtype: str) -> Any:
    """Return a cuDF Series without rows."""
    import cudf

    return cudf.Series([], dtype=dtype)


def picked_texts(texts: list[str | None], places: Any, index: Any) -> Any:
    """Return a cuDF Series with, for each row, the text at a position in a short list."""
    import cudf

    picked = cudf.Series(texts, dtype="str").take(places)
    picked.index = index
    return picked


def kept_rows(block: Any, passes: Any) -> Any:
    """Return the rows of a cuDF block for which an array of bool, on the device or the host, is True."""
    import cudf

    return block[cudf.Series(passes, index=block.index)]
