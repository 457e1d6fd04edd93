# SPDX-License-Identifier: Apache-2.0
"""Whether a file format can hold the columns of a table, before anything runs."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from curator_df.core.host_blocks import host_block
from curator_df.core.planning.program import ReadPartition
from curator_df.errors import ColumnError, SchemaError
from curator_df.io.output import arrow_schema


def require_writable(df: Any, operator: str, suffix: str) -> None:
    """Refuse columns that files of this suffix cannot hold.

    Raises
    ------
    ColumnError
        There are no columns, or two of one name.
    SchemaError
        A column has a type that the format does not have.
    """
    names = [str(name) for name in df.columns]
    if not names:
        why = _why_no_columns(df) or "; keep at least one"
        raise ColumnError(f"{operator}: the table has no columns, so that the files would hold none{why}")
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise ColumnError(
            f"{operator}: the table has {names.count(twice)} columns named {twice!r}, and a file can have one; rename or "
            f"drop one. The columns are: {', '.join(map(repr, names))}"
        )
    is_parquet = suffix == "parquet"
    for field in arrow_schema(host_block(df._meta)):
        found = _unwritable(field.type, is_parquet)
        if found is None:
            continue
        way_out = (
            "an object without fields has no place in Parquet" if is_parquet else "bytes have no place in JSON Lines"
        )
        other = "write_jsonl" if is_parquet else "write_parquet"
        raise SchemaError(
            f"{operator}: the column {field.name!r} holds {field.type}, and {way_out}; leave the column out "
            f"(df.drop(columns={field.name!r})), convert it, or use {other}"
        )


def _why_no_columns(df: Any) -> str:
    """Say why none were found in the input, if none were."""
    for node in df.expr.walk():
        read = node.operand("func") if "func" in node._parameters else None
        if (
            isinstance(read, ReadPartition)
            and not len(read.source.meta.columns)
            and hasattr(read.source, "why_no_columns")
        ):
            return f": {read.source.why_no_columns()}"
    return ""


def _unwritable(kind: pa.DataType, is_parquet: bool) -> pa.DataType | None:
    """Return the type inside of ``kind`` that cannot be written, if there is one."""
    if is_parquet and pa.types.is_struct(kind) and not kind.num_fields:
        return kind
    binary = (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_fixed_size_binary, pa.types.is_binary_view)
    if not is_parquet and any(test(kind) for test in binary):
        return kind
    inner = [kind.field(place).type for place in range(kind.num_fields)]
    return next((found for item in inner if (found := _unwritable(item, is_parquet)) is not None), None)
