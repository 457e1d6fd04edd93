# SPDX-License-Identifier: Apache-2.0
"""The second try of Dask's own tasks: when there is one, what runs beside it, and what the error says. No cluster."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import io
import logging
import pickle
import sys
import threading
import time
import weakref
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np
import pytest
from distributed.core import Status
from distributed.utils import DequeHandler
from distributed.worker_state_machine import GatherDepFailureEvent

from curator_df.errors import BudgetError, StepMemoryError
from curator_df.interactive.second_try import Gate, SecondTry, is_not_told, shown_logs, text_for_frames

WORK_BYTES = 500_000_000


class Results(dict):
    """Results that a worker holds, with the part of Dask's spill buffer that is used."""

    def __init__(self, **results: Any) -> None:
        super().__init__(results)
        self.memory = dict(results)

    def evict(self) -> int:
        self.memory.popitem()
        return 1


@pytest.fixture
def loop():
    """A running event loop, as a worker has it."""
    running = asyncio.new_event_loop()
    thread = threading.Thread(target=running.run_forever)
    thread.start()
    yield running
    running.call_soon_threadsafe(running.stop)
    thread.join()
    for task in asyncio.all_tasks(running):
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            running.run_until_complete(task)
    running.close()


@pytest.fixture
def plugin(loop):
    worker = SimpleNamespace(
        executors={"default": SimpleNamespace(submit=None)},
        handlers={"get_data": None},
        gather_dep=None,
        rpc=SimpleNamespace(available={}, semaphore=mock.Mock()),
        data=Results(a=1, b=2),
        status=Status.running,
        transfer_outgoing_count=0,
        transfer_outgoing_count_limit=3,
        loop=SimpleNamespace(asyncio_loop=loop),
        memory_manager=SimpleNamespace(memory_limit=0),
    )
    plugin = SecondTry(WORK_BYTES)
    plugin.setup(worker)
    return plugin


def failing(times: int, error: BaseException) -> Callable[[], dict[str, Any]]:
    """Return a task that fails so many times, in the form of Dask's messages, and then ends well."""
    failed = []

    def call() -> dict[str, Any]:
        if len(failed) < times:
            failed.append(1)
            return {"op": "task-erred", "actual_exception": error, "start": 0.0, "stop": 0.0, "thread": 1}
        return {"op": "task-finished", "result": len(failed)}

    return call


def test_a_task_that_runs_out_of_memory_once_ends_well(plugin):
    assert plugin.run(failing(1, MemoryError()), "split") == {"op": "task-finished", "result": 1}


def test_results_are_spilled_before_the_second_try(plugin):
    plugin.run(failing(1, MemoryError()), "split")
    assert plugin._worker.data.memory == {}


def test_another_error_is_not_tried_again(plugin):
    message = plugin.run(failing(1, ValueError("no")), "split")
    assert message["op"] == "task-erred"
    assert isinstance(message["actual_exception"], ValueError)
    assert plugin._worker.data.memory


def test_a_task_that_fails_twice_is_a_budget_error_that_names_it(plugin):
    message = plugin.run(failing(2, MemoryError("malloc of 9 bytes failed")), "split")
    error = message["actual_exception"]
    assert isinstance(error, BudgetError)
    assert "'split' ran out of memory twice" in str(error)
    assert "500 MB" in str(error)
    assert str(error).endswith("Cause: MemoryError: malloc of 9 bytes failed")
    assert message["status"] == "error"


def test_a_task_that_fails_twice_keeps_the_line_of_the_user(plugin):
    names: dict = {}
    exec(compile("def takes(block):\n    raise MemoryError\n", "/tmp/cells/3.py", "exec"), names)
    with pytest.raises(MemoryError) as found:
        names["takes"](None)
    cause = found.value
    cause.__traceback__ = cause.__traceback__.tb_next  # without the frame of this test
    error = pickle.loads(pickle.dumps(plugin.run(failing(2, cause), "takes")["actual_exception"]))
    assert error.user_frames == [("/tmp/cells/3.py", 2, "takes")]
    assert cause.__traceback__ is None


def test_a_library_that_lacks_memory_twice_is_not_shown(plugin):
    with pytest.raises(MemoryError) as found:
        np.ones(1 << 50)
    cause = found.value
    cause.__traceback__ = cause.__traceback__.tb_next  # without the frame of this test
    assert plugin.run(failing(2, cause), "split")["actual_exception"].user_frames == []


def test_a_cause_deep_in_the_chain_counts(plugin):
    shuffle = RuntimeError("P2P failed during transfer phase")
    shuffle.__cause__ = MemoryError()
    assert plugin.run(failing(1, shuffle), "shuffle-transfer")["op"] == "task-finished"


def test_a_message_that_cannot_be_made_for_want_of_memory_is_tried_again(plugin):
    calls = []

    def call() -> dict[str, Any]:
        calls.append(1)
        if len(calls) == 1:
            raise MemoryError
        return {"op": "task-finished"}

    assert plugin.run(call, "split") == {"op": "task-finished"}


def test_an_error_of_ours_is_not_tried_again(plugin):
    error = BudgetError("said on purpose")
    assert plugin.run(failing(1, error), "read")["actual_exception"] is error


@pytest.mark.parametrize("status", [Status.paused, Status.running])
def test_a_paused_worker_spills_its_results_and_returns_free_pages(plugin, monkeypatch, status):
    released = threading.Event()
    monkeypatch.setattr("curator_df.interactive.second_try.release_free_memory", released.set)
    monkeypatch.setattr("curator_df.interactive.second_try.SECONDS_BETWEEN_PAUSED", 0.01)
    plugin._worker.status = status
    assert released.wait(10 if status == Status.paused else 0.7) == (status == Status.paused)
    assert bool(plugin._worker.data.memory) == (status == Status.running)


def test_a_paused_worker_goes_on_after_an_error_and_tries_less_often_in_vain(plugin, monkeypatch):
    called, enough = [], threading.Event()

    def release() -> None:
        called.append(time.monotonic())
        if len(called) == 5:
            enough.set()
        raise OSError("no space left")

    monkeypatch.setattr("curator_df.interactive.second_try.release_free_memory", release)
    monkeypatch.setattr("curator_df.interactive.second_try.SECONDS_BETWEEN_PAUSED", 0.05)
    plugin._worker.status = Status.paused
    assert enough.wait(10)
    assert called[-1] - called[0] >= 0.05 * (2 + 4 + 8 + 16)


def paused_at(plugin, monkeypatch, used_bytes, **manager):
    """Pause the worker of a plugin, whose process uses so many bytes by now; return its memory manager."""
    monkeypatch.setattr("curator_df.interactive.second_try.SECONDS_BETWEEN_PAUSED", 0.01)
    plugin._worker.monitor = SimpleNamespace(get_process_memory=lambda: used_bytes[0])
    settings = {"memory_limit": 500_000_000, "memory_pause_fraction": 0.8, **manager}
    plugin._worker.memory_manager = SimpleNamespace(**settings)
    plugin._worker.status = Status.paused
    return plugin._worker.memory_manager


def becomes(condition: Callable[[], bool], seconds: float = 10) -> bool:
    """Return whether a condition holds before the time is over."""
    deadline = time.monotonic() + seconds
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.01)
    return condition()


@pytest.fixture
def nothing_to_release(monkeypatch):
    monkeypatch.setattr("curator_df.interactive.second_try.release_free_memory", lambda: None)
    monkeypatch.setattr("curator_df.interactive.second_try.status_bytes", lambda field: 400_000_000)


@pytest.mark.usefixtures("nothing_to_release")
def test_an_idle_paused_worker_with_nothing_left_to_release_goes_on_until_it_has_room_again(plugin, monkeypatch):
    used_bytes = [410_000_000]
    manager = paused_at(plugin, monkeypatch, used_bytes)
    assert becomes(lambda: manager.memory_pause_fraction > 0.82)
    plugin._worker.status = Status.running  # as Dask does, whose threshold it is
    time.sleep(0.2)
    assert manager.memory_pause_fraction == pytest.approx(0.84)
    used_bytes[0] = 390_000_000
    assert becomes(lambda: manager.memory_pause_fraction == 0.8)


@pytest.mark.usefixtures("nothing_to_release")
def test_a_paused_worker_that_has_a_task_or_no_threshold_stays_as_it_is(plugin, monkeypatch):
    with plugin._gate.with_others():
        manager = paused_at(plugin, monkeypatch, [410_000_000])
        assert not becomes(lambda: manager.memory_pause_fraction != 0.8, 0.7)
    manager = paused_at(plugin, monkeypatch, [410_000_000], memory_limit=0)
    assert not becomes(lambda: manager.memory_pause_fraction != 0.8, 0.7)


def test_a_paused_worker_that_cannot_spill_goes_on_too_and_gets_its_threshold_back(plugin, monkeypatch):
    monkeypatch.setattr(Results, "evict", mock.Mock(side_effect=OSError("no space left")))
    manager = paused_at(plugin, monkeypatch, [410_000_000])
    assert becomes(lambda: manager.memory_pause_fraction > 0.82)
    plugin._worker.local_directory = "/nowhere"
    plugin.teardown(plugin._worker)
    assert manager.memory_pause_fraction == 0.8


def test_setting_up_and_tearing_down_leaves_the_executor_as_it_was(tmp_path, loop):
    executor = SimpleNamespace()
    executor.submit = submit = lambda call: call()
    worker = SimpleNamespace(
        executors={"default": executor},
        local_directory=str(tmp_path),
        handlers={"get_data": len},
        gather_dep=None,
        loop=SimpleNamespace(asyncio_loop=loop),
        status=Status.running,
    )
    (tmp_path / "parts").mkdir()  # of compressed files
    plugin = SecondTry(WORK_BYTES)
    plugin.setup(worker)
    assert executor.submit != submit
    plugin.teardown(worker)
    assert plugin._pauses.cancelled()
    assert not list(tmp_path.iterdir())
    assert "submit" not in vars(executor)


def test_one_task_alone_waits_for_the_others_and_holds_up_new_ones():
    gate, order, started, go = Gate(), [], threading.Event(), threading.Event()

    def first() -> None:
        with gate.with_others():
            started.set()
            go.wait(10)
            order.append("first")

    def alone() -> None:
        with gate.alone():
            order.append("alone")

    def later() -> None:
        with gate.with_others():
            order.append("later")

    threads = [threading.Thread(target=first)]
    threads[0].start()
    started.wait(10)
    for call, waits in ((alone, lambda: gate._waiting == 1), (later, lambda: True)):
        threads.append(threading.Thread(target=call))
        threads[-1].start()
        while not waits():
            pass
    go.set()
    for thread in threads:
        thread.join(10)
    assert order == ["first", "alone", "later"]


def lacking(times, failures, results):
    """Return Dask's fetching of results; it lacks the memory so many times, or for ever where that is None."""

    async def fetch(worker, to_gather, total_nbytes, *, stimulus_id):
        failures.append(total_nbytes)
        if times is not None and len(failures) > times:
            return results
        error = MemoryError("Unable to allocate 66.0 MiB")
        return GatherDepFailureEvent.from_exception(
            error, worker=worker, total_nbytes=total_nbytes, stimulus_id=stimulus_id
        )

    return fetch


def fetched(plugin, loop):
    call = plugin.gather_dep("tcp://other", ["getitem-1"], 68_000_000, stimulus_id="s")
    return asyncio.run_coroutine_threadsafe(call, loop).result(60)


def test_results_for_which_there_is_no_memory_are_fetched_again_after_others_were_spilled(plugin, loop):
    failures, plugin._worker.rpc.available["tcp://other"] = [], [comm := mock.Mock()]
    plugin._gather_dep = lacking(2, failures, "results")
    assert fetched(plugin, loop) == "results"
    assert failures == [68_000_000] * 3
    assert comm.abort.called
    assert plugin._worker.rpc.semaphore.release.call_count == 1
    assert not plugin._worker.data.memory


def test_tasks_whose_results_never_fit_fail_and_do_not_wait_for_ever(plugin, loop):
    waiting, told = mock.Mock(key="sum-1", run_id=7), []
    plugin._worker.state = SimpleNamespace(tasks={"getitem-1": SimpleNamespace(dependents=[waiting])})
    plugin._worker.batched_send = told.append
    plugin._gather_dep = lacking(None, [], None)
    fetched(plugin, loop)
    [message] = told
    assert (message["op"], message["key"], message["run_id"]) == ("task-erred", "sum-1", 7)
    error = pickle.loads(message["exception"].data)
    assert isinstance(error, BudgetError)
    assert str(error).startswith(
        "A worker could not fetch the results of the Dask operation 'getitem' (68 MB). It may use 500 MB, and had no memory for "
        "them, even after it had released everything else. Use smaller partitions"
    )
    assert "twice" not in str(error)  # the operation ran once
    assert str(error).endswith("Cause: MemoryError('Unable to allocate 66.0 MiB')")


def test_tasks_of_a_worker_that_closes_are_left_to_the_scheduler(plugin, loop):
    waiting, told = mock.Mock(key="sum-1", run_id=7), []
    plugin._worker.state = SimpleNamespace(tasks={"getitem-1": SimpleNamespace(dependents=[waiting])})
    plugin._worker.batched_send, plugin._worker.status = told.append, Status.closing
    plugin._gather_dep = lacking(None, [], None)
    fetched(plugin, loop)
    assert told == []


@pytest.mark.parametrize(("status", "sending"), [(Status.running, 3), (Status.paused, 1)])
def test_a_worker_that_will_answer_busy_reads_nothing_back(plugin, loop, status, sending):
    calls = []

    async def busy(comm, keys, **_):
        calls.append(keys)

    plugin._get_data, plugin._worker.data = busy, Spilled(9)
    plugin._worker.status, plugin._worker.transfer_outgoing_count = status, sending
    asyncio.run_coroutine_threadsafe(plugin.get_data("comm", ["a"]), loop).result(60)
    assert calls == [["a"]]
    assert plugin._worker.data.times == 9


class Spilled(Results):
    """Results of which one cannot be read back at first."""

    def __init__(self, times: int) -> None:
        super().__init__(a=1)
        self.times = times

    def get(self, key: str, default: Any = None) -> Any:
        self.times -= 1
        if self.times >= 0:
            raise MemoryError
        return super().get(key, default)


@pytest.mark.parametrize(("times", "sent"), [(0, 1), (2, 1), (9, 0)])
def test_a_result_that_was_spilled_is_sent_once_there_is_memory_to_read_it(plugin, loop, times, sent):
    calls = []

    async def send(comm, keys, **_):
        calls.append(keys)

    plugin._get_data, plugin._worker.data = send, Spilled(times)
    future = asyncio.run_coroutine_threadsafe(plugin.get_data("comm", ["a"]), loop)
    if not sent:
        with pytest.raises(MemoryError):
            future.result(60)
    else:
        future.result(60)
    assert len(calls) == sent


class Block:
    """A value to which a frame refers, as it does to a block."""


def test_a_log_message_keeps_the_text_of_an_error_and_not_the_blocks_of_its_frames(plugin):
    worker, logger = plugin._worker, logging.getLogger("distributed.worker.of_test")
    worker._deque_handler = DequeHandler()
    plugin.setup(worker)
    logger.addHandler(worker._deque_handler)

    def fails(block: Block) -> None:
        raise MemoryError("malloc of size 71562240 failed")

    block = Block()
    there = weakref.ref(block)
    try:
        fails(block)
    except MemoryError:
        logger.exception("Failed to pickle %s", "('getitem', 3)")
    del block
    gc.collect()
    assert there() is None
    [record] = worker._deque_handler.deque
    said = worker._deque_handler.format(record)
    assert said.startswith("Failed to pickle ('getitem', 3)\nTraceback")
    assert "in fails" in said
    worker.local_directory = "nowhere"
    plugin.teardown(worker)
    assert not worker._deque_handler.filters


class Unprintable:
    """An object of another library that cannot be shown."""

    def __str__(self) -> str:
        raise RuntimeError("cannot be shown")

    __repr__ = __str__


@pytest.mark.parametrize(
    ("message", "arguments", "kept"),
    [
        ("%d rows", ("many",), "%d rows (a log message that cannot be formatted: TypeError)"),
        ("%s and %s", ("one",), "%s and %s (a log message that cannot be formatted: TypeError)"),
        ("%(a)s", ({"b": 1},), "%(a)s (a log message that cannot be formatted: KeyError)"),
        ("all %s", (Unprintable(),), "all %s (a log message that cannot be formatted: RuntimeError)"),
        (Unprintable(), (1,), "Unprintable (a log message that cannot be formatted: RuntimeError)"),
        ("%d rows", (3,), "3 rows"),
    ],
)
def test_a_malformed_log_message_of_another_library_does_not_raise(message, arguments, kept):
    record = logging.LogRecord("other", logging.INFO, "other.py", 1, message, arguments, None)
    assert text_for_frames(record)
    assert record.getMessage() == kept


COMPUTE_FAILED = "Compute Failed\nKey:       %s\nException: %r\nTraceback: %r\n"  # as distributed 2026.7.1 logs it


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (BudgetError("ran out of memory twice"), True),
        (StepMemoryError("step 'f' shares memory"), True),
        (ValueError("BudgetError(a word of the user)"), False),
    ],
)
def test_a_failure_that_the_client_raises_is_not_logged_to_the_terminal_too(error, told):
    record = logging.LogRecord("distributed.worker", 40, "worker.py", 1, COMPUTE_FAILED, ("k", repr(error), ""), None)
    assert is_not_told(record) is not told
    text_for_frames(record)
    assert is_not_told(record) is not told


def test_only_what_dask_writes_to_the_terminal_is_filtered(tmp_path, monkeypatch):
    terminal, other = io.StringIO(), io.StringIO()
    monkeypatch.setattr(sys, "stderr", terminal)
    shown, kept = logging.StreamHandler(terminal), logging.StreamHandler(other)
    with (tmp_path / "job.log").open("w") as file:
        to_file = logging.StreamHandler(file)
        monkeypatch.setattr(logging.getLogger("distributed"), "handlers", [shown, kept, to_file])
        assert shown_logs() == [shown]
        monkeypatch.setattr(sys, "stderr", file)  # of a batch job
        assert shown_logs() == []
