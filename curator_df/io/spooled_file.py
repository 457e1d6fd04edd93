# SPDX-License-Identifier: Apache-2.0
"""A file on its way to a store that lies on local disk until it is whole.

A store's client holds megabytes of each file that is being written. Where a range has many files open at a time, as with
``partition_on=``, that would be beyond the plan.
"""

from __future__ import annotations

import tempfile
from typing import Any

from curator_df.core.files.scratch import scratch_directory
from curator_df.core.files.storage import Folder, NewFile, disk_errors
from curator_df.core.files.write_only import WriteOnly

COPY_BYTES = 1 << 20


class SpooledFile(WriteOnly):
    """Takes what a `NewFile` takes, and gives it that when it is sealed."""

    def __init__(self, file: NewFile) -> None:
        self.file = file
        """What becomes visible in the end."""
        self._local = tempfile.TemporaryFile(dir=scratch_directory())  # noqa: SIM115 - closed when it is sealed

    def write(self, content: Any) -> int:
        """Append bytes."""
        view = memoryview(content).cast("B")
        if self._local.closed:  # pyarrow ends a file when its writer is collected, wanted or not
            return len(view)
        with disk_errors(Folder(scratch_directory())):
            self._local.write(view)
        self.size_bytes += len(view)
        return len(view)

    def seal(self) -> None:
        """Bring it to the store, and give the local disk back."""
        self._local.seek(0)
        while content := self._local.read(COPY_BYTES):
            self.file.write(content)
        self.discard()
        self.file.seal()

    def discard(self) -> None:
        """Give the local disk back."""
        self._local.close()
