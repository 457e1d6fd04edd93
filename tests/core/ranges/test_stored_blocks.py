# SPDX-License-Identifier: Apache-2.0
"""Blocks in temporary files: types are restored exactly, blocks are cut by bytes, and damage is found."""

import functools
from pathlib import Path
from types import SimpleNamespace

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
    blocks_name,
)
from curator_df.core.tasks.stored_prefix import StoredPrefix
from curator_df.errors import CorruptFileError, OversizeRowError
from curator_df.files.storage import Folder

FIRST = Range(0, 0, 0, 0, 0)
FILES = ["in.jsonl"]
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
    return StoredBlocks.of(Folder(str(folder)), blocks_name, 2, {0: file})


@pytest.mark.quick
@pytest.mark.parametrize("name", COLUMNS)
def test_a_column_of_any_type_comes_back_as_it_was(tmp_path, name):
    block = block_of({"address": COLUMNS[name], "n": COLUMNS["nullable"]})
    (found,) = stored(tmp_path, block.iloc[:2], block.iloc[2:]).blocks(FIRST, FILES, block_bytes=1_000)
    pd.testing.assert_frame_equal(found, block)
    if name == "NaN and null":
        assert found.address.isna().tolist() == [True, False, False]


@pytest.mark.parametrize("column", [pd.Series([{1}, {2}], dtype=object), pd.Categorical(["a", "b"])])
def test_what_a_file_cannot_restore_is_refused(tmp_path, column):
    writer = BlockSink(Folder(str(tmp_path))).open(0, None, 0)
    with pytest.raises(UnstorableError, match="column 'odd' "):
        writer.append(block_of({"odd": column}))
    writer.discard()


def test_blocks_of_other_types_are_not_stored_beside_each_other(tmp_path):
    """Whole numbers without and with nulls have one Arrow type, and two of pandas."""
    for first, second in (
        (np.array([1, 2]), np.array([1.5, 2.0])),
        (np.array([1, 2]), pd.array([1, None], dtype="Int64")),
        (np.array([1.0, 2.0]), pd.array([1.0, None], dtype="Float64")),
    ):
        writer = BlockSink(Folder(str(tmp_path))).open(0, None, 0)
        writer.append(block_of({"n": first}))
        with pytest.raises(UnstorableError, match="different types of columns for different blocks"):
            writer.append(block_of({"n": second}))
        writer.discard()


def test_blocks_are_cut_by_bytes_whatever_the_blocks_were_that_were_stored(tmp_path):
    texts = ["x" * 300_000] * 20 + ["y"] * 20
    home = stored(tmp_path, block_of({"text": pd.array(texts, dtype="string[pyarrow]")}))
    blocks = list(home.blocks(FIRST, FILES, block_bytes=1_000_000))
    assert [address for block in blocks for address in block.index] == list(range(5, 45))
    assert 6 <= len(blocks) <= 8
    (whole,) = home.blocks(FIRST, FILES, block_bytes=100_000_000)
    assert whole.text.tolist() == texts


def test_only_the_rows_that_are_wanted_are_read(tmp_path):
    home = stored(tmp_path, block_of({"n": np.arange(1_000)}), block_of({"n": np.arange(1_000, 2_000)}, first=2_000))
    (found,) = home.blocks(FIRST, FILES, block_bytes=PIECE_BYTES, wanted=among(np.array([7, 9, 2_004])))
    assert (found.n.tolist(), found.index.tolist()) == ([2, 4, 1_004], [7, 9, 2_004])


def test_a_row_that_is_too_long_for_its_task_is_told_by_its_place(tmp_path):
    home = stored(tmp_path, block_of({"text": pd.array(["a", "b" * 5_000_000], dtype="string[pyarrow]")}))
    with pytest.raises(OversizeRowError, match=r"row at offset 6 of in\.jsonl has 5 MB") as found:
        list(home.blocks(FIRST, FILES, block_bytes=1_000_000, largest_row_bytes=4_000_000))
    assert (found.value.path, found.value.offset, found.value.row_bytes) == ("in.jsonl", 6, 5_000_000 + 16)
    assert [len(block) for block in home.blocks(FIRST, FILES, block_bytes=1_000_000)] == [1, 1]
    left_out = []
    (other,) = home.blocks(
        FIRST, FILES, block_bytes=1_000_000, largest_row_bytes=4_000_000, on_long_row=left_out.append
    )
    assert (other.text.tolist(), [error.offset for error in left_out]) == (["a"], [6])


def test_a_range_without_rows_has_no_blocks_and_one_without_a_file_is_an_error(tmp_path):
    home = stored(tmp_path)
    assert list(home.blocks(FIRST, FILES, block_bytes=1_000)) == []
    with pytest.raises(CorruptFileError, match=r"part-000001\.arrows is damaged or gone"):
        list(home.blocks(Range(1, 0, 0, 0, 0), FILES, block_bytes=1_000))


def test_each_changed_byte_is_found(tmp_path):
    home = stored(tmp_path, block_of({"text": pd.array(["some text", "more"], dtype="string[pyarrow]")}))
    path = Path(tmp_path, blocks_name(0))
    content = path.read_bytes()
    for place in range(len(content)):
        path.write_bytes(content[:place] + bytes([content[place] ^ 0x41]) + content[place + 1 :])
        with pytest.raises(CorruptFileError, match="is damaged or gone"):
            list(home.blocks(FIRST, FILES, block_bytes=1_000))
    for size in range(len(content)):
        path.write_bytes(content[:size])
        with pytest.raises(CorruptFileError):
            list(home.blocks(FIRST, FILES, block_bytes=1_000))


def test_a_removed_row_that_is_too_long_for_its_task_is_not_copied(tmp_path):
    rejects = stored(tmp_path, block_of({"text": pd.array(["b" * 5_000_000], dtype="string[pyarrow]")}))
    kept = []
    copy = functools.partial(
        StoredPrefix(1, rejects, rejects).copy_removed,
        FIRST,
        FILES,
        block_bytes=1_000_000,
        quarantine=None,
        rejects=SimpleNamespace(append=kept.append),
    )
    with pytest.raises(OversizeRowError):
        copy(largest_row_bytes=4_000_000)
    assert not kept
    copy(largest_row_bytes=None)
    assert [len(block) for block in kept] == [1]
