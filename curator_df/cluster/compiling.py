# SPDX-License-Identifier: Apache-2.0
"""Compile the kernels that a run's steps need before the run, in separate processes, so that no worker has to."""

from __future__ import annotations

import asyncio
import logging
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from distributed.diagnostics.plugin import WorkerPlugin

from curator_df.core.runner.progress import CellLine, in_notebook, progress_bar
from curator_df.core.runner.shared_plugins import own_name, unregister
from curator_df.errors import BudgetError
from curator_df.kernels.compiling import compile_cache
from curator_df.kernels.compiling.kernel_sets import EVERY_RUN, START_SECONDS, compile_seconds
from curator_df.memory.sizes import show_duration
from curator_df.memory.system import cpus_of_process

LOG = logging.getLogger("curator_df.cluster")

COMPILER_BYTES = 420_000_000
"""Estimated peak of a process that compiles a batch of kernels. Measured (PSS): 326 to 403 MB."""
BATCH_SECONDS = 15.0
"""Seconds of kernels that one process compiles: its memory grows by about 10 MB with each kernel."""
SHOWN_SECONDS = 0.5
"""Seconds between two displays of the progress."""
PLUGIN_NAME = "curator_df-kernels"


def compile_kernels(kernels: Iterable[str], *, room_bytes: int | None = None) -> None:
    """Make sure that the kernels of a run are in the folder of compiled kernels; report it where that takes time.

    Parameters
    ----------
    kernels : iterable of str
        Names, as in `curator_df.kernels.compiling.kernel_sets`.
    room_bytes : int, optional
        Memory for processes that compile; there is always one. Without it, there is one for each CPU.

    Raises
    ------
    RuntimeError
        If a kernel cannot be compiled; with what the compiler said.
    BudgetError
        If a process that compiles lacks memory, and so does one that compiles a single kernel.
    """
    missing = compile_cache.missing_kernels([*EVERY_RUN, *kernels])
    if not missing:
        return
    cpus = cpus_of_process()
    most = cpus if room_bytes is None else max(1, min(cpus, room_bytes // COMPILER_BYTES))
    started = time.monotonic()
    with _shown(missing) as done:
        _compile(batches(missing, most), most, done)
    if compile_cache.missing_kernels(missing):
        LOG.warning(
            "the compiled kernels could not be kept in %s: each worker compiles them again, in memory that the plan does not "
            "count. Set %s to a folder that you can write to and that has 100 MB free",
            compile_cache.cache_folder(),
            compile_cache.VARIABLE,
        )
    _report(f"compiled the kernels in {show_duration(time.monotonic() - started)}")


def batches(kernels: Sequence[str], processes: int) -> list[list[str]]:
    """Divide kernels among processes, each with about as much to compile, at most `BATCH_SECONDS`.

    Neighbors stay together, since they call the same helpers. A process for less than it takes to start is not worth it.
    """
    total = compile_seconds(kernels) - START_SECONDS
    share = min(BATCH_SECONDS, max(START_SECONDS, total / processes))
    divided: list[list[str]] = [[]]
    held = 0.0
    for kernel in sorted(kernels):
        seconds = compile_seconds([kernel]) - START_SECONDS
        if divided[-1] and held + seconds / 2 > share:
            divided.append([])
            held = 0.0
        divided[-1].append(kernel)
        held += seconds
    return divided


def _compile(divided: Sequence[Sequence[str]], processes: int, done: Callable[[str], None]) -> None:
    killed = _compile_batches(divided, processes, done)
    # One after the other, in less memory, and later: what else held memory may have ended. What it had compiled is kept.
    again = [[kernel] for kernel in compile_cache.missing_kernels([kernel for batch in killed for kernel in batch])]
    if again and _compile_batches(again, 1, done):
        raise BudgetError(
            "the process that compiles functions of curator_df was killed twice: there is too little memory for it, which "
            f"takes up to {COMPILER_BYTES / 1e6:.0f} MB. Run `curator-df warm --all` in a shell before the cluster starts, or "
            "start the cluster with a larger memory="
        )


def _compile_batches(
    divided: Sequence[Sequence[str]], processes: int, done: Callable[[str], None]
) -> list[Sequence[str]]:
    """Compile batches of kernels, a few concurrently; return those whose process ended for lack of memory."""
    waiting, failed, killed = list(divided), list[str](), list[Sequence[str]]()

    def work() -> None:
        while not failed:
            try:
                batch = waiting.pop(0)
            except IndexError:
                return
            status, said = _compile_batch(batch, done)
            # The system kills it, or LLVM ends it by a signal; Python's own error ends a traceback.
            if status and (not said or "MemoryError" in said.rstrip().rpartition("\n")[2] or "out of memory" in said):
                killed.append(batch)
            elif status:
                failed.append(said)

    threads = [threading.Thread(target=work, daemon=True) for _ in range(min(processes, len(divided)))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failed:
        raise RuntimeError(
            "numba could not compile the functions of curator_df; its error is below. Check that the installed versions of "
            "numba and llvmlite are compatible, and run `curator-df warm` in a shell to try again. If it still fails, "
            f"report it with this error:\n{failed[0]}"
        )
    return killed


def _compile_batch(kernels: Sequence[str], done: Callable[[str], None]) -> tuple[int, str]:
    """Compile some kernels in a process of their own; return its exit status, negative for a signal, and what it said."""
    # With this process's own path: "-m" would take a curator_df that lies in the working directory. Without its data limit,
    # which is for work.
    program = (
        f"import sys, resource; sys.path[:] = {sys.path!r}; hard = resource.getrlimit(resource.RLIMIT_DATA)[1]; "
        "resource.setrlimit(resource.RLIMIT_DATA, (hard, hard))\n"
        "from curator_df.kernels.compiling.compiled import compile_named\n"
        "for name in compile_named(sys.argv[1:]): print(name, flush=True)"
    )
    command = [sys.executable, "-c", program, *kernels]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        said = list[str]()
        reader = threading.Thread(target=lambda: said.extend(process.stderr or ()), daemon=True)
        reader.start()
        for line in process.stdout or ():
            done(line.strip())
        reader.join()
    return process.returncode, "".join(said)


@contextmanager
def _shown(kernels: Sequence[str]) -> Iterator[Callable[[str], None]]:
    """Show how far it is while the block runs: a bar in a terminal, a line in a notebook, two lines in a log."""
    what = f"{len(kernels)} kernel{'s' * (len(kernels) > 1)}"
    about = f"about {show_duration(compile_seconds(kernels))} of CPU time, once on this machine"
    finished: list[str] = []
    over = threading.Event()
    started = time.monotonic()
    with _bar(what, about, len(kernels)) as show:

        def follow() -> None:
            while not over.wait(SHOWN_SECONDS):
                show(len(finished), f"{time.monotonic() - started:.0f} s")

        follower = threading.Thread(target=follow, daemon=True)
        follower.start()
        try:
            yield finished.append
        finally:
            over.set()
            follower.join()
            show(len(finished), "")


@contextmanager
def _bar(what: str, about: str, total: int) -> Iterator[Any]:
    if in_notebook():
        line = CellLine()
        line.show(f"compiling {what}, {about}")
        yield lambda done, text: line.show(f"compiling {what}, {about}: {done} of {total} {text}".rstrip())
        return
    if sys.stderr is None or not sys.stderr.isatty():
        LOG.warning("compiling %s, %s; `curator-df warm --all` compiles all of them beforehand", what, about)
    with progress_bar("compiling kernels", total) as show:
        yield lambda done, _: show(done, "")  # which shows the elapsed time itself


def _report(message: str) -> None:
    if in_notebook():
        CellLine().show(message)
    else:
        LOG.warning("%s", message)


class KernelsOnNodes(WorkerPlugin):  # type: ignore[misc]
    """Compiles kernels on the node of each worker, before its first task: nodes may have another CPU than the client.

    Of several workers on a node, or on nodes that share the folder and have the same CPU, one compiles.
    """

    def __init__(self, kernels: Sequence[str], name: str = PLUGIN_NAME) -> None:
        self.kernels, self.name = tuple(kernels), name

    async def setup(self, worker: Any) -> None:  # noqa: ARG002 - Dask gives it
        """Compile what is missing; the worker meanwhile answers the scheduler."""
        await asyncio.to_thread(compile_kernels, self.kernels, room_bytes=0)


class NodeCompiler:
    """Compiles what runs need on the nodes of a client's workers, also of those that come later."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self._name = own_name(PLUGIN_NAME, client.id)
        self._known: frozenset[str] = frozenset()

    def __call__(self, kernels: Iterable[str]) -> None:
        """Compile kernels that no earlier run needed; wait until all workers have them."""
        needed = self._known.union(EVERY_RUN, kernels)
        if needed != self._known:
            self._client.register_plugin(KernelsOnNodes(sorted(needed), self._name))
            self._known = needed

    def close(self) -> None:
        """Ask nothing more of workers that come later."""
        if self._known:
            unregister(self._client, self._name)
        self._known = frozenset()
