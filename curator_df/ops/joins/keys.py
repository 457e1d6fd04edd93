# SPDX-License-Identifier: Apache-2.0
"""Keys of a join: columns of two tables that have the same kind of value, and 128-bit hashes of their rows' values.

Rows match if the hashes are equal, as in the drops of exact duplicates. Integers of any width are equal by value.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pandas as pd

from curator_df.arguments import strings_of
from curator_df.core.columns import is_text, require_names
from curator_df.errors import ParameterError, SchemaError
from curator_df.kernels.rows.content_hash import Hashes, row_hashes

How = Literal["left", "inner", "semi", "anti"]
"""Rows of a join: all of the left table, those with a match (with or without the other table's columns), or those without."""
Duplicates = Literal["raise", "first"]
"""Policy for a key in several rows of the other table: stop, or take the first of them."""
REASONS = {"inner": "no_match", "semi": "no_match", "anti": "match"}
"""Reason of the rows that a join drops."""
LARGEST_SIGNED = (1 << 63) - 1


@dataclass(frozen=True)
class Joining:
    """Settings of a join, the same for every way of computing it."""

    left: tuple[str, ...]
    """Key columns of the left table."""
    right: tuple[str, ...]
    """Key columns of the other table, in the same order."""
    how: How
    """Rows of the result."""
    columns: tuple[str, ...]
    """Columns that the other table adds."""
    into: tuple[str, ...]
    """Names of these columns in the result."""
    duplicates: Duplicates
    """Policy for a key in several rows of the other table."""
    signed: tuple[bool, ...]
    """Whether a key column has signed integers in one of the tables: larger values of the other one then match nothing."""

    @property
    def reason(self) -> str:
        """Reason of the dropped rows; empty if no row is dropped."""
        return REASONS.get(self.how, "")

    @property
    def rule(self) -> str:
        """Condition of a match, for rejects."""
        pairs = zip(self.left, self.right, strict=True)
        return ", ".join(one if one == other else f"{one} = {other}" for one, other in pairs)


def require_keys(operator: str, on: Any, left: Any, right: Any) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the key columns of both tables.

    Raises
    ------
    ParameterError
        If ``on`` names no column, or one twice.
    ColumnError
        If a table lacks a column.
    SchemaError
        If a key has a type that cannot be compared, or the two of a pair have different ones.
    """
    if isinstance(on, Mapping):
        ours, theirs = strings_of(operator, "on", list(on)), strings_of(operator, "on", list(on.values()))
    else:
        ours = theirs = strings_of(operator, "on", on)
    if not ours:
        raise ParameterError(f"{operator}: on={on!r} names no column. Name at least one key column, such as on='id'")
    for names in (ours, theirs):
        if len(set(names)) < len(names):
            raise ParameterError(f"{operator}: on={on!r} names a column twice. Name each key column once")
    require_names(list(left.columns), operator, *ours)
    require_names(list(right.columns), f"{operator}: the other table", *theirs)
    for one, other in zip(ours, theirs, strict=True):
        _require_same_kind(operator, (one, left.dtypes[one]), (other, right.dtypes[other]))
    return ours, theirs


def _require_same_kind(operator: str, ours: tuple[str, Any], theirs: tuple[str, Any]) -> None:
    kinds = []
    for (name, dtype), of in ((ours, "the table"), (theirs, "the other table")):
        kind = _kind(dtype)
        if kind is None:
            way = (
                f"Convert it to integers or text first, as in df.astype({{{name!r}: 'Int64'}})"
                if pd.api.types.is_float_dtype(dtype)
                else f"Convert it first, as in df.astype({{{name!r}: 'string'}})"
            )
            raise SchemaError(
                f"{operator}: the key {name!r} of {of} holds {dtype}, but keys must be text, integers or booleans. {way}"
            )
        kinds.append(kind)
    if kinds[0] != kinds[1]:
        raise SchemaError(
            f"{operator}: the key {ours[0]!r} of the table holds {kinds[0]} ({ours[1]}), but {theirs[0]!r} of the other table "
            f"holds {kinds[1]} ({theirs[1]}), so no row would match. Convert one of them first, as in "
            f"df.astype({{{ours[0]!r}: 'string'}})"
        )


def _kind(dtype: Any) -> str | None:
    """Return the kind of the values of a key column; None if they cannot be keys."""
    if is_text(dtype):
        return "text"
    if pd.api.types.is_bool_dtype(dtype):
        return "booleans"
    return "integers" if pd.api.types.is_integer_dtype(dtype) else None


def signed_keys(left: Any, right: Any, ours: tuple[str, ...], theirs: tuple[str, ...]) -> tuple[bool, ...]:
    """Return, for each pair of key columns, whether one of them has signed integers."""
    pairs = ((left.dtypes[one], right.dtypes[other]) for one, other in zip(ours, theirs, strict=True))
    return tuple(any(pd.api.types.is_signed_integer_dtype(dtype) for dtype in pair) for pair in pairs)


def key_hashes(
    block: pd.DataFrame, columns: tuple[str, ...], signed: tuple[bool, ...]
) -> tuple[Hashes, npt.NDArray[np.bool_]]:
    """Return the hashes of the keys of a block, shape (rows, 2), and which rows have a key: no part of it is null.

    Examples
    --------
    >>> block = pd.DataFrame({"id": pd.array([1, None, 3], "Int64")})
    >>> key_hashes(block, ("id",), (True,))[1].tolist()
    [True, False, True]
    """
    valid = np.ones(len(block), dtype=np.bool_)
    for name, is_signed in zip(columns, signed, strict=True):
        values = block[name]
        valid &= ~values.isna().to_numpy(dtype=np.bool_)
        if is_signed and pd.api.types.is_unsigned_integer_dtype(values.dtype):
            valid &= (values <= LARGEST_SIGNED).to_numpy(dtype=np.bool_, na_value=False)
    return row_hashes(block, columns), valid
