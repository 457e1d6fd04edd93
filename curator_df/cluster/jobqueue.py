# SPDX-License-Identifier: Apache-2.0
"""Use dask-jobqueue's classes of clusters and jobs, without its other effects on the process."""

from __future__ import annotations

import importlib
import re
import shlex
import shutil
import signal
import threading
from typing import Any

from curator_df.core.runner.interrupts import ends_silently
from curator_df.errors import NoClusterError, ParameterError

CLUSTERS = {"slurm": "SLURMCluster", "pbs": "PBSCluster", "lsf": "LSFCluster", "sge": "SGECluster"}
"""Classes of dask-jobqueue by batch system."""
TAKEN_JOB = re.compile(r"^Your job (\d+) .*has been submitted", re.MULTILINE)
"""Message of SGE for an accepted job."""


def cluster_class(system: str) -> Any:
    """Import dask-jobqueue and return its class of clusters for a batch system; Ctrl-C keeps its effect (`ends_silently`).

    Raises
    ------
    ParameterError
        If the import fails, as it does outside the main thread.
    """
    handler = signal.getsignal(signal.SIGINT)
    if ends_silently(handler):  # the user had imported it before
        handler = signal.default_int_handler
    try:
        found = getattr(importlib.import_module("dask_jobqueue"), CLUSTERS[system])
    except ValueError as exc:  # it sets the handler while it is imported
        raise ParameterError(
            f"dask-jobqueue cannot be imported here: {exc}. Create the cluster in the main thread, or import dask_jobqueue there "
            "first"
        ) from exc
    if threading.current_thread() is threading.main_thread() and ends_silently(signal.getsignal(signal.SIGINT)):
        signal.signal(signal.SIGINT, handler)
    return found


def require_commands(system: str, job_class: Any) -> None:
    """Raise `NoClusterError` if the commands that submit and end jobs are not on this machine."""
    commands = [shlex.split(command)[0] for command in (job_class.submit_command, job_class.cancel_command)]
    missing = [command for command in commands if shutil.which(command) is None]
    if missing:
        raise NoClusterError(
            f"{' and '.join(missing)} cannot be found on this machine, so no job of {system} can be submitted. Run this on a "
            "login node, or where the commands of the batch system are on PATH"
        )


def withdrawing(job_class: Any) -> Any:
    """Return dask-jobqueue's class of a job that leaves the queue if its submission fails.

    SGE's ``qsub`` fails with a warning, for example that a user may not use any queue, but accepts the job.
    """

    class WithdrawnJob(job_class):  # type: ignore[misc]
        async def _submit_job(self, script: str) -> Any:
            try:
                return await super()._submit_job(script)
            except RuntimeError as exc:
                if taken := TAKEN_JOB.search(str(exc)):
                    await self._close_job(taken[1], self.cancel_command)
                raise

    return WithdrawnJob
