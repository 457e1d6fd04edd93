# SPDX-License-Identifier: Apache-2.0
"""Rows in random order, and mixtures of tables, through whole runs in this process."""

import json
import re
import subprocess
import sys
from collections import Counter

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest

import curator_df as cdf
from curator_df import errors
from curator_df.core.ranges.source import Range
from curator_df.core.runner.run import run
from curator_df.files.storage import Folder
from curator_df.io.shuffle import operators as shuffle
from curator_df.io.shuffle.files import BATCH_BYTES, batches_of
from curator_df.io.shuffle.sink import ShuffleSink, Taken, keyed_schema, stored_schema
from curator_df.io.shuffle.source import ShuffledSource, Stored
from curator_df.kernels.rows.row_shuffle import order_keys, times_taken
from tests.core.runner.fake_client import inline_cluster


@pytest.fixture(scope="module")
def cluster():
    with inline_cluster(memory="2GB", cpus=2) as running:
        yield running


def write_docs(folder, rows, name="in"):
    (folder / name).mkdir(exist_ok=True, parents=True)
    path = folder / name / "0.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return cdf.read_jsonl(path)


def numbered(count, **more):
    return [{"id": number, "text": f"text {number} " * 20, **more} for number in range(count)]


def written_ids(path):
    return [number for name in sorted(path.glob("*.parquet")) for number in pq.read_table(name)["id"].to_pylist()]


def expected_ids(df, seed=0):
    rows = df.compute()
    return rows["id"].to_numpy()[np.argsort(order_keys(rows.index.to_numpy(), seed, ""))].tolist()


def test_the_order_is_that_of_the_keys_over_all_files(cluster, tmp_path):
    docs = write_docs(tmp_path, numbered(2_000))
    shuffled = cdf.shuffle_rows(docs, tmp_path / "out", seed=3)
    assert written_ids(tmp_path / "out") == expected_ids(docs, seed=3)
    assert shuffled.dtypes.equals(docs.dtypes)
    assert not (tmp_path / "out/_curator/before/rows/rows").exists()
    before, after = docs.compute(), shuffled.compute().sort_values("id")
    pd.testing.assert_frame_equal(before.reset_index(drop=True), after.reset_index(drop=True))


def test_a_chain_before_keeps_its_drops_and_its_receipt(cluster, tmp_path):
    docs = write_docs(tmp_path, [*numbered(300), *numbered(300)]).pipe(cdf.drop_exact_duplicates)
    cdf.shuffle_rows(docs.pipe(cdf.keep_where, "id < 200"), tmp_path / "out")
    ids = written_ids(tmp_path / "out")
    assert sorted(ids) == list(range(200)) != ids
    before = cdf.read_receipt(tmp_path / "out/_curator/before/rows")
    assert before.reasons().set_index("reason")["rows"].to_dict() == {"exact_duplicate": 300, "keep_where": 100}


def test_a_complete_shuffle_is_read_back_and_another_one_is_refused(cluster, tmp_path, raise_if_dask_computes):
    docs = write_docs(tmp_path, numbered(100))
    cdf.shuffle_rows(docs, tmp_path / "out")
    with raise_if_dask_computes():
        cdf.shuffle_rows(docs, tmp_path / "out")
    with pytest.raises(errors.ResumeError, match="another folder"):
        cdf.shuffle_rows(docs, tmp_path / "out", seed=1)
    with pytest.raises(errors.OutputExistsError):
        cdf.shuffle_rows(docs, tmp_path / "out", on_existing="raise")
    cdf.shuffle_rows(docs, tmp_path / "out", seed=1, on_existing="overwrite")
    assert written_ids(tmp_path / "out") == expected_ids(docs, seed=1)


def test_no_rows_are_an_empty_table(cluster, tmp_path):
    docs = write_docs(tmp_path, numbered(10)).pipe(cdf.keep_where, "id < 0")
    shuffled = cdf.shuffle_rows(docs, tmp_path / "out")
    assert len(shuffled) == 0
    assert shuffled.columns.tolist() == ["id", "text"]


def test_tables_are_mixed_evenly_and_rows_taken_as_often_as_said(cluster, tmp_path):
    web, wiki = write_docs(tmp_path, numbered(4_000), "web"), write_docs(tmp_path, numbered(500), "wiki")
    mixed = cdf.blend({"web": web, "wiki": wiki}, tmp_path / "out", epochs={"web": 0.25, "wiki": 2.5}).compute()
    counts = {name: Counter(rows["id"]) for name, rows in mixed.groupby("source")}
    assert set(counts["web"].values()) == {1}
    assert set(counts["wiki"].values()) == {2, 3}
    assert len(counts["wiki"]) == 500
    assert abs(counts["web"].total() - 1_000) < 4 * 28
    assert abs(counts["wiki"].total() - 1_250) < 4 * 12
    is_wiki = (mixed["source"] == "wiki").to_numpy()
    halves = [half.mean() for half in np.array_split(is_wiki, 2)]
    assert abs(halves[0] - halves[1]) < 0.1
    assert (np.diff(np.flatnonzero(is_wiki)) > 1).any()  # not one table after the other


def test_kinds_of_rows_of_one_table_are_mixed_by_a_column(cluster, tmp_path):
    rows = [{"id": number, "kind": [None, "high", "low"][number % 3]} for number in range(900)]
    docs = write_docs(tmp_path, rows)
    epochs = {"high": 2, "low": 0.5, None: 0}
    mixed = cdf.blend(docs, tmp_path / "out", source_column="kind", epochs=epochs).compute()
    assert mixed["kind"].value_counts()["high"] == 600
    assert 100 < mixed["kind"].value_counts()["low"] < 200
    assert mixed["kind"].notna().all()
    with pytest.raises(errors.ParameterError, match=r"has the value None, which is not in .*These have 'high'"):
        cdf.blend(docs, tmp_path / "other", source_column="kind", epochs={"high": 2, "low": 0.5})


def test_weights_are_shares_of_the_rows_and_no_row_comes_twice(cluster, tmp_path, raise_if_dask_computes):
    tables = {"web": write_docs(tmp_path, numbered(3_000), "web"), "wiki": write_docs(tmp_path, numbered(500), "wiki")}
    tables["wiki"] = tables["wiki"].pipe(cdf.keep_where, "id < 400")
    mixed = cdf.blend(tables, tmp_path / "out", weights={"web": 6, "wiki": 2}).compute()
    rows = mixed["source"].value_counts()
    assert rows["wiki"] == 400
    assert abs(rows["web"] - 1_200) < 4 * 27
    assert not mixed.duplicated(["source", "id"]).any()
    epochs = json.loads((tmp_path / "out/_curator/before/epochs.json").read_text())
    assert epochs == pytest.approx({"web": 0.4, "wiki": 1.0})
    same = cdf.blend(tables, tmp_path / "same", epochs=epochs).compute()
    pd.testing.assert_frame_equal(same, mixed)
    with raise_if_dask_computes():
        cdf.blend(tables, tmp_path / "out", weights={"web": 6, "wiki": 2})
    with pytest.raises(errors.ResumeError, match="another folder"):
        cdf.blend(tables, tmp_path / "out", weights={"web": 5, "wiki": 2})


def test_weights_of_kinds_and_a_number_of_rows_do_not_depend_on_the_blocks(cluster, tmp_path):
    rows = [
        {"id": number, "kind": [None, "high", "low", "low"][number % 4], "text": "word " * 9} for number in range(4_000)
    ]
    write_docs(tmp_path, rows)
    weights, found = {"high": 0.75, "low": 0.25, None: 0}, []
    for blocksize in ("20kB", "1MB"):
        docs = cdf.read_jsonl(tmp_path / "in", blocksize=blocksize)
        found.append(cdf.blend(docs, tmp_path / blocksize, source_column="kind", weights=weights, rows=2_000).compute())
    pd.testing.assert_frame_equal(*found)
    counts = found[0]["kind"].value_counts()
    assert abs(counts["high"] - 1_500) < 4 * 23  # of 1,000: each once, and a half of them twice
    assert abs(counts["low"] - 500) < 4 * 20  # of 2,000
    with pytest.raises(errors.ParameterError, match=r"has the value None, which is not in .*These have 'high'"):
        cdf.blend(docs, tmp_path / "other", source_column="kind", weights={"high": 2, "low": 0.5})
    with pytest.raises(errors.ParameterError, match="a share to 'best', which has no rows"):
        cdf.blend(docs, tmp_path / "none", source_column="kind", weights={**weights, "best": 1})


def sized(count, name, mean):
    sizes = np.random.default_rng(len(name)).geometric(1 / mean, count)
    return [{"id": row, "text": "word " * int(size), "token_count": int(size)} for row, size in enumerate(sizes)]


def taken_by_pandas(tables, weights, total=None, seed=0):
    """Return how often each row is taken, by plain arithmetic on whole tables."""
    rows = {name: df.compute() for name, df in tables.items()}
    epochs = {name: weights[name] / frame["token_count"].sum() for name, frame in rows.items()}
    scale = 1 / max(epochs.values()) if total is None else total / sum(weights.values())
    taken = {}
    for name, frame in rows.items():
        counts = times_taken(frame.index.to_numpy(), epochs[name] * scale, seed, name)
        taken[name] = {row: count for row, count in zip(frame["id"], counts.tolist(), strict=True) if count}
    return taken


@pytest.mark.parametrize("total", [None, 60_000])
def test_weights_are_shares_of_the_tokens_and_do_not_depend_on_the_blocks(cluster, tmp_path, total):
    write_docs(tmp_path, sized(3_000, "web", 5), "web")
    write_docs(tmp_path, sized(400, "code", 90), "code")
    weights, found = {"web": 1, "code": 3}, []
    how = {"weights": weights, "unit": "tokens", "token_column": "token_count", "tokens": total}
    for blocksize in ("20kB", "1MB"):
        tables = {name: cdf.read_jsonl(tmp_path / name, blocksize=blocksize) for name in weights}
        mixed = cdf.blend(tables, tmp_path / blocksize, seed=4, **how)
        found.append(mixed.compute())
    pd.testing.assert_frame_equal(*found)
    counts = {name: dict(Counter(rows["id"])) for name, rows in found[0].groupby("source")}
    assert counts == taken_by_pandas(tables, weights, total, seed=4)
    tokens = found[0].groupby("source")["token_count"].sum()
    assert tokens["code"] / tokens.sum() == pytest.approx(0.75, abs=0.02)
    assert total is None or tokens.sum() == pytest.approx(total, rel=0.05)
    whole = tokens.sum()
    assert cdf.read_receipt(tmp_path / "1MB").settings["shares"] == (
        f"of the tokens: 'web' {100 * tokens['web'] / whole:.1f}% ({tokens['web']:,}; requested 25.0%), "
        f"'code' {100 * tokens['code'] / whole:.1f}% ({tokens['code']:,}; requested 75.0%)"
    )


def test_tokens_of_kinds_of_rows_are_added_up_and_null_is_nothing(cluster, tmp_path):
    rows = [{**row, "kind": "ab"[row["id"] % 2]} for row in sized(3_000, "kinds", 20)]
    for row in rows[::5]:
        row["token_count"] = None
    docs, weights = write_docs(tmp_path, rows), {"a": 4, "b": 1}
    how = {"weights": weights, "unit": "tokens", "token_column": "token_count"}
    mixed = cdf.blend(docs, tmp_path / "out", source_column="kind", **how).compute()
    tokens = mixed.groupby("kind")["token_count"].sum()
    assert tokens["a"] / tokens.sum() == pytest.approx(0.8, abs=0.02)
    assert tokens["a"] == sum(row["token_count"] or 0 for row in rows if row["kind"] == "a")
    said = cdf.read_receipt(tmp_path / "out").settings["shares"]
    assert re.match(rf"of the tokens: 'a' [\d.]+% \({tokens['a']:,}; requested 80.0%\), 'b' ", said)


def test_shares_that_were_lost_in_a_crash_are_in_the_receipt_after_a_resume(cluster, tmp_path):
    docs = write_docs(tmp_path, [{"id": row, "kind": "ab"[row % 2]} for row in range(200)])
    blended = {"source_column": "kind", "weights": {"a": 1, "b": 1}}
    cdf.blend(docs, tmp_path / "out", **blended)
    said = cdf.read_receipt(tmp_path / "out").settings["shares"]
    assert said == "of the rows: 'a' 50.0% (100; requested 50.0%), 'b' 50.0% (100; requested 50.0%)"
    assert not [each for each in cdf.read_receipt(tmp_path / "out").advice if "instead of" in each]
    journal = tmp_path / "out" / "_curator" / "receipt.json"
    journal.write_text(json.dumps({**json.loads(journal.read_text()), "settings": {}}))
    cdf.blend(docs, tmp_path / "out", **blended, on_existing="resume")
    assert cdf.read_receipt(tmp_path / "out").settings["shares"] == said


def test_a_plan_says_the_shares_and_the_pass_that_counts(tmp_path):
    tables = {"a": write_docs(tmp_path, numbered(9), "a"), "b": write_docs(tmp_path, numbered(9), "b")}
    how = {"weights": {"a": 1, "b": 3}, "unit": "tokens", "token_column": "id", "memory": "2GB", "cpus": 2}
    plan = cdf.explain(tables, cdf.blend, **how)
    said = dict(plan.remarks)
    assert re.fullmatch(
        "of the tokens: 'a' 25.0%, 'b' 75.0%; a pass over each table counts the tokens in the column 'id' first, with an "
        r"estimated peak of [\d.]+ [MG]B",
        said["shares"],
    )
    assert [stage.title for stage in plan.stages] == ["count", "write"]
    assert "read 2 times" in str(plan)
    once = cdf.explain(tables, cdf.blend, epochs={"a": 1, "b": 3}, memory="2GB", cpus=2)
    assert plan.projected_bytes > once.projected_bytes  # the pass that counts holds blocks of another shape


@pytest.mark.parametrize(
    ("unit", "error", "said"),
    [
        (
            "tokens",
            errors.ColumnError,
            r"token_column='tokens' is not a column of the table 'a', which has: 'id', .*set tokenizer= to count them",
        ),
        ("text", errors.SchemaError, r"token_column='text' must be a column of whole numbers, but the table 'a' has "),
        ("low", errors.ParameterError, r"the column 'low' has the value -1, but token_column= needs"),
        ("high", errors.ParameterError, r"the column 'high' has the value 1,099,511,627,777, "),
        ("none", errors.ParameterError, r"a share to 'a', which has no tokens in its column 'none'\. Remove it"),
    ],
)
def test_a_column_that_cannot_be_added_up_is_refused(cluster, tmp_path, unit, error, said):
    docs = write_docs(tmp_path, [{"id": 1, "text": "a", "low": -1, "high": (1 << 40) + 1, "none": 0}])
    with pytest.raises(error, match=said):
        cdf.blend({"a": docs}, tmp_path / "out", weights={"a": 1}, unit="tokens", token_column=unit)


def test_a_table_with_drops_is_counted_after_them_and_its_weights_hold(cluster, tmp_path):
    web = write_docs(tmp_path, numbered(600) + numbered(600), "web").pipe(cdf.drop_exact_duplicates)
    parquet = tmp_path / "wiki"
    cdf.write_parquet(write_docs(tmp_path, numbered(900)), parquet)
    mixed = cdf.blend({"web": web, "wiki": cdf.read_parquet(parquet)}, tmp_path / "out", weights={"web": 1, "wiki": 1})
    rows = mixed.compute()["source"].value_counts()
    assert rows["web"] == 600
    assert abs(rows["wiki"] - 600) < 4 * 15


def test_rows_are_counted_once_where_a_blend_goes_on(cluster, tmp_path, monkeypatch):
    tables = {"a": write_docs(tmp_path, numbered(200), "a"), "b": write_docs(tmp_path, numbered(100), "b")}

    runs, run_pass = [], shuffle.run

    def interrupted(*given: object, **how: object) -> object:
        runs.append(given)
        if len(runs) > len(tables):  # after each table was counted
            raise KeyboardInterrupt
        return run_pass(*given, **how)

    with monkeypatch.context() as patched:
        patched.setattr(shuffle, "run", interrupted)
        with pytest.raises(KeyboardInterrupt):
            cdf.blend(tables, tmp_path / "out", weights={"a": 1, "b": 1})
    receipt = tmp_path / "out/_curator/counted/a/_curator/receipt.json"
    counted = receipt.stat().st_mtime_ns
    mixed = cdf.blend(tables, tmp_path / "out", weights={"a": 1, "b": 1}).compute()
    assert receipt.stat().st_mtime_ns == counted
    assert mixed["source"].value_counts()["b"] == 100
    assert cdf.read_receipt(tmp_path / "out/_curator/counted/a").rows_written == 200


def test_the_rows_do_not_depend_on_blocks_nor_ranges(cluster, tmp_path):
    rows = [{"id": n, "text": "word " * (50 + n % 500)} for n in range(3_000)]
    whole = write_docs(tmp_path, rows)
    expected = expected_ids(whole)
    for blocksize in ("50kB", "1MB"):
        cdf.shuffle_rows(cdf.read_jsonl(tmp_path / "in", blocksize=blocksize), tmp_path / blocksize)
        assert written_ids(tmp_path / blocksize) == expected


RUN_AND_DIE = """
import os, sys, curator_df as cdf
from curator_df.core.runner import run
class Dying(run._Run):
    def _on_done(self, manifest):
        super()._on_done(manifest)
        if {where}:
            os._exit(9)
run._Run = Dying
with cdf.start_cluster(memory="460MB", cpus=2):
    cdf.shuffle_rows(cdf.read_jsonl(sys.argv[1]), sys.argv[2])
"""


IN_FIRST_PASS = "'before' in self.targets[0].receipt.output"
IN_SECOND_PASS = "manifest.files[0].name[-7:] == 'parquet'"


@pytest.mark.parametrize("where", [IN_FIRST_PASS, pytest.param(IN_SECOND_PASS, marks=pytest.mark.proof)])
def test_a_killed_shuffle_goes_on_where_it_was(cluster, tmp_path, where):
    for number in range(3):
        write_docs(tmp_path, numbered(2_000), f"in/{number}")
    script = RUN_AND_DIE.format(where=where)
    command = [sys.executable, "-c", script, str(tmp_path / "in"), str(tmp_path / "out")]
    assert subprocess.run(command, check=False, timeout=200).returncode == 9
    docs = cdf.read_jsonl(tmp_path / "in")
    with pytest.raises(errors.InputError):
        cdf.read_receipt(tmp_path / "out")
    cdf.shuffle_rows(docs, tmp_path / "out")
    assert written_ids(tmp_path / "out") == expected_ids(docs)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"seed": 1.5, "epochs": {"a": 1}}, "seed=1.5"),
        ({"epochs": {"a": -1}}, "must be a number of 0 or more"),
        (
            {"epochs": {"a": 10**30}},
            r"the rows of 'a' would be taken 1,000,000[\d,]+ times, but a row can be taken at most 1,000,000 times",
        ),
        ({"weights": {"a": 10**400}}, r"must be a number of 0 or more, at most 10\*\*300"),
        ({"epochs": {"a": 0}}, "epochs= selects zero rows"),
        ({"weights": {"a": 0}}, "weights= selects zero rows"),
        ({"weights": {"a": -1}}, "weights=.'a': -1. must be a number of 0 or more"),
        (
            {"weights": {"a": 1, "b": 1}},
            r"weights= has the names 'a', 'b', but the tables are 'a'\. Use each table's name once",
        ),
        ({}, "set either epochs="),
        ({"epochs": {"a": 1}, "weights": {"a": 1}}, "set either epochs="),
        ({"epochs": {"a": 1}, "rows": 5}, "rows=5, the size of the output, needs weights=, the share"),
        ({"weights": {"a": 1}, "rows": 0.5}, "rows=0.5 must be"),
        ({"epochs": {"a": 1}, "unit": "tokens"}, "unit='tokens' needs weights="),
        ({"weights": {"a": 1}, "unit": None}, "unit=None is not one of 'rows', 'tokens'"),
        (
            {"weights": {"a": 1}, "unit": "tokens"},
            "unit='tokens' needs the number of tokens of each row. Set either tokenizer=",
        ),
        (
            {"weights": {"a": 1}, "unit": "tokens", "tokenizer": "t", "token_column": "id"},
            "unit='tokens' needs .* but not both",
        ),
        (
            {"weights": {"a": 1}, "unit": "tokens", "token_column": "id", "rows": 5},
            "rows=5 counts rows, but unit='tokens'",
        ),
        ({"weights": {"a": 1}, "tokens": 5}, "tokens=5 counts tokens, but unit='rows'"),
        ({"weights": {"a": 1}, "tokenizer": "t.json"}, "tokenizer='t.json' needs unit='tokens'"),
        ({"weights": {"a": 1}, "token_column": "id"}, "token_column='id' needs unit='tokens'"),
        ({"weights": {"a": 1}, "revision": "main"}, "revision='main' needs tokenizer="),
        ({"weights": {"a": 1}, "unit": "tokens", "tokens": 0}, "tokens=0 must be a whole number of 1 or more"),
        ({"weights": {"a": 1}, "unit": "tokens", "tokens": True}, "tokens=True must be a whole number"),
        ({"epochs": {"a": 1, "b": 1}}, "Use each table's name once"),
        ({"epochs": {"a/b": 1}}, "'a/b' is not a valid name of a table"),
    ],
)
def test_what_makes_no_sense_is_refused_before_anything_runs(tmp_path, arguments, said):
    docs = write_docs(tmp_path, numbered(3))
    with pytest.raises(errors.ParameterError, match=said):
        cdf.blend({"a/b" if "a/b" in arguments.get("epochs", {}) else "a": docs}, tmp_path / "out", **arguments)
    assert not (tmp_path / "out").exists()


def test_tables_with_other_columns_are_refused(cluster, tmp_path):
    one, other = write_docs(tmp_path, numbered(3)), write_docs(tmp_path, numbered(3, more=1), "other")
    with pytest.raises(errors.SchemaError, match="'b' has columns that 'a' does not have: 'more'"):
        cdf.blend({"a": one, "b": other}, tmp_path / "out", epochs={"a": 1, "b": 1})
    with pytest.raises(errors.ColumnError, match="overwrite 'text'"):
        cdf.blend({"a": one}, tmp_path / "out", epochs={"a": 1}, source_column="text")
    with pytest.raises(errors.SchemaError, match="row IDs that a reader puts into the index"):
        cdf.shuffle_rows(one.map_partitions(lambda block: block.set_index(block["text"])), tmp_path / "out")


def stored(tmp_path, rows, bits=1, pieces=3):
    """Run the first pass on a table, without a cluster; return the source of the second."""
    meta, taken = rows.iloc[:0], Taken(0)
    sink = ShuffleSink(Folder(str(tmp_path)), taken, bits)
    files = []
    for number in range(pieces):
        writer = sink.open(number, meta, 0)
        writer.append(rows.iloc[number::pieces])
        files += writer.commit()
    schema = stored_schema(meta, taken)
    return ShuffledSource("x", schema, bits, 1, (Stored(sink.folder, tuple(files)),))


def table_of(texts):
    index = pd.Index(np.arange(len(texts)) * 7, name="address")
    return pd.DataFrame({"id": pd.array(range(len(texts)), "Int64"), "text": pd.array(texts, "string[pyarrow]")}, index)


@pytest.mark.parametrize("block_bytes", [1, 3_000, 100_000, 10**9])
def test_a_bucket_of_any_size_is_read_in_order_in_blocks(tmp_path, block_bytes):
    rows = table_of([str(number) * (3_000 if number % 97 == 0 else 9) for number in range(200)])
    source = stored(tmp_path, rows)
    blocks = [block for piece in source.cut(1) for block in source.blocks(piece, block_bytes=block_bytes)]
    ids = [number for block in blocks for number in block["id"]]
    assert ids == np.argsort(order_keys(rows.index.to_numpy(), 0, "")).tolist()
    assert all(len(block) == 1 or block["text"].str.len().sum() <= block_bytes for block in blocks)
    addresses = np.concatenate([block.index.to_numpy() for block in blocks])
    assert (np.diff(addresses) > 0).all()


def test_a_row_that_does_not_fit_is_refused_or_left_out_before_it_is_read(tmp_path):
    source = stored(tmp_path, table_of(["a", "b" * 3 * BATCH_BYTES, "c"]), bits=0)
    piece = Range(0, 0, 0, 0, 1)
    with pytest.raises(errors.OversizeRowError, match="a row to be shuffled has 3,0"):
        list(source.blocks(piece, block_bytes=10**6, largest_row_bytes=10**6))
    long = []
    (block,) = source.blocks(piece, block_bytes=10**6, largest_row_bytes=10**6, on_long_row=long.append)
    assert sorted(block["text"]) == ["a", "c"]
    assert len(long) == 1


def test_a_damaged_or_cut_file_is_an_error_that_names_it(tmp_path):
    source = stored(tmp_path, table_of(["a", "b", "c"]), bits=0, pieces=1)
    ((folder, (file,)),) = [(part.folder, part.files) for part in source.stored]
    (batch,) = batches_of(folder, file, 0, 1)
    path = tmp_path / file.name
    whole = path.read_bytes()
    path.write_bytes(whole[: batch.size_bytes - 1] + b"x" + whole[batch.size_bytes :])
    with pytest.raises(errors.CorruptFileError, match="batch at byte 0 does not match"):
        batch.read(keyed_schema(source.schema))
    path.write_bytes(whole[:-4])
    with pytest.raises(errors.CorruptFileError, match="it ends at byte"):
        batches_of(folder, file, 0, 1)


def test_a_column_may_have_the_name_of_the_key(tmp_path):
    rows = [{"text": f"{number}", "__order__": number} for number in range(5)]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    with inline_cluster():
        mixed = cdf.shuffle_rows(cdf.read_jsonl(tmp_path / "a.jsonl"), tmp_path / "mixed", seed=1)
        assert mixed.columns.tolist() == ["text", "__order__"]
        assert sorted(mixed.compute()["__order__"]) == list(range(5))
        assert mixed[["__order__"]].compute()["__order__"].dtype == "Int64"


def test_a_category_comes_back_as_text(tmp_path):
    rows = table_of(["a", "b", "a"])
    rows["kind"] = rows["text"].astype("category")
    source = stored(tmp_path, rows, bits=0)
    (block,) = source.blocks(Range(0, 0, 0, 0, 1), block_bytes=10**6)
    assert block["kind"].tolist() == block["text"].tolist()
    assert block.dtypes.equals(source.meta.dtypes)


def test_tables_may_have_their_columns_in_another_order(cluster, tmp_path):
    web, wiki = write_docs(tmp_path, numbered(3), "web"), write_docs(tmp_path, numbered(3), "wiki")[["text", "id"]]
    mixed = cdf.blend({"web": web, "wiki": wiki}, tmp_path / "out", epochs={"web": 1, "wiki": 1}).compute()
    assert mixed.columns.tolist() == ["id", "text", "source"]
    assert sorted(mixed["id"]) == [0, 0, 1, 1, 2, 2]


def test_tables_with_other_columns_are_told_apart_by_the_difference(cluster, tmp_path):
    web = write_docs(tmp_path, numbered(3, url="u", score=1), "web")
    wiki = write_docs(tmp_path, numbered(3, title="t", score="high"), "wiki")
    with pytest.raises(errors.SchemaError) as refused:
        cdf.blend({"web": web, "wiki": wiki}, tmp_path / "out", epochs={"web": 1, "wiki": 1})
    assert str(refused.value) == (
        "blend: the table 'wiki' has columns that 'web' does not have: 'title'; it lacks columns that 'web' has: 'url'; "
        "it has other types than 'web' in 'score' (large_string, there int64). Give all tables the same columns and types "
        "first: df.rename(columns={...}), df.assign(...), df.astype({...}), df[[...]]"
    )


OTHERWISE = [
    ({"epochs": {"web": 1, "wiki": 3}}, {"epochs": {"web": 1, "wiki": 2}}, "epochs of 'wiki' changed from 3.0 to 2.0"),
    ({"epochs": {"web": 1, "wiki": 3}, "seed": 4}, {"epochs": {"web": 1, "wiki": 3}}, "seed changed from 4 to 0"),
    (
        {"weights": {"web": 1, "wiki": 3}},
        {"weights": {"web": 1, "wiki": 2}},
        r"weights changed from \{'web': 1, 'wiki': 3\} to \{'web': 1, 'wiki': 2\}",
    ),
    ({"weights": {"web": 1, "wiki": 3}}, {"weights": {"web": 1, "wiki": 3}, "rows": 9}, "rows changed from None to 9"),
    (
        {"weights": {"web": 1, "wiki": 3}, "unit": "tokens", "token_column": "id", "tokens": 5},
        {"weights": {"web": 1, "wiki": 3}, "unit": "tokens", "token_column": "id", "tokens": 6},
        "tokens changed from 5 to 6",
    ),
    (
        {"weights": {"web": 1, "wiki": 3}},
        {"weights": {"web": 1, "wiki": 3}, "unit": "tokens", "token_column": "id"},
        "unit changed from 'rows' to 'tokens', token_column changed from None to 'id'",
    ),
    (
        {"epochs": {"web": 1, "wiki": 3}, "source_column": "a"},
        {"epochs": {"web": 1, "wiki": 3}, "source_column": "b"},
        "source_column changed from 'a' to 'b'",
    ),
]


@pytest.mark.parametrize(("was", "now", "said"), OTHERWISE, ids=lambda value: value if isinstance(value, str) else "")
def test_a_blend_that_is_not_the_one_to_resume_names_the_parameter(cluster, tmp_path, was, now, said):
    tables = {}
    for name, rows in (("web", 5), ("wiki", 4)):
        (tmp_path / f"{name}.jsonl").write_text("".join(f'{{"id": {row}, "text": "a"}}\n' for row in range(rows)))
        tables[name] = cdf.read_jsonl(tmp_path / f"{name}.jsonl")
    cdf.blend(tables, tmp_path / "out", **was)
    with pytest.raises(errors.ResumeError, match=rf"cannot resume in {tmp_path}/out: {said}\. Write to another folder"):
        cdf.blend(tables, tmp_path / "out", on_existing="resume", **now)
    again = cdf.blend(tables, tmp_path / "out", on_existing="resume", **was)
    assert len(again.compute()) > 0


def test_a_run_on_a_blend_without_a_path_names_the_parameter(cluster, tmp_path):
    (tmp_path / "in.jsonl").write_text('{"id": 1, "text": "a"}\n{"id": 2, "text": "b"}\n')
    tables = {"web": cdf.read_jsonl(tmp_path / "in.jsonl"), "wiki": cdf.read_jsonl(tmp_path / "in.jsonl")}

    def write(tables, **how):
        return cdf.write_parquet(cdf.blend(tables, **how), tmp_path / "out", on_existing="resume")

    before = write(tables, weights={"web": 1, "wiki": 3})
    assert write(tables, weights={"wiki": 3, "web": 1}) == before
    others = [
        ({"weights": {"web": 1, "wiki": 2}}, r"in blend, weights changed from \{.+?\} to \{'web': 1, 'wiki': 2\}\."),
        ({"weights": {"web": 1, "wiki": 3}, "seed": 5}, r"in blend, seed changed from 0 to 5\."),
        ({"epochs": {"web": 1, "wiki": 3}}, r"in blend, epochs of 'wiki' changed from not set to 3\.0\."),
    ]
    for how, said in others:
        with pytest.raises(errors.ResumeError, match=rf"{said} Write to .+ can only be resumed in the same cluster"):
            write(tables, **how)
    with pytest.raises(errors.ResumeError, match=r"tables changed from \['web', 'wiki'\] to \['wiki', 'web'\]"):
        write(dict(reversed(tables.items())), weights={"web": 1, "wiki": 3})


def test_a_blend_that_ended_in_its_first_pass_names_the_parameter_too(cluster, tmp_path):
    (tmp_path / "in.jsonl").write_text('{"id": 1, "text": "a"}\n')
    sink = ShuffleSink(Folder(str(tmp_path / "out/_curator/before/rows")), Taken(1, "", 1.0, None), 0)
    docs = cdf.read_jsonl(tmp_path / "in.jsonl")
    run(docs, sink)
    with pytest.raises(errors.ResumeError, match=r"before/rows: the output option seed changed from 1 to 2\."):
        cdf.shuffle_rows(docs, tmp_path / "out", seed=2, on_existing="resume")


@pytest.mark.parametrize("table", ["", "docs"])
def test_rows_quarantined_before_a_shuffle_are_in_its_receipt(cluster, tmp_path, table):
    (tmp_path / "in.jsonl").write_text('{"id": 1, "text": "a"}\nno row\n{"id": 2, "text": "b"}\nno row\n')
    docs = cdf.read_jsonl(tmp_path / "in.jsonl", on_bad_rows="quarantine")
    home = tmp_path / "out" / "_curator" / "before" / (table or "rows")
    of = f" of the table {table!r}" if table else ""
    said = re.escape(f"quarantined 2 rows{of} in its first pass: {home}/_quarantine")
    tables, epochs = ({table: docs}, {"epochs": {table: 2}}) if table else (docs, {})
    (cdf.blend if table else cdf.shuffle_rows)(tables, tmp_path / "out", **epochs)
    receipt = cdf.read_receipt(tmp_path / "out")
    assert re.search(said, receipt.advice[0])
    assert cdf.read_receipt(home).rows_quarantined == 2
    assert len(list((home / "_quarantine").iterdir())) == 1
    assert receipt.rows_written == (4 if table else 2)
    # As after a crash between the last pass and the remark.
    journal = tmp_path / "out" / "_curator" / "receipt.json"
    whole = json.loads(journal.read_text())
    journal.write_text(json.dumps({**whole, "advice": whole["advice"][1:]}))
    for _ in range(2):
        (cdf.blend if table else cdf.shuffle_rows)(tables, tmp_path / "out", on_existing="resume", **epochs)
        assert cdf.read_receipt(tmp_path / "out").advice == receipt.advice
    before = cdf.shuffle_rows(docs, tmp_path / "out") if not table else None  # is complete, and runs nothing
    assert before is None or len(before) == 2


def test_a_blend_without_a_folder_is_kept_until_the_cluster_closes(tmp_path):
    with inline_cluster() as session:
        tables = {"a": write_docs(tmp_path, numbered(30), "a"), "b": write_docs(tmp_path, numbered(9), "b")}
        mixed = cdf.blend(tables, epochs={"a": 1, "b": 2})
        assert len(mixed.compute()) == 48
        receipt = cdf.read_receipt(mixed)
        assert receipt.output.startswith(f"{session.workdir}/blend-")
        again = cdf.blend(tables, epochs={"a": 1, "b": 2})
        assert cdf.read_receipt(again) == receipt
        other = cdf.blend(tables, epochs={"a": 1, "b": 3})
        assert len(other.compute()) == 57
        assert len(mixed.compute()) == 48
        session.workdir = None
        with pytest.raises(errors.ParameterError, match=r"has no folder for temporary files\. Pass path="):
            cdf.blend(tables, epochs={"a": 1, "b": 2})
