# SPDX-License-Identifier: Apache-2.0
"""Keep a random part of the rows, the same in every run: `sample_rows`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from curator_df.core.arguments import require_number, strings_of
from curator_df.core.backend import backend_of
from curator_df.core.columns import choose, require_columns, require_table
from curator_df.core.ranges.blocks import BlockKernel, Outcome, map_blocks
from curator_df.errors import ParameterError, SchemaError
from curator_df.kernels import kernel_sets
from curator_df.kernels.device_support import hashes_price
from curator_df.kernels.row_sample import random_numbers, sampled
from curator_df.ops.device_blocks import block_hashes, require_device_text, rows_where
from curator_df.ops.ids import By

REASON = "not_sampled"
# Measured (tests/contracts/test_memory.py) where nine tenths of the rows stay: at most 0.96, of rows of 100 bytes as well.
PEAK_FACTOR = 1.2


def sample_rows(
    df: Any, *, fraction: float, seed: int = 0, by: By = "address", text: str | Sequence[str] = "text"
) -> Any:
    """Keep a random sample of the rows; a larger sample contains all rows of a smaller one, so two samples are no split.

    Parameters
    ----------
    df : dask.dataframe.DataFrame
        A chain that begins with `read_jsonl` or `read_parquet`, or any table with an integer index.
    fraction : float
        Share of the rows to keep, more than 0 and at most 1. Each row is kept with this probability, so of n rows about
        ``fraction * n`` are kept, plus or minus ``2 * sqrt(fraction * n)``.
    seed : int, default 0
        Another seed gives another, independent sample; it shares rows with the first one by chance.
    by : {"address", "content"}
        What identifies a row, as in `add_ids`. ``"address"``: its position in the list of input files. ``"content"``:
        the hash of its text, so a document is sampled, or not, in any input alike; equal texts are kept or dropped
        together.
    text : str or list of str
        With ``by="content"``: column or columns to hash.

    Returns
    -------
    dask.dataframe.DataFrame
        The kept rows in order, with their index; dropped rows are counted as ``not_sampled``.

    Raises
    ------
    ParameterError
        If ``fraction`` is not more than 0 and at most 1, or ``seed`` is not a 64-bit integer.
    ColumnError
        If one of ``text`` is missing, with ``by="content"``.
    UnsupportedBackendError
        If the blocks are cuDF blocks and more than one text column is hashed, or a column that is not text.
    SchemaError
        If the index is not an integer index, with ``by="address"``.

    Notes
    -----
    Rows: subset. Columns: same. Backends: pandas; cudf by address, and by content of one column. Peak extra memory: 1.2 x
    block. Computes: no.

    The sample does not depend on blocks, workers or earlier drops: a row is kept if a hash of its identity and the seed
    is below ``fraction``. Samples of 1 %, 5 % and 25 % with the same seed are therefore nested, so you can try a recipe
    on increasing samples that share documents.

    Two samples are not a training and a test set: with the same seed, ``fraction=0.9`` contains every row of
    ``fraction=0.1``; with different seeds, 90 % of the rows of the smaller one are in the larger one too.

    Examples
    --------
    >>> import dask.dataframe as dd
    >>> docs = dd.from_pandas(pd.DataFrame({"text": list("abcdefghij")}), npartitions=3)
    >>> [docs.pipe(sample_rows, fraction=part).compute().index.tolist() for part in (0.2, 0.5)]
    [[1, 4], [1, 4, 5, 6, 7]]
    """
    require_table(df, "sample_rows")
    choose("sample_rows", "by", by, By)
    require_number("sample_rows", "fraction", fraction)
    if not 0 < fraction <= 1:
        raise ParameterError(f"sample_rows: fraction={fraction} is not more than 0 and at most 1")
    if not isinstance(seed, int) or not -(1 << 63) <= seed < 1 << 63:
        raise ParameterError(f"sample_rows: seed={seed!r} is not an integer of 64 bits")
    backend_of(df._meta)  # an error unless it is pandas or cuDF
    columns: tuple[str, ...] = ()
    if by == "content":
        columns = strings_of("sample_rows", "text", text)
        require_columns(df, "sample_rows", *columns)
        require_device_text("sample_rows", df._meta, columns)
    elif not pd.api.types.is_integer_dtype(df._meta.index.dtype):
        raise SchemaError(
            f"sample_rows needs an index of integers for by='address', and this table's holds {df._meta.index.dtype}; "
            "use by='content'"
        )
    kernel = BlockKernel(
        "sample_rows",
        sample_rows_block,
        {"fraction": float(fraction), "seed": seed, "columns": columns},
        PEAK_FACTOR,
        device_peak_factor=PEAK_FACTOR + hashes_price(normalized=False)[0],
        peak_is_measured=True,
        uses_addresses=by == "address",
        row_share=float(fraction),
        compiled=kernel_sets.CONTENT if by == "content" else (),
    )
    return map_blocks(df, kernel, meta=df._meta)


def sample_rows_block(block: Any, *, fraction: float, seed: int, columns: tuple[str, ...]) -> Outcome:
    """Kernel of `sample_rows`; without columns, the index identifies rows."""
    keep = sampled(_identities(block, columns), fraction, seed)
    if keep.all():
        return Outcome(block)
    gone = int((~keep).sum())
    return Outcome(
        rows_where(block, keep),
        {REASON: gone},
        rejects=lambda: (rows_where(block, ~keep), _why(block, ~keep, fraction, seed, columns)),
    )


def _why(block: Any, gone: Any, fraction: float, seed: int, columns: tuple[str, ...]) -> dict[str, Any]:
    """Return what rejects say: the sample, and the random number of each row, which would have to be below the fraction."""
    numbers = random_numbers(_identities(block, columns), seed)[gone]
    rows = len(numbers)
    said = f"fraction={fraction:g}, seed={seed}"
    return {"reason": [REASON] * rows, "rule": [said] * rows, "value": numbers, "threshold": [fraction] * rows}


def _identities(block: Any, columns: tuple[str, ...]) -> Any:
    """Return a new array of uint64."""
    if columns:
        return block_hashes(block, columns)[:, 0].copy()
    return block.index.to_numpy().astype(np.int64).view(np.uint64)
