# SPDX-License-Identifier: Apache-2.0
"""Send Dask's buffered messages regularly, so that a clock that is set back does not stop a run.

Dask gathers messages for some milliseconds, and uses the time of day to decide when to send them (``BatchedSend``,
distributed 2026.7.1; tornado's loop begins each wait by that clock too). If it is set back at that moment, messages wait until
it is that late again, and a run hangs. So buffered messages of a process are sent once a second, regardless of the clock.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any

LOOK_SECONDS = 1.0


def send_what_waits(
    loop: asyncio.AbstractEventLoop, parts: Callable[[], Iterable[Any]], goes_on: Callable[[], bool]
) -> None:
    """Send the buffered messages of clients, schedulers and workers once a second, from the thread of their loop.

    Parameters
    ----------
    loop : asyncio.AbstractEventLoop
        Event loop of the parts, whose clock is monotonic.
    parts : callable
        Function that returns the clients, schedulers and workers of this process.
    goes_on : callable
        Function that returns whether they still exist.
    """

    def look() -> None:
        if not goes_on():
            return
        for stream in (stream for part in parts() for stream in streams_of(part)):
            if stream.buffer:
                stream.next_deadline = None
                stream.waker.set()
        loop.call_later(LOOK_SECONDS, look)

    loop.call_later(LOOK_SECONDS, look)


def streams_of(part: Any) -> Iterator[Any]:
    """Yield the message buffers of a client, a scheduler or a worker of Dask."""
    for name in ("scheduler_comm", "batched_stream"):
        if (stream := getattr(part, name, None)) is not None:
            yield stream
    for name in ("stream_comms", "client_comms"):
        yield from getattr(part, name, {}).values()


def watch_streams(client: Any, cluster: Any = None) -> Callable[[], None]:
    """Send buffered messages in the process of a client, and of the local parts of its cluster; return a function that stops it.

    It also stops when the client closes.
    """
    ended = threading.Event()

    def parts() -> list[Any]:
        return [client] if cluster is None else [client, cluster.scheduler, *cluster.workers.values()]

    def start() -> None:
        loop = asyncio.get_running_loop()
        send_what_waits(loop, parts, lambda: client.status != "closed" and not ended.is_set())

    client.loop.add_callback(start)
    return ended.set
