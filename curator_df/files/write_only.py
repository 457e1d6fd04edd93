# SPDX-License-Identifier: Apache-2.0
"""Interface of a binary file that is only written, as pyarrow's writers require it."""

from __future__ import annotations


class WriteOnly:
    """Common base of files that are complete when they are committed, not when a writer closes them."""

    size_bytes = 0
    """Number of bytes written so far."""
    closed = False

    def tell(self) -> int:
        """Return the number of bytes written so far."""
        return self.size_bytes

    def flush(self) -> None:
        """Do nothing: only the commit matters."""

    def close(self) -> None:
        """Do nothing: pyarrow's writers close their file before it is known to be complete."""

    def readable(self) -> bool:
        """Return False."""
        return False

    def writable(self) -> bool:
        """Return True."""
        return True

    def seekable(self) -> bool:
        """Return False."""
        return False
