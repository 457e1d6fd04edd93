# SPDX-License-Identifier: Apache-2.0
"""Ask the workers of a cluster what they hold, each for itself: one that does not answer holds up neither others nor samples."""

from __future__ import annotations

import asyncio
import concurrent.futures
import functools
import socket
import time
from dataclasses import dataclass
from typing import Any

from curator_df.monitor.workers import ProcessReading, WorkerReading, read_process, read_worker

ANSWER_SECONDS = 5.0
"""How long the first answers are waited for; later ones are taken when they come."""


@dataclass(frozen=True)
class Heard:
    """What a worker said last."""

    reading: WorkerReading
    """Its figures."""
    seconds: float
    """When it said so (monotonic clock)."""
    spill_rate: float | None = None
    """Bytes a second that it spilled since the answer before."""


class WorkerPoll:
    """Asks in the event loop of a client. A worker is not asked again while it has not answered."""

    def __init__(self, client: Any) -> None:
        self.scheduler: ProcessReading | None = None
        """What the scheduler said last: once where it is on this machine, and else in every round."""
        self._client, self._host = client, socket.gethostname()
        self._heard: dict[str, Heard] = {}
        self._asked: dict[str, asyncio.Task[None]] = {}
        self._round: concurrent.futures.Future[None] | None = None
        self._working: set[asyncio.Task[None]] = set()

    def heard(self) -> dict[str, Heard]:
        """Return by address what each worker said last."""
        return self._heard.copy()  # answers come in another thread meanwhile

    def ask(self) -> None:
        """Ask all workers that owe no answer. Only the first time answers are waited for.

        Raises
        ------
        Exception
            What the round before this one raised.
        """
        if self._client.status != "running":
            return
        before = self._round
        if before is not None and not before.done():  # the scheduler itself does not answer
            return
        self._round = concurrent.futures.Future()
        self._client.loop.asyncio_loop.call_soon_threadsafe(self._begin, self._round, before is None)
        if before is None:
            concurrent.futures.wait([self._round], timeout=ANSWER_SECONDS)
        else:
            before.result()

    def close(self) -> None:
        """Wait for no answer any more."""
        if self._client.status == "running":
            self._client.loop.asyncio_loop.call_soon_threadsafe(self._forget)

    def _begin(self, told: concurrent.futures.Future[None], wait: bool) -> None:
        # Here, in the loop: a client that closes may drop this call, and must not drop a coroutine that nobody awaits.
        task = asyncio.get_running_loop().create_task(self._ask_each(wait=wait))
        self._working.add(task)
        task.add_done_callback(functools.partial(self._end, told))

    def _end(self, told: concurrent.futures.Future[None], task: asyncio.Task[None]) -> None:
        self._working.discard(task)
        if task.cancelled():
            told.cancel()
        elif (error := task.exception()) is not None:
            told.set_exception(error)
        else:
            told.set_result(None)

    async def _ask_each(self, *, wait: bool) -> None:
        if self.scheduler is None or self.scheduler.host != self._host:
            self.scheduler = await self._client._run_on_scheduler(read_process)
        known = await self._client.scheduler.ncores(workers=None)
        for address in set(known) - set(self._asked):
            self._asked[address] = asyncio.create_task(self._ask(address))
        for address in set(self._heard) - set(known):
            del self._heard[address]
        if wait and self._asked:
            await asyncio.wait(self._asked.values(), timeout=ANSWER_SECONDS)

    async def _ask(self, address: str) -> None:
        try:
            said = await self._client._run(read_worker, with_gpus=True, workers=[address], on_error="ignore")
            if address in said:
                self._heard[address] = _heard(said[address], self._heard.get(address))
        finally:
            self._asked.pop(address, None)

    def _forget(self) -> None:
        for task in (*self._working, *self._asked.values()):
            task.cancel()


def _heard(reading: WorkerReading, before: Heard | None) -> Heard:
    now = time.monotonic()
    if before is None:
        return Heard(reading, now)
    spilled = max(0, reading.spilled_bytes - before.reading.spilled_bytes)
    return Heard(reading, now, spilled / max(now - before.seconds, 1e-9))
