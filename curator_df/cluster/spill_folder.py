# SPDX-License-Identifier: Apache-2.0
"""The folder of a session for what workers spill: its own, gone at the end, and after a crash gone at the next start.

A lock in it is held as long as its process lives, however that ends. A folder whose lock is free was left behind.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import socket
import tempfile
from pathlib import Path
from typing import Any

PREFIX = "curator-df-"
LOCK = "session.lock"


class SpillFolder:
    """A new folder below ``parent``; folders of processes of this machine that ended without deleting theirs go."""

    def __init__(self, parent: str) -> None:
        delete_left_behind(parent)
        self.path = tempfile.mkdtemp(prefix=PREFIX, dir=parent)
        self._lock: Any = open(f"{self.path}/{LOCK}-new", "w")  # noqa: SIM115
        with contextlib.suppress(OSError):  # a file system without locks: then nobody deletes what is left either
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._lock.write(socket.gethostname())
            self._lock.flush()
            os.rename(self._lock.name, f"{self.path}/{LOCK}")  # so that it is never seen before it is held

    def delete(self) -> None:
        """Delete the folder and what is in it."""
        shutil.rmtree(self.path, ignore_errors=True)
        self._lock.close()


def delete_left_behind(parent: str) -> list[str]:
    """Delete the folders that ended processes of this machine left; return their paths."""
    deleted = []
    for lock in Path(parent).glob(f"{PREFIX}*/{LOCK}"):
        # Another's folder, or one that goes just now.
        with contextlib.suppress(OSError), open(lock) as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if file.read() == socket.gethostname():
                shutil.rmtree(lock.parent, ignore_errors=True)
                deleted.append(str(lock.parent))
    return deleted
