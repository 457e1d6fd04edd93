# SPDX-License-Identifier: Apache-2.0
"""The last pass of a drop takes away what the exchange found, and refuses rows that are not those of the first pass."""

import dataclasses

import numpy as np
import pandas as pd
import pytest

import curator_df as cdf
from curator_df.core.planning.lowering import lower
from curator_df.errors import RowCountError
from curator_df.exchange.dropped_rows import DropRows, Found
from curator_df.exchange.exchange import Exchange
from curator_df.exchange.key_stages import reduce_keys
from curator_df.exchange.keys import key_checksum
from curator_df.exchange.range_groups import RangeGroups
from curator_df.files.storage import Folder

TEXTS = ["a", "b", "a", "c", "b", "d"]


@pytest.fixture
def pending(tmp_path):
    (tmp_path / "in.jsonl").write_text('{"text": "a"}\n')
    [step] = lower(cdf.read_jsonl(tmp_path / "in.jsonl").pipe(cdf.drop_exact_duplicates)).steps
    return step.pending


def block_of(texts, first=0):
    column = pd.array(texts, dtype="string[pyarrow]")
    return pd.DataFrame({"text": column}, index=pd.RangeIndex(first, first + len(texts), name="address"))


def drops_of(pending, tmp_path, block):
    """Exchange the keys of one range; return what drops its rows in the last pass."""
    starts = np.zeros(1, dtype=np.int64)
    exchange = Exchange(Folder(str(tmp_path)), pending.keep, 2, starts)
    writer = pending.open_keys(exchange, 0, 10**6)
    writer.append(block)
    files = writer.commit()
    drops = tuple(reduce_keys(exchange, number, files, memory_bytes=10**6).file for number in range(2))
    checksum = np.array([writer.summary["key_checksum"]], dtype=np.uint64)
    found = Found(exchange, drops, np.array([len(block)]), checksum, groups=RangeGroups(starts, 1))
    return DropRows(pending, found).of_range(0)


def test_the_rows_that_repeat_an_earlier_one_go_whatever_the_blocks(pending, tmp_path):
    block = block_of(TEXTS)
    drops = drops_of(pending, tmp_path, block)
    kept = [drops.run(part).block for part in (block[:1], block[1:1], block[1:4], block[4:])]
    assert pd.concat(kept)["text"].tolist() == ["a", "b", "c", "d"]
    drops.finish("drop")


@pytest.mark.parametrize(
    "changed",
    [TEXTS[:-1], [*TEXTS, "e"], [*TEXTS[:-1], "D"], [*TEXTS[:2], TEXTS[3], TEXTS[2], *TEXTS[4:]]],
    ids=["one row less", "one row more", "another text", "another order"],
)
def test_rows_that_are_not_those_of_the_first_pass_are_an_error(pending, tmp_path, changed):
    drops = drops_of(pending, tmp_path, block_of(TEXTS))
    drops.run(block_of(changed))
    with pytest.raises(RowCountError, match="drop"):
        drops.finish("drop")


def test_the_checksum_of_keys_does_not_depend_on_blocks_but_on_places():
    hashes = np.arange(12, dtype=np.uint64).reshape(6, 2)
    places = np.arange(6, dtype=np.int64)
    whole = key_checksum(hashes, places)
    parts = key_checksum(hashes[:2], places[:2]) + key_checksum(hashes[2:], places[2:])
    assert whole == parts % (1 << 64)
    assert whole != key_checksum(hashes, places[::-1].copy())
    assert whole != key_checksum(hashes[::-1].copy(), places)


def test_a_range_that_was_not_read_to_the_end_leaves_drops_that_never_came(pending, tmp_path):
    drops = drops_of(pending, tmp_path, block_of(TEXTS))
    found = dataclasses.replace(drops._found, rows=np.array([3]))
    with pytest.raises(RowCountError):
        found.require_same("drop", 0, 3, int(found.checksums[0]), missed=1)


def test_a_reader_that_leaves_out_the_rows_to_drop_must_have_read_all_others(pending, tmp_path):
    block = block_of(TEXTS)
    drops = drops_of(pending, tmp_path, block)
    kept = block[~drops.left_out(block.index.to_numpy())]
    assert kept["text"].tolist() == ["a", "b", "c", "d"]
    assert drops.run(kept).block is kept
    drops.finish("drop")


@pytest.mark.parametrize("lost", [0, 2], ids=["a kept row", "a dropped row"])
def test_a_row_that_a_reader_no_longer_has_is_an_error(pending, tmp_path, lost):
    block = block_of(TEXTS)
    drops = drops_of(pending, tmp_path, block)
    rest = block.drop(index=lost)
    drops.run(rest[~drops.left_out(rest.index.to_numpy())])
    with pytest.raises(RowCountError, match="part 0 of the input had 6 rows the first time and 5 the last time"):
        drops.finish("drop")
