# SPDX-License-Identifier: Apache-2.0
"""Percentiles of pandas' nullable numbers for ``describe`` and ``quantile``, which Dask 2026.7 cannot compute.

Dask asks NumPy whether the column type is a number, and NumPy does not know ``Int64``. `percentile_lookup` is Dask's dispatch by
kind of column. Importing this module registers an implementation for pandas, in worker processes too.
"""

from __future__ import annotations

from typing import Any

import pandas as pd
from dask.array.dispatch import percentile_lookup
from pandas.api.types import is_bool_dtype, is_extension_array_dtype, is_numeric_dtype

_of_numpy_types = percentile_lookup.dispatch(pd.Series)


@percentile_lookup.register((pd.Series, pd.Index))  # type: ignore[untyped-decorator]
def percentile(column: Any, q: Any, interpolation: str = "linear") -> Any:
    """Return the percentiles of a column without its nulls, and the number of values, in the form that Dask merges."""
    if is_extension_array_dtype(column.dtype) and is_numeric_dtype(column.dtype) and not is_bool_dtype(column.dtype):
        values = column.dropna()
        column = pd.Series(values.to_numpy(values.dtype.numpy_dtype))
    return _of_numpy_types(column, q, interpolation)
