# SPDX-License-Identifier: Apache-2.0
"""Folder of a session for spilled data, deleted at the end, or after a crash at the next start.

A lock in it is held as long as its process lives, regardless of how it ends. A folder with a free lock was left behind.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import socket
import tempfile
import uuid
from pathlib import Path
from typing import Any

from curator_df.cluster.surroundings import start_failure, temporary_directory
from curator_df.core.cleaning_up import clean_up
from curator_df.errors import BudgetError, DiskFullError, ParameterError
from curator_df.files.storage import Folder, output_errors
from curator_df.memory.sizes import read_size, show_sizes

PREFIX = "curator-df-"
LOCK = "session.lock"
SPILL_SHARE_OF_FREE_DISK = 0.5
"""Share of the free space of the spill directory that all workers together may fill."""


class SpillFolder:
    """New folder below ``parent``; folders of this machine's processes that ended without deleting theirs are deleted."""

    def __init__(self, parent: str) -> None:
        delete_left_behind(parent)
        self.path = tempfile.mkdtemp(prefix=PREFIX, dir=parent)
        self._lock: Any = None
        try:
            self._lock = open(f"{self.path}/{LOCK}-new", "wb", buffering=0)  # noqa: SIM115 - so that its close writes nothing
            try:
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:  # a file system without locks, on which leftovers are never deleted
                return
            self._lock.write(socket.gethostname().encode())
            os.rename(self._lock.name, f"{self.path}/{LOCK}")  # so that it is never visible before it is held
        except BaseException as exc:  # the disk is full, or there are too many open files
            clean_up(exc, self.delete)
            raise

    def delete(self) -> None:
        """Delete the folder and its contents."""
        shutil.rmtree(self.path, ignore_errors=True)
        if self._lock is not None:
            self._lock.close()


class WorkingFolder:
    """A folder below the ``workdir`` of a user for what looks and tables of Dask write; made when it is first needed.

    It goes with the cluster. What an ended process of this machine left is deleted by the next cluster with this ``workdir``;
    in a store, which has no locks, by nobody.
    """

    def __init__(self, workdir: str) -> None:
        self._workdir, self._url = workdir, ""
        self._made: SpillFolder | None = None
        self._is_local = "://" not in workdir
        if self._is_local:
            delete_left_behind(workdir)

    def path(self, *, make: bool = True) -> str:
        """Return the folder; without ``make`` that of the user, if it was not made yet."""
        if not self._url and not make:
            return self._workdir
        if not self._url:
            self._url = f"{self._workdir.rstrip('/')}/{PREFIX}{uuid.uuid4().hex[:8]}"
            if self._is_local:
                with output_errors(Folder(self._workdir)):
                    Path(self._workdir).mkdir(parents=True, exist_ok=True)
                    self._made = SpillFolder(self._workdir)
                self._url = self._made.path
        return self._url

    def delete(self) -> None:
        """Delete the folder, if it was made; in a store the files in it were deleted before."""
        if self._made is not None:
            self._made.delete()
        self._made, self._url = None, ""


def delete_left_behind(parent: str) -> list[str]:
    """Delete the folders left by ended processes of this machine; return their paths."""
    deleted = []
    for lock in Path(parent).glob(f"{PREFIX}*/{LOCK}"):
        # A folder of another user, or one that is being deleted.
        with contextlib.suppress(OSError), open(lock) as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if file.read() == socket.gethostname():
                shutil.rmtree(lock.parent, ignore_errors=True)
                deleted.append(str(lock.parent))
    return deleted


def spill_room(spill_directory: str | os.PathLike[str] | None, spill_limit: str | int | None) -> tuple[str, int]:
    """Return the directory below which workers spill, and the bytes that all of them together may write there."""
    parent = os.fspath(spill_directory) if spill_directory is not None else temporary_directory()
    if not os.path.isdir(parent):
        raise ParameterError(
            f"spill_directory={parent!r} is not an existing directory. Create it, or name a local directory with free space"
        )
    free_bytes = shutil.disk_usage(parent).free
    spill_bytes = (
        int(free_bytes * SPILL_SHARE_OF_FREE_DISK) if spill_limit is None else read_size("spill_limit", spill_limit)
    )
    if spill_bytes > free_bytes:
        asked, free = show_sizes(spill_bytes, free_bytes)
        raise BudgetError(
            f"spill_limit={asked}, but {parent} has only {free} free. Set a smaller "
            "spill_limit=, or spill_directory= on a larger disk"
        )
    return parent, spill_bytes


def new_spill_folder(parent: str) -> SpillFolder:
    """Create the folder of a session; raise `ParameterError` if its parent is not writable."""
    try:
        return SpillFolder(parent)
    except OSError as exc:
        if (full := start_failure(exc, parent)) is not None and isinstance(full, DiskFullError):
            raise full from exc
        raise ParameterError(
            f"spill_directory={parent!r} cannot be written to: {exc.strerror or exc}. Set spill_directory= or TMPDIR to your "
            "own directory with free space"
        ) from exc
