# SPDX-License-Identifier: Apache-2.0
"""A double of cuDF for tests: blocks that flow through a chain as cuDF's would, in the memory of the host.

They are pandas with what the code uses of cuDF 26.10 beside, and fail where cuDF would fail or be slow without a word: a
column with buffers that have addresses, an offset into them, and an ``access`` without which there is no reading them.
"""

import sys
from contextlib import contextmanager
from importlib.machinery import ModuleSpec
from types import ModuleType, SimpleNamespace

import numpy as np
import pandas as pd
import pyarrow as pa
from dask.dataframe.dispatch import concat_dispatch, get_parallel_type, hash_object_dispatch, make_meta_dispatch

from curator_df.core.host_blocks import block_dtype

SKIPPED = 2
"""Rows before a column in its buffers, as in a slice."""


class Span:
    """Memory of a column: an address and a size, which may be read only while the column is accessed."""

    def __init__(self, column, values):
        self.column, self.values = column, np.ascontiguousarray(values).view(np.uint8)
        self.size = len(self.values)

    @property
    def ptr(self):
        assert self.column.is_accessed, "a buffer was read that cuDF could have spilled"
        return self.values.ctypes.data


class Column:
    """A column of strings as pylibcudf has it: characters, and a child with the offsets."""

    def __init__(self, texts):
        self.rows, self.is_accessed = len(texts), False
        before = pa.array(["\u00e9x", "gone"], pa.string())
        array = pa.concat_arrays([before, pa.array(texts.astype(object).where(texts.notna(), None), pa.string())])
        _, offsets, data = array.buffers()
        self.offsets = Span(self, np.frombuffer(offsets, dtype=np.int32)[: len(array) + 1])
        self.characters = Span(self, np.frombuffer(data, dtype=np.uint8))
        self.plc_column = self

    @contextmanager
    def access(self, *, mode, scope):
        assert (mode, scope) == ("read", "internal")
        self.is_accessed = True
        yield self
        self.is_accessed = False

    def child(self, number):
        assert number == 0
        kind = SimpleNamespace(id=lambda: SimpleNamespace(name="INT32"))
        return SimpleNamespace(data=lambda: self.offsets, offset=lambda: 0, type=lambda: kind)

    def size(self):
        return self.rows

    def offset(self):
        return SKIPPED

    def data(self):
        return self.characters


class Series(pd.Series):
    """A cuDF Series as far as it is used."""

    def __init__(self, data=None, *args, **kwargs):
        super().__init__(data.copy_to_host() if hasattr(data, "copy_to_host") else data, *args, **kwargs)

    _constructor = property(lambda self: Series)
    _column = property(Column)
    null_count = property(lambda self: int(self.isna().sum()))

    def to_numpy(self, *args, **kwargs):
        caller = sys._getframe(1).f_globals["__name__"]
        assert not caller.startswith("curator_df"), (
            "a column was copied to the host"
        )  # pandas itself may, in a stand-in
        return super().to_numpy(*args, **kwargs)


class DataFrame(pd.DataFrame):
    """A cuDF DataFrame as far as it is used."""

    _constructor = property(lambda self: DataFrame)
    _constructor_sliced = property(lambda self: Series)

    @classmethod
    def from_arrow(cls, table):
        assert isinstance(table, pa.Table), "cuDF takes Arrow tables"
        assert table.schema.pandas_metadata is None, "cuDF would make an index of what pandas wrote"
        return cls(table.to_pandas(types_mapper=block_dtype, ignore_metadata=True))

    def to_arrow(self, *, preserve_index):
        assert preserve_index is False
        return pa.Table.from_pandas(pd.DataFrame(self), preserve_index=False).replace_schema_metadata(None)

    def to_json(self, *args, **kwargs):
        raise AssertionError("cuDF warns, and makes JSON of what pandas has; a row is brought to the host before")


Series.__module__ = DataFrame.__module__ = "cudf.core"


def stand_in_for_cudf():
    """Put the doubles where ``import cudf`` finds them, and register them with Dask."""
    cudf = ModuleType("cudf")
    cudf.Series, cudf.DataFrame, cudf.Index = Series, DataFrame, pd.Index
    # Dask imports the other where it meets the first.
    sys.modules |= {"cudf": cudf, "dask_cudf": ModuleType("dask_cudf")}
    for name in ("cudf", "dask_cudf"):
        sys.modules[name].__spec__ = ModuleSpec(name, None)
    for dispatch in (concat_dispatch, get_parallel_type, make_meta_dispatch, hash_object_dispatch):
        for kind, plain in ((Series, pd.Series), (DataFrame, pd.DataFrame)):
            dispatch.register(kind, dispatch.dispatch(plain))
