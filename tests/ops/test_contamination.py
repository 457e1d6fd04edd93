# SPDX-License-Identifier: Apache-2.0
"""`add_contamination`, `drop_contaminated` and `remove_contamination`, lazily and in runs."""

from __future__ import annotations

import gzip
import json

import dask.dataframe as dd
import pandas as pd
import pytest

import curator_df as cdf
from curator_df import errors
from curator_df.core.planning.lowering import lower
from curator_df.core.planning.plan import plan_stream
from curator_df.io.benchmarks import find_benchmarks, item_texts
from curator_df.io.output.files import FileSink
from curator_df.io.output.formats import Folder, ParquetFormat
from curator_df.memory.budget import choose_layout
from curator_df.memory.sizes import read_size
from curator_df.ops.cleaning.contamination import MOST_TABLES, table_of
from tests.contracts.operator_cases import fingerprints_of, kernels_of
from tests.core.runner.fake_client import inline_cluster

QUESTION = "Which of the rivers of this country is the longest one of them all?"
ITEMS = [
    {"id": 7, "q": "Too short?", "choices": ["no", "yes"]},
    {"id": 8, "q": "Short.", "choices": [QUESTION, {"more": "a b"}]},
]
TEXTS = [
    f"A quiz — “{QUESTION.upper()}” It is the Rhine.",
    "The rivers of this country are long.",
    None,
    "First. " + QUESTION.replace(" ", "\n") + " Last.",
]


def docs_of(*texts):
    return dd.from_pandas(pd.DataFrame({"text": pd.array(texts, "string[pyarrow]")}), npartitions=2)


@pytest.fixture
def benchmark(tmp_path):
    path = tmp_path / "rivers.jsonl"
    path.write_text("".join(json.dumps(item) + "\n" for item in ITEMS))
    return path


def test_passages_say_what_they_are_and_where(benchmark):
    found = docs_of(*TEXTS).pipe(cdf.add_contamination, benchmark).compute()
    first, second = found["contamination"][[0, 3]]
    assert found["contamination"].isna().tolist() == [False, True, True, False]
    (match,) = first
    assert match["passage"] == QUESTION.upper()[:-1] == TEXTS[0][match["start"] : match["stop"]]
    assert (match["benchmark"], match["item"], match["ngrams"]) == ("rivers", 1, 2)
    assert TEXTS[3][second[0]["start"] : second[0]["stop"]].split() == QUESTION[:-1].split()


def test_rows_are_dropped_with_the_benchmark_and_the_item(benchmark):
    docs = docs_of(*TEXTS)
    assert docs.pipe(cdf.drop_contaminated, benchmark).compute()["text"].tolist()[0] == TEXTS[1]
    (kernel,) = kernels_of(docs.pipe(cdf.drop_contaminated, {"our quiz": benchmark}))
    outcome = kernel.run(pd.DataFrame({"text": pd.array(TEXTS, "string[pyarrow]")}))
    assert outcome.dropped == {"contaminated": 2} and outcome.counters == {"our quiz": 2}
    removed, why = outcome.rejects()
    assert removed.index.tolist() == [0, 3]
    assert why == {
        "reason": ["contaminated"] * 2,
        "rule": ["our quiz:1"] * 2,
        "value": [10.0, 7.0],
        "threshold": [13.0] * 2,
    }


def test_passages_are_cut_up_to_the_ends_of_sentences(benchmark):
    cut = docs_of(*TEXTS).pipe(cdf.remove_contamination, benchmark, margin=0, min_piece_chars=0).compute()
    assert cut["text"].tolist()[:2] == ["” It is the Rhine.", TEXTS[1]]
    assert cut["text"].tolist()[3] == "First.\n\nLast."
    short = docs_of(*TEXTS).pipe(cdf.remove_contamination, benchmark).compute()["text"]
    assert short[0] == short[3] == "" and short[1] == TEXTS[1]


@pytest.mark.parametrize("suffix", ["jsonl", "jsonl.gz", "parquet", "txt", "txt.gz"])
def test_benchmarks_are_read_from_any_of_these(suffix, tmp_path):
    path = tmp_path / f"quiz.{suffix}"
    if suffix == "parquet":
        pd.DataFrame({"q": [item["q"] for item in ITEMS], "choices": [["no"], [QUESTION]]}).to_parquet(path)
    else:
        lines = ["x", QUESTION] if suffix.startswith("txt") else [json.dumps(item) for item in ITEMS]
        data = "\n".join(lines).encode()
        path.write_bytes(gzip.compress(data) if suffix.endswith("gz") else data)
    found = docs_of(*TEXTS).pipe(cdf.add_contamination, tmp_path).compute()["contamination"]
    assert [(match["benchmark"], match["item"]) for match in found[0]] == [("quiz", 1)]


def test_named_columns_alone_count(benchmark):
    assert [text for _, text in item_texts(str(benchmark), ("q",))] == ["Too short?", "Short."]
    with pytest.raises(errors.InputError, match=r"rivers\.jsonl' has no text of 8 words or more"):
        docs_of("a").pipe(cdf.drop_contaminated, benchmark, benchmark_columns=["q"])
    with pytest.raises(
        errors.ColumnError, match=r"row 0 of the benchmark .* has no column 'answer'. It has: 'id', 'q', 'choices'"
    ):
        docs_of("a").pipe(cdf.drop_contaminated, benchmark, benchmark_columns=["answer"])


def test_what_is_wrong_is_said_when_the_operator_is_called(benchmark, tmp_path):
    docs = docs_of("a")
    with pytest.raises(errors.InputError, match=r"none\.jsonl"):
        docs.pipe(cdf.drop_contaminated, tmp_path / "none.jsonl")
    with pytest.raises(errors.ParameterError, match="ngram_size=3 is not a number of words from 4 to 100"):
        docs.pipe(cdf.drop_contaminated, benchmark, ngram_size=3)
    with pytest.raises(errors.ParameterError, match="min_ngram_size=14 is not a number of words from 4 to 13"):
        docs.pipe(cdf.add_contamination, benchmark, min_ngram_size=14)
    with pytest.raises(errors.ParameterError, match="margin=-1 is not a number of characters"):
        docs.pipe(cdf.remove_contamination, benchmark, margin=-1)
    with pytest.raises(errors.ColumnError, match="'text'"):
        docs.pipe(cdf.add_contamination, benchmark, into="text")
    (tmp_path / "bad.jsonl").write_text('{"a": 1}\n{')
    with pytest.raises(errors.BadRowError, match=r"line 2 of the benchmark .*bad\.jsonl' is not JSON"):
        docs.pipe(cdf.drop_contaminated, tmp_path / "bad.jsonl")


def test_content_identifies_a_benchmark_and_its_place_does_not(benchmark, tmp_path):
    docs = docs_of("a")
    (tmp_path / "other").mkdir()
    moved = tmp_path / "other" / "rivers.jsonl"
    moved.write_bytes(benchmark.read_bytes())
    before = fingerprints_of(docs.pipe(cdf.drop_contaminated, benchmark))
    assert fingerprints_of(docs.pipe(cdf.drop_contaminated, moved)) == before
    moved.write_text(moved.read_text().replace("longest", "shortest"))
    assert fingerprints_of(docs.pipe(cdf.drop_contaminated, moved)) != before


def test_a_benchmark_that_changes_before_the_work_is_an_error(benchmark):
    docs = docs_of(*TEXTS).pipe(cdf.drop_contaminated, benchmark)
    benchmark.write_text(
        benchmark.read_text() + json.dumps({"q": "More words than there were when it was read first."})
    )
    with pytest.raises(errors.InputChangedError, match=r"has changed since its step was made. Call drop_contaminated,"):
        docs.compute(scheduler="synchronous")


def test_a_process_makes_a_table_once(benchmark):
    found = find_benchmarks(benchmark, ngram_size=13, min_ngram_size=8)
    table = table_of(found)
    assert table_of(find_benchmarks(benchmark, ngram_size=13, min_ngram_size=8)) is table
    assert table.keys.nbytes + table.numbers.nbytes + table.items.nbytes + table.benchmarks.nbytes == found.table_bytes


def test_a_process_keeps_a_few_tables(benchmark):
    sets = [find_benchmarks(benchmark, ngram_size=size, min_ngram_size=8) for size in range(9, 9 + MOST_TABLES)]
    tables = [table_of(found) for found in sets]
    assert [table_of(found) for found in sets] == tables
    table_of(find_benchmarks(benchmark, ngram_size=14, min_ngram_size=8))
    assert table_of(sets[-1]) is tables[-1] and table_of(sets[0]) is not tables[0]


def write_rows(path, texts):
    path.mkdir()
    (path / "a.jsonl").write_text("".join(json.dumps({"id": n, "text": text}) + "\n" for n, text in enumerate(texts)))


def test_the_plan_counts_the_table_or_refuses_it(benchmark, tmp_path):
    write_rows(tmp_path / "in", TEXTS)
    docs = cdf.read_jsonl(tmp_path / "in")
    plain, layout = docs.pipe(cdf.keep_where, "id > 0"), choose_layout(2_000_000_000, cpus=2)

    def planned(df, layout):
        return plan_stream(lower(df), FileSink(Folder("."), ParquetFormat("zstd"), 1), None, layout)

    checked = plain.pipe(cdf.drop_contaminated, benchmark)
    held = kernels_of(checked)[-1].price.held_bytes
    assert held > 0
    assert planned(checked, layout).held_bytes == held
    assert planned(checked, layout).projected_bytes == planned(plain, layout).projected_bytes + layout.workers * held
    words = " ".join(f"word{number}" for number in range(1_000_000))
    (tmp_path / "large.txt").write_text(words)
    large = plain.pipe(cdf.drop_contaminated, tmp_path / "large.txt")
    with pytest.raises(errors.BudgetError, match=r"after 25 MB for steps") as refused:
        planned(large, choose_layout(410_000_000, cpus=1))
    enough = read_size("memory", str(refused.value).split("memory=")[1].strip("'"))
    assert planned(large, choose_layout(enough, cpus=1)).projected_bytes <= enough
    assert "fixed" in str(planned(large, layout))


def test_a_page_that_needs_more_than_a_task_has_room_for_is_planned(tmp_path):
    write_rows(tmp_path / "in", TEXTS)
    docs = cdf.read_jsonl(tmp_path / "in")
    sink, layout = FileSink(Folder("."), ParquetFormat("zstd"), 1), choose_layout(2_000_000_000, cpus=2)
    pages = [docs.pipe(cdf.remove_html, max_page_size=size) for size in ("100kB", "1MB")]
    plans = [plan_stream(lower(page), sink, None, layout) for page in pages]
    assert [plan.held_bytes for plan in plans] == [0, layout.threads * (110_000_000 - 20_000_000)]


def test_a_run_with_another_benchmark_does_not_resume(benchmark, tmp_path):
    write_rows(tmp_path / "in", TEXTS * 50)

    def fails(block):
        raise ZeroDivisionError

    with inline_cluster("2GB", 1):
        docs = cdf.read_jsonl(tmp_path / "in").pipe(cdf.drop_contaminated, benchmark)
        with pytest.raises(errors.OperatorError):
            cdf.write_parquet(docs.pipe(cdf.keep_where, fails), tmp_path / "out")
        benchmark.write_text(benchmark.read_text().replace("longest", "shortest"))
        changed = cdf.read_jsonl(tmp_path / "in").pipe(cdf.drop_contaminated, benchmark)
        with pytest.raises(errors.ResumeError, match="drop_contaminated"):
            cdf.write_parquet(changed.pipe(cdf.keep_where, fails), tmp_path / "out", on_existing="resume")
        checked = cdf.read_jsonl(tmp_path / "in").pipe(cdf.add_contamination, benchmark)
        receipt = cdf.write_jsonl(checked.pipe(cdf.redact_pii), tmp_path / "all")
        assert receipt.rows_written == 200
    (path,) = (tmp_path / "all").glob("*.jsonl")
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    assert [row["contamination"] and row["contamination"][0]["item"] for row in rows[:2]] == [None, None]
