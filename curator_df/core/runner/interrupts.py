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
    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    signal.signal(signal.SIGINT, _interrupted)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        _came.clear()


def _interrupted(number: int, frame: FrameType | None) -> None:
    _came.set()
    signal.default_int_handler(number, frame)


def raise_lost_interrupt() -> None:
    """Raise `KeyboardInterrupt` if an interrupt came since the block began, and the block goes on all the same."""
    if _came.is_set():
        _came.clear()
        raise KeyboardInterrupt
