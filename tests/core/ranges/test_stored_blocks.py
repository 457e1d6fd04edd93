# SPDX-License-Identifier: Apache-2.0
"""Blocks in temporary files: types are restored exactly, blocks are cut by bytes, and damage is found."""

from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from curator_df.core.ranges.source import Range, among
from curator_df.core.ranges.stored_blocks import (
    PIECE_BYTES,
    BlockSink,
    StoredBlocks,
    UnstorableError,
    stored_name,
)
from curator_df.errors import CorruptFileError, OversizeRowError
from curator_df.files.storage import Folder

FIRST = Range(0, 0, 0, 0, 0)
COLUMNS = {
    "text": pd.array(["a", None, "ü"], dtype="string[pyarrow]"),
    "pandas text": pd.Series(["a", "b", None]).array,
    "nullable": pd.array([1, None, 3], dtype="Int64"),
    "plain": np.array([1, 2, 3], dtype="int8"),
    "floats": np.array([1.0, np.nan, 3.0]),
    "NaN and null": pd.arrays.FloatingArray(np.array([1.0, np.nan, 3.0]), np.array([True, False, False])),
    "Arrow NaN and null": pd.array([None, float("nan"), 1.5], dtype=pd.ArrowDtype(pa.float64())),
    "truth": pd.array([True, None, False], dtype="boolean"),
    "time": pd.to_datetime(["2020-01-01", "2021-01-01", None]).tz_localize("Europe/Berlin"),
    "lists": pd.array([[1], [2, 3], None], dtype=pd.ArrowDtype(pa.list_(pa.int64()))),
    "structs": pd.array([{"a": 1}, None, {"a": 2}], dtype=pd.ArrowDtype(pa.struct([("a", pa.int32())]))),
    "vectors": pd.array([[1.0, 2.0]] * 3, dtype=pd.ArrowDtype(pa.list_(pa.float32(), 2))),
    "codes": pd.array(["x", "y", None], dtype=pd.ArrowDtype(pa.dictionary(pa.int32(), pa.string()))),
}


def block_of(columns, first=5):
    rows = len(next(iter(columns.values())))
    return pd.DataFrame(columns, index=pd.Index(np.arange(first, first + rows), name="address"))


def stored(folder, *blocks):
    writer = BlockSink(Folder(str(folder))).open(0, None, 0)
    for block in blocks:
        writer.append(block)
    (file,) = writer.commit()
    assert file.rows == sum(map(len, blocks))
    return StoredBlocks.of(Folder(str(folder)), "blocks", 2, {0: file})


@pytest.mark.quick
@pytest.mark.parametrize("name", COLUMNS)
def test_a_column_of_any_type_comes_back_as_it_was(tmp_path, name):
    block = block_of({"address": COLUMNS[name], "n": COLUMNS["nullable"]})
    (found,) = stored(tmp_path, block.iloc[:2], block.iloc[2:]).blocks(FIRST, block_bytes=1_000)
    pd.testing.assert_frame_equal(found, block)
    if name == "NaN and null":
        assert found.address.isna().tolist() == [True, False, False]


@pytest.mark.parametrize("column", [pd.Series([{1}, {2}], dtype=object), pd.Categorical(["a", "b"])])
def test_what_a_file_cannot_restore_is_refused(tmp_path, column):
    writer = BlockSink(Folder(str(tmp_path))).open(0, None, 0)
    with pytest.raises(UnstorableError, match="column 'odd' "):
        writer.append(block_of({"odd": column}))
    writer.discard()


def test_blocks_are_cut_by_bytes_whatever_the_blocks_were_that_were_stored(tmp_path):
    texts = ["x" * 300_000] * 20 + ["y"] * 20
    home = stored(tmp_path, block_of({"text": pd.array(texts, dtype="string[pyarrow]")}))
    blocks = list(home.blocks(FIRST, block_bytes=1_000_000))
    assert [address for block in blocks for address in block.index] == list(range(5, 45))
    assert 6 <= len(blocks) <= 8
    (whole,) = home.blocks(FIRST, block_bytes=100_000_000)
    assert whole.text.tolist() == texts


def test_only_the_rows_that_are_wanted_are_read(tmp_path):
    home = stored(tmp_path, block_of({"n": np.arange(1_000)}), block_of({"n": np.arange(1_000, 2_000)}, first=2_000))
    (found,) = home.blocks(FIRST, block_bytes=PIECE_BYTES, wanted=among(np.array([7, 9, 2_004])))
    assert (found.n.tolist(), found.index.tolist()) == ([2, 4, 1_004], [7, 9, 2_004])


def test_a_row_that_is_too_long_for_its_task_is_told_by_its_place(tmp_path):
    home = stored(tmp_path, block_of({"text": pd.array(["a", "b" * 5_000_000], dtype="string[pyarrow]")}))
    with pytest.raises(OversizeRowError, match=r"a row at .*part-000000\.arrows has 5 MB") as found:
        list(home.blocks(FIRST, block_bytes=1_000_000, largest_row_bytes=4_000_000))
    assert (found.value.offset, found.value.row_bytes) == (6, 5_000_000 + 16)
    assert [len(block) for block in home.blocks(FIRST, block_bytes=1_000_000)] == [1, 1]


def test_a_range_without_rows_has_no_blocks_and_one_without_a_file_is_an_error(tmp_path):
    home = stored(tmp_path)
    assert list(home.blocks(FIRST, block_bytes=1_000)) == []
    with pytest.raises(CorruptFileError, match=r"part-000001\.arrows is damaged or gone"):
        list(home.blocks(Range(1, 0, 0, 0, 0), block_bytes=1_000))


def test_each_changed_byte_is_found(tmp_path):
    home = stored(tmp_path, block_of({"text": pd.array(["some text", "more"], dtype="string[pyarrow]")}))
    path = Path(tmp_path, stored_name("blocks", 0))
    content = path.read_bytes()
    for place in range(len(content)):
        path.write_bytes(content[:place] + bytes([content[place] ^ 0x41]) + content[place + 1 :])
        with pytest.raises(CorruptFileError, match="is damaged or gone"):
            list(home.blocks(FIRST, block_bytes=1_000))
    for size in range(len(content)):
        path.write_bytes(content[:size])
        with pytest.raises(CorruptFileError):
            list(home.blocks(FIRST, block_bytes=1_000))
