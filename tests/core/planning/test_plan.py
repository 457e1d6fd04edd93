# SPDX-License-Identifier: Apache-2.0
"""The bytes of a plan: what a task needs, what that makes for the node, and where a plan is refused."""

import dataclasses
import functools
import json
import re
from xml.etree import ElementTree as ET

import pytest

import curator_df as cdf
from curator_df.core.planning.branches import Branch, fork
from curator_df.core.planning.lowering import lower
from curator_df.core.planning.plan import MAX_DEFAULT_BLOCK_BYTES, plan_fork
from curator_df.core.planning.price import KERNEL_FIXED_BYTES, largest_block, task_bytes
from curator_df.core.planning.program import Pending
from curator_df.core.ranges.blocks import BlockKernel, map_blocks
from curator_df.core.ranges.price import Price
from curator_df.errors import BudgetError
from curator_df.files.storage import Folder
from curator_df.io.output.files import FileSink
from curator_df.io.output.formats import ParquetFormat
from curator_df.memory.budget import choose_layout
from curator_df.memory.sizes import read_size, show_size

LAYOUT = choose_layout(2_000_000_000, cpus=2)


@pytest.fixture
def plan(tmp_path):
    """Return a function that plans a chain on rows of a file into some outputs."""
    (tmp_path / "in.jsonl").write_text(json.dumps({"id": 1, "text": "a"}) + "\n")

    def make(*chains, layout=LAYOUT, **options):
        docs = cdf.read_jsonl(tmp_path / "in.jsonl", **options)
        sinks = [
            FileSink(Folder(str(tmp_path / f"out{n}")), ParquetFormat("zstd"), 10**9) for n, _ in enumerate(chains)
        ]
        branches = [Branch(lower(chain(docs)), sink) for chain, sink in zip(chains, sinks, strict=True)]
        return plan_fork(fork(branches), layout)

    return make


def as_it_is(docs):
    return docs


def without_duplicates(docs):
    return docs.pipe(cdf.drop_exact_duplicates)


def test_rows_that_dask_makes_hold_no_block_in_addition(plan):
    exploded = plan(lambda docs: docs.assign(text=docs.text.str.split()).explode("text"))
    assert (
        exploded.stages[-1].task_factor
        == plan(lambda docs: docs.assign(text=docs.text.str.split())).stages[-1].task_factor
    )


def test_the_projection_is_what_is_reserved_and_all_tasks_of_all_workers(plan):
    made = plan(as_it_is)
    [stage] = made.stages
    assert stage.task_bytes == task_bytes(stage.block_bytes, stage.task_factor)
    tasks = LAYOUT.workers * LAYOUT.threads * stage.task_bytes
    assert made.projected_bytes == LAYOUT.reserved_bytes + tasks
    assert tasks <= LAYOUT.work_bytes * LAYOUT.workers
    assert made.projected_bytes <= LAYOUT.allowed_bytes


def test_blocks_are_as_large_as_fits_and_not_larger_than_is_of_use(plan):
    assert plan(as_it_is).stages[-1].block_bytes == MAX_DEFAULT_BLOCK_BYTES
    small = dataclasses.replace(LAYOUT, work_bytes=60_000_000)
    [stage] = plan(as_it_is, layout=small).stages
    assert stage.block_bytes == largest_block(small.thread_bytes, stage.task_factor) < MAX_DEFAULT_BLOCK_BYTES
    assert stage.task_bytes <= small.thread_bytes < task_bytes(stage.block_bytes + 1_000, stage.task_factor)


def test_a_longer_row_than_a_block_may_pass_and_a_longer_one_still_alone(plan):
    [stage] = plan(as_it_is, blocksize="2MB").stages
    assert stage.block_bytes == 2_000_000
    assert stage.largest_row_bytes == largest_block(LAYOUT.thread_bytes, stage.task_factor) > stage.block_bytes
    assert stage.exclusive_row_bytes == largest_block(LAYOUT.exclusive_bytes, stage.task_factor)
    assert stage.exclusive_row_bytes > stage.largest_row_bytes


def test_a_plan_that_does_not_fit_is_refused_with_block_and_memory_that_do(plan):
    with pytest.raises(BudgetError, match=r"blocks of 1\.00 GB do not fit") as refused:
        plan(as_it_is, blocksize="1GB")
    said = str(refused.value)
    fits = read_size("blocksize", said.split("blocksize=")[1].split(" ", maxsplit=1)[0].strip("'"))
    assert plan(as_it_is, blocksize=fits).projected_bytes <= LAYOUT.allowed_bytes
    with pytest.raises(BudgetError):
        plan(as_it_is, blocksize=int(fits * 1.01))  # the message has three digits
    memory = read_size("memory", said.split("memory=")[1].split(" ", maxsplit=1)[0].strip("'"))
    assert plan(as_it_is, blocksize="1GB", layout=choose_layout(memory, cpus=2)).projected_bytes <= memory
    with pytest.raises(BudgetError):
        plan(as_it_is, blocksize="1GB", layout=choose_layout(int(memory * 0.98), cpus=2))


def test_each_pending_step_has_a_pass_of_its_own_before_the_last(plan):
    made = plan(lambda docs: without_duplicates(docs.pipe(cdf.add_ids, into="number", dense=True)))
    titles = [stage.title for stage in made.stages]
    assert titles == ["rows for add_ids", "keys for drop_exact_duplicates, then merge them", "write"]
    assert {stage.block_bytes for stage in made.stages} == {made.stages[-1].block_bytes}


def test_a_plan_shows_first_that_it_fits_and_then_each_step_once(plan):
    made = plan(lambda docs: without_duplicates(docs.pipe(cdf.add_ids, into="number", dense=True)))
    (memory, fits), (read, how_often), *_ = lines = made.lines()
    assert (memory, read) == ("memory", "input")
    assert fits.endswith("budget: it fits")
    assert how_often.endswith("read 3 times")
    labels = [label for label, _ in lines]
    assert labels.index("passes") < labels.index("steps") < labels.index("layout") < labels.index("blocks")
    shown = [line for _, line in lines[labels.index("passes") : labels.index("layout")]]
    assert shown[:3] == [
        "1  rows for add_ids",
        "2  keys for drop_exact_duplicates, then merge them; hash and sort keys: 1.5 x block (assumed)",
        "3  write",
    ]
    names = [line.partition(": ")[0] for line in shown[4:]]
    assert names == ["read", "add_ids", "drop_exact_duplicates", "write"]
    assert [line.rpartition(", in ")[2] for line in shown[4:]] == [
        "passes 1 to 3",
        "passes 2 and 3",
        "pass 3",
        "pass 3",
    ]
    assert "pass" not in str(plan(as_it_is))


def test_the_drawing_of_a_plan_divides_the_budget_and_shows_the_steps_of_each_pass(plan):
    made = plan(lambda docs: without_duplicates(docs.map_partitions(lambda block: block, meta=docs._meta)))
    drawn = ET.fromstring(made.drawing())
    shares = [float(found) for found in re.findall(r"width:([\d.]+)%", made.drawing())]
    sizes = [LAYOUT.reserved_bytes, made.projected_bytes - LAYOUT.reserved_bytes]
    assert shares == pytest.approx([100 * held / LAYOUT.allowed_bytes for held in sizes], abs=0.1)
    text = " ".join("".join(drawn.itertext()).split())
    assert text.startswith(f"{made.lines()[0][1]} processes and libraries before any work 604 MB")
    assert f"free {show_size(LAYOUT.allowed_bytes - made.projected_bytes)}" in text
    assert "pass 1 of 2: keys for drop_exact_duplicates, then merge them (blocks of 16 MB, " in text
    assert text.endswith("read → map_partitions(<lambda>) → drop_exact_duplicates → write")
    assert made.drawing() in made._repr_html_()
    assert dataclasses.replace(made, stages=()).drawing() == ""
    kept = dataclasses.replace(made, held_bytes=20_000_000).drawing()
    assert re.findall(r"> ?([a-z ]+ [\d.]+ [GM]B)<", kept)[2] == "what steps keep in each worker 40 MB"
    assert "width:2.0%" in kept


def test_a_pass_that_two_outputs_share_is_planned_once(plan):
    shared = plan(without_duplicates, lambda docs: without_duplicates(docs).pipe(cdf.keep_where, "id > 0"))
    assert [stage.title for stage in shared.stages][-1] == "write"
    assert len(shared.stages) == 2


def test_more_outputs_need_more_memory(plan):
    one, two = plan(as_it_is), plan(as_it_is, lambda docs: docs.pipe(cdf.keep_where, "id > 0"))
    assert two.stages[-1].task_factor > one.stages[-1].task_factor


def test_the_memory_that_this_process_has_taken_is_told_in_a_refusal(plan):
    layout = dataclasses.replace(LAYOUT, client_bytes=300_000_000)
    with pytest.raises(BudgetError, match="this process has used 300 MB since the cluster started"):
        plan(as_it_is, blocksize="1GB", layout=layout)


def splits_words(docs):
    return docs.map_partitions(lambda block: block[[len(text.split()) > 1 for text in block["text"]]], meta=docs._meta)


def test_a_plan_says_that_it_cannot_know_what_a_function_of_the_user_needs_and_where_that_ends(plan):
    assert all(label != "assumed" for label, _ in plan(without_duplicates).lines())
    [said] = [value for label, value in plan(splits_words).lines() if label == "assumed"]
    assert said.startswith(
        "1.5 x block for map_partitions(<lambda>). A function that makes Python objects may need more"
    )
    assert "up to 1.94 GB, where allocations fail" in said


def test_a_plan_asks_once_whether_the_passes_of_a_step_are_stored(plan, monkeypatch):
    """On an object store, each question is a request."""
    asked = []
    monkeypatch.setattr(Pending, "is_stored", property(asked.append))
    twice = plan(lambda docs: without_duplicates(docs.pipe(cdf.add_ids, into="number", dense=True)))
    assert len(twice.stages) == 3
    assert len(asked) == 2


def test_a_pending_step_is_asked_with_the_rows_whether_it_has_room(plan, monkeypatch):
    def refuse(pending, name, rows, layout):
        asked.append((name, rows))
        raise BudgetError(f"{name} has {layout.thread_bytes} bytes")

    asked = []
    plan(without_duplicates)
    monkeypatch.setattr(Pending, "require_room", refuse)
    with pytest.raises(BudgetError, match=r"drop_exact_duplicates has \d+ bytes"):
        plan(without_duplicates)
    assert [name for name, _ in asked] == ["drop_exact_duplicates"]


def as_it_was(block):
    return block


def priced(*prices):
    """Return a chain with a kernel of each price."""
    kernels = [BlockKernel(f"step {number}", as_it_was, price=price) for number, price in enumerate(prices)]
    return lambda docs: functools.reduce(lambda df, kernel: map_blocks(df, kernel, meta=df._meta), kernels, docs)


def test_each_concurrent_task_has_the_fixed_memory_of_a_step_beyond_its_room(plan):
    layout = dataclasses.replace(LAYOUT, threads=3)
    within, beyond = (
        plan(priced(Price(0.5, fixed_bytes=KERNEL_FIXED_BYTES + more_bytes)), layout=layout).held_bytes
        for more_bytes in (0, 5_000_000)
    )
    assert beyond - within == 3 * 5_000_000


@pytest.mark.parametrize(("cpus", "calls"), [(1, 4), (2, 2), (4, 1)])
def test_each_call_that_may_run_at_once_has_its_own_memory(plan, cpus, calls):
    layout = dataclasses.replace(LAYOUT, threads=4)
    limited = Price(0.5, resources=cdf.resources(cpus=cpus))
    without, with_memory = (
        plan(priced(dataclasses.replace(limited, resource_bytes=call_bytes)), layout=layout).held_bytes
        for call_bytes in (0, 5_000_000)
    )
    assert with_memory - without == calls * 5_000_000


def test_a_model_that_steps_share_is_held_once_and_their_own_memory_in_addition(plan):
    shared = Price(0.5, held_bytes=90_000_000, shared={"model": 80_000_000})
    none, one, two = (plan(priced(*[shared] * steps)).held_bytes for steps in range(3))
    assert (one - none, two - none) == (90_000_000, 100_000_000)


def test_packages_that_earlier_runs_left_count_unless_a_step_counts_them_itself(plan):
    layout = dataclasses.replace(LAYOUT, kept=(("torch", 300_000_000), ("spacy", 50_000_000)))
    steps = priced(Price(0.5, held_bytes=310_000_000, libraries={"torch": 300_000_000}))
    assert plan(steps, layout=layout).held_bytes - plan(steps).held_bytes == 50_000_000
