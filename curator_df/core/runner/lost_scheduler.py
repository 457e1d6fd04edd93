# SPDX-License-Identifier: Apache-2.0
"""Detect that the connection to the scheduler was lost, and raise one error, without Dask's log of attempts to reconnect."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import traceback
import weakref
from collections.abc import Iterator
from typing import Any

from distributed.client import FutureCancelledError, FuturesCancelledError

from curator_df.core.cluster_client import ClusterClient
from curator_df.errors import SchedulerLostError

LOGGER = "distributed.client"
AGAIN = (
    "Finished files are kept. Start a cluster (or connect to one) again, and repeat the run with on_existing='resume'"
)
"""Advice after a run, for messages."""
REASON = "scheduler-connection-lost"
"""Dask's reason for the futures that a client cancels when it loses its scheduler."""
GAVE_UP = "Failed to reconnect to scheduler"


def scheduler_lost(client: ClusterClient, then: str) -> SchedulerLostError:
    """Return the error of a client that lost its scheduler; ``then`` says what to do once there is another one."""
    expect_loss(client)
    address = getattr(client.scheduler, "address", "its address")
    return SchedulerLostError(
        f"the connection to the scheduler at {address} was lost, so nothing can run on it any more. {then}"
    )


def require_open(client: ClusterClient, then: str) -> None:
    """Raise `SchedulerLostError` if a client has given up its scheduler: Dask's own errors do not say so."""
    if client.status in ("closing", "closed"):
        raise scheduler_lost(client, then)


@contextlib.contextmanager
def answered(client: ClusterClient, then: str) -> Iterator[None]:
    """Raise `SchedulerLostError` if the scheduler goes away while it is asked; only what waits for the scheduler is inside."""
    try:
        yield
    except OSError as exc:
        raise scheduler_lost(client, then) from exc


def tells_of_loss(exc: BaseException | None) -> bool:
    """Return whether Dask raised an error because the client lost its scheduler, even if it has connected again since."""
    groups = exc.error_groups if isinstance(exc, FuturesCancelledError) else ()
    found = [exc, *(error for group in groups for error in group.errors)]
    return any(isinstance(one, FutureCancelledError) and one.reason == REASON for one in found)


def expect_loss(client: ClusterClient) -> None:
    """Keep out of Dask's log what a client that loses its scheduler from now on says of it: the error says it."""
    logger = logging.getLogger(LOGGER)
    known = [each for each in logger.filters if isinstance(each, NotOfLost)]
    for each in known:
        if each.client is None:
            logger.removeFilter(each)
    if not any(each.client is client for each in known):
        logger.addFilter(NotOfLost(client))


class NotOfLost(logging.Filter):
    """Filter for Dask's log messages of a client that lost its scheduler: it gives up, and closing it cancels the attempts."""

    def __init__(self, client: Any) -> None:
        super().__init__()
        self._client = weakref.ref(client)

    @property
    def client(self) -> Any:
        """Client, or None if it is gone."""
        return self._client()

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether a record is about something else."""
        client = self.client
        if client is None:
            return True
        if isinstance(record.msg, str) and record.msg.startswith(GAVE_UP):
            return bool(client.status == "running")
        exc = record.exc_info[1] if isinstance(record.exc_info, tuple) else None
        if not isinstance(exc, asyncio.CancelledError):
            return True
        frames = [frame for frame, _ in traceback.walk_tb(exc.__traceback__)]
        own = [frame.f_code.co_name for frame in frames if frame.f_locals.get("self") is client]
        return not own if client.status != "running" else "_reconnect" not in own
