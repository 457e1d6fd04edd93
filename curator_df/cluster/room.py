# SPDX-License-Identifier: Apache-2.0
"""Whether a cluster has room beside what its processes hold: measured once it has started, and before, beside another cluster."""

from __future__ import annotations

import dataclasses
import math
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from curator_df.core.memory.budget import HELD_SLACK_BYTES, Baseline, Layout, least_allowed, worker_reserved_bytes
from curator_df.core.memory.peak import counted_bytes, processes, tree_bytes
from curator_df.core.runner.session import has_session
from curator_df.core.sizes import show_size
from curator_df.errors import BudgetError


@dataclass(frozen=True)
class Held:
    """Counted memory of a cluster that has started, before any work."""

    total_bytes: int
    """This process and all that it has started."""
    workers: tuple[int, ...] = ()
    """Bytes of each worker process; none where tasks run in this process."""

    def plus(self, more_bytes: int) -> Held:
        """Return this with so many bytes more in each process that runs tasks."""
        return Held(
            self.total_bytes + more_bytes * max(1, len(self.workers)), tuple(size + more_bytes for size in self.workers)
        )

    @property
    def baseline(self) -> Baseline:
        """Baseline of a layout that is chosen from these figures.

        A client without worker processes holds at least what this client holds; how much more is measured when it has started.
        """
        client_bytes = self.total_bytes - sum(self.workers)
        return Baseline(client_bytes, max(self.workers, default=worker_reserved_bytes()), client_bytes)


def measure_held(worker_pids: Iterable[int]) -> Held:
    """Return what this process, all that it has started, and these worker processes hold now."""
    counted = {pid: counted_bytes(pid) for pid in processes(os.getpid(), 0)}
    return Held(sum(counted.values()), tuple(counted[pid] for pid in worker_pids if pid in counted))


def fits(layout: Layout, held: Held) -> bool:
    """Tell whether what is held and the work of all workers fit into the budget together."""
    return held.total_bytes + layout.node_workers * layout.work_bytes <= layout.allowed_bytes


def smaller_layout(layout: Layout, held: Held, choose: Callable[[Baseline], Layout]) -> Layout:
    """Return the layout for a cluster whose processes hold more than was assumed.

    Parameters
    ----------
    layout : Layout
        The layout that does not fit.
    held : Held
        What its processes hold before any work.
    choose : callable
        Chooses a layout for a baseline.

    Raises
    ------
    BudgetError
        If not even the least layout fits; it names the memory that does.
    """
    try:
        smaller = choose(held.baseline)
    except BudgetError:
        raise _no_room(layout, held) from None
    why = f"{smaller.reason}; this session holds {show_size(held.total_bytes)} before any work"
    return dataclasses.replace(smaller, reason=why)


def refuse_beside_another(layout: Layout) -> None:
    """Raise `BudgetError`, before anything starts, if a cluster that is open leaves no room for another one."""
    if not has_session():
        return
    held_bytes = tree_bytes(os.getpid())
    needed_bytes = layout.exclusive_bytes + (0 if layout.in_process else layout.workers * worker_reserved_bytes())
    if held_bytes + needed_bytes > layout.allowed_bytes:
        raise BudgetError(
            f"a cluster is already running in this process: with it {show_size(held_bytes)} are held, and another one needs "
            f"{show_size(needed_bytes)} besides, of the {show_size(layout.allowed_bytes)} allowed. "
            f"{_what_to_free()}, or allow about memory={held_bytes + needed_bytes + HELD_SLACK_BYTES:_}"
        )


def require_room(layout: Layout, held: Held) -> None:
    """Raise `BudgetError` if a cluster that has started leaves too little for its work."""
    if not fits(layout, held):
        raise _no_room(layout, held)


def _no_room(layout: Layout, held: Held) -> BudgetError:
    # Workers that the user asked for, such as one for each GPU, cannot be fewer.
    workers = layout.node_workers if not layout.shares_work else 0
    enough_bytes = least_allowed(held.baseline, workers) + HELD_SLACK_BYTES
    return BudgetError(
        f"before any work this session holds {show_size(held.total_bytes)} (this process and its workers), so not even the "
        f"smallest layout fits into memory={show_size(layout.allowed_bytes)}. {_what_to_free()}, or allow about "
        f"memory='{math.ceil(enough_bytes / 1e6)}MB'"
    )


def _what_to_free() -> str:
    if has_session():
        return "Use the cluster that is running (operators find it by themselves), or close it first"
    return "Free what this process holds (large tables, models)"
