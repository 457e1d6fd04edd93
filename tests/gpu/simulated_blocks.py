# SPDX-License-Identifier: Apache-2.0
"""Run operators on blocks that stand in for cuDF's, in numba's CUDA simulator, and write what comes out: a script.

The stand-ins are pandas with what `curator_df.kernels.device.columns` uses of cuDF 26.10 beside: a column with buffers that have
addresses, an offset into them, and an ``access`` without which there is no reading them.
"""

import sys
import warnings
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType, SimpleNamespace

import dask.dataframe as dd
import numpy as np
import pandas as pd
import pyarrow as pa
from dask.dataframe.dispatch import concat_dispatch, get_parallel_type, hash_object_dispatch, make_meta_dispatch

import curator_df as cdf
from curator_df.core.program import lower
from curator_df.errors import UnsupportedBackendError
from curator_df.ops.rules import Profile, Rule
from curator_df.profiles import DATATROVE_C4, DATATROVE_FINEWEB, NEMO_CODE

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


Series.__module__ = DataFrame.__module__ = "cudf.core"


def table(texts):
    """Return a Dask table of such blocks."""
    index = pd.Index(range(10, 10 + 3 * len(texts), 3), name="address")
    block = DataFrame({"id": range(len(texts)), "text": pd.array(texts, "string[pyarrow]")}, index=index)
    return dd.from_map(lambda part: block.iloc[part], [slice(0, 9), slice(9, 9), slice(9, None)], meta=block.iloc[:0])


def starts_late(block):
    """Tell where a text is greater than a word: null where it is null."""
    return block["text"] > "a"


def refusals(docs, folder):
    """Yield what is said of calls that have no kernel, and of a run."""
    (folder / "read.jsonl").write_text('{"text": "a"}\n')
    read = cdf.read_jsonl(folder / "read.jsonl")
    moved = read.map_partitions(DataFrame, meta=DataFrame(read._meta))
    for call in (
        lambda: cdf.add_metrics(docs, ["word_count", "unique_line_ratio"]),
        lambda: cdf.add_metrics(docs, ["word_count"], words="datatrove"),
        lambda: cdf.keep_profile(docs, DATATROVE_C4),
        lambda: cdf.keep_profile(docs.assign(word_count=1), LENGTHS, from_metrics=True),
        lambda: cdf.add_profile(docs, NEMO_CODE),
        lambda: lower(moved),
    ):
        try:
            call()
        except UnsupportedBackendError as exc:
            yield str(exc)
        else:
            raise AssertionError("a call was not refused")


LENGTHS = Profile("lengths", "1", "ours", (Rule("word_count", ">", 0, "empty"),))


def main(source, folder):
    folder = Path(folder)
    warnings.simplefilter("ignore")
    cudf = ModuleType("cudf")
    cudf.Series, cudf.DataFrame = Series, DataFrame
    # Dask imports the other where it meets the first.
    sys.modules |= {"cudf": cudf, "dask_cudf": ModuleType("dask_cudf")}
    for dispatch in (concat_dispatch, get_parallel_type, make_meta_dispatch, hash_object_dispatch):
        for kind, plain in ((Series, pd.Series), (DataFrame, pd.DataFrame)):
            dispatch.register(kind, dispatch.dispatch(plain))
    docs = table(pa.ipc.open_file(source).get_batch(0).column(0).to_pylist())
    metrics = ["word_count", "mean_word_length", "duplicate_line_ratio", "digit_ratio"]
    results = {
        "add_metrics": cdf.add_metrics(docs, metrics),
        "keep_profile": cdf.keep_profile(docs, DATATROVE_FINEWEB, add_metrics=True),
        "keep_code": cdf.keep_profile(docs, NEMO_CODE),
        "keep_where": cdf.keep_where(docs, "id > 3"),
        "keep_where_null": cdf.keep_where(docs, starts_late),
    }
    for name, result in results.items():
        found = result.compute(scheduler="synchronous")
        assert type(found) is DataFrame
        assert list(found.dtypes.index) == list(result.dtypes.index)
        pd.DataFrame(found).to_pickle(folder / f"{name}.pickle")
    pd.Series(list(refusals(docs, folder))).to_pickle(folder / "refusals.pickle")


if __name__ == "__main__":
    main(*sys.argv[1:])
