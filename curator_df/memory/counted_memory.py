# SPDX-License-Identifier: Apache-2.0
"""Counted memory (what counts towards the budget) of a process and of a process tree; run as a script, the sampler of its peak.

The sampler is a process of its own, which is not counted. Run as a script (``python -S counted_memory.py PID``), it samples every
50 ms and answers ``peak``, ``now`` and ``reset`` on standard input with a number of bytes, and ``trace`` with a line of numbers:
the seconds of a point, then the peak bytes of each of at most 400 points since ``reset``. It imports only a few modules of the
standard library, and stays at 9 MB.

A sample is the sum of the counted memory of the tree's processes (`counted_bytes`): anonymous pages, shared memory, and files
that a process changes through a mapping. Clean pages of files are not counted, because the kernel reclaims them when
needed (docs/decisions/0032-what-counts-as-memory.md). Anonymous pages (resident - shared) are read from ``statm`` at every
sample. The rest changes slowly and costs milliseconds to read, so it is taken from ``smaps_rollup`` once a second, and the tree
is walked four times a second, which costs a file for each thread (with ``--exact``: both at every sample, for a quarter of a
core).
"""

import os
import select
import signal
import sys
import time

TYPE_CHECKING = False  # same name as in typing, without the import
if TYPE_CHECKING or __package__:
    from curator_df.memory import system
else:  # this file, or the guard, runs as a script
    import system
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Protocol

    class Sampled(Protocol):
        """Processes whose memory is sampled repeatedly."""

        def held(self, *, reread: bool = False) -> int:
            """Return the bytes that they use."""


INTERVAL_SECONDS = 0.05
OTHERS_EVERY = 20
TREE_EVERY = 5
MOST_POINTS = 400
NOT_FILES = ("/dev/", "/memfd:", "/SYSV")
"""Prefixes of paths in ``/proc/PID/maps`` that are devices or shared memory, which is always counted."""


def private_bytes(pid: int) -> int:
    """Return the anonymous resident pages of a process in bytes; pages shared with a fork count in full."""
    resident, shared = system.statm(pid)
    return resident - shared


def resident_bytes(pid: int) -> int:
    """Return all resident pages of a process in bytes; pages of files count in full."""
    return system.statm(pid)[0]


def counted(fields: "Mapping[str, int]", changes_files: "Callable[[], bool]") -> int:
    """Return the counted memory from the fields of ``smaps_rollup``.

    Parameters
    ----------
    fields : mapping
        Bytes by name, as `rollup` returns them.
    changes_files : callable
        Returns whether the process maps a file to change it. It is called only if the process maps dirty pages of files. Without
        such a mapping, these pages belong to a file that was just written, such as an installed library: the kernel writes them
        to disk and reclaims them.
    """
    if "Pss_Anon" not in fields:  # kernels before 5.3 do not separate PSS into its parts
        return max(0, fields["Pss"] - fields["Private_Clean"])
    lasting = fields["Pss_Anon"] + fields["Pss_Shmem"]
    # Kernels before 6.0 have no Pss_Dirty: there each process counts shared dirty pages in full.
    dirty = fields.get("Pss_Dirty", fields["Private_Dirty"] + fields["Shared_Dirty"])
    return dirty if dirty > lasting and changes_files() else lasting


def changes_files(pid: int) -> bool:
    """Return whether a process has a writable mapping of a file, other than shared memory or a device."""
    return any(path.startswith("/") and not path.startswith(NOT_FILES) for path in system.shared_mappings(pid))


def counted_bytes(pid: int) -> int:
    """Return the counted memory of a process in bytes."""
    try:
        return counted(system.rollup(pid), lambda: changes_files(pid))
    except OSError:  # it has ended, or the kernel does not provide the file
        return private_bytes(pid)


def tree_bytes(root: int, excluded: int = 0) -> int:
    """Return the current counted memory of a process tree."""
    return sum(counted_bytes(pid) for pid in system.processes(root, excluded))


def children_bytes(root: int) -> int:
    """Return the counted memory of the descendants of a process, without itself."""
    return sum(counted_bytes(pid) for pid in system.processes(root, 0) if pid != root)


class Trace:
    """Peak bytes in each of a few equally long time intervals (points); points become longer as time passes."""

    def __init__(self) -> None:
        self.points: list[int] = []
        self.samples_each = 1
        self._samples = self._most = 0
        self._started = time.monotonic()

    def add(self, held: int) -> None:
        """Add a sample."""
        self._most = max(self._most, held)
        self._samples += 1
        if self._samples >= self.samples_each:
            self.points.append(self._most)
            self._samples = self._most = 0
        if len(self.points) >= MOST_POINTS:
            self.points = [max(self.points[start : start + 2]) for start in range(0, len(self.points), 2)]
            self.samples_each *= 2

    def line(self) -> str:
        """Return the seconds of a point and all points, as text. Sampling takes time, so the length of a point is measured."""
        points = self.points + ([self._most] if self._samples else [])
        seconds = time.monotonic() - self._started
        return " ".join(map(str, [round(seconds / max(len(points), 1), 4), *points]))


class Tree:
    """Process tree whose memory is sampled repeatedly."""

    def __init__(self, root: int, exact: bool) -> None:
        self._root, self._exact = root, exact
        self._samples = 0
        self._pids: list[int] = []
        self._others: dict[int, int] = {}

    def held(self, *, reread: bool = False) -> int:
        """Return the bytes that it uses; ``reread`` reads all values again, including those that are read less often."""
        reread = reread or self._exact or self._samples % OTHERS_EVERY == 0
        if reread or self._samples % TREE_EVERY == 0:
            pids = system.processes(self._root, os.getpid())
            # A process shares its pages with a fork of it, so that each of them holds less than its private pages.
            reread = reread or pids != self._pids
            self._pids = pids
        private = {pid: private_bytes(pid) for pid in self._pids}
        if reread:
            self._others = {pid: counted_bytes(pid) - private[pid] for pid in self._pids}
        self._samples += 1
        return sum(max(0, held + self._others.get(pid, 0)) for pid, held in private.items() if held)


class Questions:
    """Lines of standard input as they arrive; unbuffered, because `select` does not see a buffer's content."""

    def __init__(self) -> None:
        self._part = b""

    def within(self, seconds: float) -> list[str] | None:
        """Return the lines that arrived in this time, possibly none; None if the input has ended."""
        if not select.select([0], [], [], seconds)[0]:
            return []
        received = os.read(0, 65536)
        if not received:
            return None
        *lines, self._part = (self._part + received).split(b"\n")
        return [line.decode() for line in lines]


def sample_forever(root: int, tree: "Sampled", watch: "Callable[[], float] | None" = None) -> None:
    """Sample until standard input ends.

    Parameters
    ----------
    root : int
        The process whose tree is sampled.
    tree : Sampled
        Tells what that tree holds.
    watch : callable, optional
        Called between samples; returns the seconds after which it is to be called again.
    """
    trace, peak, questions = Trace(), 0, Questions()
    while system.exists(root):
        held = tree.held()
        peak = max(peak, held)
        trace.add(held)
        deadline = time.monotonic() + INTERVAL_SECONDS
        while (left := deadline - time.monotonic()) > 0:
            lines = questions.within(left if watch is None else min(left, watch()))
            if lines is None:
                return
            for line in lines:
                command, *number = line.split()
                answer = trace.line() if command == "trace" else held if command == "now" else peak
                print(*number, answer, flush=True)
                if command == "reset":
                    # The current memory counts for the next period, which may end before the next sample. The last sample may
                    # include a process that has ended since.
                    held = tree.held(reread=True)
                    peak, trace = held, Trace()
                    trace.add(held)


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process that is sampled; this one ends with it
    sample_forever(int(sys.argv[1]), Tree(int(sys.argv[1]), "--exact" in sys.argv))
