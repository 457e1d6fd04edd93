# SPDX-License-Identifier: Apache-2.0
"""No run deletes, or mixes with its own, what another run wrote or what it reads itself."""

import json
import os

import pytest

import curator_df as cdf
from curator_df.core.ranges.journal import Journal
from curator_df.errors import CuratorError, OutputExistsError, ParameterError, ResumeError
from curator_df.files.storage import Folder
from tests.core.runner.fake_client import inline_cluster


@pytest.fixture(scope="module", autouse=True)
def cluster():
    with inline_cluster(memory="2GB", cpus=2) as running:
        yield running


@pytest.fixture
def docs(tmp_path):
    path = tmp_path / "in/part.jsonl"
    path.parent.mkdir()
    path.write_text("".join(json.dumps({"id": number, "text": f"text {number}"}) + "\n" for number in range(10)))
    return cdf.read_jsonl(tmp_path / "in")


def parts(folder):
    return {path: path.read_bytes() for path in folder.rglob("part-*.parquet")}


def kept(docs, least=5):
    return docs.curate.keep_where(f"id >= {least}")


@pytest.mark.parametrize("on_existing", ["raise", "resume", "overwrite"])
def test_rejects_delete_no_output_of_another_run(docs, tmp_path, on_existing):
    cdf.write_parquet(docs, tmp_path / "first")
    before = parts(tmp_path / "first")
    with pytest.raises(OutputExistsError, match="first"):
        cdf.write_parquet(kept(docs), tmp_path / "out", rejects=tmp_path / "first", on_existing=on_existing)
    assert parts(tmp_path / "first") == before


@pytest.mark.parametrize("on_existing", ["raise", "resume"])
def test_rejects_delete_no_rejects_of_another_run(docs, tmp_path, on_existing):
    cdf.write_parquet(kept(docs), tmp_path / "first", rejects=tmp_path / "rejects")
    before = parts(tmp_path / "rejects")
    assert before
    with pytest.raises(CuratorError, match="rejects"):
        cdf.write_parquet(kept(docs, 2), tmp_path / "out", rejects=tmp_path / "rejects", on_existing=on_existing)
    assert parts(tmp_path / "rejects") == before
    again = cdf.write_parquet(kept(docs), tmp_path / "first", rejects=tmp_path / "rejects", on_existing="resume")
    assert (again.rows_written, parts(tmp_path / "rejects")) == (5, before)
    cdf.write_parquet(kept(docs, 2), tmp_path / "out", rejects=tmp_path / "rejects", on_existing="overwrite")
    assert cdf.read_parquet(tmp_path / "rejects").compute().id.tolist() == [0, 1]


def test_files_that_are_no_rejects_stay(docs, tmp_path):
    (tmp_path / "rejects").mkdir()
    (tmp_path / "rejects/part-000000-000.parquet").write_text("mine")
    for on_existing, error in (("raise", OutputExistsError), ("resume", ResumeError)):
        with pytest.raises(error, match="rejects"):
            cdf.write_parquet(kept(docs), tmp_path / "out", rejects=tmp_path / "rejects", on_existing=on_existing)
    assert (tmp_path / "rejects/part-000000-000.parquet").read_text() == "mine"


def test_rejects_of_a_run_of_before_they_were_marked_resume(docs, tmp_path):
    chain, folders = kept(docs), {"path": tmp_path / "out", "rejects": tmp_path / "rejects"}
    cdf.write_parquet(chain, **folders)
    (tmp_path / "rejects/_curator/rejects_of.json").unlink()
    plan = json.loads((tmp_path / "out/_curator/plan.json").read_text())
    del plan["run"]
    (tmp_path / "out/_curator/plan.json").write_text(json.dumps(plan))
    (tmp_path / "out/_curator/receipt.json").unlink()
    assert cdf.write_parquet(chain, **folders, on_existing="resume").rows_dropped == 5
    assert cdf.read_parquet(tmp_path / "rejects").compute().id.tolist() == list(range(5))


def test_one_run_at_a_time_has_the_rejects(docs, tmp_path):
    with (
        Journal(Folder(str(tmp_path / "rejects"))),
        pytest.raises(OutputExistsError, match=r"another run is writing to .*rejects"),
    ):
        cdf.write_parquet(kept(docs), tmp_path / "out", rejects=tmp_path / "rejects")


@pytest.mark.parametrize("rejects", ["out", "out/rejects", ".", "link"])
def test_output_and_rejects_lie_beside_each_other(docs, tmp_path, rejects):
    os.symlink(tmp_path / "out", tmp_path / "link")
    with pytest.raises(ParameterError, match=r"same folder|is inside"):
        cdf.write_parquet(kept(docs), tmp_path / "out", rejects=tmp_path / rejects)
    assert not (tmp_path / "out").exists()


WRITERS = {
    "write_parquet": lambda docs, path: cdf.write_parquet(docs, path, on_existing="overwrite"),
    "checkpoint": lambda docs, path: cdf.checkpoint(docs, path, on_existing="overwrite"),
    "write_many": lambda docs, path: cdf.write_many({path: docs}, on_existing="overwrite"),
    "write_by": lambda docs, path: cdf.write_by(docs, path, partition_on="id", on_existing="overwrite"),
    "shuffle_rows": lambda docs, path: cdf.shuffle_rows(docs, path, on_existing="overwrite"),
    "blend": lambda docs, path: cdf.blend({"a": docs}, path, epochs={"a": 1}, on_existing="overwrite"),
    "rejects": lambda docs, path: cdf.write_parquet(docs, path.parent / "other", rejects=path, on_existing="overwrite"),
}


@pytest.mark.parametrize("name", WRITERS)
def test_no_writer_deletes_what_it_reads(docs, tmp_path, name):
    cdf.write_parquet(docs, tmp_path / "table/inner")
    before = parts(tmp_path)
    os.symlink(tmp_path / "table", tmp_path / "link")
    for place in ("table/inner", "table", "link"):
        with pytest.raises(ParameterError, match="this run reads"):
            WRITERS[name](cdf.read_parquet(tmp_path / "table/inner"), tmp_path / place)
    assert parts(tmp_path) == before


def test_nor_what_it_compares_with(docs, tmp_path):
    old = cdf.checkpoint(docs.pipe(cdf.add_minhash), tmp_path / "old")
    before = parts(tmp_path / "old")
    chain = docs.pipe(cdf.drop_near_duplicates, against=old)
    with pytest.raises(ParameterError, match="this run reads"):
        cdf.write_parquet(chain, tmp_path / "old", on_existing="overwrite")
    groups = cdf.find_exact_duplicates(docs, workdir=tmp_path / "work")
    with pytest.raises(ParameterError, match="this run reads"):
        cdf.write_parquet(docs.pipe(cdf.drop_exact_duplicates, groups=groups), tmp_path / "work")
    assert parts(tmp_path / "old") == before


def test_nothing_is_written_to_where_the_next_read_finds_it(docs, tmp_path):
    os.symlink(tmp_path / "in", tmp_path / "alias")
    for folder in ("in/out", "in/deep/er", "alias/out"):
        for write in (cdf.write_jsonl, cdf.write_parquet, cdf.checkpoint):
            with pytest.raises(ParameterError, match=rf"{folder}' is inside '{tmp_path}/in', which this run reads"):
                write(docs, tmp_path / folder)
        for option in ("rejects", "workdir"):
            with pytest.raises(ParameterError, match=rf"{folder}' is inside '{tmp_path}/in'"):
                cdf.write_parquet(docs, tmp_path / "out", **{option: tmp_path / folder})
        with pytest.raises(ParameterError, match=rf"{folder}/find_exact_dup.*' is inside '{tmp_path}/in'"):
            cdf.find_exact_duplicates(docs, workdir=tmp_path / folder)
        assert sorted(path.name for path in (tmp_path / "in").rglob("*")) == ["part.jsonl"]
    cdf.write_jsonl(docs, tmp_path / "in/_out")  # a name that is passed over
    for paths in (f"{tmp_path}/in/*.jsonl", tmp_path / "in/part.jsonl"):
        cdf.write_jsonl(cdf.read_jsonl(paths), tmp_path / "in/out", on_existing="overwrite")
    assert len(cdf.read_jsonl(f"{tmp_path}/in/*.jsonl")) == 10


def test_overwrite_deletes_no_names_that_only_begin_as_ours(docs, tmp_path):
    (tmp_path / "out/_notes").mkdir(parents=True)
    (tmp_path / "out/_notes/thesis.txt").write_text("mine")
    with pytest.raises(OutputExistsError, match=r"_notes/thesis\.txt"):
        cdf.write_parquet(docs, tmp_path / "out", on_existing="overwrite")
    assert (tmp_path / "out/_notes/thesis.txt").read_text() == "mine"
