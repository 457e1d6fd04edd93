# SPDX-License-Identifier: Apache-2.0
"""Keep MinHash signatures as a column: `add_minhash`."""

from __future__ import annotations

from typing import Any

import dask.dataframe as dd

from curator_df.core.columns import refuse_columns, require_text
from curator_df.core.ranges.blocks import BlockKernel, map_blocks
from curator_df.core.ranges.price import Price
from curator_df.kernels.compiling import kernel_sets
from curator_df.kernels.minhash.scheme import Scheme, SchemeName, shingle_unit
from curator_df.kernels.minhash.stored_signatures import pack_signatures, stored_dtype
from curator_df.ops.duplicates.near_scheme import SIGNATURES, chosen_scheme
from curator_df.ops.host_only import require_host

ROW_BYTES = 100
"""Bytes of the rows for which the peak factor holds; a block of shorter ones is halved when it does not fit."""


def add_minhash(
    df: dd.DataFrame,
    *,
    text: str = "text",
    scheme: Scheme | SchemeName = "default",
    into: str = SIGNATURES,
) -> dd.DataFrame:
    """Add the MinHash signature of each text as a column, so that texts can be compared later without reading them again.

    Parameters
    ----------
    df : dask.dataframe.DataFrame
        The table.
    text : str
        The text column.
    scheme : Scheme or str, default "default"
        As in `drop_near_duplicates`. A signature has as many hashes as all bands need together; other bands can be
        formed from them.
    into : str
        Name of the new column.

    Returns
    -------
    dask.dataframe.DataFrame
        The table with one more column of fixed-width bytes: 24, plus 4 or 8 for each hash (1,064 by default). The first
        8 bytes record how the signature was made, the next 16 are the text's content hash, and the rest are the hashes,
        all little-endian. A text without a shingle has zeros; null counts as empty.

    Raises
    ------
    ColumnError
        If the text column is missing, or the new column already exists.
    ParameterError
        If a parameter is out of range.

    Notes
    -----
    Rows: same. Columns: plus ``minhash``, a signature with a header: fixed-width bytes. Backends: pandas. Peak extra
    memory: 11.6 x block with 260 hashes of 32 bits for rows of 100 bytes (the signatures, and 1 x block). Computes: no.

    Write it with `write_parquet` (JSON has no bytes), with the text or only with an id. Then
    ``drop_near_duplicates(df, signatures="minhash")`` reads it instead of computing signatures again, with another
    threshold or other bands; and
    ``drop_near_duplicates(new, against=read_parquet("signatures/"))`` drops the rows of a new table that are similar to
    one whose signature was stored.

    Examples
    --------
    >>> import pandas as pd, dask.dataframe as dd
    >>> docs = dd.from_pandas(pd.DataFrame({"text": ["to be or not to be", None]}), npartitions=1)
    >>> docs.pipe(add_minhash).compute()["minhash"].map(len).tolist()
    [1064, 1064]
    """
    chosen = chosen_scheme(df, "add_minhash", scheme)
    require_text(df, "add_minhash", text)
    require_host(df._meta, "add_minhash")
    refuse_columns(df, "add_minhash", into)
    dtype = stored_dtype(chosen)
    kernel = BlockKernel(
        "add_minhash",
        add_minhash_block,
        {"text": text, "scheme": chosen, "into": into},
        price=Price(round(1.0 + dtype.pyarrow_dtype.byte_width / ROW_BYTES, 1), is_measured=True),
        compiled=kernel_sets.signatures(shingle_unit(chosen), use_64_bit_hash=chosen.use_64_bit_hash),
    )
    return map_blocks(df, kernel, meta=add_minhash_block(df._meta, text=text, scheme=chosen, into=into))


def add_minhash_block(block: Any, *, text: str, scheme: Scheme, into: str) -> Any:
    """Kernel of `add_minhash`."""
    require_host(block, "add_minhash")
    return block.assign(**{into: pack_signatures(block[text], scheme)})
