# SPDX-License-Identifier: Apache-2.0
"""A table is built while a cluster starts. If that fails, the error is raised where the table is requested."""

from contextlib import nullcontext

import pytest

from curator_df.cluster.beside_start import (
    beside_start,
    make_beside_start,
    started_with,
)
from curator_df.memory.budget import choose_layout
from curator_df.memory.small_input import SMALL_INPUT_BYTES, WHY_THREADS, bytes_of_files, small_input

pytestmark = pytest.mark.quick


def test_the_call_is_made_once_in_the_start_of_its_block():
    calls = []
    with beside_start(lambda: calls.append("made") or "table") as result:
        assert calls == []
        make_beside_start()
        make_beside_start()
        assert calls == ["made"]
    make_beside_start()
    assert (result(), result(), calls) == ("table", "table", ["made"])


def test_a_start_that_leaves_no_time_for_the_call_leaves_it_to_the_first_use():
    with started_with(nullcontext, lambda: "table") as (_, table):
        assert table == "table"


def test_an_error_of_the_call_does_not_disturb_the_start():
    with beside_start(lambda: {}["text"]) as result:
        make_beside_start()
    for _ in range(2):
        with pytest.raises(KeyError, match="text"):
            result()


def test_an_interrupt_ends_the_start():
    def interrupt():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), beside_start(interrupt):
        make_beside_start()


def test_a_call_that_is_likely_to_fail_is_made_before_anything_starts():
    started = []
    with pytest.raises(KeyError), started_with(lambda: started.append(1), lambda: {}["text"], is_first=True):
        pass
    assert started == []


def test_a_cluster_is_closed_if_the_call_failed():
    ended = []

    class Running(nullcontext):
        def __exit__(self, *_):
            ended.append(self)

    with pytest.raises(KeyError), started_with(Running, lambda: {}["text"]):
        pass
    assert len(ended) == 1


def test_the_size_of_an_input_is_that_of_its_local_files(tmp_path):
    (tmp_path / "parts" / "later").mkdir(parents=True)
    (tmp_path / "parts" / "one.jsonl").write_bytes(b"x" * 300)
    (tmp_path / "parts" / "later" / "two.jsonl").write_bytes(b"x" * 40)
    assert bytes_of_files(str(tmp_path / "parts")) == 340
    assert bytes_of_files(str(tmp_path / "parts" / "one.jsonl")) == 300
    (tmp_path / "one.jsonl.gz").write_bytes(b"x" * 100)
    assert bytes_of_files(str(tmp_path / "one.jsonl.gz")) == 400
    assert bytes_of_files(str(tmp_path / "parts" / "*.jsonl")) is bytes_of_files("s3://bucket/parts") is None
    (tmp_path / "parts" / "nowhere.jsonl").symlink_to(tmp_path / "missing")
    (tmp_path / "parts" / "itself.jsonl").symlink_to("itself.jsonl")
    assert bytes_of_files(str(tmp_path / "parts")) == 340
    (tmp_path / "parts" / "linked").symlink_to(tmp_path)  # readers follow it
    assert bytes_of_files(str(tmp_path / "parts")) is None


def test_the_files_of_a_large_input_are_not_all_counted(tmp_path, monkeypatch):
    monkeypatch.setattr("curator_df.memory.small_input.SMALL_INPUT_BYTES", 10)
    for number in range(9):
        (tmp_path / f"{number}.jsonl").write_bytes(b"x" * 6)
    assert bytes_of_files(str(tmp_path)) == 12


@pytest.mark.parametrize(
    ("input_bytes", "is_small"), [(1_000_000, True), (None, False), (SMALL_INPUT_BYTES + 1, False)]
)
def test_only_a_start_in_the_block_is_for_a_small_input(input_bytes, is_small):
    start = lambda: nullcontext(small_input.get())  # noqa: E731
    with started_with(start, lambda: "table", input_bytes=input_bytes) as (started, _):
        assert started.enter_result is is_small
        assert not small_input.get()


@pytest.mark.parametrize("allowed_bytes", [500_000_000, 1_000_000_000, 4_000_000_000])
def test_a_small_input_is_worked_on_in_threads_with_more_memory_than_worker_processes_leave(allowed_bytes):
    small, usual = (choose_layout(allowed_bytes, cpus=2, in_threads=why) for why in (WHY_THREADS, ""))
    assert (small.in_process, small.threads) == (True, 2)
    assert small.thread_bytes >= usual.thread_bytes
    assert usual.in_process or "small input" in small.reason


def test_a_small_input_does_not_need_more_memory():
    few = {"cpus": 8, "in_threads": WHY_THREADS}
    assert choose_layout(410_000_000, **few) == choose_layout(410_000_000, cpus=8)


@pytest.mark.parametrize("cpus", [1, 2, 3, 4, 8, 16])
def test_no_task_of_a_small_input_has_less_memory(cpus):
    for allowed_bytes in range(410_000_000, 1_400_000_000, 10_000_000):
        small, usual = (choose_layout(allowed_bytes, cpus=cpus, in_threads=why) for why in (WHY_THREADS, ""))
        assert small.thread_bytes >= usual.thread_bytes
        assert small.exclusive_bytes >= usual.exclusive_bytes
