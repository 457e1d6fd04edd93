# SPDX-License-Identifier: Apache-2.0
"""Each symptom in the figures is told with what to set, and figures without symptoms say nothing."""

import dataclasses

import pytest

from curator_df.core.runner.advice import advice
from curator_df.memory.leaks import LeakReceipt
from curator_df.receipts.receipt import StepReceipt
from tests.receipts.receipts import EXCHANGE, receipt


def steps(read=2.0, profile=10.0, write=5.0):
    return [
        StepReceipt(name, 1, 1, seconds)
        for name, seconds in (("read", read), ("keep_profile", profile), ("write", write))
    ]


def model_steps(**counters):
    model = StepReceipt(
        "add_class", 1, 1, 18.0, {}, {"documents": 4_000, "batches": 100, "batches_halved": 0} | counters
    )
    return [StepReceipt("read", 1, 1, 8.0), model, StepReceipt("write", 1, 1, 8.0)]


QUIET = {"steps": steps(8.0, 18.0, 8.0), "seconds": 20.0}


def test_a_run_without_symptoms_gets_no_advice():
    assert advice(receipt(**QUIET)) == []


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (
            {"rows_out_of_memory": 1, "rows_quarantined": 1},
            "1 row did not fit into the memory budget, even when it ran exclusively",
        ),
        (
            {"rows_out_of_memory": 3, "rows_quarantined": 3},
            "3 rows did not fit into the memory budget, even when each ran",
        ),
        (
            {"measured_bytes": 900_000_000},
            "The actual peak was 900 MB, more than the estimated peak of 800 MB: a step needs more memory than it states",
        ),
        (
            {
                "measured_bytes": 900_000_000,
                "settings": {"assumed": "1.5 x block for map_partitions(f); the peak may reach 970 MB"},
            },
            "than the estimated peak of 800 MB, which assumes 1.5 x block for map_partitions(f); the peak may reach 970 MB. ",
        ),
        (
            {"measured_bytes": 200_000_000},
            "The run used 200 MB of its 1.00 GB budget. Use memory='400MB', or cpus= above",
        ),
        ({"retries": {"memory": 2}}, "Use a smaller blocksize= to avoid that"),
        ({"retries": {"worker lost": 2}}, "Input splits crashed their workers 2 times"),
        (
            {"leaks": [LeakReceipt("node:1", 40, 40_000_000, 1_000_000, step="", left_bytes=0, recycled=False)]},
            "The memory of workers grew after each task, 1 time. No step was found to leave memory behind, so it may be a cache",
        ),
        ({"retries": {"exclusive": 9}}, "9 of 40 input splits ran exclusively"),
        ({"steps": [StepReceipt("keep_where", 1_000, 10, 1.0)]}, "More than 95% of the rows were dropped"),
        (
            {"steps": [StepReceipt("read_warc", 1_000, 0, 1.0)]},
            "The reader kept none of the 1,000 records of the input",
        ),
        ({"steps": [StepReceipt("readability", 1_000, 10, 1.0)]}, "More than 95% of the rows were dropped"),
        ({"rows_quarantined": 20}, "2.0% of the rows are in _quarantine"),
        (
            {"steps": steps(profile=30.0)},
            "keep_profile took 81% of the time (30 s). Put filters that cost less before it",
        ),
        ({"steps": steps(read=20.0, write=12.0)}, "Reading and writing took 76% of the time"),
        ({"seconds": 60.0}, "Threads were busy 28% of the time. Tasks waited for one that ran exclusively"),
        (
            {"seconds": 60.0, "ranges": 3},
            "Threads were busy 28% of the time. 3 input splits cannot keep 2 threads busy",
        ),
        ({"gpu_use": {"GPU 0": 0.12, "GPU 1": 0.9}}, "GPUs were mostly idle (GPU 0 12%)"),
        (
            {"steps": model_steps(documents=150)},
            "add_class: 1.5 documents per batch are few. Use a larger max_batch_tokens=",
        ),
        (
            {"steps": model_steps(batches_halved=20)},
            "add_class: 20 batches did not fit into memory, while 100 did",
        ),
        (
            {"exchanges": [dataclasses.replace(EXCHANGE, skew=7.0)]},
            "one task compared 7.0 x as many keys as the mean of all tasks",
        ),
        (
            {
                "exchanges": [
                    dataclasses.replace(EXCHANGE, seconds=12.0, details={"clusters": 20, "largest_cluster": 400})
                ]
            },
            "the largest of 20 clusters has 400 of 700 rows, and all pairs in a cluster are compared. A larger num_clusters=",
        ),
    ],
)
def test_each_symptom_is_told(changes, said):
    (text,) = advice(receipt(**{**QUIET, **changes}))
    assert said in text


@pytest.mark.parametrize(
    "changes",
    [
        {"seconds": 60.0, "ranges_resumed": 5},  # the time is that of the last part
        {"retries": {"exclusive": 2}},
        {"rows_quarantined": 9},
        {"exchanges": [dataclasses.replace(EXCHANGE, skew=7.0, hash_ranges=1)]},
        {"measured_bytes": 0},  # nobody measured
        {"steps": [StepReceipt("read", 1_000, 1_000, 1.0), StepReceipt("read_warc", 1_000, 20, 1.0)]},  # no other pages
        {"gpu_use": {"GPU 0": 0.6}},
        {"gpu_use": {"GPU 0": 0.1}, "seconds": 5.0},
        {"steps": model_steps(batches_halved=9)},
        {"steps": [StepReceipt("add_class", 1, 1, 5.0, {}, {"documents": 9, "batches": 9})]},  # a short run
    ],
)
def test_what_says_nothing_is_not_told(changes):
    assert advice(receipt(**{**QUIET, **changes})) == []


COMPARED = dataclasses.replace(EXCHANGE, step="drop_near_duplicates", seconds=90.0)


def test_comparisons_before_the_last_pass_count_as_time():
    said = advice(receipt(steps=steps(read=20.0, write=12.0), exchanges=[COMPARED], seconds=120.0))
    first = "drop_near_duplicates took 81% of the time (90 s) to compare rows. Put filters before it, so that it compares fewer"
    assert said == [f"{first} rows"]
    spilled = dataclasses.replace(COMPARED, spilled_bytes=3_000_000_000)
    said = advice(receipt(steps=steps(read=20.0, write=12.0), exchanges=[spilled], seconds=120.0))
    assert said == [f"{first} rows. 3.00 GB did not fit into memory: use a larger memory="]


def test_an_output_of_several_is_not_judged_by_its_part_of_the_run():
    own = [StepReceipt("read", 1_000, 1_000, 12.0), StepReceipt("keep_where", 1_000, 10, 1.0)]
    small = {"outputs": 2, "seconds": 60.0, "steps": own}
    assert advice(receipt(**small)) == []
    assert len(advice(receipt(**{**small, "outputs": 1}))) == 3
