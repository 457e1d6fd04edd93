# SPDX-License-Identifier: Apache-2.0
"""Join a table by keys with another one, to add its columns or to keep the rows that it has or lacks: `join`."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

import dask.dataframe as dd
import pandas as pd

from curator_df.arguments import choose, listed, require_string, strings_of
from curator_df.core.columns import has_no_type, require_found_columns, require_names, require_table
from curator_df.core.ranges.blocks import BlockKernel, map_blocks
from curator_df.core.ranges.price import Price
from curator_df.errors import ColumnError, ParameterError
from curator_df.io.frames import empty_block
from curator_df.io.output.spool import has_rows, is_spooled, known_meta
from curator_df.io.shuffle.sink import Taken, stored_schema
from curator_df.kernels.compiling import kernel_sets
from curator_df.ops.host_only import require_host
from curator_df.ops.joins.keys import Duplicates, How, Joining, key_kind, require_keys, signed_keys
from curator_df.ops.joins.lookup import hold_frame, join_block
from curator_df.ops.joins.stages import OtherTable, has_no_rows, other_table, row_width, table_join

OPERATOR = "join"
# Measured (tests/contracts/test_memory.py): what `keep_where` takes, and hashes and places of 8 to 16 bytes a row.
PEAK_FACTOR = 1.4
ROW_BYTES = 100
"""Bytes of the rows for which the peak factor holds; a block of shorter ones is halved when it does not fit."""
FREE_BYTES = 25
"""Bytes of the added columns of a row that the peak factor includes."""


def join(
    df: dd.DataFrame,
    other: dd.DataFrame | pd.DataFrame,
    *,
    on: str | Sequence[str] | Mapping[str, str],
    how: How = "left",
    columns: str | Sequence[str] | None = None,
    suffix: str | None = None,
    duplicates: Duplicates = "raise",
) -> dd.DataFrame:
    """Add columns of another table by a key, or keep or drop the rows whose key another table has.

    Parameters
    ----------
    df : dask.dataframe.DataFrame
        The table, whose rows keep their order and their row IDs.
    other : dask.dataframe.DataFrame or pandas.DataFrame
        The other table, such as scores, labels or a list of IDs: one that `read_jsonl`, `read_parquet` or another reader
        returns, with block-by-block steps or without; a pandas DataFrame; or any Dask DataFrame, which Dask computes into
        working files of the running cluster when `join` is called.
    on : str, list of str or dict
        Key column, or several that must all be equal. If the names differ, a dict of the names in ``df`` and in
        ``other``: ``{"id": "doc_id"}``. Keys are text, integers or booleans.
    how : {"left", "inner", "semi", "anti"}, default "left"
        ``"left"``: all rows, with nulls where no row of ``other`` matches. ``"inner"``: only rows with a match.
        ``"semi"``: only rows with a match, without columns of ``other``. ``"anti"``: only rows without a match.
    columns : str or list of str, optional
        Columns of ``other`` to add; by default all but its keys. Not with ``"semi"`` and ``"anti"``, which add none.
    suffix : str, optional
        Suffix for the names of added columns that ``df`` already has.
    duplicates : {"raise", "first"}, default "raise"
        What to do if ``other`` has a key in several rows: stop with an error that names two of them, or take the first
        row in input order. ``"semi"`` and ``"anti"`` add nothing, so repeated keys make no difference to them.

    Returns
    -------
    dask.dataframe.DataFrame
        The rows in order, with their index. Added columns have nullable types, so integers stay integers. Dropped rows
        are counted as ``no_match``, or ``match`` with ``"anti"``.

    Raises
    ------
    ColumnError
        If a table lacks a column, or an added column would overwrite one.
    SchemaError
        If keys have types that differ, such as text and integers, or that cannot be compared, such as floats.
    ParameterError
        If a key is in several rows of ``other`` (for a table that is read from files, when computing), or an argument is
        out of range.
    ExpressionError
        If ``other`` does not begin with a reader of curator_df and no cluster is running, or it has a deferred operation.
    UnsupportedBackendError
        If the blocks are cuDF blocks.
    BudgetError
        When computing, if the keys and columns of ``other`` do not fit into the memory of each worker.

    See Also
    --------
    concat, keep_where, add_ids

    Notes
    -----
    Rows: same with ``how="left"``, otherwise subset. Columns: plus those of the other table, except with ``"semi"`` and
    ``"anti"``. Backends: pandas. Peak extra memory: 1.4 x block, and added columns of more than 25 bytes a row; each worker
    holds the added columns and the keys of the other table. Computes: no; an ``other`` of Dask or pandas is written to
    working files. See ``docs/joining.md``.

    A null key, or one of whose columns is null, matches nothing, also no other null. Keys are compared by their 128-bit
    hashes, as `drop_exact_duplicates` compares texts.

    A table that is read from files has a pass of its own, which writes its keys and columns to temporary files, sorted; a
    resumed run uses these again. Its files are part of the run: if one has changed, a resume is refused and names it.

    Examples
    --------
    >>> import dask.dataframe as dd
    >>> import pandas as pd
    >>> docs = dd.from_pandas(pd.DataFrame({"id": ["a", "b", "c"], "text": ["one", "two", "three"]}), npartitions=1)
    >>> scores = pd.DataFrame({"doc_id": ["c", "a"], "score": [3, 1]})
    >>> docs.pipe(join, scores, on={"id": "doc_id"}).compute()
      id   text  score
    0  a    one      1
    1  b    two   <NA>
    2  c  three      3
    >>> docs.pipe(join, scores, on={"id": "doc_id"}, how="anti").compute()
      id text
    1  b  two
    """
    require_table(df, OPERATOR)
    require_host(df._meta, OPERATOR)
    require_found_columns(df, OPERATOR)
    choose(OPERATOR, "how", how, How)
    choose(OPERATOR, "duplicates", duplicates, Duplicates)
    if isinstance(other, pd.DataFrame):
        _require_names(other)
        other = other.infer_objects()  # a column of objects may hold integers
    else:
        _require_other(other)
        require_found_columns(other, OPERATOR, "the other table")
        if is_spooled(other):  # not only after that was written
            known = known_meta(other)
            _, keys = require_keys(OPERATOR, on, df._meta, known, functools.partial(_may_have_no_values, other, known))
            _names(list(df.columns), _chosen(known, how, columns, suffix, keys), suffix)
        other = other_table(other)
    meta = other if isinstance(other, pd.DataFrame) else other.program.meta
    left, right = require_keys(OPERATOR, on, df._meta, meta, functools.partial(_has_no_values, other))
    chosen = _chosen(meta, how, columns, suffix, right)
    into = _names(list(df.columns), chosen, suffix)
    kinds = tuple(str(key_kind(df.dtypes[name])) for name in left)
    joining = Joining(left, right, how, chosen, into, duplicates, signed_keys(df._meta, meta, left, right), kinds)
    if isinstance(other, pd.DataFrame):
        frame, schema = hold_frame(other, joining)
        kernel = BlockKernel(
            OPERATOR,
            join_block,
            {"joining": joining, "other": frame},
            price=Price(
                _peak_factor(frame.row_bytes),
                held_bytes=frame.held_bytes,
                shared={f"join {frame.digest}": frame.held_bytes},
                is_measured=True,
            ),
            compiled=kernel_sets.CONTENT,
        )
    else:
        schema = stored_schema(meta[list(chosen)], Taken(0))
        widths = row_width(other, schema)
        kernel = table_join(df, other, joining, schema, _peak_factor(widths), widths)
    added = empty_block(schema)
    result = df._meta.assign(**{name: added[column].array for name, column in zip(into, chosen, strict=True)})
    return map_blocks(df, kernel, meta=result)


def _peak_factor(row_bytes: int) -> float:
    """Return the peak factor for added columns of this width."""
    return PEAK_FACTOR + max(row_bytes - FREE_BYTES, 0) / ROW_BYTES


def _has_no_values(other: OtherTable | pd.DataFrame, name: str) -> bool:
    """Return whether a column of the other table has no values, as the ID column of an empty list, which has any type."""
    return bool(other[name].isna().all()) if isinstance(other, pd.DataFrame) else has_no_rows(other)


def _may_have_no_values(other: Any, known: Any, name: str) -> bool:
    """Return whether a column of a table that is not computed yet may have no values, or another type than is known."""
    return has_no_type(known.dtypes[name]) or not has_rows(other)


def _require_names(frame: pd.DataFrame) -> None:
    """Raise `ColumnError` for columns without a name of their own."""
    names = list(frame.columns)
    odd = [name for name in names if not isinstance(name, str) or names.count(name) > 1]
    if odd:
        raise ColumnError(
            f"{OPERATOR}: the other table has columns whose names are not strings, or are used twice: {listed(odd)}. "
            "Rename them first"
        )


def _require_other(other: Any) -> None:
    if isinstance(other, pd.Series) or not hasattr(other, "_meta") or getattr(other, "ndim", 0) != 2:
        raise ParameterError(
            f"{OPERATOR}: the other table is a {type(other).__name__}. Pass a table of read_parquet or read_jsonl, another Dask "
            "DataFrame, or a pandas DataFrame, such as pandas.DataFrame({'id': ids}) for a list of IDs"
        )


def _chosen(meta: Any, how: How, columns: Any, suffix: Any, keys: tuple[str, ...]) -> tuple[str, ...]:
    """Return the columns of the other table that are added."""
    if suffix is not None:
        require_string(OPERATOR, "suffix", suffix)
    if how in ("semi", "anti"):
        for name, value in (("columns", columns), ("suffix", suffix)):
            if value is not None:
                raise ParameterError(
                    f"{OPERATOR}: how={how!r} adds no columns, so {name}= has no meaning. Leave it out, or use how='inner'"
                )
        return ()
    if columns is None:
        return tuple(str(name) for name in meta.columns if name not in keys)
    chosen = strings_of(OPERATOR, "columns", columns)
    require_names(list(meta.columns), f"{OPERATOR}: the other table", *chosen)
    if len(set(chosen)) < len(chosen):
        raise ParameterError(f"{OPERATOR}: columns={columns!r} names a column twice. Name each column once")
    return chosen


def _names(ours: list[Any], chosen: tuple[str, ...], suffix: str | None) -> tuple[str, ...]:
    """Return the names of the added columns in the result."""
    into = tuple(f"{name}{suffix}" if suffix and name in ours else name for name in chosen)
    clashing = [name for name in into if name in ours or into.count(name) > 1]
    if clashing:
        rest = [name for name in chosen if name not in ours]
        way = (
            f"Use another suffix= than {suffix!r}"
            if suffix
            else f"Choose other columns with columns={rest!r}, or set suffix='_other'"
        )
        raise ColumnError(f"{OPERATOR} would overwrite {listed(clashing)} of the table. {way}")
    return into
