# SPDX-License-Identifier: Apache-2.0
"""Text columns of pandas that are pickled without a copy; the conversions are tested where readers use them."""

from __future__ import annotations

import copyreg
import pickle
import subprocess
import sys

import pandas as pd
import pyarrow as pa
import pytest
from pandas.arrays import ArrowExtensionArray, ArrowStringArray

from curator_df.core.host_blocks import pickle_without_copies

pytestmark = pytest.mark.quick
TEXTS = pd.Series(["text " * 200, None, "ä"] * 3_000, dtype="string[pyarrow]")
LISTS = pd.Series([[1], [2, 3], None] * 3_000, dtype=pd.ArrowDtype(pa.list_(pa.int64())))


@pytest.fixture(autouse=True)
def _without_copies():
    pickle_without_copies()
    yield
    for kind in (ArrowExtensionArray, ArrowStringArray):
        copyreg.dispatch_table.pop(kind, None)


def buffers_of(pandas_object):
    """Return the pickled object without its buffers, these buffers, and the bytes that Arrow allocated for them."""
    before, buffers = pa.total_allocated_bytes(), []
    raw = pickle.dumps(pandas_object, protocol=5, buffer_callback=buffers.append)
    return raw, buffers, pa.total_allocated_bytes() - before


@pytest.mark.parametrize("rows", [TEXTS, LISTS, pd.concat([TEXTS, TEXTS]), pd.Index(TEXTS), pd.DataFrame({"t": TEXTS})])
def test_a_column_is_pickled_without_a_copy_and_is_the_same(rows):
    raw, buffers, allocated_bytes = buffers_of(rows)
    assert allocated_bytes < 100_000
    for back in (pickle.loads(raw, buffers=buffers), pickle.loads(pickle.dumps(rows))):
        assert type(back) is type(rows)
        assert back.equals(rows)


@pytest.mark.parametrize("rows", [TEXTS.iloc[10:13], LISTS.iloc[:0], TEXTS.iloc[::2].iloc[4:8]])
def test_a_slice_does_not_take_the_column_along(rows):
    raw, buffers, _ = buffers_of(rows)
    assert len(raw) + sum(buffer.raw().nbytes for buffer in buffers) < 20_000
    assert pickle.loads(raw, buffers=buffers).equals(rows)


def test_slices_put_together_again_do_not_each_take_the_column_along():
    rows = pd.concat([TEXTS.iloc[start : start + 1_000] for start in range(0, len(TEXTS), 1_000)])
    raw, buffers, _ = buffers_of(rows)
    whole = sum(buffer.raw().nbytes for buffer in buffers_of(TEXTS)[1])
    assert len(raw) + sum(buffer.raw().nbytes for buffer in buffers) < 1.2 * whole
    assert pickle.loads(raw, buffers=buffers).equals(rows)


@pytest.mark.parametrize("rows", [0, 2])
def test_deep_columns_are_pickled_too(rows):
    kind = pa.int64()
    for _ in range(90):
        kind = pa.struct([("a", kind)])
    column = pd.Series([None] * rows, dtype=pd.ArrowDtype(kind))
    assert pickle.loads(pickle.dumps(column)).dtype == column.dtype


def test_what_was_pickled_is_read_without_curator_df():
    code = (
        "import pickle, sys; back = pickle.load(sys.stdin.buffer); "
        "print(len(back), back.dtype, any('curator_df' in name for name in sys.modules))"
    )
    said = subprocess.run([sys.executable, "-c", code], input=pickle.dumps(TEXTS), capture_output=True, check=True)
    assert said.stdout.decode().split() == [str(len(TEXTS)), "string", "False"]
