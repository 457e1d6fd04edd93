# SPDX-License-Identifier: Apache-2.0
"""Conversion of Arrow tables and GPU blocks to pandas blocks, with the host type of each column; pickling of text columns."""

from __future__ import annotations

import copyreg
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from pandas.api.internals import create_dataframe_from_blocks  # type: ignore[import-not-found]
from pandas.arrays import ArrowExtensionArray, ArrowStringArray

from curator_df.core.backend import is_on_device

# Numbers get pandas' nullable types. int64[pyarrow] lacks operations that users write: ``n % 2`` raises an error.
NUMBER_DTYPES = {
    pa.bool_(): pd.BooleanDtype(),
    pa.int8(): pd.Int8Dtype(),
    pa.int16(): pd.Int16Dtype(),
    pa.int32(): pd.Int32Dtype(),
    pa.int64(): pd.Int64Dtype(),
    pa.uint8(): pd.UInt8Dtype(),
    pa.uint16(): pd.UInt16Dtype(),
    pa.uint32(): pd.UInt32Dtype(),
    pa.uint64(): pd.UInt64Dtype(),
    pa.float32(): pd.Float32Dtype(),
    pa.float64(): pd.Float64Dtype(),
}

SLICE_FRACTION = 0.8
"""Share of its buffers that a column uses, below which it is copied before it is pickled: the rest would be pickled too."""


def block_dtype(kind: pa.DataType) -> Any:
    """Return the pandas type of an Arrow column: text, nullable numbers, and Arrow types for all others."""
    if pa.types.is_large_string(kind) or pa.types.is_string(kind):
        return pd.StringDtype("pyarrow")
    return NUMBER_DTYPES.get(kind) or pd.ArrowDtype(kind)


def host_block(block: Any) -> Any:
    """Return a block as pandas, with the column types of the readers; a pandas block is returned unchanged.

    Notes
    -----
    For a GPU block, all columns and the index are copied to the host.
    """
    if not is_on_device(block):
        return block
    index = pd.Index(block.index.to_numpy(), name=block.index.name)
    if not len(block.columns):
        return pd.DataFrame(index=index)
    table: pa.Table = block.to_arrow(preserve_index=False)
    moved = pandas_block(table)
    moved.index = index
    return moved


def empty_pandas_block(schema: pa.Schema) -> pd.DataFrame:
    """Return a pandas block without rows; columns of one type share their empty array.

    pyarrow makes an array for each column: 290 ms for 10,000 columns, against 70 ms.
    """
    kinds = dict.fromkeys(schema.types)
    arrays = {kind: pandas_block(pa.table({"": pa.array([], kind)}))[""].array for kind in kinds}
    blocks = [(arrays[kind], np.array([place])) for place, kind in enumerate(schema.types)]
    block: pd.DataFrame = create_dataframe_from_blocks(
        blocks, index=pd.RangeIndex(0), columns=pd.Index(schema.names, dtype="str")
    )
    return block


def pandas_block(table: pa.Table) -> pd.DataFrame:
    """Convert an Arrow table to pandas. NaN stays NaN, although pandas alone would turn it into a null."""
    # One thread, as the plan counts. Metadata that pandas left in the file could make a column the index.
    block: pd.DataFrame = table.to_pandas(types_mapper=block_dtype, use_threads=False, ignore_metadata=True)
    for place, column in enumerate(table.columns):
        if (pa.types.is_float32(column.type) or pa.types.is_float64(column.type)) and pc.any(pc.is_nan(column)).as_py():
            values = pc.fill_null(column, 0).to_numpy().copy()
            block.isetitem(place, pd.arrays.FloatingArray(values, column.is_null().to_numpy()))
    return block


def pickle_without_copies() -> Callable[[], None]:
    """Pickle Arrow columns of pandas without a copy in this process: for other processes, and for the disk.

    pandas (3.0.6) copies each column first, since a slice would take the buffers of the whole along. A worker that is full of
    results then has no memory to write them to disk, or to send them. What is pickled is read by any process. The returned
    call restores what was before.
    """
    kinds = (ArrowExtensionArray, ArrowStringArray)
    before: dict[type, Any] = {kind: copyreg.dispatch_table[kind] for kind in kinds if kind in copyreg.dispatch_table}
    for kind in kinds:
        copyreg.pickle(kind, _reduced)

    def undo() -> None:
        for kind in kinds:
            copyreg.dispatch_table.pop(kind, None)
        copyreg.dispatch_table.update(before)

    return undo


def _reduced(column: Any) -> tuple[Any, ...]:
    state = dict(vars(column))
    values: pa.ChunkedArray = state["_pa_array"]
    try:
        # Each chunk takes all its buffers along, also those that it shares with others.
        is_whole = values.nbytes >= SLICE_FRACTION * sum(part.get_total_buffer_size() for part in values.iterchunks())
    except pa.ArrowException:  # types whose bytes Arrow cannot tell
        is_whole = False
    # As a list: pandas would read a chunked array through an interface that allows 64 levels of nesting.
    state["_pa_array"] = values.chunks if is_whole and values.num_chunks else values.combine_chunks()
    return copyreg.__newobj__, (type(column),), state  # type: ignore[attr-defined] # the typeshed lacks it
