# SPDX-License-Identifier: Apache-2.0
"""Exact duplicates that are dropped while the rows are written: the same rows as with a pass for their keys."""

import contextlib
import gzip
import json
import os
import random
import subprocess
import sys
import threading

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest

import curator_df as cdf
from curator_df.core.planning import one_pass
from curator_df.core.planning.lowering import lower
from curator_df.core.ranges.range_action import NeedsPassesError, NotItsTurnError
from curator_df.core.runner import run
from curator_df.errors import RowCountError
from curator_df.exchange import key_drop
from curator_df.exchange.key_drop import InOrder, KeepFirst, OrderedKeys, RangeInTurn, key_file
from curator_df.files.storage import Folder
from tests.core.runner.fake_client import inline_cluster

NEVER = 1 << 60


@pytest.fixture(scope="module", autouse=True)
def cluster():
    with inline_cluster(memory="2GB", cpus=2) as running:
        yield running


@pytest.fixture(autouse=True)
def small_inputs(monkeypatch):
    monkeypatch.setattr(one_pass, "LEAST_BYTES", 0)
    monkeypatch.setattr(run, "SMALL_RANGE_BYTES", 1_800)


@pytest.fixture
def docs(tmp_path):
    chance, number = random.Random(5), 0
    (tmp_path / "in").mkdir()
    for file in range(3):
        with open(tmp_path / f"in/{file}.jsonl", "w") as out:
            for _ in range(120):
                text = chance.choice([None, "", *(f"text {n}" for n in range(60))])
                out.write(json.dumps({"id": number, "text": text, "n": chance.randrange(2)}) + "\n")
                number += 1
    return cdf.read_jsonl(tmp_path / "in")


@pytest.fixture
def expected(docs, tmp_path, monkeypatch):
    """What two passes write."""
    with monkeypatch.context() as patched:
        patched.setattr(one_pass, "LEAST_BYTES", NEVER)
        cdf.write_parquet(docs.curate.drop_exact_duplicates(), tmp_path / "two")
    return rows_in(tmp_path / "two")


def rows_in(folder):
    return pd.concat([pq.read_table(path).to_pandas() for path in sorted(folder.glob("*.parquet"))], ignore_index=True)


def passes(receipt):
    """Return why the keys of a run were compared in passes of their own."""
    return [event.text for event in receipt.events if event.kind == "passes"]


@pytest.mark.parametrize("range_bytes", [300, 1_800, 100_000], ids=["many ranges", "several", "one for all files"])
@pytest.mark.parametrize("subset", ["text", ["text", "n"]])
def test_the_same_rows_go_for_the_same_reasons_as_with_two_passes(docs, tmp_path, monkeypatch, range_bytes, subset):
    monkeypatch.setattr(run, "SMALL_RANGE_BYTES", range_bytes)
    monkeypatch.setattr(run, "RANGE_BYTES", max(range_bytes, 300))
    left = docs.pipe(cdf.keep_where, "id % 7 != 3").pipe(cdf.drop_exact_duplicates, subset=subset)
    left = left.pipe(cdf.keep_where, "id % 5 != 1")
    receipts = {}
    for name, least_bytes in (("one", 0), ("two", NEVER)):
        monkeypatch.setattr(one_pass, "LEAST_BYTES", least_bytes)
        receipts[name] = cdf.write_parquet(left, tmp_path / name, rejects=tmp_path / f"{name}-rejects")
    one, two = receipts["one"], receipts["two"]
    assert not passes(one) and one.exchanges[0].hash_ranges == 0 and two.exchanges[0].hash_ranges > 0
    assert "compared while rows were written" in str(one)
    for name in ("one", "one-rejects"):
        pd.testing.assert_frame_equal(rows_in(tmp_path / name), rows_in(tmp_path / name.replace("one", "two")))
    for figure in ("rows_read", "rows_written", "rows_dropped", "ranges"):
        assert getattr(one, figure) == getattr(two, figure)
    assert [vars(step) | {"seconds": 0} for step in one.steps[1:-1]] == [
        vars(step) | {"seconds": 0} for step in two.steps[1:-1]
    ]
    assert (one.exchanges[0].keys, one.exchanges[0].unique) == (two.exchanges[0].keys, two.exchanges[0].unique)
    assert not (tmp_path / "one/_curator/stages").exists()


def interrupt(docs, tmp_path, monkeypatch, at=5, **options):
    """Run until a range has decided which rows it keeps, and is not yet written."""
    decided = RangeInTurn.decided

    def stop(ranges, step):
        if ranges._number == at:
            list(decided(ranges, step))
            raise KeyboardInterrupt
        yield from decided(ranges, step)

    with monkeypatch.context() as patched:
        patched.setattr(RangeInTurn, "decided", stop)
        with pytest.raises(KeyboardInterrupt):
            cdf.write_parquet(docs.curate.drop_exact_duplicates(), tmp_path / "one", **options)


def resumed(docs, tmp_path):
    return cdf.write_parquet(docs.curate.drop_exact_duplicates(), tmp_path / "one", on_existing="resume")


def test_a_resumed_run_knows_the_keys_of_the_finished_ranges(docs, expected, tmp_path, monkeypatch):
    interrupt(docs, tmp_path, monkeypatch)
    receipt = resumed(docs, tmp_path)
    assert receipt.ranges_resumed == 5
    assert not passes(receipt)
    pd.testing.assert_frame_equal(rows_in(tmp_path / "one"), expected)


DECIDES = []


def keeps_other_rows(block):
    return block["id"] % 2 == len(DECIDES)


def test_other_rows_are_decided_from_the_beginning_with_overwrite(docs, tmp_path, monkeypatch):
    DECIDES.clear()
    docs = docs.curate.keep_where(keeps_other_rows)
    interrupt(docs, tmp_path, monkeypatch, workdir=tmp_path / "work")
    DECIDES.append(1)
    left = docs.curate.drop_exact_duplicates()
    cdf.write_parquet(left, tmp_path / "one", workdir=tmp_path / "work", on_existing="overwrite")
    assert (rows_in(tmp_path / "one")["id"] % 2 == 1).all()


def test_no_decision_stays_in_workdir_if_the_run_ends_in_two_passes(docs, expected, tmp_path, monkeypatch):
    interrupt(docs, tmp_path, monkeypatch, workdir=tmp_path / "work")
    assert list((tmp_path / "work").rglob("*.keys"))
    monkeypatch.setattr(one_pass, "LEAST_BYTES", NEVER)
    left = docs.curate.drop_exact_duplicates()
    cdf.write_parquet(left, tmp_path / "one", workdir=tmp_path / "work", on_existing="resume")
    assert not list((tmp_path / "work").rglob("*.keys"))
    pd.testing.assert_frame_equal(rows_in(tmp_path / "one"), expected)


@pytest.mark.parametrize("damage", ["flip", "cut", "delete"])
def test_damaged_keys_are_found_again_in_a_pass(docs, expected, tmp_path, monkeypatch, damage):
    interrupt(docs, tmp_path, monkeypatch)
    [path] = (tmp_path / "one/_curator/stages").glob(f"*/{key_file(2)}")
    content = bytearray(path.read_bytes())
    content[40] ^= 1
    path.write_bytes(content if damage == "flip" else content[:-5])
    if damage == "delete":
        path.unlink()
    receipt = resumed(docs, tmp_path)
    assert receipt.ranges_resumed == 5
    assert len(passes(receipt)) == 1
    pd.testing.assert_frame_equal(rows_in(tmp_path / "one"), expected)


def test_a_run_that_began_in_one_way_is_resumed_in_the_other(docs, expected, tmp_path, monkeypatch):
    interrupt(docs, tmp_path, monkeypatch)
    with monkeypatch.context() as patched:
        patched.setattr(one_pass, "LEAST_BYTES", NEVER)
        interrupted_again = pytest.raises(KeyboardInterrupt)
        patched.setattr(run._Target, "finish", lambda _: (_ for _ in ()).throw(KeyboardInterrupt))
        with interrupted_again:
            resumed(docs, tmp_path)
    receipt = resumed(docs, tmp_path)
    assert "an earlier call" in passes(receipt)[0]
    pd.testing.assert_frame_equal(rows_in(tmp_path / "one"), expected)


@pytest.mark.parametrize(
    ("module", "names", "reason"),
    [
        (key_drop, {"ROW_RESERVE": 0.0, "LEAST_KEYS": 40}, "more keys than the 40"),
        (one_pass, {"HELD_FACTOR": 0.0, "ROW_BYTES": 0, "HELD_FIXED_BYTES": 500}, "take more memory than was expected"),
    ],
)
def test_what_does_not_fit_after_all_goes_on_with_two_passes(
    docs, expected, tmp_path, monkeypatch, module, names, reason
):
    for name, value in names.items():
        monkeypatch.setattr(module, name, value)
    receipt = cdf.write_parquet(docs.curate.drop_exact_duplicates(), tmp_path / "one")
    assert reason in passes(receipt)[0]
    assert receipt.rows_read == 360
    assert [one.hash_ranges for one in receipt.exchanges] == [1]
    pd.testing.assert_frame_equal(rows_in(tmp_path / "one"), expected)


def test_the_plan_has_one_pass_and_its_memory(docs, monkeypatch):
    plan = cdf.explain(docs.curate.drop_exact_duplicates(), memory="1GB", cpus=2)
    assert [stage.title for stage in plan.stages] == ["write"]
    assert "one pass" in dict(plan.lines())
    monkeypatch.setattr(one_pass, "LEAST_BYTES", NEVER)
    other = cdf.explain(docs.curate.drop_exact_duplicates(), memory="1GB", cpus=2)
    assert len(other.stages) == 2
    assert plan.held_bytes > other.held_bytes


@pytest.mark.parametrize(
    "options", [{"keep": "last"}, {"keep": "longest"}, {"keep": "none"}, {"count_into": "copies"}], ids=str
)
def test_other_drops_have_a_pass_of_their_own(docs, options):
    assert len(cdf.explain(docs.curate.drop_exact_duplicates(**options)).stages) == 2


def test_keys_that_would_take_most_of_the_memory_have_a_pass_of_their_own(docs, monkeypatch):
    monkeypatch.setattr(key_drop, "LEAST_KEYS", 100_000_000)
    assert len(cdf.explain(docs.curate.drop_exact_duplicates(), memory="1GB", cpus=2).stages) == 2


def test_only_the_last_drop_of_a_chain_is_decided_in_order(docs, tmp_path):
    left = docs.curate.drop_exact_duplicates().curate.drop_exact_duplicates(subset="n")
    assert len(cdf.explain(left).stages) == 2
    receipt = cdf.write_parquet(left, tmp_path / "out")
    assert [one.hash_ranges for one in receipt.exchanges] == [1, 0]
    assert receipt.rows_written == 2


def test_several_outputs_have_passes_for_their_keys(docs, tmp_path):
    left = docs.curate.drop_exact_duplicates()
    receipts = cdf.write_many({str(tmp_path / "a"): left, str(tmp_path / "b"): left.curate.keep_where("n == 1")})
    assert all(one.hash_ranges for receipt in receipts.values() for one in receipt.exchanges)


@pytest.fixture
def ordered(docs, tmp_path, monkeypatch):
    monkeypatch.setattr(key_drop, "PATIENCE_SECONDS", 0.2)
    [step] = lower(docs.curate.drop_exact_duplicates()).steps
    found = OrderedKeys(Folder(str(tmp_path / "keys")), InOrder(1_000, 1_000_000), "a run")
    return KeepFirst(step.pending, found)


def go_on():
    """Not stop."""


def block_of(texts, first):
    column = pd.array(texts, dtype="string[pyarrow]")
    return pd.DataFrame({"text": column}, index=pd.RangeIndex(first, first + len(texts), name="address"))


def kept_of(ranges):
    return [text for _, outcome in ranges.decided("drop") for text in outcome.block["text"].tolist()]


def test_a_range_waits_while_the_one_before_it_runs_and_gives_up_when_it_does_not(ordered):
    first, second = ordered.of_range(0), ordered.of_range(1)
    first.run(block_of(["a", "b", "a"], 0))
    second.run(block_of(["b", "c"], 10))

    def wait():
        with contextlib.suppress(NotItsTurnError):
            second.wait(go_on)

    waiting = threading.Thread(target=wait)
    waiting.start()
    waiting.join(3 * key_drop.PATIENCE_SECONDS)
    assert waiting.is_alive()
    first.close()  # its task failed
    third = ordered.of_range(2)
    with pytest.raises(NotItsTurnError, match="waits for 0"):
        third.wait(go_on)
    again = ordered.of_range(0)
    again.run(block_of(["a", "b", "a"], 0))
    again.wait(go_on)
    assert kept_of(again) == ["a", "b"]
    waiting.join()
    second = ordered.of_range(1)
    second.run(block_of(["b", "c"], 10))
    second.wait(go_on)
    assert kept_of(second) == ["c"]


def test_a_range_that_waits_stops_when_its_task_has_to(ordered):
    def stop():
        raise KeyboardInterrupt

    first, second = ordered.of_range(0), ordered.of_range(1)
    for ranges in (first, second):  # also if its turn has come
        with pytest.raises(KeyboardInterrupt):
            ranges.wait(stop)
        ranges.close()


FORKING = """
import os, sys, time
from curator_df.exchange.key_drop import InOrder, OrderedKeys
from curator_df.files.storage import Folder

found = OrderedKeys(Folder(sys.argv[1]), InOrder(1, 1), "a run")
for number in range(2):
    found.begin(number)
child = os.fork()
if not child:
    os.close(1)
    time.sleep(60)
    os._exit(0)
found.end(0)
print(child, found.is_running(0), found.is_running(1), flush=True)
sys.stdin.read()
os._exit(1)
"""


def test_a_process_that_a_step_forked_does_not_run_the_range(ordered, tmp_path):
    with subprocess.Popen(
        [sys.executable, "-c", FORKING, str(tmp_path / "keys")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as parent:
        child, *running = parent.stdout.readline().split()
        try:
            assert running == ["False", "True"]
            assert [ordered.found.is_running(number) for number in range(2)] == [False, True]
            parent.stdin.close()
            parent.wait()
            assert not ordered.found.is_running(1)
            os.kill(int(child), 0)  # it is alive
        finally:
            os.kill(int(child), 9)


def test_a_range_that_two_tasks_run_ends_with_the_last(ordered):
    tasks = [ordered.of_range(0), ordered.of_range(0)]
    for task in tasks:
        assert ordered.found.is_running(0)
        task.close()
        task.close()
    assert not ordered.found.is_running(0)


def test_a_range_that_runs_again_keeps_the_same_rows_and_refuses_others(ordered):
    for _ in range(2):
        ranges = ordered.of_range(0)
        ranges.run(block_of(["a", "b", "a"], 0))
        ranges.wait(go_on)
        assert kept_of(ranges) == ["a", "b"]
    ranges = ordered.of_range(0)
    ranges.run(block_of(["a", "c", "a"], 0))
    with pytest.raises(RowCountError, match="gave different results"):
        kept_of(ranges)


def test_a_decision_that_could_not_be_stored_is_forgotten(ordered, monkeypatch):
    ranges = ordered.of_range(0)
    ranges.run(block_of(["a", "b"], 0))
    with monkeypatch.context() as patched:
        patched.setattr(OrderedKeys, "write", lambda *_: (_ for _ in ()).throw(OSError("no space")))
        ordered.found.in_process()
        patched.setattr(key_drop, "KeyTable", None)  # a second table would not fit
        with pytest.raises(OSError, match="no space"):
            kept_of(ranges)
    ranges = ordered.of_range(0)
    ranges.run(block_of(["b"], 1))
    assert kept_of(ranges) == ["b"]


def test_rows_in_another_order_are_refused(ordered):
    ranges = ordered.of_range(0)
    with pytest.raises(RowCountError, match="reordered or repeated"):
        ranges.run(block_of(["a", "b"], 0)[::-1])


def test_the_keys_of_a_range_are_stored_whole_or_not_at_all(ordered):
    keys = np.arange(9, dtype=np.uint64).reshape(3, 3)
    ordered.found.write(4, 7, 11, keys)
    rows, checksum, read = ordered.found.read(4)
    assert (rows, checksum, read.tolist()) == (7, 11, keys.tolist())
    with pytest.raises(NeedsPassesError, match="damaged"):
        ordered.found.read(5)


IS_FULL = []
"""Not empty while `fails_where_memory_is_short` fails: rows that wait for their turn leave little memory to a step."""


def fails_where_memory_is_short(block):
    if IS_FULL and (block["id"] == 7).any():
        raise MemoryError
    return block["id"] >= 0


@pytest.mark.parametrize("on_oom", ["retry", "raise"])
def test_a_row_that_lacks_memory_where_rows_wait_is_written_in_two_passes(
    docs, expected, tmp_path, monkeypatch, on_oom
):
    def in_passes(*args):
        IS_FULL.clear()
        return one_pass.passes_after(*args)

    docs = docs.curate.keep_where(fails_where_memory_is_short)
    monkeypatch.setattr(run, "passes_after", in_passes)
    IS_FULL.append(True)
    receipt = cdf.write_parquet(docs.curate.drop_exact_duplicates(), tmp_path / "one", on_oom=on_oom)
    assert "memory" in passes(receipt)[0]
    assert receipt.rows_quarantined == 0
    pd.testing.assert_frame_equal(rows_in(tmp_path / "one"), expected)


def test_passes_are_chosen_where_one_pass_has_no_room_or_smaller_blocks(docs):
    left = docs.curate.drop_exact_duplicates()
    for memory in ("600MB", "700MB", "800MB", "1GB", "2GB"):
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(one_pass, "HELD_FIXED_BYTES", 60_000_000)
            one = cdf.explain(left, memory=memory, cpus=2)
            patched.setattr(one_pass, "LEAST_BYTES", NEVER)
            two = cdf.explain(left, memory=memory, cpus=2)
        assert one.stages[-1].block_bytes == two.stages[-1].block_bytes
    assert len(one.stages) == 1


def test_the_largest_part_of_a_file_is_expected_to_wait(tmp_path):
    lines = "".join(json.dumps({"text": f"text {n * n}"}) + "\n" for n in range(5_000))
    for name, times in (("a", 1), ("b", 9)):
        with gzip.open(tmp_path / f"{name}.jsonl.gz", "wt") as file:
            file.write(lines * times)
        pd.DataFrame({"text": lines.split("\n") * times}).to_parquet(
            tmp_path / f"{name}.parquet", row_group_size=5_000 * times
        )
    for docs in (cdf.read_jsonl(tmp_path / "*.gz"), cdf.read_parquet(tmp_path / "*.parquet")):
        source = lower(docs).source
        mean_bytes = source.text_bytes // 2
        largest_bytes = one_pass.largest_text(source, source.cut(source.text_bytes))
        assert mean_bytes <= largest_bytes <= source.text_bytes
        assert one_pass.largest_text(source, source.cut(1_000)) <= source.text_bytes
    source = lower(cdf.read_jsonl(tmp_path / "*.gz")).source
    assert one_pass.largest_text(source, source.cut(1_000)) > 0.8 * source.text_bytes
