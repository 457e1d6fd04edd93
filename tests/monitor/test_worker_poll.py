# SPDX-License-Identifier: Apache-2.0
"""A worker that does not answer holds up no other, and is asked again only when it has answered."""

import asyncio
import gc
import socket
import threading
import time
from types import SimpleNamespace

import pytest

from curator_df.monitor import memory_monitor as worker_poll
from curator_df.monitor.memory_monitor import WorkerPoll
from curator_df.monitor.workers import ProcessReading, read_process


class Client:
    """A client whose workers answer when they are let, in an event loop of its own."""

    status = "running"

    def __init__(self, *workers):
        self.workers, self.asked, self.spilled, self.fails = list(workers), [], 0, False
        self.scheduler_host, self.scheduler_asked = "node", 0
        self.answers = asyncio.Event()
        self.loop = SimpleNamespace(asyncio_loop=asyncio.new_event_loop())
        self.scheduler = SimpleNamespace(ncores=self.ncores)
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def run(self):
        loop = self.loop.asyncio_loop
        loop.run_forever()
        loop.run_until_complete(cancelled(asyncio.all_tasks(loop)))  # as asyncio.run does, and so a client
        loop.close()

    def call(self, function):
        self.loop.asyncio_loop.call_soon_threadsafe(function)

    async def ncores(self, workers):
        if self.fails:
            raise OSError("the scheduler went away")
        return dict.fromkeys(self.workers, 1)

    async def _run_on_scheduler(self, function):
        assert function is read_process
        self.scheduler_asked += 1
        return ProcessReading(self.scheduler_asked, 2, 1, 1, self.scheduler_host, 7)

    async def _run(self, function, *, with_gpus, workers, on_error):
        (address,) = workers
        self.asked.append(address)
        if address == "stopped":
            await self.answers.wait()
        if address == "gone":
            return {}
        return {address: SimpleNamespace(name=address, spilled_bytes=self.spilled)}


async def cancelled(tasks):
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


@pytest.fixture
def make(monkeypatch):
    monkeypatch.setattr(worker_poll, "ANSWER_SECONDS", 0.2)
    made = []

    def start(*workers):
        made.append(Client(*workers))
        return made[-1], WorkerPoll(made[-1])

    yield start
    for client in made:
        client.call(client.loop.asyncio_loop.stop)
        client.thread.join()


def settled(poll, is_so):
    deadline = time.monotonic() + 20
    while not is_so():
        assert time.monotonic() < deadline
        poll.ask()
        time.sleep(0.01)


def test_others_are_heard_while_one_is_stopped_and_it_is_heard_again(make):
    client, poll = make("one", "stopped", "gone")
    poll.ask()  # waits for answers, and no longer than it is told to
    assert set(poll.heard()) == {"one"}
    settled(poll, lambda: client.asked.count("one") > 3)
    assert client.asked.count("stopped") == 1
    client.call(client.answers.set)
    settled(poll, lambda: set(poll.heard()) == {"one", "stopped"})
    settled(poll, lambda: client.asked.count("stopped") > 1)


def test_a_scheduler_is_asked_again_where_it_is_on_another_machine(make):
    client, poll = make("one")
    settled(poll, lambda: client.asked.count("one") > 3)
    assert poll.scheduler == ProcessReading(client.scheduler_asked, 2, 1, 1, "node", 7)
    assert client.scheduler_asked > 3
    client, poll = make("one")
    client.scheduler_host = socket.gethostname()
    settled(poll, lambda: client.asked.count("one") > 3)
    assert client.scheduler_asked == 1  # the monitor reads its memory by the number of its process


def test_bytes_spilled_between_two_answers_are_a_rate(make):
    client, poll = make("one")
    poll.ask()
    first = poll.heard()["one"]
    assert first.spill_rate is None
    client.spilled = 1_000
    settled(poll, lambda: (poll.heard()["one"].spill_rate or 0) > 0)
    assert poll.heard()["one"].seconds > first.seconds


def test_workers_that_went_are_forgotten_and_an_error_is_told_once(make):
    client, poll = make("one", "two")
    poll.ask()
    client.workers.remove("two")
    settled(poll, lambda: set(poll.heard()) == {"one"})
    client.fails = True
    with pytest.raises(OSError, match="the scheduler went away"):
        settled(poll, lambda: False)
    client.status = "closed"
    poll.ask()
    assert set(poll.heard()) == {"one"}


def test_nothing_is_waited_for_after_the_end(make):
    client, poll = make("stopped")
    poll.ask()
    loop = client.loop.asyncio_loop
    assert asyncio.all_tasks(loop)
    poll.close()
    deadline = time.monotonic() + 20
    while asyncio.all_tasks(loop):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_client_that_closes_meanwhile_leaves_no_coroutine_behind(make):
    client, poll = make("one")
    poll.ask()
    loop = client.loop.asyncio_loop
    client.call(loop.stop)
    client.thread.join()
    dropped = []
    client.loop.asyncio_loop = SimpleNamespace(call_soon_threadsafe=lambda *call: dropped.append(call))
    poll.ask()  # the loop ended before the call came to its turn
    client.loop.asyncio_loop = loop
    client.call = lambda _: None
    assert len(dropped) == 1
    dropped.clear()
    gc.collect()  # pytest makes an error of a coroutine that was never awaited
