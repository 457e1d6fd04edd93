# SPDX-License-Identifier: Apache-2.0
"""Drop exact duplicates, rows whose content (or other columns) equals that of a kept row: `drop_exact_duplicates`."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, NoReturn, cast

import dask.dataframe as dd
import numpy as np

from curator_df.arguments import choose, strings_of
from curator_df.core.backend import backend_of, integer_column, require_backend
from curator_df.core.columns import refuse_columns, require_columns, require_table
from curator_df.core.planning.lowering import require_addresses
from curator_df.core.ranges.blocks import BlockKernel, map_blocks
from curator_df.core.ranges.price import Price
from curator_df.core.runner.passes import DROP_PEAK_FACTOR
from curator_df.core.tasks.task import OnError, OnOom
from curator_df.errors import ParameterError, PendingError, SchemaError
from curator_df.exchange.content_keys import content_keys
from curator_df.exchange.dropped_rows import DROP_READER_BYTES
from curator_df.exchange.exchange import Keep
from curator_df.exchange.key_drop import KeyDrop
from curator_df.exchange.keys import KeptRows, Keys, address_after
from curator_df.exchange.stored_keys import KEY_COLUMN, KeyFolder, require_keys, stored_keys
from curator_df.files.storage import Folder
from curator_df.io.output.files import FileSink
from curator_df.io.output.formats import TARGET_FILE_BYTES, ParquetFormat, folder_at
from curator_df.kernels.compiling import kernel_sets
from curator_df.kernels.device.support import COLUMN_FACTOR, hashes_price
from curator_df.kernels.rows.content_hash import Normalize
from curator_df.kernels.rows.either_backend import require_device_text
from curator_df.ops.duplicates.group_table import GroupTable, exact_matches
from curator_df.ops.duplicates.groups import (
    find_groups,
    found_drops,
    named_by,
    require_same_parameters,
    require_same_table,
)
from curator_df.ops.duplicates.index import Index
from curator_df.ops.duplicates.index_runs import index_use, require_alone
from curator_df.ops.host_only import FIXED_WIDTH
from curator_df.suggestions import suggests_names

Survivor = Literal["first", "last", "longest", "none"]
REASON = "exact_duplicate"
COUNT_FACTOR = 0.6
"""Peak extra bytes of counts as a multiple of the block's: 17 a row and 8 while they are found, of rows of at least 40 bytes."""
ALL_ROWS = "which rows it drops is known only when all rows have been read"


@suggests_names
@dataclass(frozen=True)
class Best:
    """Keep the row with the largest or smallest value of a column (see `best`).

    See Also
    --------
    best, drop_exact_duplicates
    """

    column: str
    """A column of numbers."""
    which: Literal["max", "min"]
    """Value that wins. Among equal values the first in input order wins; a missing value loses."""


def best(column: str, which: Literal["max", "min"] = "max") -> Best:
    """Select, among duplicates, the row with the largest (or smallest) value of a column to keep.

    Parameters
    ----------
    column : str
        A column of numbers.
    which : {"max", "min"}
        Value that wins. Among equal values the first in input order wins. A missing value loses to any other.

    Returns
    -------
    Best
        For the ``keep=`` of a ``drop_`` operator: ``keep=cdf.best("score")``.

    Raises
    ------
    ParameterError
        If ``which`` is neither of these.

    See Also
    --------
    drop_exact_duplicates, drop_near_duplicates

    Notes
    -----
    Computes: no.

    Examples
    --------
    >>> best("score")
    Best(column='score', which='max')
    """
    choose("best", "which", which, Literal["max", "min"])
    return Best(column, which)


def drop_exact_duplicates(
    df: dd.DataFrame,
    *,
    subset: str | Sequence[str] = "text",
    normalize: Normalize | None = None,
    keep: Survivor | Best = "first",
    against: dd.DataFrame | None = None,
    keep_keys: str | os.PathLike[str] | None = None,
    index: Index | None = None,
    count_into: str | None = None,
    groups: dd.DataFrame | str | os.PathLike[str] | None = None,
) -> dd.DataFrame:
    """Keep one, or none, of all rows that have the same text, or the same values in several columns.

    Parameters
    ----------
    df : dask.dataframe.DataFrame
        A table of Dask. A chain on one of the readers is streamed; any other table is first computed into working files.
    subset : str or list of str
        Column or columns whose values must all be equal: text, integers, booleans or floats. Nulls are equal to each other.
    normalize : {"case_and_spaces"}, optional
        Compare texts in lower case, with each run of white space as one space and the ends stripped. The texts are not
        changed.
    keep : {"first", "last", "longest", "none"} or `best`
        Which row to keep, independent of blocks and workers: the first or last in input order, the one with the longest
        text (in characters), or the one with the best value of a column. ``"none"`` drops all rows of a group of two or
        more, as ``keep=False`` does in pandas.
    against : dask.dataframe.DataFrame, optional
        Table of other rows, for example of data sets curated earlier: one that ``keep_keys`` wrote, with the column
        ``content_key``, or else one with the columns of ``subset``. A row that equals one of these is dropped, whatever
        ``keep`` is; rows of this table are not compared with each other.
    keep_keys : str or path, optional
        Folder (or URL) for the keys of the rows that this drop keeps, written as Parquet by the same run: ``content_key`` (24
        bytes), ``file`` and ``offset`` of each row. ``against=cdf.read_parquet(keep_keys)`` then drops equal rows of another
        table without reading these texts again. A separate folder, outside the output; ``on_existing`` applies to it too.
    index : Index, optional
        What `open_index` returned, without a scheme. A row that equals one of its documents is dropped, and when
        the run is complete, the rows that it kept are appended. The drop must then be the last step, and ``keep`` must not be
        ``"none"``.
    count_into : str, optional
        New column (``Int64``): the number of input rows that each kept row stands for, itself included; 1 for a row
        without duplicates. Use it with `repeat_rows`.
    groups : dask.dataframe.DataFrame, str or path, optional
        The table that `find_exact_duplicates` returned for this input (or its folder). Nothing is computed again, and
        the parameters are those it was called with.

    Returns
    -------
    dask.dataframe.DataFrame
        The table with a deferred drop. The writers and `checkpoint` run it; in a cluster of curator_df, so do ``head()``,
        ``len()`` and ``compute()``.

    Raises
    ------
    ColumnError
        If a column is missing.
    ParameterError
        If ``groups`` were found for another table, or with other parameters than given here; or if they are given with
        ``against``, ``keep_keys`` or ``index``; or if ``index`` has other settings.
    SchemaError
        When it runs, if the keys of ``against`` were made with another ``normalize`` or another number of columns.
    InputError
        If ``groups`` were not written by a ``find_`` operator.
    UnsupportedBackendError
        If the blocks are cuDF blocks, except when whole texts of one column are compared and the first or the last is
        kept; and always with ``against``, ``keep_keys`` or ``index``.
    PendingError
        From ``head()``, ``len()`` or ``compute()`` on the result outside a cluster of curator_df.

    See Also
    --------
    find_exact_duplicates, drop_near_duplicates, remove_repeated_parts

    Notes
    -----
    Rows: subset, order kept. Columns: same; with ``count_into`` plus the count. Backends: pandas; cudf for texts of one
    column. Peak extra memory: 1.4 x block; with ``count_into`` 2.0 x block. Computes: no; writing reads the input once
    more for each drop; with ``groups=`` or ``against=`` tables of Dask or pandas are written to working files.

    The preceding steps run twice: once to hash the rows (MurmurHash3, 128 bits) and once to write them. Only hashes and
    addresses are exchanged, 24 to 32 bytes per row, in files below the output folder. Null is a value like any other:
    of all rows without text, one is kept. If no step precedes the drop, the rows that it drops are parsed only once, unless
    the writer has ``rejects=``.

    The last drop of a chain needs no pass of its own if it keeps the first rows, if the input has 64 MB or more and one output,
    and if the keys fit into the memory of one machine (not with ``count_into``, ``against``, ``keep_keys``, ``index`` or
    ``groups``). The rows are the same; `explain` shows which way is taken.

    To remove repeated lines or paragraphs from texts, use `remove_repeated_parts`.

    Examples
    --------
    >>> import pandas as pd, dask.dataframe as dd
    >>> docs = dd.from_pandas(pd.DataFrame({"text": ["a", "b", "a"]}), npartitions=1)
    >>> drop_exact_duplicates(docs).columns.tolist()
    ['text']
    """
    if groups is None:
        more = (against, keep_keys, index)
        return _pending(df, "drop_exact_duplicates", subset, normalize, keep, count_into=count_into, more=more)
    if any(each is not None for each in (against, keep_keys, index)):
        raise ParameterError(
            "drop_exact_duplicates: groups= already says which rows are duplicates, so against=, keep_keys= and index= "
            "cannot be used with it. Leave out groups=, or leave out the others"
        )
    given = _as_json(subset, normalize, keep)
    home, found = found_drops(groups, "drop_exact_duplicates")
    if given != _as_json("text", None, "first"):
        require_same_parameters("drop_exact_duplicates", found, given)
    keep = Best(**found["keep"]) if isinstance(found["keep"], dict) else found["keep"]
    pending = _pending(df, "drop_exact_duplicates", found["subset"], found["normalize"], keep, home, count_into)
    require_same_table(pending, "drop_exact_duplicates", home)
    return pending


def find_exact_duplicates(
    df: dd.DataFrame,
    *,
    subset: str | Sequence[str] = "text",
    normalize: Normalize | None = None,
    keep: Survivor | Best = "first",
    id: str | None = None,  # noqa: A002 - what users call it
    workdir: str | os.PathLike[str] | None = None,
    on_error: OnError = "raise",
    on_oom: OnOom = "retry",
    storage_options: dict[str, Any] | None = None,
) -> dd.DataFrame:
    """Find the groups of equal rows of which `drop_exact_duplicates` would keep one, or none.

    Parameters
    ----------
    df : dask.dataframe.DataFrame
        A table of Dask. A chain on one of the readers is streamed; any other table is first computed into working files.
    subset, normalize, keep
        As in `drop_exact_duplicates`.
    id : str, optional
        Column of text or integers that identifies the rows, to include in the table. This needs one more pass over the
        preceding steps.
    workdir : str or path, optional
        Folder (or URL) visible to all workers. The result is stored in its own subfolder, complete or interrupted,
        where the same call finds it again (even from another process, with another ``memory=``). Defaults to the
        cluster's ``workdir``.
    on_error : {"raise", "quarantine"}
        What to do when a step fails on a row of ``df``; see `write_parquet`. Quarantined rows are not
        compared; they are in ``_curator/drops/_quarantine/`` of that folder.
    on_oom : {"retry", "raise"}
        What to do when memory runs out in a pass over ``df``; see `write_parquet`. Quarantined rows go to the same
        place.
    storage_options : dict, optional
        fsspec options.

    Returns
    -------
    dask.dataframe.DataFrame
        A table on disk, for the ``groups=`` of `drop_exact_duplicates`. Lazy, with a row for each row that is in a
        group, as for `find_near_duplicates`: with ``id=`` first ``id`` and ``matched_id``; ``address`` (identifies a
        row of the input), ``file`` and ``offset`` (bytes into the decompressed file, or the row number for Parquet);
        ``group`` (the row ID of the row that is kept), ``group_size`` (rows), ``kept``; ``matched_address``,
        ``matched_file`` and ``matched_offset`` of the row that is kept, and ``jaccard``, which is 1 (the ``matched_``
        columns and ``jaccard`` are null for the row that is kept). With ``keep="none"``, ``group`` and the match are the
        first row of the group, and the match of that row is the second. `read_receipt` tells how many rows were compared.

    Raises
    ------
    BudgetError
        If the plan does not fit the budget; nothing has been started.
    ColumnError
        If a column is missing.
    NoClusterError
        If no cluster is running.

    See Also
    --------
    drop_exact_duplicates, find_near_duplicates, split_rows

    Notes
    -----
    Rows: one for each member of a group of two or more. Columns: with ``id=`` ``id`` and ``matched_id``; ``address``,
    ``file`` and ``offset``; ``group``, ``group_size`` and ``kept``; ``matched_address``, ``matched_file`` and
    ``matched_offset``: the row that it repeats, and ``jaccard``. Peak extra memory: 1.5 x block. Computes: yes.

    Pass the result to ``drop_exact_duplicates(df, groups=...)``, which then only writes the rows.

    Examples
    --------
    >>> docs = cdf.read_jsonl("corpus/")  # doctest: +SKIP
    >>> groups = cdf.find_exact_duplicates(docs, id="id", workdir="exact/")  # doctest: +SKIP
    >>> kept = docs.pipe(cdf.drop_exact_duplicates, groups=groups)  # doctest: +SKIP
    """
    pending = _pending(df, "find_exact_duplicates", subset, normalize, keep)
    parameters = _as_json(subset, normalize, keep)
    table = named_by(GroupTable(exact_matches), df, "find_exact_duplicates", id)
    return find_groups(pending, "find_exact_duplicates", parameters, workdir, storage_options, table, on_error, on_oom)


def _pending(
    df: Any,
    operator: str,
    subset: str | Sequence[str],
    normalize: Normalize | None,
    keep: Survivor | Best,
    home: Folder | None = None,
    count_into: str | None = None,
    more: tuple[Any, Any, Any] = (None, None, None),
) -> Any:
    columns = strings_of(operator, "subset", subset)
    if not columns:
        raise ParameterError(f"{operator}: subset=[] names no column. Name at least one column to compare")
    require_columns(df, operator, *columns, parameter="subset" if columns == ("text",) else "")
    backend_of(df._meta)  # an error unless it is pandas or cuDF
    require_device_text(operator, df._meta, columns)
    require_addresses(df, operator)
    if normalize is not None:
        choose(operator, "normalize", normalize, Normalize)
    rank_column = ranked_by(df, operator, keep)
    parameters = {"columns": columns, "normalize": normalize, "ranked_by": rank_column}
    needed = (*columns, rank_column) if rank_column is not None and rank_column in df.columns else columns
    pending = KeyDrop(content_keys, parameters, survivor_policy(operator, keep), REASON, home, needed, count_into)
    if any(each is not None for each in more):
        pending = _with_kept(df, operator, pending, columns, normalize, *more)
    # One name for both, so that what is found is what is dropped.
    hash_factor, hash_bytes = hashes_price(normalized=normalize is not None)
    kernel = BlockKernel(
        "drop_exact_duplicates",
        refuse_block,
        {"operator": "drop_exact_duplicates"},
        price=Price(
            DROP_PEAK_FACTOR + (0.0 if count_into is None else COUNT_FACTOR),
            held_by_task=count_reader_bytes(count_into),
            device_peak_factor=1.0 + hash_factor + (COLUMN_FACTOR if rank_column is not None else 0.0),
            device_fixed_bytes=hash_bytes,
            is_measured=True,
        ),
        pending=pending,
        compiled=hash_kernels(normalize) + (kernel_sets.FIRST_KEYS if operator == "drop_exact_duplicates" else ()),
    )
    return map_blocks(df, kernel, meta=counted_meta(df, operator, count_into, keep))


def _with_kept(
    df: Any,
    operator: str,
    pending: KeyDrop,
    columns: tuple[str, ...],
    normalize: Normalize | None,
    against: Any,
    keep_keys: Any,
    index: Any,
) -> KeyDrop:
    """Return a drop that also compares with the rows of another table, and writes the keys of its own kept rows."""
    require_backend(df._meta, f"{operator} with against=, keep_keys= or index=", "pandas", because=FIXED_WIDTH)
    of_keys: dict[str, Any] = {"column": KEY_COLUMN, "columns": len(columns), "normalize": normalize}
    if index is not None:
        require_alone(operator, pending.keep, {"against": against, "keep_keys": keep_keys})
        use = index_use(df, operator, index, {"scheme": None, "subset": columns, "normalize": normalize})
        pending = dataclasses.replace(pending, index=use, kept_keys=stored_keys, kept_parameters=of_keys)
        return cast(KeyDrop, use.bound(pending, None, "raise"))
    if keep_keys is not None:
        sink = FileSink(folder_at(keep_keys, None), ParquetFormat("zstd"), TARGET_FILE_BYTES)
        pending = dataclasses.replace(pending, side_output=KeyFolder(sink, columns, normalize))
    if against is None:
        return pending
    require_table(against, f"{operator}: against=")
    parameters: dict[str, Any] = {"columns": columns, "normalize": normalize, "ranked_by": None}
    if KEY_COLUMN not in against.columns:
        require_columns(against, f"{operator}: against=", *columns)
        table, keys, column = against[list(columns)], cast("Callable[..., Keys]", content_keys), ""
    else:
        require_keys(against.dtypes[KEY_COLUMN], KEY_COLUMN)
        table, keys, column = against[[KEY_COLUMN]], stored_keys, KEY_COLUMN
        parameters = of_keys
    kept = KeptRows.of(table, column, address_after(df))
    return dataclasses.replace(pending, against=kept, kept_keys=keys, kept_parameters=parameters)


def count_reader_bytes(count_into: str | None) -> dict[str, int]:
    """Return the memory that each task keeps to read the counts of kept rows, by its name; empty without counts.

    A task reads them through a whole input split, so each counting drop of a chain adds its own.
    """
    return {} if count_into is None else {f"counts in {count_into!r}": DROP_READER_BYTES}


def counted_meta(df: Any, operator: str, count_into: str | None, keep: Any) -> Any:
    """Return the columns of the kept rows, with their counts if they are wanted."""
    if count_into is None:
        return df._meta
    if keep == "none":
        raise ParameterError(
            f"{operator}: count_into={count_into!r} counts the rows that a kept row stands for, and with keep='none' each stands "
            "for itself only. Leave out count_into=, or keep one row of each group"
        )
    refuse_columns(df, operator, count_into)
    return df._meta.assign(**{count_into: integer_column(df._meta, np.zeros(0, np.int64))})


def hash_kernels(normalize: Normalize | None) -> tuple[str, ...]:
    """Return the kernels that hash texts."""
    return kernel_sets.CONTENT if normalize is None else kernel_sets.NORMALIZED_CONTENT


def _as_json(subset: str | Sequence[str], normalize: Normalize | None, keep: Survivor | Best) -> dict[str, Any]:
    columns = [subset] if isinstance(subset, str) else list(subset)
    return {"subset": columns, "normalize": normalize, "keep": asdict(keep) if isinstance(keep, Best) else keep}


def refuse_block(block: Any, *, operator: str, waits_for: str = ALL_ROWS) -> NoReturn:  # noqa: ARG001 - a kernel's face
    """Refuse to run block by block."""
    raise PendingError(
        f"{operator} needs a full pass over the rows: {waits_for}. head(), len() and compute() run this pass only in a cluster "
        "of curator_df. Start one with start_cluster() and run the same line again"
    )


def survivor_policy(operator: str, keep: Survivor | Best) -> Keep:
    """Return which row of a group stays, as an exchange knows it."""
    if isinstance(keep, Best):
        return "largest" if keep.which == "max" else "smallest"
    if str(keep) == "best":
        raise ParameterError(f"{operator}: keep='best' needs a column to compare: keep=curator_df.best('score')")
    choose(operator, "keep", keep, Survivor)
    return "largest" if keep == "longest" else keep


def ranked_by(df: Any, operator: str, keep: Survivor | Best) -> str | None:
    """Return the column by which the kept row is chosen (``"#length"``: by the length of the text), None for a place."""
    if isinstance(keep, Best):
        require_columns(df, operator, keep.column)
        if getattr(df.dtypes[keep.column], "kind", "O") not in "iufb":
            raise SchemaError(
                f"{operator}: keep=best({keep.column!r}) needs numbers, but the column {keep.column!r} holds "
                f"{df.dtypes[keep.column]}. Name a column of numbers"
            )
        return keep.column
    if keep == "longest":
        return "#length"
    return None
