# SPDX-License-Identifier: Apache-2.0
"""An index to which runs append what they keep, and from which documents are removed."""

import json
import os
import random
import shutil

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest

import curator_df as cdf
from curator_df import errors
from curator_df.core.runner import run
from curator_df.core.tasks.task import Job
from curator_df.exchange.drops import read_drops
from curator_df.exchange.exchange import Exchange, KeyWriter
from curator_df.exchange.key_stages import reduce_keys
from curator_df.exchange.stored_keys import stored_keys
from curator_df.files.storage import Folder
from curator_df.kernels.minhash.scheme import Scheme
from curator_df.ops.duplicates.index import keep_documents
from curator_df.ops.duplicates.index_runs import IndexLock, index_block
from tests.core.runner.fake_client import inline_cluster
from tests.ops.test_near_duplicates import variants

WORDS = Scheme("words", 2, num_bands=40, minhashes_per_band=1, seed=3)


@pytest.fixture(scope="module", autouse=True)
def cluster():
    with inline_cluster(memory="2GB", cpus=2) as running:
        yield running


def docs_of(folder, rows):
    content = "".join(json.dumps(row) + "\n" for row in rows)
    if not folder.exists() or (folder / "in.jsonl").read_text() != content:
        folder.mkdir(exist_ok=True)
        (folder / "in.jsonl").write_text(content)
    return cdf.read_jsonl(str(folder))


def rows_of(texts, source="a"):
    return [{"id": f"{source}{n}", "source": source, "text": text} for n, text in enumerate(texts)]


def add(tmp_path, name, rows, index, **options):
    """Write a run with an index; return the ids that it kept."""
    docs = docs_of(tmp_path / f"{name}-in", rows)
    drop = cdf.drop_exact_duplicates if index.scheme is None else cdf.drop_near_duplicates
    scheme = {} if index.scheme is None else {"scheme": index.scheme, "jaccard_threshold": 0.7}
    cdf.write_parquet(drop(docs, index=index, **scheme), tmp_path / name, **options)
    return pq.read_table(tmp_path / name)["id"].to_pylist()


def members(index):
    return index.documents().compute()["id"].tolist()


@pytest.fixture
def index(tmp_path):
    return cdf.open_index(tmp_path / "index", source_column="source")


def test_each_run_drops_what_the_corpus_has_and_appends_the_rest(tmp_path, index):
    assert add(tmp_path, "one", rows_of(["x", "y", "x"], "a"), index) == ["a0", "a1"]
    assert add(tmp_path, "two", rows_of(["y", "z", "z"], "b"), index) == ["b1"]
    found = cdf.open_index(tmp_path / "index")
    assert members(found) == ["a0", "a1", "b1"]
    assert found.runs.values.tolist() == [
        ["000001", str(tmp_path / "one"), 2, True],
        ["000002", str(tmp_path / "two"), 1, True],
    ]
    settings = json.loads((tmp_path / "index/index.json").read_text())
    assert settings == {
        "format": 1,
        "scheme": None,
        "subset": ["text"],
        "normalize": None,
        "id": "id",
        "source_column": "source",
    }


def test_what_was_dropped_because_of_a_removed_source_comes_back_when_it_is_read_again(tmp_path, index):
    add(tmp_path, "one", rows_of(["x", "y"], "forum"), index)
    assert add(tmp_path, "two", rows_of(["x", "z", "x"], "books"), index) == ["books1"]
    assert index.remove("source == 'forum'") == 2
    assert members(index) == ["books1"]
    assert add(tmp_path, "again", rows_of(["x", "z", "x"], "books"), index) == ["books0"]
    # A removal does not apply to what is appended later.
    assert add(tmp_path, "new", rows_of(["y", "x"], "forum"), index) == ["forum0"]
    assert members(index) == ["books1", "books0", "forum0"]
    assert index.remove("run == '000003' and id in ['books0', 'books1']") == 1
    assert index.removals.values.tolist() == [
        ["source == 'forum'", "000002"],
        ["run == '000003' and id in ['books0', 'books1']", "000004"],
    ]


def test_near_duplicates_are_found_in_the_index(tmp_path):
    index = cdf.open_index(tmp_path / "near", scheme=WORDS, source_column="source")
    texts = ["one two three four five six seven eight nine ten", "an other text that has nothing in common with it"]
    close = texts[0] + " eleven"
    assert add(tmp_path, "one", rows_of(texts, "a"), index) == ["a0", "a1"]
    assert add(tmp_path, "two", rows_of([close, "quite new words here"], "b"), index) == ["b1"]
    index.remove("id == 'a0'")
    assert add(tmp_path, "again", rows_of([close, "quite new words here"], "b"), index) == ["b0"]
    assert index.documents().columns.tolist() == ["run", "source", "id", "minhash"]


def stop_in_the_last_pass(monkeypatch, target, call):
    dispatch = run.Dispatcher.run

    def stop(dispatcher, pieces):
        job = dispatcher.job
        if isinstance(job, Job) and job.fork.branches[0].sink.folder.url == str(target):
            dispatch(dispatcher, (piece for piece in pieces if piece.number < 1))
            raise KeyboardInterrupt
        dispatch(dispatcher, pieces)

    with monkeypatch.context() as patched:
        patched.setattr(run.Dispatcher, "run", stop)
        with pytest.raises(KeyboardInterrupt):
            call()


def test_a_run_that_is_killed_leaves_the_index_and_a_resumed_one_appends_once(tmp_path, monkeypatch, index):
    monkeypatch.setattr(run, "SMALL_RANGE_BYTES", 100)
    add(tmp_path, "one", rows_of(["x", "y"], "a"), index)
    rows = rows_of([f"text {n % 9}" for n in range(20)], "b")
    stop_in_the_last_pass(monkeypatch, tmp_path / "two", lambda: add(tmp_path, "two", rows, index))
    assert members(index) == ["a0", "a1"]
    assert index.runs.is_complete.tolist() == [True, False]
    kept = [f"b{n}" for n in range(9)]
    assert add(tmp_path, "two", rows, index, on_existing="resume") == kept
    assert members(index) == ["a0", "a1", *kept]
    # A run that is complete is found complete: it was decided without itself.
    assert add(tmp_path, "two", rows, index, on_existing="resume") == kept
    assert members(index) == ["a0", "a1", *kept]


def test_a_run_killed_after_it_appended_completes_without_appending_again(tmp_path, monkeypatch, index):
    rows = rows_of(["x", "y", "x"], "a")
    finish = run._Target.finish

    def killed(target):
        if "/index/runs/" not in target.branch.sink.folder.url:
            raise KeyboardInterrupt
        return finish(target)

    with monkeypatch.context() as patched:
        patched.setattr(run._Target, "finish", killed)
        with pytest.raises(KeyboardInterrupt):
            add(tmp_path, "one", rows, index)
    assert members(index) == ["a0", "a1"]
    assert add(tmp_path, "one", rows, index, on_existing="resume") == ["a0", "a1"]
    assert members(index) == ["a0", "a1"]
    assert cdf.read_receipt(tmp_path / "one").rows_written == 2


@pytest.mark.parametrize(("part", "name"), [(IndexLock, "begin"), (run.Journal, "start")])
def test_a_run_killed_as_it_begins_does_not_keep_another_output_from_the_index(
    tmp_path, monkeypatch, index, part, name
):
    def killed(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(part, name, killed)
        with pytest.raises(KeyboardInterrupt):
            add(tmp_path, "one", rows_of(["x"], "a"), index)
    assert add(tmp_path, "two", rows_of(["x"], "b"), index) == ["b0"]
    assert members(index) == ["b0"]


def test_a_run_does_not_resume_with_an_index_that_has_changed(tmp_path, monkeypatch, index):
    monkeypatch.setattr(run, "SMALL_RANGE_BYTES", 100)
    rows = rows_of([f"text {n}" for n in range(20)], "a")
    stop_in_the_last_pass(monkeypatch, tmp_path / "one", lambda: add(tmp_path, "one", rows, index))
    add(tmp_path, "two", rows_of(["text 3"], "b"), index)
    with pytest.raises(errors.ResumeError, match=r"has changed since .* had 0 runs and 0 removals, and has 1 and 0"):
        add(tmp_path, "one", rows, index, on_existing="resume")
    kept = [f"a{n}" for n in range(20) if n != 3]
    assert add(tmp_path, "one", rows, index, on_existing="overwrite") == kept


def test_a_run_with_which_others_were_decided_is_not_overwritten(tmp_path, index):
    add(tmp_path, "one", rows_of(["x"], "a"), index)
    add(tmp_path, "two", rows_of(["x", "y"], "b"), index)
    with pytest.raises(
        errors.ParameterError,
        match=r"would replace the documents of run 000001 .* the later run 000002 was already compared",
    ):
        add(tmp_path, "one", rows_of(["z"], "a"), index, on_existing="overwrite")
    assert add(tmp_path, "two", rows_of(["x", "z"], "b"), index, on_existing="overwrite") == ["b1"]
    assert members(index) == ["a0", "b1"]


def test_runs_resume_with_an_index_that_was_moved_or_restored(tmp_path, monkeypatch, index):
    monkeypatch.setattr(run, "SMALL_RANGE_BYTES", 100)
    add(tmp_path, "one", rows_of(["x", "y"], "a"), index)
    add(tmp_path, "two", rows_of(["y", "z"], "b"), index)
    rows = rows_of([f"text {n % 9}" for n in range(20)], "c")
    stop_in_the_last_pass(monkeypatch, tmp_path / "three", lambda: add(tmp_path, "three", rows, index))
    (tmp_path / "index").rename(tmp_path / "moved")
    for file in (tmp_path / "moved/runs/000001").glob("*.parquet"):
        os.utime(file, ns=(1, 1))
    moved = cdf.open_index(tmp_path / "moved")
    assert add(tmp_path, "two", rows_of(["y", "z"], "b"), moved, on_existing="resume") == ["b1"]
    assert add(tmp_path, "three", rows, moved, on_existing="resume") == [f"c{n}" for n in range(9)]
    assert members(moved) == ["a0", "a1", "b1", *(f"c{n}" for n in range(9))]


def test_a_run_is_not_overwritten_if_another_ends_before_it_begins(tmp_path, monkeypatch, index):
    add(tmp_path, "one", rows_of(["x"], "a"), index)
    prepare_kernels = run.prepare_kernels

    def meanwhile(*arguments):
        monkeypatch.setattr(run, "prepare_kernels", prepare_kernels)
        assert add(tmp_path, "two", rows_of(["x", "y"], "b"), index) == ["b1"]
        prepare_kernels(*arguments)

    monkeypatch.setattr(run, "prepare_kernels", meanwhile)
    with pytest.raises(errors.ResumeError, match=r"has changed since .* had 0 runs and 0 removals, and has 1 and 0"):
        add(tmp_path, "one", rows_of(["y"], "a"), index, on_existing="overwrite")
    assert members(index) == ["a0", "b1"]


def test_a_removal_applies_to_no_document_that_is_appended_later(tmp_path, index):
    add(tmp_path, "one", rows_of(["x", "y"], "forum"), index)
    index.remove("source == 'forum'")
    with pytest.raises(
        errors.ParameterError, match=r"run 000001 .* removal of .*'forum'.* still applies.* another folder"
    ):
        add(tmp_path, "one", rows_of(["x"], "forum"), index, on_existing="overwrite")
    shutil.rmtree(tmp_path / "index/runs/000001")
    assert add(tmp_path, "two", rows_of(["x"], "forum"), index) == ["forum0"]
    assert index.runs["run"].tolist() == ["000002"]
    assert members(index) == ["forum0"]


def test_two_runs_at_once_are_refused(tmp_path, index):
    with run.Journal(Folder(str(tmp_path / "index"))):
        with pytest.raises(errors.OutputInUseError, match=r"another run is writing to .*index"):
            add(tmp_path, "one", rows_of(["x"]), index)
        with pytest.raises(errors.OutputInUseError):
            index.remove("id == 'a0'")
    assert not (tmp_path / "one").exists()


def test_a_file_of_settings_that_is_cut_short_is_named(tmp_path):
    cdf.open_index(tmp_path / "index")
    settings = tmp_path / "index/index.json"
    settings.write_text(settings.read_text()[:20])
    with pytest.raises(errors.CorruptFileError, match=r"index/index\.json, a file of an index, is damaged"):
        cdf.open_index(tmp_path / "index")


def test_a_damaged_file_of_the_index_is_an_error_that_names_it(tmp_path, index):
    add(tmp_path, "one", rows_of(["x", "y"]), index)
    [file] = (tmp_path / "index/runs/000001").glob("*.parquet")
    state, content = file.stat(), bytearray(file.read_bytes())
    content[len(content) // 3] ^= 1
    file.write_bytes(content)
    os.utime(file, ns=(state.st_atime_ns, state.st_mtime_ns))
    with pytest.raises(errors.CorruptFileError, match=r"000001.*is damaged") as caught:
        add(tmp_path, "two", rows_of(["x"]), index)
    assert caught.value.path == str(file)
    assert not (tmp_path / "two").exists()
    content[4:-8] = bytes(len(content) - 12)
    file.write_bytes(content)
    with pytest.raises(errors.CorruptFileError, match=r"000001.*is damaged"):
        index.remove("run == '000001'")


def test_a_missing_file_of_the_index_is_an_error_that_names_it_and_the_index_can_be_made_again(tmp_path, index):
    add(tmp_path, "one", rows_of(["x", "y"]), index)
    add(tmp_path, "two", rows_of(["y", "z"], "b"), index)
    [file] = (tmp_path / "index/runs/000001").glob("*.parquet")
    file.unlink()
    docs = docs_of(tmp_path / "in", rows_of(["x"], "c"))
    for use in (
        index.documents,
        lambda: docs.pipe(cdf.drop_exact_duplicates, index=index),
        lambda: index.remove("id != ''"),
    ):
        with pytest.raises(errors.CorruptFileError, match=r"000001/.* is damaged or missing.* make the index again"):
            use()
    shutil.rmtree(tmp_path / "index/runs/000001")
    with pytest.raises(errors.CorruptFileError, match=r"runs/000001 is damaged or missing"):
        add(tmp_path, "two", rows_of(["y", "z"], "b"), index, on_existing="resume")
    other = cdf.open_index(tmp_path / "other", source_column="source")
    for output in ("one", "two"):
        again = cdf.read_parquet(tmp_path / output).pipe(cdf.drop_exact_duplicates, index=other)
        cdf.write_parquet(again, tmp_path / f"{output}-again")
    assert members(other) == ["a0", "a1", "b1"]


@pytest.mark.parametrize(
    ("options", "found"),
    [
        ({"normalize": "case_and_spaces"}, "has normalize=None, and this drop has normalize='case_and_spaces'"),
        ({"subset": ["text", "id"]}, r"has subset=\('text',\), and this drop has subset=\('text', 'id'\)"),
        ({"keep": "none"}, "keep='none' keeps no row"),
        ({"keep_keys": "keys"}, "keep_keys= cannot be used with it"),
        ({"groups": "groups"}, "groups= already says which rows are duplicates"),
    ],
)
def test_a_drop_that_does_not_belong_to_the_index_is_refused(tmp_path, index, options, found):
    docs = docs_of(tmp_path / "in", rows_of(["x"]))
    with pytest.raises(errors.ParameterError, match=found):
        docs.pipe(cdf.drop_exact_duplicates, index=index, **options)


@pytest.mark.parametrize(
    ("options", "found"),
    [
        ({"scheme": WORDS.replace(seed=4)}, "'seed': 3.* this drop has scheme=.*'seed': 4"),
        ({"scheme": WORDS.replace(normalize="case_and_spaces")}, "'normalize': None.*'normalize': 'case_and_spaces'"),
        ({"linkage": "transitive"}, "linkage='transitive'"),
        ({"ignore_common": 0.1}, "ignore_common= cannot be used with it"),
    ],
)
def test_another_scheme_is_refused_with_both(tmp_path, options, found):
    index = cdf.open_index(tmp_path / "near", scheme=WORDS)
    docs = docs_of(tmp_path / "in", rows_of(["x"]))
    with pytest.raises(errors.ParameterError, match=found):
        docs.pipe(cdf.drop_near_duplicates, index=index, **{"scheme": WORDS, **options})
    with pytest.raises(errors.ParameterError, match=r"has scheme=.* and this drop has scheme=None"):
        docs.pipe(cdf.drop_exact_duplicates, index=index)
    with pytest.raises(errors.ParameterError, match=r"was made with scheme=.*'seed': 3.*, and scheme=.*'seed': 9"):
        cdf.open_index(tmp_path / "near", scheme=WORDS.replace(seed=9))


def test_a_step_after_the_drop_is_refused(tmp_path, index):
    docs = docs_of(tmp_path / "in", rows_of(["x"])).pipe(cdf.drop_exact_duplicates, index=index)
    with pytest.raises(
        errors.ParameterError, match=r"must be the last step, but 'keep_where' comes after it: .* to the end"
    ):
        cdf.write_parquet(docs.pipe(cdf.keep_where, "id != 'a0'"), tmp_path / "out")
    assert not (tmp_path / "out").exists()
    assert docs.compute()["id"].tolist() == ["a0"]  # a look does not append
    assert len(index.runs) == 0
    assert cdf.explain(docs)
    assert len(index.runs) == 0


def test_a_table_that_a_run_does_not_write_as_it_is_does_not_end_with_an_index(tmp_path, index):
    docs = docs_of(tmp_path / "in", rows_of(["x", "y"])).pipe(cdf.drop_exact_duplicates, index=index)
    with pytest.raises(errors.ParameterError, match=r"an operation that Dask computes first comes after it"):
        cdf.write_parquet(docs.sort_values("id"), tmp_path / "out")
    for mix in (
        lambda: cdf.shuffle_rows(docs, tmp_path / "out"),
        lambda: cdf.blend({"a": docs}, tmp_path / "out", epochs={"a": 1}, source_column="of"),
    ):
        with pytest.raises(
            errors.ParameterError,
            match=r"the last step of the table, drop_exact_duplicates with index=.* Write the table with",
        ):
            mix()
    assert not (tmp_path / "out").exists()
    assert len(index.runs) == 0


def test_a_plan_has_the_memory_of_what_a_run_writes_to_its_index_or_keys(tmp_path, index):
    docs = docs_of(tmp_path / "in", rows_of(["x"]))
    for options in ({"index": index}, {"keep_keys": tmp_path / "keys"}):
        chain = docs.pipe(cdf.drop_exact_duplicates, **options)
        plan = cdf.explain(chain)
        assert plan.projected_bytes == cdf.explain(chain, cdf.write_parquet).projected_bytes
        assert plan.projected_bytes > cdf.explain(docs.pipe(cdf.drop_exact_duplicates)).projected_bytes
    with pytest.raises(errors.ParameterError, match=r"must be the last step, but 'keep_where' comes after it"):
        cdf.explain(docs.pipe(cdf.drop_exact_duplicates, index=index).pipe(cdf.keep_where, "id != 'a0'"))
    assert len(index.runs) == 0


def test_two_outputs_of_one_run_do_not_append_to_an_index(tmp_path, index):
    docs = docs_of(tmp_path / "in", rows_of(["x", "y"]))
    first = docs.pipe(cdf.drop_exact_duplicates, index=index)
    for second in (first, docs.pipe(cdf.keep_where, "id != 'a0'").pipe(cdf.drop_exact_duplicates, index=index)):
        with pytest.raises(
            errors.ParameterError, match=r"one and .*two both have .* Write one output first, and read it"
        ):
            cdf.write_many({tmp_path / "one": first, tmp_path / "two": second})
    cdf.write_many({tmp_path / "one": first, tmp_path / "all": docs})
    assert members(index) == ["a0", "a1"]


def test_a_preview_compares_with_the_index_and_appends_nothing(tmp_path, index):
    add(tmp_path, "one", rows_of(["x"], "a"), index)
    docs = docs_of(tmp_path / "in", rows_of(["x", "y", "y"], "b"))
    for keep in ({"index": index}, {"keep_keys": tmp_path / "keys"}):
        shown = cdf.preview(docs.pipe(cdf.drop_exact_duplicates, **keep))
        assert shown.kept["id"].tolist() == (["b1"] if "index" in keep else ["b0", "b1"])
    assert len(index.runs) == 1
    assert not (tmp_path / "keys").exists()


def test_counts_of_a_table_compare_with_the_index_as_it_is_and_append_nothing(tmp_path, index):
    add(tmp_path, "one", rows_of(["x"], "a"), index)
    docs = docs_of(tmp_path / "in", rows_of(["x", "y", "y"], "b"))
    for keep in ({"index": index}, {"keep_keys": tmp_path / "keys"}):
        counts = cdf.describe(docs.pipe(cdf.drop_exact_duplicates, **keep), workdir=tmp_path / "work")
        assert counts["rows"].tolist() == ([1] if "index" in keep else [2])
    assert len(index.runs) == 1
    assert not (tmp_path / "keys").exists()
    add(tmp_path, "two", rows_of(["y"], "c"), index)
    counts = cdf.describe(docs.pipe(cdf.drop_exact_duplicates, index=index), workdir=tmp_path / "work")
    assert counts["rows"].tolist() == [0]


def test_what_is_no_index_or_no_removal_is_refused(tmp_path, index):
    docs = docs_of(tmp_path / "in", rows_of(["x"]))
    with pytest.raises(errors.ParameterError, match=r"is not an index. Open one with open_index"):
        docs.pipe(cdf.drop_exact_duplicates, index=str(tmp_path / "index"))
    with pytest.raises(errors.ColumnError, match=r"'source'"):
        docs[["id", "text"]].pipe(cdf.drop_exact_duplicates, index=index)
    with pytest.raises(errors.ParameterError, match=r"has files, but no index.json"):
        cdf.open_index(tmp_path / "in")
    with pytest.raises(errors.InputError, match=r"no documents yet"):
        index.documents()
    with pytest.raises(errors.ColumnError, match=r"Index.remove: .*'lang'"):
        index.remove("lang == 'de'")
    with pytest.raises(errors.ParameterError, match=r"no document of .* matches"):
        index.remove("id == 'a0'")
    add(tmp_path, "one", rows_of(["x"]), index)
    for where in ("id", "run + id", "1", "True"):
        with pytest.raises(errors.ParameterError, match=r"is not true or false for each document. Compare a column"):
            index.remove(where)
    with pytest.raises(errors.ParameterError, match=r"Index.remove: .* assigns a column with =\. Compare with =="):
        index.remove("id = 'a0'")
    assert members(index) == ["a0"]


class Corpus:
    """An index in memory: the stages of runs without a cluster, on the kernels that runs use."""

    def __init__(self, folder):
        self.folder, self.documents, self.count = folder, None, 0

    def append(self, rows):
        """Decide rows as a run does, append the kept ones; return their ids."""
        self.count += 1
        name = f"{self.count:06d}"
        block = pd.DataFrame(rows).astype("string[pyarrow]")
        settings = {"columns": ("text",), "normalize": None, "scheme": None, "id": "id", "source": "source"}
        keyed, first_kept = index_block(block, run=name, **settings), 1 << 40
        exchange = Exchange(
            Folder(str(self.folder / name)), "first", 1, np.zeros(1, dtype=np.int64), first_kept=first_kept
        )
        files = []
        for number, table in enumerate((keyed, self.documents)):
            if table is not None and len(table):
                writer = KeyWriter(exchange, number, memory_bytes=10**6, are_kept=number == 1)
                hashes = stored_keys(table, column="content_key", columns=1, normalize=None).hashes
                writer.append(hashes, np.arange(len(table), dtype=np.int64) + number * first_kept)
                files.append(writer.commit())
        reduced = reduce_keys(exchange, 0, files, memory_bytes=10**6)
        gone = [row for piece in read_drops(exchange, 0, [reduced.file], memory_bytes=10**6) for row in piece[:, 0]]
        kept = keyed[~np.isin(np.arange(len(keyed)), gone)]
        self.documents = kept if self.documents is None else pd.concat([self.documents, kept], ignore_index=True)
        return kept["id"].tolist()

    def remove(self, where):
        runs = tuple(f"{number + 1:06d}" for number in range(self.count))
        self.documents = keep_documents(self.documents, removals=[(where, runs)]).block


def test_after_200_random_appends_and_removals_decisions_are_those_of_a_build_from_scratch(tmp_path):
    """Removed documents, and those dropped because of them, are as if they had never been read."""
    choices = random.Random(11)
    corpus, read = Corpus(tmp_path / "grown"), 0
    members = []  # pairs of a row and the kept row that it was dropped for, or itself
    for number in range(200):
        if members and choices.random() < 0.3:
            source = choices.choice("abcdef")
            corpus.remove(f"source == '{source}'")
            members = [one for one in members if source not in (one[0]["source"], one[1]["source"])]
        else:
            batch = [
                {"id": f"d{read + n}", "source": choices.choice("abcdef"), "text": f"text {choices.randrange(80)}"}
                for n in range(choices.randrange(1, 25))
            ]
            read += len(batch)
            kept = corpus.append(batch)
            first = {}
            for row, match in [*members, *((row, row) for row in batch)]:
                first.setdefault(row["text"], match)
            members += [(row, first[row["text"]]) for row in batch]
            assert kept == [row["id"] for row in batch if first[row["text"]] is row]
        if number % 10 == 9:
            scratch = Corpus(tmp_path / f"scratch-{number}")
            assert scratch.append([row for row, _ in members]) == corpus.documents["id"].tolist()
    assert read > 1_000
    assert 0 < len(members) < read
    assert corpus.count < 160


def test_near_duplicates_of_a_grown_index_are_those_of_a_build_from_scratch(tmp_path):
    texts = list(dict.fromkeys(variants(60, seed=5)))
    sources = [random.Random(3 + n).choice("abc") for n in range(len(texts))]
    rows = [{"id": str(n), "source": sources[n], "text": text} for n, text in enumerate(texts)]
    grown = cdf.open_index(tmp_path / "grown", scheme=WORDS, source_column="source")
    kept, removed = [], []
    for number in range(0, len(rows), 15):
        kept += add(tmp_path, f"grown-{number}", rows[number : number + 15], grown)
        if number == 30:
            removed = [name for name in kept if sources[int(name)] == "b"]
            assert grown.remove("source == 'b'") == len(removed) > 0
    assert len(kept) < len(rows)
    stays = [name for name in kept if name not in removed]
    assert members(grown) == stays
    scratch = cdf.open_index(tmp_path / "scratch", scheme=WORDS, source_column="source")
    for number in range(0, len(rows), 15):
        of_run = [rows[int(name)] for name in stays if int(name) // 15 == number // 15]
        assert add(tmp_path, f"scratch-{number}", of_run, scratch) == [row["id"] for row in of_run]
    assert members(scratch) == stays
    again = add(tmp_path, "again", rows, grown)
    assert set(again) & set(stays) == set()
    assert set(removed) & set(again)
