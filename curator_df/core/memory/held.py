# SPDX-License-Identifier: Apache-2.0
"""What a process holds once for all its tasks, such as a model: made when it is first asked for, let go of after the run.

The bytes are those that a kernel states as ``held_bytes``. What has a method ``close`` is told that it goes.
"""

from __future__ import annotations

import contextlib
import threading
import warnings
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from typing import Any, TypeVar

from curator_df.core.memory.limits import release_free_memory

T = TypeVar("T")

_held: dict[Hashable, Any] = {}
_bare: set[Hashable] = set()
"""Of these, what was made outside of a run: nobody says when that is over."""
_left: dict[str, int] = {}
"""Packages that kernels outside of a run have imported, and their bytes."""
_is_bare: ContextVar[bool] = ContextVar("is_bare", default=False)
_lock = threading.RLock()  # what is made may hold something else


def held(key: Hashable, make: Callable[[], T]) -> T:
    """Return what this process holds under a name; the first who asks makes it while the others wait.

    Examples
    --------
    >>> held("a table", lambda: [1]) is held("a table", lambda: [2])
    True
    >>> release_held()
    []
    """
    with _lock:
        if key not in _held:
            _held[key] = make()
            if _is_bare.get():
                _bare.add(key)
        found: T = _held[key]
        return found


@contextlib.contextmanager
def outside_of_runs(libraries: Mapping[str, int]) -> Iterator[None]:
    """Say that this thread computes a block outside of a run, as ``.compute()`` does, with such packages."""
    token = _is_bare.set(True)
    try:
        yield
    finally:
        _is_bare.reset(token)
        if libraries:
            with _lock:
                _left.update(libraries)


def is_outside_of_runs() -> bool:
    """Tell whether this thread computes a block outside of a run."""
    return _is_bare.get()


def release_bare() -> dict[str, int]:
    """Let go of what this process holds since something was computed outside of a run; return the packages that stay."""
    with _lock:
        going = [_held.pop(key) for key in _bare if key in _held]
        stays = dict(_left)
        _bare.clear()
        _left.clear()
    for one in going:
        if (failure := _closed(one)) is not None:
            warnings.warn(f"after a compute(): {failure}", UserWarning, stacklevel=2)
    if going:
        going.clear()
        release_free_memory()
    return stays


def release_held() -> list[str]:
    """Let go of everything that this process holds; return what went wrong meanwhile."""
    with _lock:
        going = list(_held.values())
        _held.clear()
        _bare.clear()
    failures = [failure for one in going if (failure := _closed(one)) is not None]
    going.clear()
    release_free_memory()
    return failures


def _closed(one: Any) -> str | None:
    try:
        getattr(one, "close", int)()
    except Exception as exc:  # noqa: BLE001 - what is left must be let go of all the same, and it is told
        return str(exc)
    return None


@contextlib.contextmanager
def released_after(session: Any, actions: Sequence[Any], at_end: Callable[[], None]) -> Iterator[None]:
    """Let the workers go of what they hold when a run ends, well or not, if one of its kernels makes them hold anything.

    ``at_end`` is called then in each of them.
    """
    client = session.client
    try:
        yield
    finally:
        session.keep({name: kept for each in actions for name, kept in getattr(each, "libraries", {}).items()})
        if client.status == "running" and any(may_hold(action) for action in actions):
            failures = client.run(release_held, on_error="ignore")
            client.run(at_end, on_error="ignore")
            for failure in sorted({failure for worker in failures.values() for failure in worker}):
                warnings.warn(f"after the run: {failure}", UserWarning, stacklevel=2)


def may_hold(action: Any) -> bool:
    """Tell whether what a step does may make a worker hold something: it says so, or is the user's."""
    return bool(getattr(action, "held_bytes", 0)) or getattr(action, "is_users", False)
