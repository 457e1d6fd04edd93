# SPDX-License-Identifier: Apache-2.0
"""Put the processes of a cluster into a cgroup (version 2), so that the kernel enforces the memory budget.

The client goes into one leaf and each worker, with all that it starts, into another; ``memory.max`` of the cgroup above them is
the number. The guard (`curator_df.memory.guard`) ends and names what takes too much before the kernel does. A place is
where the memory controller can be used without moving processes that are not ours:

- a cgroup above this process's own that hands the controller on already, and to which this user may write, such as that of a
  systemd user session, as long as other processes keep this process's own cgroup alive;
- this process's own cgroup, if all its processes belong to this process, such as that of a container or a Slurm job.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from pathlib import Path, PurePosixPath
from typing import Self

from curator_df.core.cleaning_up import clean_up
from curator_df.memory.system import PORTABLE, processes

CGROUP_VARIABLE = "CURATOR_DF_CGROUP"
"""Environment variable of workers: the bytes that one may hold with all that it starts, and the cgroup below which it goes."""
MOUNTS, CGROUP = Path("/proc/self/mountinfo"), Path("/proc/self/cgroup")
"""Where the kernel shows file systems, and in which cgroup this process is."""
PROCESSES, CONTROL, CONTROLLERS, MOST, SWAP = (
    "cgroup.procs",
    "cgroup.subtree_control",
    "cgroup.controllers",
    "memory.max",
    "memory.swap.max",
)
"""Files of a cgroup."""
SCORE = Path("/proc/self/oom_score_adj")
"""File that tells the kernel which process to end first."""
WORKER_ADJUSTMENT = 500
"""``oom_score_adj`` of workers: where the kernel has to end something, it is not the user's own process."""


def own_cgroup(mounts: Path = MOUNTS, cgroup: Path = CGROUP) -> tuple[Path, Path] | None:
    """Return the folder of this process's cgroup and the folder where the cgroup hierarchy is mounted.

    Both are of cgroups version 2. Return None where the machine has only version 1, or mounts none.
    """
    try:
        own = next(line[3:] for line in cgroup.read_text().splitlines() if line.startswith("0::"))
        lines = [line.split(" - ") for line in mounts.read_text().splitlines()]
    except (OSError, StopIteration):
        return None
    for before, after in lines:
        if after.startswith("cgroup2 "):
            root, mount = before.split()[3:5]
            with contextlib.suppress(ValueError):  # this process is in no group that is mounted here
                return Path(mount) / PurePosixPath(own).relative_to(root), Path(mount)
    return None


def find_place(own: Path, mount: Path, ours: Iterable[int]) -> Path | None:
    """Return the cgroup below which one for a cluster can be made; None if there is none, or if it is not permitted.

    Parameters
    ----------
    own : Path
        The cgroup of this process.
    mount : Path
        Where the hierarchy begins.
    ours : iterable of int
        Process numbers of this process and of all that it has started.
    """
    try:
        there = {int(pid) for pid in _words(own / PROCESSES)}
    except OSError:
        return None
    if not there:
        return None
    if there <= set(ours):
        usable = "memory" in _words_or_none(own / CONTROLLERS) and own != mount
        return own if usable and _is_ours(own) and os.access(own / CONTROL, os.W_OK) else None
    for above in own.parents:
        if "memory" in _words_or_none(above / CONTROL) and _is_ours(above):
            return above
        if above == mount:
            break
    return None


def _is_ours(folder: Path) -> bool:
    return os.access(folder, os.W_OK | os.X_OK) and os.access(folder / PROCESSES, os.W_OK)


def _words(path: Path) -> list[str]:
    return path.read_text().split()


def _words_or_none(path: Path) -> list[str]:
    try:
        return _words(path)
    except OSError:
        return []


class MemoryCgroup:
    """A cgroup whose memory is limited, with this process in it.

    Parameters
    ----------
    own : Path
        The cgroup of this process, to which it goes back.
    place : Path
        The cgroup below which the new one is made.
    limit_bytes : int
        Most bytes of all processes together.

    Raises
    ------
    OSError
        If the kernel does not permit it. Everything is as before then.
    """

    def __init__(self, own: Path, place: Path, limit_bytes: int) -> None:
        self._own, self._place, self._hands_on = own, place, False
        self.path = place / f"curator-df-{os.getpid()}"
        self._moved: list[int] = []
        try:
            self._make(limit_bytes)
        except BaseException as exc:
            clean_up(exc, self.close)
            raise

    @classmethod
    def make(cls, limit_bytes: int) -> Self | None:
        """Return a cgroup around this process, or None where there can be none."""
        found = None if PORTABLE else own_cgroup()
        if found is None:
            return None
        own, mount = found
        place = find_place(own, mount, processes(os.getpid(), 0))
        if place is None:
            return None
        try:
            return cls(own, place, limit_bytes)
        except OSError:  # not permitted after all: the guard holds the number
            return None

    def _make(self, limit_bytes: int) -> None:
        client = self.path / "client"
        client.mkdir(parents=True, exist_ok=True)
        # A cgroup that hands a controller on has no processes of its own, so those of this one go first.
        ours = _words(self._own / PROCESSES) if self._place == self._own else [str(os.getpid())]
        for pid in ours:
            (client / PROCESSES).write_text(pid)
            self._moved.append(int(pid))
        if "memory" not in _words_or_none(self._place / CONTROL):
            (self._place / CONTROL).write_text("+memory")
            self._hands_on = True
        (self.path / MOST).write_text(str(limit_bytes))
        if (self.path / SWAP).exists():
            (self.path / SWAP).write_text("0")
        (self.path / CONTROL).write_text("+memory")

    def close(self) -> None:
        """Move this process back, and delete the cgroup; where that is not possible any more, lift its limit."""
        if self._hands_on:
            with contextlib.suppress(OSError):
                (self.path / CONTROL).write_text("-memory")
                (self._place / CONTROL).write_text("-memory")
        for pid in self._moved:
            with contextlib.suppress(OSError):  # it has ended, or its cgroup is gone
                (self._own / PROCESSES).write_text(str(pid))
        self._moved.clear()
        for leaf in [*self.path.glob("*/"), self.path]:
            with contextlib.suppress(OSError):  # something still runs in it
                leaf.rmdir()
        if (self.path / MOST).exists():
            with contextlib.suppress(OSError):
                (self.path / MOST).write_text("max")


def enter_worker_cgroup(folder: str, limit_bytes: int, score: Path = SCORE) -> None:
    """Move this worker process into a cgroup of its own, with all that it will start; do nothing where that is not possible."""
    leaf = Path(folder) / f"worker-{os.getpid()}"
    with contextlib.suppress(OSError):
        leaf.mkdir()
        (leaf / MOST).write_text(str(limit_bytes))
        (leaf / PROCESSES).write_text(str(os.getpid()))
    with contextlib.suppress(OSError):
        Path(score).write_text(str(WORKER_ADJUSTMENT))
