# SPDX-License-Identifier: Apache-2.0
"""The last pass does not parse rows that the first steps drop; the result is the same as when it reads them."""

import dataclasses
import json
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import curator_df as cdf
from curator_df.core.planning.lowering import lower
from curator_df.core.ranges.source import has_stamps
from curator_df.core.runner import run
from curator_df.core.tasks import task
from curator_df.exchange.dropped_rows import RangeDrops
from tests.core.runner.fake_client import inline_cluster

LONG = " and so on, one word after the other, until the text is long enough to be compared"


@pytest.fixture(scope="module", autouse=True)
def cluster():
    with inline_cluster(memory="2GB", cpus=2) as running:
        yield running


@pytest.fixture(autouse=True)
def small_ranges(monkeypatch):
    monkeypatch.setattr(run, "SMALL_RANGE_BYTES", 400)


@pytest.fixture
def received(monkeypatch):
    """Numbers of rows of the blocks that a resolved drop received."""
    rows, run_block = [], RangeDrops.run
    monkeypatch.setattr(RangeDrops, "run", lambda drops, block: rows.append(len(block)) or run_block(drops, block))
    return rows


def write_rows(path, texts):
    path.write_text("".join(json.dumps({"id": number, "text": text}) + "\n" for number, text in enumerate(texts)))
    return path


def rows_of(folder):
    tables = [pd.read_parquet(path) for path in sorted(Path(folder).glob("part-*"))]
    return pd.concat(tables, ignore_index=True)


def counts_of(receipt):
    steps = [(step.name, step.rows_in, step.rows_out, step.dropped) for step in receipt.steps]
    return steps, receipt.rows_read, receipt.rows_written, receipt.rows_quarantined


CHAINS = {
    "first": lambda docs: docs.pipe(cdf.drop_exact_duplicates),
    "last": lambda docs: docs.pipe(cdf.drop_exact_duplicates, keep="last"),
    "none": lambda docs: docs.pipe(cdf.drop_exact_duplicates, keep="none"),
    "counted": lambda docs: docs.pipe(cdf.drop_exact_duplicates, count_into="copies"),
    "two drops": lambda docs: docs.pipe(cdf.drop_exact_duplicates).pipe(
        cdf.drop_near_duplicates, jaccard_threshold=0.5
    ),
    "after a filter": lambda docs: docs.pipe(cdf.keep_where, "id > 3").pipe(cdf.drop_exact_duplicates),
    "before a filter": lambda docs: docs.pipe(cdf.drop_exact_duplicates).pipe(cdf.keep_where, "id > 3"),
}
TEXTS = st.lists(
    st.sampled_from([None, "", "a", f"b{LONG}", f"b{LONG} again", f"c{LONG}", "é" * 30, 'q"\\\n']),
    min_size=1,
    max_size=40,
)


@pytest.mark.parametrize("chain", CHAINS)
@settings(max_examples=4, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    texts=TEXTS,
    suffix=st.sampled_from([".jsonl", ".parquet", ".csv"]),
    range_bytes=st.sampled_from([100, 400, 10_000]),
)
def test_rows_and_counts_do_not_depend_on_whether_the_dropped_rows_are_read(
    chain, texts, suffix, range_bytes, monkeypatch
):
    monkeypatch.setattr(run, "SMALL_RANGE_BYTES", range_bytes)
    with tempfile.TemporaryDirectory() as name:
        home = Path(name)
        path = write_rows(home / "in.jsonl", texts)
        if suffix != ".jsonl":
            frame = pd.DataFrame({"id": range(len(texts)), "text": texts})
            path = home / f"in{suffix}"
            frame.to_csv(path, index=False) if suffix == ".csv" else frame.to_parquet(path, row_group_size=3)
        read = {".jsonl": cdf.read_jsonl, ".parquet": cdf.read_parquet, ".csv": cdf.read_csv}[suffix]
        docs = CHAINS[chain](read(path, dtype={"text": "string"}))
        left_out = cdf.write_parquet(docs, home / "a")
        all_read = cdf.write_parquet(docs, home / "b", rejects=home / "rejects")
        assert counts_of(left_out) == counts_of(all_read)
        if all_read.rows_written:
            pd.testing.assert_frame_equal(rows_of(home / "a"), rows_of(home / "b"))
        if all_read.rows_dropped:
            assert len(rows_of(home / "rejects")) == left_out.rows_dropped


def test_rows_to_drop_are_not_parsed_again_unless_rejects_have_them(tmp_path, received):
    docs = cdf.read_jsonl(write_rows(tmp_path / "in.jsonl", [f"text {n % 10}" for n in range(100)]))
    cdf.write_parquet(docs.pipe(cdf.drop_exact_duplicates), tmp_path / "a")
    assert sum(received) == 10
    received.clear()
    cdf.write_parquet(docs.pipe(cdf.drop_exact_duplicates), tmp_path / "b", rejects=tmp_path / "rejects")
    assert sum(received) == 100


def test_a_pass_of_a_later_drop_does_not_parse_them_either(tmp_path, received):
    docs = cdf.read_jsonl(
        write_rows(tmp_path / "in.jsonl", [f"text {n % 10}{LONG * n}" for n in (*range(20), *range(20))])
    )
    both = docs.pipe(cdf.drop_exact_duplicates).pipe(cdf.drop_near_duplicates, jaccard_threshold=0.5)
    receipt = cdf.write_parquet(both, tmp_path / "out")
    [exact, near] = receipt.steps[1:-1]
    assert (exact.rows_in, exact.rows_out, near.rows_in, near.rows_out) == (40, 20, 20, receipt.rows_written)
    assert receipt.rows_written < 20
    # The signatures and the texts of 20 rows, and the last pass, in which both steps receive the rows that stay.
    assert sum(received) == 20 + 20 + 2 * receipt.rows_written


def test_rows_that_cannot_be_read_are_quarantined_once(tmp_path):
    path = write_rows(tmp_path / "in.jsonl", [f"text {n % 10}" for n in range(100)])
    lines = path.read_text().splitlines(keepends=True)
    lines[7:7] = ["[1]\n", '{"id": "no number", "text": "x"}\n']
    path.write_text("".join(lines))
    docs = cdf.read_jsonl(path, dtype={"id": "int64", "text": "string"}, on_bad_rows="quarantine")
    receipt = cdf.write_parquet(docs.pipe(cdf.drop_exact_duplicates), tmp_path / "out")
    assert counts_of(receipt)[1:] == (102, 10, 2)


def test_an_interrupted_last_pass_goes_on(tmp_path, monkeypatch):
    docs = cdf.read_jsonl(write_rows(tmp_path / "in.jsonl", [f"text {n % 30}" for n in range(100)]))
    ends, finish = [], RangeDrops.finish

    def interrupted(drops, step):
        ends.append(step)
        if len(ends) == 3:
            raise KeyboardInterrupt
        finish(drops, step)

    with monkeypatch.context() as patched:
        patched.setattr(RangeDrops, "finish", interrupted)
        with pytest.raises(KeyboardInterrupt):
            cdf.write_parquet(docs.pipe(cdf.drop_exact_duplicates), tmp_path / "out")
    receipt = cdf.write_parquet(docs.pipe(cdf.drop_exact_duplicates), tmp_path / "out", on_existing="resume")
    assert 0 < receipt.ranges_resumed < receipt.ranges
    assert counts_of(receipt)[1:] == (100, 30, 0)
    assert rows_of(tmp_path / "out")["id"].tolist() == list(range(30))


def test_of_two_outputs_one_with_rejects_gets_all_of_them(tmp_path):
    docs = cdf.read_jsonl(write_rows(tmp_path / "in.jsonl", [f"text {n % 10}" for n in range(100)]))
    unique = docs.pipe(cdf.drop_exact_duplicates)
    outputs = {tmp_path / "a": unique.pipe(cdf.keep_where, "id < 5"), tmp_path / "b": unique}
    for home in (None, tmp_path / "rejects"):
        rejects = None if home is None else {tmp_path / "b": home}
        receipts = cdf.write_many(outputs, rejects=rejects, on_existing="overwrite")
        assert [receipt.rows_written for receipt in receipts.values()] == [5, 10]
        assert [receipt.rows_dropped for receipt in receipts.values()] == [95, 90]
    assert len(rows_of(tmp_path / "rejects")) == 90


@pytest.mark.parametrize(
    ("name", "bad"),
    [("in.jsonl", '{"id": "no number", "text": "x"}\n'), ("in.jsonl", "[1]\n"), ("in.csv", "no number,x\n")],
)
def test_rows_that_cannot_be_read_pass_two_drops(tmp_path, name, bad):
    texts = [f"text {number % 10}{LONG * number}" for number in (*range(20), *range(20))]
    lines = [
        json.dumps({"id": number, "text": text}) + "\n" if name == "in.jsonl" else f'{number},"{text}"\n'
        for number, text in enumerate(texts)
    ]
    lines[7:7] = [bad]
    head = "" if name == "in.jsonl" else "id,text\n"
    (tmp_path / name).write_text(head + "".join(lines))
    read = cdf.read_jsonl if name == "in.jsonl" else cdf.read_csv
    docs = read(tmp_path / name, dtype={"id": "int64", "text": "string"}, on_bad_rows="quarantine")
    receipt = cdf.write_parquet(CHAINS["two drops"](docs), tmp_path / "out")
    assert (receipt.rows_read, receipt.rows_quarantined) == (41, 1)
    assert rows_of(tmp_path / "out").text.is_unique


def test_rows_of_files_without_stamps_are_read_and_compared(tmp_path, received, monkeypatch):
    docs = cdf.read_jsonl(write_rows(tmp_path / "in.jsonl", ["a", "b", "a", "c"]))
    monkeypatch.setattr(task, "has_stamps", lambda source: False)
    cdf.write_parquet(docs.pipe(cdf.drop_exact_duplicates), tmp_path / "out")
    assert sum(received) == 4


def test_sources_whose_files_all_have_stamps_are_known(tmp_path):
    docs = cdf.read_jsonl(write_rows(tmp_path / "in.jsonl", ["a", "b"]))
    source = lower(docs).source
    without = dataclasses.replace(
        source, listing=dataclasses.replace(source.listing, stamps=np.zeros_like(source.listing.stamps))
    )
    assert has_stamps(source)
    assert not has_stamps(without)
    both = lower(cdf.concat([docs, docs])).source
    assert has_stamps(both)
    assert not has_stamps(dataclasses.replace(both, parts=(source, without)))
    assert not has_stamps(object())
