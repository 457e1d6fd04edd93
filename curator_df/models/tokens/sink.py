# SPDX-License-Identifier: Apache-2.0
"""Sink of tokens: for each input split a file (or a pair), and a table of where each document is in it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from curator_df.core.fingerprint import fingerprint
from curator_df.core.ranges.source import OFFSET_BITS
from curator_df.errors import RowCountError
from curator_df.files.storage import FileRecord, Folder, NewFile, shown_path
from curator_df.memory.sizes import show_count
from curator_df.models.tokens.formats import TokenWriter, name_of
from curator_df.models.tokens.packing import Documents, Pieces, packer

IDS = "input_ids"
"""Column of the tokens of each document."""
PROVENANCE_FOLDER = "_provenance"
"""Folder of the tables of documents. Readers skip the name."""
MERGED_FOLDER = "merged"
"""Folder of the files that have the tokens of all input splits."""
MDS_INDEX = "index.json"
"""File that lists the shards of MosaicML Streaming."""
MERGED_NUMBER = 1 << 40
"""Number of an input split that no run has: merged files belong to all of them, so each unfinished run deletes them."""
SINK_BYTES = 20_000_000
"""Memory of the writer of an input split: lengths of documents, a group of rows of the table, a batch, and open sequences."""
GROUP_ROWS = 1 << 15
"""Rows of a group of the table of documents."""
PROVENANCE = pa.schema(
    [
        ("first_token", pa.int64()),
        ("tokens", pa.int64()),
        ("document", pa.int64()),
        ("file", pa.dictionary(pa.int32(), pa.string())),
        ("offset", pa.int64()),
    ]
)
"""Columns of the table: position among the tokens of the part, number of tokens, document of the part, and row ID."""


@dataclass(frozen=True)
class TokenSink:
    """Files of tokens in a folder."""

    folder: Folder
    """Folder of the files."""
    format: Any
    """Format of the files (`models.tokens.formats`)."""
    pack: int | None
    """Length of the sequences; None for a sequence of each document."""
    split_documents: bool
    """Whether a document may be in several sequences."""
    pad_id: int
    """Token at the end of a sequence that is not full."""
    provenance: bool
    """Whether the table of documents is written."""
    files: Sequence[str] = field(metadata={"identity": False})
    """Names of the input files."""

    @property
    def fingerprint(self) -> str:
        """Digest of everything that shapes the files."""
        options = (self.pack, self.split_documents, self.pad_id, self.provenance)
        return fingerprint("tokens", self.format.name, self.format, *options)

    @property
    def writer_factor(self) -> float:
        """Peak extra bytes of a block of tokens as a multiple of the bytes of its texts: one token for each byte."""
        return float(np.dtype(self.format.dtype).itemsize)

    @property
    def example(self) -> str:
        """Name of a file that could be written."""
        return name_of(0, self.format.suffixes[0])

    def open(self, number: int, meta: Any, buffer_bytes: int) -> RangeTokens:  # noqa: ARG002 - the interface of a sink
        """Start the files of an input split."""
        return RangeTokens(self, number)

    def write_empty(self, meta: Any) -> list[FileRecord]:  # noqa: ARG002 - the interface of a sink
        """Write the files of an output without documents."""
        files = RangeTokens(self, 0)
        files.touch()
        return files.commit()

    def owns(self, name: str) -> int | None:
        """Return the input split that a file belongs to, or None for a name of another program."""
        suffixes = "|".join(map(re.escape, self.format.suffixes))
        part = rf"part-(\d{{6,}})-000\.(?:{suffixes})|{PROVENANCE_FOLDER}/part-(\d{{6,}})-000\.parquet"
        if found := re.fullmatch(rf"{part}|_quarantine/part-(\d{{6,}})\.jsonl", name):
            return int(next(filter(None, found.groups())))
        of_all = rf"{MERGED_FOLDER}/tokens\.(?:{suffixes})"
        if self.format.name == "mds":
            of_all = re.escape(MDS_INDEX)
        return MERGED_NUMBER if re.fullmatch(of_all, name) else None


class RangeTokens:
    """Writer of one input split. Nothing is visible before `commit`."""

    def __init__(self, sink: TokenSink, number: int) -> None:
        self._sink, self._number = sink, number
        self._packer = packer(sink.pack, sink.pad_id, split_documents=sink.split_documents)
        self._writer: TokenWriter | None = None
        self._table: _ProvenanceFile | None = None
        self._documents = self._sequences = self._tokens = self._padding = 0

    def append(self, block: Any) -> None:
        """Write the next block, a column of tokens."""
        if len(block) == 0:
            return
        self.touch()
        addresses, start = block.index.to_numpy().astype(np.int64, copy=False), 0
        for chunk in _lists(block[IDS]):
            offsets = chunk.offsets.to_numpy()
            ids = chunk.values.to_numpy()[offsets[0] : offsets[-1]]
            documents = Documents(ids, np.diff(offsets), addresses[start : start + len(chunk)])
            start += len(chunk)
            self._documents += len(chunk)
            self._write(self._packer.add(documents))

    def touch(self) -> None:
        """Start the files, even without documents."""
        if self._writer is None:
            self._writer = self._sink.format.open(self._sink.folder, self._number)
            if self._sink.provenance:
                self._table = _ProvenanceFile(self._sink.folder, self._number, self._sink.files)

    def commit(self) -> list[FileRecord]:
        """Make all files durable and visible."""
        if self._writer is None:
            return []
        self._write(self._packer.finish())
        files = self._writer.finish()
        if self._table is not None:
            files = [*files, self._table.finish(self._number, self._documents)]
        first, *others = files
        return [first.commit(self._documents), *(file.commit() for file in others)]

    @property
    def summary(self) -> dict[str, int]:
        """Return the counts of the files."""
        if self._writer is None:
            return {}
        counts = (self._documents, self._sequences, self._tokens, self._padding)
        return dict(zip(("documents", "sequences", "tokens", "padding"), counts, strict=True))

    def discard(self) -> None:
        """Discard everything that was not committed."""
        for unfinished in (self._writer, self._table):
            if unfinished is not None:
                unfinished.discard()

    def _write(self, made: Iterable[Any]) -> None:
        assert self._writer is not None  # noqa: S101 - for the type checker: files were started
        for sequences in made:
            self._writer.write(sequences.ids, sequences.lengths)
            self._sequences += int(np.count_nonzero(sequences.lengths))
            self._tokens += len(sequences.ids)
            self._padding += sequences.padding
            if self._table is not None:
                self._table.append(sequences.pieces)


class _ProvenanceFile:
    """Table of the documents of an input split. Its groups have the same rows whatever the blocks."""

    def __init__(self, folder: Folder, number: int, files: Sequence[str]) -> None:
        self._file = NewFile(folder, f"{PROVENANCE_FOLDER}/{name_of(number, 'parquet')}")
        self._names = files
        self._writer = pq.ParquetWriter(
            self._file,
            PROVENANCE,
            compression="zstd",
            use_dictionary=["file"],
            column_encoding={name: "DELTA_BINARY_PACKED" for name in PROVENANCE.names if name != "file"},
        )
        self._waiting = np.empty((len(Pieces._fields), GROUP_ROWS), dtype=np.int64)
        self._rows = self._met = 0

    def append(self, pieces: Pieces) -> None:
        """Append documents, or their parts."""
        start, stop = 0, len(pieces.tokens)
        self._met += stop
        while start < stop:
            count = min(stop - start, GROUP_ROWS - self._rows)
            for waiting, column in zip(self._waiting, pieces, strict=True):
                waiting[self._rows : self._rows + count] = column[start : start + count]
            start += count
            self._rows += count
            if self._rows == GROUP_ROWS:
                self._flush()

    def finish(self, number: int, documents: int) -> NewFile:
        """Write the end of the table; raise `RowCountError` if it lacks a document."""
        if self._met < documents:
            raise RowCountError(
                f"input split {number}: {show_count(documents, 'document')} should be in the table of provenance, but it has "
                f"{self._met:,}. This is a defect in curator_df; please report it"
            )
        self._flush()
        self._writer.close()
        self._file.seal()
        return self._file

    def discard(self) -> None:
        """Discard the table unless it was committed."""
        self._file.discard()

    def _flush(self) -> None:
        if not self._rows:
            return
        first, tokens, document, addresses = self._waiting[:, : self._rows]
        self._rows = 0
        names = pa.DictionaryArray.from_arrays(*_coded(addresses >> OFFSET_BITS, self._names))
        offsets = addresses & np.int64((1 << OFFSET_BITS) - 1)
        columns = [first, tokens, document, names, offsets]
        self._writer.write_table(pa.table([pa.array(column) for column in columns], schema=PROVENANCE))


def _coded(numbers: npt.NDArray[np.int64], names: Sequence[str]) -> tuple[Any, Any]:
    """Return the numbers of files as codes of those that occur, and the names of these."""
    found, codes = np.unique(numbers, return_inverse=True)
    return pa.array(codes, pa.int32()), pa.array([shown_path(names[number]) for number in found], pa.string())


def _lists(column: Any) -> list[Any]:
    held = column.array.__arrow_array__()
    return held.chunks if isinstance(held, pa.ChunkedArray) else [held]
