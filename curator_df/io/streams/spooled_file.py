# SPDX-License-Identifier: Apache-2.0
"""File for a store that is kept on local disk until it is complete.

A store's client holds megabytes of each file that is being written. If an input split has many open files, as with
``partition_on=``, that would exceed the plan.
"""

from __future__ import annotations

import tempfile
from typing import Any

from curator_df.core.files.scratch import scratch_directory
from curator_df.core.files.storage import Folder, NewFile, disk_errors
from curator_df.core.files.write_only import WriteOnly

COPY_BYTES = 1 << 20


class SpooledFile(WriteOnly):
    """Local file that is written to a `NewFile` when it is sealed."""

    def __init__(self, file: NewFile) -> None:
        self.file = file
        """Target file."""
        self._local = tempfile.TemporaryFile(dir=scratch_directory())  # noqa: SIM115 - closed when it is sealed

    def write(self, content: Any) -> int:
        """Append bytes."""
        view = memoryview(content).cast("B")
        if self._local.closed:  # pyarrow always ends a file when its writer is garbage-collected
            return len(view)
        with disk_errors(Folder(scratch_directory())):
            self._local.write(view)
        self.size_bytes += len(view)
        return len(view)

    def seal(self) -> None:
        """Copy the file to the store, and release the local disk."""
        self._local.seek(0)
        while content := self._local.read(COPY_BYTES):
            self.file.write(content)
        self.discard()
        self.file.seal()

    def discard(self) -> None:
        """Release the local disk."""
        self._local.close()
