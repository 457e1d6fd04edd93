# SPDX-License-Identifier: Apache-2.0
"""Dask's own steps: which of them a run accepts, the messages that refuse the others, and their names in a receipt.

Steps are identified by the names of their classes, few of which Dask documents. A name that no longer exists refuses nothing, and
the tests compare each with the code that a user writes.
"""

from __future__ import annotations

import reprlib
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from dask._task_spec import DataNode
from dask.dataframe.dask_expr._expr import Blockwise, Expr, Isin, MapOverlap, MapPartitions, _DelayedExpr
from dask.delayed import Delayed
from dask.sizeof import sizeof
from dask.typing import no_default

from curator_df.core.fingerprint import fingerprint
from curator_df.core.ranges.set_up import SetUp
from curator_df.errors import ExpressionError, UnsupportedBackendError

MOVES = ("ToBackend", "ToCudfBackend", "ToPandasBackend")
"""Class names of the expressions of Dask and dask-cudf that move blocks to a GPU or back."""
EXPLODES = ("ExplodeFrame", "ExplodeSeries")
"""Class names of the expressions that make several rows with one row ID from one row."""
_READERS = "read_csv, read_delta, read_iceberg, read_jsonl, read_parquet, read_text_files, read_warc"
_INDEX = (
    "is not allowed in a run, because it changes the index, by which curator_df identifies rows. Remove the call "
    "(writers do not write the index). To get an ID column, use add_ids"
)
_BY_CHANCE = (
    "draws rows block by block, so the result depends on the block size and on the workers. Use "
    "sample_rows(df, ...), which takes the same rows whatever the blocks"
)
_INTO_PARTS = (
    "draws rows block by block, so the result depends on the block size and on the workers. Use split_rows(df, "
    "{'train': 0.9, 'test': 0.1}), whose parts are disjoint and the same for every block size"
)
_PICKED = (
    "selects blocks, and their number depends on the block size. Pass fewer files to the reader, or select a fraction of "
    "rows with sample_rows(df, ...)"
)
_TOGETHER = (
    "concatenates tables, but one run streams one input. Put them one after another with curator_df.concat([a, b]), pass all "
    "paths to one reader, as in read_jsonl([a, b]), or mix tables with blend"
)
_REFUSED = {
    **dict.fromkeys(("ResetIndex", "SetIndex", "SetIndexBlockwise", "AssignIndex", "SetPartition"), _INDEX),
    **dict.fromkeys(("Split", "SplitTake"), _INTO_PARTS),
    "Sample": _BY_CHANCE,
    **dict.fromkeys(("Concat", "ConcatUnindexed"), _TOGETHER),
    "DropDuplicates": "compares rows of all blocks. Use drop_exact_duplicates, which does so on disk, within the budget",
    "Partitions": _PICKED,
}
"""Reasons why a step is refused, by class name, whether or not it needs several blocks."""
LONGEST_TEXT = 300
"""Maximum number of characters of the text of a step."""
_SHORT = reprlib.Repr()
"""Formatter for values in that text, of which there may be many."""
_SHORT.maxstring = _SHORT.maxother = LONGEST_TEXT
_SEVERAL_BLOCKS = (
    "needs more than one block, so it cannot be streamed within the budget. Write the table before it with "
    "write_parquet, run this step on the written files with Dask, and continue from its result with read_parquet"
)
_VERBS = {
    "AddPrefix": "add_prefix",
    "AddSuffix": "add_suffix",
    "AlignGetitem": "align",
    "AssignIndex": "index",
    "BlockwiseHead": "head",
    "BlockwiseTail": "tail",
    "CaseWhen": "case_when",
    "ColumnsSetter": "columns",
    "CombineFirst": "combine_first",
    "Concat": "concat",
    "ConcatUnindexed": "concat",
    "CumMax": "cummax",
    "CumMin": "cummin",
    "CumProd": "cumprod",
    "CumSum": "cumsum",
    "DropDuplicates": "drop_duplicates",
    "DropnaFrame": "dropna",
    "DropnaSeries": "dropna",
    "ExplodeFrame": "explode",
    "ExplodeSeries": "explode",
    "GetDummies": "get_dummies",
    "Loc": "loc",
    "LocUnknown": "loc",
    "MapOverlap": "map_overlap",
    "Projection": "columns",
    "RenameAxis": "rename_axis",
    "RenameFrame": "rename",
    "RenameSeries": "rename",
    "ResetIndex": "reset_index",
    "ResolveOverlappingDivisions": "set_index",
    "SetIndex": "set_index",
    "SetIndexBlockwise": "set_index",
    "SetPartition": "set_index",
    "SortIndex": "sort_index",
    "SortValues": "sort_values",
    "Split": "random_split",
    "SplitTake": "random_split",
    "ToFrame": "to_frame",
    "ToNumeric": "to_numeric",
    "ToDatetime": "to_datetime",
    "ValueCounts": "value_counts",
}
"""Names that a user writes, if they differ from the lower-case class name."""


def title(node: Expr) -> str:
    """Return the name of a step in a receipt, as the user wrote it."""
    if not isinstance(node, MapPartitions) or isinstance(node, MapOverlap):
        kind = type(node).__name__
        return _VERBS.get(kind, kind.lower())
    function = node.operand("func")
    name = function.name if isinstance(function, SetUp) else getattr(function, "__name__", type(function).__name__)
    return f"map_partitions({name})"


def text_of(node: Expr, table: Expr) -> str:
    """Return a step as a user would write it, with ``df`` for its input table; at most `LONGEST_TEXT` characters."""
    text = _text_of(node, table)
    return text if len(text) <= LONGEST_TEXT else f"{text[:LONGEST_TEXT]}..."


def _text_of(value: Any, table: Expr) -> str:
    if isinstance(value, Expr):
        return "df" if value._name == table._name else _text_of_node(value, table)
    if (name := getattr(value, "__name__", None)) is not None:
        return str(name)
    return _SHORT.repr(value[: _SHORT.maxlist + 1].tolist() if isinstance(value, np.ndarray) else value)


def _text_of_node(node: Expr, table: Expr) -> str:
    # Read it from the class: an attribute of a node may be a column of its table.
    kind, sign = type(node).__name__, getattr(type(node), "_operator_repr", None)
    operands = node.operands
    if isinstance(node, _DelayedExpr):
        return _text_of(_plain_value(node), table)
    if not operands or not isinstance(operands[0], Expr):
        return title(node)
    first = _text_of(operands[0], table)
    if _VERBS.get(kind) == "loc":
        shown = [_without_parentheses(_text_of(one, table)) for one in operands[1:3] if one is not None]
        text = f"{first}.loc[{', '.join(shown)}]"
    elif kind in {"Filter", "Projection"}:
        text = f"{first}[{_without_parentheses(_text_of(operands[1], table))}]"
    elif sign is not None:
        text = f"({first} {sign} {_text_of(operands[1], table)})" if len(operands) > 1 else f"{sign}{first}"
    elif kind == "FunctionMap":
        text = f"{first}.{node.operand('accessor')}.{node.operand('attr')}({_arguments(node)})"
    elif isinstance(node, MapPartitions):
        text = f"{first}.{title(node)}"
    else:
        names = [name for name in node._parameters[1:] if _is_said(node, name)]
        given = [f"{name.lstrip('_')}={_text_of(node.operand(name), table)}" for name in names]
        text = f"{first}.{title(node)}({', '.join(given)})"
    return text


def _without_parentheses(text: str) -> str:
    """Return a text without the parentheses that enclose all of it.

    Examples
    --------
    >>> _without_parentheses("((a > 1) & b.isna())"), _without_parentheses("(a > 1).any()")
    ('(a > 1) & b.isna()', '(a > 1).any()')
    """
    depth = 0
    for place, letter in enumerate(text):
        depth += (letter == "(") - (letter == ")")
        if depth == 0:
            return text[1:-1] if text.startswith("(") and place == len(text) - 1 else text
    return text


def _arguments(node: Expr) -> str:
    named = [f"{name}={value!r}" for name, value in node.operand("kwargs").items()]
    return ", ".join([*map(repr, node.operand("args")), *named])


def _is_said(node: Expr, name: str) -> bool:
    """Return whether the user passed an operand: it is neither the default nor a value that Dask derived itself."""
    value = node.operand(name)
    is_plain = isinstance(value, (str, int, float, bool))
    is_empty = value is None or value is no_default or (isinstance(value, (dict, tuple)) and not value)
    return not is_empty and name != "meta" and not (is_plain and value == node._defaults.get(name))


def require_block_by_block(expression: Expr, origin: Expr) -> None:
    """Refuse steps that need several blocks, before the placeholder hides them: a sort of one partition is block by block.

    Raises
    ------
    ExpressionError
        If a step needs more than one block, depends on the division into blocks, or changes the index.
    UnsupportedBackendError
        If the expression contains Dask's own ``to_backend``.
    """
    _refuse_moves(expression)
    for node in expression.walk():
        kind = type(node).__name__
        if kind in _REFUSED:
            raise ExpressionError(f"{title(node)}, a step of Dask, {_REFUSED[kind]}")
        if node._name != origin._name and not isinstance(node, _DelayedExpr) and not _is_block_by_block(node):
            raise ExpressionError(f"{title(node)}, a step of Dask, {_SEVERAL_BLOCKS}")


def _refuse_moves(expression: Expr) -> None:
    if any(type(node).__name__ in MOVES for node in expression.walk()):
        raise UnsupportedBackendError(
            "df.to_backend(), a method of Dask, is not allowed in a run: it changes the types of columns, and curator_df "
            "cannot plan the memory of its copy. Use curator_df.to_backend(df, 'cudf') or backend='cudf' of the reader to "
            "move the table to a GPU, and curator_df.to_backend(df, 'pandas') to move it back"
        )


def streams(node: Expr) -> bool:
    """Return whether a run accepts a step unchanged: it works on one block alone and keeps the index."""
    kind = type(node).__name__
    return isinstance(node, _DelayedExpr) or (_is_block_by_block(node) and kind not in _REFUSED and kind not in MOVES)


def require_no_dependence_on_blocks(expression: Expr) -> None:
    """Refuse steps that Dask could compute, but whose result depends on the block size: samples and selected partitions.

    Raises
    ------
    ExpressionError
        The message names another way to get such rows.
    UnsupportedBackendError
        If the expression contains Dask's own ``to_backend``.
    """
    _refuse_moves(expression)
    for node in expression.walk():
        if _REFUSED.get(type(node).__name__) in (_BY_CHANCE, _INTO_PARTS, _PICKED):
            raise ExpressionError(f"{title(node)}, a step of Dask, {_REFUSED[type(node).__name__]}")


def _is_block_by_block(node: Expr) -> bool:
    return isinstance(node, Blockwise) and not isinstance(node, MapOverlap)


def no_reader(leaves: Iterable[Any], *, lacks_cluster: bool = False) -> ExpressionError:
    """Return the error for a table that does not begin with a reader of curator_df.

    ``lacks_cluster`` tells that such a table would be accepted while a cluster is running, which writes it to working files.
    """
    kinds = {type(node).__name__ for node in leaves}
    if "FromGraph" in kinds:
        remedy = (
            "it begins with rows in memory, as persist() leaves them. Remove .persist(), because a run reads the "
            "files block by block; or store the table before it with checkpoint(df, path)"
        )
    elif kinds & {"FromPandas", "FromPandasDivisions", "FromArray"}:
        remedy = (
            "it is made from rows in memory (from_pandas). Write them to Parquet with pandas' to_parquet(path), and read them "
            "with curator_df's read_parquet(path)"
        )
    elif any(kind.startswith("ReadParquet") for kind in kinds):
        remedy = "it begins with Dask's read_parquet. Use curator_df's read_parquet, with the same path"
    else:
        remedy = "write it to Parquet with Dask, and read it back with curator_df's read_parquet"
    if lacks_cluster:
        return ExpressionError(
            f"this table does not begin with one of curator_df's readers ({_READERS}), so its rows go through working files of a "
            "cluster, but no cluster is running that has a folder for them. Start one with "
            f"start_cluster(memory='4GB'), or do without: {remedy}"
        )
    return ExpressionError(
        f"this table does not begin with one of curator_df's readers ({_READERS}), so it cannot be streamed within the budget: "
        f"{remedy}"
    )


def several_inputs(count: int) -> ExpressionError:
    """Return the error for a table that combines several inputs."""
    return ExpressionError(
        f"this table combines {count} inputs, but one run streams one input. Pass all paths to one reader, as in "
        "read_jsonl([a, b]); put tables one after another with curator_df.concat; add columns of another table with "
        "curator_df.join; mix tables with blend; or write each with write_parquet"
    )


def shared_addresses(operator: str, step: str) -> ExpressionError:
    """Return the error for an operator that identifies rows by their row ID after a step that makes several rows from one."""
    return ExpressionError(
        f"{operator} identifies rows by their row ID, but the rows that {step} makes from one row share its row ID. Run the "
        f"steps before {operator} with checkpoint(df, path), and continue from the table that it returns, in which each row has "
        "its own row ID"
    )


def with_plain_values(expression: Expr) -> Expr:
    """Return an expression in which values that Dask wraps, such as those of ``isin``, are the same in every process.

    Dask stores a list passed to ``isin`` as an array in set order, which differs between processes.

    Raises
    ------
    ExpressionError
        If Dask would have to compute such a value, again for every block.
    """
    ordered = {node.operand("values")._name for node in expression.walk() if _is_isin(node)}
    for node in [node for node in expression.walk() if isinstance(node, _DelayedExpr)]:
        value = _plain_value(node)
        if node._name in ordered and isinstance(value, np.ndarray):
            value = _sorted(value)
        key = f"value-{fingerprint(value)}"
        expression = expression.substitute(node, _DelayedExpr(Delayed(key, {key: DataNode(key, value)})))
    return expression


def value_bytes(tasks: Mapping[Any, Any]) -> int:
    """Return the bytes of the values that tasks contain."""
    return sum(sizeof(task.value) for task in tasks.values() if isinstance(task, DataNode))


def _sorted(values: Any) -> Any:
    if not values.dtype.hasobject:
        return np.sort(values)
    return np.array(sorted(values.tolist(), key=fingerprint), dtype=values.dtype)


def _is_isin(node: Expr) -> bool:
    return isinstance(node, Isin) and isinstance(node.operand("values"), _DelayedExpr)


def _plain_value(node: Expr) -> Any:
    tasks = node._layer()
    (task,) = tasks.values() if len(tasks) == 1 else (None,)
    if isinstance(task, DataNode):
        return task.value
    raise ExpressionError(
        f"a step of this table uses a value that is not computed yet ({node.operand('obj').key}), such as the result of "
        "df.n.mean() or of dask.delayed. A run would compute it again for every block. Compute the value first, as in "
        "df.n.mean().compute(), and pass the result to the step"
    )
