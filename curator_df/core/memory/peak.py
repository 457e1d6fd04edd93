# SPDX-License-Identifier: Apache-2.0
"""Measure the memory of a process tree, from a process of its own that is not counted.

Run as a script (``python -S peak.py PID``) it samples every 50 ms and answers ``peak``, ``now`` and ``reset`` on
standard input with a number of bytes, and ``trace`` with a line of numbers: the seconds of a point, then the most bytes
seen in each of at most 400 points since ``reset``. It imports four modules of the standard library, nothing else, and stays
at 9 MB.

A sample is the sum of PSS over the tree. Private pages (resident - shared) are read from ``statm`` at every sample; the
shared, file-backed part of PSS changes slowly and costs milliseconds to read, so it is taken from ``smaps_rollup`` once
a second, and the tree is walked four times a second, which costs a file for each thread (with ``--exact``: both at every
sample, for a quarter of a core).
"""

import os
import select
import signal
import sys
import time

INTERVAL_SECONDS = 0.05
SHARED_EVERY = 20
TREE_EVERY = 5
MOST_POINTS = 400


def processes(root: int, excluded: int) -> list[int]:
    """Return the process and all its descendants, without the excluded one."""
    found, waiting = [], [root]
    while waiting:
        pid = waiting.pop()
        if pid == excluded:
            continue
        try:
            for task in os.listdir(f"/proc/{pid}/task"):
                with open(f"/proc/{pid}/task/{task}/children") as children:
                    waiting.extend(int(child) for child in children.read().split())
        except OSError:  # it ended while we looked
            continue
        found.append(pid)
    return found


def private_bytes(pid: int) -> int:
    """Return resident pages that no file backs, in bytes."""
    try:
        with open(f"/proc/{pid}/statm") as statm:
            _, resident, shared, *_ = statm.read().split()
    except OSError:
        return 0
    return (int(resident) - int(shared)) * os.sysconf("SC_PAGE_SIZE")


def pss_bytes(pid: int) -> int:
    """Return the proportional set size in bytes."""
    try:
        with open(f"/proc/{pid}/smaps_rollup") as rollup:
            return next((int(line.split()[1]) * 1024 for line in rollup if line.startswith("Pss:")), 0)
    except OSError:
        return 0


def tree_bytes(root: int, excluded: int = 0) -> int:
    """Return the summed PSS of a process tree now."""
    return sum(pss_bytes(pid) for pid in processes(root, excluded))


def children_bytes(root: int) -> int:
    """Return the summed PSS of what a process has started now, without itself."""
    return sum(pss_bytes(pid) for pid in processes(root, 0) if pid != root)


class Trace:
    """The most bytes seen in each of a few equally long points of time; points grow longer as time passes."""

    def __init__(self) -> None:
        self.points: list[int] = []
        self.samples_each = 1
        self._samples = self._most = 0
        self._started = time.monotonic()

    def add(self, held: int) -> None:
        """Take a sample."""
        self._most = max(self._most, held)
        self._samples += 1
        if self._samples >= self.samples_each:
            self.points.append(self._most)
            self._samples = self._most = 0
        if len(self.points) >= MOST_POINTS:
            self.points = [max(self.points[start : start + 2]) for start in range(0, len(self.points), 2)]
            self.samples_each *= 2

    def line(self) -> str:
        """Return the seconds of a point and all points, as text. A sample takes time, so the clock says how long a point is."""
        points = self.points + ([self._most] if self._samples else [])
        seconds = time.monotonic() - self._started
        return " ".join(map(str, [round(seconds / max(len(points), 1), 4), *points]))


class Tree:
    """A process tree whose memory is looked at again and again."""

    def __init__(self, root: int, exact: bool) -> None:
        self._root, self._exact = root, exact
        self._samples = self._shared = 0
        self._pids: list[int] = []

    def held(self, *, anew: bool = False) -> int:
        """Return the bytes that it holds; ``anew``: all of them looked at now, whatever was looked at before."""
        anew = anew or self._exact
        if anew or self._samples % TREE_EVERY == 0:
            self._pids = processes(self._root, os.getpid())
        private = sum(private_bytes(pid) for pid in self._pids)
        if anew or self._samples % SHARED_EVERY == 0:
            self._shared = max(0, sum(pss_bytes(pid) for pid in self._pids) - private)
        self._samples += 1
        return private + self._shared


class Questions:
    """The lines of standard input, as they come. Not a buffered file: `select` does not see what waits in its buffer."""

    def __init__(self) -> None:
        self._part = b""

    def within(self, seconds: float) -> list[str] | None:
        """Return the lines that came in this time, of which there may be none; None where the input has ended."""
        if not select.select([0], [], [], seconds)[0]:
            return []
        received = os.read(0, 65536)
        if not received:
            return None
        *lines, self._part = (self._part + received).split(b"\n")
        return [line.decode() for line in lines]


def sample_forever(root: int, exact: bool) -> None:
    """Sample until standard input ends."""
    tree, trace, peak, questions = Tree(root, exact), Trace(), 0, Questions()
    while os.path.exists(f"/proc/{root}"):
        held = tree.held()
        peak = max(peak, held)
        trace.add(held)
        deadline = time.monotonic() + INTERVAL_SECONDS
        while (left := deadline - time.monotonic()) > 0:
            lines = questions.within(left)
            if lines is None:
                return
            for line in lines:
                command, *number = line.split()
                answer = trace.line() if command == "trace" else held if command == "now" else peak
                print(*number, answer, flush=True)
                if command == "reset":
                    # What is held now counts for what follows, which may end before the next sample. The last sample may
                    # have a process in it that has ended since.
                    held = tree.held(anew=True)
                    peak, trace = held, Trace()
                    trace.add(held)


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process that is sampled; this one ends with it
    sample_forever(int(sys.argv[1]), "--exact" in sys.argv)
