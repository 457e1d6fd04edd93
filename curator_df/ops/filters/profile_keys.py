# SPDX-License-Identifier: Apache-2.0
"""Keys of a mapping of profiles: values of a column, in its type, and none that no row can have."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from curator_df.core.columns import is_text
from curator_df.errors import ParameterError

UNKNOWN = "__UNKNOWN_CATEGORIES__"
"""Category by which Dask marks a column whose categories are known only when it is read."""
_EXAMPLES = {"i": "1", "u": "1", "f": "1.0", "b": "True", "M": "pd.Timestamp('2026-01-31')", "m": "pd.Timedelta('1h')"}
_NO_MATCH = object()


def keys_of_column(operator: str, keys: Iterable[Any], by: str, dtype: Any) -> list[Any]:
    """Return each key as a value of the column; None for null, such as NaN.

    Raises
    ------
    ParameterError
        If a key can be no value of the column, or two keys mean null.

    Examples
    --------
    >>> keys_of_column("keep_profile", [np.int64(1), float("nan")], "group", np.dtype("float64"))
    [1.0, None]
    """
    values = _value_dtype(dtype)
    found = []
    for key in keys:
        value = _as_value(key, values)
        if value is _NO_MATCH:
            example = "'de'" if values is not None and is_text(values) else _EXAMPLES.get(_kind(values), "")
            raise ParameterError(
                f"{operator}: the key {key!r} of the profiles is of the type {type(key).__name__}, but the column {by!r} "
                f"holds {dtype}. Use keys of the column's type{f', such as {example},' * bool(example)} or name another column "
                "with by="
            )
        found.append(value)
    if found.count(None) > 1:
        raise ParameterError(f"{operator}: the dict has two profiles for null, under None and NaN. Keep one of them")
    return found


def _value_dtype(dtype: Any) -> Any:
    """Return the dtype of the values of a column of categories or of an Arrow dictionary; None if it is not known yet."""
    if isinstance(dtype, pd.CategoricalDtype):
        return None if dtype.categories is None or UNKNOWN in dtype.categories else dtype.categories.dtype
    if isinstance(dtype, pd.ArrowDtype) and pa.types.is_dictionary(dtype.pyarrow_dtype):
        return pd.ArrowDtype(dtype.pyarrow_dtype.value_type)
    return dtype


def _kind(dtype: Any) -> str:
    return str(getattr(dtype, "kind", "O"))


def _as_value(key: Any, dtype: Any) -> Any:
    """Return a key as a value of this dtype, None for null."""
    if key is None or (pd.api.types.is_scalar(key) and pd.isna(key)):
        return None
    key, kind = _plain(key), _kind(dtype)
    value = key
    if dtype is None:
        return value
    if is_text(dtype) or isinstance(key, str):
        value = key if is_text(dtype) and isinstance(key, str) else _NO_MATCH
    elif kind in "iufb":
        value = _as_number(key, kind, getattr(dtype, "itemsize", 8))
    elif isinstance(dtype, pd.ArrowDtype) and pa.types.is_date(dtype.pyarrow_dtype):
        value = key if isinstance(key, dt.date) and not isinstance(key, dt.datetime) else _NO_MATCH
    elif kind == "M":
        zone = getattr(dtype, "tz", None) or getattr(getattr(dtype, "pyarrow_dtype", None), "tz", None)
        is_time = isinstance(key, dt.datetime) and (key.tzinfo is None) == (zone is None)
        value = pd.Timestamp(key) if is_time else _NO_MATCH
    elif kind == "m":
        value = pd.Timedelta(key) if isinstance(key, dt.timedelta) else _NO_MATCH
    return value


def _plain(key: Any) -> Any:
    """Return a NumPy scalar as Python's or pandas's."""
    if isinstance(key, np.datetime64):
        return pd.Timestamp(key)
    if isinstance(key, np.timedelta64):
        return pd.Timedelta(key)
    return key.item() if isinstance(key, np.generic) else key


def _as_number(key: Any, kind: str, item_bytes: int) -> Any:
    """Return a key as a number of this kind, rounded as the column holds it; integers and booleans only if they are equal."""
    if not isinstance(key, bool | int | float):
        return _NO_MATCH
    try:
        if kind == "f":
            return float(key if item_bytes == 8 else np.dtype(f"f{item_bytes}").type(key))
        number = bool(key) if kind == "b" else int(key)
    except OverflowError:
        return _NO_MATCH
    return number if number == key else _NO_MATCH
