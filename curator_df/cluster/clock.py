# SPDX-License-Identifier: Apache-2.0
"""A clock that is set back must not hold up a run.

Dask gathers messages for some milliseconds, and tells by the clock of the day when they are to go (``BatchedSend``,
distributed 2026.7.1; tornado's loop begins each wait by that clock too). Where it is set back just then, messages wait until
it is as late again, and a run stands still. So what waits in a process is sent once a second whatever the clock says.
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
    """Send once a second what clients, schedulers and workers have gathered, from the thread of their loop.

    Parameters
    ----------
    loop : asyncio.AbstractEventLoop
        That of the parts; its own clock only counts.
    parts : callable
        Returns the clients, schedulers and workers of this process.
    goes_on : callable
        Whether they are still there.
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
    """Yield what gathers messages in a client, a scheduler or a worker of Dask."""
    for name in ("scheduler_comm", "batched_stream"):
        if (stream := getattr(part, name, None)) is not None:
            yield stream
    for name in ("stream_comms", "client_comms"):
        yield from getattr(part, name, {}).values()


def watch_streams(client: Any, cluster: Any = None) -> Callable[[], None]:
    """Send what waits in the process of a client, and of what runs here of its cluster; return what ends that.

    It also ends with the client.
    """
    ended = threading.Event()

    def parts() -> list[Any]:
        return [client] if cluster is None else [client, cluster.scheduler, *cluster.workers.values()]

    def start() -> None:
        loop = asyncio.get_running_loop()
        send_what_waits(loop, parts, lambda: client.status != "closed" and not ended.is_set())

    client.loop.add_callback(start)
    return ended.set
