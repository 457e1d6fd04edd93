# SPDX-License-Identifier: Apache-2.0
"""Function that the tests of `curator_df.memory.killable_process` call in another process; the request says what happens."""

from __future__ import annotations

import os
import re
import signal
import sys
import time
from collections.abc import Callable

kept: list[bytes] = []


def act(request: bytes) -> bytes:
    """Do what the first word of the request says; a request that begins with another word is returned unchanged."""
    kept.append(request)
    what, _, number = request[:50].partition(b" ")
    action = ACTIONS.get(what.decode())
    return request if action is None else action(int(number or 0)) or b"done"


def loop(_: int) -> bytes:
    while True:
        pass


def search(_: int) -> None:
    """Loop in C code, which no signal handler of Python interrupts."""
    re.match(r"(a+)+$", "a" * 60 + "b")


def compute(_: int) -> None:
    until = time.process_time() + 0.1
    while time.process_time() < until:
        pass


def refuse(_: int) -> None:
    raise ValueError("no such page")


def crash_again(_: int) -> None:
    if len(kept) > 1:
        os.abort()


def hide(count: int) -> bytes:
    """Return something else where memory runs out, as a library may."""
    try:
        return b"%d" % len([bytearray(count) for _ in range(100)])
    except MemoryError:
        return b"another text"


def kill(times: int) -> None:
    """Kill this process as the system does, so many times; each time leaves a file in a folder."""
    folder = os.environ["KILLED_FOLDER"]
    if len(os.listdir(folder)) < times:
        with open(os.path.join(folder, str(os.getpid())), "w"):
            os.kill(os.getpid(), signal.SIGKILL)


ACTIONS: dict[str, Callable[[int], bytes | None]] = {
    "loop": loop,
    "search": search,
    "compute": compute,
    "wait": lambda _: time.sleep(600),
    "raise": refuse,
    "exit": lambda _: sys.exit("the end"),
    "crash": lambda _: os.abort(),
    "crash_again": crash_again,
    "take": lambda count: b"%d" % len(bytearray(count)),
    "keep": lambda count: kept.append(b"1" * count),
    "hide": hide,
    "kill": kill,
    "print": lambda _: b"" if os.write(1, b"printed") else b"nothing was printed",
    "pid": lambda _: b"%d" % os.getpid(),
    "order": lambda _: repr(set("abcdefghij")).encode(),
}
