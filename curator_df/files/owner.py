# SPDX-License-Identifier: Apache-2.0
"""Ownership of a folder: one process writes to it, on any file system, and a process that died loses it.

Each process that wants the folder writes its own file below ``_curator/owners/``, with host, process and time, and only then
looks for the files of others: of two processes that start together, the later one sees the earlier. This needs no lock, no
exclusive creation and no synchronized clocks; it only requires that a written file is listed. A process renews its file every
`BEAT_SECONDS` (a heartbeat). A process of the same machine that ended is detected immediately. A process of another machine is
watched, and counts as dead after `GONE_SECONDS` without a heartbeat, measured by the local clock.
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

from curator_df.errors import OutputInUseError
from curator_df.files.storage import JOURNAL_FOLDER, Folder, output_errors
from curator_df.memory.system import boot_id, process_namespace, read_stat, seconds_since_boot

OWNERS_FOLDER = f"{JOURNAL_FOLDER}/owners"
"""Folder with one file for each process that writes to the output or wants to; in the end at most one remains."""
BEAT_SECONDS = 10.0
"""Interval between two heartbeats, in seconds."""
GONE_SECONDS = 120.0
"""Time without a heartbeat, in seconds, after which a remote process counts as dead. NFS attributes may lag by a minute."""
LOOK_SECONDS = 0.25
"""Interval between two checks of the other files, in seconds."""
YIELD_SECONDS = 5.0
"""Wait of the process that stays, in seconds, when two start together and the other gives up."""
LOG = logging.getLogger("curator_df")

_held: dict[str, str] = {}
"""Owner files of this process, with their runs. A file of this process that is not listed was left by an interrupt."""
_gone: set[str] = set()
"""Runs whose process gave no heartbeat: their other folders need not be watched again."""


@dataclasses.dataclass(frozen=True)
class Process:
    """A process, identified across all machines."""

    host: str
    """Host name; not necessarily unique."""
    boot: str
    """Boot ID of the machine's kernel."""
    namespace: str
    """PID namespace in which the process ID is valid: containers have their own."""
    pid: int
    """Process ID."""
    started: int
    """Start time in clock ticks since the boot, which distinguishes later processes with the same process ID."""
    run: str
    """Identifier that all folders of one run share."""
    since: str
    """Time at which the process requested the folder."""

    @property
    def key(self) -> tuple[str, str, int, int]:
        """Key that distinguishes the process from all others."""
        return (self.boot, self.namespace, self.pid, self.started)

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}, since {self.since}"


class Owner:
    """Right of this process to write to a folder, from `claim` to `release`."""

    def __init__(self, folder: Folder) -> None:
        self.folder = folder
        self._home = folder.below(OWNERS_FOLDER)
        self._id = uuid.uuid4().hex
        self._name = f"{self._id}.json"
        self._process = this_process()
        self._beats, self._renewed, self._is_lost = 0, seconds_since_boot(), False
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="curator-df-owner", daemon=True)

    def claim(self, *, is_locked: bool = False) -> Self:
        """Claim the folder.

        Parameters
        ----------
        is_locked : bool
            Whether this process holds a lock on a file in it. Then no other process under this kernel owns it.

        Raises
        ------
        OutputInUseError
            If another process owns it.
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
        """Raise an error unless this process still owns the folder: while a machine slept, another may have taken it over."""
        if seconds_since_boot() - self._renewed > GONE_SECONDS / 2:
            self._renew()
        if self._is_lost:
            raise OutputInUseError(
                f"another run is writing to {self.folder.url} now. It took the folder over, because this run "
                f"({self._process}) sent no heartbeat for {GONE_SECONDS:.0f} s, as when a machine sleeps, or because "
                f"{OWNERS_FOLDER}/{self._name} was deleted. This run ends, and its finished files are kept. Wait until the "
                "other run ends, or write to another folder"
            )

    def release(self) -> None:
        """Release the folder."""
        _held.pop(self._id, None)
        self._ended.set()
        if self._thread.is_alive():
            self._thread.join(BEAT_SECONDS)
        try:
            _delete(self._home, self._name)
        except Exception as exc:  # noqa: BLE001 - others will see that its heartbeat has stopped
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
            unfinished.rename(final)  # no process sees a partial file
        else:
            self._home.write(self._name, content)

    def _beat(self) -> None:
        while not self._ended.wait(BEAT_SECONDS):
            try:
                self._renew()
            except Exception as exc:  # noqa: BLE001 - whatever a store raises; the next attempt may succeed
                LOG.info("cannot renew %s: %s", self._home.path(self._name), exc)

    def _renew(self) -> None:
        if not self._home.exists(self._name):  # deleted by a process that considered this one dead
            self._is_lost = not self._ended.is_set()
            return
        if self._home.is_local:
            os.utime(self._home.path(self._name))  # needs no space
        elif not self._ended.is_set():
            self._beats += 1
            self._write()
            if self._ended.is_set():  # released in the meantime: the file must not reappear
                _delete(self._home, self._name)
        self._renewed = seconds_since_boot()

    def _wait_until_alone(self, is_locked: bool) -> None:
        watched: dict[str, _Watched] = {}
        while others := _names(self._home, but=self._name):
            for name in others:
                seen = _look(self._home, name)
                if seen is None:
                    continue
                process, mark = seen
                if name not in watched:
                    watched[name] = _Watched(mark, seconds_since_boot())
                one = watched[name]
                lives = self._lives(process, name, is_locked)
                if lives is None:
                    lives = one.gives_signs(self.folder, process, mark)
                if lives is False:
                    _delete(self._home, name)
                elif lives:
                    one.alive_since = one.alive_since or seconds_since_boot()
                    if name < self._name or seconds_since_boot() - one.alive_since > YIELD_SECONDS:
                        raise is_taken(self.folder, process)
            time.sleep(LOOK_SECONDS)

    def _lives(self, process: Process, name: str, is_locked: bool) -> bool | None:
        """Return whether a process runs and owns the folder; None if only its heartbeat can tell."""
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
    """Observations of a process that cannot be looked up."""

    mark: Any
    """First observed state of its file."""
    since: float
    """Time of that observation."""
    alive_since: float | None = None
    """Time at which it was known to be alive."""
    is_told: bool = False
    """Whether the user was informed about the wait."""

    def gives_signs(self, folder: Folder, process: Process, mark: Any) -> bool | None:
        """Return True after a heartbeat, False after too long a silence, and None if it is too early to tell."""
        if mark != self.mark:
            return True
        if seconds_since_boot() - self.since > GONE_SECONDS:
            _gone.add(process.run)
            return False
        if not self.is_told:
            self.is_told = True
            LOG.warning(
                "%s was last written to by %s, which cannot be checked from this machine; waiting for up to %.0f s to see "
                "whether it still runs",
                folder.url,
                process,
                GONE_SECONDS,
            )
        return None


def require_claimable(folder: Folder) -> None:
    """Raise the error of a run in a folder that cannot be written to, or that a running process owns. Nothing is written.

    A process of another machine, of which only the heartbeat tells whether it runs, is not waited for.
    """
    with output_errors(folder):
        if folder.is_local:
            above = Path(folder.root)
            while not os.path.lexists(above):
                above = above.parent
            missing = (
                errno.ENOTDIR if not above.is_dir() else 0 if os.access(above, os.W_OK | os.X_OK) else errno.EACCES
            )
            if missing:
                raise OSError(missing, os.strerror(missing), str(above))
    home, own = folder.below(OWNERS_FOLDER), Owner(folder)
    for name in _names(home):
        seen = _look(home, name)
        if seen is not None and own._lives(seen[0], name, is_locked=False):
            raise is_taken(folder, seen[0])


def owner_of(folder: Folder) -> Process | None:
    """Return a process that owns a folder or wants it."""
    home = folder.below(OWNERS_FOLDER)
    found = [seen[0] for name in _names(home) if (seen := _look(home, name)) is not None]
    return min(found, key=lambda process: process.since, default=None)


def is_taken(folder: Folder, process: Process | None) -> OutputInUseError:
    """Return the error for a folder that another run writes to."""
    who = "" if process is None else f": {process}"
    return OutputInUseError(
        f"another run is writing to {folder.url} right now{who}. Wait until it ends, or stop it and repeat the run with "
        f"on_existing='resume' (if it ran on another machine, {GONE_SECONDS:.0f} s later), or use another folder"
    )


def this_process() -> Process:
    """Return this process, with the current time."""
    pid = os.getpid()
    since = datetime.now(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    run = next(iter(_held.values()), uuid.uuid4().hex)
    return Process(socket.gethostname(), _boot(), process_namespace(), pid, read_stat(pid)[2], run, since)


def is_running(pid: int, started: int) -> bool | None:
    """Return whether the process of this machine that started at a given time still runs; None if that may not be looked up.

    Examples
    --------
    >>> is_running(os.getpid(), this_process().started), is_running(os.getpid(), 1)
    (True, False)
    """
    try:
        state, _, began = read_stat(pid)
    except (FileNotFoundError, ProcessLookupError):
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return False
        except PermissionError:  # a process of another user that /proc hides
            return None
        return None
    return began == started and state not in "ZX"  # a zombie no longer writes


@functools.cache
def _boot() -> str:
    try:
        return boot_id()
    except OSError:
        return uuid.uuid4().hex  # a sandbox without it: no other process counts as local


def _names(home: Folder, but: str = "") -> list[str]:
    return [name for name in home.names() if name.endswith(".json") and name != but]


def _look(home: Folder, name: str) -> tuple[Process, Any] | None:
    """Return the process of a file, and a mark that changes with each heartbeat; None if the file does not exist any more."""
    try:
        content = home.read(name)
        mark = os.stat(home.path(name)).st_mtime_ns if home.is_local else None
    except OSError as exc:
        if exc.errno in {
            errno.ENOENT,
            errno.ESTALE,
        }:  # stale: NFS reports it for files that another machine has deleted
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
        return  # another process has deleted it
