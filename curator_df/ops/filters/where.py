# SPDX-License-Identifier: Apache-2.0
"""Keep rows by the user's own condition: `keep_where`. Unlike ``df[condition]``, what it drops is counted."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import dask.dataframe as dd
import pandas as pd
from dask.dataframe.dask_expr import FrameBase

from curator_df.arguments import require_string
from curator_df.core.backend import backend_of
from curator_df.core.columns import did_you_mean_column, require_found_columns, require_table
from curator_df.core.ranges.blocks import BlockKernel, Outcome, map_blocks
from curator_df.core.ranges.price import Price
from curator_df.core.ranges.set_up import SetUp, set_up
from curator_df.errors import ColumnError, ParameterError
from curator_df.kernels.metrics.catalog import METRICS
from curator_df.kernels.rows.keep_rows import keep_rows
from curator_df.memory.resources import NO_LIMITS
from curator_df.memory.torch_memory import torch_peaks
from curator_df.ops.rows.row_values import require_row_values

# Measured (benchmarks/kernel_memory.py, 32 MB of text, all rows but one kept, an expression on a number): 1.00
# on prose, one-letter words, CJK and one huge row, 1.18 on rows of 100 bytes.
PEAK_FACTOR = 1.2


def keep_where(df: dd.DataFrame, predicate: Callable[[Any], Any] | str, *, reason: str = "keep_where") -> dd.DataFrame:
    """Keep the rows for which a condition holds.

    Parameters
    ----------
    df : dask.dataframe.DataFrame
        The table.
    predicate : callable or str
        Either a function of a block (a pandas DataFrame, or a cuDF one if the table is) that returns a boolean Series
        with the block's index, or an expression over the columns for ``DataFrame.eval``, such as
        ``"score > 3 and lang == 'en'"``. An object may have ``setup_on_node()``, ``setup()`` and ``teardown()``; see Notes.
    reason : str, default "keep_where"
        Name under which the dropped rows are counted.

    Returns
    -------
    dask.dataframe.DataFrame
        The rows for which the condition is True, in order, with their index. A row for which it is null is dropped.

    Raises
    ------
    ParameterError
        If the predicate is neither, or the expression cannot be evaluated on this table's columns.
    OperatorError
        When computing, if the predicate returns anything but one boolean for each row of the block.

    See Also
    --------
    keep_profile, keep_class, write_parquet

    Notes
    -----
    Rows: subset. Columns: same. Backends: pandas, cudf. Peak extra memory: 1.2 x block, and the memory of the
    predicate. Computes: no.

    Each worker process creates one copy of an object with setup methods, and all its threads call that copy.
    ``setup_on_node`` is called in one process on each machine in a run, ``setup`` in each process, and ``teardown`` in
    each process when the run ends. The attribute ``held_bytes`` tells the plan how much memory it holds after setup,
    and the attribute ``resources`` what a call takes of its worker (`curator_df.resources`).

    In the rejects, ``reject_rule`` is the expression, or the name of the function.

    Examples
    --------
    >>> import dask.dataframe as dd
    >>> import pandas as pd
    >>> docs = dd.from_pandas(pd.DataFrame({"text": ["a", "b"], "score": [1, 5]}), npartitions=1)
    >>> docs.pipe(keep_where, "score > 3", reason="low_score").compute()
      text  score
    1    b      5
    >>> docs.pipe(keep_where, lambda block: block["text"].str.startswith("a")).compute()
      text  score
    0    a      1
    """
    require_table(df, "keep_where")
    backend_of(df._meta)  # an error unless it is pandas or cuDF
    require_string("keep_where", "reason", reason)
    if not reason:
        raise ParameterError(
            "keep_where: reason= is empty. Give the rows that are dropped a reason, such as 'too_short'"
        )
    if isinstance(predicate, str):
        require_found_columns(df, "keep_where")
        require_expression("keep_where", df._meta, predicate)
    elif isinstance(predicate, FrameBase):
        raise ParameterError(
            "keep_where needs an expression, such as 'score > 0.5', or a function that takes a block of rows (a DataFrame). To "
            "filter by a condition that Dask computes, index the table with it: df[condition]"
        )
    elif not callable(predicate):
        raise ParameterError(
            "keep_where needs an expression, such as 'score > 0.5', or a function that takes a block of rows (a DataFrame); "
            f"found {predicate!r}"
        )
    predicate = set_up("keep_where", predicate)
    kernel = BlockKernel(
        "keep_where",
        keep_where_block,
        {"predicate": predicate, "reason": reason},
        price=Price(
            PEAK_FACTOR,
            device_peak_factor=PEAK_FACTOR,
            held_bytes=predicate.held_bytes if isinstance(predicate, SetUp) else 0,
            resources=predicate.taking(predicate.resources) if isinstance(predicate, SetUp) else NO_LIMITS,
            is_measured=True,
        ),
        is_users=callable(predicate),
    )
    return map_blocks(df, kernel, meta=df._meta)


def keep_where_block(block: Any, *, predicate: Callable[[Any], Any] | str, reason: str) -> Outcome:
    """Kernel of `keep_where`."""
    backend = backend_of(block)
    # A shallow copy: a predicate that adds a column to what it is given must not change the block.
    given = block.copy(deep=False)
    result = given.eval(predicate) if isinstance(predicate, str) else predicate(given)
    require_row_values("keep_where: the predicate", "boolean", result, block, pd.api.types.is_bool_dtype)
    peaks = torch_peaks() if isinstance(predicate, SetUp) and predicate.resources.of_gpu else {}
    if backend == "cudf":
        return _kept_on_device(block, result, predicate, reason, peaks)
    holds = result.to_numpy(dtype=bool, na_value=False)
    if holds.all():
        return Outcome(block, peaks=peaks)
    return Outcome(
        keep_rows(block, holds),
        {reason: int((~holds).sum())},
        rejects=lambda: (keep_rows(block, ~holds), _why(predicate, reason, int((~holds).sum()))),
        peaks=peaks,
    )


def _kept_on_device(
    block: Any, result: Any, predicate: Callable[[Any], Any] | str, reason: str, peaks: dict[str, int]
) -> Outcome:
    """Filter a cuDF block where it is: to the host goes the number of rows that stay, and rejects where they are kept."""
    holds = result.fillna(False)
    gone = len(block) - int(holds.sum())
    if not gone:
        return Outcome(block, peaks=peaks)
    return Outcome(
        block[holds],
        {reason: gone},
        rejects=lambda: (block[~holds], _why(predicate, reason, gone)),
        peaks=peaks,
    )


def _why(predicate: Callable[[Any], Any] | str, reason: str, rows: int) -> dict[str, Any]:
    """Return what rejects say: the expression, or the name of the function."""
    if isinstance(predicate, SetUp):
        rule = f"{predicate.name}(block)"
    else:
        rule = (
            predicate
            if isinstance(predicate, str)
            else f"{getattr(predicate, '__name__', type(predicate).__name__)}(block)"
        )
    return {"reason": [reason] * rows, "rule": [rule] * rows}


def require_expression(operator: str, meta: Any, expression: str) -> None:
    """Raise an error unless an expression can be evaluated on the columns of a table."""
    otherwise = ", or pass a function of a block" if operator == "keep_where" else ""
    if "@" in expression:
        raise ParameterError(
            f"{operator}: the expression {expression!r} uses @, a variable of this process, which workers do not have. "
            f"Write its value into the expression{otherwise}"
        )
    try:
        result = meta.eval(expression)
    except Exception as exc:
        if type(exc).__name__ == "UndefinedVariableError":
            columns = ", ".join(map(repr, meta.columns))
            missing = re.findall("name '(.+?)' is not defined", str(exc))
            metrics = [name for name in missing if name in METRICS]
            hint = (
                f". {metrics[0]} is a metric: add its column first, with add_metrics(df, {metrics!r})"
                if metrics
                else did_you_mean_column(missing, meta.columns) or _quoted(missing, expression)
            )
            raise ColumnError(f"{operator}: {exc} in {expression!r}; the table has: {columns}{hint}") from exc
        raise ParameterError(
            f"{operator} cannot evaluate {expression!r}: {exc}. Correct the expression{otherwise}"
        ) from exc
    if getattr(result, "ndim", 1) == 2:  # a single = assigns a column, and the table comes back
        raise ParameterError(
            f"{operator}: the expression {expression!r} assigns a column with =. Compare with ==, as in "
            f"{re.sub('(?<![=<>!])=(?!=)', '==', expression, count=1)!r}"
        )


def _quoted(missing: list[str], expression: str) -> str:
    """Return advice about a name that follows a comparison, and is likely a text without its quotation marks."""
    compared = [name for name in missing if re.search(rf"[=!]=\s*{re.escape(name)}\b", expression)]
    return f". A text needs quotation marks: {compared[0]!r}" if compared else ""
