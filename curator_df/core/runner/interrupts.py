# SPDX-License-Identifier: Apache-2.0
"""Ctrl-C that is not lost: where it falls into code whose exceptions Python ignores, such as ``__del__``, it counts later."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType

_came = threading.Event()


@contextlib.contextmanager
def remembered_interrupts() -> Iterator[None]:
    """Remember an interrupt while the block runs, for `raise_lost_interrupt`; it is raised where it comes as well.

    Nothing is changed in other threads than the main one, and where a program handles interrupts in its own way.
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
    """Tell whether a handler of SIGINT is that of dask-jobqueue (0.9), set by its import: ``sys.exit()``, with exit code 0.

    A run that is interrupted would look complete to what started it.
    """
    return getattr(handler, "__module__", None) == "dask_jobqueue.runner"


def _interrupted(number: int, frame: FrameType | None) -> None:
    _came.set()
    signal.default_int_handler(number, frame)


def raise_lost_interrupt() -> None:
    """Raise `KeyboardInterrupt` if an interrupt came since the block began, and the block goes on all the same."""
    if _came.is_set():
        _came.clear()
        raise KeyboardInterrupt
