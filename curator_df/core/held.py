# SPDX-License-Identifier: Apache-2.0
"""What a process holds once for all its tasks, such as a model: made when it is first asked for, let go of after the run.

The bytes are those that a kernel states as ``held_bytes``.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import Any, TypeVar

from curator_df.core.limits import release_free_memory

T = TypeVar("T")

_held: dict[Hashable, Any] = {}
_lock = threading.Lock()


def held(key: Hashable, make: Callable[[], T]) -> T:
    """Return what this process holds under a name; the first who asks makes it while the others wait.

    Examples
    --------
    >>> held("a table", lambda: [1]) is held("a table", lambda: [2])
    True
    >>> release_held()
    """
    with _lock:
        if key not in _held:
            _held[key] = make()
        found: T = _held[key]
        return found


def release_held() -> None:
    """Let go of everything that this process holds."""
    with _lock:
        _held.clear()
    release_free_memory()


@contextlib.contextmanager
def released_after(client: Any, actions: Iterable[Any]) -> Iterator[None]:
    """Let the workers go of what they hold when a run ends, well or not, if one of its kernels makes them hold anything."""
    try:
        yield
    finally:
        if client.status == "running" and any(getattr(action, "held_bytes", 0) for action in actions):
            client.run(release_held, on_error="ignore")
