# SPDX-License-Identifier: Apache-2.0
"""Whether a cluster has room beside what this process holds already, such as another cluster."""

from __future__ import annotations

import os

from curator_df.core.memory.budget import HELD_SLACK_BYTES, Layout, worker_reserved_bytes
from curator_df.core.memory.peak import tree_bytes
from curator_df.core.runner.session import has_session
from curator_df.core.sizes import show_size
from curator_df.errors import BudgetError


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


def require_room(layout: Layout, held_bytes: int) -> None:
    """Raise `BudgetError` if a cluster that has started leaves too little for its work."""
    if held_bytes + layout.exclusive_bytes > layout.allowed_bytes:
        raise BudgetError(
            f"before any work this session holds {show_size(held_bytes)} (this process and its workers), which leaves "
            f"{show_size(max(0, layout.allowed_bytes - held_bytes))} of the {show_size(layout.allowed_bytes)} allowed; the "
            f"layout needs {show_size(layout.exclusive_bytes)}. {_what_to_free()}, or allow about "
            f"memory={held_bytes + layout.exclusive_bytes + HELD_SLACK_BYTES:_}"
        )


def _what_to_free() -> str:
    if has_session():
        return "Use the cluster that is running (operators find it by themselves), or close it first"
    return "Free what this process holds (large tables, models)"
