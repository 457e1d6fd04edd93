# SPDX-License-Identifier: Apache-2.0
"""A clock that is set back between two messages holds up the second one in Dask as it is, and does not where we look."""

import asyncio
import time
from types import SimpleNamespace

import pytest
from distributed import Client, LocalCluster, batched

from curator_df.cluster import clock

DAY = 86_400
REAL = time.time


class Comm:
    """What is written is kept; while the first message is written the clock is set back, and another one is sent."""

    def __init__(self, first_write):
        self.written, self._first_write = [], first_write

    async def write(self, payload, **_):
        self.written += payload
        if len(self.written) == 1:
            self._first_write()
        return 1

    def closed(self):
        return False

    async def close(self):
        self.written.append("closed")


@pytest.mark.parametrize("looks", [False, True])
def test_a_message_that_waits_for_a_clock_that_was_set_back_is_sent(monkeypatch, looks):
    lag = [0.0]
    for module, name in ((time, "time"), (batched, "time")):
        monkeypatch.setattr(module, name, lambda: REAL() - lag[0])
    monkeypatch.setattr(clock, "LOOK_SECONDS", 0.05)

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
            clock.send_when_clock_is_set_back(asyncio.get_running_loop(), lambda: [worker], lambda: there[0])
        stream.send("first")
        await asyncio.sleep(0.5)
        there[0] = False
        sent = list(comm.written)
        await stream.close()
        return sent

    assert asyncio.run(send_two()) == (["first", "second"] if looks else ["first"])


def test_all_that_gathers_messages_in_this_process_is_found():
    with (
        LocalCluster(n_workers=1, threads_per_worker=1, processes=False, dashboard_address=None) as cluster,
        Client(cluster) as client,
    ):
        client.submit(int).result()
        found = [
            stream
            for part in (client, cluster.scheduler, *cluster.workers.values())
            for stream in clock.streams_of(part)
        ]
        # From the client and back, from the worker and back.
        assert len(found) == 4
        assert all(isinstance(stream, batched.BatchedSend) for stream in found)


def test_looking_ends_with_the_client(monkeypatch):
    monkeypatch.setattr(clock, "LOOK_SECONDS", 0.01)
    asked = []
    client = SimpleNamespace(status="running")

    async def look():
        client.loop = SimpleNamespace(add_callback=lambda start: start())
        stop = clock.watch_clock(client)
        monkeypatch.setattr(clock, "_lead", lambda: asked.append(client.status) or 0.0)
        await asyncio.sleep(0.1)
        assert len(asked) > 2
        stop()
        await asyncio.sleep(0.05)
        before = len(asked)
        await asyncio.sleep(0.05)
        return before

    assert asyncio.run(look()) == len(asked)
