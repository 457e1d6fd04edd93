# SPDX-License-Identifier: Apache-2.0
"""The face of a binary file that is only written, as pyarrow's writers ask for it."""

from __future__ import annotations


class WriteOnly:
    """What files have in common that count as written when they are committed, not when a writer closes them."""

    size_bytes = 0
    """Written so far."""
    closed = False

    def tell(self) -> int:
        """Return the bytes written so far."""
        return self.size_bytes

    def flush(self) -> None:
        """Do nothing: what counts is the commit."""

    def close(self) -> None:
        """Do nothing: pyarrow's writers close what they write to, before it is known to be whole."""

    def readable(self) -> bool:
        """Return False."""
        return False

    def writable(self) -> bool:
        """Return True."""
        return True

    def seekable(self) -> bool:
        """Return False."""
        return False
