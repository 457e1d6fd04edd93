# SPDX-License-Identifier: Apache-2.0
"""Standard output and standard error of the command line, whose errors are reported by name."""

from __future__ import annotations

import errno
import io
import os
import sys
from typing import Any

from curator_df.errors import DiskFullError

STANDARD_ERROR = 2


class _StandardStream(io.FileIO):
    """Standard output or standard error, of which an error is reported once; what follows is discarded.

    Messages on standard error are not worth the end of a run: where they cannot be written, they are discarded.
    """

    is_lost = False

    def write(self, data: Any) -> int:
        """Write bytes."""
        try:
            return len(data) if self.is_lost else super().write(data)
        except BrokenPipeError:
            raise
        except OSError as exc:
            self.is_lost = True
            if self.fileno() == STANDARD_ERROR:
                return len(data)
            is_full = exc.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
            said = (
                f"The standard output of curator-df cannot be written: {exc.strerror}. Finished files are complete. "
                f"{'Free some space, or send' if is_full else 'Send'} the standard output elsewhere"
            )
            raise DiskFullError(said) if is_full else OSError(said) from exc


def watch_standard_streams() -> None:
    """Let standard output and standard error take any character, report their errors by name, and be there although closed."""
    if sys.stdout is None:  # closed, as by >&-
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 - until the end of the process
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    # Receipts and file names may have characters that the terminal cannot show.
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    sys.stdout, sys.stderr = watched(sys.stdout), watched(sys.stderr)


def watched(stream: Any) -> Any:
    """Return a standard stream whose errors are reported by name; another stream is returned unchanged."""
    if stream not in (sys.__stdout__, sys.__stderr__):
        return stream
    number = stream.fileno()
    file = io.BufferedWriter(_StandardStream(number, "w", closefd=False))
    is_prompt = stream.line_buffering or number == STANDARD_ERROR
    return io.TextIOWrapper(file, stream.encoding, "backslashreplace", line_buffering=is_prompt)
