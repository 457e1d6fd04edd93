# SPDX-License-Identifier: Apache-2.0
"""Rows in random order, each taken once or as often as requested: `shuffle_rows` and `blend`.

The exchange of the drops (`exchange.exchange`) carries keys of fixed width, never text. Whole rows go through parts of
the new order on disk: one pass writes each row into its part, another sorts the parts.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import dask.dataframe as dd
import pandas as pd

from curator_df.arguments import choose
from curator_df.core.columns import (
    MOST_LISTED,
    is_text,
    listed,
    refuse_columns,
    require_columns,
    require_table,
)
from curator_df.core.fingerprint import fingerprint
from curator_df.core.planning.branches import Branch, fork, identity_of
from curator_df.core.planning.device_steps import for_sink
from curator_df.core.planning.lowering import lower, require_addresses
from curator_df.core.planning.output_paths import require_not_input
from curator_df.core.planning.plan import Plan, plan_fork
from curator_df.core.planning.program import Program
from curator_df.core.ranges.journal import Journal, OnExisting, open_run
from curator_df.core.ranges.parameter_digests import Digested, printed_source
from curator_df.core.receipts.receipt import Receipt
from curator_df.core.runner.explaining import is_explaining, joined_plans, stop_if_explaining
from curator_df.core.runner.run import range_bytes, run
from curator_df.core.runner.session import current_session
from curator_df.core.tasks.task import OnError, OnOom
from curator_df.errors import ColumnError, ParameterError, SchemaError
from curator_df.files.storage import JOURNAL_FOLDER, FileRecord, Folder
from curator_df.io.output.files import FileSink
from curator_df.io.output.formats import TARGET_FILE_BYTES, ParquetFormat, folder_at
from curator_df.io.output.writable import require_storable
from curator_df.io.parquet.reader import read_parquet
from curator_df.io.partitions import DEFAULT_BLOCK_BYTES, from_source
from curator_df.io.shuffle.shares import ROW_UNIT, KindSink, Shares, require_few_epochs
from curator_df.io.shuffle.sink import ROWS, ShuffleSink, Taken, stored_schema, tables_alike
from curator_df.io.shuffle.source import ShuffledSource, Stored
from curator_df.memory.budget import Layout
from curator_df.memory.sizes import show_count, show_size


def count_kinds(
    df: Any,
    folder: Folder,
    column: str | None,
    names: Sequence[Any],
    *,
    unit: str | None,
    on_error: OnError,
    on_oom: OnOom,
) -> dict[Any, int]:
    """Run a table and return the number of rows (or the sum of the column ``unit``) of each name.

    Without a column all rows have the single name. For an unchanged table from Parquet, only the columns ``column`` and
    ``unit`` are read; without both, one that holds no text.
    """
    counted, sink = _counting(df, folder, column, names, unit)
    run(counted, sink, on_existing="resume", on_error=on_error, on_oom=on_oom)
    return _sums(folder, names)


def _counting(
    df: Any, folder: Folder, column: str | None, names: Sequence[Any], unit: str | None
) -> tuple[Any, KindSink]:
    """Return the columns that a pass that counts needs, and its sink."""
    light = [name for name, dtype in df.dtypes.items() if not is_text(dtype)] or list(df.columns)
    needed = list(dict.fromkeys(name for name in (column, unit) if name is not None)) or light[:1]
    return df[needed], KindSink(folder, column, tuple(names), unit)


def _sums(folder: Folder, names: Sequence[Any]) -> dict[Any, int]:
    """Return the figures of each name, summed over the input splits of a finished pass."""
    done = Journal(folder).records().values()
    return {name: sum(record.summary.get(str(place), 0) for record in done) for place, name in enumerate(names)}


BEFORE = "before"
"""Folder of the first passes, next to the journal: their journals and receipts, and the rows that they quarantine, are kept."""
COUNTED = "counted"
"""Folder of the passes that count rows."""
LARGEST_WEIGHT = 1e300
"""Largest share whose sum with others is still a number."""
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
        A chain that begins with one of the readers.
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

    The order is that of a hash of each row's address and the seed, so it does not depend on blocks, memory, workers or
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
    return _shuffled("shuffle_rows", [(df, Taken(seed))], path, storage_options, policies)


def blend(
    tables: dd.DataFrame | Mapping[str, dd.DataFrame],
    path: str | os.PathLike[str],
    *,
    epochs: Mapping[Any, float] | None = None,
    weights: Mapping[Any, float] | None = None,
    rows: int | None = None,
    unit: str = "rows",
    total: int | None = None,
    column: str = "source",
    seed: int = 0,
    on_existing: OnExisting = "resume",
    on_error: OnError = "raise",
    on_oom: OnOom = "retry",
    storage_options: dict[str, Any] | None = None,
) -> dd.DataFrame:
    """Mix tables, or the kinds of rows of one table, in random order, with a number of epochs or a share for each.

    Parameters
    ----------
    tables : mapping of str to dask.dataframe.DataFrame, or dask.dataframe.DataFrame
        Tables by name, with the same columns; or one table with a column that gives the kind of each row.
    path : str or path
        Folder for the Parquet files, or an fsspec URL.
    epochs : mapping of name (or value of ``column``) to float, optional
        How often to take the rows of a table: 3 means each row three times; 0.25 a random quarter of the rows; 1.5 each
        row, and a random half of them twice; 0 none. For one table every value must be named, with None for rows
        without a value.
    weights : mapping of name (or value of ``column``) to float, optional
        Instead of ``epochs``: the share of the output for each, in rows or in ``unit``; the shares need not add up to 1.
        They are counted first, in one more pass over each table.
    rows : int, optional
        With ``weights``: approximate number of rows of the output. By default as many as possible without taking any
        row twice.
    unit : str, default "rows"
        With ``weights``: what the shares are shares of. ``"rows"``, or the name of a column of whole numbers whose sum
        counts, such as ``"token_count"`` from `add_token_count`; null counts as 0.
    total : int, optional
        With such a column as ``unit``: approximate sum of the column over the output, such as 10 billion tokens. By
        default as much as possible without taking any row twice.
    column : str, default "source"
        For several tables: a column to add, with the name of the table. For one table: the column that gives the kind.
    seed : int, default 0
        Seed of the order, and of which rows are repeated; independent of `sample_rows` with the same seed.
    on_existing, on_error, on_oom, storage_options
        As in `shuffle_rows`.

    Returns
    -------
    dask.dataframe.DataFrame
        The mixed rows in random order, read back from Parquet. Lazy, in the order of the file names. Copies of the same
        row are placed independently.

    Raises
    ------
    BudgetError
        If the plan does not fit the budget; nothing has been started.
    ParameterError
        If ``epochs`` or ``weights`` does not name exactly the tables, has a negative number, or lacks a value of
        ``column``; if both or neither are given; if a table with a positive share has no rows, or only zeros in
        ``unit``; or if a value of ``unit`` is negative.
    SchemaError
        If the tables do not have the same columns and types, or if ``unit`` does not hold whole numbers.
    ColumnError
        If a table already has the column to add, or lacks the column that gives the kind or the unit.
    NoClusterError
        If no cluster is running.

    See Also
    --------
    shuffle_rows, concat, sample_rows

    Notes
    -----
    Rows: those of several tables (or kinds of rows of one), each as often as ``epochs`` says, or to the shares of
    ``weights``. Columns: all; of several tables plus ``source``. Peak extra memory: 3.2 x block. Computes: yes, a pass
    over each table (with ``weights`` a counting pass before it), and one that sorts.

    For tables read directly from Parquet, the counting pass reads only one column (two with ``unit`` and one table).
    Between the passes, repeated rows take disk for each copy.

    Every part of the output has the same mixture, up to chance. Which rows are taken, and their positions, follow from
    a hash of name, address and seed, so they do not depend on blocks, memory, workers or a resume; a larger number
    takes all rows that a smaller one took. What the preceding steps did to rows, and the quarantined rows, are in
    ``_curator/before/<name>`` below the output folder (``rows`` for one table). With ``weights``, the number of times
    that rows were taken is ``rows * share / (rows of the table)``, or the same with sums of ``unit``; it is stored in
    ``_curator/before/epochs.json``. Whole rows are taken at random, so the output has the shares up to chance; its
    receipt says the requested and the actual ones (`Receipt.settings`, ``shares``).

    References
    ----------
    .. [1] Muennighoff et al., Scaling Data-Constrained Language Models, 2023, https://arxiv.org/abs/2305.16264 (up to four epochs
       of the same text are nearly as good as new text)

    Examples
    --------
    >>> mixed = cdf.blend({"web": web, "wiki": wiki}, "mixed/", epochs={"web": 0.5, "wiki": 3})  # doctest: +SKIP
    >>> mixed = cdf.blend(docs, "mixed/", column="quality", epochs={"high": 2, "low": 0.1})  # doctest: +SKIP
    >>> mixed = cdf.blend({"web": web, "wiki": wiki}, "mixed/", weights={"web": 0.7, "wiki": 0.3})  # doctest: +SKIP
    >>> counted = {name: df.pipe(cdf.add_token_count, "tokenizer.json") for name, df in tables.items()}  # doctest: +SKIP
    >>> weights = {"web": 0.7, "wiki": 0.3}
    >>> mixed = cdf.blend(counted, "mixed/", weights=weights, unit="token_count", total=10**10)  # doctest: +SKIP
    """
    require_seed("blend", seed)
    for called, given in (("epochs", epochs), ("weights", weights)):
        if given is not None and not isinstance(given, Mapping):
            raise ParameterError(
                f"blend: {called}={given!r} must be a dict of names and numbers, such as {called}={{'web': 0.5, 'wiki': 3}}"
            )
    said = _require_numbers(epochs, weights, rows)
    _require_unit(unit, weights, rows, total)
    of_rows = unit == ROW_UNIT
    shares = None if weights is None else Shares(dict(weights), rows if of_rows else total, None if of_rows else unit)
    policies = Policies(on_existing, on_error, on_oom)
    if isinstance(tables, (list, tuple)):
        raise ParameterError(
            f"blend: tables is a {type(tables).__name__}. Pass a dict of tables, such as {{'web': web, 'wiki': wiki}}"
        )
    if not isinstance(tables, Mapping):
        require_columns(tables, "blend", column)
        if not of_rows:
            _require_whole_numbers(tables, unit, "the table")
        return _shuffled("blend", [(tables, Taken(seed, "", said, column))], path, storage_options, policies, shares)
    if set(tables) != set(said) or not tables:
        called = "epochs" if shares is None else "weights"
        raise ParameterError(
            f"blend: {called}= has the names {', '.join(map(repr, said)) or 'none'}, but the tables are "
            f"{', '.join(map(repr, tables)) or 'none'}. Use each table's name once"
        )
    for name, df in tables.items():
        if not isinstance(name, str) or not re.fullmatch(r"\w[\w.-]*", name):
            raise ParameterError(
                f"blend: {name!r} cannot name a table. Use letters, digits, '_', '.' and '-', beginning with a letter or digit"
            )
        refuse_columns(df, "blend", column, parameter="column")
        if not of_rows:
            _require_whole_numbers(df, unit, f"the table {name!r}")
    chains = [(df, Taken(seed, name, said[name], column)) for name, df in tables_alike(tables).items()]
    return _shuffled("blend", chains, path, storage_options, policies, shares)


def require_seed(operator: str, seed: int) -> None:
    """Raise `ParameterError` unless a seed is a 64-bit integer."""
    if not isinstance(seed, int) or not -(1 << 63) <= seed < 1 << 63:
        raise ParameterError(f"{operator}: seed={seed!r} must be a 64-bit integer")


def _require_numbers(
    epochs: Mapping[Any, float] | None, weights: Mapping[Any, float] | None, rows: int | None
) -> dict[Any, float]:
    """Return how often rows are taken, by name; once if that follows from weights."""
    given = weights if epochs is None else epochs
    if given is None or (epochs is not None and weights is not None):
        raise ParameterError("blend: set either epochs=, how often rows are taken, or weights=, shares of the output")
    called = "weights" if epochs is None else "epochs"
    for name, number in given.items():
        if isinstance(number, bool) or not isinstance(number, (int, float)) or not 0 <= number <= LARGEST_WEIGHT:
            raise ParameterError(
                f"blend: {called}={{{name!r}: {number!r}}} must be a number of 0 or more, at most 10**300"
            )
        if epochs is not None:
            require_few_epochs({name: number})
    if not any(given.values()):
        raise ParameterError(f"blend: {called}= selects zero rows. Use at least one number above 0")
    if rows is not None and (epochs is not None or isinstance(rows, bool) or not isinstance(rows, int) or rows < 1):
        raise ParameterError(f"blend: rows={rows!r} must be a whole number of 1 or more, and needs weights=")
    return {name: 1.0 if epochs is None else float(number) for name, number in given.items()}


def _require_unit(unit: str, weights: Mapping[Any, float] | None, rows: int | None, total: int | None) -> None:
    """Raise `ParameterError` unless the unit of shares fits the other arguments."""
    if not isinstance(unit, str):
        raise ParameterError(f"blend: unit={unit!r} must be 'rows' or the name of a column")
    if unit != ROW_UNIT and weights is None:
        raise ParameterError(f"blend: unit={unit!r} needs weights=, the shares of the output")
    if unit != ROW_UNIT and rows is not None:
        raise ParameterError(f"blend: rows={rows!r} needs unit='rows'. With unit={unit!r} set the size with total=")
    if total is not None and unit == ROW_UNIT:
        raise ParameterError(
            f"blend: total={total!r} needs unit=, the column that is added up, such as unit='token_count'. Set the number "
            "of rows with rows="
        )
    if total is not None and (isinstance(total, bool) or not isinstance(total, int) or total < 1):
        raise ParameterError(f"blend: total={total!r} must be a whole number of 1 or more")


def _require_whole_numbers(df: Any, unit: str, named: str) -> None:
    """Raise an error unless the column that is added up exists and holds whole numbers."""
    if unit not in df.columns:
        raise ColumnError(
            f"blend: unit={unit!r} is neither 'rows' nor a column of {named}, which has: {listed(df.columns)}. Count tokens "
            "with add_token_count, and set unit= to the name of its column"
        )
    require_columns(df, "blend", unit)
    if not pd.api.types.is_integer_dtype(df.dtypes[unit]):
        raise SchemaError(
            f"blend: unit={unit!r} must be a column of whole numbers, but {named} has {df.dtypes[unit]} in it. Convert it, "
            f"as in df.assign({unit}=df[{unit!r}].astype('Int64'))"
        )


def _shuffled(
    operator: str,
    chains: list[tuple[Any, Taken]],
    path: str | os.PathLike[str],
    storage_options: dict[str, Any] | None,
    policies: Policies,
    shares: Shares | None = None,
) -> Any:
    """Run the passes; return the table that is then in the folder."""
    choose(operator, "on_existing", policies.on_existing, OnExisting)
    choose(operator, "on_error", policies.on_error, OnError)
    choose(operator, "on_oom", policies.on_oom, OnOom)
    for df, _ in chains:
        require_storable(df, operator)
    folder, session = folder_at(path, storage_options), current_session()
    source = _planned(operator, chains, shares)
    sink = FileSink(folder, ParquetFormat("zstd"), TARGET_FILE_BYTES)
    last = Branch(lower(_as_table(source), spools=True), sink, None)
    plan = plan_fork(fork([last]), session.weigh_client())
    if is_explaining():
        _explain_passes(chains, folder, source.bits, plan, session.layout, shares)
    for df, _ in chains:
        require_not_input(lower(df), sink)
    with Journal(folder) as journal:
        _, receipt = open_run(journal, sink, identity_of(last), policies.on_existing)
    homes = [f"{JOURNAL_FOLDER}/{BEFORE}/{taken.table or ROWS}" for _, taken in chains]
    if receipt is None:
        if shares is not None:
            chains = _to_shares(chains, shares, folder, policies)
            source = replace(_planned(operator, chains), identity=source.identity, asked=source.asked)
        stored = []
        for home, (df, taken) in zip(homes, chains, strict=True):
            first = ShuffleSink(folder.below(home), taken, source.bits, None if shares is None else shares.unit)
            done = run(df, first, on_existing="resume", on_error=policies.on_error, on_oom=policies.on_oom)
            stored.append(Stored(first.folder, _files_of(first.folder, done.ranges)))
        run(
            _as_table(replace(source, stored=tuple(stored))),
            sink,
            on_existing="resume",
            on_error=policies.on_error,
            on_oom=policies.on_oom,
        )
    firsts = [(taken.table, folder.below(home)) for home, (_, taken) in zip(homes, chains, strict=True)]
    _add_remarks(folder, operator, firsts, shares)
    for home in homes:
        folder.delete_tree(f"{home}/{ROWS}")
    return read_parquet(path, storage_options=storage_options)


def _quarantined(operator: str, name: str, done: Receipt) -> str:
    """Return the remark that rows were quarantined in the first pass, whose receipt alone counts them."""
    of = f" of the table {name!r}" if name else ""
    return (
        f"{operator} quarantined {show_count(done.rows_quarantined, 'row')}{of} in its first pass: {done.quarantine_folder} has "
        f"the file, offset and reason of each. read_receipt({done.output!r}) returns the receipt of that pass"
    )


def _add_remarks(folder: Folder, operator: str, firsts: Sequence[tuple[str, Folder]], shares: Shares | None) -> None:
    """Add to the output's receipt, which counts only the last pass: the shares, and remarks on rows that are missing.

    They follow from the journals of the first passes, so a run that was interrupted before them gets them when it resumes.
    """
    done = [(name, _receipt_in(first)) for name, first in firsts]
    remarks = [_quarantined(operator, name, each) for name, each in done if each is not None and each.rows_quarantined]
    settings = {} if shares is None else {"shares": _shares_taken(firsts, shares)}
    written = _receipt_in(folder) if remarks or settings else None
    if written is None:
        return
    new = [remark for remark in remarks if remark not in written.advice]
    if new or not settings.items() <= written.settings.items():
        changed = replace(written, advice=[*new, *written.advice], settings=written.settings | settings)
        with Journal(folder) as journal:
            journal.finish(changed.to_json())


def _shares_taken(firsts: Sequence[tuple[str, Folder]], shares: Shares) -> str:
    """Return the requested and actual shares in words, from the journals of the first passes."""
    names = tuple(shares.weights)
    if not firsts[0][0]:  # the kinds of one table
        return shares.taken(_sums(firsts[0][1], names))
    return shares.taken({name: _sums(first, (name,))[name] for name, first in firsts})


def _receipt_in(folder: Folder) -> Receipt | None:
    name = f"{JOURNAL_FOLDER}/receipt.json"
    return Receipt.from_json(json.loads(folder.read(name))) if folder.exists(name) else None


def _explain_passes(
    chains: list[tuple[Any, Taken]], folder: Folder, bits: int, last: Plan, layout: Layout, shares: Shares | None
) -> None:
    """Stop with the plan of all passes: one for each table (with shares, after one that counts), and one that sorts."""
    branches = [Branch(lower(df), ShuffleSink(folder.below(ROWS), taken, bits)) for df, taken in chains]
    plans = [*(plan_fork(fork([branch]), layout) for branch in branches), last]
    then = (
        f"a pass that sorts the rows into their new order, with an estimated peak of {show_size(last.projected_bytes)}"
    )
    if len(chains) > 1:
        then = f"a pass like this for each of the {len(chains):,} tables, and {then}"
    plan = joined_plans(plans, then)
    if shares is not None:
        plan = _with_count(plan, chains, folder, layout, shares)
    stop_if_explaining(plan, [branch.program for branch in branches])


def _with_count(plan: Plan, chains: list[tuple[Any, Taken]], folder: Folder, layout: Layout, shares: Shares) -> Plan:
    """Return a plan with the pass over each table that counts its rows before."""
    counts = []
    for df, taken in chains:
        table, sink = _counting(df, folder, *_kinds(taken, shares), shares.unit)
        counts.append(plan_fork(fork([Branch(lower(table), sink)]), layout))
    largest = max(counts, key=lambda each: each.projected_bytes)
    counted = "the rows" if shares.unit is None else f"the column {shares.unit!r}"
    peak = show_size(largest.projected_bytes)
    said = f"{shares.requested()}; a pass over each table counts {counted} first, with an estimated peak of {peak}"
    stages = (*(replace(stage, title="count") for stage in largest.stages), *plan.stages)
    return replace(
        plan,
        stages=stages,
        projected_bytes=max(plan.projected_bytes, largest.projected_bytes),
        held_bytes=max(plan.held_bytes, largest.held_bytes),
        remarks=(("shares", said), *plan.remarks),
    )


def _kinds(taken: Taken, shares: Shares) -> tuple[str | None, tuple[Any, ...]]:
    """Return the column of the kinds that are counted, None for all rows of the table, and their names."""
    return (None, (taken.table,)) if taken.adds else (taken.column, tuple(shares.weights))


def _to_shares(
    chains: list[tuple[Any, Taken]], shares: Shares, folder: Folder, policies: Policies
) -> list[tuple[Any, Taken]]:
    """Count the rows, and return the chains with how often their rows are taken, which is also written to a file."""
    counted: dict[Any, int] = {}
    for df, taken in chains:
        home = folder.below(f"{JOURNAL_FOLDER}/{COUNTED}/{taken.table or ROWS}")
        column, names = _kinds(taken, shares)
        counted |= count_kinds(
            df, home, column, names, unit=shares.unit, on_error=policies.on_error, on_oom=policies.on_oom
        )
    epochs = shares.epochs(counted)
    said = json.dumps({str(name): number for name, number in epochs.items()}, indent=1)
    folder.write(f"{JOURNAL_FOLDER}/{BEFORE}/epochs.json", said.encode())
    return [(df, replace(taken, epochs=epochs[taken.table] if taken.adds else epochs)) for df, taken in chains]


def _planned(operator: str, chains: list[tuple[Any, Taken]], shares: Shares | None = None) -> ShuffledSource:
    """Check the tables, and return the source of the second pass, without its files."""
    schemas, identities, text_bytes = [], [], 0
    said: dict[str, Any] = {
        "operator": operator,
        **({} if shares is None else shares.said),
    }
    for df, taken in chains:
        program = for_sink(lower(df, spools=True))
        require_addresses(df, operator)
        if not pd.api.types.is_integer_dtype(df._meta.index.dtype):
            raise SchemaError(
                f"{operator} needs the index of row IDs from a reader, but this table's index has {df._meta.index.dtype}. Leave "
                "out the step that changes the index"
            )
        epochs = max(taken.epochs.values()) if isinstance(taken.epochs, Mapping) else taken.epochs
        text_bytes += int(program.source.text_bytes * max(epochs, 0.01))
        schemas.append(stored_schema(program.meta, taken))
        identities.append((program.source.fingerprint, program.fingerprint, taken))
        said |= _said_of(program, taken, has_shares=shares is not None)
    for schema, (_, taken) in zip(schemas, chains, strict=True):
        if not schema.equals(schemas[0]):
            raise SchemaError(
                f"{operator}: the table {taken.table!r} {_difference(schema, schemas[0], chains[0][1].table)}. Give all "
                "tables the same columns and types"
            )
    asked = (operator, identities) if shares is None else (operator, identities, shares)
    source = ShuffledSource(fingerprint(*asked), schemas[0], 0, text_bytes, asked=said)
    buckets = max(1, -(-text_bytes // range_bytes(source)))
    return replace(source, bits=min((buckets - 1).bit_length(), MOST_BUCKET_BITS))


def _said_of(program: Program, taken: Taken, *, has_shares: bool) -> dict[str, Any]:
    """Return the description of one table for an error, if it is not that of the run to resume."""
    of = f" of {taken.table!r}" if taken.table else ""
    said: dict[str, Any] = {f"{name}{of}": Digested(*value) for name, value in printed_source(program.source).items()}
    steps = " -> ".join(step.name for step in program.steps) or "none"
    said[f"the steps{of}"] = Digested(steps, program.fingerprint)
    if not has_shares:  # otherwise the shares determine how often rows are taken
        said[f"epochs{of}"] = taken.epochs
    return {**said, "seed": taken.seed, "column": taken.column}


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
