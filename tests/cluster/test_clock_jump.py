# SPDX-License-Identifier: Apache-2.0
"""A clock that is set back between two messages holds up the second one in Dask as it is, and does not where we look."""

import asyncio
import time
from types import SimpleNamespace

import pytest
from distributed import Client, LocalCluster, batched

from curator_df.cluster import clock_jump as clock

DAY = 86_400
REAL = time.time


class Comm:
    """What is written is kept; while the first message is written something happens."""

    def __init__(self, on_first_write):
        self.written, self._on_first_write = [], on_first_write

    async def write(self, payload, **_):
        self.written += payload
        if len(self.written) == 1:
            self._on_first_write()
        return 1

    def closed(self):
        return False

    async def close(self):
        self.written.append("closed")


@pytest.mark.parametrize("comes_back", [False, True])
@pytest.mark.parametrize("looks", [False, True])
def test_a_message_that_waits_for_a_clock_that_was_set_back_is_sent(monkeypatch, looks, comes_back):
    lag = [0.0]
    for module, name in ((time, "time"), (batched, "time")):
        monkeypatch.setattr(module, name, lambda: REAL() - lag[0])
    monkeypatch.setattr(clock, "LOOK_SECONDS", 0.2)

    async def send_two():
        stream = batched.BatchedSend("2ms")

        def set_back():
            lag[0] = DAY
            stream.send("second")

        comm = Comm(set_back)
        stream.start(comm)
        there = [True]
        if looks:
            worker = SimpleNamespace(batched_stream=stream, stream_comms={})
            clock.send_what_waits(asyncio.get_running_loop(), lambda: [worker], lambda: there[0])
        stream.send("first")
        await asyncio.sleep(0.1)
        if comes_back:  # what waits goes on waiting
            lag[0] = 0
        await asyncio.sleep(0.4)
        there[0] = False
        sent = list(comm.written)
        await stream.close()
        return sent

    assert asyncio.run(send_two()) == (["first", "second"] if looks else ["first"])


def test_all_that_gathers_messages_in_this_process_is_found():
    with (
        LocalCluster(n_workers=1, threads_per_worker=1, processes=False, dashboard_address="127.0.0.1:0") as cluster,
        Client(cluster) as client,
    ):
        client.submit(int).result()
        parts = (client, cluster.scheduler, *cluster.workers.values())
        found = [stream for part in parts for stream in clock.streams_of(part)]
        assert len(found) == 4  # from the client and back, from the worker and back
        assert all(isinstance(stream, batched.BatchedSend) for stream in found)


def test_looking_ends_with_the_client_and_when_it_is_told_to(monkeypatch):
    monkeypatch.setattr(clock, "LOOK_SECONDS", 0.01)
    looked = []
    monkeypatch.setattr(clock, "streams_of", lambda part: looked.append(part) or ())

    async def count(client, end):
        client.loop = SimpleNamespace(add_callback=lambda start: start())
        stop = clock.watch_streams(client)
        await asyncio.sleep(0.1)
        assert len(looked) > 2
        end(client, stop)
        before = len(looked)
        await asyncio.sleep(0.1)
        return before

    assert asyncio.run(count(SimpleNamespace(status="running"), lambda client, stop: stop())) == len(looked)
    looked.clear()
    ends = asyncio.run(
        count(SimpleNamespace(status="running"), lambda client, stop: setattr(client, "status", "closed"))
    )
    assert ends == len(looked)
