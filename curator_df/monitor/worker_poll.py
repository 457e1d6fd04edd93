# SPDX-License-Identifier: Apache-2.0
"""Ask each worker of a cluster for its memory independently, so that a silent one delays neither other workers nor samples."""

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
"""Seconds to wait for the first answers; later answers are used when they arrive."""


@dataclass(frozen=True)
class Heard:
    """Latest answer of a worker."""

    reading: WorkerReading
    """Figures of the answer."""
    seconds: float
    """Time of the answer (monotonic clock)."""
    spill_rate: float | None = None
    """Bytes per second spilled since the previous answer."""


class WorkerPoll:
    """Poll in the event loop of a client. A worker is not asked again before it has answered."""

    def __init__(self, client: Any) -> None:
        self.scheduler: ProcessReading | None = None
        """Latest answer of the scheduler: asked once if it is on this machine, otherwise in every round."""
        self._client, self._host = client, socket.gethostname()
        self._heard: dict[str, Heard] = {}
        self._asked: dict[str, asyncio.Task[None]] = {}
        self._round: concurrent.futures.Future[None] | None = None
        self._working: set[asyncio.Task[None]] = set()

    def heard(self) -> dict[str, Heard]:
        """Return the latest answer of each worker, by address."""
        return self._heard.copy()  # another thread adds answers

    def ask(self) -> None:
        """Ask all workers without an outstanding request. Only the first call waits for answers.

        Raises
        ------
        Exception
            The exception of the previous round.
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
        """Stop waiting for answers."""
        if self._client.status == "running":
            self._client.loop.asyncio_loop.call_soon_threadsafe(self._forget)

    def _begin(self, told: concurrent.futures.Future[None], wait: bool) -> None:
        # This runs in the loop: a closing client may drop this call, and must not drop a coroutine that nobody awaits.
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
