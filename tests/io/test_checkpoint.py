# SPDX-License-Identifier: Apache-2.0
"""Checkpoints and receipts read back, through whole runs in this process."""

import json

import pandas as pd
import pytest

import curator_df as cdf
from curator_df import errors
from tests.core.runner.fake_client import inline_cluster


@pytest.fixture(scope="module", autouse=True)
def cluster():
    with inline_cluster(memory="2GB", cpus=2) as running:
        yield running


@pytest.fixture
def docs(tmp_path):
    folder = tmp_path / "in"
    folder.mkdir()
    for part in range(3):
        rows = [{"id": 10 * part + n, "text": f"text {n % 4}", "score": n / 2 if n else None} for n in range(10)]
        (folder / f"{part}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return cdf.read_jsonl(str(folder))


def test_the_table_read_back_is_the_chain_computed(docs, tmp_path):
    chain = docs.curate.keep_where("id % 2 == 0")
    table = cdf.checkpoint(chain, tmp_path / "kept")
    pd.testing.assert_frame_equal(
        table.compute().reset_index(drop=True), chain.compute().reset_index(drop=True), check_exact=True
    )
    assert table.dtypes.tolist() == chain.dtypes.tolist()


def test_a_pending_drop_can_be_looked_at_behind_it(docs, tmp_path):
    table = docs.curate.drop_exact_duplicates().curate.checkpoint(tmp_path / "kept")
    assert table.compute().id.tolist() == [0, 1, 2, 3]
    assert table.head(1).id.tolist() == [0]


def test_it_is_computed_once(docs, tmp_path):
    calls = tmp_path / "calls"
    calls.mkdir()

    def note(block):
        (calls / f"{block.id.iloc[0]}").touch()
        return block

    chain = docs.map_partitions(note, meta=docs._meta)
    cdf.checkpoint(chain, tmp_path / "kept")
    for file in calls.iterdir():
        file.unlink()
    first = cdf.read_receipt(tmp_path / "kept")
    table = cdf.checkpoint(chain, tmp_path / "kept")
    assert len(table) == 30
    assert list(calls.iterdir()) == []
    assert cdf.read_receipt(table) == first


def test_another_chain_is_refused_unless_the_folder_may_be_overwritten(docs, tmp_path):
    cdf.checkpoint(docs, tmp_path / "kept")
    with pytest.raises(errors.ResumeError, match="on_existing='overwrite'"):
        cdf.checkpoint(docs.curate.keep_where("id > 3"), tmp_path / "kept")
    table = cdf.checkpoint(docs.curate.keep_where("id > 3"), tmp_path / "kept", on_existing="overwrite")
    assert len(table) == 26


def test_nothing_is_left_of_a_table_without_rows_but_its_columns(docs, tmp_path):
    table = cdf.checkpoint(docs.curate.keep_where("id < 0"), tmp_path / "kept")
    assert table.columns.tolist() == ["id", "text", "score"]
    assert len(table) == 0


def test_a_receipt_is_read_by_folder_and_by_table(docs, tmp_path):
    receipt = cdf.write_parquet(docs, tmp_path / "out", partition_on="text")
    assert cdf.read_receipt(tmp_path / "out") == receipt
    assert cdf.read_receipt(cdf.read_parquet(str(tmp_path / "out"))) == receipt


def test_a_folder_without_a_receipt_is_named(docs, tmp_path):
    with pytest.raises(errors.InputError, match=r"|nothing' has no receipt|nothing has no receipt"):
        cdf.read_receipt(tmp_path / "nothing")
    with pytest.raises(errors.InputError, match="in has no receipt"):
        cdf.read_receipt(docs)
    cdf.checkpoint(docs, tmp_path / "a")
    cdf.checkpoint(docs, tmp_path / "b")
    with pytest.raises(errors.InputError, match="2 folders"):
        cdf.read_receipt(cdf.read_parquet([str(tmp_path / "a"), str(tmp_path / "b")]))


def test_temporary_files_of_drops_go_where_they_are_told_and_are_deleted(docs, tmp_path):
    folder = tmp_path / "work"

    def stages(block, folder=folder):
        block = block.copy()
        block["text"] = "|".join(sorted(path.name.rpartition("-")[0] for path in folder.glob("*")))
        return block

    chain = docs.curate.drop_exact_duplicates().map_partitions(stages, meta=docs._meta)
    table = cdf.checkpoint(chain, tmp_path / "kept", workdir=folder)
    assert set(table.compute().text) == {"drop_exact_duplicates"}
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize("path", [None, 3, b"x", "a\0b"])
def test_what_is_no_path_is_refused_in_words(path, tmp_path):
    (tmp_path / "a.jsonl").write_text('{"text": "x"}\n')
    docs = cdf.read_jsonl(tmp_path)
    with pytest.raises(errors.ParameterError, match=r"read_receipt: folder=.* must be a path"):
        cdf.read_receipt(path)
    with pytest.raises(errors.RecipeError, match="is neither the path of a recipe"):
        cdf.load_recipe(path)
    if path is not None:
        with pytest.raises(errors.ParameterError, match="groups="):
            cdf.drop_near_duplicates(docs, groups=path)
    with pytest.raises(errors.ParameterError, match="keep_urls: block_lists="):
        cdf.keep_urls(docs, block_lists=path, url="text")


def test_an_output_on_http_is_refused(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"text": "x"}\n')
    with pytest.raises(errors.ParameterError, match="HTTP has no folders of files"):
        cdf.write_parquet(cdf.read_jsonl(tmp_path), "https://localhost:1/out")
