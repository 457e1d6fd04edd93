# SPDX-License-Identifier: Apache-2.0
"""Send a stage's job to its workers with the first concurrent tasks; a worker keeps it for the others.

A job contains the whole plan: the paths of all files, the start of each range, in a merge all files of the previous pass. Sent
with every task, it would pass through the scheduler once per range, and Dask keeps the latest messages of each worker: with
32,000 ranges and 64 workers more than 1 GB. A worker that joins later reports that it lacks the job, and the task is sent again
with it.
"""

from __future__ import annotations

import collections
import threading
from collections.abc import Callable
from typing import Any

from curator_df.core.ranges.manifest import Manifest
from curator_df.core.tasks.worker_limits import WorkerLimits

KEPT_JOBS = 4
"""Number of recently used jobs that a worker process keeps: several clients may share it."""

_jobs: collections.OrderedDict[str, bytes] = collections.OrderedDict()
_jobs_lock = threading.Lock()


class JobParcel:
    """Choice, for each task of a stage, whether the job is sent with it.

    Parameters
    ----------
    job_bytes : bytes
        Pickled job.
    tasks : int
        Number of tasks with which it is sent initially.

    Examples
    --------
    >>> parcel = JobParcel(b"job", 1)
    >>> parcel.take(), parcel.take()
    (b'job', None)
    >>> parcel.send_again()
    >>> parcel.take(), parcel.take()
    (b'job', None)
    """

    def __init__(self, job_bytes: bytes, tasks: int) -> None:
        self.job_bytes = job_bytes
        self._tasks = tasks

    def take(self) -> bytes | None:
        """Return the job, or None, for the next task."""
        if not self._tasks:
            return None
        self._tasks -= 1
        return self.job_bytes

    def send_again(self) -> None:
        """Send the job with one more task: a worker lacked it."""
        self._tasks += 1


def run_with_job(
    task: Callable[[bytes, Any], Manifest], job_bytes: bytes | None, attempt: Any, limits: WorkerLimits | None = None
) -> Manifest:
    """Run a task with the job of its stage, which came with it or with an earlier task (runs on a worker).

    On a worker that breaks ``limits`` the task is not run.
    """
    if limits is not None and (error := limits.broken_here()) is not None:
        return Manifest(attempt.piece.number, error=error)
    with _jobs_lock:
        if job_bytes is not None:
            _jobs.setdefault(attempt.stage_id, job_bytes)
        kept = _jobs.get(attempt.stage_id)
        if kept is not None:
            _jobs.move_to_end(attempt.stage_id)
        while len(_jobs) > KEPT_JOBS:
            _jobs.popitem(last=False)
    if kept is None:
        return Manifest(attempt.piece.number, outcome="no job")
    return task(kept, attempt)
