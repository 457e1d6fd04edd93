# SPDX-License-Identifier: Apache-2.0
"""Pandas or cuDF: the one place that knows which kind of block this is.

It decides by the module of the block's type, so that RAPIDS is never imported where nobody uses it.
"""

from __future__ import annotations

from typing import Any, Literal, cast, get_args

import numpy as np
import numpy.typing as npt
import pandas as pd

from curator_df.errors import UnsupportedBackendError

Backend = Literal["pandas", "cudf"]
"""Kinds of blocks there are."""


def backend_of(block: Any) -> Backend:
    """Return the backend of a block (a DataFrame, Series or Index; not a Dask table).

    Examples
    --------
    >>> import pandas as pd
    >>> backend_of(pd.DataFrame({"text": ["a"]}))
    'pandas'
    """
    package = type(block).__module__.partition(".")[0]
    if package not in get_args(Backend):
        raise UnsupportedBackendError(
            f"a block must be a pandas or cuDF object; found {type(block).__module__}.{type(block).__qualname__}"
        )
    return cast(Backend, package)


def require_backend(block: Any, operator: str, *supported: Backend, because: str) -> None:
    """Raise `UnsupportedBackendError` unless the block is of one of these backends; the clause ``because`` says why."""
    backend = backend_of(block)
    if backend not in supported:
        raise UnsupportedBackendError(
            f"{operator} works on {' and '.join(supported)} blocks, and this table has {backend} blocks: {because}; "
            f"convert it first with to_backend(df, {supported[0]!r})"
        )


def is_on_device(block: Any) -> bool:
    """Tell whether a block is in the memory of a GPU; what is no DataFrame at all is not."""
    return type(block).__module__.partition(".")[0] == "cudf"


def integer_column(block: Any, numbers: npt.NDArray[np.int64]) -> Any:
    """Return integers as a column of this kind of block: ``Int64``, as the readers have it, or cuDF's int64."""
    return pd.array(numbers, dtype="Int64") if backend_of(block) == "pandas" else numbers
