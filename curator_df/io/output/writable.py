# SPDX-License-Identifier: Apache-2.0
"""Check whether a file format can hold the columns of a table, before anything runs."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pyarrow as pa

from curator_df.core.columns import why_no_columns
from curator_df.core.host_blocks import host_block
from curator_df.errors import ColumnError, SchemaError
from curator_df.io.jsonl.schema import levels
from curator_df.io.output.files import arrow_schema

MOST_PARQUET_LEVELS = 99
"""Maximum levels of a column's schema; pyarrow writes more, but cannot open a file that has more."""
MOST_JSON_LEVELS = 253
"""Maximum levels of a column's values; orjson refuses more in a row."""

MOST_ARROW_LEVELS = 64
"""Maximum levels of a column in Arrow's files."""


def require_writable(df: Any, operator: str, suffix: str) -> None:
    """Raise for columns that files of this suffix cannot hold.

    Raises
    ------
    ColumnError
        If there are no columns, or two of one name.
    SchemaError
        If a column has a type that the format does not have, or is nested too deeply.
    """
    names = [str(name) for name in df.columns]
    if not names:
        why = (
            f", because {found}. Check the paths and the files"
            if (found := why_no_columns(df))
            else ". Keep at least one column"
        )
        raise ColumnError(f"{operator}: the table has no columns, so there is nothing to write{why}")
    twice, times = Counter(names).most_common(1)[0]
    if times > 1:
        raise ColumnError(
            f"{operator}: the table has {times} columns named {twice!r}, but a file can have only one. Rename or "
            f"drop one. The columns are: {', '.join(map(repr, names))}"
        )
    require_types(arrow_schema(host_block(df._meta)), operator, is_parquet=suffix == "parquet")


def require_rejects(source_meta: Any, operator: str) -> None:
    """Raise if removed rows, which are written to Parquet unchanged, have columns that Parquet cannot hold."""
    require_types(arrow_schema(source_meta), f"{operator}, rejects=", is_parquet=True, way_out="")


def require_types(schema: pa.Schema, operator: str, *, is_parquet: bool, way_out: str | None = None) -> None:
    """Raise for columns whose type a format does not have; ``way_out`` ends the advice to leave the column out."""
    if way_out is None:
        way_out = ", convert it, or use " + ("write_jsonl" if is_parquet else "write_parquet")
    most, called = (MOST_PARQUET_LEVELS, "Parquet") if is_parquet else (MOST_JSON_LEVELS, "JSON Lines")
    for field in schema:
        leave_out = f"leave the column out (df.drop(columns={field.name!r}))"
        found = _unwritable(field.type, is_parquet)
        if found is not None:
            why = (
                "an object without fields has no place in Parquet"
                if is_parquet
                else "bytes have no place in JSON Lines"
            )
            raise SchemaError(
                f"{operator}: the column {field.name!r} has the type {field.type}, but {why}; {leave_out}{way_out}"
            )
        depth = levels(field.type, 2 if is_parquet else 1)
        if depth > most:
            raise SchemaError(
                f"{operator}: the column {field.name!r} is nested {depth} levels deep, but {called} can have {most}"
                + (" (a list counts as two)" if is_parquet else "")
                + f"; {leave_out}{way_out}"
            )


def require_storable(df: Any, operator: str) -> None:
    """Raise for columns that Arrow's own format, in which rows are stored between two passes, or Parquet cannot hold."""
    require_writable(df, operator, "parquet")
    for field in arrow_schema(host_block(df._meta)):
        depth = levels(field.type)
        if depth > MOST_ARROW_LEVELS:
            raise SchemaError(
                f"{operator}: the column {field.name!r} is nested {depth} levels deep, but a shuffle can store only "
                f"{MOST_ARROW_LEVELS}; leave the column out (df.drop(columns={field.name!r})), or convert it"
            )


def _unwritable(kind: pa.DataType, is_parquet: bool) -> pa.DataType | None:
    """Return the type inside ``kind`` that cannot be written, if there is one."""
    if isinstance(kind, pa.BaseExtensionType):
        is_text = kind.extension_name == "arrow.uuid"
        return None if is_text or _unwritable(kind.storage_type, is_parquet) is None else kind
    if is_parquet and pa.types.is_struct(kind) and not kind.num_fields:
        return kind
    binary = (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_fixed_size_binary, pa.types.is_binary_view)
    if not is_parquet and any(test(kind) for test in binary):
        return kind
    inner = [kind.field(place).type for place in range(kind.num_fields)]
    return next((found for item in inner if (found := _unwritable(item, is_parquet)) is not None), None)
