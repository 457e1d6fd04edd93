# SPDX-License-Identifier: Apache-2.0
"""Write tables in random row order in two passes over disk: `shuffle_rows`, and what `blend` calls.

The exchange of the drops (`exchange.exchange`) carries keys of fixed width, never text. Whole rows go through parts of
the new order on disk: one pass writes each row into its part, another sorts the parts.
"""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, cast

import dask.dataframe as dd
import pandas as pd
import pyarrow as pa

from curator_df.arguments import MOST_LISTED, choose, listed
from curator_df.core.columns import has_no_type, is_text, require_table
from curator_df.core.fingerprint import fingerprint
from curator_df.core.planning.branches import Branch, fork, identity_of, indexed_step
from curator_df.core.planning.device_plan import for_sink
from curator_df.core.planning.disk import WorkingFiles, working_files
from curator_df.core.planning.lowering import lower, origin_of, require_addresses
from curator_df.core.planning.output_paths import require_not_input
from curator_df.core.planning.plan import plan_fork
from curator_df.core.planning.program import DiskNeed, Program
from curator_df.core.planning.row_estimate import VALUE_BYTES, estimate_kept, estimate_row_bytes, may_remove_rows
from curator_df.core.ranges.journal import Journal, OnExisting, open_run
from curator_df.core.ranges.parameter_digests import Digested, printed_source
from curator_df.core.runner.explaining import is_explaining, joined_plans, stop_if_explaining
from curator_df.core.runner.run import check_if_explaining, range_bytes, require_disk, run
from curator_df.core.runner.session import Session, current_session
from curator_df.core.tasks.task import OnError, OnOom
from curator_df.errors import ParameterError, SchemaError
from curator_df.files.storage import JOURNAL_FOLDER, FileRecord, Folder
from curator_df.io.output.files import FileSink
from curator_df.io.output.formats import TARGET_FILE_BYTES, ParquetFormat, folder_at
from curator_df.io.output.spool import is_spooled, known_meta
from curator_df.io.output.writable import require_storable
from curator_df.io.parquet.reader import ParquetSource, read_parquet
from curator_df.io.partitions import DEFAULT_BLOCK_BYTES, from_source
from curator_df.io.shuffle.files import batches_bytes
from curator_df.io.shuffle.shares import SIZES, KindSink, Shares, taken_sizes
from curator_df.io.shuffle.sink import ROWS, ShuffleSink, Taken, stored_schema
from curator_df.io.shuffle.source import ShuffledSource, Stored
from curator_df.memory.budget import Layout
from curator_df.memory.sizes import show_count, show_size
from curator_df.receipts.receipt import Receipt


def counting(df: Any, shares: Shares, folder: Folder, column: str | None, names: Sequence[Any]) -> tuple[Any, KindSink]:
    """Return the columns of a table that its rows or tokens are counted from, and the sink that counts them for each name.

    Without a column all rows have the single name. For an unchanged table from Parquet, only the columns that are needed
    are read; to count rows, one that holds no text.
    """
    light = [name for name, dtype in df.dtypes.items() if not is_text(dtype)] or list(df.columns)
    needed = list(dict.fromkeys(name for name in (column, shares.column) if name is not None)) or light[:1]
    return df[needed], KindSink(folder, column, tuple(names), shares.column, shares.tokenizer is not None)


def _sums(folder: Folder, names: Sequence[Any]) -> dict[Any, int]:
    """Return the figures of each name, summed over the input splits of a finished pass."""
    done = Journal(folder).records().values()
    return {name: sum(record.summary.get(str(place), 0) for record in done) for place, name in enumerate(names)}


_Chain = tuple[Any, Taken]
"""Table, and how often its rows are taken."""
_Count = tuple[Any, KindSink]
"""Columns of a table that are counted, and the sink that counts them."""
BEFORE = "before"
"""Folder of the first passes, next to the journal: their journals and receipts, and the rows that they quarantine, are kept."""
COUNTED = "counted"
"""Folder of the passes that count rows."""
MOST_BUCKET_BITS = 12
"""Maximum bits of the number of a bucket. Beyond 4,096 buckets, each grows and is split on the worker that reads it, because
every file has a part of each."""


class Policies(NamedTuple):
    """Arguments of a shuffle that say what happens in an existing folder, after an error and without memory."""

    on_existing: OnExisting
    on_error: OnError
    on_oom: OnOom


def shuffle_rows(
    df: dd.DataFrame,
    path: str | os.PathLike[str],
    *,
    seed: int = 0,
    on_existing: OnExisting = "resume",
    on_error: OnError = "raise",
    on_oom: OnOom = "retry",
    storage_options: dict[str, Any] | None = None,
) -> dd.DataFrame:
    """Write the rows of a table in random order across all files, and return the table read back.

    Parameters
    ----------
    df : dask.dataframe.DataFrame
        A table of Dask. A chain on one of the readers is streamed; any other table is first computed into working files.
    path : str or path
        Folder for the Parquet files, or an fsspec URL.
    seed : int, default 0
        Another seed gives another, independent order.
    on_existing : {"resume", "raise", "overwrite"}
        What to do if the folder is not empty; see `checkpoint`.
    on_error : {"raise", "quarantine"}
        What to do when a step fails on a row; see `write_parquet`.
    on_oom : {"retry", "raise"}
        What to do when memory runs out; see `write_parquet`.
    storage_options : dict, optional
        fsspec options.

    Returns
    -------
    dask.dataframe.DataFrame
        The table in the new order, read back from Parquet. Lazy, in the order of the file names.

    Raises
    ------
    BudgetError
        If the plan does not fit the budget; nothing has been started.
    ParameterError
        If ``seed`` is not a 64-bit integer.
    SchemaError
        If the index is not that of a reader.
    ResumeError
        If the folder holds another run.
    NoClusterError
        If no cluster is running.

    See Also
    --------
    blend, write_tokens

    Notes
    -----
    Rows: all, in random order. Columns: all. Peak extra memory: 3.2 x block. Computes: yes, in two passes.

    One pass writes each row into a part of the new order; a second pass sorts each part. A part of any size is sorted
    block by block, using the local disk if it is larger. Between the passes the rows are stored below the output
    folder, and take about as much disk as they do decompressed.

    The order is that of a hash of each row ID and the seed, so it does not depend on blocks, memory, workers or
    a resume. It changes when the list of input files changes. What the preceding steps did to rows, and the quarantined
    rows, are in ``_curator/before/rows`` below the output folder: pass that folder to `read_receipt`. If rows were
    quarantined, the advice in the output's receipt says so.

    Examples
    --------
    >>> shuffled = cdf.shuffle_rows(docs, "shuffled/", seed=1)  # doctest: +SKIP
    """
    require_table(df, "shuffle_rows")
    require_seed("shuffle_rows", seed)
    policies = Policies(on_existing, on_error, on_oom)
    return shuffled("shuffle_rows", [(df, Taken(seed))], path, storage_options, policies)


def require_seed(operator: str, seed: int) -> None:
    """Raise `ParameterError` unless a seed is a 64-bit integer."""
    if not isinstance(seed, int) or not -(1 << 63) <= seed < 1 << 63:
        raise ParameterError(f"{operator}: seed={seed!r} must be a 64-bit integer")


def shuffled(
    operator: str,
    chains: list[_Chain],
    path: str | os.PathLike[str] | None,
    storage_options: dict[str, Any] | None,
    policies: Policies,
    shares: Shares | None = None,
    counted: Sequence[Any] | None = None,
) -> Any:
    """Run the passes; return the table that is then in the folder.

    Parameters
    ----------
    operator : str
        Name of the operator, for errors.
    chains : list of (dask.dataframe.DataFrame, Taken)
        Tables, and how often their rows are taken.
    path : str or path, optional
        Folder of the output; by default one among the working files of the cluster.
    storage_options, policies
        Arguments of the operator.
    shares : Shares, optional
        Shares of the output, which decide how often rows are taken.
    counted : sequence of dask.dataframe.DataFrame, optional
        Tables whose rows or tokens are counted for the shares; by default the tables themselves.
    """
    choose(operator, "on_existing", policies.on_existing, OnExisting)
    choose(operator, "on_error", policies.on_error, OnError)
    choose(operator, "on_oom", policies.on_oom, OnOom)
    for df, _ in chains:
        require_storable(df, operator)
        if name := indexed_step(df.expr):
            raise ParameterError(
                f"{operator}: the last step of the table, {name} with index=, adds rows to an index only when the table is "
                "written. Write the table with write_parquet first, and pass what read_parquet returns"
            )
    session = current_session()
    source = _planned(operator, chains, shares)
    folder = _working_folder(operator, session, source) if path is None else folder_at(path, storage_options)
    sink = FileSink(folder, ParquetFormat("zstd"), TARGET_FILE_BYTES)
    last = Branch(lower(_as_table(source), spools=True), sink, None)
    counts = [] if shares is None else _counts(chains, shares, folder, counted)
    for df, _ in chains:
        require_not_input(lower(df, spools=True), sink)
    check_if_explaining([last], policies.on_existing)
    layout = session.weigh_client()
    homes = [f"{JOURNAL_FOLDER}/{BEFORE}/{taken.table or ROWS}" for _, taken in chains]
    begun = [folder.below(home) for home in homes] + [to_count.folder for _, to_count in counts]
    files = _working_files(operator, chains, source, layout, shares)
    require_disk(files, folder, [last], policies.on_existing, begun)
    _plans(chains, counts, folder, source.bits, last, layout, shares, files)
    with Journal(folder) as journal:
        _, receipt = open_run(journal, sink, identity_of(last), policies.on_existing)
    again: dict[str, Any] = {"on_existing": "resume", "on_error": policies.on_error, "on_oom": policies.on_oom}
    if receipt is None:
        if shares is not None:
            for df, to_count in counts:
                run(df, to_count, **again)
            chains = _with_epochs(chains, shares, counts)
            said = json.dumps({str(name): number for name, number in _epochs(shares, counts).items()}, indent=1)
            folder.write(f"{JOURNAL_FOLDER}/{BEFORE}/epochs.json", said.encode())
            source = replace(_planned(operator, chains), identity=source.identity, asked=source.asked)
            # How often rows are taken is known now, and nothing was stored unless a run was begun.
            stored_before = any(Journal(folder.below(home)).is_started for home in homes)
            _working_files(operator, chains, source, layout).require(folder, is_begun=stored_before)
        stored, added = [], None if shares is None or shares.tokenizer is not None else shares.column
        for home, (df, taken) in zip(homes, chains, strict=True):
            first = ShuffleSink(folder.below(home), taken, source.bits, added)
            done = run(df, first, **again)
            stored.append(Stored(first.folder, _files_of(first.folder, done.ranges)))
        run(_as_table(replace(source, stored=tuple(stored))), sink, **again)
    firsts = [(taken.table, folder.below(home)) for home, (_, taken) in zip(homes, chains, strict=True)]
    taken_shares = None if shares is None else functools.partial(_shares_taken, firsts, chains, shares, counts)
    _add_remarks(folder, operator, firsts, taken_shares)
    for home in homes:
        folder.delete_tree(f"{home}/{ROWS}")
    for _, to_count in counts:
        to_count.folder.delete_tree(SIZES)
    table = read_parquet(folder.url, storage_options=storage_options)
    return table if path is not None else _with_parameters(table, operator, source.asked)


def _with_parameters(table: Any, operator: str, asked: Mapping[str, Any]) -> Any:
    """Return a table from working files whose later runs name the parameter by which they cannot be resumed."""
    reader = origin_of(table)
    made_by = {f"in {operator}, {name}": value for name, value in asked.items()}
    source = replace(cast(ParquetSource, reader.source), made_by=made_by)
    return from_source(source, reader.ranges, block_bytes=reader.block_bytes, explicit=False)


def _quarantined(operator: str, name: str, done: Receipt) -> str:
    """Return the remark that rows were quarantined in the first pass, whose receipt alone counts them."""
    of = f" of the table {name!r}" if name else ""
    return (
        f"{operator} quarantined {show_count(done.rows_quarantined, 'row')}{of} in its first pass: {done.quarantine_folder} has "
        f"the file, offset and reason of each. read_receipt({done.output!r}) returns the receipt of that pass"
    )


def _add_remarks(
    folder: Folder,
    operator: str,
    firsts: Sequence[tuple[str, Folder]],
    shares_taken: Callable[[], tuple[str, str]] | None,
) -> None:
    """Add to the output's receipt, which counts only the last pass: the shares, and remarks on rows that are missing.

    They follow from the journals of the first passes, so a run that was interrupted before them gets them when it resumes.
    """
    done = [(name, _receipt_in(first)) for name, first in firsts]
    remarks = [_quarantined(operator, name, each) for name, each in done if each is not None and each.rows_quarantined]
    written = _receipt_in(folder)
    if written is None:
        return
    new = [remark for remark in remarks if remark not in written.advice]
    lacks_shares = shares_taken is not None and "shares" not in written.settings
    if new or lacks_shares:
        said, far_off = shares_taken() if shares_taken is not None and lacks_shares else ("", "")
        advice = [*new, *[far_off] * bool(far_off), *written.advice]
        changed = replace(written, advice=advice, settings=written.settings | ({"shares": said} if said else {}))
        with Journal(folder) as journal:
            journal.finish(changed.to_json())


def _shares_taken(
    firsts: Sequence[tuple[str, Folder]], chains: list[_Chain], shares: Shares, counts: list[_Count]
) -> tuple[str, str]:
    """Return the requested and actual shares in words, and advice if they differ much, from the files of the earlier passes."""
    if shares.tokenizer is None:
        sums = [_sums(first, _names(taken, shares)) for (_, first), (_, taken) in zip(firsts, chains, strict=True)]
    else:
        taken_with = [taken for _, taken in _with_epochs(chains, shares, counts)]
        sums = [
            dict(zip(sink.names, taken_sizes(sink.folder, taken), strict=True))
            for (_, sink), taken in zip(counts, taken_with, strict=True)
        ]
    counted = {name: size for each in sums for name, size in each.items()}
    return shares.taken(counted), shares.far_off(counted)


def _receipt_in(folder: Folder) -> Receipt | None:
    name = f"{JOURNAL_FOLDER}/receipt.json"
    return Receipt.from_json(json.loads(folder.read(name))) if folder.exists(name) else None


def _working_folder(operator: str, session: Session, source: ShuffledSource) -> Folder:
    """Return the folder of an output without a path, which is the same for the same input and arguments."""
    if session.workdir is None:
        raise ParameterError(
            f"{operator}: this cluster has no folder for temporary files. Pass path= (the output folder), or connect to the "
            "cluster with workdir="
        )
    return session.working(f"{operator}-{source.fingerprint[:16]}")


def _plans(
    chains: list[_Chain],
    counts: list[_Count],
    folder: Folder,
    bits: int,
    last: Branch,
    layout: Layout,
    shares: Shares | None,
    files: WorkingFiles,
) -> None:
    """Plan all passes, so that one that does not fit is refused before the first; stop with the plan if it is requested."""
    branches = [
        Branch(for_sink(lower(df, spools=True)), ShuffleSink(folder.below(ROWS), taken, bits)) for df, taken in chains
    ]
    first = [Branch(for_sink(lower(df, spools=True)), sink) for df, sink in counts]
    counting = [plan_fork(fork([branch]), layout) for branch in first]
    plans = [*(plan_fork(fork([branch]), layout) for branch in branches), plan_fork(fork([last]), layout)]
    if not is_explaining():
        return
    peak = show_size(plans[-1].projected_bytes)
    then = f"a pass that sorts the rows into their new order, with an estimated peak of {peak}"
    if len(chains) > 1:
        then = f"a pass like this for each of the {len(chains):,} tables, and {then}"
    plan = replace(joined_plans(plans, then), working_files=files)
    if shares is not None:
        largest = max(counting, key=lambda each: each.projected_bytes)
        peak = show_size(largest.projected_bytes)
        said = f"{shares.requested()}; a pass over each table counts {shares.counts} first, with an estimated peak of {peak}"
        plan = replace(
            plan,
            stages=(*(replace(stage, title="count") for stage in largest.stages), *plan.stages),
            projected_bytes=max(plan.projected_bytes, largest.projected_bytes),
            held_bytes=max(plan.held_bytes, largest.held_bytes),
            remarks=(("shares", said), *plan.remarks),
        )
    stop_if_explaining(plan, [branch.program for branch in (*first, *branches)])


def _working_files(
    operator: str, chains: list[_Chain], source: ShuffledSource, layout: Layout, shares: Shares | None = None
) -> WorkingFiles:
    """Return the disk space for the rows between the two passes, and for the deferred operations before them.

    How often rows are taken is known once they are counted; until then, each counts once, or as many as were requested.
    """
    needs, size, removable, total = list[DiskNeed](), 0, 0, 0
    buckets = 1 << source.bits
    for df, taken in chains:
        joined = fork([Branch(for_sink(lower(df, spools=True)), ShuffleSink(Folder(ROWS), taken, source.bits))])
        program = joined.branches[0].program
        ranges = program.source.cut(range_bytes(program.source))
        needs += working_files(joined, ranges, layout, "never").needs
        rows, columns = estimate_kept(program, ranges), len(program.meta.columns) + taken.adds
        epochs = max(taken.epochs.values()) if isinstance(taken.epochs, Mapping) else taken.epochs
        width = estimate_row_bytes(program, ranges) + (VALUE_BYTES + len(taken.table) if taken.adds else 0)
        taken_bytes = batches_bytes(int(rows * epochs) + 1, width, 1 + columns, files=len(ranges), buckets=buckets)
        size, total = size + taken_bytes, total + rows
        removable += taken_bytes if may_remove_rows(program) else 0
    if shares is not None and shares.total is not None and shares.unit == "rows":
        size = int(size * max(shares.total / total, 1.0))
        removable = 0  # the number of rows that are taken is known
    sizes = 24 * total if shares is not None and shares.tokenizer is not None else 0
    # A task that sorts a bucket splits it on the local disk of its worker if it does not fit into a block.
    sorting = min(layout.workers * layout.threads, buckets) * 5 * size // (4 * buckets)
    parts = {"rows in parts of the new order": size, "sizes of rows": sizes, "rows while sorting": sorting}
    certain = 1 - removable / size
    known = {what: int(part * certain) for what, part in parts.items() if part}
    more = sum(parts.values()) - sum(known.values()) if removable else 0
    need = DiskNeed(operator, known, 0, more, "if no rows are removed" if removable else "")
    return WorkingFiles((*needs, need))


def _names(taken: Taken, shares: Shares) -> tuple[Any, ...]:
    """Return the names whose rows a table has."""
    return (taken.table,) if taken.table else tuple(shares.weights)


def _counts(chains: list[_Chain], shares: Shares, folder: Folder, counted: Sequence[Any] | None) -> list[_Count]:
    """Return the table that is counted, and the sink that counts it, for each table."""
    tables = [df for df, _ in chains] if counted is None else counted
    return [
        counting(
            df,
            shares,
            folder.below(f"{JOURNAL_FOLDER}/{COUNTED}/{taken.table or ROWS}"),
            None if taken.table else taken.column,
            _names(taken, shares),
        )
        for df, (_, taken) in zip(tables, chains, strict=True)
    ]


def _epochs(shares: Shares, counts: list[_Count]) -> dict[Any, float]:
    """Return how often rows are taken, from the journals of the passes that counted."""
    return shares.epochs({name: size for _, sink in counts for name, size in _sums(sink.folder, sink.names).items()})


def _with_epochs(chains: list[_Chain], shares: Shares, counts: list[_Count]) -> list[_Chain]:
    """Return the tables with how often their rows are taken, once they are counted."""
    epochs = _epochs(shares, counts)
    return [(df, replace(taken, epochs=epochs[taken.table] if taken.table else epochs)) for df, taken in chains]


def _planned(operator: str, chains: list[_Chain], shares: Shares | None = None) -> ShuffledSource:
    """Check the tables, and return the source of the second pass, without its files."""
    if any(is_spooled(df) for df, _ in chains):
        _require_known_alike(operator, chains)
    schemas, identities, text_bytes = [], [], 0
    said: dict[str, Any] = {
        "operator": operator,
        **({"tables": [taken.table for _, taken in chains]} if chains[0][1].table else {}),
        **({} if shares is None else shares.said),
    }
    for df, taken in chains:
        program = for_sink(lower(df, spools=True))
        _require_row_ids(operator, df)
        epochs = max(taken.epochs.values()) if isinstance(taken.epochs, Mapping) else taken.epochs
        text_bytes += int(program.source.text_bytes * max(epochs, 0.01))
        schemas.append(stored_schema(program.meta, taken))
        identities.append((program.source.fingerprint, program.fingerprint, taken))
        said |= _said_of(program, taken, has_shares=shares is not None)
    _require_alike(operator, schemas, chains)
    asked = (operator, identities) if shares is None else (operator, identities, shares)
    source = ShuffledSource(fingerprint(*asked), schemas[0], 0, text_bytes, asked=said)
    buckets = max(1, -(-text_bytes // range_bytes(source)))
    return replace(source, bits=min((buckets - 1).bit_length(), MOST_BUCKET_BITS))


def _require_row_ids(operator: str, df: Any) -> None:
    require_addresses(df, operator)
    if not pd.api.types.is_integer_dtype(df._meta.index.dtype):
        raise SchemaError(
            f"{operator} needs the row IDs that a reader puts into the index, but this table's index has the type "
            f"{df._meta.index.dtype}. Remove the step that changes the index, such as set_index or reset_index"
        )


def _require_known_alike(operator: str, chains: list[_Chain]) -> None:
    """Check what is known of tables before any of them is written to working files."""
    for df, _ in chains:
        _require_row_ids(operator, df)
    metas = [known_meta(df) for df, _ in chains]
    schemas = [stored_schema(meta, taken) for meta, (_, taken) in zip(metas, chains, strict=True)]
    unknown = {name for meta in metas for name, dtype in meta.dtypes.items() if has_no_type(dtype)}
    fields = [[each.with_type(pa.null()) if each.name in unknown else each for each in schema] for schema in schemas]
    _require_alike(operator, list(map(pa.schema, fields)), chains)


def _require_alike(operator: str, schemas: Sequence[pa.Schema], chains: list[_Chain]) -> None:
    """Raise `SchemaError` if the tables do not have the same columns and types."""
    for schema, (_, taken) in zip(schemas, chains, strict=True):
        if not schema.equals(schemas[0]):
            raise SchemaError(
                f"{operator}: the table {taken.table!r} {_difference(schema, schemas[0], chains[0][1].table)}. Give all "
                "tables the same columns and types first: df.rename(columns={...}), df.assign(...), df.astype({...}), df[[...]]"
            )


def _said_of(program: Program, taken: Taken, *, has_shares: bool) -> dict[str, Any]:
    """Return the description of one table for an error, if it is not that of the run to resume."""
    of = f" of {taken.table!r}" if taken.table else ""
    said: dict[str, Any] = {f"{name}{of}": Digested(*value) for name, value in printed_source(program.source).items()}
    steps = " -> ".join(step.name for step in program.steps) or "none"
    said[f"the steps{of}"] = Digested(steps, program.fingerprint)
    if not has_shares:  # otherwise the shares determine how often rows are taken
        said[f"epochs{of}"] = taken.epochs
    return {**said, "seed": taken.seed, "source_column": taken.column}


def _difference(schema: Any, first: Any, table: str) -> str:
    """Describe how a schema differs from that of the first table."""
    extra = [field.name for field in schema if field.name not in first.names]
    missing = [field.name for field in first if field.name not in schema.names]
    both = [field for field in schema if field.name in first.names]
    other = [field for field in both if field.type != first.field(field.name).type]
    said = []
    if extra:
        said.append(f"has columns that {table!r} does not have: {listed(extra)}")
    if missing:
        said.append(f"lacks columns that {table!r} has: {listed(missing)}")
    if other:
        types = [f"{field.name!r} ({field.type}, there {first.field(field.name).type})" for field in other]
        said.append(f"has other types than {table!r} in {', '.join(types[:MOST_LISTED])}")
    return "; it ".join(said)


def _as_table(source: ShuffledSource) -> Any:
    return from_source(source, source.cut(0), block_bytes=DEFAULT_BLOCK_BYTES, explicit=False)


def _files_of(folder: Folder, ranges: int) -> tuple[FileRecord, ...]:
    """Return the file of each input split, from the journal of the first pass."""
    done = Journal(folder).records()
    return tuple(done[number].files[0] for number in range(ranges))
