# SPDX-License-Identifier: Apache-2.0
"""Resources that a call of a step needs in addition to memory for blocks, and the queue of calls that wait for them.

The tasks of a worker are its threads. While some are in a step that has requested its share of a GPU or of the CPUs, the others
read, clean and tokenize the next blocks, and then wait with one block each. There are never more waiting tasks than threads, and
a plan has room for a block of each.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import threading
import time
from collections.abc import Iterable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass, field

from curator_df.errors import BudgetError, ParameterError
from curator_df.memory.sizes import read_size, show_count, show_size
from curator_df.suggestions import suggests_names

DEVICE_PARTS = 1_000_000
"""Number of parts into which a GPU is divided: sums of whole numbers are exact."""


@suggests_names
@dataclass(frozen=True)
class Resources:
    """Resources that one call needs, as returned by `resources`. No field changes the results.

    See Also
    --------
    resources, model
    """

    cpus: int | None = field(default=None, metadata={"identity": False})
    """Threads that the call uses; None for one thread, without a limit on concurrent calls."""
    gpus: float | None = field(default=None, metadata={"identity": False})
    """Fraction of the worker's GPU."""
    gpu_memory_bytes: int | None = field(default=None, metadata={"identity": False})
    """GPU memory in bytes."""
    least_device_bytes: int = field(default=0, metadata={"identity": False})
    """Minimum GPU memory of a call in bytes: a model's weights and one long text, or the request of a user's function."""
    weights: str = field(default="", metadata={"identity": False})
    """Name of the GPU memory of a model or a user's object, which stays in use while idle; steps with the same name share it."""
    weight_bytes: int = field(default=0, metadata={"identity": False})
    """Size of that memory in bytes."""

    @property
    def of_gpu(self) -> bool:
        """Whether the call uses a GPU."""
        return self.gpus is not None or self.gpu_memory_bytes is not None


NO_LIMITS = Resources()


@dataclass(frozen=True)
class Capacity:
    """Resources that the tasks of one worker share."""

    threads: int
    """Number of computing threads: those of the worker, and those of additional tasks on spare CPUs."""
    device_bytes: int = 0
    """Usable memory of its GPU in bytes; 0 without one."""
    device_held_bytes: int = 0
    """Part of it that the models of all steps occupy, whether they run or not; calls share the rest."""
    device_block_bytes: int = 0
    """Part of it that blocks on the GPU occupy."""

    def holding(self, asked: Iterable[Resources]) -> Capacity:
        """Return the capacity for calls after the models of these steps were subtracted.

        Examples
        --------
        >>> two = (Resources(gpus=1, weights=name, weight_bytes=6_000) for name in ("small", "other"))
        >>> Capacity(1, device_bytes=16_000).holding(two).device_share(Resources(gpus=1, weight_bytes=6_000))
        10000
        """
        held = {each.weights: each.weight_bytes for each in asked if each.of_gpu}
        return dataclasses.replace(self, device_held_bytes=sum(held.values()))

    def free_of_models(self, resources: Resources = NO_LIMITS) -> int:
        """Return the GPU memory that calls share, in bytes; outside of a plan, only the model of this step is subtracted."""
        return max(self._left(resources), 0)

    def _left(self, resources: Resources) -> int:
        """Return the remaining GPU memory in bytes; a negative value is the shortfall."""
        return self.device_bytes - max(self.device_held_bytes, resources.weight_bytes) - self.device_block_bytes

    def device_parts(self, resources: Resources) -> int:
        """Return the parts of the GPU that a call needs in addition to permanent objects, at most all of them."""
        parts = int((resources.gpus or 0) * DEVICE_PARTS)
        if resources.gpu_memory_bytes is not None:
            other_bytes = max(resources.gpu_memory_bytes - resources.weight_bytes, 0)
            parts = -(-other_bytes * DEVICE_PARTS // max(self.free_of_models(resources), 1))
        return min(parts, DEVICE_PARTS)

    def taken(self, resources: Resources) -> tuple[int, int]:
        """Return the threads and the parts of the GPU that must be free for a call, at most all of them."""
        parts = self.device_parts(resources)
        if (
            resources.of_gpu and not parts
        ):  # all of it may be in use permanently, and the needs of a second call are unknown
            parts = DEVICE_PARTS
        return min(resources.cpus or 0, self.threads), parts

    def at_once(self, resources: Resources, tasks: int | None = None) -> int:
        """Return the maximum number of concurrent calls for a number of tasks; by default with one task per thread.

        Examples
        --------
        >>> two_threads = Capacity(2, device_bytes=16_000_000_000)
        >>> two_threads.at_once(Resources(gpus=1)), two_threads.at_once(Resources(gpu_memory_bytes=5_000_000_000))
        (1, 2)
        >>> two_threads.at_once(Resources(gpu_memory_bytes=5_000_000_000), tasks=4)
        3
        """
        cpus, parts = self.taken(resources)
        tasks = self.threads if tasks is None else tasks
        return min(self.threads // cpus if cpus else tasks, DEVICE_PARTS // parts if parts else tasks, tasks)

    def require(self, operator: str, resources: Resources) -> None:
        """Raise `BudgetError` if a call needs more than the worker has."""
        if (resources.cpus or 0) > self.threads:
            raise BudgetError(
                f"{operator}: resources(cpus={resources.cpus}) requests more than the {show_count(self.threads, 'thread')} "
                f"of each worker. Use cpus={self.threads}, or start a cluster whose workers have more threads"
            )
        if resources.of_gpu and not self.device_bytes:
            raise BudgetError(
                f"{operator}: its resources need a GPU, and these workers have none. Start the cluster with "
                "start_cluster(gpus='auto') on a machine with GPUs, or remove gpus= and gpu_memory="
            )
        if (resources.gpu_memory_bytes or 0) > self.device_bytes:
            raise BudgetError(
                f"{operator}: resources(gpu_memory={resources.gpu_memory_bytes:_}) is more than the "
                f"{show_size(self.device_bytes)} of a GPU that may be used. Lower gpu_memory=, or set a larger "
                "start_cluster(device_memory=)"
            )
        if resources.of_gpu and self.device_share(resources) < resources.least_device_bytes:
            raise BudgetError(self._too_little(operator, resources))

    def _too_little(self, operator: str, resources: Resources) -> str:
        others, used, more = max(self.device_held_bytes - resources.weight_bytes, 0), "", ""
        if others:
            used += f", of which the models and objects of other steps use {show_size(others)}"
        if self.device_block_bytes:
            used += f", {'and' if others else 'of which'} blocks use {show_size(self.device_block_bytes)}"
        if used:
            more = ", or run the steps one after the other, with checkpoint between them"
        share = f"{show_size(self.device_share(resources))} of {show_size(self.device_bytes)}{used}"
        if resources.least_device_bytes == resources.gpu_memory_bytes:
            return (
                f"{operator}: resources(gpu_memory={resources.gpu_memory_bytes:_}), but only {share} remain for it. Set "
                "a larger start_cluster(device_memory=), or let device_held_bytes return less (it is the part of "
                f"gpu_memory= that an object keeps between calls){more}"
            )
        return (
            f"{operator}: the model and one long text need {show_size(resources.least_device_bytes)} of GPU memory, but "
            f"resources= allows only {share}. Set a larger gpus= or gpu_memory= in resources(){more}"
        )

    def device_share(self, resources: Resources) -> int:
        """Return the GPU memory that a call may use in bytes, including its model's weights.

        Examples
        --------
        >>> Capacity(1, device_bytes=16_000).device_share(Resources(gpus=0.5))
        8000
        """
        left = self._left(resources)
        if resources.gpu_memory_bytes is not None:
            return max(min(resources.gpu_memory_bytes, left + resources.weight_bytes), 0)
        return max(int((resources.gpus or 0) * max(left, 0)) + min(left, 0) + resources.weight_bytes, 0)


def resources(*, cpus: int | None = None, gpus: float | None = None, gpu_memory: str | int | None = None) -> Resources:
    """Declare the resources of one call of a model, so that no more calls run concurrently than fit on a worker.

    Parameters
    ----------
    cpus : int, optional
        Number of threads that the model uses. At most ``threads // cpus`` of a worker's threads are in such a step at once.
    gpus : float, optional
        Fraction of the worker's GPU, above 0 and up to 1: 1 allows one concurrent call, 0.5 two. It is a fraction of the
        memory that remains after the weights of the models of all steps, which stay on the GPU, and after the blocks
        on the GPU.
    gpu_memory : str or int, optional
        GPU memory including the model's weights, such as ``"8GB"``: as many calls run concurrently as fit into the GPU
        memory that the cluster may use, calls of other steps included.

    Returns
    -------
    Resources
        Value for ``resources=`` of `model`: ``cdf.model("a/model", resources=cdf.resources(cpus=4))``.

    Raises
    ------
    ParameterError
        If a number is out of range, or ``gpus`` and ``gpu_memory`` are both given.

    See Also
    --------
    model

    Notes
    -----
    Computes: no. See ``docs/models.md#concurrent-model-calls``.

    The plan refuses more than a worker has. Each waiting task keeps a block in memory, which the plan counts; meanwhile,
    other tasks of the worker read, clean and tokenize. The setting does not change the rows.

    Examples
    --------
    >>> resources(gpu_memory="8GB").gpu_memory_bytes
    8000000000
    """
    if gpus is not None and gpu_memory is not None:
        raise ParameterError(
            f"resources: gpus={gpus} and gpu_memory={gpu_memory!r} both set the share of a GPU. Use only one of them"
        )
    if cpus is not None and (not isinstance(cpus, int) or isinstance(cpus, bool) or cpus < 1):
        raise ParameterError(f"resources: cpus={cpus!r} must be a whole number of at least 1")
    if gpus is not None and not (isinstance(gpus, int | float) and 0 < gpus <= 1):
        raise ParameterError(f"resources: gpus={gpus!r} must be above 0 and at most 1: a worker has one GPU")
    return Resources(cpus, gpus, None if gpu_memory is None else read_size("gpu_memory", gpu_memory))


class _Queue:
    """Queue that admits calls in order of arrival, as soon as their resources are free."""

    def __init__(self, capacity: Capacity) -> None:
        self._free = (capacity.threads, DEVICE_PARTS)
        self._waiting: collections.deque[object] = collections.deque()
        self._changed = threading.Condition()

    @contextlib.contextmanager
    def admitted(self, taken: tuple[int, int]) -> Iterator[None]:
        ticket = object()
        with self._changed:
            self._waiting.append(ticket)
            try:
                self._changed.wait_for(lambda: self._waiting[0] is ticket and self._has(taken))
                self._add(taken, -1)
            finally:
                self._waiting.remove(ticket)
                self._changed.notify_all()
        try:
            yield
        finally:
            with self._changed:
                self._add(taken, 1)
                self._changed.notify_all()

    def _has(self, taken: tuple[int, int]) -> bool:
        return taken[0] <= self._free[0] and taken[1] <= self._free[1]

    def _add(self, taken: tuple[int, int], sign: int) -> None:
        self._free = (self._free[0] + sign * taken[0], self._free[1] + sign * taken[1])


_capacity: ContextVar[Capacity | None] = ContextVar("capacity", default=None)
_queues: dict[Capacity, _Queue] = {}


def capacity_here() -> Capacity | None:
    """Return the resources that the tasks of this process share; None outside of a run."""
    return _capacity.get()


@contextlib.contextmanager
def shared(capacity: Capacity | None) -> Iterator[None]:
    """Set the resources that the tasks of this process share while this thread runs one of them; None for no limits."""
    token = _capacity.set(capacity)
    try:
        yield
    finally:
        _capacity.reset(token)


@contextlib.contextmanager
def admitted(resources: Resources) -> Iterator[int]:
    """Wait until the resources of a call are free, and reserve them during the call; yield the milliseconds waited.

    Outside of a run, where the capacity is unknown, there is no wait.
    """
    capacity = _capacity.get()
    if capacity is None or resources == NO_LIMITS:
        yield 0
        return
    started = time.perf_counter()
    with _queues.setdefault(capacity, _Queue(capacity)).admitted(capacity.taken(resources)):
        yield round(1000 * (time.perf_counter() - started))
