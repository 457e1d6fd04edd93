# SPDX-License-Identifier: Apache-2.0
"""Choice of a layout of processes and threads that keeps a memory budget.

``allowed`` = client + workers' baseline + workers' working memory + margin. The baseline, the memory of a process before any
work, was measured on one machine (``benchmarks/floors.py``) and is assumed on all others. `cluster.surroundings` measures it
again on the running cluster, and chooses a smaller layout from that `Baseline` if the first one does not fit.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib.util
import math
from dataclasses import dataclass
from numbers import Integral

from curator_df.errors import BudgetError, ParameterError
from curator_df.memory.limits import machine_bytes, usable_cpus
from curator_df.memory.resources import Capacity
from curator_df.memory.sizes import read_size, rounded_up, show_size, show_sizes, size_to_type

MB = 1_000_000

# Measured on Linux x86-64 with Python 3.11, dask 2026.7.1, pandas 3.0.6, pyarrow 26.0.1, numba 0.64 (PSS of the whole tree after
# imports, with the compiled kernels loaded; benchmarks/floors.py). With scipy installed, which Dask then imports: 320 MB in one
# process; 441, 598 and 915 MB with 1, 2 and 4 workers, which is about 283 MB for the client, the sampler and the library
# pages that all share, and 158 MB for each worker. Without scipy: 15 MB less in each process. Clean pages of libraries were
# 132 MB of that, or 187 to 223 MB if the page cache has them in large folios. The rest is counted: without scipy 164 MB
# in one process and 129 + 144 MB for each worker.
CLIENT_RESERVED_BYTES = 288 * MB
"""Baseline of the client in bytes: scheduler, nannies, resource tracker, and room for library pages that all processes share."""
LIBRARY_BYTES = 150 * MB
"""Room for clean pages of libraries in bytes, part of the client's baseline. These pages do not count as memory in use, but a
process whose code is evicted repeatedly becomes very slow. A budget that cannot spare this room gets less of it.
"""
WORKER_RESERVED_BYTES = 158 * MB
"""Baseline of one worker process in bytes."""
WORKER_RSS_BYTES = 300 * MB
"""Resident bytes of an idle worker as Dask counts them (RSS: shared library pages count fully in every process)."""
RMM_BYTES = 190 * MB
"""Additional bytes of each worker process with RMM installed (the gpu extra): Dask imports it, and with it cupy and scipy.
Measured: 487 MB resident, 262 MB of them private, against 300 and 139 MB without RMM.
"""
CLIENT_GROWTH_BYTES = 8 * MB
"""Growth of a client after its cluster has started that no plan counts, in bytes; 4.5 MB were measured in eight runs."""
HELD_SLACK_BYTES = 10 * MB
"""Additional bytes that a client may use by the time it gets the memory that an error named, so that the value suffices."""
CLIENT_PRIVATE_BYTES = 120 * MB
"""Private resident bytes of an idle client, part of its baseline; everything beyond belongs to the user."""
SINGLE_RESERVED_BYTES = 345 * MB
"""Baseline of one process with client, scheduler and one worker in bytes, including room for the library pages."""

MIN_THREAD_BYTES = 48 * MB
"""Minimum working memory of a thread in bytes: blocks of 1 MB, a row group and the buffers of a codec, with a reserve."""
GOOD_THREAD_BYTES = 320 * MB
"""Working memory of a thread in bytes above which more processes help more than more memory for each."""
MARGIN_FRACTION = 0.03
"""Safety margin as a fraction of the budget, for uncounted memory: page tables, thread stacks, a client that shows a table."""
MOST_CPUS = 65_536
"""Maximum number of threads: more than any machine has."""
UNIT_BYTES = 10_000
"""Below this, a number of bytes is likely one of gigabytes without its unit."""
MACHINE_FRACTION = 0.6
"""Fraction of the machine's (or cgroup's) memory that ``memory=None`` uses."""


@dataclass(frozen=True)
class Baseline:
    """Memory that processes use before any work (`memory.counted_memory.counted_bytes`), assumed or measured."""

    client_bytes: int
    """Bytes of the client with scheduler, nannies and all other child processes except the workers."""
    worker_bytes: int
    """Bytes of one worker process."""
    single_bytes: int
    """Bytes of one process with client, scheduler and one worker."""

    def held_bytes(self, workers: int) -> int:
        """Return the baseline of the client and its worker processes in bytes; 0 workers means that tasks run in the client."""
        return self.client_bytes + workers * self.worker_bytes if workers else self.single_bytes


@dataclass(frozen=True)
class Layout:
    """Processes, threads and memory that follow from a budget."""

    allowed_bytes: int
    """Memory budget of the whole process tree on this node (or in one job), in bytes."""
    in_process: bool
    """Whether tasks run in threads of the client's own process, instead of worker processes under a nanny."""
    workers: int
    """Number of worker processes of all nodes (1 if in process)."""
    threads: int
    """Number of threads of each worker."""
    cpus: int
    """Number of requested CPUs; there are fewer threads if memory is short."""
    reserved_bytes: int
    """Baseline of all processes of a node, before any work, in bytes."""
    work_bytes: int
    """Working memory of all tasks of one worker, in bytes."""
    reason: str
    """Explanation why this layout was chosen."""
    nodes: int = 1
    """Number of nodes (or jobs), each with its own memory."""
    shares_work: bool = True
    """Whether a task that runs exclusively may use the working memory of all workers of its node, or only that of one worker."""
    device_bytes: int = 0
    """GPU memory that each worker may use, in bytes; 0 if workers have no GPU."""
    device_held_bytes: int = 0
    """GPU memory of the models of a planned run, in bytes; part of ``device_bytes``."""
    spare_cpus: int = 0
    """CPUs of each worker in addition to those of its threads, if a worker has a GPU: for tasks whose blocks stay on the host."""
    kept: tuple[tuple[str, int], ...] = ()
    """Packages that earlier runs have left in workers, and their bytes in each."""
    client_bytes: int = 0
    """Bytes that the client has used since the cluster started; part of ``reserved_bytes``."""
    library_bytes: int = 0
    """Room for clean pages of libraries in bytes; part of ``reserved_bytes``."""
    baseline: Baseline | None = None
    """Measured baseline of this cluster, if the assumed one was too low."""

    @property
    def node_workers(self) -> int:
        """Number of worker processes of a node; the largest number if nodes differ."""
        return -(-self.workers // self.nodes)

    @property
    def shape(self) -> str:
        """Description of the processes and threads."""
        threads = f"{self.threads} thread{'s' * (self.threads > 1)}"
        if self.in_process:
            return f"{threads} of this process"
        processes = f"{self.node_workers} worker process{'es' * (self.node_workers > 1)} x {threads}"
        return processes if self.nodes == 1 else f"{self.nodes} nodes x {processes}"

    @property
    def memory_argument(self) -> str:
        """Memory budget as a user types it: ``'2GB'``."""
        return (
            f"'{self.allowed_bytes / 1e9:.3g}GB'"
            if self.allowed_bytes >= 1e9
            else f"'{self.allowed_bytes / 1e6:.0f}MB'"
        )

    @property
    def thread_bytes(self) -> int:
        """Working memory of one task in bytes."""
        return self.work_bytes // self.threads

    @property
    def wall_bytes(self) -> int:
        """Counted memory of all processes together at which what steps have started is ended."""
        return int(self.allowed_bytes * (1 - MARGIN_FRACTION)) - self.library_bytes

    @property
    def capacity(self) -> Capacity:
        """Resources that the tasks of one worker share."""
        return Capacity(self.threads + self.spare_cpus, self.device_bytes, self.device_held_bytes)

    @property
    def exclusive_bytes(self) -> int:
        """Working memory in bytes of a task that runs exclusively."""
        return self.work_bytes * (self.node_workers if self.shares_work else 1)

    def with_client_bytes(self, client_bytes: int) -> Layout:
        """Return the layout with less working memory if the client has used more since the cluster started.

        Examples
        --------
        >>> layout = choose_layout(4_000_000_000, cpus=2)
        >>> less = layout.with_client_bytes(300_000_000)
        >>> less.reserved_bytes - layout.reserved_bytes, layout.work_bytes - less.work_bytes
        (300000000, 150000000)
        """
        more = client_bytes - self.client_bytes
        work_bytes = self.work_bytes - math.ceil(more / self.node_workers)
        reserved_bytes = self.reserved_bytes + more
        return dataclasses.replace(
            self, reserved_bytes=reserved_bytes, work_bytes=work_bytes, client_bytes=client_bytes
        )


def parse_memory(memory: str | int | None) -> int:
    """Convert the user's value to bytes; ``None`` is 60% of the memory of the machine or its cgroup.

    Examples
    --------
    >>> parse_memory("4GB")
    4000000000
    """
    if memory is None:
        return int(machine_bytes() * MACHINE_FRACTION)
    allowed_bytes = read_size("memory", memory)
    if allowed_bytes > machine_bytes():
        asked, has = show_sizes(allowed_bytes, machine_bytes())
        raise BudgetError(
            f"memory={memory!r} is {asked}, but this machine (or its cgroup or container) has only {has}. Use a smaller memory="
        )
    return allowed_bytes


def require_cpus(cpus: int) -> None:
    """Raise `ParameterError` unless a number of CPUs is a whole number that a machine can have."""
    if isinstance(cpus, bool) or not isinstance(cpus, Integral) or not 1 <= cpus <= MOST_CPUS:
        raise ParameterError(f"cpus={cpus!r} must be a whole number from 1 to {MOST_CPUS:,}")


def choose_layout(
    allowed_bytes: int,
    *,
    cpus: int | None = None,
    held_bytes: int = 0,
    baseline: Baseline | None = None,
    in_threads: str = "",
) -> Layout:
    """Choose processes and threads for a budget on this node.

    Parameters
    ----------
    allowed_bytes : int
        Budget of the whole process tree.
    cpus : int, optional
        Maximum number of threads; all usable CPUs by default.
    held_bytes : int
        Memory that this process uses beyond an idle client, such as a table in a notebook.
    baseline : Baseline, optional
        Memory of processes before any work; by default values that were measured once, on another machine.
    in_threads : str
        Why tasks run in threads of the client's own process although worker processes would fit; empty if they need not.
        Each thread has at least as much memory as it would have in a worker process.

    Returns
    -------
    Layout
        The most processes that leave each thread 320 MB; else one process with as many threads as fit; else
        threads in the client's own process; else one thread with the minimum memory, which leaves less room for pages of
        libraries.

    Raises
    ------
    BudgetError
        If the budget is below the minimum, which the message names.

    Examples
    --------
    >>> layout = choose_layout(4_000_000_000, cpus=2)
    >>> layout.workers, layout.threads
    (2, 1)
    """
    cpus = usable_cpus() if cpus is None else cpus
    require_cpus(cpus)
    there = _Space(allowed_bytes, held_bytes, baseline or assumed_baseline())
    if in_threads:
        usual = choose_layout(allowed_bytes, cpus=cpus, held_bytes=held_bytes, baseline=baseline)
        # A worker process of a small budget has fewer threads than CPUs, so each may have more memory.
        threads = min(cpus, there.work_bytes(0) // usual.thread_bytes)
        return usual if usual.in_process else there.layout(0, threads, cpus, in_threads)
    for workers in _divisors(cpus):
        work_bytes = there.work_bytes(workers)
        if work_bytes // (cpus // workers) >= GOOD_THREAD_BYTES:
            reason = (
                f"enough for {workers} processes"
                if workers > 1
                else "more processes would leave too little memory per thread"
            )
            return there.layout(workers, cpus // workers, cpus, reason)
    if (work_bytes := there.work_bytes(1)) >= MIN_THREAD_BYTES:
        reason = f"a second process would take {show_size(there.baseline.worker_bytes)} for its libraries alone"
        return there.layout(1, min(cpus, work_bytes // MIN_THREAD_BYTES), cpus, reason)
    if (work_bytes := there.work_bytes(0)) >= MIN_THREAD_BYTES:
        reason = "a separate worker process would leave too little memory for tasks"
        return there.layout(0, min(cpus, work_bytes // MIN_THREAD_BYTES), cpus, reason)
    if (spare_bytes := there.work_bytes(0, library_bytes=0) - MIN_THREAD_BYTES) >= 0:
        return there.layout(0, 1, cpus, "the minimum that a task needs", library_bytes=spare_bytes)
    floor_bytes = least_allowed(there.baseline, held_bytes=held_bytes + (HELD_SLACK_BYTES if held_bytes else 0))
    held = f"{show_size(held_bytes)} that this process already uses, " if held_bytes else ""
    asked, least = show_sizes(allowed_bytes, floor_bytes)
    if allowed_bytes < UNIT_BYTES:
        raise BudgetError(
            f"memory={asked} is below the minimum of {least}. A number without a unit is a number of bytes: write "
            f"memory='{allowed_bytes}GB' for gigabytes"
        )
    raise BudgetError(
        f"memory={asked} is below the minimum of {least}: {held}"
        f"{show_size(there.baseline.single_bytes)} for Python, Dask, pandas, pyarrow and numba, {show_size(MIN_THREAD_BYTES)} "
        f"for the smallest task, and a safety margin. Use at least memory={size_to_type(floor_bytes)}"
    )


def layout_of_workers(
    allowed_bytes: int, workers: int, *, held_bytes: int = 0, reason: str, baseline: Baseline | None = None
) -> Layout:
    """Return the layout for a given number of worker processes with one thread each.

    Raises
    ------
    BudgetError
        If they would have less than the smallest task needs; the message names the memory that fits.
    """
    there = _Space(allowed_bytes, held_bytes, baseline or assumed_baseline())
    layout = there.layout(workers, 1, workers, reason)
    if layout.work_bytes >= MIN_THREAD_BYTES:
        return layout
    spare_bytes = there.work_bytes(workers, library_bytes=0) - MIN_THREAD_BYTES
    if spare_bytes >= 0:
        return there.layout(workers, 1, workers, reason, library_bytes=workers * spare_bytes)
    enough = least_allowed(there.baseline, workers, held_bytes)
    raise BudgetError(
        f"memory={show_size(allowed_bytes)} is too little for {workers} worker processes ({reason}): each needs "
        f"{show_size(there.baseline.worker_bytes)} before any work. Use at least memory={size_to_type(enough)}, or fewer workers"
    )


def least_memory(
    thread_bytes: int, *, cpus: int, above_bytes: int = 0, held_bytes: int = 0, baseline: Baseline | None = None
) -> int:
    """Return the smallest budget above ``above_bytes``, to three digits, whose layout gives each task ``thread_bytes``.

    A little more memory may mean more processes or threads and less for each, so the layouts are tried one by one.
    ``held_bytes`` and ``baseline`` are those of `choose_layout`.
    """
    thread_bytes = max(thread_bytes, MIN_THREAD_BYTES)
    there = baseline or assumed_baseline()
    shapes = [(workers, threads) for workers in (0, 1) for threads in range(1, cpus + 1)]
    shapes += [(workers, cpus // workers) for workers in _divisors(cpus)]
    found = {
        rounded_up(_allowed_for(thread_bytes * threads, workers, there, held_bytes)) for workers, threads in shapes
    }
    found.add(rounded_up(least_allowed(there, held_bytes=held_bytes)))
    layouts = (
        choose_layout(allowed, cpus=cpus, held_bytes=held_bytes, baseline=baseline)
        for allowed in sorted(found)
        if allowed > above_bytes
    )
    return next(layout.allowed_bytes for layout in layouts if layout.thread_bytes >= thread_bytes)


def most_cpus(thread_bytes: int, layout: Layout) -> int:
    """Return the number of CPUs, less than that of a layout, with which each task gets ``thread_bytes``; 0 if there is none.

    Examples
    --------
    >>> layout = choose_layout(480_000_000, cpus=2)
    >>> layout.thread_bytes, most_cpus(70_000_000, layout)
    (60300000, 1)
    """
    if not layout.shares_work:  # the number of its workers is fixed and not chosen from the CPUs
        return 0
    held_bytes = _client_held_bytes(layout)
    for cpus in range(layout.cpus - 1, 0, -1):
        try:
            fewer = choose_layout(layout.allowed_bytes, cpus=cpus, held_bytes=held_bytes, baseline=layout.baseline)
        except BudgetError:  # the client has used too much since the cluster started
            return 0
        if fewer.thread_bytes >= thread_bytes:
            return cpus
    return 0


def larger_memory(thread_bytes: int, layout: Layout) -> int:
    """Return a budget above that of a layout, with the same CPUs, that gives each task ``thread_bytes``.

    It is the smallest one, plus the memory that the client may use in addition by the time it gets the budget.

    Examples
    --------
    >>> layout = choose_layout(480_000_000, cpus=2)
    >>> least_memory(70_000_000, cpus=2) < layout.allowed_bytes < larger_memory(70_000_000, layout)
    True
    """
    if not layout.shares_work:
        return least_memory(thread_bytes, cpus=layout.cpus)
    return least_memory(
        thread_bytes + HELD_SLACK_BYTES,
        cpus=layout.cpus,
        above_bytes=layout.allowed_bytes,
        held_bytes=_client_held_bytes(layout),
        baseline=layout.baseline,
    )


@functools.cache
def assumed_baseline() -> Baseline:
    """Return the memory of processes before any work as it was measured once, adapted to this environment."""
    return Baseline(
        CLIENT_RESERVED_BYTES - LIBRARY_BYTES, worker_reserved_bytes(), SINGLE_RESERVED_BYTES - LIBRARY_BYTES
    )


@functools.cache
def worker_reserved_bytes() -> int:
    """Return the baseline of one worker process in this environment, in bytes."""
    return WORKER_RESERVED_BYTES + _rmm_bytes()


@functools.cache
def worker_rss_bytes() -> int:
    """Return the resident bytes of an idle worker in this environment, as Dask counts them."""
    return WORKER_RSS_BYTES + _rmm_bytes()


def _rmm_bytes() -> int:
    return RMM_BYTES if importlib.util.find_spec("rmm") is not None else 0


def least_with_workers(held_bytes: int = 0) -> int:
    """Return the smallest budget with which tasks run in a worker process and not in threads of the client.

    Examples
    --------
    >>> choose_layout(least_with_workers()).in_process
    False
    """
    return _allowed_for(MIN_THREAD_BYTES, 1, assumed_baseline(), held_bytes)


def memory_for_alone(needed_bytes: int, layout: Layout) -> int:
    """Return a budget, close to the smallest, with which a task that runs exclusively may use ``needed_bytes``.

    Examples
    --------
    >>> layout = choose_layout(1_000_000_000, cpus=2)
    >>> enough = memory_for_alone(1_000_000_000, layout)
    >>> choose_layout(enough, cpus=2).exclusive_bytes >= 1_000_000_000 > layout.exclusive_bytes
    True
    """
    held_bytes = _client_held_bytes(layout)
    allowed_bytes = layout.allowed_bytes
    if layout.exclusive_bytes < needed_bytes:
        needed_bytes += HELD_SLACK_BYTES
    # A little more memory may mean more processes, and less for a task that runs exclusively.
    while layout.exclusive_bytes < needed_bytes:
        short = needed_bytes - layout.exclusive_bytes
        allowed_bytes = rounded_up(allowed_bytes + short / (1 - MARGIN_FRACTION) + 1)
        layout = choose_layout(allowed_bytes, cpus=layout.cpus, held_bytes=held_bytes, baseline=layout.baseline)
    return allowed_bytes


def least_allowed(baseline: Baseline, workers: int = 0, held_bytes: int = 0) -> int:
    """Return the smallest budget for a number of worker processes with one thread each, without room for library pages.

    Examples
    --------
    >>> layout = choose_layout(least_allowed(Baseline(140_000_000, 150_000_000, 300_000_000)), cpus=4)
    >>> layout.in_process, layout.threads, layout.thread_bytes >= MIN_THREAD_BYTES
    (True, 1, True)
    """
    return _allowed_for(MIN_THREAD_BYTES, workers, baseline, held_bytes, library_bytes=0)


def _divisors(cpus: int) -> list[int]:
    return [workers for workers in range(cpus, 0, -1) if cpus % workers == 0]


@dataclass(frozen=True)
class _Space:
    """Memory that a budget leaves for work after the baseline of the processes."""

    allowed_bytes: int
    held_bytes: int
    baseline: Baseline

    def work_bytes(self, workers: int, library_bytes: int = LIBRARY_BYTES) -> int:
        """Return the working memory of each of ``workers`` processes; 0 means in the client's own."""
        usable_bytes = int(self.allowed_bytes * (1 - MARGIN_FRACTION)) - self.held_bytes - library_bytes
        return (usable_bytes - self.baseline.held_bytes(workers)) // max(workers, 1)

    def layout(self, workers: int, threads: int, cpus: int, reason: str, library_bytes: int = LIBRARY_BYTES) -> Layout:
        """Return a layout with all available working memory."""
        return Layout(
            self.allowed_bytes,
            in_process=workers == 0,
            workers=max(workers, 1),
            threads=threads,
            cpus=cpus,
            reserved_bytes=self.baseline.held_bytes(workers) + library_bytes + self.held_bytes,
            work_bytes=self.work_bytes(workers, library_bytes),
            reason=reason,
            library_bytes=library_bytes,
            baseline=None if self.baseline == assumed_baseline() else self.baseline,
        )


def _client_held_bytes(layout: Layout) -> int:
    """Return the memory that the client used beyond an idle one when the layout was chosen."""
    workers = 0 if layout.in_process else layout.node_workers
    baseline = layout.baseline or assumed_baseline()
    return max(layout.reserved_bytes - layout.library_bytes - baseline.held_bytes(workers), 0)


def _allowed_for(
    work_bytes: int, workers: int, baseline: Baseline, held_bytes: int = 0, library_bytes: int = LIBRARY_BYTES
) -> int:
    """Return the smallest budget that gives each of ``workers`` processes ``work_bytes``; 0 means the client's own alone."""
    usable_bytes = baseline.held_bytes(workers) + held_bytes + library_bytes + max(workers, 1) * work_bytes
    return math.ceil(usable_bytes / (1 - MARGIN_FRACTION)) + 1
