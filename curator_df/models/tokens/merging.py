# SPDX-License-Identifier: Apache-2.0
"""Tokens of all input splits in one file: parts are copied one after the other, in bounded memory.

On a local disk, a killed merge continues after the last part that it had noted; on an object store it begins again. A file
appears under its final name only when it is complete.
"""

from __future__ import annotations

import dataclasses
import io
import json
import os
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from curator_df.core.fingerprint import fingerprint
from curator_df.core.ranges.journal import Journal
from curator_df.errors import CorruptFileError, OutputChangedError, ParameterError
from curator_df.files.retry import retry_transient
from curator_df.files.slice_file import read_ranges
from curator_df.files.storage import JOURNAL_FOLDER, FileRecord, Folder, NewFile, disk_errors, sync_folder
from curator_df.models.tokens.formats import (
    INDEX_COUNTS,
    INDEX_HEAD,
    LENGTHS_AT_ONCE,
    NumpyFormat,
    write_array_head,
    write_index,
    write_mds_index,
)
from curator_df.models.tokens.sink import MDS_INDEX, MERGED_FOLDER, TokenSink

COPY_BYTES = 4_000_000
"""Bytes that are read together."""
SYNC_BYTES = 256_000_000
"""Bytes after which a merge notes how far it has come."""
MERGING_FOLDER = f"{JOURNAL_FOLDER}/merging"
"""Folder of a file that is being merged, and of the note how far."""
MERGEABLE = ("megatron", "numpy")


@dataclass(frozen=True)
class Part:
    """Files of an input split."""

    files: tuple[FileRecord, ...]
    """Files in the order of the format's suffixes."""
    documents: int
    """Number of documents in the index: those of the input, or the sequences of a pack."""
    sequences: int
    """Number of sequences that have tokens."""
    tokens: int
    """Number of tokens, padding included."""


def require_mergeable(operator: str, form: str, merge: Any) -> None:
    """Raise `ParameterError` if the files of a format cannot be merged."""
    if merge and form not in MERGEABLE:
        raise ParameterError(
            f"{operator}: merge=True applies to the formats {' and '.join(map(repr, MERGEABLE))}, but format={form!r}. Leave "
            "merge out, and read the files of all parts together"
        )


def list_shards(sink: TokenSink) -> None:
    """Write the index of the shards of a finished run, unless it exists."""
    with Journal(sink.folder) as journal:
        if not sink.folder.exists(MDS_INDEX):
            shards = [(part.files[0], part.sequences) for part in _parts(journal) if part.sequences]
            with disk_errors(sink.folder), sink.folder.create(MDS_INDEX) as file:
                write_mds_index(file, sink.format, shards)
                file.commit()


def _parts(journal: Journal) -> list[Part]:
    return [
        Part(record.files, *(record.summary[name] for name in ("documents", "sequences", "tokens")))
        for _, record in sorted(journal.records().items())
        if record.files
    ]


def merge_parts(sink: TokenSink) -> None:
    """Write the tokens of all parts of a finished run to one pair (or array), unless it exists.

    Raises
    ------
    CorruptFileError
        If a part does not have the bytes that the run wrote.
    OutputChangedError
        If a part is missing.
    """
    with Journal(sink.folder) as journal:
        parts = _parts(journal)
        if sink.pack is not None:
            parts = [dataclasses.replace(part, documents=part.sequences) for part in parts]
        total = sum(part.tokens for part in parts)
        head = b""
        if isinstance(sink.format, NumpyFormat):
            head = _array_head(sink.format, total)
        suffix, *index = sink.format.suffixes
        item_bytes = np.dtype(sink.format.dtype).itemsize
        name = f"{MERGED_FOLDER}/tokens.{suffix}"
        if sink.folder.size(name) != len(head) + total * item_bytes:
            _join(sink.folder, name, head, [(part.files[0], part.tokens * item_bytes) for part in parts])
        if index:
            _join_indices(sink, f"{MERGED_FOLDER}/tokens.{index[0]}", parts)
        sink.folder.delete_tree(MERGING_FOLDER)


def _array_head(form: NumpyFormat, tokens: int) -> bytes:
    head = io.BytesIO()
    write_array_head(head, form, tokens)
    return head.getvalue()


def _join(folder: Folder, name: str, head: bytes, parts: Sequence[tuple[FileRecord, int]]) -> None:
    """Write the last bytes of some files, of each as many as given, one after the other behind a head."""
    with disk_errors(folder):
        joined = _LocalJoin(folder, name, head, parts) if folder.is_local else _RemoteJoin(folder, name, head)
        with joined:
            for file, size_bytes in parts[joined.parts_done :]:
                for content in _checked(folder, file, size_bytes):
                    joined.write(content)
                joined.note_part()
            joined.commit()


class _RemoteJoin:
    """File of an object store, which appears when its upload is complete."""

    parts_done = 0

    def __init__(self, folder: Folder, name: str, head: bytes) -> None:
        self._file = NewFile(folder, name)
        self._file.write(head)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.discard()

    def write(self, content: bytes) -> None:
        """Append bytes."""
        self._file.write(content)

    def note_part(self) -> None:
        """Do nothing: an upload cannot be continued."""

    def commit(self) -> None:
        """Make the file visible."""
        self._file.commit()


class _LocalJoin:
    """File on a local disk, which a killed merge leaves with a note how much of it is on disk."""

    def __init__(self, folder: Folder, name: str, head: bytes, parts: Sequence[tuple[FileRecord, int]]) -> None:
        self._folder, self._final = folder, Path(folder.path(name))
        self._name = f"{MERGING_FOLDER}/{self._final.name}"
        self._of = fingerprint(head, [(file.name, file.checksum, size_bytes) for file, size_bytes in parts])
        path = Path(folder.path(self._name))
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = open(path, "r+b" if path.exists() else "w+b")  # noqa: SIM115 - closed at exit
        self.parts_done, size_bytes = self._noted()
        self._file.truncate(size_bytes)
        self._file.seek(size_bytes)
        if not size_bytes:
            self._file.write(head)
        self._unsynced_bytes = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def write(self, content: bytes) -> None:
        """Append bytes."""
        self._file.write(content)
        self._unsynced_bytes += len(content)

    def note_part(self) -> None:
        """Count a part that was written, and note it when enough were."""
        self.parts_done += 1
        if self._unsynced_bytes >= SYNC_BYTES:
            self._sync()
            note = {"of": self._of, "parts": self.parts_done, "size_bytes": self._file.tell()}
            self._folder.write(f"{self._name}.json", json.dumps(note).encode())
            self._unsynced_bytes = 0

    def commit(self) -> None:
        """Make the file visible."""
        self._sync()
        self._final.parent.mkdir(parents=True, exist_ok=True)
        os.replace(self._folder.path(self._name), self._final)
        sync_folder(self._final.parent)

    def _sync(self) -> None:
        self._file.flush()
        os.fsync(self._file.fileno())

    def _noted(self) -> tuple[int, int]:
        """Return how many parts of the same files an earlier merge has noted, and the bytes up to their end."""
        if not self._folder.exists(f"{self._name}.json"):
            return 0, 0
        note = json.loads(self._folder.read(f"{self._name}.json"))
        is_same = note["of"] == self._of and note["size_bytes"] <= os.fstat(self._file.fileno()).st_size
        return (note["parts"], note["size_bytes"]) if is_same else (0, 0)


def _checked(folder: Folder, file: FileRecord, size_bytes: int) -> Iterator[bytes]:
    """Yield the last bytes of a file; raise an error at its end if its checksum is another."""
    skipped, checksum = file.size_bytes - size_bytes, 0
    for start in range(0, file.size_bytes, COPY_BYTES):
        content = _read(folder, file, start, min(start + COPY_BYTES, file.size_bytes))
        checksum = zlib.crc32(content, checksum)
        if start + len(content) > skipped:
            yield content[max(skipped - start, 0) :]
    if checksum != file.checksum:
        raise CorruptFileError(
            f"{folder.path(file.name)} does not have the bytes that the run wrote (its checksum differs). Delete it, and repeat "
            "the call with on_existing='resume', which writes it again"
        )


def _read(folder: Folder, file: FileRecord, start: int, stop: int) -> bytes:
    """Return bytes of a part."""
    try:
        (content,) = retry_transient(f"read {file.name!r}", lambda: read_ranges(folder, [(file.name, start, stop)]))
    except (FileNotFoundError, CorruptFileError) as exc:
        raise OutputChangedError(
            f"{folder.path(file.name)} is missing or truncated, so the parts cannot be merged. Repeat the call with "
            "on_existing='resume', which writes it again"
        ) from exc
    return bytes(content)


def _join_indices(sink: TokenSink, name: str, parts: Sequence[Part]) -> None:
    """Write one index of the documents (or packed sequences) of all parts."""
    documents, sequences = sum(part.documents for part in parts), sum(part.sequences for part in parts)
    expected = len(INDEX_HEAD) + INDEX_COUNTS.size + sequences * (4 + 8) + 8 * (documents + 1)
    if sink.folder.size(name) == expected:
        return

    def lengths() -> Iterator[npt.NDArray[np.int32]]:
        for part in parts:
            yield from _document_lengths(sink.folder, part)

    with disk_errors(sink.folder), sink.folder.create(name) as file:
        write_index(file, sink.format.dtype, lengths, documents)
        file.commit()


def _document_lengths(folder: Folder, part: Part) -> Iterator[npt.NDArray[np.int32]]:
    """Yield the lengths of the documents (or packed sequences) of an index, in arrays of a limited length."""
    sequences, start = part.sequences, len(INDEX_HEAD) + INDEX_COUNTS.size
    ends = start + sequences * (4 + 8)
    for first in range(0, part.documents, LENGTHS_AT_ONCE):
        last = min(first + LENGTHS_AT_ONCE, part.documents)
        bounds = np.frombuffer(_read(folder, part.files[1], ends + 8 * first, ends + 8 * (last + 1)), "<i8")
        found = np.zeros(last - first, dtype=np.int32)
        if bounds[-1] > bounds[0]:
            content = _read(folder, part.files[1], start + 4 * int(bounds[0]), start + 4 * int(bounds[-1]))
            found[np.diff(bounds) > 0] = np.frombuffer(content, "<i4")
        yield found
