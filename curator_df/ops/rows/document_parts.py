# SPDX-License-Identifier: Apache-2.0
"""Split documents into a row for each segment, and join them again: `split_documents` and `join_documents`."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NoReturn

import dask.dataframe as dd
import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa

from curator_df.core.backend import integer_column
from curator_df.core.columns import is_text, refuse_columns, require_columns, require_text
from curator_df.core.planning.program import DiskNeed, Program, StageStart, Step
from curator_df.core.ranges.blocks import BlockKernel, Outcome, map_blocks
from curator_df.core.ranges.journal import Journal
from curator_df.core.ranges.price import Price
from curator_df.core.ranges.range_action import OfRange, RangeAction
from curator_df.core.ranges.source import OFFSET_BITS
from curator_df.errors import CorruptFileError, OperatorError, ParameterError, PendingError, SchemaError
from curator_df.exchange.dropped_rows import DROP_READER_BYTES, Found
from curator_df.exchange.drops import read_drops
from curator_df.exchange.exchange import Exchange, KeyWriter
from curator_df.exchange.key_stages import KeyStages
from curator_df.exchange.keys import CHECKSUM_MASK, Keyed, key_checksum
from curator_df.files.storage import FileRecord, NewFile
from curator_df.kernels.compiling import kernel_sets
from curator_df.kernels.rows.joined_texts import TextArray, one_array
from curator_df.kernels.rows.segments import split_block
from curator_df.kernels.text.buffers import text_chunks, text_dtype
from curator_df.memory.sizes import read_size
from curator_df.ops.host_only import require_host
from curator_df.ops.rows.document_joiner import OPERATOR, DocumentJoiner, Joining, SegmentReader, Segments

# Measured (tests/contracts/test_memory.py) with segments of one letter: at most 2.94.
SPLIT_PEAK_FACTOR = 3.2


def split_documents(
    df: dd.DataFrame, *, separator: str = "\n\n", text: str = "text", segment_id: str = "segment_id"
) -> dd.DataFrame:
    r"""Split each text at a separator into one row per segment; the other columns repeat.

    Parameters
    ----------
    df : dask.dataframe.DataFrame
        The table.
    separator : str, default "\\n\\n"
        Literal text between two segments, not a regular expression. It is not part of any segment.
    text : str, default "text"
        The text column.
    segment_id : str, default "segment_id"
        Name of the new column.

    Returns
    -------
    dask.dataframe.DataFrame
        As many rows for each row as its text has segments, in order, with one more column ``Int64``: the number of the
        segment in its text, from 0. A text without the separator, even an empty one, has one segment; a null text gives
        one row with a null text. Segments may be empty: between two separators, and before or after one at the ends of
        a text.

    Raises
    ------
    ParameterError
        If the separator is empty.
    ColumnError
        If the text column is missing, or ``segment_id`` already exists.
    UnsupportedBackendError
        If the blocks are cuDF blocks.

    See Also
    --------
    join_documents

    Notes
    -----
    Rows: one for each segment of a text, in order. Columns: plus ``segment_id``; the others repeat. Backends: pandas.
    Peak extra memory: 3.2 x block; the following steps hold the block as well. Computes: no.

    The output of a block is passed on in parts no larger than the block, however often a wide column repeats. Memory
    therefore does not depend on the number of segments per text; the size of the output files does.

    The rows of a text share its address. Operators that identify rows by address are refused after it: `add_ids` with
    ``identity="address"`` and the steps that wait for all rows, such as `drop_exact_duplicates`. ``add_ids(dense=True)``
    numbers segments, and after ``checkpoint(df, path)`` each segment has its own address. `sample_rows` keeps all
    segments of a text, or none. `join_documents` joins the segments of a text again.

    References
    ----------
    .. [1] nemo_curator 0.9.0, modules/splitter.py, DocumentSplitter

    Examples
    --------
    >>> import dask.dataframe as dd, pandas as pd
    >>> docs = dd.from_pandas(pd.DataFrame({"id": ["a", "b"], "text": ["one\n\ntwo", "three"]}), npartitions=1)
    >>> docs.pipe(split_documents).compute()
      id   text  segment_id
    0  a    one           0
    0  a    two           1
    1  b  three           0
    """
    operator = "split_documents"
    require_text(df, operator, text)
    require_host(df._meta, operator)
    refuse_columns(df, operator, segment_id, parameter="segment_id")
    if not isinstance(separator, str) or not separator:
        raise ParameterError(f"{operator}: separator={separator!r} is not text of at least one character")
    kernel = BlockKernel(
        operator,
        split_documents_block,
        {"text": text, "separator": separator, "segment_id": segment_id},
        price=Price(SPLIT_PEAK_FACTOR, is_measured=True),
        compiled=kernel_sets.SPLITTING,
        makes_rows=True,
    )
    meta = df._meta.astype({text: text_dtype(df._meta[text].dtype)})
    return map_blocks(df, kernel, meta=meta.assign(**{segment_id: integer_column(meta, np.zeros(0, np.int64))}))


def split_documents_block(block: Any, *, text: str, separator: str, segment_id: str) -> Outcome:
    """Kernel of `split_documents`."""
    require_host(block, "split_documents")
    if not len(block):
        numbers = integer_column(block, np.zeros(0, np.int64))
        dtype = text_dtype(block[text].dtype)
        return Outcome(block.astype({text: dtype}).assign(**{segment_id: numbers}))
    parts = split_block(block, text=text, separator=separator, segment_id=segment_id)
    return Outcome(next(parts), rest=map(Outcome, parts))


REASON = "joined"
"""Number of a row that is part of another row now."""


@dataclass(frozen=True)
class DocumentJoin(Keyed):
    """Segments that wait for what is known of all ranges."""

    joining: Joining
    """Columns to join, and how."""
    keep: Literal["first"] = "first"
    """The first document with an ID; there may be no other."""

    @property
    def columns(self) -> tuple[str, ...]:
        """All that the first pass looks at."""
        return (self.joining.id, self.joining.text, self.joining.segment_id)

    def open_keys(self, exchange: Exchange, number: int, memory_bytes: int) -> _RangeEnds:
        """Start the files of a range."""
        return _RangeEnds(self.joining, exchange, number, memory_bytes)

    def disk_need(self, name: str, start: StageStart) -> DiskNeed | None:
        """Return the disk space for IDs, and in the worst case for segments of documents that span input splits."""
        heads = min(len(start.ranges) * self.joining.max_document_bytes, start.before.source.text_bytes)
        return self.plan_exchange(start).need(name, more_bytes=heads, worst_case="if documents span whole input splits")

    def prepare(self, runner: Any, before: Program, step: Step) -> FoundDocuments:
        """Run the pass that finds documents in several ranges."""
        return found_documents(KeyStages(runner, before, step, self).run(), before.source.files)

    def resolved(self, prepared: FoundDocuments) -> RangeAction:
        """Return what joins the segments in the last pass."""
        return JoinDocuments(self, prepared)


class _RangeEnds:
    """Writes the ids of the documents that begin in a range, and the segments of its first document."""

    def __init__(self, joining: Joining, exchange: Exchange, number: int, memory_bytes: int) -> None:
        self._joining, self._reader = joining, SegmentReader(joining)
        self._keys = KeyWriter(exchange, number, memory_bytes=memory_bytes)
        self._head = NewFile(exchange.folder, head_file(number))
        self._writer: Any = None
        self._head_bytes = 0
        self._ends = {"head_high": -1, "head_low": -1, "tail_high": -1, "tail_low": -1, "head_address": -1, "whole": 1}
        self._is_head = True
        self._checksum = 0

    def append(self, block: Any) -> None:
        if not len(block):
            return
        segments = self._reader.take(block)
        self._checksum = (self._checksum + key_checksum(segments.hashes, segments.numbers)) & CHECKSUM_MASK
        begins = segments.begins & segments.named
        self._keys.append(segments.hashes[begins], block.index.to_numpy()[begins])
        if self._ends["head_address"] < 0:
            self._ends["head_address"] = int(block.index[0])
            self._note("head", segments, 0)
            stop = _first(segments.begins[1:]) + 1
        else:
            stop = _first(segments.begins)
        if self._is_head:
            self._write_head(block, segments, stop)
            self._is_head = stop == len(block)
            self._ends["whole"] = int(self._is_head)
        self._note("tail", segments, -1)

    def _note(self, end: str, segments: Segments, row: int) -> None:
        high, low = segments.hashes[row].tolist() if segments.named[row] else (-1, -1)
        self._ends |= {f"{end}_high": high, f"{end}_low": low}

    def _write_head(self, block: Any, segments: Segments, stop: int) -> None:
        if not stop or self._head_bytes > self._joining.max_document_bytes:  # then it is refused in the last pass
            return
        texts = block[self._joining.text].iloc[:stop]
        self._head_bytes += self._joining.bytes_of(one_array(texts))
        array = pa.chunked_array(text_chunks(texts)).cast(pa.large_string())
        table = pa.table({"number": segments.numbers[:stop], "text": array})
        if self._writer is None:
            self._writer = pa.ipc.new_stream(self._head, table.schema)
        self._writer.write_table(table)

    def commit(self) -> list[FileRecord]:
        if self._writer is not None:
            self._writer.close()
        return [self._keys.commit(), self._head.commit()]

    def discard(self) -> None:
        self._keys.discard()
        self._head.discard()

    @property
    def summary(self) -> dict[str, int]:
        return {"key_checksum": self._checksum, "spilled_bytes": self._keys.spilled_bytes, **self._ends}


def _first(mask: npt.NDArray[np.bool_]) -> int:
    """Return the position of the first True; the length if there is none."""
    return int(np.argmax(mask)) if mask.any() else len(mask)


def head_file(number: int) -> str:
    """Return the name of the file with the segments of the first document of a range."""
    return f"heads/part-{number:06d}.arrow"


@dataclass(frozen=True)
class FoundDocuments:
    """Results of the first pass for the last one."""

    found: Found
    """Rows and checksums of each range, and the documents that begin where others with the same id were before."""
    goes_on: npt.NDArray[np.bool_] = field(repr=False)
    """Shape (ranges,): whether the first document of each begins in a range before."""
    whole: npt.NDArray[np.bool_] = field(repr=False)
    """Shape (ranges,): whether all rows of each are of one document."""
    addresses: npt.NDArray[np.int64] = field(repr=False)
    """Shape (ranges,): address of the first row of each; -1 where there is none."""
    checksums: npt.NDArray[np.uint32] = field(repr=False)
    """Shape (ranges,): of the files with the first document of each."""
    files: Sequence[str] = field(repr=False)
    """Files of the input, to say where a row is."""

    def following(self, number: int) -> Iterator[tuple[npt.NDArray[np.int64], TextArray]]:
        """Yield the segments with which the last document of a range goes on in the next ones: numbers and texts."""
        for after in range(number + 1, len(self.goes_on)):
            if self.found.rows[after] == 0:
                continue
            if not self.goes_on[after]:
                return
            yield self._head(after)
            if not self.whole[after]:
                return

    def _head(self, number: int) -> tuple[npt.NDArray[np.int64], TextArray]:
        folder, name = self.found.exchange.folder, head_file(number)
        content = folder.read(name) if folder.exists(name) else b""
        if zlib.crc32(content) != self.checksums[number]:
            raise CorruptFileError(
                f"{folder.path(name)}, a temporary file of join_documents, is damaged or missing. Delete the folder "
                f"{folder.url}, which has nothing but such files, and repeat the run with on_existing='resume'"
            )
        table = pa.ipc.open_stream(content).read_all()
        texts = one_array(pd.Series(table.column("text").to_pandas(types_mapper=pd.ArrowDtype)))
        return table.column("number").to_numpy(), texts

    def require_one_place(self, number: int) -> None:
        """Raise unless every document that begins in a range, or goes on there from the range before, is in one place."""
        exchange, allowed = self.found.exchange, self.addresses[number] if self.goes_on[number] else -1
        for drops in read_drops(exchange, number, self.found.files, memory_bytes=DROP_READER_BYTES):
            again = drops[drops[:, 0] != allowed]
            if len(again):
                raise OperatorError(
                    f"{OPERATOR}: the row at {self._place(again[0, 0])} belongs to the document that begins at "
                    f"{self._place(again[0, 1])}, but rows of other documents lie between. The segments of a document must "
                    f"come one after the other, as split_documents leaves them. Call {OPERATOR} before steps that move rows, "
                    "such as shuffle_rows. If several documents have the same ID, correct the IDs"
                )

    def _place(self, address: int) -> str:
        return f"{self.files[int(address) >> OFFSET_BITS]} offset {int(address) & ((1 << OFFSET_BITS) - 1):,}"


def found_documents(found: Found, files: Sequence[str]) -> FoundDocuments:
    """Put together what the tasks of the first pass noted of their ranges."""
    ranges = len(found.rows)
    whole, goes_on = np.zeros(ranges, dtype=np.bool_), np.zeros(ranges, dtype=np.bool_)
    addresses, checksums = np.full(ranges, -1, dtype=np.int64), np.zeros(ranges, dtype=np.uint32)
    heads, tails = np.full((ranges, 2), -1, dtype=object), np.full((ranges, 2), -1, dtype=object)
    for number, done in Journal(found.exchange.folder).records().items():
        said = done.summary
        heads[number], tails[number] = (said["head_high"], said["head_low"]), (said["tail_high"], said["tail_low"])
        addresses[number], whole[number] = said["head_address"], bool(said["whole"])
        checksums[number] = next(file.checksum for file in done.files if file.name == head_file(number))
    before: Any = None
    for number in np.flatnonzero(found.rows).tolist():
        goes_on[number] = before is not None and before[0] >= 0 and tuple(heads[number]) == before
        before = tuple(tails[number])
    return FoundDocuments(found, goes_on, whole, addresses, checksums, files)


@dataclass(frozen=True)
class JoinDocuments(RangeAction):
    """Form of a pending join in the last pass."""

    pending: DocumentJoin
    """Columns to join, and how."""
    found: FoundDocuments
    """Results of the first pass, of all ranges."""

    def of_range(self, number: int) -> OfRange:
        """Return what joins the documents that begin in one range, once."""
        return _RangeDocuments(self, number)


class _RangeDocuments:
    def __init__(self, action: JoinDocuments, number: int) -> None:
        joining = action.pending.joining
        self._found, self._number = action.found, number
        self._reader, self._joiner = SegmentReader(joining), DocumentJoiner(joining)
        self._skips = bool(action.found.goes_on[number])
        self._rows = self._checksum = self._made = 0
        action.found.require_one_place(number)

    def run(self, block: Any) -> Outcome:
        if not len(block):
            return Outcome(self._joiner.nothing(block))
        segments = self._reader.take(block)
        self._rows += len(block)
        self._checksum = (self._checksum + key_checksum(segments.hashes, segments.numbers)) & CHECKSUM_MASK
        start = self._rows_to_skip(segments.begins)
        made = self._joiner.add(block.iloc[start:], segments.begins[start:]) if start < len(block) else []
        is_last = self._rows == int(self._found.found.rows[self._number])
        if is_last:
            made += self._end()
        joined = self._joiner.nothing(block) if not made else made[0] if len(made) == 1 else pd.concat(made)
        self._made += len(joined)
        gone = max(self._rows - self._made, 0) if is_last else 0
        # The texts of these rows are not gone.
        no_rejects: tuple[Any, Mapping[str, Any]] = (block.iloc[:0], {"reason": []})
        return Outcome(joined, {REASON: gone} if gone else {}, rejects=lambda: no_rejects)

    def _rows_to_skip(self, begins: npt.NDArray[np.bool_]) -> int:
        """Return how many of the next rows belong to a document that begins in a range before."""
        if not self._skips:
            return 0
        is_first = self._rows == len(begins)
        stop = _first(begins[1:]) + 1 if is_first else _first(begins)
        self._skips = stop == len(begins)
        return stop

    def _end(self) -> list[Any]:
        if self._skips:  # no document begins here
            return []
        for numbers, texts in self._found.following(self._number):
            self._reader.go_on(numbers)
            self._joiner.go_on(texts)
        return self._joiner.end()

    def finish(self, step: str) -> None:
        self._found.found.require_same(step, self._number, self._rows, self._checksum, 0)


# Measured (tests/contracts/test_memory.py): at most 1.68, of rows of 100 bytes that are a document each; other columns may be
# copied twice.
JOIN_PEAK_FACTOR = 2.2
HELD_DOCUMENTS = 4
"""The segments of the document that is open, the same put together, the joined text, and a file of segments of it."""


def join_documents(
    df: dd.DataFrame,
    *,
    separator: str = "\n\n",
    text: str = "text",
    id: str = "id",  # noqa: A002 - what users call it
    segment_id: str = "segment_id",
    max_chars: int | None = None,
    keep_segment_id: bool = False,
    max_document_size: int | str = "4MB",
) -> dd.DataFrame:
    r"""Join consecutive rows of the same document into one row, with their texts joined: the inverse of `split_documents`.

    Parameters
    ----------
    df : dask.dataframe.DataFrame
        A table of Dask. The segments of a document must be consecutive and in order, as
        `split_documents` leaves them; some may be missing.
    separator : str, default "\\n\\n"
        Inserted between two segments. May be empty.
    text : str, default "text"
        The text column. Null segments are skipped; if all are null, the joined text is null.
    id : str, default "id"
        Column of text or integers that identifies the document. A row without an id is a document by itself.
    segment_id : str, default "segment_id"
        Column of integers: the number of the segment in its document.
    max_chars : int, optional
        Start a new row at the segment with which the joined text would exceed this many characters, including
        separators. A longer segment is a row by itself. By default a document is one row.
    keep_segment_id : bool, default False
        Keep the column, as ``Int64``: the number of the row in its document, from 0.
    max_document_size : int or str, default "4MB"
        Maximum size of the segments of a document, with a separator for each; the plan reserves memory for this.

    Returns
    -------
    dask.dataframe.DataFrame
        The table with a pending join. The writers and `checkpoint` run it; in a cluster of curator_df, so do ``head()``,
        ``len()`` and ``compute()``.
        Rows are in the order of the documents; the other columns are those of the first row of each document. The
        receipt counts rows that were merged into another one as dropped, under ``joined``; they are not among the
        rejects.

    Raises
    ------
    ParameterError
        If ``max_chars`` is less than 1, ``max_document_size`` is not a valid size, or the three columns are not
        distinct.
    ColumnError
        If a column is missing.
    SchemaError
        If ``segment_id`` is not an integer column, or ``id`` is neither text nor integers.
    UnsupportedBackendError
        If the blocks are cuDF blocks.
    PendingError
        From ``head()``, ``len()`` or ``compute()`` on the result outside a cluster of curator_df.
    OperatorError
        When running, if segments are out of order, those of one document are not consecutive, or a document is longer
        than ``max_document_size``. Nothing is joined incorrectly.

    See Also
    --------
    split_documents

    Notes
    -----
    Rows: one for consecutive ones with the same id, in order. Columns: same, but for ``segment_id``; ``text`` is joined.
    Backends: pandas. Peak extra memory: 2.2 x block, and 4 x ``max_document_size`` in each task. Computes: no; writing
    reads the input once more.

    Documents are joined completely even where they span blocks, files or ranges. A pass over the preceding steps finds
    those that span several ranges, and checks that no document occurs in two places. It stores a hash (MurmurHash3, 128
    bits) and an address for each document, in files below the output folder.

    With ``max_chars`` the rows of a document share its address, as after `split_documents`.

    References
    ----------
    .. [1] nemo_curator 0.9.0, modules/joiner.py, DocumentJoiner

    Examples
    --------
    >>> import dask.dataframe as dd, pandas as pd
    >>> rows = pd.DataFrame({"id": ["a", "a", "b"], "segment_id": [0, 1, 0], "text": ["one", "two", "three"]})
    >>> join_documents(dd.from_pandas(rows, npartitions=2)).columns.tolist()
    ['id', 'text']
    """
    require_text(df, OPERATOR, text)
    require_columns(df, OPERATOR, id, segment_id)
    require_host(df._meta, OPERATOR)
    _check_columns(df, text, id, segment_id)
    if not isinstance(separator, str):
        raise ParameterError(f"{OPERATOR}: separator={separator!r} is not text. Pass a str, such as separator=' '")
    if max_chars is not None and (not isinstance(max_chars, int) or max_chars < 1):
        raise ParameterError(f"{OPERATOR}: max_chars={max_chars!r} is not a whole number from 1 up")
    max_document_bytes = read_size("max_document_size", max_document_size)
    joining = Joining(text, id, segment_id, separator, max_chars, bool(keep_segment_id), max_document_bytes)
    kernel = BlockKernel(
        OPERATOR,
        refuse_block,
        {},
        price=Price(
            JOIN_PEAK_FACTOR,
            fixed_bytes=HELD_DOCUMENTS * max_document_bytes,
            row_bytes=max_document_bytes,
            is_measured=True,
        ),
        compiled=kernel_sets.JOINING,
        makes_rows=max_chars is not None,
        unites_rows=max_chars is None,
        pending=DocumentJoin(joining),
    )
    meta = df._meta.astype({text: text_dtype(df._meta[text].dtype), segment_id: "Int64"})
    return map_blocks(df, kernel, meta=meta if keep_segment_id else meta.drop(columns=segment_id))


def _check_columns(df: Any, text: str, document: str, segment_id: str) -> None:
    if len({text, document, segment_id}) < 3:
        raise ParameterError(
            f"{OPERATOR}: text={text!r}, id={document!r} and segment_id={segment_id!r} must be three different columns"
        )
    dtypes = df.dtypes
    if getattr(dtypes[segment_id], "kind", "O") not in "iu":
        raise SchemaError(
            f"{OPERATOR}: segment_id={segment_id!r} must be a column of integers, but it holds {dtypes[segment_id]}. Use the "
            "column of numbers that split_documents added, or convert it with astype"
        )
    if not is_text(dtypes[document]) and getattr(dtypes[document], "kind", "O") not in "iu":
        raise SchemaError(
            f"{OPERATOR}: id={document!r} must be a column of text or integers, but it holds {dtypes[document]}. Use another "
            "column, or convert it with astype"
        )


def refuse_block(block: Any) -> NoReturn:  # noqa: ARG001 - the face of a kernel
    """Refuse to run block by block."""
    raise PendingError(
        f"{OPERATOR} cannot run block by block, because a document may continue in the next block. In a curator_df cluster, "
        "head(), len() and compute() run it over all rows. Start one with start_cluster() and run the same line again"
    )
