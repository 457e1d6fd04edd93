# SPDX-License-Identifier: Apache-2.0
"""Corrections of Dask's optimizer (2026.1 to 2026.8): columns chosen after a step, and groups in several partitions.

Dask moves a choice of columns in front of the step before it. Of ``df.fillna({"n": 0})["n"]`` it makes
``df["n"].fillna({"n": 0})``, which fills rows whose index is ``n``: values that were filled are missing again, in what a run
writes, too. With ``replace``, ``round``, ``where``, ``nlargest`` and a groupby of several columns, the result is an error of
pandas, and with ``corr`` fewer rows. Importing this module makes Dask choose fewer columns in front of such a step, and still the
same ones after it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import pandas as pd
import pyarrow as pa
from dask.dataframe.dask_expr import _expr, _groupby, _merge, _reductions, _shuffle
from dask.dataframe.dask_expr._expr import AsType, Blockwise, Expr, Projection, _DelayedExpr
from dask.dataframe.dask_expr._reductions import Cov, NLargest, Var
from dask.dataframe.dask_expr._repartition import Repartition
from dask.delayed import Delayed
from dask.utils import get_default_shuffle_method
from pandas.api.types import is_bool_dtype, is_extension_array_dtype, is_numeric_dtype

_tune_groupby = _groupby.GroupByApplyConcatApply._tune_down
_lower_shuffle, _lower_merge = _shuffle.Shuffle._lower, _merge.Merge._lower
_plain_projection, _groupby_projection = _expr.plain_column_projection, _groupby.groupby_projection


def choose_before(expr: Any, parent: Any, dependents: Any, additional_columns: Any = None) -> Any:
    """Return a step and the choice after it with fewer columns in front of the step, or None to leave them unchanged."""
    made = _plain_projection(expr, parent, dependents, additional_columns)
    if made is None or not isinstance(parent, Projection) or expr.frame.ndim < 2:
        return made
    if isinstance(expr, Cov):  # each column is compared with all others
        return None
    named = _columns_named(expr)
    if named is None:
        return made
    wanted = {*parent.columns, *named, *(additional_columns or ())}
    kept = [name for name in expr.frame.columns if name in wanted]
    if kept == list(expr.frame.columns):
        return None
    return type(parent)(type(expr)(expr.frame[kept], *expr.operands[1:]), parent.operand("columns"))


def _columns_named(expr: Any) -> list[Any] | None:
    """Return the columns by which a step orders rows, or none if other operands name columns; None if nothing names one."""
    if isinstance(expr, NLargest):
        named = expr.operand("_columns")
        return list(named) if isinstance(named, list | tuple) else [named]
    return [] if any(map(_names_columns, expr.operands[1:])) else None


def _names_columns(operand: Any) -> bool:
    if isinstance(operand, _DelayedExpr):
        operand = operand.operand("obj")
    return isinstance(operand, Mapping | pd.Series | pd.DataFrame | Delayed) or (
        isinstance(operand, Expr) and getattr(operand, "ndim", 0) > 0
    )


def choose_before_groupby(expr: Any, parent: Any, dependents: Any) -> Any:
    """Return a groupby of several columns, of which some are chosen, as a groupby of these columns."""
    if isinstance(expr, _groupby.Cov):  # as for a table
        return None
    columns = expr.operand("_slice") if "_slice" in expr._parameters else None
    if isinstance(parent, Projection) and isinstance(columns, list) and expr.ndim > 1:
        kept = [name for name in columns if name in parent.columns]
        if kept and kept != columns and len(kept) == len(set(parent.columns)):
            operands = dict(zip(expr._parameters, expr.operands, strict=False)) | {"_slice": kept}
            rest = expr.operands[len(expr._parameters) :]
            return type(parent)(type(expr)(*operands.values(), *rest), parent.operand("columns"))
    return _groupby_projection(expr, parent, dependents)


def without_nullable_types(expr: Any) -> Any:
    """Return a variance of a table whose nullable numbers are floats, which NumPy can add; None where there are none."""
    if expr.frame.ndim < 2:
        return None
    types = expr.frame._meta.dtypes
    nullable = {
        name: "float64"
        for name, kind in types.items()
        if is_extension_array_dtype(kind) and is_numeric_dtype(kind) and not is_bool_dtype(kind)
    }
    return type(expr)(AsType(expr.frame, nullable), *expr.operands[1:]) if nullable else None


def in_one_partition(expr: Any) -> Any:
    """Return groups that Dask cannot shuffle in one partition, unless the user named a number; of others, Dask's number.

    From 16 partitions on, Dask gives groups several, and raises a ``ValueError`` for covariances and the first rows of groups.
    On a cluster its shuffle fails for values that are lists or structs, too.
    """
    if expr.operand("split_out") is None and (
        isinstance(expr, _groupby.Cov | _groupby.Head) or _has_nested_groups(expr)
    ):
        return expr.substitute_parameters({"split_out": 1})
    return _tune_groupby(expr)


def shuffled_by_tasks(expr: Any) -> Any:
    """Return a shuffle of lists or structs as tasks, which pickle them: Dask's P2P fails with such columns."""
    if expr.method in (None, "p2p") and _is_nested(expr.frame._meta):
        expr = expr.substitute_parameters({"method": "tasks"})
    return _lower_shuffle(expr)


def merged_by_tasks(expr: Any) -> Any:
    """Return a merge of tables with lists or structs that shuffles them as tasks; see `shuffled_by_tasks`."""
    if expr.shuffle_method in (None, "p2p") and (_is_nested(expr.left._meta) or _is_nested(expr.right._meta)):
        expr = expr.substitute_parameters({"shuffle_method": "tasks"})
    return _lower_merge(expr)


def _has_nested_groups(expr: Any) -> bool:
    lowered = expr._lower() if isinstance(expr, _groupby.GroupbyAggregation) else expr
    return _is_nested(lowered._meta_chunk)


def _is_nested(meta: Any) -> bool:
    """Return whether Dask would shuffle a table or column by P2P, and it has lists or structs."""
    types = [meta.dtype] if meta.ndim == 1 else meta.dtypes
    return get_default_shuffle_method() == "p2p" and any(
        isinstance(kind, pd.ArrowDtype) and pa.types.is_nested(kind.pyarrow_dtype) for kind in types
    )


class _Ends(Blockwise):  # type: ignore[misc]
    """First or last rows of each partition. Dask's own are those of one partition after some simplifications."""

    _parameters: ClassVar[list[str]] = ["frame", "n", "is_last"]

    @staticmethod
    def operation(rows: Any, n: int, is_last: bool) -> Any:
        return rows[max(len(rows) - n, 0) :] if is_last else rows[:n]


def look_at_all_groups(expr: Any) -> Any:
    """Return a look at the first or last rows of groups that looks at all of their partitions; None of other tables.

    Dask splits groups into partitions after it chose the only one that there was: the look saw a part of the groups, or none.
    """
    if type(expr) not in (_expr.Head, _expr.Tail) or expr.frame.npartitions > 1 or isinstance(expr.frame, Repartition):
        return None
    kinds = (_groupby.GroupByApplyConcatApply, _groupby.GroupByReduction)
    if not any(isinstance(node, kinds) and node.operand("split_out") is None for node in expr.frame.walk()):
        return None
    ends = expr.frame if expr.n < 0 else _Ends(expr.frame, expr.n, isinstance(expr, _expr.Tail))
    return type(expr)(Repartition(ends, new_partitions=1), *expr.operands[1:])


_expr.plain_column_projection = _reductions.plain_column_projection = choose_before
_groupby.groupby_projection = choose_before_groupby
Var._simplify_down = without_nullable_types
_groupby.GroupByApplyConcatApply._tune_down = in_one_partition
_expr.Head._tune_down = _expr.Tail._tune_down = look_at_all_groups
_shuffle.Shuffle._lower = shuffled_by_tasks
_merge.Merge._lower = merged_by_tasks
