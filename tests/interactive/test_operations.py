# SPDX-License-Identifier: Apache-2.0
"""Dask's own operations on a cluster of 1 GB with a table of 100 MB: right values or errors that say what to do."""

from __future__ import annotations

import gzip
import json
import re
import threading
import time
import traceback
from pathlib import Path

import dask
import dask.dataframe as dd
import pandas as pd
import pytest

import curator_df as cdf
from curator_df.core.runner import progress
from curator_df.core.runner.session import Patience, current_session
from curator_df.errors import BudgetError, ExpressionError
from curator_df.interactive import results
from curator_df.memory.system import status_bytes

ROWS = 8_000
TEXT = "Some words of a document, which say nothing much. "


@pytest.fixture(scope="module")
def path(tmp_path_factory) -> str:
    name = tmp_path_factory.mktemp("rows") / "a.jsonl"
    with name.open("w") as file:
        for number in range(ROWS):
            text = f"{number // 2} {TEXT * 250}"
            file.write(json.dumps({"id": f"r{number}", "n": number, "text": text}) + "\n")
    return str(name)


@pytest.fixture(scope="module", autouse=True)
def cluster(beside_tests):
    with cdf.start_cluster(memory=beside_tests(1_000_000_000), cpus=2) as running:
        yield running


@pytest.fixture
def docs(path):
    return cdf.read_jsonl(path)


def worker_bytes(cluster) -> int:
    """Return what the fullest worker has asked for, once the results of the last operation are gone."""
    return max(cluster.client.run(status_bytes, "VmData").values())


def test_partitions_are_small(docs):
    assert docs.npartitions == 13


def test_a_table_comes_back_whole_and_in_order(docs):
    table = docs.compute()
    assert table["n"].tolist() == list(range(ROWS))
    assert table.index.is_monotonic_increasing
    assert table.dtypes.astype(str).to_dict() == {"id": "string", "n": "Int64", "text": "string"}


def test_several_tables_and_numbers_come_back_together(docs):
    table, number, column = dask.compute(docs[["id"]], docs["n"].sum(), docs["n"])
    assert (len(table), number, column.tolist()) == (ROWS, ROWS * (ROWS - 1) // 2, list(range(ROWS)))


@pytest.mark.parametrize(
    ("operation", "said"),
    [
        (len, r"^computing with Dask: \d+ tasks? left, \d+ in progress, after "),
        (
            lambda docs: docs.pipe(cdf.drop_exact_duplicates, subset="id").head(),
            r"^drop_exact_duplicates: .* \d+ of \d+, after ",
        ),
    ],
)
def test_without_a_terminal_dask_operations_say_how_far_they_are(docs, monkeypatch, capfd, operation, said):
    monkeypatch.setattr(progress, "LINE_SECONDS", 0.02)
    operation(docs)
    assert re.search(said, capfd.readouterr().err, re.MULTILINE)


def test_limits_of_workers_go_down_with_a_result_and_up_again(docs, cluster):
    def limits() -> set[int]:
        return set(cluster.client.run(_data_limit).values())

    docs.head()
    full = limits()
    table = docs.compute()
    docs.head()
    assert max(limits()) < max(full) - 20_000_000
    del table
    docs.head()
    assert max(limits()) > max(full) - 19_000_000  # this process keeps some pages


def _data_limit() -> int:
    import resource

    return resource.getrlimit(resource.RLIMIT_DATA)[0]


def test_a_result_that_does_not_fit_is_refused_with_the_ways_out(docs, monkeypatch):
    monkeypatch.setattr(results, "room_for_results", lambda session: 40_000_000)
    with pytest.raises(BudgetError) as failed:
        docs.compute()
    first, second, third = str(failed.value).split("\n")
    assert first.startswith("The result needs about 1")
    assert "40 MB are free" in first
    assert f"memory={current_session().layout.memory_argument}" in first
    assert "write_parquet" in second
    assert third.startswith("To get all of it, start the cluster with memory='")
    assert failed.value.__context__ is None or failed.value.__suppress_context__
    assert docs["n"].max().compute() == ROWS - 1


def hold_too_much(block: pd.DataFrame) -> pd.DataFrame:
    """Ask for more than a worker has, and leave what was taken in a cycle that only the garbage collector finds."""
    taken = [bytearray(200_000_000)]
    taken.append(taken)
    bytearray(2_000_000_000)
    return block


def test_a_task_that_cannot_fit_is_named_and_leaves_the_worker_free(docs, cluster):
    before = worker_bytes(cluster)
    with pytest.raises(BudgetError, match="'hold_too_much' ran out of memory twice"):
        docs.map_partitions(hold_too_much, meta=docs._meta).compute()
    assert docs["text"].str.len().sum().compute() > 0
    assert worker_bytes(cluster) < before + 100_000_000


def test_an_error_of_a_function_has_the_line_of_the_user_the_rows_and_few_frames(docs, path, capfd):
    with pytest.raises(ZeroDivisionError) as failed:
        docs.map_partitions(lambda block: block.assign(n=1 / (0 * len(block))), meta=docs._meta).compute()
    frames = traceback.extract_tb(failed.value.__traceback__)
    assert (frames[-1].filename, frames[-1].name) == (__file__, "<lambda>")
    assert frames[-1].line.startswith("docs.map_partitions(lambda block:")
    assert len(frames) <= 6
    assert failed.value.__notes__[0].startswith(f"The rows are those of {path} from offset ")
    with pytest.raises(KeyError) as failed:
        docs.partitions[2].map_partitions(lambda block: block["nope"], meta=docs._meta).compute()
    third = docs.expr.operand("func").ranges[2]
    assert failed.value.__notes__ == [
        f"The rows are those of {path} from offset {third.start:,} to offset {third.stop:,}."
    ]
    assert capfd.readouterr().err == ""


def exits(block):
    """Stand for a function that ends its program."""
    raise SystemExit(3)


def test_an_error_in_a_part_of_a_compressed_file_names_the_part(path, tmp_path):
    packed = tmp_path / "in.jsonl.gz"
    packed.write_bytes(gzip.compress(Path(path).read_bytes()))
    docs = cdf.read_jsonl(str(packed), blocksize="2MB")
    assert docs.npartitions > 2
    with pytest.raises(RuntimeError, match=r"called sys\.exit\(3\)") as failed:
        docs.partitions[1].map_partitions(exits, meta=docs._meta).compute()
    assert failed.value.__notes__ == [f"The rows are those of part 2 of {docs.npartitions} of {packed}."]


def test_the_rows_of_an_error_after_a_shuffle_are_not_guessed(docs):
    shuffled = docs[["n"]].sort_values("n", ascending=False)
    with pytest.raises(ZeroDivisionError) as failed:
        shuffled.map_partitions(lambda block: block / (0 * len(block)) + 1 // 0, meta=shuffled._meta).compute()
    assert not getattr(failed.value, "__notes__", [])


@pytest.mark.parametrize(
    ("operation", "expected"),
    [
        (lambda d: int(d["text"].nunique().compute()), ROWS // 2),
        (lambda d: len(d.drop_duplicates(subset=["text"])), ROWS // 2),
        pytest.param(
            lambda d: int(d["text"].str.lower().str.split().str.len().sum().compute()),
            ROWS * (9 * 250 + 1),
            marks=pytest.mark.proof,
        ),
        (lambda d: d["n"].describe().compute()["max"], ROWS - 1),
        (lambda d: d["n"].quantile(0.5).compute(), pytest.approx(ROWS / 2, rel=0.15)),
        (lambda d: d.nlargest(2, "n").compute()["id"].tolist(), [f"r{ROWS - 1}", f"r{ROWS - 2}"]),
        (lambda d: d.nsmallest(2, "n").compute()["id"].tolist(), ["r0", "r1"]),
        (lambda d: d["n"].nlargest(2).compute().tolist(), [ROWS - 1, ROWS - 2]),
        (lambda d: d["n"].where(d["n"] > 5).nsmallest(2).compute().tolist(), [6, 7]),
        (lambda d: d["text"].apply(len, meta=("text", "int64")).max().compute(), 5 + len(TEXT) * 250),
        (lambda d: d.groupby(d["n"] % 3)["n"].max().compute().tolist(), [7998, 7999, 7997]),
        (lambda d: len(d.merge(d[["id", "n"]], on="id")[["id"]].compute()), ROWS),
        (lambda d: d.sort_values("n", ascending=False).head(1)["id"].tolist(), [f"r{ROWS - 1}"]),
        (lambda d: d[d["id"].isin(["r7", "r9"])]["n"].compute().tolist(), [7, 9]),
        (lambda d: d[d["id"].isin(["r7", "r9"])].persist()["n"].compute().tolist(), [7, 9]),
    ],
    ids=[
        *("nunique", "drop_duplicates", "words", "describe", "quantile", "nlargest", "nsmallest", "column", "nulls"),
        *("apply", "groupby", "merge", "sort", "isin", "isin kept"),
    ],
)
def test_operations_of_dask_give_the_values_of_pandas(docs, operation, expected):
    assert operation(docs) == expected


@pytest.mark.parametrize("made", ["o", 1])
def test_a_shuffle_that_fails_for_another_cause_is_not_told_as_a_lack_of_memory(docs, made):
    mixed = docs["n"].map(lambda number: number if number % 2 else [made], meta=("mixed", object))
    with pytest.raises(ExpressionError, match=r"A shuffle of Dask .* failed: ArrowInvalid: .*column mixed") as failed:
        docs[["id"]].assign(mixed=mixed).shuffle("id").compute()
    assert not isinstance(failed.value, MemoryError)
    assert len(str(failed.value).split("\n")) <= 3


def test_a_result_that_cannot_be_pickled_is_not_told_as_a_lack_of_memory(docs, capfd):
    locks = docs["n"].map(lambda _: threading.Lock(), meta=("n", object))
    with pytest.raises(
        ExpressionError, match=r"an object of type \w+ cannot be pickled \(TypeError: .*lock' object\)"
    ) as failed:
        locks.compute()
    assert not isinstance(failed.value, MemoryError)
    assert "Failed to deserialize" not in capfd.readouterr().err


@pytest.fixture
def nested(tmp_path):
    """Return a table in many partitions with a column of lists and one of structs, and the rows."""
    rows = [
        {
            "id": f"r{7 * number % 600:03}",
            "kind": f"k{number % 3}",
            "n": number,
            "tags": [f"t{number}"],
            "at": {"line": number},
        }
        for number in range(600)
    ]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    table = cdf.read_jsonl(tmp_path / "a.jsonl", blocksize="2KB")
    assert table.npartitions > 15
    return table, pd.DataFrame(rows)


def test_groups_are_whole_where_dask_cannot_shuffle_them(nested):
    table, _ = nested
    groups = table.groupby("kind")
    firsts = groups.first().compute()
    assert {kind: list(tags) for kind, tags in firsts["tags"].items()} == {"k0": ["t0"], "k1": ["t1"], "k2": ["t2"]}
    assert sorted(groups["n"].head(2).compute()) == list(range(6))
    assert groups.size().head().to_dict() == groups.size().tail().to_dict() == {"k0": 200, "k1": 200, "k2": 200}


@pytest.mark.parametrize(
    "shuffle",
    [
        lambda table: table.sort_values("id"),
        lambda table: table.set_index("id").reset_index(),
        lambda table: table.merge(table[["id", "n"]], on=["id", "n"]),
        lambda table: table.shuffle("kind"),
        lambda table: table.drop_duplicates(subset=["id"], split_out=3),
    ],
)
def test_lists_and_structs_are_shuffled(nested, shuffle):
    table, rows = nested
    found = shuffle(table).compute()
    assert len(found) == len(rows)
    by_id = found.sort_values("id", ignore_index=True)
    assert [(list(tags), at) for tags, at in zip(by_id["tags"], by_id["at"], strict=True)] == [
        (row["tags"], row["at"]) for _, row in rows.sort_values("id").iterrows()
    ]


def test_a_shuffled_table_is_written_by_dask(docs, tmp_path):
    docs.sort_values("n", ascending=False).to_parquet(tmp_path / "out", write_index=False)
    assert dd.read_parquet(tmp_path / "out")["n"].head(2).tolist() == [ROWS - 1, ROWS - 2]


def test_a_pending_drop_is_looked_at_and_its_passes_run_once(docs):
    events: list[str] = []
    watch = lambda event: events.append(type(event).__name__)  # noqa: E731
    kept = docs.pipe(cdf.drop_exact_duplicates)
    session = current_session()
    session.watchers.append(watch)
    try:
        assert kept.head(2)["id"].tolist() == ["r0", "r2"]
        assert events.count("StageStarted") > 0
        events.clear()
        assert len(kept) == ROWS // 2
        assert kept[kept["n"] % 4 == 0]["n"].sum().compute() == sum(range(0, ROWS, 4))
        assert kept.partitions[1].compute()["n"].iloc[0] % 2 == 0
        assert not events
        longer = kept.pipe(cdf.keep_where, "n < 100").pipe(cdf.drop_exact_duplicates, subset="id")
        assert len(longer) == 50
        assert events.count("RunStarted") == 1
    finally:
        session.watchers.remove(watch)


def test_a_look_says_that_something_is_deferred(docs):
    assert "drop_exact_duplicates (deferred" in repr(docs.pipe(cdf.drop_exact_duplicates))


def test_files_of_looks_go_with_the_cluster(path, cluster):
    kept = cdf.read_jsonl(path).pipe(cdf.drop_exact_duplicates, keep="last")
    assert len(kept) == ROWS // 2
    assert list(Path(str(current_session().workdir)).glob("looks/*"))


def test_a_compressed_file_is_read_in_parts(path, cluster, tmp_path):
    parts = Path(str(current_session().workdir)) / "parts"
    before = set(parts.glob("*.blocks"))
    with open(path, "rb") as plain, gzip.open(tmp_path / "a.jsonl.gz", "wb", 1) as packed:
        packed.writelines(plain)
    docs = cdf.read_jsonl(str(tmp_path / "a.jsonl.gz"))
    assert docs.npartitions == 13
    assert docs.head(2)["n"].tolist() == [0, 1]
    assert len(docs) == ROWS
    assert docs.groupby(docs["n"] % 3)["n"].max().compute().tolist() == [7998, 7999, 7997]
    assert len(set(parts.glob("*.blocks")) - before) == 1
    assert len(docs.pipe(cdf.drop_exact_duplicates)) == ROWS // 2


def test_a_computation_starts_workers_again_that_are_gone_for_good(docs, cluster, monkeypatch):
    monkeypatch.setattr(current_session(), "patience", Patience(watch_seconds=0.2, revive_seconds=(0.4,)))
    cluster._local.scale(0)
    while cluster.client.nthreads():
        time.sleep(0.05)
    assert docs["n"].max().compute() == ROWS - 1


def test_a_client_computes_for_the_session_that_is_left(path):
    session = current_session()
    client = session.client
    ours = vars(client)["get"]
    undo = results.return_in_pieces(session)
    assert vars(client)["get"] is not ours
    undo()
    assert "get" in vars(client)
