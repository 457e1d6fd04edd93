# SPDX-License-Identifier: Apache-2.0
"""Check whether the budget has room for a cluster in addition to the memory its processes hold, before and after its start."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from curator_df.core.runner.session import has_session
from curator_df.errors import BudgetError
from curator_df.memory.budget import HELD_SLACK_BYTES, Baseline, Layout, least_allowed, worker_reserved_bytes
from curator_df.memory.peak import counted_bytes, tree_bytes
from curator_df.memory.sizes import show_size, size_to_type
from curator_df.memory.system import processes


@dataclass(frozen=True)
class Held:
    """Counted memory of a started cluster, before any work."""

    total_bytes: int
    """Bytes of this process and all processes that it has started."""
    workers: tuple[int, ...] = ()
    """Bytes of each worker process; empty if tasks run in this process."""

    def plus(self, more_bytes: int) -> Held:
        """Return the baseline with ``more_bytes`` added to each process that runs tasks."""
        return Held(
            self.total_bytes + more_bytes * max(1, len(self.workers)), tuple(size + more_bytes for size in self.workers)
        )

    @property
    def baseline(self) -> Baseline:
        """Baseline of a layout chosen from these figures.

        A client without worker processes holds at least as much as this client; the rest is measured after the start.
        """
        client_bytes = self.total_bytes - sum(self.workers)
        return Baseline(client_bytes, max(self.workers, default=worker_reserved_bytes()), client_bytes)


def measure_held(worker_pids: Iterable[int]) -> Held:
    """Return the memory of this process, all processes that it has started, and these worker processes."""
    counted = {pid: counted_bytes(pid) for pid in processes(os.getpid(), 0)}
    return Held(sum(counted.values()), tuple(counted[pid] for pid in worker_pids if pid in counted))


def fits(layout: Layout, held: Held) -> bool:
    """Return whether the held memory and the working memory of all workers fit into the budget together."""
    return held.total_bytes + layout.node_workers * layout.work_bytes <= layout.allowed_bytes


def smaller_layout(layout: Layout, held: Held, choose: Callable[[Baseline], Layout]) -> Layout:
    """Return the layout for a cluster whose processes hold more than assumed.

    Parameters
    ----------
    layout : Layout
        Layout that does not fit.
    held : Held
        Memory of its processes before any work.
    choose : callable
        Function that chooses a layout for a baseline.

    Raises
    ------
    BudgetError
        If not even the smallest layout fits; the message has the memory that would.
    """
    try:
        smaller = choose(held.baseline)
    except BudgetError:
        raise _no_room(layout, held) from None
    why = f"{smaller.reason}; this session holds {show_size(held.total_bytes)} before any work"
    return dataclasses.replace(smaller, reason=why)


def refuse_second_cluster(layout: Layout) -> None:
    """Raise `BudgetError`, before anything starts, if an open cluster leaves no room for another one."""
    if not has_session():
        return
    held_bytes = tree_bytes(os.getpid())
    needed_bytes = layout.exclusive_bytes + (0 if layout.in_process else layout.workers * worker_reserved_bytes())
    if held_bytes + needed_bytes > layout.allowed_bytes:
        raise BudgetError(
            f"A cluster is already running in this process: {show_size(held_bytes)} are in use, and another one needs "
            f"{show_size(needed_bytes)} more, but the budget is {show_size(layout.allowed_bytes)}. "
            f"{_what_to_free()}, or use about memory={size_to_type(held_bytes + needed_bytes + HELD_SLACK_BYTES)}"
        )


def require_room(layout: Layout, held: Held) -> None:
    """Raise `BudgetError` if a started cluster leaves too little memory for its work."""
    if not fits(layout, held):
        raise _no_room(layout, held)


def _no_room(layout: Layout, held: Held) -> BudgetError:
    # A requested number of workers, such as one for each GPU, cannot be reduced.
    workers = layout.node_workers if not layout.shares_work else 0
    enough_bytes = least_allowed(held.baseline, workers) + HELD_SLACK_BYTES
    return BudgetError(
        f"Before any work, this session holds {show_size(held.total_bytes)} (this process and its workers), so not even the "
        f"smallest layout fits into memory={show_size(layout.allowed_bytes)}. {_what_to_free()}, or use about "
        f"memory={size_to_type(enough_bytes)}"
    )


def _what_to_free() -> str:
    if has_session():
        return "Use the running cluster (operators find it automatically), or close it first"
    return "Free memory in this process (large tables, models)"
