# SPDX-License-Identifier: Apache-2.0
"""End of a stage before its tasks have ended: the runner asks all workers, and each task looks before its next block."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence

from curator_df.core.cluster_client import ClusterClient, SentTask

STOP_POLL_SECONDS = 0.02
"""Interval in seconds at which a run that stops early checks whether its tasks have ended."""
LOG = logging.getLogger("curator_df.core")
_stopped_stages: set[str] = set()


class StoppedError(Exception):
    """Raised in a task when its stage was requested to stop."""


def end_if_stopped(stage_id: str) -> None:
    """Raise `StoppedError` if the stage of this task was requested to stop."""
    if stage_id in _stopped_stages:
        raise StoppedError


async def request_stop(stage_id: str) -> None:
    """Stop the tasks of a stage in this process: running ones at their next block, others when they begin.

    This is a coroutine, so that Dask need not wait for it.
    """
    _stopped_stages.add(stage_id)


def stop_tasks(client: ClusterClient, flying: Sequence[SentTask], stage_id: str, *, wait_seconds: float) -> None:
    """Make the tasks of a stage end, and wait so long for that: a task that still ran would hold memory in the next run."""
    if client.status != "running" or not flying:
        return
    try:
        if client.nthreads():
            client.run(request_stop, stage_id, wait=False, on_error="ignore")
            if wait_seconds:
                _wait_for_end(flying, wait_seconds)
    finally:
        client.cancel(flying, force=True, asynchronous=False)


def _wait_for_end(flying: Sequence[SentTask], wait_seconds: float) -> None:
    deadline = time.monotonic() + wait_seconds
    while not all(future.done() for future in flying):
        if time.monotonic() >= deadline:
            LOG.warning(
                "a task is still running %d s after its run ended; it will stop at its next block", wait_seconds
            )
            return
        time.sleep(STOP_POLL_SECONDS)
