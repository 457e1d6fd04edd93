# SPDX-License-Identifier: Apache-2.0
"""Quarantined rows with their position: one JSON Lines file for each range that has any, written as they occur."""

from __future__ import annotations

import base64
import contextlib
import json
from typing import Any

from curator_df.core.ranges.range_action import NeedsPassesError
from curator_df.core.ranges.source import BadRow
from curator_df.files.storage import QUARANTINE_FOLDER, FileRecord, Folder, NewFile, disk_errors


def quarantine_name(number: int) -> str:
    """Return the name of the file with the quarantined rows of a range."""
    return f"{QUARANTINE_FOLDER}/part-{number:06d}.jsonl"


class QuarantineFile:
    """Writer of the quarantined rows of one range. The file is created with the first of them."""

    def __init__(self, folder: Folder, number: int, *, keeps_long: bool = True) -> None:
        self._folder, self._keeps_long = folder, keeps_long
        self._name = quarantine_name(number)
        self._stack = contextlib.ExitStack()
        self._file: NewFile | None = None
        self.rows = 0
        """Number of quarantined rows."""
        self.unread_rows = 0
        """Number of these that the reader could not read, which are in no block."""
        self.rows_out_of_memory = 0
        """Number of these that did not fit into memory."""
        self._copied = 0

    def copy(self, lines: bytes) -> None:
        """Append lines, or parts of them, of a file of an earlier pass, which has counted their rows."""
        with disk_errors(self._folder):
            self._opened().write(lines)
        self._copied += lines.count(b"\n")

    def add(self, row: BadRow) -> None:
        """Quarantine a row that cannot be read."""
        self.unread_rows += 1
        self.add_row(row)

    def add_row(self, row: BadRow) -> None:
        """Quarantine a row that is in a block.

        Raises
        ------
        NeedsPassesError
            If it did not fit into memory, and the range holds rows: without these it may fit.
        """
        if row.size_bytes is not None and not self._keeps_long:
            raise NeedsPassesError("a row is too large for the memory that the waiting rows leave")
        with disk_errors(self._folder):
            self._write(row)
        self.rows += 1
        self.rows_out_of_memory += row.size_bytes is not None

    def _write(self, row: BadRow) -> None:
        line = json.dumps(_record(row), ensure_ascii=False)
        # A file name need not be UTF-8: Python represents such bytes by surrogates, which JSON writes escaped.
        line = line if line.isascii() or _is_whole(line) else json.dumps(_record(row))
        self._opened().write(line.encode() + b"\n")

    def _opened(self) -> NewFile:
        if self._file is None:
            self._file = self._stack.enter_context(self._folder.create(self._name))
        return self._file

    def commit(self) -> list[FileRecord]:
        """Make the file durable and visible, if there is one."""
        with disk_errors(self._folder):
            return [] if self._file is None else [self._file.commit(self.rows + self._copied)]

    def discard(self) -> None:
        """Discard everything that was not committed."""
        self._stack.close()


def _is_whole(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _record(row: BadRow) -> dict[str, Any]:
    record: dict[str, Any] = {"file": row.path, "offset": row.offset, "reason": row.reason}
    if row.line:
        record["line"] = row.line
    if row.size_bytes is not None:
        record["bytes"] = row.size_bytes
        if not row.raw:
            return record
    try:
        record["raw"] = row.raw.decode("utf-8")
    except UnicodeDecodeError:
        record["raw_base64"] = base64.b64encode(row.raw).decode("ascii")
    return record
