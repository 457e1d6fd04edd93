# SPDX-License-Identifier: Apache-2.0
"""Reliable Ctrl-C: an interrupt that occurs in code whose exceptions Python ignores, such as ``__del__``, is raised later."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType

_came = threading.Event()


@contextlib.contextmanager
def remembered_interrupts() -> Iterator[None]:
    """Remember an interrupt while the block runs, for `raise_lost_interrupt`; it is also raised where it occurs.

    Nothing is changed in threads other than the main one, or if a program handles interrupts itself.
    """
    handler = signal.getsignal(signal.SIGINT)
    is_known = handler is signal.default_int_handler or ends_silently(handler)
    if threading.current_thread() is not threading.main_thread() or not is_known:
        yield
        return
    signal.signal(signal.SIGINT, _interrupted)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
        _came.clear()


def ends_silently(handler: object) -> bool:
    """Return whether a handler of SIGINT is the one that importing dask-jobqueue (0.9) sets: ``sys.exit()``, with exit code 0.

    An interrupted run would then look complete to the process that started it.
    """
    return getattr(handler, "__module__", None) == "dask_jobqueue.runner"


def _interrupted(number: int, frame: FrameType | None) -> None:
    _came.set()
    signal.default_int_handler(number, frame)


def raise_lost_interrupt() -> None:
    """Raise `KeyboardInterrupt` if an interrupt occurred since the block began, but the block continued."""
    if _came.is_set():
        _came.clear()
        raise KeyboardInterrupt
