# SPDX-License-Identifier: Apache-2.0
"""Add a row ID column, from the position in the input, from the content, or as consecutive numbers: `add_ids`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import dask.dataframe as dd
import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa

from curator_df.arguments import choose, require_integer, strings_of
from curator_df.core.backend import integer_column, require_backend
from curator_df.core.columns import refuse_columns, require_columns, require_table
from curator_df.core.planning.lowering import require_addresses
from curator_df.core.planning.program import DiskNeed, Pending, PendingPass, Program, StageStart, Step
from curator_df.core.ranges.blocks import BlockKernel, Outcome, map_blocks
from curator_df.core.ranges.journal import Journal
from curator_df.core.ranges.price import Price
from curator_df.core.ranges.range_action import OfRange, RangeAction, changed_rows
from curator_df.core.ranges.sink import StageSink
from curator_df.errors import ParameterError
from curator_df.files.storage import FileRecord, Folder
from curator_df.kernels.compiling import kernel_sets
from curator_df.kernels.rows.content_hash import row_hashes
from curator_df.ops.duplicates.exact import refuse_block


@dataclass(frozen=True)
class CountSink(StageSink):
    """Sink of a pass that only counts rows."""

    uses_addresses: ClassVar[bool] = False
    """False, because any index is allowed."""
    folder: Folder
    """Folder of the journal."""
    writer_factor: float = 0.0
    """Peak extra memory as a multiple of the block's bytes: none."""
    fingerprint: str = "count"
    """Digest of the settings; constant, because nothing is written."""

    def open(self, number: int, meta: Any, buffer_bytes: int) -> _NoFile:  # noqa: ARG002 - the face of a sink
        """Start a range."""
        return _NoFile()


class _NoFile:
    """Writer without a file: the runner counts the appended rows."""

    summary: ClassVar[dict[str, int]] = {}

    def append(self, block: Any) -> None:
        pass

    def commit(self) -> list[FileRecord]:
        return []

    def discard(self) -> None:
        pass


@dataclass(frozen=True)
class NumberRows(RangeAction):
    """Resolved form of deferred row numbers in the last pass."""

    pending: RowNumbering
    """Deferred operation with the column and the first number."""
    rows: npt.NDArray[np.int64] = field(repr=False)
    """Array of shape (ranges,): rows of each range in the first pass."""

    def of_range(self, number: int) -> OfRange:
        """Return the object that numbers the rows of one range, once."""
        return _RangeNumbers(self, number)


class _RangeNumbers:
    def __init__(self, action: NumberRows, number: int) -> None:
        self._into, self._number, self._expected = action.pending.into, number, int(action.rows[number])
        self._first = self._next = action.pending.start + int(action.rows[:number].sum())

    def run(self, block: Any) -> Outcome:
        numbers = np.arange(self._next, self._next + len(block))
        self._next += len(block)
        return Outcome(block.assign(**{self._into: integer_column(block, numbers)}))

    def finish(self, step: str) -> None:
        if self._next - self._first != self._expected:
            raise changed_rows(step, self._number, self._expected, self._next - self._first, "")


@dataclass(frozen=True)
class RowNumbering(Pending):
    """Pending numbering of rows, which needs the number of rows in all earlier ranges."""

    into: str
    """Name of the column."""
    start: int
    """Number of the first row."""
    uses_addresses: ClassVar[bool] = False

    def passes(self, name: str) -> Sequence[PendingPass]:
        """Return the pass that counts rows."""
        return [PendingPass(f"rows for {name}", "count", 0.0)]

    def disk_need(self, name: str, start: StageStart) -> DiskNeed | None:  # noqa: ARG002 - it has none
        """Return None: the journal has the counts."""
        return None

    def is_whole(self, stage: Folder, ranges: int) -> bool:
        """Return whether the rows of all ranges were counted."""
        return Journal(stage).records().keys() >= set(range(ranges))

    def prepare(self, runner: Any, before: Program, step: Step) -> npt.NDArray[np.int64]:
        """Count the rows of each range."""
        with runner.open_stage(before, step) as stage:
            counted = stage.stream(f"{step.name}: count rows", before, (), CountSink(stage.home), runner.ranges)
        return np.array([record.rows_written for record in counted], dtype=np.int64)

    def resolved(self, prepared: npt.NDArray[np.int64]) -> RangeAction:
        """Return the action that numbers the rows in the last pass."""
        return NumberRows(self, prepared)


IdentityKind = Literal["address", "content"]
ADDRESS_FACTOR = 1.0
"""Peak extra bytes as a multiple of the block's: 17 a row for the numbers, of rows that may hold little else."""
CONTENT_FACTOR = 3.0
"""72 bytes a row, of rows that may hold 25: hashes, their bytes in the order of digits, digits, offsets."""
HEX_DIGITS = 32
WRITES_DIGITS = "with identity='content' the digits of hashes are written in host memory"
"""Why cuDF blocks are refused."""
_DIGITS = np.frombuffer(b"".join(b"%02x" % byte for byte in range(256)), dtype=np.uint16)
"""Two digits for each byte."""


def add_ids(
    df: dd.DataFrame,
    *,
    into: str = "id",
    identity: IdentityKind = "address",
    subset: str | Sequence[str] = "text",
    dense: bool = False,
    start: int = 0,
) -> dd.DataFrame:
    """Add a column that identifies each row, independent of blocks, workers and machine.

    Parameters
    ----------
    df : dask.dataframe.DataFrame
        A table of Dask. A chain on one of the readers is streamed; any other table is first computed into working files.
    into : str
        Name of the new column.
    identity : {"address", "content"}
        ``"address"``: an integer made of the file's position in the list of input files and the row's position in that
        file; it increases in input order, and is what `find_exact_duplicates` calls ``address``. ``"content"``: 32
        hexadecimal digits of the text's 128-bit hash, which a document has in any input; equal texts have equal ids.
    subset : str or list of str
        With ``identity="content"``: column or columns to hash.
    dense : bool
        Number the rows consecutively instead, in input order. This requires the number of rows in all preceding ranges,
        so it takes an extra pass over the preceding steps.
    start : int
        With ``dense=True``: number of the first row.

    Returns
    -------
    dask.dataframe.DataFrame
        The table with one more column. With ``dense=True`` this is pending: the writers and `checkpoint` run it; in a cluster
        of curator_df, so do ``head()``, ``len()`` and ``compute()``.

    Raises
    ------
    ExpressionError
        If rows share an address (after `split_documents`), with ``identity="address"`` and without ``dense=True``.
    ColumnError
        If the new column already exists, or one of ``subset`` is missing.
    ParameterError
        If ``dense=True`` is combined with ``identity="content"``, or ``start`` is negative or given without ``dense=True``.
    PendingError
        From ``head()``, ``len()`` or ``compute()`` on the result of ``dense=True`` outside a cluster of curator_df.

    See Also
    --------
    join, shuffle_rows

    Notes
    -----
    Rows: same. Columns: plus ``id``: an address, with ``identity="content"`` a hash of the text, with ``dense=True`` 0, 1, 2
    and so on. Backends: pandas; cudf by address and with ``dense=True``. Peak extra memory: 1.0 x block; with
    ``identity="content"`` 3.0 x block, for rows with little other data (72 bytes per row). Computes: no; with ``dense=True``
    writing reads the input once more.

    An address is ``file << 40 | offset``, where the offset is the byte at which the row starts in the decompressed file
    (or its row number, for Parquet). A different list of files gives different addresses.

    Examples
    --------
    >>> import pandas as pd, dask.dataframe as dd
    >>> docs = dd.from_pandas(pd.DataFrame({"text": ["a", "b", "a"]}), npartitions=1)
    >>> add_ids(docs, identity="content").compute()["id"].str[:8].tolist()
    ['85555565', '7a98a957', '85555565']
    """
    require_table(df, "add_ids")
    if identity == "content":
        require_backend(df._meta, "add_ids", "pandas", because=WRITES_DIGITS)
    refuse_columns(df, "add_ids", into)
    choose("add_ids", "identity", identity, IdentityKind)
    require_integer("add_ids", "start", start)
    if dense:
        return _dense(df, into, identity, start)
    if start:
        raise ParameterError(
            "add_ids: start= has an effect only with dense=True, which numbers rows without gaps. Set dense=True, or leave "
            "start= out"
        )
    parameters: dict[str, Any] = {"into": into}
    if identity == "address":
        require_addresses(df, "add_ids(identity='address')")
        factor = ADDRESS_FACTOR
        kernel = BlockKernel(
            "add_ids",
            address_ids,
            parameters,
            price=Price(factor, is_measured=True, device_peak_factor=factor),
            uses_addresses=True,
        )
        meta = df._meta.assign(**{into: integer_column(df._meta, np.zeros(0, np.int64))})
        return map_blocks(df, kernel, meta=meta)
    columns = strings_of("add_ids", "subset", subset)
    require_columns(df, "add_ids", *columns)
    parameters["columns"] = columns
    kernel = BlockKernel(
        "add_ids", content_ids, parameters, price=Price(CONTENT_FACTOR, is_measured=True), compiled=kernel_sets.CONTENT
    )
    meta = df._meta.assign(**{into: pd.array([], dtype="string[pyarrow]")})
    return map_blocks(df, kernel, meta=meta)


def _dense(df: Any, into: str, identity: IdentityKind, start: int) -> Any:
    if identity != "address":
        raise ParameterError(
            "add_ids: identity='content' cannot be combined with dense=True, which numbers rows in input order. Leave one "
            "of the two out"
        )
    if start < 0:
        raise ParameterError(f"add_ids: start={start} is negative. Use 0 or more")
    kernel = BlockKernel(
        "add_ids",
        refuse_block,
        {
            "operator": "add_ids(dense=True)",
            "waits_for": "a row has a number only when those before it have been counted",
        },
        price=Price(ADDRESS_FACTOR, device_peak_factor=ADDRESS_FACTOR, is_measured=True),
        pending=RowNumbering(into, start),
    )
    return map_blocks(df, kernel, meta=df._meta.assign(**{into: integer_column(df._meta, np.zeros(0, np.int64))}))


def address_ids(block: Any, *, into: str) -> Any:
    """Kernel of ``identity="address"``: the index, as a column."""
    return block.assign(**{into: integer_column(block, block.index.to_numpy().astype(np.int64))})


def content_ids(block: Any, *, into: str, columns: tuple[str, ...]) -> Any:
    """Kernel of ``identity="content"``."""
    require_backend(block, "add_ids", "pandas", because=WRITES_DIGITS)
    hashes = row_hashes(block, columns)
    return block.assign(**{into: hex_digits(hashes)})


def hex_digits(hashes: Any) -> Any:
    """Return 128-bit hashes, shape (rows, 2), as text of 32 digits, the first half first."""
    digits = _DIGITS[hashes.astype(">u8").view(np.uint8)]
    offsets = np.arange(len(hashes) + 1, dtype=np.int64) * HEX_DIGITS
    texts = pa.LargeStringArray.from_buffers(len(hashes), pa.py_buffer(offsets), pa.py_buffer(digits.reshape(-1)))
    return pd.array(texts, dtype="string[pyarrow]")
