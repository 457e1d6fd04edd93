# SPDX-License-Identifier: Apache-2.0
"""Objects that a process keeps for all its tasks, such as a model: created on first use, released after the run.

Their bytes are those that a kernel states as ``held_bytes``. Objects with a method ``close`` are closed on release.
"""

from __future__ import annotations

import contextlib
import threading
import warnings
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from typing import Any, TypeVar

from curator_df.memory.limits import release_free_memory

T = TypeVar("T")

_held: dict[Hashable, Any] = {}
_bare: set[Hashable] = set()
"""Keys of objects that were created outside of a run, whose end is unknown."""
_left: dict[str, int] = {}
"""Packages that kernels outside of a run have imported, and their bytes."""
_is_bare: ContextVar[bool] = ContextVar("is_bare", default=False)
_lock = threading.RLock()  # creating an object may create another


def cached(key: Hashable, make: Callable[[], T]) -> T:
    """Return the object with this key; the first caller creates it while the others wait.

    Examples
    --------
    >>> cached("a table", lambda: [1]) is cached("a table", lambda: [2])
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
    """Mark this thread as computing a block outside of a run, as ``.compute()`` does, with these packages."""
    token = _is_bare.set(True)
    try:
        yield
    finally:
        _is_bare.reset(token)
        if libraries:
            with _lock:
                _left.update(libraries)


def is_outside_of_runs() -> bool:
    """Return whether this thread computes a block outside of a run."""
    return _is_bare.get()


def clear_outside_runs() -> dict[str, int]:
    """Release the objects that were created outside of runs; return the packages that stay loaded."""
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
    """Release all objects of this process; return the error messages."""
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
    except Exception as exc:  # noqa: BLE001 - the remaining objects must be released, and the error is reported
        return str(exc)
    return None


@contextlib.contextmanager
def released_after(session: Any, steps: Sequence[Any], at_end: Callable[[], None]) -> Iterator[None]:
    """Release the workers' objects when a run ends, successfully or not, if one of its steps creates any.

    ``at_end`` is then called in each worker.
    """
    client = session.client
    try:
        yield
    finally:
        session.keep({name: kept for step in steps for name, kept in step.price.libraries.items()})
        if client.status == "running" and any(may_hold(step) for step in steps):
            failures = client.run(release_held, on_error="ignore")
            client.run(at_end, on_error="ignore")
            for failure in sorted({failure for worker in failures.values() for failure in worker}):
                warnings.warn(f"after the run: {failure}", UserWarning, stacklevel=2)


def may_hold(step: Any) -> bool:
    """Return whether a step may create objects that a worker keeps: it says so, or it is the user's function."""
    price = step.price
    return bool(price.held_bytes) or bool(price.held_by_task) or bool(step.action.is_users)
