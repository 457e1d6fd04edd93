# SPDX-License-Identifier: Apache-2.0
"""What a call of a step takes of its worker beside memory for blocks, and who waits when there is not enough of it.

The tasks of a worker are its threads. While some of them are in a step that has asked for its share of a GPU or of the
CPUs, the others read, clean and tokenize the next blocks, and wait with one block each: what waits is never more than the
threads, and a plan has room for a block of each.
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

from curator_df.core.sizes import read_size, show_size
from curator_df.errors import BudgetError, ParameterError

DEVICE_PARTS = 1_000_000
"""In which a GPU is shared out: sums of whole numbers are exact."""


@dataclass(frozen=True)
class Resources:
    """What one call takes of its worker, as `resources` makes it. No field changes what comes out."""

    cpus: int | None = field(default=None, metadata={"identity": False})
    """Threads in which it computes; None for one, and no limit to the calls at a time."""
    gpus: float | None = field(default=None, metadata={"identity": False})
    """Share of the worker's GPU."""
    gpu_memory_bytes: int | None = field(default=None, metadata={"identity": False})
    """Of the GPU's memory."""
    least_device_bytes: int = field(default=0, metadata={"identity": False})
    """Without so much of the GPU's memory a call is of no use: a model's weights, and one long text."""
    weights: str = field(default="", metadata={"identity": False})
    """Name of what a model holds of the GPU whether it runs or not, which steps with the same name hold together."""
    weight_bytes: int = field(default=0, metadata={"identity": False})
    """And how much that is."""

    @property
    def of_gpu(self) -> bool:
        """Whether it takes anything of a GPU."""
        return self.gpus is not None or self.gpu_memory_bytes is not None


NO_LIMITS = Resources()


@dataclass(frozen=True)
class Capacity:
    """What the tasks of one worker share."""

    threads: int
    """Tasks at a time."""
    device_bytes: int = 0
    """Memory of its GPU that may be used; 0 without one."""
    device_held_bytes: int = 0
    """Of it what the models of all steps hold, whether they run or not; calls share the rest."""

    def holding(self, asked: Iterable[Resources]) -> Capacity:
        """Return what is left for calls beside the models of these steps.

        Examples
        --------
        >>> two = (Resources(gpus=1, weights=name, weight_bytes=6_000) for name in ("small", "other"))
        >>> Capacity(1, device_bytes=16_000).holding(two).device_share(Resources(gpus=1, weight_bytes=6_000))
        10000
        """
        held = {each.weights: each.weight_bytes for each in asked if each.of_gpu}
        return dataclasses.replace(self, device_held_bytes=sum(held.values()))

    def free_of_models(self, resources: Resources = NO_LIMITS) -> int:
        """Return the bytes of the GPU that calls share; outside of a plan the model of a step is the only one."""
        return max(self.device_bytes - max(self.device_held_bytes, resources.weight_bytes), 0)

    def taken(self, resources: Resources) -> tuple[int, int]:
        """Return the threads and the parts of the GPU that a call takes, no more than there are."""
        parts = int((resources.gpus or 0) * DEVICE_PARTS)
        if resources.gpu_memory_bytes is not None:
            beside_weights = max(resources.gpu_memory_bytes - resources.weight_bytes, 0)
            parts = -(-beside_weights * DEVICE_PARTS // max(self.free_of_models(resources), 1))
        return min(resources.cpus or 0, self.threads), min(parts, DEVICE_PARTS)

    def at_once(self, resources: Resources) -> int:
        """Return how many calls there may be at a time.

        Examples
        --------
        >>> two_threads = Capacity(2, device_bytes=16_000_000_000)
        >>> two_threads.at_once(Resources(gpus=1)), two_threads.at_once(Resources(gpu_memory_bytes=5_000_000_000))
        (1, 2)
        """
        cpus, parts = self.taken(resources)
        return min(self.threads // max(cpus, 1), DEVICE_PARTS // max(parts, 1), self.threads)

    def require(self, operator: str, resources: Resources) -> None:
        """Raise `BudgetError` if a call takes more than there is."""
        if (resources.cpus or 0) > self.threads:
            raise BudgetError(
                f"{operator}: resources(cpus={resources.cpus}), but a worker here has {self.threads} "
                f"thread{'s' * (self.threads > 1)}; say cpus={self.threads}, or start a cluster whose workers have more"
            )
        if resources.of_gpu and not self.device_bytes:
            raise BudgetError(
                f"{operator}: its resources are of a GPU, and the workers here have none; start_cluster(gpus='auto') gives "
                "each one where there are GPUs, or leave gpus= and gpu_memory= out"
            )
        if (resources.gpu_memory_bytes or 0) > self.device_bytes:
            raise BudgetError(
                f"{operator}: resources(gpu_memory={resources.gpu_memory_bytes:_}), but of each GPU "
                f"{show_size(self.device_bytes)} may be used; allow more with start_cluster(device_memory=)"
            )
        if resources.of_gpu and self.device_share(resources) < resources.least_device_bytes:
            others = max(self.device_held_bytes - resources.weight_bytes, 0)
            if others:
                beside = f", of which the models of other steps hold {show_size(others)}"
                more = "; or run one after the other, with checkpoint between them"
            else:
                beside = more = ""
            raise BudgetError(
                f"{operator}: the model and one long text take {show_size(resources.least_device_bytes)} of a GPU, but "
                f"its resources are {show_size(self.device_share(resources))} of {show_size(self.device_bytes)}{beside}; give "
                f"it more with resources(gpus=) or (gpu_memory=){more}"
            )

    def device_share(self, resources: Resources) -> int:
        """Return the bytes of the GPU that a call may use, its model's weights among them.

        Examples
        --------
        >>> Capacity(1, device_bytes=16_000).device_share(Resources(gpus=0.5))
        8000
        """
        free = self.free_of_models(resources)
        if resources.gpu_memory_bytes is not None:
            return min(resources.gpu_memory_bytes, free + resources.weight_bytes)
        return int((resources.gpus or 0) * free) + resources.weight_bytes


def resources(*, cpus: int | None = None, gpus: float | None = None, gpu_memory: str | int | None = None) -> Resources:
    """Say what one call of a model takes of its worker, so that no more run at a time than there is room for.

    Parameters
    ----------
    cpus : int, optional
        Threads in which the model computes. Of a worker's threads, ``threads // cpus`` are in such a step at a time.
    gpus : float, optional
        Share of the worker's GPU, above 0 and up to 1: with 1 one call at a time has it, with 0.5 two. It is a share of what
        the models of all steps leave, which hold their weights there meanwhile.
    gpu_memory : str or int, optional
        Memory on the GPU, the model's weights with it, such as ``"8GB"``: as many calls at a time as fit into what the cluster
        may use of it, those of other steps counted too.

    Returns
    -------
    Resources
        For the ``resources=`` of `add_embedding`, `add_class` and `keep_class`: ``resources=cdf.resources(cpus=4)``.

    Raises
    ------
    ParameterError
        If a number is out of range, or ``gpus`` and ``gpu_memory`` are both given.

    Notes
    -----
    Computes: no. See ``docs/models.md#concurrent-model-calls``.

    What a worker does not have is refused when the plan is made. The tasks that wait hold a block each, which is in the
    plan; meanwhile others of the worker read, clean and tokenize. The rows do not depend on it.

    Examples
    --------
    >>> resources(gpu_memory="8GB").gpu_memory_bytes
    8000000000
    """
    if gpus is not None and gpu_memory is not None:
        raise ParameterError(
            f"resources: gpus={gpus} and gpu_memory={gpu_memory!r} both say how much of a GPU; give one"
        )
    if cpus is not None and (not isinstance(cpus, int) or isinstance(cpus, bool) or cpus < 1):
        raise ParameterError(f"resources: cpus={cpus!r} is not a whole number of 1 or more")
    if gpus is not None and not (isinstance(gpus, int | float) and 0 < gpus <= 1):
        raise ParameterError(f"resources: gpus={gpus!r} is not above 0 and up to 1: a worker has one GPU")
    return Resources(cpus, gpus, None if gpu_memory is None else read_size("gpu_memory", gpu_memory))


class _Queue:
    """Lets calls in, first come first served, while what they take is free."""

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
    """Return what the tasks of this process share, in one of them; None outside of a run."""
    return _capacity.get()


@contextlib.contextmanager
def shared(capacity: Capacity | None) -> Iterator[None]:
    """Say what the tasks of this process share while this thread runs one of them; None for no limits."""
    token = _capacity.set(capacity)
    try:
        yield
    finally:
        _capacity.reset(token)


@contextlib.contextmanager
def admitted(resources: Resources) -> Iterator[int]:
    """Wait until there is what a call takes, and hold it meanwhile; give the milliseconds waited.

    Outside of a run, where nobody knows what there is, nobody waits.
    """
    capacity = _capacity.get()
    if capacity is None or resources == NO_LIMITS:
        yield 0
        return
    started = time.perf_counter()
    with _queues.setdefault(capacity, _Queue(capacity)).admitted(capacity.taken(resources)):
        yield round(1000 * (time.perf_counter() - started))
