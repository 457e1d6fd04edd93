# SPDX-License-Identifier: Apache-2.0
"""Treatment of a worker whose memory keeps growing: return free pages, find the step that leaves memory behind, restart."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from curator_df.core.cluster_client import ClusterClient, address_of, restart
from curator_df.core.planning.program import run_step
from curator_df.core.tasks.task import Attempt, load_job
from curator_df.memory.leaks import LEAST_GROWTH_BYTES, PROBE_CALLS, Leak, LeakReceipt, left_by
from curator_df.memory.limits import release_free_memory
from curator_df.memory.system import status_bytes

PROBE_BLOCK_BYTES = 1_000_000
PROBE_SECONDS = 60
PROBE_LOOK_SECONDS = 0.5
"""Interval at which a probe is checked for whether its worker still exists: a step that leaks may crash it."""


def treat(
    client: ClusterClient,
    leak: Leak,
    job_bytes: bytes | None,
    attempt: Attempt,
    *,
    restarts: bool,
    known: LeakReceipt | None = None,
) -> LeakReceipt:
    """Return free pages once more; if that is not enough, name the step and restart the worker. No task is running.

    If no step is found to leave memory behind, it may be a cache that is filling up, so the worker is not changed the first time.
    A full worker has no memory to try a step, so it is restarted first.

    Parameters
    ----------
    client : ClusterClient
        Client of the cluster.
    leak : Leak
        Growth found from the floors after each task.
    job_bytes : bytes, optional
        Pickled `curator_df.core.tasks.task.Job` whose steps are tried; None if tasks have no steps.
    attempt : Attempt
        Latest task, on whose range the steps are tried.
    restarts : bool
        Whether workers are processes that can be restarted.
    known : LeakReceipt, optional
        Earlier leak of this run, whose step was found.
    """
    address = address_of(client, leak.worker)
    told = LeakReceipt(**vars(leak), step="", left_bytes=0, recycled=False)
    if address is None:
        return told
    told.given_back_bytes = int(client.run(given_back, workers=[address], on_error="ignore").get(address, 0))
    if told.only_kept:
        return told
    if known is not None:
        told.step, told.left_bytes = known.step, known.left_bytes
    if restarts and (leak.again or told.step):
        others = set(client.nthreads()) - {address}
        told.recycled = restart(client, address)
        address = next((new for new in client.nthreads() if new not in others), address)
    if not told.step and job_bytes is not None and (found := probe(client, address, job_bytes, attempt)) is not None:
        told.step, told.left_bytes = found
        left_bytes = told.left_bytes * (PROBE_CALLS + 1)
        if not told.recycled or left_bytes > LEAST_GROWTH_BYTES:  # what the probe left is of the worker's work memory
            told.recycled = restarts and restart(client, address)
    return told


def given_back() -> int:
    """Return unused memory of Arrow's pool and malloc to the system; return the private bytes freed (runs on a worker)."""
    before = status_bytes("RssAnon")
    release_free_memory()
    return max(before - status_bytes("RssAnon"), 0)


def bytes_held() -> int:
    """Return the private bytes of this worker after free pages were returned (runs on a worker on which no task runs)."""
    release_free_memory()
    return status_bytes("RssAnon")


def left_by_steps(job_bytes: bytes, attempt: Attempt) -> dict[str, int]:
    """Call each step of a job several times on one small block; return, by name, the bytes that a call leaves behind."""
    job = load_job(job_bytes, attempt.stage_id)
    program = job.fork.branches[0].program
    blocks = program.source.blocks(
        attempt.piece,
        block_bytes=PROBE_BLOCK_BYTES,
        on_bad_row=(lambda _: None) if program.source.quarantines else None,
        on_long_row=lambda _: None,
    )
    block, calls = next(iter(blocks)), list[tuple[str, Callable[[], Any]]]()
    for step in program.steps:
        if step.pending is None:
            calls.append((step.name, lambda step=step, block=block: run_step(step, block)))  # type: ignore[misc]
            block = run_step(step, block)[0].block
    return left_by(calls)


def probe(client: ClusterClient, address: str, job_bytes: bytes, attempt: Attempt) -> tuple[str, int] | None:
    """Return the step that leaves the most behind on a worker, and its bytes for each block; None if no step is found."""
    future = client.submit(left_by_steps, job_bytes, attempt, workers=[address], pure=False)
    deadline = time.monotonic() + PROBE_SECONDS
    while True:
        try:
            left = future.result(timeout=PROBE_LOOK_SECONDS)
            break
        except Exception:  # noqa: BLE001 - after a failed probe, the leak is reported without a name
            if future.done() or time.monotonic() >= deadline or address not in client.nthreads():
                future.cancel()
                return None
    return max(left.items(), key=lambda item: item[1]) if left else None
