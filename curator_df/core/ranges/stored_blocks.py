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
from collections.abc import Callable, Iterator, Mapping, Sequence
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


def blocks_name(number: int) -> str:
    """Return the name of the file with the rows of a range that passed the steps."""
    return f"{BLOCKS}/part-{number:06d}.arrows"


def rejects_name(number: int) -> str:
    """Return the name of the file with the rows of a range that the steps removed."""
    return f"{REJECTS}/part-{number:06d}.arrows"


@dataclass(frozen=True)
class BlockSink(StageSink):
    """Sink that stores unchanged blocks, with their row IDs."""

    folder: Folder
    """Folder of the files."""
    name: Callable[[int], str] = blocks_name
    """Function that returns the name of the file of a range."""
    writer_factor: float = 1.0
    """Memory multiplier of writing; a row longer than `PIECE_BYTES` is compressed as a whole."""

    @property
    def fingerprint(self) -> str:
        """Name of the format."""
        return f"stored {self.name(0)}"

    def open(self, number: int, meta: Any, buffer_bytes: int) -> BlockWriter:  # noqa: ARG002 - the face of a sink
        """Create the file of a range."""
        return BlockWriter(NewFile(self.folder, self.name(number)))


class BlockWriter:
    """Writer of the blocks of one range."""

    def __init__(self, file: NewFile) -> None:
        self._file, self._rows = file, 0
        self._stream: pa.RecordBatchStreamWriter | None = None
        self._schema: pa.Schema | None = None

    def append(self, block: Any) -> None:
        """Write the next block."""
        if not len(block):
            return
        table = _to_table(block)
        if self._schema is not None and not table.schema.equals(self._schema, check_metadata=True):
            raise UnstorableError(
                "a step returns different types of columns for different blocks, such as whole numbers for one and "
                "fractions for another"
            )
        if self._stream is None:
            self._schema = table.schema
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
class StoredFiles:
    """Files of one kind, at most one for each range, as workers read them. Picklable: 12 bytes for each range."""

    folder: Folder
    """Folder of the files."""
    name: Callable[[int], str]
    """Function that returns the name of the file of a range."""
    sizes: npt.NDArray[np.int64]
    """Size of the file of each range in bytes; -1 where there is none."""
    checksums: npt.NDArray[np.uint32]
    """CRC-32 of the content of each file."""

    @classmethod
    def of(cls, folder: Folder, name: Callable[[int], str], ranges: int, files: Mapping[int, FileRecord]) -> Self:
        """Return some files, by the number of their range."""
        sizes, checksums = np.full(ranges, -1, dtype=np.int64), np.zeros(ranges, dtype=np.uint32)
        for number, file in files.items():
            sizes[number], checksums[number] = file.size_bytes, file.checksum
        return cls(folder, name, sizes, checksums)

    def has(self, number: int) -> bool:
        """Return whether a range has a file."""
        return bool(self.sizes[number] >= 0)

    @contextlib.contextmanager
    def open(self, number: int) -> Iterator[Checked]:
        """Open the file of a range, and compare its content with its record when all of it was read, or reading failed.

        Raises
        ------
        CorruptFileError
            If it is not what was written, or gone.
        """
        path = self.folder.path(self.name(number))
        if not self.has(number):
            raise _damaged(path)
        with contextlib.ExitStack() as stack:
            try:
                file = stack.enter_context(self.folder.filesystem.open(path, "rb"))
            except FileNotFoundError as exc:
                raise _damaged(path) from exc
            checked = Checked(file)
            try:
                yield checked
            except GeneratorExit:
                raise
            except BaseException as exc:
                if not self._is_whole(checked, number):
                    raise _damaged(path) from exc
                raise
            if not self._is_whole(checked, number):
                raise _damaged(path)

    def _is_whole(self, checked: Checked, number: int) -> bool:
        while checked.read(PIECE_BYTES):
            pass
        return bool(checked.checksum == self.checksums[number] and checked.size_bytes == self.sizes[number])


@dataclass(frozen=True)
class StoredBlocks(StoredFiles):
    """Stored blocks of all ranges."""

    def blocks(
        self,
        piece: Range,
        files: Sequence[str],
        *,
        block_bytes: int,
        largest_row_bytes: int | None = None,
        on_long_row: Callable[[OversizeRowError], None] | None = None,
        wanted: RowChoice | None = None,
    ) -> Iterator[Any]:
        """Yield the rows of a range as blocks of about ``block_bytes``; ``files`` are those of the input, for errors.

        Raises
        ------
        OversizeRowError
            If a row is longer than ``largest_row_bytes``, unless ``on_long_row`` takes the error: the row is then left out.
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
                    error = _long_row(table, files, largest_row_bytes)
                    if on_long_row is None:
                        raise error
                    on_long_row(error)
                    continue
                if waiting and waiting_bytes + table.nbytes > block_bytes:
                    yield _to_block(waiting)
                    waiting_bytes = 0
                waiting.append(table)
                waiting_bytes += table.nbytes
        if waiting:
            yield _to_block(waiting)

    def _tables(self, number: int, wanted: RowChoice | None) -> Iterator[pa.Table]:
        with self.open(number) as checked:
            if not self.sizes[number]:
                return
            with pa.ipc.open_stream(pa.PythonFile(checked, mode="r")) as stream:
                for batch in stream:
                    table = pa.Table.from_batches([batch])
                    yield table if wanted is None else _chosen(table, wanted)


class Checked:
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
        try:
            column = pa.chunked_array(pa.array(block.iloc[:, place], from_pandas=isinstance(dtype, np.dtype)))
        except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError) as exc:
            raise UnstorableError(f"the column {name!r} has a type that Arrow does not have ({dtype})") from exc
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


def _long_row(table: pa.Table, files: Sequence[str], largest_row_bytes: int) -> OversizeRowError:
    address = table.column(0)[0].as_py()
    path, offset = files[address >> OFFSET_BITS], address & ((1 << OFFSET_BITS) - 1)
    error = OversizeRowError(
        f"the row at offset {offset:,} of {path} has {show_size(table.nbytes)} after the first steps, but only "
        f"{show_size(largest_row_bytes)} fit into the memory of a task. Use a larger memory=, or drop the row in an earlier step"
    )
    error.path, error.offset, error.row_bytes = path, offset, table.nbytes
    return error


def _damaged(path: str) -> CorruptFileError:
    error = CorruptFileError(
        f"the temporary file {path} is damaged or gone: it is not what this run wrote. Delete it if it exists, and repeat the "
        "run with on_existing='resume', which writes it again"
    )
    error.path = path
    return error
