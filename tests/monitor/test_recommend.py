# SPDX-License-Identifier: Apache-2.0
"""What is recommended is what the planners plan; where the disk is small a part of the rows; a sample tells the time."""

import json
import shutil
from types import SimpleNamespace

import pandas as pd
import pyarrow as pa
import pytest

import curator_df as cdf
from curator_df import errors
from curator_df.core.planning.lowering import lower
from curator_df.core.planning.plan import MAX_DEFAULT_BLOCK_BYTES
from curator_df.core.planning.row_estimate import estimate_kept
from curator_df.memory.budget import choose_layout
from curator_df.memory.sizes import show_duration
from curator_df.models.text_model import CALL_BYTES, DEFAULT_BATCH_TOKENS, TextModel
from curator_df.monitor import fresh_process, sample_run
from curator_df.monitor import recommend as module
from curator_df.monitor.recommend import MINILM
from curator_df.monitor.sample_run import SampleTime, measure_sample, with_near_duplicates

ROWS = 3_000
LAYOUT = choose_layout(1_200_000_000, cpus=2)


@pytest.fixture
def corpus(tmp_path):
    with open(tmp_path / "a.jsonl", "w") as file:
        file.writelines(json.dumps({"id": n, "text": f"row number {n} and more of it"}) + "\n" for n in range(ROWS))
    return tmp_path / "a.jsonl"


def test_what_is_recommended_is_what_is_planned(corpus, tmp_path):
    found = cdf.recommend(corpus, memory="1.2GB", cpus=2, workdir=tmp_path, sample_size=None)
    chain = cdf.read_jsonl(corpus).pipe(cdf.normalize_unicode).pipe(cdf.drop_near_duplicates)
    plan = cdf.explain(chain, memory="1.2GB", cpus=2)
    assert found.projected_bytes == plan.projected_bytes <= found.memory_bytes == 1_200_000_000
    assert (found.workers, found.threads) == (plan.layout.workers, plan.layout.threads)
    assert found.block_bytes == plan.stages[-1].block_bytes <= MAX_DEFAULT_BLOCK_BYTES
    assert found.rows == pytest.approx(ROWS, rel=0.3)
    assert (found.bands_per_iteration, found.use_64_bit_hash, found.sample_fraction) == (20, False, 1.0)
    assert dict(found.to_frame().values)["rows"] == found.rows
    assert (found.projected_seconds, found.batch_tokens, found.device_batch_tokens) == (None, None, None)
    assert "bands_per_iteration=20 of 20" in str(found) and "32 bits" in found._repr_html_()


def test_many_rows_need_fewer_bands_at_a_time_and_a_wider_hash(corpus, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "estimate_rows", lambda *_: 2_000_000_000)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=10**15))
    found = cdf.recommend(corpus, memory="2GB", cpus=2, workdir=tmp_path, sample_size=None)
    assert (found.bands_per_iteration, found.use_64_bit_hash) == (1, True)
    assert found.disk_bytes > 2_000_000_000 * 21 * 24  # a key of 24 bytes for each band and for the text
    assert found.projected_bytes <= 2_000_000_000


# Documents of an input, from less than 100,000 over millions to billions, and what follows from each memory.
SIZES = [
    (50_000, {"600MB": 20, "1GB": 20, "2GB": 20, "4GB": 20}, False),
    (100_000, {"600MB": 13, "1GB": 20, "2GB": 20, "4GB": 20}, False),
    (1_000_000, {"600MB": 1, "1GB": 5, "2GB": 12, "4GB": 20}, False),
    (10_000_000, {"600MB": 1, "1GB": 1, "2GB": 1, "4GB": 3}, False),
    (100_000_000, {"600MB": 1, "1GB": 1, "2GB": 1, "4GB": 1}, False),
    (1_000_000_000, {"600MB": 1, "1GB": 1, "2GB": 1, "4GB": 1}, True),
    (10_000_000_000, {"600MB": 1, "1GB": 1, "2GB": 1, "4GB": 1}, True),
]


@pytest.mark.parametrize(("rows", "bands", "wide"), SIZES, ids=[f"{rows:,}" for rows, *_ in SIZES])
def test_what_follows_from_the_size_of_an_input(corpus, tmp_path, monkeypatch, rows, bands, wide):
    asked = {"cpus": 2, "workdir": tmp_path, "sample_size": None}
    small = {memory: cdf.recommend(corpus, memory=memory, **asked) for memory in bands}
    monkeypatch.setattr(module, "estimate_rows", lambda *_: rows)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=10**15))
    found = {memory: cdf.recommend(corpus, memory=memory, **asked) for memory in bands}
    assert {memory: one.bands_per_iteration for memory, one in found.items()} == bands
    for memory, one in found.items():
        assert (one.rows, one.use_64_bit_hash, one.sample_fraction) == (rows, wide, 1.0)
        assert one.projected_bytes == small[memory].projected_bytes <= one.memory_bytes  # whatever the rows
        assert (
            20 * 40 * rows < one.disk_bytes < 20 * 60 * rows
        )  # a key of 40 bytes for each band, twice while they are sorted


def test_where_the_disk_is_too_small_a_part_of_the_rows_fits(corpus, tmp_path, monkeypatch):
    whole = cdf.recommend(corpus, memory="1.2GB", cpus=2, workdir=tmp_path, sample_size=None)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=whole.disk_bytes * 3 // 5))
    part = cdf.recommend(corpus, memory="1.2GB", cpus=2, workdir=tmp_path, sample_size=None)
    assert 0.3 < part.sample_fraction < 0.61
    assert f"sample_rows(fraction={part.sample_fraction})" in str(part)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=0))
    none = cdf.recommend(corpus, memory="1.2GB", cpus=2, workdir=tmp_path, sample_size=None)
    assert none.sample_fraction == 0.0
    assert "Use another workdir=" in str(none)


def test_what_cannot_be_read_or_does_not_fit_is_said(corpus, tmp_path):
    with pytest.raises(errors.BudgetError, match="below the minimum"):
        cdf.recommend(corpus, memory="100MB")
    with pytest.raises(errors.ColumnError, match="body"):
        cdf.recommend(corpus, text="body")
    (tmp_path / "b.parquet").write_bytes(b"")
    with pytest.raises(errors.ParameterError, match=r"1 Parquet file and 1 file of JSON Lines\. Choose one kind"):
        cdf.recommend(tmp_path)


@pytest.mark.parametrize("kind", [pytest.param("jsonl", marks=pytest.mark.proof), "parquet"])
def test_a_sample_that_is_run_tells_the_time(corpus, tmp_path, kind):
    if kind == "parquet":
        pd.read_json(corpus, lines=True).to_parquet(tmp_path / "a.parquet")
        corpus = tmp_path / "a.parquet"
    found = cdf.recommend(corpus, memory="1.2GB", cpus=2, workdir=tmp_path, sample_size="60kB")
    said = dict(found.reasons)["time"]
    assert found.projected_seconds > 0
    assert said.startswith(f"about {show_duration(found.projected_seconds)}: ")
    assert " (threads: 1; usable threads: 1)" in said  # so little is one range
    read = cdf.read_parquet if kind == "parquet" else cdf.read_jsonl
    chain = read(corpus).pipe(cdf.normalize_unicode).pipe(cdf.drop_near_duplicates, scheme=cdf.minhash.DEFAULT)
    assert cdf.explain(chain, memory="1.2GB", cpus=2).seconds == found.projected_seconds
    assert cdf.explain(chain, memory="1.2GB", cpus=1).seconds is None
    taken = int(said.split(": ")[1].split()[0])  # kB of the sample: its own rows, not the whole input
    assert 20 < taken < 100 < found.text_bytes / 1_000 or kind == "parquet"


def test_ranges_that_threads_do_not_share_take_longer():
    time = SampleTime(text_bytes=8, run_seconds=3.0, fixed_seconds=2.0, byte_seconds=0.001)
    assert time.seconds(8_000, ranges=1, threads=2) == pytest.approx(2 + 8)  # a compressed file
    assert time.seconds(8_000, ranges=2, threads=2) == pytest.approx(2 + 4)
    assert time.seconds(8_000, ranges=7, threads=2) == pytest.approx(
        2 + 8 * 4 / 7
    )  # the seventh has a thread for itself


def test_a_sample_that_cannot_run_is_an_error(corpus):
    def broken(docs):
        raise ValueError(f"no chain for {len(docs.columns)} columns")

    source = lower(cdf.read_jsonl(corpus)).source
    with pytest.raises(
        errors.OperatorError,
        match=r"(?s)run of the sample failed. For advice .* use sample_size=None.*no chain for 2 columns",
    ):
        measure_sample(
            source, source.cut(10**6), broken, is_parquet=False, sample_bytes=1_000, layout=LAYOUT, text="text"
        )


def test_as_many_threads_work_on_the_sample_as_will_on_the_input(corpus, monkeypatch):
    jobs = []

    def run_fresh(name, job):
        jobs.append(job)
        return [{"text_bytes": size, "seconds": 1.0 + size / 1e6} for size in (800, 200, 800)]

    monkeypatch.setattr(sample_run, "run_fresh", run_fresh)
    source = lower(cdf.read_jsonl(corpus)).source
    for sample_bytes, threads in ((8_000_000, 2), (3_000_000, 1)):
        found = measure_sample(
            source, source.cut(10_000), len, text="text", is_parquet=False, sample_bytes=sample_bytes, layout=LAYOUT
        )
        assert (found.threads, jobs[-1].threads, jobs[-1].memory_bytes) == (threads, threads, 1_200_000_000)
        assert found.byte_seconds == pytest.approx(threads * 1e-6)  # of a thread, beside the other
    one = source.cut(10**9)
    how = {"text": "text", "is_parquet": False, "sample_bytes": 8_000_000, "layout": LAYOUT}
    assert measure_sample(source, one, len, **how).threads == 1


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string()])
def test_one_row_in_ten_gets_a_near_duplicate_so_that_comparing_is_in_the_time(kind):
    texts = [" ".join(f"{row} word {place}" for place in range(200)) for row in range(30)]
    table = pa.table({"id": list(range(30)), "text": pa.array(texts, kind)})
    made = with_near_duplicates(table, "text")
    assert made.schema == table.schema
    assert made["id"].to_pylist() == [*range(30), 0, 10, 20]
    assert made["text"].to_pylist()[:30] == texts
    for copy, text in zip(made["text"].to_pylist()[30:], texts[::10], strict=True):
        assert text.startswith(copy)
        assert 0.94 < len(copy) / len(text) < 0.96


def test_a_sample_that_takes_too_long_is_an_error(corpus, monkeypatch):
    monkeypatch.setattr(fresh_process, "TIMEOUT_SECONDS", 0.1)
    with pytest.raises(errors.OperatorError, match=r"use sample_size=None.*did not finish within 0.1 s and was killed"):
        cdf.recommend(corpus, memory="1.2GB", cpus=2, sample_size="60kB")


def test_batches_of_a_model_fit_the_plan_and_the_device(corpus, tmp_path):
    asked = {"cpus": 2, "workdir": tmp_path, "sample_size": None}
    found = cdf.recommend(corpus, memory="4GB", device_memory="2GB", **asked)
    model = TextModel(MINILM, "mean", 512, 8_192, found.device_batch_tokens, None)
    assert found.batch_tokens == DEFAULT_BATCH_TOKENS
    assert 2_000_000_000 - 40_000 < model.weight_bytes + model.call_bytes <= 2_000_000_000
    assert f"batches of {found.device_batch_tokens:,} padded tokens" in str(found)
    small = cdf.recommend(corpus, memory="600MB", device_memory="90MB", **asked)
    assert (small.batch_tokens, small.device_batch_tokens) == (0, 0)
    assert "even with batches of one text" in str(small) and ". Use memory=" in str(small)
    assert "90 MB of GPU memory are too little for the weights" in str(small)


def test_tokens_that_fit_are_the_inverse_of_the_bytes_of_a_call():
    model = TextModel(MINILM, "mean", 512, 8_192, 5_000, None)
    assert model.fitting_tokens(model.call_bytes) == 5_000
    assert model.fitting_tokens(model.call_bytes - 1) == 4_999
    assert model.fitting_tokens(CALL_BYTES) == 0


def test_a_part_of_the_rows_needs_a_part_of_the_disk(corpus):
    docs = cdf.read_jsonl(corpus)
    ranges = lower(docs).source.cut(10**6)
    whole, part = (estimate_kept(lower(table), ranges) for table in (docs, docs.curate.sample_rows(0.25)))
    assert part == pytest.approx(whole / 4, abs=1)
    twice = docs.curate.sample_rows(0.5).curate.sample_rows(0.25)  # one seed: samples are nested
    assert estimate_kept(lower(twice), ranges) == part
