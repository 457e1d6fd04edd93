# SPDX-License-Identifier: Apache-2.0
"""Texts into segments: kernels on small blocks, and whole runs in this process."""

import dataclasses
import json

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import curator_df as cdf
from curator_df import errors
from curator_df.core.planning.lowering import lower
from curator_df.core.planning.program import Step
from curator_df.core.ranges.blocks import block_bytes
from curator_df.core.ranges.out_of_memory import UnitLog
from curator_df.core.tasks.step_runner import StepRunner
from curator_df.kernels.rows import segments
from curator_df.kernels.rows.segments import SEGMENT_BYTES, split_block
from tests.contracts.operator_cases import computed, kernels_of, table
from tests.contracts.operator_rows import ROWS
from tests.core.runner.fake_client import inline_cluster
from tests.examples import examples

TEXTS = ["one\n\ntwo\n\n\nthree", None, "", "\n\n", "no separator", "\n\nfirst\n\n", "a.b.c"]


@pytest.fixture(scope="module")
def cluster():
    with inline_cluster(memory="1.5GB", cpus=2) as running:
        yield running


def docs_of(folder, texts, **more):
    folder.mkdir()
    rows = [{"id": f"doc {number}", "text": text, **more} for number, text in enumerate(texts)]
    (folder / "docs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return cdf.read_jsonl(str(folder))


def block_of(texts, **columns):
    rows = {"text": pd.array(texts, "string[pyarrow]"), **columns}
    return pd.DataFrame(rows, index=pd.RangeIndex(len(texts), name="address"))


def split(texts, separator):
    """Return (position of the text, segment, its number) of each segment."""
    parts = list(split_block(block_of(texts), text="text", separator=separator, segment_id="n"))
    rows = pd.concat(parts)
    return [
        (int(place), None if pd.isna(text) else text, int(number))
        for place, text, number in zip(rows.index, rows["text"], rows["n"], strict=True)
    ]


def plain_split(texts, separator):
    return [
        (place, segment, number)
        for place, text in enumerate(texts)
        for number, segment in enumerate([None] if text is None else text.split(separator))
    ]


@pytest.mark.parametrize("separator", ["\n\n", "\n", ".", "wo", "é", "not there"])
def test_segments_are_those_of_python(separator):
    assert split(TEXTS, separator) == plain_split(TEXTS, separator)


@settings(max_examples=examples(100))
@given(
    st.lists(st.none() | st.text("ab\n é🙂", max_size=30), min_size=1, max_size=8),
    st.text("ab\n é🙂", min_size=1, max_size=3),
)
@example(["aaa", "aaaa"], "aa")
@example(["\n" * 50, None, ""], "\n")
def test_segments_are_those_of_python_in_parts_of_any_size(texts, separator):
    least = segments.LEAST_PART_BYTES
    try:
        for segments.LEAST_PART_BYTES in (1, least):  # 1: parts as small as the block
            assert split(texts, separator) == plain_split(texts, separator)
    finally:
        segments.LEAST_PART_BYTES = least


def test_other_columns_repeat_whatever_their_type():
    block = block_of(
        ["a b", None, "c"],
        tags=pd.array([["x"], None, []], pd.ArrowDtype(pa.list_(pa.string()))),
        raw=pd.array([b"1", None, b"22"], pd.ArrowDtype(pa.binary())),
        kind=pd.array(["x", "y", None], "string[pyarrow]").astype("category"),
        title=pd.array(["t", None, "u"], "string[pyarrow]"),
        flag=pd.array([True, None, False], "boolean"),
        score=pd.array([0.5, None, 1.0], "Float64"),
    )
    before = block.copy(deep=True)
    (rows,) = split_block(block, text="text", separator=" ", segment_id="n")
    pd.testing.assert_frame_equal(rows.drop(columns=["text", "n"]), before.drop(columns="text").iloc[[0, 0, 1, 2]])
    pd.testing.assert_frame_equal(block, before)


def test_bytes_behind_a_null_are_no_segments():
    offsets = pa.py_buffer(np.array([0, 3, 6], np.int64))
    valid = pa.py_buffer(np.array([0b10], np.uint8))
    texts = pa.LargeStringArray.from_buffers(2, offsets, pa.py_buffer(b"a bc d"), valid)
    block = pd.DataFrame({"text": pd.array(texts, "string[pyarrow]")})
    (rows,) = split_block(block, text="text", separator=" ", segment_id="n")
    assert rows["text"].tolist() == [pd.NA, "c", "d"]


def test_no_part_is_larger_than_the_block_however_wide_other_columns_are():
    block = block_of(["a\n" * 500, "b"], title=pd.array(["t" * 35_000] * 2, "string[pyarrow]"))
    parts = segments_seen = 0
    for part in split_block(block, text="text", separator="\n", segment_id="n"):
        assert block_bytes(part) <= block_bytes(block) + SEGMENT_BYTES
        parts += 1
        segments_seen += len(part)
    assert segments_seen == 502
    assert parts > 200  # 18 MB of titles


def test_a_chain_computes_in_dask_too():
    docs = table(4, 9).pipe(cdf.split_documents, separator=" ")
    rows = computed(docs.pipe(cdf.keep_where, "segment_id < 2"))
    texts = [None if pd.isna(text) else text for text in ROWS["text"]]
    expected = [(place, text) for place, text, number in plain_split(texts, " ") if number < 2]
    assert [None if pd.isna(text) else text for text in rows["text"]] == [text for _, text in expected]
    assert rows["id"].tolist() == [place for place, _ in expected]


def test_a_run_writes_the_same_rows_and_counts_them(tmp_path, cluster):
    docs = docs_of(tmp_path / "in", TEXTS * 100, title="t" * 500)
    chain = docs.pipe(cdf.split_documents).pipe(cdf.keep_where, "segment_id != 1")
    receipt = cdf.write_parquet(chain, tmp_path / "out", rejects=tmp_path / "rejects")
    expected = plain_split(TEXTS * 100, "\n\n")
    kept = [segment for _, segment, number in expected if number != 1]
    rows = cdf.read_parquet(str(tmp_path / "out")).compute()
    assert rows["text"].astype(object).where(rows["text"].notna(), None).tolist() == kept
    assert (receipt.rows_read, receipt.rows_written) == (700, len(kept))
    assert receipt.rows_made == len(expected) - 700
    assert receipt.rows_dropped == len(expected) - len(kept) == receipt.reasons()["rows"].sum()
    assert receipt.to_frame()["rows_dropped"].tolist() == [0, 0, receipt.rows_dropped, 0]
    gone = cdf.read_parquet(str(tmp_path / "rejects")).compute()
    assert sorted(gone["text"]) == sorted(segment for _, segment, number in expected if number == 1)


def test_rows_that_a_step_of_the_user_takes_away_are_told_by_their_place(tmp_path, cluster):
    docs = docs_of(tmp_path / "in", ["a b c", "d"]).pipe(cdf.split_documents, separator=" ")
    receipt = cdf.write_parquet(docs[docs["text"] != "b"], tmp_path / "out", rejects=tmp_path / "rejects")
    assert receipt.rows_dropped == 1
    assert cdf.read_parquet(str(tmp_path / "rejects")).compute()["text"].tolist() == ["b"]


def refused(operator, docs, **arguments):
    with pytest.raises(errors.ExpressionError, match=r"split_documents.*checkpoint"):
        docs.pipe(getattr(cdf, operator), **arguments)


def test_what_tells_rows_apart_by_address_is_refused_until_they_have_one(tmp_path, cluster):
    docs = docs_of(tmp_path / "in", ["a b a", "c"]).pipe(cdf.split_documents, separator=" ")
    refused("add_ids", docs, into="number")
    refused("drop_exact_duplicates", docs.pipe(cdf.keep_where, "segment_id >= 0"))
    refused("remove_repeated_parts", docs, unit="lines")
    refused("find_exact_duplicates", docs)
    refused("drop_near_duplicates", docs)
    with pytest.raises(errors.ExpressionError, match="shuffle_rows"):
        cdf.shuffle_rows(docs, tmp_path / "shuffled")
    numbered = cdf.checkpoint(docs.pipe(cdf.add_ids, into="number", dense=True), tmp_path / "numbered")
    assert numbered.compute()["number"].tolist() == [0, 1, 2, 3]
    assert cdf.checkpoint(numbered.pipe(cdf.drop_exact_duplicates), tmp_path / "out").compute()["number"].tolist() == [
        0,
        1,
        3,
    ]
    assert lower(docs.pipe(cdf.join_documents).pipe(cdf.drop_exact_duplicates)).steps


def test_a_run_has_room_for_the_block_that_is_taken_apart(tmp_path):
    docs = docs_of(tmp_path / "in", ["a b"])
    scored = {"metrics": ("nemo_top_2_gram_character_ratio",)}
    alone = cdf.explain(docs.pipe(cdf.add_metrics, **scored), memory="2GB")
    behind = cdf.explain(docs.pipe(cdf.split_documents).pipe(cdf.add_metrics, **scored), memory="2GB")
    assert behind.stages[0].task_factor == alone.stages[0].task_factor + 1.0


def test_memory_that_runs_out_before_the_first_part_halves_the_block_and_later_stops(monkeypatch):
    (kernel,) = kernels_of(table().pipe(cdf.split_documents, separator=" "))
    step = Step(kernel.name, kernel, kernel.price)
    sizes, aside = [], []

    def room_for_one_row(block, **_):
        sizes.append(len(block))
        if len(block) > 1 or "d" in block["text"].iloc[0]:
            raise MemoryError
        return split_block(block, text="text", separator=" ", segment_id="segment_id")

    monkeypatch.setattr("curator_df.ops.rows.document_parts.split_block", room_for_one_row)
    stretch = StepRunner(
        [step],
        0,
        files=["a.jsonl"],
        on_error="raise",
        halves=True,
        log=UnitLog(0, None),
        set_aside=aside.append,
        reject=lambda *_: None,
    )
    made = pd.concat(stretch.run([block_of(["a b", "c", "d e", "f"])]))
    assert made["text"].tolist() == ["a", "b", "c", "f"]
    assert sizes == [4, 1, 2, 1, 1, 1]
    assert [row.offset for row in aside] == [2]
    assert (stretch.tallies[0].rows_in, stretch.tallies[0].rows_out) == (3, 4)


def test_a_single_row_without_memory_is_not_quarantined_while_the_rest_of_a_large_block_may_be_the_reason():
    (kernel,) = kernels_of(table().pipe(cdf.split_documents, separator=" "))

    def no_room(*_, **__):
        raise MemoryError("no room")

    step, aside = Step(kernel.name, dataclasses.replace(kernel, func=no_room), kernel.price), []
    log = UnitLog(0, None)
    kept = {"files": ["a.jsonl"], "on_error": "raise", "log": log, "set_aside": aside.append, "reject": None}
    with pytest.raises(MemoryError, match="no room"):
        list(StepRunner([step], 0, halves=True, gives_up=False, **kept).run([block_of(["a b", "c"])]))
    assert not aside


@pytest.mark.parametrize(
    ("arguments", "error", "said"),
    [
        ({"separator": ""}, errors.ParameterError, "separator=''"),
        ({"separator": None}, errors.ParameterError, "separator=None"),
        ({"text": "body"}, errors.ColumnError, "'body'"),
        ({"text": "score"}, errors.SchemaError, "needs text"),
        ({"segment_id": "title"}, errors.ColumnError, "'title'"),
    ],
)
def test_what_is_wrong_is_said_at_the_door(arguments, error, said):
    with pytest.raises(error, match=said):
        table().pipe(cdf.split_documents, **arguments)
