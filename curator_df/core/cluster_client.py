# SPDX-License-Identifier: Apache-2.0
"""Protocols for the part of Dask's client that a run uses, so that a test can replace the cluster."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol


class SentTask(Protocol):
    """A task that was sent to the cluster, such as a `distributed.Future`."""

    @property
    def status(self) -> str:
        """``pending``, ``finished``, ``error``, ``cancelled`` or ``lost``."""

    def done(self) -> bool:
        """Return whether the task has ended: finished, failed, cancelled or lost."""

    def result(self, timeout: float | None = None) -> Any:
        """Return what the task returned, or raise what it raised."""

    def exception(self) -> BaseException | None:
        """Return the exception that the task raised, or the reason why it could not run."""

    def add_done_callback(self, callback: Callable[[Any], Any]) -> None:
        """Call the function with the task when the task has ended."""

    def cancel(self) -> None:
        """Ask the cluster to forget the task."""


class ClusterClient(Protocol):
    """A connection to a scheduler, such as a `distributed.Client`."""

    @property
    def status(self) -> str:
        """``running`` while the connection is open."""

    @property
    def scheduler(self) -> Any:
        """The connection; its ``address`` is that of the scheduler."""

    def submit(self, function: Callable[..., Any], *arguments: Any, **options: Any) -> SentTask:
        """Send a call to the cluster."""

    def run(self, function: Callable[..., Any], *arguments: Any, **options: Any) -> Mapping[str, Any]:
        """Call a function in every worker process at once; return its results by worker address."""

    def nthreads(self) -> Mapping[str, int]:
        """Return the number of threads of each connected worker, by address."""

    def scheduler_info(self, n_workers: int = 5) -> Mapping[str, Any]:
        """Return the scheduler's information about its workers."""

    def restart_workers(self, workers: Sequence[str], timeout: float, *, raise_for_error: bool) -> Mapping[str, str]:
        """Restart worker processes; return ``OK`` or the failure, by address."""

    def cancel(self, futures: Sequence[Any], *, asynchronous: bool, force: bool) -> None:
        """Ask the cluster to forget tasks."""
