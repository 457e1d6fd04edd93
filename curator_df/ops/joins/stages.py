# SPDX-License-Identifier: Apache-2.0
"""Join with a table that is read from files: a pass that writes its keys and columns, tasks that sort them, and the last pass.

The first pass splits the rows by the first bits of the hashes of their keys into buckets (`io.shuffle.files`). A task for each
bucket sorts its rows and leaves one row of each key. Every worker then holds the sorted rows of all buckets (`HeldFiles`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import cloudpickle
import numpy as np
import pyarrow as pa

from curator_df.core.fingerprint import fingerprint
from curator_df.core.planning.device_plan import for_sink
from curator_df.core.planning.lowering import lower, require_addresses
from curator_df.core.planning.program import DiskNeed, Pending, PendingPass, Program, StageStart, Step
from curator_df.core.planning.row_estimate import SAMPLE_BYTES, estimate_kept, estimate_widths
from curator_df.core.ranges.blocks import BlockKernel, Outcome
from curator_df.core.ranges.manifest import Manifest, TaskRecord, files_below
from curator_df.core.ranges.parameter_digests import Digested, printed_source
from curator_df.core.ranges.price import Price
from curator_df.core.ranges.range_action import OfRange, RangeAction
from curator_df.core.ranges.sink import StageSink
from curator_df.core.ranges.source import OFFSET_BITS, Ranges
from curator_df.core.runner.passes import Stage, StageRecord
from curator_df.core.runner.run import range_bytes
from curator_df.core.tasks.task import Attempt, run_guarded
from curator_df.errors import BudgetError, CuratorError, ExpressionError
from curator_df.files.hub import without_commits
from curator_df.files.storage import FileRecord, Folder, NewFile, disk_errors
from curator_df.io.output.files import arrow_schema, to_table
from curator_df.io.output.spool import is_spooled, pending_steps
from curator_df.io.shuffle.files import BatchWriter, batches_bytes, batches_of
from curator_df.io.shuffle.sink import keyed_schema
from curator_df.io.shuffle.source import InOrder
from curator_df.kernels.compiling import kernel_sets
from curator_df.memory.process_cache import cached
from curator_df.memory.sizes import show_size, show_sizes
from curator_df.ops.duplicates.exact import refuse_block
from curator_df.ops.joins.keys import Joining, key_hashes, require_kinds
from curator_df.ops.joins.lookup import HASH_BYTES, Lookup, distinct, join_block, repeated_key
from curator_df.ops.rows.row_lookup import rows_at

LOW, ROW = "__low__", "__row__"
"""Columns of the files after the high half of the hash: its low half, and the row ID. An added column may have such a name."""
ROW_PLACE, FIRST_ADDED = 2, 3
"""Positions of the row ID, and of the first column that is added."""
BUCKET_BYTES = 32_000_000
"""Approximate decompressed bytes of the other table for each bucket."""
MOST_BUCKET_BITS = 10
WRITER_FACTOR = 3.0
"""Peak extra memory of the first pass as a multiple of the block's bytes: hashes, the rows in order, and a copy to write."""
SORT_SHARE = 5
"""Divisor of the memory of a task for the rows that it sorts together: they, their order, and a sorted copy."""
HELD_MARGIN = 1.5
"""Factor of the estimated bytes of the other table that a plan counts: its rows and the widths of texts are estimates."""
LEAST_HELD_BYTES = 2_000_000
"""Bytes that a plan counts at least for the other table: estimates of few rows are rough."""
HELD_COPIES = 2
"""Copies of the other table in a worker while it is loaded."""
READ_BYTES = 8_000_000
"""Memory for reading the files in a worker, in bytes."""
TEXT_BYTES = 50
"""Bytes of a text of the other table, if no row of its files could be read."""
OFFSET_BYTES = 8
"""Bytes of the offset of a text."""
MOST_NAMED_FILES = 1_000
"""Number of files of the other table up to which each is compared by name when a run resumes."""


@dataclass(frozen=True)
class OtherTable:
    """The other table of a join: the program that makes its rows."""

    program: Program
    """Program of its rows."""
    ranges: Ranges
    """Ranges of its input."""


def other_table(other: Any) -> OtherTable:
    """Return the other table as a program.

    Raises
    ------
    ExpressionError
        If it has a deferred operation, or cannot be streamed.
    """
    require_streamed(pending_steps(other) if is_spooled(other) else [])  # before that is written
    program = for_sink(lower(other, spools=True))
    require_streamed([step.name for step in program.steps if step.is_pending])
    return OtherTable(program, program.source.cut(range_bytes(program.source)))


def require_streamed(pending: Sequence[str]) -> None:
    """Raise `ExpressionError` if the other table has deferred operations."""
    if pending:
        raise ExpressionError(
            f"join: the other table has the deferred operation {pending[0]}, which needs a full pass of its own. Compute the "
            "other table first with checkpoint(other, path), and join the table that it returns"
        )


def has_no_rows(other: OtherTable) -> bool:
    """Return whether the files of the other table have no rows, such as a CSV file that is a header alone."""
    source = other.program.source
    if source.text_bytes > SAMPLE_BYTES:
        return False
    try:
        blocks = (
            block
            for piece in other.ranges
            for block in source.blocks(
                piece,
                block_bytes=SAMPLE_BYTES,
                largest_row_bytes=SAMPLE_BYTES,
                on_bad_row=(lambda _: None) if source.quarantines else None,
            )
        )
        return not any(len(block) for block in blocks)
    except CuratorError:
        return False  # the run reports the error


def row_width(other: OtherTable, schema: pa.Schema) -> int:
    """Return the approximate bytes of the added columns of a row, those of text from the first rows of the files.

    A text that steps of the other table make counts as the widest column of the files.
    """
    fixed = {field.name: width for field in schema if (width := _fixed_width(field.type))}
    varying = [name for name in schema.names if name not in fixed]
    if not varying:
        return sum(fixed.values())
    found = estimate_widths(other.program.source, other.ranges)
    unknown = max(found.values(), default=TEXT_BYTES)
    return sum(fixed.values()) + int(sum(found.get(name, unknown) + OFFSET_BYTES for name in varying))


def _fixed_width(kind: pa.DataType) -> int:
    """Return the bytes of a value and its validity; 0 for text and nested types."""
    try:
        return int(kind.bit_width) // 8 + 1
    except ValueError:
        return 0


def table_join(
    df: Any, other: OtherTable, joining: Joining, schema: pa.Schema, peak_factor: float, row_bytes: int
) -> BlockKernel:
    """Return the deferred kernel of a join with a table from files."""
    require_addresses(df, "join")
    rows = estimate_kept(other.program, other.ranges)
    held_bytes = READ_BYTES + max(int(HELD_MARGIN * HELD_COPIES * rows * (HASH_BYTES + row_bytes)), LEAST_HELD_BYTES)
    pending = TableJoin(_described(joining, other), joining, other, schema)
    return BlockKernel(
        "join",
        refuse_block,
        {"operator": "join", "waits_for": "rows of the other table are known only when all of it has been read"},
        price=Price(peak_factor, held_bytes=held_bytes, is_measured=True),
        compiled=(*kernel_sets.CONTENT, *other.program.compiled),
        pending=pending,
    )


def _described(joining: Joining, other: OtherTable) -> dict[str, Any]:
    """Return the settings of a join and the identity of its other table, as a journal stores and compares them."""
    source, steps = other.program.source, other.program.steps
    said: dict[str, Any] = {
        "on": joining.rule,
        **{name: getattr(joining, name) for name in ("how", "columns", "into", "duplicates", "signed")},
        "the steps of the other table": Digested(
            " -> ".join(s.name for s in steps) or "none", other.program.fingerprint
        ),
    }
    listing = getattr(source, "listing", None)
    if listing is not None and len(listing) <= MOST_NAMED_FILES:
        for path, size, stamp in zip(listing.paths, listing.sizes.tolist(), listing.stamps.tolist(), strict=True):
            name = without_commits(
                path
            )  # as in `Listing.fingerprint`: the branch may move, and its files stay the same
            digest = fingerprint(name, size, stamp)[:16]
            said[f"the file {name!r} of the other table"] = Digested(show_size(size), digest)
    said |= {f"{name} of the other table": Digested(*value) for name, value in printed_source(source).items()}
    return {**said, "the input of the other table": Digested(f"{len(source.files):,} files", source.fingerprint)}


@dataclass(frozen=True)
class TableJoin(Pending):
    """Deferred join with a table from files."""

    parameters: Mapping[str, Any]
    """Settings and the identity of the other table."""
    joining: Joining = field(metadata={"identity": False})
    """Settings."""
    other: OtherTable = field(metadata={"identity": False})
    """The other table."""
    schema: pa.Schema = field(metadata={"identity": False})
    """Columns that it adds."""
    home: Folder | None = field(default=None, metadata={"identity": False})
    """Folder that stores the completed stage."""
    uses_addresses: ClassVar[bool] = True

    @property
    def bits(self) -> int:
        """Logarithm (base 2) of the number of buckets; it depends only on the input, so that runs can resume."""
        buckets = max(-(-self.other.program.source.text_bytes // BUCKET_BYTES), 1)
        return min((buckets - 1).bit_length(), MOST_BUCKET_BITS)

    @property
    def batch_schema(self) -> pa.Schema:
        """Columns of the files: the hash, the row ID, and the columns that are added."""
        return keyed_schema(pa.schema([pa.field(LOW, pa.uint64()), pa.field(ROW, pa.int64()), *self.schema]))

    def passes(self, name: str) -> Sequence[PendingPass]:
        """Return the pass over the other table."""
        work = "hash keys, and write them with the columns"
        return [PendingPass(f"other table for {name}", work, WRITER_FACTOR, self.other.program)]

    def disk_need(self, name: str, start: StageStart) -> DiskNeed | None:  # noqa: ARG002 - the other table counts
        """Return the disk space for the rows of the other table, as the pass leaves them and sorted."""
        rows = estimate_kept(self.other.program, self.other.ranges)
        width = HASH_BYTES + row_width(self.other, self.schema)
        files, buckets = len(self.other.ranges), 1 << self.bits
        sizes = [
            batches_bytes(rows, width, len(self.batch_schema), files=n, buckets=m)
            for n, m in ((files, buckets), (buckets, 1))
        ]
        return DiskNeed(name, {"rows of the other table": sizes[0], "the same rows, sorted": sizes[1]}, sum(sizes))

    def prepare(self, runner: Any, before: Program, step: Step) -> HeldFiles:
        """Write the rows of the other table, sorted by the hashes of their keys."""
        with runner.open_stage(before, step, self.home) as stage:
            record = stage.finish(lambda: _sorted(stage, self, step))
        figures = record.figures
        found = HeldFiles(stage.home, record.files["sorted"], self.batch_schema, figures["rows"], figures["bytes"])
        if found.held_bytes > step.price.held_bytes:
            takes, planned = show_sizes(found.held_bytes, step.price.held_bytes)
            raise BudgetError(
                f"join: the other table takes {takes} in each worker, but only {planned} were planned from the first "
                "rows of its files, so later rows are longer. "
                "Join fewer columns (columns= of join), or shuffle the other table first with shuffle_rows(other, path), so that "
                "its first rows are like the others"
            )
        return found

    def resolved(self, prepared: HeldFiles) -> RangeAction:
        """Return the action that joins the rows in the last pass."""
        return HeldJoin(self, prepared)


@dataclass(frozen=True)
class OtherSink(StageSink):
    """Sink of the pass over the other table."""

    folder: Folder
    """Folder of the files."""
    pending: TableJoin
    """The deferred join."""
    writer_factor: float = WRITER_FACTOR
    """Peak extra memory as a multiple of the block's bytes."""

    @property
    def fingerprint(self) -> str:
        """Digest of the settings that determine the content."""
        return fingerprint(self.pending)

    def open(self, number: int, meta: Any, buffer_bytes: int) -> _RangeOther:  # noqa: ARG002 - the interface of a sink
        """Create the file of a range."""
        return _RangeOther(self, number, arrow_schema(meta[list(self.pending.joining.columns)]))


class _RangeOther:
    """Writer of the rows of one range of the other table, split into buckets."""

    summary: ClassVar[dict[str, int]] = {}

    def __init__(self, sink: OtherSink, number: int, block_schema: pa.Schema) -> None:
        self._block_schema = block_schema
        self._pending, bits = sink.pending, sink.pending.bits
        self._file = NewFile(sink.folder, f"other/part-{number:06d}.batches")
        self._writer = BatchWriter(self._file, 64 - bits, 1 << bits)

    def append(self, block: Any) -> None:
        """Write the rows of the next block that have a key."""
        joining = self._pending.joining
        require_kinds(block, joining.right, joining.kinds)
        hashes, valid = key_hashes(block, joining.right, joining.signed)
        rows = np.flatnonzero(valid)
        addresses = block.index.to_numpy().astype(np.int64)
        if joining.duplicates == "first" or not joining.columns:
            rows = np.sort(rows[distinct(hashes[rows], addresses[rows]).order])  # fewer rows to sort later
        rows = rows[np.argsort(hashes[rows, 0], kind="stable")]
        if not len(rows):
            return
        table = to_table(block[list(joining.columns)], self._block_schema).take(pa.array(rows))
        arrays = [pa.array(hashes[rows, 0]), pa.array(hashes[rows, 1]), pa.array(addresses[rows])]
        kinds = self._pending.schema.types
        arrays += [column.combine_chunks().cast(kind) for column, kind in zip(table.columns, kinds, strict=True)]
        self._writer.append(pa.RecordBatch.from_arrays(arrays, schema=self._pending.batch_schema))

    def commit(self) -> list[FileRecord]:
        """Finish the file."""
        self._writer.finish()
        return [self._file.commit(self._writer.rows)]

    def discard(self) -> None:
        """Delete the file."""
        self._file.discard()


@dataclass(frozen=True)
class SortJob:
    """Fields that all tasks which sort a bucket share."""

    folder: Folder
    """Folder of the files."""
    files: tuple[FileRecord, ...]
    """Files of the pass over the other table."""
    bits: int
    """Logarithm (base 2) of the number of buckets."""
    schema: pa.Schema
    """Columns of the files."""


def run_sort(job_bytes: bytes, attempt: Attempt) -> Manifest:
    """Sort the rows of one bucket by the hashes of their keys; keep the first row of each."""

    def work(manifest: Manifest) -> None:
        job: SortJob = cloudpickle.loads(job_bytes)
        name = f"sorted/part-{attempt.piece.number:06d}.batches"
        with disk_errors(job.folder), job.folder.create(name) as file:
            writer, repeated, size = BatchWriter(file, 64, 1), list[int](), 0
            for table in _in_order(job, attempt.piece.number, attempt.block_bytes // SORT_SHARE):
                hashes = np.stack([table.column(place).to_numpy() for place in range(2)], axis=1)
                addresses = table.column(ROW_PLACE).to_numpy()
                order, pair = distinct(hashes, addresses)
                if pair is not None and not repeated:
                    repeated = [int(addresses[place]) for place in pair]
                for batch in table.take(pa.array(order)).combine_chunks().to_batches():
                    writer.append(batch)
                    size += batch.nbytes
            writer.finish()
            manifest.files = [file.commit(writer.rows)]
        manifest.rows_read = writer.rows
        manifest.summary = {"bytes": size}
        if repeated:
            manifest.summary |= {"first": repeated[0], "again": repeated[1]}

    return run_guarded(attempt, work)


def _in_order(job: SortJob, bucket: int, memory_bytes: int) -> Any:
    batches = [batch for file in job.files for batch in batches_of(job.folder, file, bucket, 1 << job.bits)]
    return InOrder(job.schema, memory_bytes, None, None).tables(batches, 64 - job.bits)


def _sorted(stage: Stage, pending: TableJoin, step: Step) -> StageRecord:
    """Run the pass over the other table, and the tasks that sort its buckets."""
    joining, other = pending.joining, pending.other
    sink, title = OtherSink(stage.home, pending), f"{step.name}: other table"
    columns = tuple(dict.fromkeys((*joining.right, *joining.columns)))
    written = stage.stream(title, other.program, columns, sink, other.ranges, name="other")
    job = SortJob(stage.home, files_below(written, "other"), pending.bits, pending.batch_schema)
    done = stage.tasks("sort", f"{step.name}: sort", run_sort, job, 1 << pending.bits)
    if joining.duplicates == "raise" and joining.how in ("left", "inner"):
        _require_distinct(done, pending)
    figures = {name: sum(record.summary.get(name, 0) for record in done) for name in ("bytes",)}
    return StageRecord({"sorted": files_below(done, "sorted")}, {**figures, "rows": sum(r.rows_read for r in done)})


def _require_distinct(done: Sequence[TaskRecord], pending: TableJoin) -> None:
    """Raise `ParameterError` if a key is in several rows; it names the two that come first in the input."""
    pairs = [(record.summary["first"], record.summary["again"]) for record in done if "first" in record.summary]
    if not pairs:
        return
    first, again = min(pairs)
    source, names = pending.other.program.source, pending.joining.right
    places = [
        f"{source.files[address >> OFFSET_BITS]} offset {address & ((1 << OFFSET_BITS) - 1):,}"
        for address in (first, again)
    ]
    try:
        row = rows_at(pending.other.program, np.array([first]), "join")
        key = tuple(row[name].iloc[0] for name in names)
    except (CuratorError, IndexError):  # the two places are enough to find it
        key = ("?",) * len(names)
    raise repeated_key(key, *places)


@dataclass(frozen=True)
class HeldFiles:
    """Sorted rows of the other table, which each worker process holds."""

    folder: Folder
    """Folder of the files."""
    files: tuple[FileRecord, ...]
    """Files with the rows of each bucket, in order."""
    schema: pa.Schema
    """Columns of the files."""
    rows: int
    """Number of rows."""
    row_bytes: int
    """Bytes of all rows in memory."""

    @property
    def held_bytes(self) -> int:
        """Bytes that each worker process needs while it loads them, and then holds."""
        return READ_BYTES + HELD_COPIES * self.row_bytes

    def lookup(self) -> Lookup:
        """Return the rows, which this process holds once."""
        key = ("join", self.folder.url, tuple(file.checksum for file in self.files))
        found: Lookup = cached(key, self._read)
        return found

    def _read(self) -> Lookup:
        hashes, start = np.empty((self.rows, 2), dtype=np.uint64), 0
        batches: list[pa.RecordBatch] = []
        for file in self.files:
            for batch in batches_of(self.folder, file, 0, 1):
                rows = batch.read(self.schema)
                for half in range(2):
                    hashes[start : start + len(rows), half] = rows.column(half).to_numpy()
                start += len(rows)
                batches.append(rows.select(list(range(FIRST_ADDED, rows.num_columns))))
        schema = pa.schema(list(self.schema)[FIRST_ADDED:])
        return Lookup(hashes, pa.Table.from_batches(batches, schema).combine_chunks())


@dataclass(frozen=True)
class HeldJoin(RangeAction):
    """Join in the last pass with rows that each worker holds."""

    follows_addresses: ClassVar[bool] = True
    pending: TableJoin
    """Deferred operation."""
    other: HeldFiles
    """Rows of the other table."""

    def of_range(self, number: int) -> OfRange:  # noqa: ARG002 - every range is joined with the same rows
        """Return the object that joins the rows of one range."""
        return _HeldRange(self)


class _HeldRange:
    def __init__(self, action: HeldJoin) -> None:
        self._joining, self._other = action.pending.joining, action.other

    def run(self, block: Any) -> Outcome:
        return join_block(block, joining=self._joining, other=self._other)

    def finish(self, step: str) -> None:
        """Check nothing: a row's match depends on its key alone."""
