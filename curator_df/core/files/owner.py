# SPDX-License-Identifier: Apache-2.0
"""Who writes to a folder: one process at a time, on whatever file system, and known to be gone when it is.

Each process that wants the folder writes a file of its own below ``_curator/owners/``, with host, process and time, and
only then looks who else has one there: of two that come together, the later one sees the earlier. So nothing needs a
lock, an exclusive creation or clocks that agree, but that a file that was written is listed. A sign of life is given every
`BEAT_SECONDS`. A process of this machine that ended is known to be gone at once; one of another machine is watched, and is
gone when it gives no sign for `GONE_SECONDS` by our own clock.
"""

from __future__ import annotations

import dataclasses
import errno
import functools
import json
import logging
import os
import socket
import threading
import time
import uuid
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self

from curator_df.core.files.storage import JOURNAL_FOLDER, Folder
from curator_df.errors import OutputInUseError

OWNERS_FOLDER = f"{JOURNAL_FOLDER}/owners"
"""Has one file for each process that writes to the folder, or wants to: at most one stays."""
BEAT_SECONDS = 10.0
"""Between two signs of life."""
GONE_SECONDS = 120.0
"""A process that cannot be looked up is gone after so long without one. Attributes of files on NFS may be a minute old."""
LOOK_SECONDS = 0.25
"""Between two looks at the others' files."""
YIELD_SECONDS = 5.0
"""Of two that came together, one gives up at once, and the other waits so long for it."""
LOG = logging.getLogger("curator_df")

_held: dict[str, str] = {}
"""Owners of this process, with their runs. A file of this process that is not of one of them was left by an interrupt."""
_gone: set[str] = set()
"""Runs whose process was watched in vain: their other folders need not be watched as well."""


@dataclasses.dataclass(frozen=True)
class Process:
    """A process among those of all machines."""

    host: str
    """Name of its machine; not unique among machines."""
    boot: str
    """Of the machine's kernel since it was started."""
    namespace: str
    """Within which its number means something: containers have their own."""
    pid: int
    """Its number."""
    started: int
    """In clock ticks since the boot, so that another process with the number is not taken for it."""
    run: str
    """The same for all folders that it has at a time: those of one run."""
    since: str
    """When it asked for the folder."""

    @property
    def key(self) -> tuple[str, str, int, int]:
        """What tells it from all others."""
        return (self.boot, self.namespace, self.pid, self.started)

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}, since {self.since}"


class Owner:
    """The right of this process to write to a folder, from `claim` to `release`."""

    def __init__(self, folder: Folder) -> None:
        self.folder = folder
        self._home = folder.below(OWNERS_FOLDER)
        self._id = uuid.uuid4().hex
        self._name = f"{self._id}.json"
        self._process = this_process()
        self._beats, self._renewed, self._is_lost = 0, now_seconds(), False
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="curator-df-owner", daemon=True)

    def claim(self, *, is_locked: bool = False) -> Self:
        """Take the folder.

        Parameters
        ----------
        is_locked : bool
            Whether this process holds a lock on a file in it. Then no other process under this kernel has it.

        Raises
        ------
        OutputInUseError
            If another process has it.
        """
        _held[self._id] = self._process.run
        try:
            self._write()
            self._thread.start()
            self._wait_until_alone(is_locked)
        except BaseException:
            self.release()
            raise
        return self

    def check(self) -> None:
        """Raise unless the folder is still ours: a machine may have slept until another took this process for gone."""
        if now_seconds() - self._renewed > GONE_SECONDS / 2:
            self._renew()
        if self._is_lost:
            raise OutputInUseError(
                f"another run is writing to {self.folder.url} now: this one ({self._process}) gave no sign of life for "
                f"{GONE_SECONDS:.0f} s and was taken for gone, or somebody deleted {OWNERS_FOLDER}/{self._name}. This one "
                "ends; what is finished stays"
            )

    def release(self) -> None:
        """Let go of the folder."""
        _held.pop(self._id, None)
        self._ended.set()
        if self._thread.is_alive():
            self._thread.join(BEAT_SECONDS)
        try:
            _delete(self._home, self._name)
        except Exception as exc:  # noqa: BLE001 - others will see that this process does not renew it
            LOG.warning("cannot delete %s: %s", self._home.path(self._name), exc)

    def _write(self) -> None:
        content = json.dumps({**dataclasses.asdict(self._process), "beats": self._beats}).encode()
        if self._home.is_local:
            final = Path(self._home.path(self._name))
            final.parent.mkdir(parents=True, exist_ok=True)
            unfinished = final.with_suffix(".new")
            with open(unfinished, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            unfinished.rename(final)  # nobody sees half of it
        else:
            self._home.write(self._name, content)

    def _beat(self) -> None:
        while not self._ended.wait(BEAT_SECONDS):
            try:
                self._renew()
            except Exception as exc:  # noqa: BLE001 - whatever a store raises; the next time may do better
                LOG.info("cannot renew %s: %s", self._home.path(self._name), exc)

    def _renew(self) -> None:
        if not self._home.exists(self._name):  # who took this process for gone has deleted it
            self._is_lost = not self._ended.is_set()
            return
        if self._home.is_local:
            os.utime(self._home.path(self._name))  # needs no space
        elif not self._ended.is_set():
            self._beats += 1
            self._write()
            if self._ended.is_set():  # it was let go of meanwhile, and must not be there again
                _delete(self._home, self._name)
        self._renewed = now_seconds()

    def _wait_until_alone(self, is_locked: bool) -> None:
        watched: dict[str, _Watched] = {}
        while others := _names(self._home, but=self._name):
            for name in others:
                seen = _look(self._home, name)
                if seen is None:
                    continue
                process, mark = seen
                if name not in watched:
                    watched[name] = _Watched(mark, now_seconds())
                one = watched[name]
                lives = self._lives(process, name, is_locked)
                if lives is None:
                    lives = one.gives_signs(self.folder, process, mark)
                if lives is False:
                    _delete(self._home, name)
                elif lives:
                    one.alive_since = one.alive_since or now_seconds()
                    if name < self._name or now_seconds() - one.alive_since > YIELD_SECONDS:
                        raise is_taken(self.folder, process)
            time.sleep(LOOK_SECONDS)

    def _lives(self, process: Process, name: str, is_locked: bool) -> bool | None:
        """Tell whether a process is there and has the folder; None if only its signs of life can tell."""
        own = self._process
        if process.key == own.key:
            return name.removesuffix(".json") in _held
        if process.run in _gone:
            return False
        if process.boot != own.boot:
            return None
        if process.namespace == own.namespace:
            return is_running(process.pid, process.started)
        return False if is_locked else None


@dataclasses.dataclass
class _Watched:
    """What is known of a process that cannot be looked up."""

    mark: Any
    """What its file was at first."""
    since: float
    """When that was seen."""
    alive_since: float | None = None
    """When it was known to live."""
    is_told: bool = False
    """Whether the user knows that we wait."""

    def gives_signs(self, folder: Folder, process: Process, mark: Any) -> bool | None:
        """Tell whether it gave a sign of life, or none for too long; None while it is too early to tell."""
        if mark != self.mark:
            return True
        if now_seconds() - self.since > GONE_SECONDS:
            _gone.add(process.run)
            return False
        if not self.is_told:
            self.is_told = True
            LOG.warning(
                "%s was last written to by %s, which cannot be looked up from here; waiting for up to %.0f s to see "
                "whether it still runs",
                folder.url,
                process,
                GONE_SECONDS,
            )
        return None


def owner_of(folder: Folder) -> Process | None:
    """Return a process that has a folder, or wants it."""
    home = folder.below(OWNERS_FOLDER)
    found = [seen[0] for name in _names(home) if (seen := _look(home, name)) is not None]
    return min(found, key=lambda process: process.since, default=None)


def is_taken(folder: Folder, process: Process | None) -> OutputInUseError:
    """Return the error for a folder that another run writes to."""
    who = "" if process is None else f": {process}"
    return OutputInUseError(
        f"another run is writing to {folder.url} right now{who}. Wait until it ends, or end it and run the same with "
        f"on_existing='resume' (on another machine it is known to be gone after {GONE_SECONDS:.0f} s), or name another folder"
    )


def this_process() -> Process:
    """Return this process, which asks now."""
    pid = os.getpid()
    since = datetime.now(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    run = next(iter(_held.values()), uuid.uuid4().hex)
    return Process(socket.gethostname(), _boot(), _namespace(), pid, _stat(pid)[1], run, since)


def is_running(pid: int, started: int) -> bool | None:
    """Tell whether a process of this machine that began then has not ended; None if that may not be looked up.

    Examples
    --------
    >>> is_running(os.getpid(), this_process().started), is_running(os.getpid(), 1)
    (True, False)
    """
    try:
        state, began = _stat(pid)
    except (FileNotFoundError, ProcessLookupError):
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return False
        except PermissionError:  # another user's, of whom /proc shows nothing
            return None
        return None
    return began == started and state not in "ZX"  # nobody has collected it, but it writes no more


def _stat(pid: int) -> tuple[str, int]:
    """Return the state of a process, and when it began in clock ticks since the boot."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return fields[0], int(fields[19])


def now_seconds() -> float:
    """Return a time that goes on while the machine sleeps, and that nobody sets."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


@functools.cache
def _boot() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return uuid.uuid4().hex  # a sandbox without it: nobody else is taken to be on this machine


def _namespace() -> str:
    return os.readlink("/proc/self/ns/pid")


def _names(home: Folder, but: str = "") -> list[str]:
    return [name for name in home.names() if name.endswith(".json") and name != but]


def _look(home: Folder, name: str) -> tuple[Process, Any] | None:
    """Return what a file says, and what changes when its process gives a sign of life; None if it is not there any more."""
    try:
        content = home.read(name)
        mark = os.stat(home.path(name)).st_mtime_ns if home.is_local else None
    except OSError as exc:
        if exc.errno in {errno.ENOENT, errno.ESTALE}:  # stale: as NFS says of what another machine has deleted
            return None
        raise
    try:
        said = json.loads(content)
        process = Process(**{field.name: said[field.name] for field in dataclasses.fields(Process)})
    except (ValueError, KeyError, TypeError):  # damaged, or of another version
        process = Process("an unknown machine", "", "", 0, 0, name, "an unknown time")
    return process, (content, mark)


def _delete(home: Folder, name: str) -> None:
    try:
        home.delete(name)
    except FileNotFoundError:
        return  # another has deleted it
