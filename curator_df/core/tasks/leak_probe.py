# SPDX-License-Identifier: Apache-2.0
"""A worker that holds more and more: whether it only kept free pages, which step leaves memory behind, and a new start."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from typing import Any

from curator_df.core.cluster_client import ClusterClient
from curator_df.core.memory.leaks import Leak, LeakReceipt, left_by
from curator_df.core.memory.limits import release_free_memory, status_bytes
from curator_df.core.planning.program import run_step
from curator_df.core.ranges.range_action import RangeAction
from curator_df.core.tasks.task import Attempt, load_job

PROBE_BLOCK_BYTES = 1_000_000
PROBE_SECONDS = 60
RESTART_SECONDS = 60


def treat(
    client: ClusterClient, leak: Leak, job_bytes: bytes | None, attempt: Attempt, *, restarts: bool
) -> LeakReceipt:
    """Give free pages back once more; if that is not all, name the step and start the worker again. Nothing is in flight.

    Where no step is seen to leave memory behind it may be a cache that fills, so the worker is left as it is, the first time.

    Parameters
    ----------
    client : ClusterClient
        Of the cluster.
    leak : Leak
        What the floors after each task said.
    job_bytes : bytes, optional
        A pickled `curator_df.core.tasks.task.Job` whose steps are tried; None where tasks have no steps.
    attempt : Attempt
        The latest task, whose range the steps are tried on.
    restarts : bool
        Whether workers are processes that can be started again.
    """
    address = address_of(client, leak.worker)
    told = LeakReceipt(**vars(leak), step="", left_bytes=0, recycled=False)
    if address is None:
        return told
    told.given_back_bytes = int(client.run(given_back, workers=[address], on_error="ignore").get(address, 0))
    if told.only_kept:
        return told
    found = None if job_bytes is None else probe(client, address, job_bytes, attempt)
    if found is not None:
        told.step, told.left_bytes = found
    told.recycled = restarts and bool(told.step or leak.again) and restart(client, address)
    return told


def given_back() -> int:
    """Give back what Arrow's pool and malloc only keep; return how many private bytes that gave (runs on a worker)."""
    before = status_bytes("RssAnon")
    release_free_memory()
    return max(before - status_bytes("RssAnon"), 0)


def left_by_steps(job_bytes: bytes, attempt: Attempt) -> dict[str, int]:
    """Call each step of a job some times on one small block; return by name what a call leaves behind, in bytes."""
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
        if step.barrier is None and not isinstance(step.action, RangeAction):
            calls.append((step.name, lambda step=step, block=block: run_step(step, block)))  # type: ignore[misc]
            block = run_step(step, block)[0].block
    return left_by(calls)


def probe(client: ClusterClient, address: str, job_bytes: bytes, attempt: Attempt) -> tuple[str, int] | None:
    """Return the step that leaves most behind on a worker, and its bytes for each block; None if no step is found."""
    future = client.submit(left_by_steps, job_bytes, attempt, workers=[address], pure=False)
    try:
        left = future.result(timeout=PROBE_SECONDS)
    except Exception:  # noqa: BLE001 - a probe that fails says nothing; what leaks is told without a name
        future.cancel()
        return None
    return max(left.items(), key=lambda item: item[1]) if left else None


def address_of(client: ClusterClient, worker: str) -> str | None:
    """Return the address of the worker with this host and process number."""
    names = client.run(worker_name, on_error="ignore")
    return next((address for address, name in names.items() if name == worker), None)


def restart(client: ClusterClient, address: str) -> bool:
    """Start a worker again, on which no task runs; return False where it has no nanny to do that, or did not go."""
    info = client.scheduler_info(n_workers=-1)["workers"].get(address, {})
    if not info.get("nanny"):
        return False
    done = client.restart_workers([address], timeout=RESTART_SECONDS, raise_for_error=False)
    # On a busy machine the new process may take longer than that to be there; the old one is gone all the same.
    return bool(done.get(address) == "OK" or address not in client.nthreads())


def worker_name() -> str:
    """Return host and number of this process."""
    return f"{socket.gethostname()}:{os.getpid()}"
