# SPDX-License-Identifier: Apache-2.0
"""Columns of a table: checks of their names and types when an operator is called, and the memory that many of them need."""

from __future__ import annotations

import difflib
from collections.abc import Hashable, Iterable
from typing import Any

import pandas as pd
import pyarrow as pa
from dask.dataframe.dask_expr import FrameBase

from curator_df.arguments import MOST_LISTED, listed
from curator_df.errors import ColumnError, ExpressionError, ParameterError, SchemaError
from curator_df.suggestions import did_you_mean

_UNKNOWN = "__UNKNOWN_CATEGORIES__"
"""Category by which Dask marks a column whose categories are known only when it is read."""
COLUMN_BYTES = 40_000
"""Bytes that a task and the plan hold for each column (each leaf of a nested one) from the reader to the written file.

Measured as the growth of ``measured_bytes`` from 20 columns to 1,000 and 5,000, each of 50 rows, on one thread, from Parquet to
Parquet: 24 to 27 kB for integers, 22 for strings, 27 for lists, 23 for structs, 26 for lists of structs; up to 32 where other
processes are busy. Of these, the writer has 3.5 to 5.5, reading 12 to 22, two thirds of which are freed pieces of memory that the
allocator keeps. From JSON Lines to Parquet 16 to 23, to JSON Lines 21 to 28; from CSV to Parquet 26 to 31. Without a share in
the plan, 10,000 columns and a budget of 500 MB ended the whole process."""
TEXT_COLUMNS = ("text", "content", "raw_content", "body", "document", "page", "article")
"""Usual names of a column of documents, by which errors show how to name one."""
FREE_COLUMNS = 1_000
"""Number of columns for which the fixed bytes of any task have room."""


def require_table(df: Any, operator: str) -> None:
    """Raise `ExpressionError` unless ``df`` is a Dask DataFrame.

    Examples
    --------
    >>> require_table(None, "add_ids")
    Traceback (most recent call last):
    ...
    curator_df.errors.ExpressionError: add_ids expected a Dask DataFrame, as read_jsonl or read_parquet return it; got NoneType
    """
    if isinstance(df, FrameBase) and df.ndim == 2:
        return
    advice = ""
    if isinstance(df, FrameBase) and df.ndim == 1:
        advice = f" (df[[{df.name!r}]], with two brackets, is a DataFrame)"
    elif isinstance(df, pd.DataFrame):
        advice = " of pandas; convert it with dask.dataframe.from_pandas(df, npartitions=1)"
    raise ExpressionError(
        f"{operator} expected a Dask DataFrame, as read_jsonl or read_parquet return it; got {type(df).__name__}{advice}"
    )


def require_columns(df: Any, operator: str, *names: str, parameter: str = "") -> None:
    """Raise `ColumnError` unless ``df`` has exactly one column of every name.

    With ``parameter``, which names a column of texts, the message shows how to name another one.

    Examples
    --------
    >>> import pandas as pd, dask.dataframe as dd
    >>> docs = dd.from_pandas(pd.DataFrame({"id": [1]}), npartitions=1)
    >>> require_columns(docs, "keep_profile", "text")
    Traceback (most recent call last):
    ...
    curator_df.errors.ColumnError: keep_profile needs the column 'text'; the table has: 'id'
    """
    require_table(df, operator)
    columns = list(df.columns)
    try:
        require_names(columns, operator, *names)
    except ColumnError as exc:
        if why := "" if columns else why_no_columns(df):
            raise ColumnError(
                f"{operator} needs the {'column' if len(names) == 1 else 'columns'} {listed(names)}, but the table has "
                f"no columns, because {why}. Check the paths and the files"
            ) from None
        if left := [
            name for name in names if name not in columns and any(name in left_out(node) for node in df.expr.walk())
        ]:
            them, end = "them" if len(left) > 1 else "it", "" if str(exc).endswith("?") else "."
            raise ColumnError(
                f"{exc}{end} An earlier selection of columns, such as df[[...]] or drop, left out {listed(left)}: keep {them} "
                f"until {operator} has run"
            ) from None
        texts = [column for column, kind in df.dtypes.items() if isinstance(column, str) and is_text(kind)]
        end = "" if str(exc).endswith("?") else "."
        if parameter and texts and not set(names) <= set(columns) and (end or "text" in names):
            likely = next((column for column in texts if column in TEXT_COLUMNS), texts[0])
            raise ColumnError(f"{exc}{end} Name the column to use, as in {parameter}={likely!r}") from None
        raise


def require_found_columns(df: Any, operator: str, table: str = "the table") -> None:
    """Raise `ColumnError` if a table has no columns because its files have no rows."""
    if why := why_no_columns(df) if not len(df.columns) and hasattr(df, "expr") else "":
        raise ColumnError(
            f"{operator} needs columns, but {table} has no columns, because {why}. Check the paths and the files"
        )


def left_out(expression: Any) -> list[Any]:
    """Return the columns that a selection of columns, such as ``df[["id"]]``, leaves out; none for other operations.

    Examples
    --------
    >>> import dask.dataframe as dd
    >>> docs = dd.from_pandas(pd.DataFrame({"id": [1], "text": ["a"]}), npartitions=1)
    >>> left_out(docs[["id"]].expr), left_out(docs.drop(columns="id").expr), left_out(docs.expr)
    (['text'], ['id'], [])
    """
    if type(expression).__name__ not in ("Projection", "Drop") or expression.ndim != 2:
        return []
    return [name for name in expression.frame.columns if name not in expression.columns]


def why_no_columns(df: Any) -> str:
    """Explain why no columns were found in the input; empty if some were, or the reason is unknown."""
    for node in df.expr.walk():
        source: Any = getattr(node.operand("func"), "source", None) if "func" in node._parameters else None
        if hasattr(source, "why_no_columns") and not len(source.meta.columns):
            return str(source.why_no_columns())
    return ""


def require_names(columns: list[Any], operator: str, *names: str) -> None:
    """Raise `ColumnError` unless exactly one of these columns has every name."""
    for name in names:
        if not isinstance(name, Hashable):
            raise ParameterError(f"{operator}: {name!r} must be the name of one column, not a {type(name).__name__}")
    missing = [name for name in names if name not in columns]
    if missing:
        wanted = "columns" if len(missing) > 1 else "column"
        raise ColumnError(
            f"{operator} needs the {wanted} {listed(missing)}; the table has: {listed(_nearest_first(missing, columns))}"
            + did_you_mean_column(missing, columns)
        )
    for name in names:
        if columns.count(name) > 1:
            raise ColumnError(
                f"{operator} cannot distinguish the {columns.count(name)} columns named {name!r}. Rename or drop all but one"
            )


def require_text(df: Any, operator: str, name: str, *, parameter: str = "text") -> None:
    """Raise an error unless ``name``, the value of a parameter, is a column of strings."""
    require_table(df, operator)
    if not isinstance(name, str):
        raise ParameterError(
            f"{operator}: {parameter}={name!r} must be the name of one column (a str), not {type(name).__name__}"
        )
    require_columns(df, operator, name, parameter=parameter)
    dtype = df.dtypes[name]
    if not is_text(dtype):
        raise SchemaError(
            f"{operator} needs text in the column {name!r}, which holds {dtype}; "
            f"name another column with {parameter}=, or read it as text with dtype={{{name!r}: 'string'}}"
        )


def refuse_columns(df: Any, operator: str, *names: str, parameter: str | None = "into") -> None:
    """Raise `ColumnError` if a new column already exists: operators never overwrite columns.

    Parameters
    ----------
    df : dask.dataframe.DataFrame
    operator : str
    *names : str
        Names of the new columns.
    parameter : str or None
        Parameter that names them; None if their names are fixed.
    """
    require_table(df, operator)
    for name in names:
        if not isinstance(name, str):
            named = "a new column" if parameter is None else f"{parameter}="
            raise ParameterError(f"{operator}: {named} must be a str, not {name!r}")
    clashing = [name for name in names if name in df.columns]
    if clashing:
        way = "" if parameter is None else f"choose another name with {parameter}=, or "
        them = "those columns" if len(clashing) > 1 else "that column"
        raise ColumnError(f"{operator} would overwrite {listed(clashing)}; {way}drop or rename {them} first")


def is_text(dtype: Any) -> bool:
    """Return whether a dtype holds strings, in pandas or cuDF, also as categories.

    Examples
    --------
    >>> is_text(pd.CategoricalDtype(["a", "b"])), is_text(pd.CategoricalDtype([1, 2]))
    (True, False)
    """
    if isinstance(dtype, pd.CategoricalDtype):
        return dtype.categories is None or is_text(dtype.categories.dtype)
    if isinstance(dtype, pd.ArrowDtype):
        return bool(pa.types.is_string(dtype.pyarrow_dtype) or pa.types.is_large_string(dtype.pyarrow_dtype))
    return isinstance(dtype, pd.StringDtype) or getattr(dtype, "kind", "") == "O"


def has_unknown_categories(dtype: Any) -> bool:
    """Return whether a dtype is that of categories that Dask knows only when a block is computed."""
    return isinstance(dtype, pd.CategoricalDtype) and (dtype.categories is None or _UNKNOWN in dtype.categories)


def has_no_type(dtype: Any) -> bool:
    """Return whether a column of this dtype has only nulls, so that it can take any type: Arrow's null, or no categories.

    Examples
    --------
    >>> has_no_type(pd.ArrowDtype(pa.null())), has_no_type(pd.CategoricalDtype([])), has_no_type(pd.Int64Dtype())
    (True, True, False)
    """
    if isinstance(dtype, pd.CategoricalDtype):
        return dtype.categories is not None and not len(dtype.categories)
    return isinstance(dtype, pd.ArrowDtype) and bool(pa.types.is_null(dtype.pyarrow_dtype))


def did_you_mean_column(missing: Iterable[Any], columns: Iterable[Any]) -> str:
    """Return a period and a sentence that suggests the column most similar to a missing one; empty if none is similar.

    Examples
    --------
    >>> did_you_mean_column(["txt"], ["url", "text"])
    ". Did you mean 'text'?"
    """
    names = [column for column in columns if isinstance(column, str)]
    hints = (did_you_mean(name, names) for name in missing if isinstance(name, str))
    return next((f".{hint}" for hint in hints if hint), "")


def _nearest_first(missing: Iterable[Any], columns: list[Any]) -> list[Any]:
    """Return the columns of a table; if there are many, those most similar to the missing ones come first."""
    if len(columns) <= MOST_LISTED:
        return columns
    names = {str(column): column for column in columns}
    near = [names[close] for name in missing for close in difflib.get_close_matches(str(name), names, cutoff=0.5)]
    return list(dict.fromkeys([*near, *columns]))


def leaf_columns(kind: Any) -> int:
    """Return the number of columns without nested ones in a type: each has its own decoder and encoder.

    Examples
    --------
    >>> leaf_columns(pa.list_(pa.struct({"a": pa.int64(), "b": pa.string()})))
    2
    >>> leaf_columns(pd.StringDtype())
    1
    """
    kind = getattr(kind, "pyarrow_dtype", kind)
    if isinstance(kind, pa.BaseExtensionType):
        return leaf_columns(kind.storage_type)
    if isinstance(kind, pa.DataType) and pa.types.is_nested(kind):
        return sum(leaf_columns(kind.field(place).type) for place in range(kind.num_fields))
    return 1


def column_bytes(count: int) -> int:
    """Return the bytes that a task needs for this many columns without nested ones, in addition to its fixed bytes."""
    return COLUMN_BYTES * max(count - FREE_COLUMNS, 0)
