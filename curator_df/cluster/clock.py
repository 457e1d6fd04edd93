# SPDX-License-Identifier: Apache-2.0
"""A clock that is set back must not hold up a run.

Dask gathers messages for some milliseconds, and tells by the clock of the day when they are to go (``BatchedSend``,
distributed 2026.7.1; tornado's loop waits by that clock too). Where that clock is set back just then, they wait until it is
as late again: a run stands still for as long as the clock went back. So each process looks once a second whether the clock
of the day fell behind the one that only counts, and if so sends what waits. Clocks that are set forward hold up nothing.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

LOOK_SECONDS = 1.0
SET_BACK_SECONDS = 0.5
"""A clock that falls behind by less in one look holds messages for no longer than that."""


def send_when_clock_is_set_back(
    loop: asyncio.AbstractEventLoop, parts: Callable[[], Iterable[Any]], goes_on: Callable[[], bool]
) -> None:
    """Look at the clock on a running loop, from its own thread, until ``goes_on`` says no.

    Parameters
    ----------
    loop : asyncio.AbstractEventLoop
        That of the parts.
    parts : callable
        Returns the clients, schedulers and workers of this process.
    goes_on : callable
        Whether they are still there.
    """

    def look(lead: float) -> None:
        if not goes_on():
            return
        now = _lead()
        if now < lead - SET_BACK_SECONDS:
            for stream in (stream for part in parts() for stream in streams_of(part)):
                stream.next_deadline = None  # of the clock as it was
                stream.waker.set()
        loop.call_later(LOOK_SECONDS, look, now)

    loop.call_later(LOOK_SECONDS, look, _lead())


def streams_of(part: Any) -> Iterator[Any]:
    """Yield what gathers messages in a client, a scheduler or a worker of Dask."""
    for name in ("scheduler_comm", "batched_stream"):
        if (stream := getattr(part, name, None)) is not None:
            yield stream
    for name in ("stream_comms", "client_comms"):
        yield from getattr(part, name, {}).values()


def watch_clock(client: Any, cluster: Any = None) -> Callable[[], None]:
    """Look at the clock in the process of a client, and of what runs here of its cluster; return what ends that.

    It also ends with the client.
    """
    ended = threading.Event()

    def parts() -> list[Any]:
        return [client] if cluster is None else [client, cluster.scheduler, *cluster.workers.values()]

    def start() -> None:
        loop = asyncio.get_running_loop()
        send_when_clock_is_set_back(loop, parts, lambda: client.status != "closed" and not ended.is_set())

    client.loop.add_callback(start)
    return ended.set


def _lead() -> float:
    """Return how far the clock of the day is ahead of the one that only counts."""
    return time.time() - time.monotonic()
