# SPDX-License-Identifier: Apache-2.0
"""File formats of tokens: Megatron's pairs, arrays of NumPy, Arrow streams, and shards of MosaicML Streaming.

Every file is written from its beginning to its end, in bounded memory, also to an object store. Where the beginning follows from
what comes later, the rest waits on the local disk. The bytes depend on the sequences alone, not on blocks.
"""

from __future__ import annotations

import contextlib
import json
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from curator_df.errors import ParameterError
from curator_df.files.scratch import ScratchColumn
from curator_df.files.storage import FileRecord, Folder, NewFile
from curator_df.io.output.files import SpooledFile
from curator_df.memory.sizes import show_size
from curator_df.models.tokens.packing import Ids, Numbers
from curator_df.models.tokens.tokenizer import Vocabulary

LENGTHS_BYTES = 6_000_000
"""Memory for the lengths of the documents of a file; more of them wait on the local disk."""
LENGTHS_AT_ONCE = 1 << 16
INDEX_HEAD = b"MMIDIDX\x00\x00" + struct.pack("<Q", 1)
"""First bytes of a Megatron index: magic and version."""
INDEX_TYPES = {"int32": 4, "uint16": 8}
"""Codes of the types of tokens in a Megatron index, those of its ``DType``."""
INDEX_COUNTS = struct.Struct("<BQQ")
"""Code of the type, number of sequences, and number of documents plus one, behind `INDEX_HEAD`."""
MOST_UINT16_OF_MEGATRON = 65_500
"""Number of tokens from which Megatron stores int32 (``DType.optimal_dtype``)."""
BATCH_ROWS = 1000
"""Rows of a batch of an Arrow stream, as in the files of the package datasets."""
BATCH_TOKENS = 250_000
"""Tokens with which a batch ends even if it has fewer rows. A longer document is a batch of its own, which is not copied."""


class TokenWriter(Protocol):
    """Writer of one part of the output, a file or a pair of files. Nothing is visible before they are committed."""

    def write(self, ids: Ids, lengths: Numbers) -> None:
        """Append sequences."""

    def finish(self) -> list[NewFile]:
        """Write the ends of the files, and return them."""

    def discard(self) -> None:
        """Discard what was not committed."""


def name_of(number: int, suffix: str) -> str:
    """Return the name of a file of an input split."""
    return f"part-{number:06d}-000.{suffix}"


def put(file: Any, values: npt.NDArray[Any]) -> None:
    """Append the bytes of an array; a view of none cannot be cast to bytes."""
    if len(values):
        file.write(values)


class _Files:
    """Files that are discarded together."""

    def __init__(self, folder: Folder, number: int, *suffixes: str) -> None:
        self.stack = contextlib.ExitStack()
        try:
            self.files = [self.stack.enter_context(folder.create(name_of(number, suffix))) for suffix in suffixes]
        except BaseException:
            self.stack.close()
            raise

    def discard(self) -> None:
        self.stack.close()


@dataclass(frozen=True)
class MegatronFormat:
    """Megatron's format: a ``.bin`` with the tokens and an ``.idx`` with the lengths, as its IndexedDataset reads them."""

    dtype: str
    """Type of the tokens."""
    name: ClassVar[str] = "megatron"
    suffixes: ClassVar[tuple[str, ...]] = ("bin", "idx")

    @classmethod
    def of(cls, vocabulary: Vocabulary) -> MegatronFormat:
        """Return the format with the type that Megatron chooses; int32 if an ID does not fit into it."""
        fits = vocabulary.size < MOST_UINT16_OF_MEGATRON and vocabulary.largest_id < 1 << 16
        return cls("uint16" if fits else "int32")

    def open(self, folder: Folder, number: int) -> TokenWriter:
        """Start the pair of an input split."""
        return _MegatronWriter(folder, number, self.dtype)


class _MegatronWriter(_Files):
    def __init__(self, folder: Folder, number: int, dtype: str) -> None:
        super().__init__(folder, number, "bin", "idx")
        self._dtype = dtype
        self._lengths = self.stack.enter_context(ScratchColumn(np.int32, LENGTHS_BYTES))

    def write(self, ids: Ids, lengths: Numbers) -> None:
        put(self.files[0], ids)
        self._lengths.append(lengths.astype(np.int32))

    def finish(self) -> list[NewFile]:
        tokens, index = self.files
        tokens.seal()
        write_index(index, self._dtype, lambda: lengths_in(self._lengths), len(self._lengths))
        index.seal()
        return self.files


def lengths_in(column: ScratchColumn) -> Iterator[npt.NDArray[Any]]:
    """Yield the numbers of a column, in arrays of a limited length."""
    for start in range(0, len(column), LENGTHS_AT_ONCE):
        yield column.read(start, start + LENGTHS_AT_ONCE)


def write_index(file: NewFile, dtype: str, lengths: Any, documents: int) -> None:
    """Write a Megatron index.

    Parameters
    ----------
    file : NewFile
        File of the index.
    dtype : str
        Type of the tokens.
    lengths : callable
        Function that yields the lengths of the documents; it is called once for each part of the index. A document without
        tokens is a document of no sequences, as Megatron writes it.
    documents : int
        Number of documents.
    """
    sequences = sum(int(np.count_nonzero(some)) for some in lengths())
    file.write(INDEX_HEAD + INDEX_COUNTS.pack(INDEX_TYPES[dtype], sequences, documents + 1))
    for some in lengths():
        put(file, some[some > 0].astype("<i4", copy=False))
    first = 0
    for some in lengths():
        ends = first + np.cumsum(some[some > 0], dtype="<i8") * np.dtype(dtype).itemsize
        put(file, np.concatenate([[first], ends])[:-1].astype("<i8", copy=False))
        first = int(ends[-1]) if len(ends) else first
    file.write(np.zeros(1, "<i8"))
    before = 0
    for some in lengths():
        counts = before + np.cumsum(some > 0, dtype="<i8")
        put(file, counts)
        before = int(counts[-1]) if len(counts) else before


@dataclass(frozen=True)
class NumpyFormat:
    """Arrays of NumPy: all tokens in one dimension, or a row for each sequence of a pack."""

    dtype: str
    """Type of the tokens."""
    pack: int | None
    """Length of the sequences."""
    name: ClassVar[str] = "numpy"
    suffixes: ClassVar[tuple[str, ...]] = ("npy",)

    @classmethod
    def of(cls, vocabulary: Vocabulary, pack: int | None) -> NumpyFormat:
        """Return the format with the smallest type."""
        return cls("uint16" if vocabulary.largest_id < 1 << 16 else "uint32", pack)

    def open(self, folder: Folder, number: int) -> TokenWriter:
        """Start the file of an input split."""
        return _NumpyWriter(folder, number, self)


class _NumpyWriter(_Files):
    def __init__(self, folder: Folder, number: int, form: NumpyFormat) -> None:
        super().__init__(folder, number, "npy")
        self._format, self._tokens = form, 0
        self._spooled = SpooledFile(self.files[0])
        self.stack.callback(self._spooled.discard)

    def write(self, ids: Ids, lengths: Numbers) -> None:  # noqa: ARG002 - the interface of a writer
        put(self._spooled, ids)
        self._tokens += len(ids)

    def finish(self) -> list[NewFile]:
        write_array_head(self.files[0], self._format, self._tokens)
        self._spooled.seal()
        return self.files


def write_array_head(file: Any, form: NumpyFormat, tokens: int) -> None:
    """Write the head of an array with this number of tokens."""
    shape = (tokens,) if form.pack is None else (tokens // form.pack, form.pack)
    descr = np.lib.format.dtype_to_descr(np.dtype(form.dtype).newbyteorder("<"))
    np.lib.format.write_array_header_1_0(file, {"descr": descr, "fortran_order": False, "shape": shape})


@dataclass(frozen=True)
class ArrowFormat:
    """Arrow streams with a column ``input_ids``, as the package datasets maps them into memory.

    Tokens are int32, because PyTorch has few operations on unsigned types.
    """

    dtype: str = "int32"
    """Type of the tokens."""
    name: ClassVar[str] = "arrow"
    suffixes: ClassVar[tuple[str, ...]] = ("arrow",)

    def open(self, folder: Folder, number: int) -> TokenWriter:
        """Start the file of an input split."""
        return _ArrowWriter(folder, number)


class _ArrowWriter(_Files):
    def __init__(self, folder: Folder, number: int) -> None:
        super().__init__(folder, number, "arrow")
        self._schema = pa.schema([("input_ids", pa.list_(pa.int32()))])
        self._writer = pa.ipc.new_stream(self.files[0], self._schema)
        self._ids: list[Ids] = []
        self._lengths: list[int] = []
        self._tokens = 0

    def write(self, ids: Ids, lengths: Numbers) -> None:
        start = 0
        for length in lengths.tolist():
            row = ids[start : start + length]
            start += length
            if length >= BATCH_TOKENS:
                self._flush()
                self._write_batch([0, length], row)
                continue
            self._ids.append(row.copy())  # a slice would keep all tokens of its block
            self._lengths.append(length)
            self._tokens += length
            if len(self._lengths) == BATCH_ROWS or self._tokens >= BATCH_TOKENS:
                self._flush()

    def finish(self) -> list[NewFile]:
        self._flush()
        self._writer.close()
        self.files[0].seal()
        return self.files

    def _flush(self) -> None:
        if self._lengths:
            self._write_batch(np.concatenate([[0], np.cumsum(self._lengths)]), np.concatenate(self._ids))
            self._ids, self._lengths, self._tokens = [], [], 0

    def _write_batch(self, offsets: Any, ids: Ids) -> None:
        column = pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), pa.array(ids, pa.int32()))
        self._writer.write_batch(pa.record_batch([column], schema=self._schema))


@dataclass(frozen=True)
class MdsFormat:
    """Shards of MosaicML Streaming with a column ``tokens``; documents without tokens are left out, which it cannot store."""

    pack: int | None
    """Length of the sequences."""
    dtype: str = "int32"
    """Type of the tokens."""
    name: ClassVar[str] = "mds"
    suffixes: ClassVar[tuple[str, ...]] = ("mds",)

    @property
    def config(self) -> dict[str, Any]:
        """Description of the columns, as in each shard and in the index."""
        length = "" if self.pack is None else f":{self.pack}"
        return {
            "column_encodings": [f"ndarray:int32{length}"],
            "column_names": ["tokens"],
            "column_sizes": [None if self.pack is None else 4 * self.pack],
            "compression": None,
            "format": "mds",
            "hashes": [],
            "size_limit": None,
            "version": 2,
        }

    def open(self, folder: Folder, number: int) -> TokenWriter:
        """Start the shard of an input split."""
        return _MdsWriter(folder, number, self)


class _MdsWriter(_Files):
    def __init__(self, folder: Folder, number: int, form: MdsFormat) -> None:
        super().__init__(folder, number, "mds")
        self._format, self._size_bytes = form, 0
        self._sizes = self.stack.enter_context(ScratchColumn(np.int64, LENGTHS_BYTES))
        self._spooled = SpooledFile(self.files[0])
        self.stack.callback(self._spooled.discard)

    def write(self, ids: Ids, lengths: Numbers) -> None:
        if self._format.pack is not None:
            put(self._spooled, ids)
            self._sizes.append(4 * lengths)
            return
        start, sizes = 0, lengths[lengths > 0] * 4
        for place, size in enumerate(sizes.tolist()):
            row = ids[start : start + size // 4]
            start += len(row)
            head = _shape(len(row))
            self._spooled.write(struct.pack("<I", len(head) + size) + head)
            put(self._spooled, row)
            sizes[place] += 4 + len(head)
        self._sizes.append(sizes)

    def finish(self) -> list[NewFile]:
        (file,) = self.files
        config = json.dumps(self._format.config, sort_keys=True).encode()
        offset = 4 + 4 * (len(self._sizes) + 1) + len(config)
        if offset + self._spooled.size_bytes >= 1 << 32:
            raise ParameterError(
                f"{file.name} would have {show_size(offset + self._spooled.size_bytes)}, but a file of MosaicML Streaming "
                "can have at most 4.29 GB. Split the input into more and smaller files, or use another format="
            )
        file.write(struct.pack("<II", len(self._sizes), offset))
        for sizes in lengths_in(self._sizes):
            ends = offset + np.cumsum(sizes)
            put(file, ends.astype("<u4"))
            offset = int(ends[-1])
        file.write(config)
        self._spooled.seal()
        return self.files


def _shape(length: int) -> bytes:
    """Return the head of an array of one dimension: the number of dimensions, the width of its length, and the length."""
    for code, width in enumerate("BHI"):
        if length < 1 << 8 * struct.calcsize(width):
            return struct.pack(f"<B{width}", 1 << 2 | code, length)
    return struct.pack("<BQ", 1 << 2 | 3, length)


def write_mds_index(file: Any, form: MdsFormat, shards: Sequence[tuple[FileRecord, int]]) -> None:
    """Write the index of shards, of which each has a number of samples."""
    file.write(b'{"shards": [')
    before = b""
    for shard, samples in shards:
        raw = {"basename": shard.name, "bytes": shard.size_bytes, "hashes": {}}
        said = {**form.config, "raw_data": raw, "samples": samples, "zip_data": None}
        file.write(before + json.dumps(said, sort_keys=True).encode())
        before = b", "
    file.write(b'], "version": 2}')
