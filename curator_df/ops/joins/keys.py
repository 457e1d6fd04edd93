# SPDX-License-Identifier: Apache-2.0
"""Keys of a join: columns of two tables that have the same kind of value, and 128-bit hashes of their rows' values.

Rows match if the hashes are equal, as in the drops of exact duplicates. Integers of any width are equal by value.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
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
_AS = {"text": "string", "integers": "Int64", "booleans": "boolean"}
"""Type in which a key of each kind is converted."""
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
    kinds: tuple[str, ...] = field(metadata={"identity": False})
    """Kind of the values of each key column: text, integers or booleans."""

    @property
    def reason(self) -> str:
        """Reason of the dropped rows; empty if no row is dropped."""
        return REASONS.get(self.how, "")

    @property
    def rule(self) -> str:
        """Condition of a match, for rejects."""
        pairs = zip(self.left, self.right, strict=True)
        return ", ".join(one if one == other else f"{one} = {other}" for one, other in pairs)


def require_keys(
    operator: str, on: Any, left: Any, right: Any, has_no_values: Callable[[str], bool]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the key columns of both tables.

    Parameters
    ----------
    operator : str
    on : str, list of str or dict
    left, right : pandas.DataFrame
        Tables, or what describes their columns.
    has_no_values : callable
        Function that says whether a column of the other table has no values; it then needs no type.

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
        _require_same_kind(operator, (one, left.dtypes[one]), (other, right.dtypes[other]), has_no_values)
    return ours, theirs


def _require_same_kind(
    operator: str, ours: tuple[str, Any], theirs: tuple[str, Any], has_no_values: Callable[[str], bool]
) -> None:
    kinds = [key_kind(dtype) for _, dtype in (ours, theirs)]
    if kinds[0] is not None and kinds[0] != kinds[1] and has_no_values(theirs[0]):
        return
    for (name, dtype), kind, of in zip((ours, theirs), kinds, ("the table", "the other table"), strict=True):
        if kind is None:
            way = (
                f"Convert it to integers or text first, as in df.astype({{{name!r}: 'Int64'}})"
                if pd.api.types.is_float_dtype(_value_dtype(dtype))
                else f"Convert it first, as in df.astype({{{name!r}: 'string'}})"
            )
            raise SchemaError(
                f"{operator}: the key {name!r} of {of} holds {_said(dtype)}, but keys must be text, integers or booleans. {way}"
            )
    if kinds[0] != kinds[1]:
        raise SchemaError(
            f"{operator}: the key {ours[0]!r} of the table holds {kinds[0]} ({ours[1]}), but {theirs[0]!r} of the other table "
            f"holds {kinds[1]} ({theirs[1]}), so no row would match. Convert one of them first, as in "
            f"df.astype({{{ours[0]!r}: 'string'}})"
        )


def _value_dtype(dtype: Any) -> Any:
    """Return the dtype of the values of a column, for a categorical one that of its categories."""
    is_known = isinstance(dtype, pd.CategoricalDtype) and dtype.categories is not None
    return dtype.categories.dtype if is_known else dtype


def _said(dtype: Any) -> str:
    values = _value_dtype(dtype)
    return str(dtype) if values is dtype else f"categories of {values}"


def key_kind(dtype: Any) -> str | None:
    """Return the kind of the values of a key column; None if they cannot be keys.

    Examples
    --------
    >>> key_kind(pd.Int64Dtype()), key_kind(pd.CategoricalDtype([1, 2])), key_kind(pd.CategoricalDtype([0.5]))
    ('integers', 'integers', None)
    """
    if is_text(dtype):
        return "text"
    dtype = _value_dtype(dtype)
    if pd.api.types.is_bool_dtype(dtype):
        return "booleans"
    return "integers" if pd.api.types.is_integer_dtype(dtype) else None


def signed_keys(left: Any, right: Any, ours: tuple[str, ...], theirs: tuple[str, ...]) -> tuple[bool, ...]:
    """Return, for each pair of key columns, whether one of them has signed integers."""
    pairs = (
        (_value_dtype(left.dtypes[one]), _value_dtype(right.dtypes[other]))
        for one, other in zip(ours, theirs, strict=True)
    )
    return tuple(any(pd.api.types.is_signed_integer_dtype(dtype) for dtype in pair) for pair in pairs)


def require_kinds(block: pd.DataFrame, columns: tuple[str, ...], kinds: tuple[str, ...]) -> None:
    """Raise `SchemaError` for categories of another kind: Dask may know them only when a block is computed."""
    for name, kind in zip(columns, kinds, strict=True):
        dtype = block.dtypes[name]
        if len(block) and isinstance(dtype, pd.CategoricalDtype) and key_kind(dtype) != kind:
            raise SchemaError(
                f"join: the key {name!r} was taken for {kind}, but it holds {_said(dtype)}, so no row would match. Convert it "
                f"first, as in df.astype({{{name!r}: {_AS[kind]!r}}})"
            )


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
        if is_signed and pd.api.types.is_unsigned_integer_dtype(_value_dtype(values.dtype)):
            valid &= _is_signed(values)
    if not valid.any():  # the columns may then have any type
        return np.zeros((len(block), 2), dtype=np.uint64), valid
    return row_hashes(block, columns), valid


def _is_signed(values: pd.Series) -> npt.NDArray[np.bool_]:
    """Return which unsigned integers are signed ones, too."""
    if not isinstance(values.dtype, pd.CategoricalDtype):
        found: npt.NDArray[np.bool_] = (values <= LARGEST_SIGNED).to_numpy(dtype=np.bool_, na_value=False)
        return found
    is_signed = np.append(values.cat.categories <= LARGEST_SIGNED, False)  # the code of null is -1
    return is_signed[values.cat.codes.to_numpy()]
