# SPDX-License-Identifier: Apache-2.0
"""The part of Dask's client that a run uses, as protocols: whatever has it can stand in for a cluster in a test."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol


class SentTask(Protocol):
    """A task that was sent to the cluster; `distributed.Future` is one."""

    @property
    def status(self) -> str:
        """``pending``, ``finished``, ``error``, ``cancelled`` or ``lost``."""

    def done(self) -> bool:
        """Return whether the task has ended, in whatever way."""

    def result(self, timeout: float | None = None) -> Any:
        """Return what the task returned, or raise what it raised."""

    def exception(self) -> BaseException | None:
        """Return what the task raised, or why it could not run."""

    def add_done_callback(self, callback: Callable[[Any], Any]) -> None:
        """Call with the task when it has ended."""

    def cancel(self) -> None:
        """Ask the cluster to forget the task."""


class ClusterClient(Protocol):
    """A connection to a scheduler; `distributed.Client` is one."""

    @property
    def status(self) -> str:
        """``running`` while there is a connection."""

    @property
    def scheduler(self) -> Any:
        """The connection, which has the ``address`` of the scheduler."""

    def submit(self, function: Callable[..., Any], *arguments: Any, **options: Any) -> SentTask:
        """Send a call to the cluster."""

    def run(self, function: Callable[..., Any], *arguments: Any, **options: Any) -> Mapping[str, Any]:
        """Call a function in every worker process at once; return what it returned by address."""

    def nthreads(self) -> Mapping[str, int]:
        """Return the threads of each worker that is there, by address."""

    def scheduler_info(self, n_workers: int = 5) -> Mapping[str, Any]:
        """Return what the scheduler knows of its workers."""

    def restart_workers(self, workers: Sequence[str], timeout: float, *, raise_for_error: bool) -> Mapping[str, str]:
        """Start worker processes again; return ``OK`` or what went wrong by address."""

    def cancel(self, futures: Sequence[Any], *, asynchronous: bool, force: bool) -> None:
        """Ask the cluster to forget tasks."""
