# SPDX-License-Identifier: Apache-2.0
"""Blocks of a range in a working file: what the first steps of a chain made, for the passes that need it again.

A file is a stream of Arrow record batches (zstd) of about `PIECE_BYTES`. The first column contains the row IDs; the others have
the types of the block, which are restored exactly. The checksum of a file is in its `FileRecord`, and is checked when the file
is read.
"""

from __future__ import annotations

import contextlib
import json
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa

from curator_df.core.host_blocks import block_dtype, pandas_block
from curator_df.core.ranges.sink import StageSink
from curator_df.core.ranges.source import ADDRESS, OFFSET_BITS, Range, RowChoice
from curator_df.errors import CorruptFileError, OversizeRowError, SchemaError
from curator_df.files.storage import FileRecord, Folder, NewFile
from curator_df.memory.sizes import show_size

PIECE_BYTES = 1_000_000
"""Approximate bytes of a record batch, the unit that is compressed and read."""
DTYPES = b"dtypes"
"""Key of the schema's metadata with the pandas types that do not follow from the Arrow types: name by position."""
BLOCKS, REJECTS = "blocks", "rejects"
"""Subfolders for the rows that passed the steps, and for those that the steps removed."""


class UnstorableError(SchemaError):
    """A column holds Python objects, whose types a file could not restore."""


def stored_name(folder: str, number: int) -> str:
    """Return the name of the file of a range."""
    return f"{folder}/part-{number:06d}.arrows"


@dataclass(frozen=True)
class BlockSink(StageSink):
    """Sink that stores unchanged blocks, with their row IDs."""

    folder: Folder
    """Folder of the files."""
    below: str = BLOCKS
    """Subfolder of the files."""
    writer_factor: float = 1.0
    """Memory multiplier of writing; a row longer than `PIECE_BYTES` is compressed as a whole."""

    @property
    def fingerprint(self) -> str:
        """Name of the format."""
        return f"stored {self.below}"

    def open(self, number: int, meta: Any, buffer_bytes: int) -> BlockWriter:  # noqa: ARG002 - the face of a sink
        """Create the file of a range."""
        return BlockWriter(NewFile(self.folder, stored_name(self.below, number)))


class BlockWriter:
    """Writer of the blocks of one range."""

    def __init__(self, file: NewFile) -> None:
        self._file, self._rows = file, 0
        self._stream: pa.RecordBatchStreamWriter | None = None

    def append(self, block: Any) -> None:
        """Write the next block."""
        if not len(block):
            return
        table = _to_table(block)
        if self._stream is None:
            options = pa.ipc.IpcWriteOptions(compression=pa.Codec("zstd", 1), use_threads=False)
            self._stream = pa.ipc.new_stream(self._file, table.schema, options=options)
        for piece in _pieces(table):
            self._stream.write_table(piece)
        self._rows += len(block)

    def commit(self) -> list[FileRecord]:
        """Make the file durable and visible; without rows it is empty."""
        if self._stream is not None:
            self._stream.close()
        return [self._file.commit(self._rows)]

    @property
    def summary(self) -> dict[str, int]:
        """Nothing."""
        return {}

    def discard(self) -> None:
        """Discard the file if it was not committed."""
        self._file.discard()


@dataclass(frozen=True)
class StoredBlocks:
    """Stored blocks of all ranges, as workers read them. Picklable: 12 bytes for each range."""

    folder: Folder
    """Folder of the files."""
    below: str
    """Subfolder of the files."""
    sizes: npt.NDArray[np.int64]
    """Size of the file of each range in bytes; 0 for a file without rows, -1 where there is none."""
    checksums: npt.NDArray[np.uint32]
    """CRC-32 of the content of each file."""

    @classmethod
    def of(cls, folder: Folder, below: str, ranges: int, files: dict[int, FileRecord]) -> Self:
        """Return the blocks in some files, by the number of their range."""
        sizes, checksums = np.full(ranges, -1, dtype=np.int64), np.zeros(ranges, dtype=np.uint32)
        for number, file in files.items():
            sizes[number], checksums[number] = file.size_bytes, file.checksum
        return cls(folder, below, sizes, checksums)

    def blocks(
        self,
        piece: Range,
        *,
        block_bytes: int,
        largest_row_bytes: int | None = None,
        wanted: RowChoice | None = None,
    ) -> Iterator[Any]:
        """Yield the rows of a range as blocks of about ``block_bytes``.

        Raises
        ------
        OversizeRowError
            If a row is longer than ``largest_row_bytes``.
        CorruptFileError
            If the content of the file is not what was written.

        Notes
        -----
        Peak extra memory: 2 x block, and a record batch.
        """
        waiting, waiting_bytes = list[pa.Table](), 0
        for part in self._tables(piece.number, wanted):
            for table in _pieces(part, min(block_bytes, PIECE_BYTES)):
                if largest_row_bytes is not None and table.nbytes > largest_row_bytes:
                    raise _long_row(table, self.folder.path(stored_name(self.below, piece.number)), largest_row_bytes)
                if waiting and waiting_bytes + table.nbytes > block_bytes:
                    yield _to_block(waiting)
                    waiting_bytes = 0
                waiting.append(table)
                waiting_bytes += table.nbytes
        if waiting:
            yield _to_block(waiting)

    def _tables(self, number: int, wanted: RowChoice | None) -> Iterator[pa.Table]:
        name = stored_name(self.below, number)
        path = self.folder.path(name)
        if self.sizes[number] < 0:
            raise _damaged(path)
        if not self.sizes[number]:
            return
        with contextlib.ExitStack() as stack:
            try:
                file = stack.enter_context(self.folder.filesystem.open(path, "rb"))
            except FileNotFoundError as exc:
                raise _damaged(path) from exc
            checked = _Checked(file)
            try:
                with pa.ipc.open_stream(pa.PythonFile(checked, mode="r")) as stream:
                    for batch in stream:
                        table = pa.Table.from_batches([batch])
                        yield table if wanted is None else _chosen(table, wanted)
            except GeneratorExit:
                raise
            except BaseException as exc:
                if not self._is_whole(checked, number):
                    raise _damaged(path) from exc
                raise
            if not self._is_whole(checked, number):
                raise _damaged(path)

    def _is_whole(self, checked: _Checked, number: int) -> bool:
        while checked.read(PIECE_BYTES):
            pass
        return bool(checked.checksum == self.checksums[number] and checked.size_bytes == self.sizes[number])


class _Checked:
    """Readable file that computes the checksum of the bytes that are read from it."""

    closed = False

    def __init__(self, file: Any) -> None:
        self._file, self.checksum, self.size_bytes = file, 0, 0

    def read(self, size: int = -1) -> bytes:
        """Return the next bytes."""
        content: bytes = self._file.read(size)
        self.checksum = zlib.crc32(content, self.checksum)
        self.size_bytes += len(content)
        return content

    def readable(self) -> bool:
        """Return True."""
        return True

    def seekable(self) -> bool:
        """Return False: each byte counts once."""
        return False

    def close(self) -> None:
        """Do nothing: the file is closed by whoever opened it."""


def _to_table(block: pd.DataFrame) -> pa.Table:
    """Return the rows as an Arrow table, the row IDs first."""
    columns, dtypes = [pa.array(block.index.to_numpy())], {}
    for place, (name, dtype) in enumerate(block.dtypes.items()):
        if not isinstance(name, str) or pd.api.types.is_object_dtype(dtype):
            raise UnstorableError(f"the column {name!r} holds Python objects ({dtype})")
        column = pa.chunked_array(pa.array(block.iloc[:, place], from_pandas=isinstance(dtype, np.dtype)))
        if block_dtype(column.type) != dtype:
            restored = pd.ArrowDtype(column.type) if isinstance(dtype, pd.ArrowDtype) else _named(str(dtype))
            if restored != dtype:
                raise UnstorableError(f"the column {name!r} has a type that a file cannot restore ({dtype})")
            dtypes[str(place)] = "" if isinstance(dtype, pd.ArrowDtype) else str(dtype)
        columns.append(column)
    schema = pa.schema([(name, column.type) for name, column in zip([ADDRESS, *block.columns], columns, strict=True)])
    return pa.Table.from_arrays(columns, schema=schema.with_metadata({DTYPES: json.dumps(dtypes).encode()}))


def _named(dtype: str) -> Any:
    try:
        return pd.api.types.pandas_dtype(dtype)
    except TypeError:
        return None


def _to_block(waiting: list[pa.Table]) -> pd.DataFrame:
    """Return the rows of some tables as a block; the list is emptied."""
    table = pa.concat_tables(waiting).combine_chunks()
    waiting.clear()
    dtypes = json.loads(table.schema.metadata[DTYPES])
    block = pandas_block(table.select(list(range(1, table.num_columns))))
    for place, dtype in dtypes.items():
        column = table.column(int(place) + 1)
        if not dtype:
            restored: Any = pd.array(column, dtype=pd.ArrowDtype(column.type))
        else:
            restored = column.to_pandas().astype(dtype).array
        block.isetitem(int(place), restored)
    block.index = pd.Index(table.column(0).to_numpy(), name=ADDRESS)
    return block


def _pieces(table: pa.Table, piece_bytes: int = PIECE_BYTES) -> Iterator[pa.Table]:
    """Yield a table in parts of at most some bytes, or of one row."""
    if table.num_rows < 2 or table.nbytes <= piece_bytes:
        if table.num_rows:
            yield table
        return
    half = table.num_rows // 2
    yield from _pieces(table.slice(0, half), piece_bytes)
    yield from _pieces(table.slice(half), piece_bytes)


def _chosen(table: pa.Table, wanted: RowChoice) -> pa.Table:
    kept: Callable[..., Any] = table.filter
    return kept(pa.array(wanted(table.column(0).to_numpy())))


def _long_row(table: pa.Table, path: str, largest_row_bytes: int) -> OversizeRowError:
    address = table.column(0)[0].as_py()
    error = OversizeRowError(
        f"a row at {path} has {show_size(table.nbytes)}, but a task may have rows of {show_size(largest_row_bytes)}"
    )
    error.path, error.offset, error.row_bytes = path, address & ((1 << OFFSET_BITS) - 1), table.nbytes
    return error


def _damaged(path: str) -> CorruptFileError:
    error = CorruptFileError(
        f"the temporary file {path} is damaged or gone: it is not what this run wrote. Delete it if it exists, and repeat the "
        "run with on_existing='resume', which writes it again"
    )
    error.path = path
    return error
