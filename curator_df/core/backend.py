# SPDX-License-Identifier: Apache-2.0
"""Detection of a block's backend, pandas or cuDF, for all other modules.

The module of the block's type decides, so RAPIDS is never imported unless it is used.
"""

from __future__ import annotations

from typing import Any, Literal, cast, get_args

import numpy as np
import numpy.typing as npt
import pandas as pd

from curator_df.errors import UnsupportedBackendError

Backend = Literal["pandas", "cudf"]
"""Supported kinds of blocks."""


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
            "a block (a part of the table) must be a pandas or cuDF DataFrame, Series or Index, but this is a "
            f"{type(block).__module__}.{type(block).__qualname__}. Convert it to one of these first, such as at the end of "
            "the function that returns it"
        )
    return cast(Backend, package)


def require_backend(block: Any, operator: str, *supported: Backend, because: str) -> None:
    """Raise `UnsupportedBackendError` unless the block has one of these backends; the clause ``because`` gives the reason."""
    if backend_of(block) not in supported:
        raise unsupported_backend(block, operator, *supported, because=because)


def unsupported_backend(block: Any, operator: str, *supported: Backend, because: str) -> UnsupportedBackendError:
    """Return the error for a block of a backend that an operator does not support."""
    return UnsupportedBackendError(
        f"{operator} works on {' and '.join(supported)} blocks, and this table has {backend_of(block)} blocks: {because}; "
        f"convert it first with to_backend(df, {supported[0]!r})"
    )


def is_on_device(block: Any) -> bool:
    """Return whether a block is a cuDF object in GPU memory."""
    return type(block).__module__.partition(".")[0] == "cudf"


def integer_column(block: Any, numbers: npt.NDArray[np.int64]) -> Any:
    """Return integers as a column for this kind of block: ``Int64``, as the readers produce it, or cuDF's int64."""
    return pd.array(numbers, dtype="Int64") if backend_of(block) == "pandas" else numbers
