# SPDX-License-Identifier: Apache-2.0
"""Run a chain over a few rows of its input, to see in seconds what it keeps and drops."""

from __future__ import annotations

import dataclasses
import math
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import dask
import dask.dataframe as dd
import pandas as pd
import pyarrow.parquet as pq
from dask.dataframe.dask_expr import FrameBase, new_collection
from dask.dataframe.dask_expr._expr import MapPartitions

from curator_df.arguments import require_integer
from curator_df.core.planning.branches import without_folders
from curator_df.core.planning.device_plan import for_sink
from curator_df.core.planning.disk import WorkingFiles
from curator_df.core.planning.lowering import ReadPartition, current_spooler, find_origin, foreign_part, lower
from curator_df.core.planning.plan import plan_stream
from curator_df.core.planning.program import DiskNeed
from curator_df.core.planning.row_estimate import LARGEST_SAMPLED_ROW_BYTES
from curator_df.core.ranges.blocks import BlockKernel
from curator_df.core.ranges.source import Ranges, Source
from curator_df.core.runner.explaining import is_explaining, stop_if_explaining
from curator_df.core.runner.session import current_session
from curator_df.errors import NoClusterError, ParameterError
from curator_df.files.storage import Folder
from curator_df.files.working_files import PREVIEW_FOLDER
from curator_df.io.output.files import FileSink
from curator_df.io.output.formats import TARGET_FILE_BYTES, ParquetFormat
from curator_df.io.output.write import write_parquet
from curator_df.memory.sizes import show_count
from curator_df.ops.rows.sample import GroupLookup
from curator_df.receipts.receipt import Receipt, html_table
from curator_df.suggestions import suggests_names

PLACE_ROWS = 50
"""Minimum number of rows read at one place of the input."""
SAMPLE_BYTES = 32_000_000
"""Maximum bytes of all rows that are read."""
READ_BYTES = 1_000_000
"""Decompressed bytes of a block while they are read."""
OF_WORKING_FILES = ["reject_file", "reject_offset", "reject_matched_file", "reject_matched_offset"]
"""Columns of dropped rows that would name places in working files, which are deleted."""
FOLDERS_OF_DROPS = ("home", "side_output", "index")
"""Fields of a deferred operation that name folders which it reads or writes in addition to its output."""
SHOWN_ROWS = 5
"""Number of kept rows, and of dropped ones, that a preview displays."""


@suggests_names
@dataclass(frozen=True)
class Preview:
    """Result of a chain on a few rows of its input; it displays itself in terminals and notebooks.

    See Also
    --------
    preview, describe_drops
    """

    kept: pd.DataFrame
    """Rows that the chain keeps, with the columns of its result."""
    dropped: pd.DataFrame
    """Rows that it drops, as the ``rejects=`` of a writer: with the step, the reason, and the value and threshold of the rule."""
    receipt: Receipt
    """Receipt of the run over these rows. The folders that it names were deleted."""
    places: int
    """Number of places of the input at which rows were read."""

    def _said(self) -> str:
        read = show_count(self.receipt.rows_read, "row")
        return (
            f"{read} read at {show_count(self.places, 'place')} of the input: {self.receipt.rows_written:,} kept, "
            f"{self.receipt.rows_dropped:,} dropped. Duplicates are searched for among these rows only"
        )

    def __rich__(self) -> Any:
        """Render for a terminal with rich."""
        from rich.console import Group
        from rich.text import Text

        from curator_df.receipts.rich_tables import table_of

        return Group(Text(self._said()), *map(table_of, self.receipt.tables()))

    def __str__(self) -> str:
        from rich.console import Console

        console = Console(width=110, force_terminal=False, force_jupyter=False)
        with console.capture() as said:
            console.print(self)
        return said.get().rstrip()

    __repr__ = __str__

    def _repr_html_(self) -> str:
        tables = "".join(map(html_table, self.receipt.tables()))
        kept = self.kept.head(SHOWN_ROWS).to_html(index=False, na_rep="")
        said = f"<p>{self._said()}.</p>{tables}<p>The first rows that are kept:</p>{kept}"
        if not len(self.dropped):
            return said
        reasons = [name for name in self.dropped.columns if name.startswith("reject_")]
        others = [name for name in self.dropped.columns if name not in reasons]
        rows = self.dropped.drop_duplicates(["reject_step", "reject_reason"]).head(SHOWN_ROWS)
        return f"{said}<p>A dropped row for each reason:</p>{rows[[*reasons, *others]].to_html(index=False, na_rep='')}"


def preview(df: dd.DataFrame, *, rows: int = 1000) -> Preview:
    """Run a chain over a few rows of its input, and show what it keeps and drops.

    The rows are the first ones of input splits that are spread over the whole input, so that only a small part of it is read.
    A larger ``rows`` takes the same rows and more. A chain that drops duplicates finds those among these rows only, so that it
    keeps more of them than a run over the whole input would.

    Parameters
    ----------
    df : dask.dataframe.DataFrame
        A table of Dask. A chain on one of the readers is streamed; any other table is first computed into working files.
    rows : int
        Number of rows to read, at most; fewer if the input splits or the rows are small, or if they have more than 32 MB.

    Returns
    -------
    Preview
        A preview: ``kept`` and ``dropped`` rows as pandas tables, and the ``receipt`` of the run.

    Raises
    ------
    NoClusterError
        If no cluster is running, or one without a working folder.
    BudgetError
        If the chain cannot fit, even with small blocks.
    ParameterError
        If ``rows`` is not a positive integer, or the table is a part that `split_rows` made with ``groups=``.

    See Also
    --------
    explain, describe_drops

    Notes
    -----
    Rows: up to ``rows`` of the input, those that the chain keeps and those that it drops. Columns: those of the chain, and of
    dropped rows the reasons. Peak extra memory: that of the chain, and 70 MB in this process (68 measured
    with 31 MB of rows). Computes: yes, for these rows.

    Examples
    --------
    >>> docs = cdf.read_jsonl("corpus/").pipe(cdf.keep_profile, "datatrove_gopher_quality")  # doctest: +SKIP
    >>> sample = cdf.preview(docs, rows=200)  # doctest: +SKIP
    >>> texts = sample.dropped[["reject_reason", "text"]]  # doctest: +SKIP
    """
    require_integer("preview", "rows", rows)
    if rows < 1:
        raise ParameterError(f"preview: rows={rows} must be 1 or more")
    part = foreign_part(df.expr) if isinstance(df, FrameBase) and df.ndim == 2 else None
    if part is None:
        lower(df)
    if is_explaining():
        _explain(df, rows)
    session, spooler = current_session(), current_spooler()
    if spooler is None:
        raise NoClusterError(
            "preview needs the working folder of a cluster. Start one with start_cluster(memory=...), or give connect or "
            "slurm_cluster a workdir="
        )
    expression = df.expr
    if part is not None:
        expression = expression.substitute(part, spooler.spooled(part).table.expr)
    origin = find_origin(expression)
    reader: ReadPartition = origin.operand("func")
    taken = places(len(reader.ranges), rows)
    first = FirstRows(reader.source, reader.ranges, SAMPLE_BYTES // len(taken))
    with dask.config.set({"dataframe.convert-string": False}):
        sample = dd.from_map(first, list(taken), list(taken.values()), meta=reader.source.meta, label="first_rows").expr
    chain = new_collection(_of_some_rows(expression).substitute(origin, spooler.spooled(sample).table.expr))
    home = session.working(PREVIEW_FOLDER).below(uuid.uuid4().hex[:12])
    try:
        receipt = write_parquet(chain, home.below("kept").url, rejects=home.below("dropped").url)
        dropped = _rows(home.below("dropped")).drop(columns=OF_WORKING_FILES, errors="ignore")
        return Preview(_rows(home.below("kept")), dropped, receipt, len(taken))
    finally:
        home.delete_tree("")
        spooler.forget(sample)


def _explain(df: Any, rows: int) -> None:
    """Stop with the plan of the run over the rows of a sample."""
    chain = new_collection(_of_some_rows(df.expr))
    program, layout = for_sink(lower(chain)), current_session().weigh_client()
    sink = FileSink(Folder("."), ParquetFormat("zstd"), TARGET_FILE_BYTES)
    plan = plan_stream(program, sink, sink, layout)
    taken = places(len(find_origin(chain.expr).operand("func").ranges), rows)
    said = f"the chain runs over up to {show_count(rows, 'row')}, which are read at {show_count(len(taken), 'place')}"
    # The rows, once as a copy that the chain reads and once as its result.
    files = WorkingFiles(
        (DiskNeed("preview", {"rows of the sample, and what is kept and dropped": 2 * SAMPLE_BYTES}, 0),)
    )
    plan = dataclasses.replace(plan, remarks=(("then", said), *plan.remarks), working_files=files)
    stop_if_explaining(plan, [program])


def _of_some_rows(expression: Any) -> Any:
    """Return an expression whose drops search for duplicates among the rows themselves, and write nothing but the output.

    Drops that were built with ``groups=`` search, too; with ``index=`` they compare with its documents, and do not append.
    """
    for node in expression.walk():
        kernel: Any = node.operand("func") if isinstance(node, MapPartitions) else None
        if isinstance(kernel, BlockKernel) and isinstance(kernel.parameters.get("groups"), GroupLookup):
            raise ParameterError(
                f"preview: {kernel.name} has groups=, which names rows by their positions in the whole input, so it cannot run "
                f"on a sample. Preview the table before {kernel.name}, or write the table and look at the output"
            )
    return without_folders(expression, FOLDERS_OF_DROPS)


def places(ranges: int, rows: int) -> dict[int, int]:
    """Return the numbers of the input splits to read from, in order, and how many rows of each.

    Splits are taken in the order of the van der Corput sequence, which halves the largest gap each time: more rows take the same
    splits and others, and once there are no others, more rows of each.

    Examples
    --------
    >>> places(100, 180)
    {0: 50, 25: 50, 50: 50, 75: 30}
    >>> places(100, 100)
    {0: 50, 50: 50}
    >>> places(3, 1000)
    {0: 334, 1: 334, 2: 332}
    """
    count = max(PLACE_ROWS, math.ceil(rows / ranges))
    taken: dict[int, int] = {}
    for share in _van_der_corput():
        if rows <= 0:
            break
        number = int(share * ranges)
        if number not in taken:
            taken[number] = min(count, rows)
            rows -= count
    return dict(sorted(taken.items()))


def _van_der_corput() -> Iterator[float]:
    """Yield 0, 1/2, 1/4, 3/4, 1/8, 5/8 and so on, without end."""
    yield 0.0
    parts = 1
    while True:
        shares = sorted(range(parts), key=lambda number: int(f"{number:0{parts.bit_length()}b}"[::-1], 2))
        yield from ((number + 0.5) / parts for number in shares)
        parts *= 2


@dataclass(frozen=True)
class FirstRows:
    """Function that Dask calls for the first rows of an input split."""

    source: Source
    """Source of the rows."""
    ranges: Ranges
    """Input splits of the source."""
    most_bytes: int
    """Maximum bytes of the rows of one split in memory."""

    def __call__(self, number: int, rows: int) -> Any:
        """Return the first ``rows`` of one split, at least one if it has any; those above 4 MB are left out."""
        parts, count, size = [], 0, 0
        blocks = self.source.blocks(
            self.ranges[number],
            block_bytes=READ_BYTES,
            largest_row_bytes=LARGEST_SAMPLED_ROW_BYTES,
            on_bad_row=(lambda _: None) if self.source.quarantines else None,
            on_long_row=lambda _: None,
        )
        for block in blocks:
            taken = _within(block.iloc[: rows - count], self.most_bytes - size, at_least=0 if count else 1)
            parts.append(taken)
            count, size = count + len(taken), size + int(taken.memory_usage(index=False).sum())
            if count >= rows or len(taken) < len(block):
                break
        if not parts:
            return self.source.meta
        return parts[0] if len(parts) == 1 else dd.methods.concat(parts)


def _within(block: pd.DataFrame, most_bytes: int, *, at_least: int) -> pd.DataFrame:
    """Return the first rows of a block, as many as have about ``most_bytes``."""
    size = int(block.memory_usage(index=False).sum())
    if size <= most_bytes:
        return block
    return block.iloc[: max(int(len(block) * max(most_bytes, 0) / size), at_least)]


def _rows(folder: Folder) -> pd.DataFrame:
    """Return the rows of the Parquet files of a folder."""
    tables = []
    for name in folder.names():
        if name.startswith("_") or not name.endswith(".parquet"):
            continue
        with folder.filesystem.open(folder.path(name), "rb") as file:
            tables.append(pq.read_table(file).to_pandas())
    return pd.concat(tables, ignore_index=True) if tables else pd.DataFrame()
