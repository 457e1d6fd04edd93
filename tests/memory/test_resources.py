# SPDX-License-Identifier: Apache-2.0
"""What calls take of a worker: what is refused, who waits, and that other tasks work meanwhile."""

from __future__ import annotations

import dataclasses
import itertools
import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import dask.dataframe as dd
import pandas as pd
import pytest

import curator_df as cdf
from curator_df import errors
from curator_df.core.planning.lowering import lower
from curator_df.core.planning.plan import plan_stream
from curator_df.core.ranges.set_up import set_up
from curator_df.core.runner import run
from curator_df.io.output.files import FileSink
from curator_df.io.output.formats import Folder, ParquetFormat
from curator_df.memory import resources as module
from curator_df.memory.budget import choose_layout
from curator_df.memory.resources import DEVICE_PARTS, Capacity, Resources, admitted, shared
from tests.contracts.operator_cases import fingerprints_of

PATIENCE_SECONDS = 60


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"gpus": 1, "gpu_memory": "8GB"}, "both set the share"),
        ({"cpus": 0}, "cpus=0"),
        ({"cpus": 1.5}, "cpus=1.5"),
        ({"gpus": 2}, "gpus=2"),
        ({"gpus": 0}, "gpus=0"),
        ({"gpu_memory": "lots"}, "gpu_memory='lots'"),
    ],
)
def test_what_says_nothing_sensible_is_refused(arguments, said):
    with pytest.raises(errors.ParameterError, match=said):
        cdf.resources(**arguments)


@pytest.mark.parametrize(
    ("asked", "at_once"),
    [
        ({}, 8),
        ({"cpus": 1}, 8),
        ({"cpus": 3}, 2),
        ({"gpus": 1}, 1),
        ({"gpus": 1 / 3}, 3),
        ({"gpu_memory": "8GB"}, 5),
        ({"gpu_memory": "30GB"}, 1),
        ({"gpus": 0.5, "cpus": 8}, 1),
    ],
)
def test_as_many_calls_at_a_time_as_there_is_room_for(asked, at_once):
    assert Capacity(8, device_bytes=40_000_000_000).at_once(cdf.resources(**asked)) == at_once


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"cpus": 3}, r"embed: resources\(cpus=3\) requests more than the 2 threads of each worker"),
        ({"gpus": 1}, "these workers have none"),
        ({"gpu_memory": "8GB"}, "these workers have none"),
    ],
)
def test_what_workers_do_not_have_is_refused_by_the_plan(asked, said):
    with pytest.raises(errors.BudgetError, match=said):
        Capacity(2).require("embed", cdf.resources(**asked))
    with pytest.raises(errors.BudgetError, match=r"more than the 4\.00 GB of a GPU that may be used"):
        Capacity(2, 4_000_000_000).require("embed", cdf.resources(gpu_memory="8GB"))


def of_model(name, weight_bytes, least_bytes=0, **asked):
    found = cdf.resources(**asked)
    return dataclasses.replace(found, weights=name, weight_bytes=weight_bytes, least_device_bytes=least_bytes)


def test_models_hold_their_weights_on_a_gpu_whichever_of_them_runs():
    whole, other = of_model("one", 3_000, gpus=1), of_model("two", 5_000, gpus=0.5)
    capacity = Capacity(2, device_bytes=16_000).holding([whole, whole, other, cdf.resources(cpus=1)])
    assert capacity.device_held_bytes == 8_000
    assert capacity.device_share(whole) == 3_000 + 8_000  # and what the weights leave
    assert capacity.device_share(other) == 5_000 + 4_000
    assert (capacity.at_once(whole), capacity.at_once(other)) == (1, 2)
    # Of memory that is named the weights are a part.
    named = of_model("one", 3_000, gpu_memory=7_000)
    assert capacity.device_share(named) == 7_000
    assert capacity.taken(named) == (0, DEVICE_PARTS // 2)
    assert Capacity(1, device_bytes=16_000).device_share(whole) == 16_000  # outside of a plan


def test_models_that_do_not_fit_on_a_gpu_together_are_refused():
    models = [of_model(name, 9_000, 10_000, gpus=1) for name in ("one", "two")]
    alone = Capacity(1, device_bytes=16_000).holding(models[:1])
    alone.require("embed", models[0])
    with pytest.raises(
        errors.BudgetError, match=r"the models and objects of other steps use 9 kB.* with checkpoint between them"
    ):
        Capacity(1, device_bytes=16_000).holding(models).require("embed", models[0])


class Tagger:
    """A user's object that puts something on a GPU and leaves it there."""

    def __init__(self, name, asked, kept=None):
        self.name, self.resources = name, asked
        if kept is not None:
            self.device_held_bytes = kept

    def setup(self):
        self.there = True

    def __call__(self, block):
        return block["text"].notna()


def taking(name, kept=None, **asked):
    made = set_up("keep_where", Tagger(name, cdf.resources(**asked), kept))
    return made.taking(made.resources)


def test_what_setup_leaves_on_a_gpu_counts_while_others_run():
    told = taking("told", "6GB", gpu_memory="8GB")
    capacity = Capacity(4, device_bytes=16_000_000_000).holding([told])
    assert (capacity.device_held_bytes, capacity.at_once(told)) == (6_000_000_000, 4)  # each takes 2 of the 10 left
    # Nothing is said of it: after setup() all of it may be there, and a second call might take as much again.
    untold = taking("untold", gpu_memory="8GB")
    capacity = Capacity(4, device_bytes=16_000_000_000).holding([untold])
    assert (capacity.device_held_bytes, capacity.at_once(untold)) == (8_000_000_000, 1)
    assert capacity.device_parts(untold) == 0  # the plan does not count it twice
    capacity.require("keep_where", untold)
    # A share says nothing of bytes, and what has no setup() leaves nothing there.
    assert taking("share", gpus=0.5).weight_bytes == 0


def test_objects_that_do_not_fit_on_a_gpu_together_are_refused():
    both = [taking(name, gpu_memory="9GB") for name in ("one", "two")]
    Capacity(1, device_bytes=18_000_000_000).holding(both).require("keep_where", both[0])
    with pytest.raises(errors.BudgetError, match=r"gpu_memory=9_000_000_000\), but only .* other steps use 9\.00 GB"):
        Capacity(1, device_bytes=16_000_000_000).holding(both).require("keep_where", both[0])
    model = of_model("model", 9_000_000_000, 10_000_000_000, gpus=1)
    beside = taking("beside", "1GB", gpu_memory="3GB")
    Capacity(1, device_bytes=16_000_000_000).holding([model, beside]).require("keep_where", beside)
    with pytest.raises(errors.BudgetError, match=r"only 2\.00 GB of 11\.00 GB"):
        Capacity(1, device_bytes=11_000_000_000).holding([model, beside]).require("keep_where", beside)
    with pytest.raises(
        errors.ParameterError,
        match=r"keeps device_held_bytes=4_000_000_000 .* gpu_memory=3_000_000_000, the total of a call, is smaller",
    ):
        taking("wrong", "4GB", gpu_memory="3GB")


def test_a_function_gets_the_gpu_memory_that_it_asks_for_or_is_refused(tmp_path):
    (tmp_path / "in.jsonl").write_text('{"text": "a"}\n')
    docs = cdf.read_jsonl(str(tmp_path / "in.jsonl")).pipe(
        cdf.keep_where, Tagger("one", cdf.resources(gpu_memory="9GB"))
    )
    both = docs.pipe(cdf.keep_where, Tagger("two", cdf.resources(gpu_memory="9GB")))
    layout = dataclasses.replace(choose_layout(4_000_000_000, cpus=2, held_bytes=0), device_bytes=16_000_000_000)
    sink = FileSink(Folder("."), ParquetFormat("zstd"), 1)
    assert plan_stream(lower(docs), sink, None, layout).device_bytes == 9_000_000_000
    with pytest.raises(errors.BudgetError, match="keep_where: resources"):
        plan_stream(lower(both), sink, None, layout)


def test_no_more_calls_at_a_time_than_fit_and_no_fewer():
    together, now, most, lock = threading.Barrier(2, timeout=PATIENCE_SECONDS), [0], [0], threading.Lock()

    def call(_):
        with shared(Capacity(5)), admitted(Resources(cpus=2)):
            with lock:
                now[0] += 1
                most[0] = max(most[0], now[0])
            together.wait()  # only if there are two
            with lock:
                now[0] -= 1

    with ThreadPoolExecutor(6) as threads:
        list(threads.map(call, range(6)))
    assert (most, now) == ([2], [0])


def waiting(capacity, count):
    until = time.monotonic() + PATIENCE_SECONDS
    while len(module._queues[capacity]._waiting) != count:
        assert time.monotonic() < until, "nobody queued up"
        time.sleep(0.001)


def test_who_came_first_goes_first_and_an_error_leaves_its_place():
    capacity, order = Capacity(7, device_bytes=100), []

    def call(name, asked):
        with shared(capacity), admitted(asked):
            order.append(name)

    with ThreadPoolExecutor(2) as threads:

        def fail():
            with shared(capacity), admitted(Resources(gpu_memory_bytes=60)):
                both = [threads.submit(call, "whole", Resources(gpus=1))]
                waiting(capacity, 1)
                both.append(threads.submit(call, "small", Resources(gpu_memory_bytes=10)))  # there would be room for it
                waiting(capacity, 2)
                raise ValueError(len(order))

        with pytest.raises(ValueError, match="0"):
            fail()
    assert order == ["whole", "small"]


def test_outside_of_a_run_nobody_waits():
    with admitted(Resources(gpus=1)) as one, admitted(Resources(gpus=1)) as two:
        assert (one, two) == (0, 0)


def lengths(texts):
    return [[len(text)] for text in texts]


def embedded(docs, **asked):
    return docs.pipe(cdf.add_embedding, cdf.model(lengths, **asked), dimensions=1)


def test_what_a_step_takes_is_no_part_of_what_a_run_compares():
    docs = dd.from_pandas(pd.DataFrame({"text": ["a"]}), npartitions=1)
    assert fingerprints_of(embedded(docs)) == fingerprints_of(embedded(docs, resources=cdf.resources(cpus=2)))


@pytest.fixture
def corpus(tmp_path, monkeypatch):
    monkeypatch.setattr(run, "SMALL_RANGE_BYTES", 6_000)
    path = tmp_path / "in.jsonl"
    path.write_text("".join(json.dumps({"text": "a text " * 20}) + "\n" for _ in range(320)))
    return cdf.read_jsonl(str(path))


def test_explain_says_how_many_at_a_time_and_a_gpu_that_is_not_there_is_refused(corpus):
    layout = choose_layout(1_000_000_000, cpus=2)
    sink = FileSink(Folder("out"), ParquetFormat("zstd"), 1)
    plan = plan_stream(lower(embedded(corpus, resources=cdf.resources(cpus=2))), sink, None, layout)
    assert "add_embedding: at most 1 of the 2 tasks of a worker" in str(plan)
    with pytest.raises(errors.BudgetError, match="add_embedding: its resources need a GPU"):
        plan_stream(lower(embedded(corpus, resources=cdf.resources(gpus=1))), sink, None, layout)


def test_one_call_at_a_time_while_another_task_cleans(corpus, tmp_path, beside_tests):
    log = str(tmp_path / "log")

    def noted(kind, seconds):
        began = time.monotonic()
        time.sleep(seconds)  # the work itself: of a device, or of a step
        with open(log, "a") as file:
            file.write(f"{kind} {began} {time.monotonic()}\n")

    def clean(block):
        noted("clean", 0.03)
        return block

    def model(texts):
        noted("model", 0.06)
        return [[len(text)] for text in texts]

    docs = corpus.map_partitions(clean, meta=corpus._meta)
    docs = docs.pipe(cdf.add_embedding, cdf.model(model, resources=cdf.resources(cpus=2)), dimensions=1)
    with cdf.start_cluster(memory=beside_tests(1_000_000_000), cpus=2) as cluster:
        assert (cluster.layout.workers, cluster.layout.threads) == (1, 2)
        receipt = cdf.write_parquet(docs, tmp_path / "out")
    spans = {"clean": [], "model": []}
    with open(log) as file:
        for line in file:
            kind, *span = line.split()
            spans[kind].append(tuple(map(float, span)))
    calls = sorted(spans["model"])
    assert len(calls) >= 8
    assert all(end <= begin for (_, end), (begin, _) in itertools.pairwise(calls))
    assert any(began < end and begin < ended for began, ended in calls for begin, end in spans["clean"])
    (step,) = [step for step in receipt.steps if step.name == "add_embedding"]
    assert step.counters["documents"] == 320
    assert step.counters["waited_milliseconds"] > 0
