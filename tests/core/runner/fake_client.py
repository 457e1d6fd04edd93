# SPDX-License-Identifier: Apache-2.0
"""A cluster that is a list in this process: tasks end as a script says, or are run at once, and time passes when it is asked for.

It has what `curator_df.core.cluster_client` names and nothing more. Whatever is submitted is pickled, as on its way to a worker.
A task ends while it is submitted, or some ticks later: a tick is a question for the workers, which a dispatcher asks when
nothing came for ``watch_seconds``.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import functools
import inspect
import os
import tempfile
import types
from collections.abc import Callable, Iterator, Mapping
from typing import Any
from unittest import mock

import cloudpickle
from distributed import CancelledError, KilledWorker
from distributed.client import FutureCancelledError

from curator_df.core.ranges.manifest import Manifest
from curator_df.core.runner.lost_scheduler import REASON
from curator_df.core.runner.session import Patience, Session, close_session, open_session
from curator_df.core.tasks.task import Attempt
from curator_df.interactive.operations import look_at_deferred, stop_looking
from curator_df.io.output.spool import spool_on
from curator_df.memory import freed_pages
from curator_df.memory.budget import choose_layout
from curator_df.memory.sizes import read_size

IMPATIENT = Patience(watch_seconds=0.001, revive_seconds=(0.002, 0.006), stop_seconds=0.05)
"""So that a test of silence takes milliseconds."""


@dataclasses.dataclass(frozen=True)
class Silent:
    """The task says nothing for some ticks; then comes its outcome."""

    ticks: int
    then: Any = None


@dataclasses.dataclass(frozen=True)
class LostResult:
    """The task ends and its worker dies before the result is fetched, so that it runs again, and calls nobody then."""

    then: Any = None
    error: type[BaseException] = CancelledError


class Cancelled:
    """The task is cancelled, by default by a client that lost its scheduler and has connected again."""

    def __init__(self, reason: str = REASON) -> None:
        self.reason = reason


class Disconnected:
    """The connection to the scheduler breaks off while the task runs."""


class Runs:
    """The task is run, in this process."""


def killed(worker: str = "tcp://1", allowed_failures: int = 3) -> KilledWorker:
    """Return the error of a task whose worker died as often as Dask tries it."""
    return KilledWorker("curate-range", types.SimpleNamespace(address=worker), allowed_failures)


def done(attempt: Attempt, **told: Any) -> Manifest:
    """Return what a task tells that went well."""
    told = {"outcome": "done", "block_bytes": attempt.block_bytes, "worker": "host:1", **told}
    return Manifest(attempt.piece.number, **told)


def out_of_memory(attempt: Attempt, **told: Any) -> Manifest:
    """Return what a task tells that ran out of memory."""
    return done(attempt, outcome="memory", **{"error": MemoryError("no room"), **told})


class FakeTask:
    """A task of a `FakeClient`."""

    def __init__(self, client: FakeClient, call: Callable[[], Any], attempt: Attempt | None) -> None:
        self.attempt, self.status, self.ticks = attempt, "pending", 0
        self._client, self._call, self._then = client, call, None
        self.is_released, self._value = False, None
        self._callbacks: list[Callable[[Any], Any]] = []

    def begin(self, outcome: Any) -> None:
        """Come to an outcome: at once, in some ticks, or never."""
        if isinstance(outcome, Silent):
            self.ticks, self._then = outcome.ticks, outcome.then
        elif isinstance(outcome, LostResult):
            self._value, self._then = outcome.error("lost with its worker"), outcome.then
            self._end("finished")
        elif isinstance(outcome, Disconnected):
            self._client.status = "closed"
        elif isinstance(outcome, Cancelled):
            self._value = FutureCancelledError("key", outcome.reason)
            self._end("cancelled")
        elif isinstance(outcome, BaseException):
            self._value = outcome
            self._end("error")
        else:
            try:
                value = self._call() if isinstance(outcome, Runs) else outcome
                self._value = cloudpickle.loads(cloudpickle.dumps(value))
            except Exception as exc:  # noqa: BLE001 - a worker returns what a task raises, such as a probe of the user's function
                self._value = exc
                self._end("error")
            else:
                self._end("finished")

    def tick(self) -> None:
        """Let time pass."""
        if self.status == "pending" and self.ticks:
            self.ticks -= 1
            if not self.ticks:
                self.begin(self._outcome())

    def done(self) -> bool:
        return self.status != "pending"

    def result(self, timeout: float | None = None) -> Any:
        if isinstance(self._value, BaseException) and self.status == "finished":
            lost, self._value = self._value, None
            self.status, self.ticks, self._callbacks = "pending", 2, []
            self._client.goes_on(self)
            raise lost
        if isinstance(self._value, BaseException):
            raise self._value
        if self.status != "finished":
            raise TimeoutError
        return self._value

    def exception(self) -> BaseException | None:
        return self._value if isinstance(self._value, BaseException) else None

    def add_done_callback(self, callback: Callable[[Any], Any]) -> None:
        if self.done():
            callback(self)
        else:
            self._callbacks.append(callback)

    def cancel(self) -> None:
        self._client.cancel([self])

    def release(self) -> None:
        self.is_released = True

    def _outcome(self) -> Any:
        if self._then is not None:
            return self._then
        return Runs() if self.attempt is None else done(self.attempt)

    def _end(self, status: str) -> None:
        self.status = status
        for callback in self._callbacks:
            callback(self)


class FakeClient:
    """A client of a cluster that is not there.

    Parameters
    ----------
    script : callable or mapping, optional
        The outcome of an attempt, by its range and its number of tries: a `Manifest`, an error of Dask, or one of the classes
        above. What a mapping does not have goes well. Without a script tasks are run in this process.
    workers, threads : int
        What there is, as long as nothing takes it away.
    """

    def __init__(
        self,
        script: Callable[[Attempt], Any] | Mapping[tuple[int, int], Any] | None = None,
        *,
        workers: int = 1,
        threads: int = 1,
    ) -> None:
        self.status, self.scheduler = "running", types.SimpleNamespace(address="tcp://scheduler", allowed_failures=1)
        self.workers = {f"tcp://{number}": threads for number in range(1, workers + 1)}
        self.attempts: list[Attempt] = []
        """What was submitted, in order."""
        self.flying: list[set[int]] = []
        """The ranges that were in flight when each of these was submitted, itself among them."""
        self.calls: list[tuple[str, Any]] = []
        """Functions that were run on workers, with what they were given."""
        self.priorities: list[int] = []
        """What they were submitted with; the larger goes first."""
        self.restarted: list[str] = []
        """Workers that were started again, in order."""
        self.flying_at_restart: list[FakeTask] = []
        """What was in flight when the latest of them was."""
        self.kept_at_restart: list[FakeTask] = []
        """What had ended by then, and would be computed again because somebody may still want it."""
        self.away_ticks = 0
        """For so many ticks no worker is there."""
        self.answers: dict[str, Any] = {}
        """What a function returns that is run on workers, or sent to one, by its name; others are called."""
        self.memory_limits, self.nanny_limits = (dict.fromkeys(self.workers, 1_000) for _ in range(2))
        """Bytes at which Dask would act, in the worker process and in its nanny."""
        self._script, self._tasks = script, list[FakeTask]()
        self._ended: list[str] = []

    def submit(self, function: Callable[..., Any], *arguments: Any, **options: Any) -> FakeTask:
        function, arguments = cloudpickle.loads(cloudpickle.dumps((function, arguments)))
        attempt = next((each for each in arguments if isinstance(each, Attempt)), None)
        task = FakeTask(self, lambda: function(*arguments), attempt)
        self._tasks = [each for each in self._tasks if not each.done()] + [task]
        if attempt is not None:
            self.attempts.append(attempt)
            self.priorities.append(options.get("priority", 0))
            self.flying.append({each.attempt.piece.number for each in self._tasks if each.attempt is not None})
        task.begin(self.answers.get(_name_of(function)) or self._outcome_of(attempt))
        return task

    def goes_on(self, task: FakeTask) -> None:
        """Take a task up again that had ended."""
        self._tasks.append(task)

    def run(self, function: Callable[..., Any], *arguments: Any, **options: Any) -> dict[str, Any]:
        self.calls.append((_name_of(function), arguments))
        found: dict[str, Any] = {}
        for address in options.get("workers", list(self.workers)):
            with contextlib.suppress(*((Exception,) if options.get("on_error") == "ignore" else ())):
                found[address] = self._call(function, address, arguments, nanny=options.get("nanny", False))
        return found

    def run_on_scheduler(self, function: Callable[..., Any], *arguments: Any) -> Any:
        self.calls.append((_name_of(function), arguments))
        return function(*arguments, dask_scheduler=self.scheduler)

    def nthreads(self) -> dict[str, int]:
        for task in list(self._tasks):
            task.tick()
        if self.away_ticks:
            self.away_ticks -= 1
            return {}
        ended, self._ended = self._ended, []  # then there are new ones, which here have the same addresses
        return {address: threads for address, threads in self.workers.items() if address not in ended}

    def scheduler_info(self, n_workers: int = 5) -> dict[str, Any]:
        return {
            "workers": {
                address: {"nanny": f"{address}-nanny", "local_directory": f"{address}-{self.restarted.count(address)}"}
                for address in self.workers
            }
        }

    def restart_workers(self, workers: Any, timeout: float, *, raise_for_error: bool) -> dict[str, str]:
        self.restarted += workers
        self._ended = list(workers)
        self.kept_at_restart = [each for each in self._tasks if each.done() and not each.is_released]
        self.flying_at_restart = [each for each in self._tasks if not each.done()]
        return dict.fromkeys(workers, "OK")

    def cancel(self, futures: Any, *, asynchronous: bool = False, force: bool = False) -> None:
        for task in futures:
            task.status = "cancelled"

    def _outcome_of(self, attempt: Attempt | None) -> Any:
        if attempt is None or self._script is None:
            return Runs()
        if callable(self._script):
            return self._script(attempt)
        found = self._script.get((attempt.piece.number, attempt.tries))
        return done(attempt) if found is None else found

    def _call(self, function: Callable[..., Any], address: str, arguments: Any, *, nanny: bool) -> Any:
        if _name_of(function) in self.answers:
            answer = self.answers[_name_of(function)]
            return answer[address] if isinstance(answer, dict) else answer
        if inspect.iscoroutinefunction(function):
            return asyncio.run(function(*arguments))
        if "dask_worker" in inspect.signature(function).parameters:
            limits = self.nanny_limits if nanny else self.memory_limits
            manager = types.SimpleNamespace(memory_limit=limits[address])
            answer = function(*arguments, dask_worker=types.SimpleNamespace(memory_manager=manager))
            limits[address] = manager.memory_limit
            return answer
        return function(*arguments)


def _name_of(function: Any) -> str:
    return str(function.func.__name__ if isinstance(function, functools.partial) else function.__name__)


def fake_session(client: FakeClient, memory: str = "2GB", cpus: int = 2, **options: Any) -> Session:
    """Return a session on a fake client, with the layout that a cluster with so much memory would have."""
    layout = choose_layout(read_size("memory", memory), cpus=cpus)
    return Session(client, layout, **{"limits_data": True, "patience": IMPATIENT, "workless_seconds": 0.02, **options})


@contextlib.contextmanager
def inline_cluster(memory: str = "2GB", cpus: int = 2, **options: Any) -> Iterator[Session]:
    """``with inline_cluster(): ...`` is ``with start_cluster(): ...`` without processes: each task runs while it is submitted.

    Nothing waits for a disk: no test that takes it asks what a crash of the machine would leave. No page is returned to the
    system after a task, because the collection of garbage that goes with it walks all that pytest holds: a third of the time.
    """
    keep_pages = mock.patch.object(freed_pages, "release_free_memory")
    with tempfile.TemporaryDirectory() as workdir, mock.patch.object(os, "fsync"), keep_pages:
        session = fake_session(FakeClient(), memory, cpus, **{"workdir": workdir, **options})
        open_session(session)
        looks, spool = look_at_deferred(session), spool_on(session)
        try:
            yield session
        finally:
            stop_looking(looks)
            spool.close()
            close_session(session)
