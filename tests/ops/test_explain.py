# SPDX-License-Identifier: Apache-2.0
"""What `explain` says of tables that Dask computes and of looks, and what `forget` frees."""

from __future__ import annotations

import inspect
import json
import re
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import dask.dataframe as dd
import pandas as pd
import pytest

import curator_df as cdf
from curator_df.core.ranges.journal import Journal
from curator_df.core.runner import explaining
from curator_df.core.runner.events import RunStarted
from curator_df.errors import (
    ColumnError,
    CuratorError,
    DiskFullError,
    ExpressionError,
    InputError,
    OutputExistsError,
    ParameterError,
)
from curator_df.files.storage import Folder
from curator_df.io.output.files import FileSink
from curator_df.io.shuffle import operators
from curator_df.ops.explain import RUNS
from tests.contracts.operator_cases import TOKENIZER
from tests.core.runner.fake_client import inline_cluster

ROWS = pd.DataFrame({"n": range(40), "text": [f"text {number // 2}" for number in range(40)]})


@pytest.fixture
def cluster():
    with inline_cluster(memory="4GB", cpus=2) as session:
        yield session


@pytest.fixture
def docs(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in ROWS.to_dict("records")))
    return cdf.read_jsonl(str(path), blocksize="200B")


def remarks(table) -> dict[str, str]:
    return dict(cdf.explain(table).remarks)


def files(session) -> list[Path]:
    return [path for path in Path(session.workdir).rglob("*") if path.is_file()]


def test_what_dask_computes_first_is_said_with_its_size(docs, cluster):
    ordered = docs.sort_values("n").pipe(cdf.drop_exact_duplicates)
    said = remarks(ordered)["working files"]
    assert said.startswith(f"Dask computes sort_values first and writes its rows to {cluster.workdir}/spool: about ")
    assert said.endswith(" on disk")
    assert not files(cluster)
    assert cdf.explain(ordered).input_bytes == cdf.explain(docs).input_bytes


def test_rows_of_pandas_have_a_plan_without_a_cluster():
    plan = cdf.explain(dd.from_pandas(ROWS, npartitions=3).pipe(cdf.normalize_whitespace), memory="2GB")
    assert (
        "Dask computes the table that the chain begins with first and writes its rows to the working folder"
        in dict(plan.remarks)["working files"]
    )
    assert plan.projected_bytes < 2_000_000_000
    assert "working files" in repr(plan)


def test_what_was_computed_is_read_again(docs, cluster, tmp_path):
    ordered = docs.sort_values("n")
    cdf.write_parquet(ordered, tmp_path / "out")
    said = remarks(ordered.pipe(cdf.normalize_whitespace))
    assert "working files" not in said
    assert said["reused"].startswith(
        f"Dask has computed sort_values before; its rows are read from {cluster.workdir}/spool/"
    )


def numbered(table):
    return cdf.add_ids(table, into="number", dense=True)


@pytest.mark.parametrize(
    ("name", "step"),
    [
        ("drop_near_duplicates", cdf.drop_near_duplicates),
        ("drop_exact_duplicates", cdf.drop_exact_duplicates),
        ("add_ids", numbered),
    ],
)
def test_passes_of_a_look_are_said_to_be_reused(docs, cluster, name, step):
    table = step(docs)
    assert "reused" not in remarks(table)
    len(table.compute())
    assert remarks(table)["reused"] == f"passes of {name}: done by an earlier look, reused"
    assert "reused" not in remarks(docs[docs["n"] > 1].pipe(step))


def test_forgetting_a_chain_frees_its_files_and_no_others(docs, cluster):
    kept, other = docs.pipe(cdf.drop_exact_duplicates), docs.pipe(cdf.drop_exact_duplicates, keep="last")
    len(kept), len(other)
    before = files(cluster)
    freed_bytes = sum(path.stat().st_size for path in before)
    freed = kept.curate.forget()
    assert freed == freed_bytes - sum(path.stat().st_size for path in files(cluster))
    assert 0 < freed < freed_bytes
    assert "reused" not in remarks(kept)
    assert "reused" in remarks(other)
    assert kept.curate.forget() == 0
    assert len(kept) == 20


def test_forgetting_a_chain_of_dask_frees_its_working_files(docs, cluster):
    kept = docs.sort_values("n").pipe(cdf.drop_exact_duplicates)
    assert len(kept) == 20
    freed_bytes = sum(path.stat().st_size for path in files(cluster))
    assert kept.pipe(cdf.normalize_whitespace).curate.forget() == freed_bytes
    assert not files(cluster)
    assert len(kept) == 20


def test_without_a_cluster_there_is_nothing_to_forget(docs):
    assert docs.pipe(cdf.drop_exact_duplicates).curate.forget() == 0


def test_tables_by_folder_are_planned_as_they_are_written_together(docs, cluster, tmp_path):
    tables = {
        str(tmp_path / "few"): docs.pipe(cdf.drop_exact_duplicates).pipe(cdf.keep_where, "n < 10"),
        str(tmp_path / "all"): docs.pipe(cdf.drop_exact_duplicates),
    }
    plan, alone = cdf.explain(tables), cdf.explain(tables[str(tmp_path / "all")])
    assert [stage.title for stage in plan.stages] == [stage.title for stage in alone.stages]
    assert plan.stages[-1].task_factor > alone.stages[-1].task_factor
    names = [name for name, _, _ in plan.stages[-1].steps]
    assert names == ["read", "drop_exact_duplicates", "keep_where", f"write {tmp_path}/few", f"write {tmp_path}/all"]
    receipts = cdf.write_many(tables)
    assert {receipt.projected_bytes for receipt in receipts.values()} == {plan.projected_bytes}


def test_tables_of_pandas_by_folder_share_what_is_computed(tmp_path):
    table = dd.from_pandas(ROWS, npartitions=3)
    plan = cdf.explain({"a": table.pipe(cdf.keep_where, "n < 5"), "b": table}, memory="2GB")
    assert [label for label, _ in plan.remarks].count("working files") == 1
    assert plan.input_files == 3


def test_a_mapping_without_tables_and_tables_of_two_inputs_are_refused(docs, tmp_path):
    with pytest.raises(ParameterError, match="the dict of tables is empty"):
        cdf.explain({}, memory="2GB")
    (tmp_path / "b.jsonl").write_text('{"n": 1, "text": "b"}\n')
    with pytest.raises(ExpressionError, match="same"):
        cdf.explain({"a": docs, "b": cdf.read_jsonl(str(tmp_path / "b.jsonl"))}, memory="2GB")


def calls():
    """Every function that runs, with arguments other than the default ones, but for its folder."""
    both = {"a": 0.5, "b": 0.5}
    return {
        "write_parquet": (lambda docs: docs, {"partition_on": "text", "rejects": "removed"}),
        "write_jsonl": (lambda docs: docs, {"compression": "gzip"}),
        "write_by": (lambda docs: docs, {"partition_on": "text"}),
        "write_tokens": (lambda docs: docs, {"tokenizer": TOKENIZER, "add_eos": False, "format": "numpy"}),
        "write_many": (lambda docs: cdf.split_rows(docs, both), {"format": "jsonl"}),
        "checkpoint": (lambda docs: docs, {"on_error": "quarantine"}),
        "shuffle_rows": (lambda docs: docs, {"seed": 7}),
        "blend": (lambda docs: {"x": docs, "y": docs}, {"weights": {"x": 1, "y": 2}}),
        "find_exact_duplicates": (lambda docs: docs, {"subset": "text", "id": "n"}),
        "find_near_duplicates": (lambda docs: docs, {"scheme": "fineweb"}),
        "describe": (lambda docs: docs, {"by": "text"}),
        "describe_domains": (lambda docs: docs.assign(url=docs["text"]), {}),
        "describe_importance": (lambda docs: docs, {"target": ROWS[["text"]]}),
        "find_semantic_duplicates": (lambda docs: docs.assign(embedding=docs["n"]), {}),
    }


def without_runs(docs, tmp_path):
    """Every function that Dask or this process computes, with what returns its first argument, and others."""
    folder = tmp_path / "groups"

    def found_semantic():
        pytest.importorskip("sklearn", reason="needs the models extra (scikit-learn is not installed)")
        ROWS.assign(embedding=[[float(n), 1.0] for n in ROWS["n"]]).to_parquet(tmp_path / "vectors.parquet")
        vectors = cdf.read_parquet(str(tmp_path / "vectors.parquet"))
        return cdf.find_semantic_duplicates(vectors, workdir=folder, eps=0.1, dimensions=2)

    short = cdf.Profile("ours", "1", "a", (cdf.Rule("word_count", ">=", 3, "short"),))
    return {
        "audit_duplicates": (lambda: cdf.find_near_duplicates(docs, workdir=folder), {"docs": docs}),
        "describe_drops": (lambda: docs, {"profile": short}),
        "describe_exact_duplicates": (lambda: cdf.find_exact_duplicates(docs, workdir=folder), {"docs": docs}),
        "describe_near_duplicates": (lambda: cdf.find_near_duplicates(docs, workdir=folder), {}),
        "describe_semantic_duplicates": (found_semantic, {}),
        "explore_thresholds": (lambda: docs, {"metrics": ["n"]}),
        "preview": (lambda: docs.pipe(cdf.drop_exact_duplicates), {"rows": 10}),
    }


SAMPLES = {"recommend", "profile_memory"}
"""Functions that run a sample in a process of its own, before there is a plan."""
WITHOUT_RUNS = {
    *("audit_duplicates", "describe_drops", "describe_exact_duplicates", "describe_near_duplicates"),
    *("describe_semantic_duplicates", "explore_thresholds", "preview"),
}


def test_every_function_that_runs_can_be_explained():
    functions = {name: inspect.getdoc(getattr(cdf, name)) or "" for name in cdf.__all__}
    computing = {name for name, said in functions.items() if re.search(r"Computes:\s+yes", said)} - SAMPLES
    assert len(computing) > 20
    assert computing | {"find_near_duplicates", "push_to_hub"} == set(RUNS)
    assert set(RUNS) == {*calls(), *WITHOUT_RUNS, "push_to_hub"}


@pytest.mark.parametrize("name", sorted(WITHOUT_RUNS))
def test_what_dask_computes_is_planned_and_nothing_is_computed(docs, cluster, tmp_path, name):
    first, options = without_runs(docs, tmp_path)[name]
    table = first()
    before = [*files(cluster), *sorted(tmp_path.rglob("*"))]
    started = []
    cluster.watchers.append(started.append)
    plan = cdf.explain(table, getattr(cdf, name), **options)
    assert [*files(cluster), *sorted(tmp_path.rglob("*"))] == before
    assert started == []
    assert plan.projected_bytes <= cluster.layout.allowed_bytes
    assert "then" in dict(plan.remarks)
    getattr(cdf, name)(table, **options)


@pytest.mark.parametrize(
    ("name", "options", "error"),
    [
        ("describe_drops", {"profile": "no_such_profile"}, ParameterError),
        ("explore_thresholds", {"metrics": ["none"]}, ColumnError),
        ("preview", {"rows": 0}, ParameterError),
        ("describe_exact_duplicates", {}, InputError),
        ("audit_duplicates", {"docs": None}, InputError),
    ],
)
def test_what_would_not_be_computed_is_refused_in_the_same_words(docs, cluster, name, options, error):
    with pytest.raises(error) as refused:
        cdf.explain(docs, getattr(cdf, name), **options)
    with pytest.raises(error) as started:
        getattr(cdf, name)(docs, **options)
    assert str(refused.value) == str(started.value)


@pytest.mark.parametrize(
    "run", [cdf.write_parquet, cdf.write_many, cdf.checkpoint, cdf.shuffle_rows, cdf.find_near_duplicates]
)
def test_a_full_disk_is_refused_by_the_plan_as_by_the_start(docs, cluster, tmp_path, monkeypatch, run):
    table = docs if run in (cdf.shuffle_rows, cdf.find_near_duplicates) else docs.pipe(cdf.drop_near_duplicates)
    table = {str(tmp_path / "out"): table} if run is cdf.write_many else table
    options = {"path": tmp_path / "out"} if "path" in inspect.signature(run).parameters else {}
    options |= {"workdir": tmp_path / "out"} if run is cdf.find_near_duplicates else {}
    plan = cdf.explain(table, run, **options)
    assert 0 < plan.working_files.needed_bytes <= plan.working_files.most_bytes
    assert plan.to_json()["working_files"]["needed_bytes"] == plan.working_files.needed_bytes
    monkeypatch.setattr(Folder, "free_bytes", lambda self: plan.working_files.needed_bytes - 1)
    with pytest.raises(DiskFullError, match="Nothing was started") as refused:
        cdf.explain(table, run, **options)
    with pytest.raises(DiskFullError) as started:
        run(table, **options)
    assert str(refused.value) == str(started.value)
    assert not (tmp_path / "out").exists()
    monkeypatch.setattr(Folder, "free_bytes", lambda self: plan.working_files.needed_bytes)
    run(table, **options)


@pytest.mark.parametrize("run", [cdf.find_near_duplicates, cdf.blend])
def test_the_disk_of_the_clusters_working_files_is_known(docs, cluster, monkeypatch, run):
    table, options = (
        (docs, {}) if run is cdf.find_near_duplicates else ({"a": docs, "b": docs}, {"epochs": {"a": 1, "b": 2}})
    )
    assert cdf.explain(table, run, **options).stages
    assert not files(cluster)
    monkeypatch.setattr(Folder, "free_bytes", lambda self: 100)
    with pytest.raises(
        DiskFullError, match=f"only 100 B are free in {cluster.workdir}.*Nothing was started"
    ) as refused:
        cdf.explain(table, run, **options)
    with pytest.raises(DiskFullError) as started:
        run(table, **options)
    assert str(refused.value) == str(started.value)


def test_the_disk_of_a_folder_that_is_not_named_is_not_known(docs, cluster, tmp_path, monkeypatch):
    monkeypatch.setattr(Folder, "free_bytes", lambda self: 100)
    near = docs.pipe(cdf.drop_near_duplicates)
    assert cdf.explain(near, cdf.write_parquet).stages
    assert cdf.explain(docs, cdf.shuffle_rows).stages
    assert cdf.explain(docs, cdf.find_near_duplicates, memory="4GB").stages
    with pytest.raises(DiskFullError, match="Nothing was started"):
        cdf.explain({str(tmp_path / "out"): near})


@pytest.mark.parametrize("run", [cdf.write_parquet, cdf.shuffle_rows])
def test_an_output_is_not_deleted_for_a_run_that_lacks_disk_space(docs, cluster, tmp_path, monkeypatch, run):
    table = docs if run is cdf.shuffle_rows else docs.pipe(cdf.drop_near_duplicates)
    run(table, tmp_path / "out")
    before, needed = sorted(tmp_path.rglob("*")), cdf.explain(table, run).working_files.needed_bytes
    options = {"path": tmp_path / "out", "on_existing": "overwrite"}
    monkeypatch.setattr(Folder, "sizes", lambda self: {"part-0.parquet": 10})
    monkeypatch.setattr(Folder, "free_bytes", lambda self: needed - 11)
    for call in (run, lambda table, **options: cdf.explain(table, run, **options)):
        with pytest.raises(DiskFullError, match=r"free in .* once the old output is deleted\. Nothing was started"):
            call(table, **options)
        assert sorted(tmp_path.rglob("*")) == before
    monkeypatch.setattr(Folder, "free_bytes", lambda self: needed - 10)
    assert cdf.explain(table, run, **options).stages


def test_rows_that_steps_may_remove_are_no_reason_to_refuse_a_run(docs, cluster, tmp_path, monkeypatch):
    few = docs.pipe(cdf.keep_where, "n < 2")
    monkeypatch.setattr(Folder, "free_bytes", lambda self: 60_000)
    for table in (few, docs[docs["n"] < 2], few.assign(n=1)):
        (need,) = cdf.explain(table, cdf.shuffle_rows, path=tmp_path / "out").working_files.needs
        assert (need.needed_bytes, need.worst_case) == (0, "if no rows are removed") and need.more_bytes > 0
    cdf.shuffle_rows(few, tmp_path / "out")
    blended = cdf.explain({"a": few, "b": docs}, cdf.blend, epochs={"a": 5, "b": 1}).working_files.needs[0]
    assert 0 < blended.needed_bytes < blended.more_bytes
    (kept,) = cdf.explain(docs.assign(n=1)[["n", "text"]], cdf.shuffle_rows).working_files.needs
    assert kept.more_bytes == 0
    chain = few.pipe(cdf.drop_exact_duplicates, keep="last")
    stored = cdf.explain(chain, cdf.write_parquet, reuse="always").working_files.needs[0]
    assert (stored.needed_bytes, stored.worst_case) == (0, "if no rows are removed")


def test_a_look_says_how_much_space_its_passes_need(docs, cluster):
    near = docs.pipe(cdf.drop_near_duplicates)
    assert cdf.explain(near, cdf.explore_thresholds, metrics=["n"]).working_files == cdf.explain(near).working_files


@pytest.mark.parametrize("run", [cdf.shuffle_rows, cdf.blend])
def test_rows_between_two_passes_need_no_space_when_they_are_there(docs, cluster, tmp_path, monkeypatch, run):
    table, options = (docs, {}) if run is cdf.shuffle_rows else ({"a": docs, "b": docs}, {"weights": {"a": 1, "b": 2}})

    def stop_in_the_last(df, sink, **policies):
        return interrupt(sink) if isinstance(sink, FileSink) else write(df, sink, **policies)

    write = operators.run
    with monkeypatch.context() as patched:
        patched.setattr(operators, "run", stop_in_the_last)
        with pytest.raises(KeyboardInterrupt):
            run(table, tmp_path / "out", **options)
    monkeypatch.setattr(Folder, "free_bytes", lambda self: 100)
    run(table, tmp_path / "out", on_existing="resume", **options)


TEXTS = pd.DataFrame(
    {
        "n": range(6000),
        "weight": [number % 97 / 97 for number in range(6000)],
        "text": [
            f"{number % 2000} " + " ".join(f"w{number % 2000 * 7 % k}" for k in range(3, 40)) for number in range(6000)
        ],
    }
)
"""Each text three times, so that all rows have duplicates."""


@pytest.mark.parametrize(
    "step",
    [
        cdf.drop_exact_duplicates,
        lambda docs: cdf.drop_exact_duplicates(docs, keep="last"),
        cdf.drop_near_duplicates,
        lambda docs: cdf.drop_near_duplicates(docs, ignore_common=0.1),
        lambda docs: cdf.remove_repeated_parts(docs, "lines"),
        lambda docs: cdf.remove_repeated_substrings(docs, min_bytes=50),
        lambda docs: cdf.sample_by_importance(docs, rows=100, importance="weight"),
        lambda docs: cdf.join(docs[["n", "weight"]], docs[["n", "text"]], on="n"),
        lambda docs: docs.pipe(cdf.normalize_unicode).pipe(cdf.drop_exact_duplicates).pipe(cdf.drop_near_duplicates),
    ],
)
def test_working_files_take_no_more_space_than_the_plan_says(cluster, tmp_path, monkeypatch, step):
    TEXTS.to_json(tmp_path / "in.jsonl", orient="records", lines=True)
    table, work = step(cdf.read_jsonl(str(tmp_path / "in.jsonl"))), tmp_path / "work"
    sizes, delete = [0], Folder.delete_tree

    def measure(self, name):
        sizes.append(sum(path.stat().st_size for path in work.rglob("*") if path.is_file()))
        delete(self, name)

    plan = cdf.explain(table, cdf.write_parquet, path=tmp_path / "out", workdir=work)
    monkeypatch.setattr(Folder, "delete_tree", measure)
    cdf.write_parquet(table, tmp_path / "out", workdir=work)
    assert max(sizes) <= plan.working_files.most_bytes
    assert plan.working_files.needed_bytes <= plan.working_files.most_bytes


def test_another_thread_computes_while_a_plan_is_made(docs, cluster, monkeypatch):
    rows = []

    def compute_and_stop(*args, **options):
        with ThreadPoolExecutor(1) as pool:
            rows.append(len(pool.submit(docs.compute).result(60)))
        return stop(*args, **options)

    stop = explaining.stop_if_explaining
    monkeypatch.setattr("curator_df.core.runner.run.stop_if_explaining", compute_and_stop)
    assert cdf.explain(docs, cdf.write_parquet).stages
    assert rows == [len(ROWS)]


def test_working_files_are_counted_for_each_operation_and_shown(docs, cluster):
    chain = docs.pipe(cdf.normalize_unicode).pipe(cdf.drop_exact_duplicates, keep="last").pipe(cdf.drop_near_duplicates)
    exact, near = cdf.explain(chain).working_files.needs
    assert (exact.name, near.name) == ("drop_exact_duplicates", "drop_near_duplicates")
    said = str(cdf.explain(chain))
    assert re.search(
        r"disk +about .* of working files, up to .* if most texts are similar to others, deleted at the end", said
    )
    assert "drop_near_duplicates: about" in cdf.explain(chain)._repr_html_()
    assert "disk    no working files" in str(cdf.explain(docs)).replace("disk   no", "disk    no")
    stored = cdf.explain(chain, cdf.write_parquet, reuse="always").working_files.needs[0]
    assert stored.name == "rows after normalize_unicode"
    assert 0 < stored.needed_bytes < stored.needed_bytes + stored.more_bytes


def test_the_time_of_an_interrupted_run_follows_from_its_finished_splits(cluster, tmp_path, monkeypatch):
    for number in range(6):
        (tmp_path / f"{number}.jsonl").write_text('{"text": "' + "a b " * 5_000_000 + '"}\n')
    docs, out = cdf.read_jsonl(str(tmp_path / "*.jsonl")), tmp_path / "out"
    assert cdf.explain(docs, cdf.write_parquet, path=out).seconds is None
    assert "time   not measured" in str(cdf.explain(docs)).replace("time    not", "time   not")
    with monkeypatch.context() as patched:
        patched.setattr("curator_df.core.runner.run._Target.finish", interrupt)
        with pytest.raises(KeyboardInterrupt):
            cdf.write_parquet(docs, out)
    done = out / "_curator/done.jsonl"
    lines = done.read_bytes().splitlines(keepends=True)
    done.write_bytes(b"".join(lines[:2]))
    plan = cdf.explain(docs, cdf.write_parquet, path=out, on_existing="resume")
    each = [json.loads(line)["seconds"] for line in lines[:2]]
    rounds = -(-(len(lines) - 2) // (plan.layout.workers * plan.layout.threads))
    assert plan.seconds == pytest.approx(rounds * sum(each) / 2)
    assert "input splits left, by the seconds of 2 finished ones" in str(plan)
    assert plan.to_json()["seconds"] == plan.seconds
    cdf.write_parquet(docs, out, on_existing="resume")
    assert cdf.explain(docs, cdf.write_parquet, path=out, on_existing="resume").seconds == 0.0
    next(out.glob("part-*")).unlink()
    plan = cdf.explain(docs, cdf.write_parquet, path=out, on_existing="resume")
    assert plan.seconds > 0
    assert "1 input split left" in str(plan)
    both = {str(out): docs, str(tmp_path / "other"): docs}
    assert cdf.explain(both, cdf.write_many, on_existing="resume").seconds is None


def test_a_plan_neither_reads_nor_notes_the_files_of_a_copied_output(docs, cluster, tmp_path):
    cdf.write_parquet(docs, tmp_path / "out")
    shutil.copytree(tmp_path / "out", tmp_path / "copy", copy_function=shutil.copy)
    before = sorted((path, path.stat().st_mtime_ns) for path in (tmp_path / "copy").rglob("*"))
    plan = cdf.explain(docs, cdf.write_parquet, path=tmp_path / "copy", on_existing="resume")
    assert plan.seconds == 0.0
    assert sorted((path, path.stat().st_mtime_ns) for path in (tmp_path / "copy").rglob("*")) == before


def interrupt(self):
    raise KeyboardInterrupt


@pytest.mark.parametrize("name", sorted({*RUNS} - WITHOUT_RUNS - {"find_semantic_duplicates", "push_to_hub"}))
def test_a_call_is_planned_as_it_starts_and_nothing_is_written(docs, cluster, tmp_path, monkeypatch, name):
    if name == "write_tokens":
        pytest.importorskip("tokenizers", reason="needs the tokenizers extra (tokenizers is not installed)")
    monkeypatch.chdir(tmp_path)
    table, options = calls()[name]
    before = sorted(tmp_path.rglob("*"))
    explained = cdf.explain(table(docs), getattr(cdf, name), **options)
    assert sorted(tmp_path.rglob("*")) == before
    assert not files(cluster)
    if name.startswith("find_"):
        assert name in str(explained)
        assert name.replace("find_", "drop_") not in str(explained)
    started = []
    cluster.watchers.append(
        lambda event: started.append(event.projected_bytes) if isinstance(event, RunStarted) else None
    )
    where = {"path": tmp_path / "out"} if "path" in inspect.signature(getattr(cdf, name)).parameters else {}
    getattr(cdf, name)(table(docs), **where, **options)
    assert explained.projected_bytes == max(started)


def test_the_state_of_folders_is_refused_as_the_start_would_and_nothing_is_written(docs, cluster, tmp_path):
    out, other, held = tmp_path / "out", tmp_path / "other", tmp_path / "held"
    cdf.write_parquet(docs, out, rejects=tmp_path / "removed")
    other.mkdir()
    (other / "a.txt").write_text("mine")
    (tmp_path / "file").write_text("")
    found = cdf.find_exact_duplicates(docs, workdir=tmp_path / "work")
    assert len(found.columns)
    with Journal(Folder(str(held))):
        before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
        for run, table, options in [
            (cdf.write_parquet, docs, {"path": out}),
            (cdf.write_parquet, docs, {"path": other, "on_existing": "overwrite"}),
            (cdf.write_parquet, docs, {"path": other, "on_existing": "resume"}),
            (cdf.write_parquet, docs.pipe(cdf.normalize_whitespace), {"path": out, "on_existing": "resume"}),
            (cdf.write_parquet, docs, {"path": tmp_path}),
            (cdf.write_parquet, docs, {"path": tmp_path / "file/below"}),
            (cdf.write_parquet, docs, {"path": tmp_path / "new", "rejects": out}),
            (cdf.write_parquet, docs, {"path": held}),
            (cdf.write_jsonl, docs, {"path": out}),
            (cdf.write_by, docs, {"path": out, "partition_on": "text"}),
            (cdf.write_many, {str(tmp_path / "new"): docs, str(out): docs}, {}),
            (cdf.checkpoint, docs.pipe(cdf.normalize_whitespace), {"path": out}),
            (cdf.shuffle_rows, docs, {"path": out}),
            (cdf.shuffle_rows, docs, {"path": tmp_path}),
            (cdf.find_exact_duplicates, docs, {"workdir": tmp_path / "file"}),
        ]:
            with pytest.raises(CuratorError) as refused:
                cdf.explain(table, run, **options)
            now = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
            assert now == before, (run, options)
            with pytest.raises(CuratorError) as started:
                run(table, **options)
            assert (type(refused.value), _undated(refused.value)) == (type(started.value), _undated(started.value))
            before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}


def _undated(error) -> str:
    return re.sub("since .* UTC", "", str(error))


def test_folders_of_a_mapping_are_refused_as_write_many_would(docs, cluster, tmp_path):
    cdf.write_parquet(docs, tmp_path / "out")
    with pytest.raises(OutputExistsError, match="already contains a complete run"):
        cdf.explain({str(tmp_path / "new"): docs, str(tmp_path / "out"): docs})
    with pytest.raises(ParameterError, match="cannot be written to: this run reads"):
        cdf.explain({str(tmp_path): docs})


def test_a_step_that_each_output_has_is_listed_once(docs, cluster):
    said = str(cdf.explain(cdf.split_rows(docs, {"a": 0.5, "b": 0.5}), cdf.write_many))
    assert said.count("split_rows: ") == 1


def test_the_importance_of_two_tables_has_a_pass_over_each(docs, cluster):
    plan = cdf.explain(docs, cdf.describe_importance, target=docs.pipe(cdf.keep_where, "n < 5"))
    assert dict(plan.remarks)["then"] == "a pass like this over the table of target="
    assert "keep_where" not in str(plan)


def test_groups_that_were_found_before_are_not_searched_for_again(docs, cluster, tmp_path):
    cdf.find_exact_duplicates(docs, workdir=tmp_path / "work")
    plan = cdf.explain(docs, cdf.find_exact_duplicates, workdir=tmp_path / "work")
    assert dict(plan.remarks)["reused"].startswith("find_exact_duplicates has found these groups before, in ")


def test_a_call_is_planned_without_a_cluster(docs):
    for name in ("write_parquet", "shuffle_rows", "find_near_duplicates"):
        plan = cdf.explain(docs, getattr(cdf, name), memory="1GB")
        assert plan.layout.allowed_bytes == 1_000_000_000
    assert cdf.explain(docs, memory="1GB", processes=False).layout.in_process > plan.layout.in_process
    folders = cdf.explain(docs, cdf.write_parquet, partition_on="text", memory="1GB")
    assert folders.projected_bytes > cdf.explain(docs, memory="1GB").projected_bytes
    assert "a pass that sorts the rows" in str(cdf.explain(docs, cdf.shuffle_rows, memory="1GB"))


def test_what_dask_computes_first_is_no_obstacle_to_the_plan_of_a_call(docs):
    plan = cdf.explain(docs.sort_values("n"), cdf.find_exact_duplicates, memory="1GB")
    assert "Dask computes sort_values first" in dict(plan.remarks)["working files"]


@pytest.mark.parametrize(
    ("run", "options", "error", "said"),
    [
        (
            cdf.keep_language,
            {},
            ParameterError,
            r"run=keep_language is not a function that writes, searches or describes.*explain\(df\.pipe\(",
        ),
        (
            "write_jsonl",
            {},
            ParameterError,
            r"run='write_jsonl' is text.*without quotes: explain\(df, cdf.write_jsonl\)",
        ),
        (cdf.write_parquet, {"overwrite": True}, TypeError, "Did you mean on_existing='overwrite'"),
        (cdf.write_parquet, {"partition_on": "none"}, ColumnError, "needs the column 'none'"),
        (None, {"partition_on": "lang"}, TypeError, r"explain\(df, cdf.write_parquet, partition_on=\.\.\.\)$"),
        (None, {"memroy": "1GB"}, TypeError, "Did you mean 'memory'"),
    ],
)
def test_a_call_that_would_not_start_has_no_plan(docs, cluster, run, options, error, said):
    with pytest.raises(error, match=said):
        cdf.explain(docs, run, **options)
