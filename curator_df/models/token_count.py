# SPDX-License-Identifier: Apache-2.0
"""Count the tokens of a tokenizer as columns: `add_token_count`."""

from __future__ import annotations

import os
from typing import Any, Literal

import dask.dataframe as dd
import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow.compute as pc

from curator_df.arguments import choose
from curator_df.core.columns import refuse_columns, require_text
from curator_df.core.ranges.blocks import BlockKernel, Outcome, map_blocks
from curator_df.core.ranges.price import Price
from curator_df.kernels.text.buffers import text_chunks
from curator_df.models.tokens.tokenizer import CALL_BYTES, LIBRARY_BYTES, Tokenizer, find_tokenizer, loaded
from curator_df.ops.host_only import require_host

PerToken = Literal["characters", "bytes"]
NO_TOKENS = -1.0
"""Ratio of a text without tokens, as in NeMo Curator."""
PEAK_FACTOR = 0.6
"""Memory multiplier: a number and its mask of 9 bytes for each row and column, and intermediate counts; for rows of 100 bytes."""


def add_token_count(
    df: dd.DataFrame,
    tokenizer: str | os.PathLike[str],
    *,
    into: str = "token_count",
    per_token: PerToken | None = None,
    special_tokens: bool = False,
    revision: str | None = None,
    text: str = "text",
) -> dd.DataFrame:
    """Add the number of tokens of each text, as counted by a tokenizer from the Hugging Face hub.

    Parameters
    ----------
    df : dask.dataframe.DataFrame
        The table.
    tokenizer : str or path
        A file ``json``; a folder with one (or with other files, which transformers converts); or the id of a
        model on the Hugging Face hub.
    into : str, default "token_count"
        Name of the column.
    per_token : {"characters", "bytes"}, optional
        Also add ``characters_per_token`` or ``bytes_per_token``: the length of the text (code points, or bytes of
        UTF-8) divided by its number of tokens, without special tokens; -1 for a text without tokens.
    special_tokens : bool, default False
        Also count the special tokens that the tokenizer adds to a text.
    revision : str, optional
        Commit, tag or branch of a model on the hub.
    text : str, default "text"
        The text column.

    Returns
    -------
    dask.dataframe.DataFrame
        The same rows with a column ``Int64`` and, if requested, one ``Float64``; null where the text is null.

    Raises
    ------
    MissingExtraError
        If the package tokenizers is not installed.
    ColumnError
        If the text column is missing, or a new column already exists.
    InputError
        If the tokenizer does not exist.
    ParameterError
        If ``per_token`` is neither of these, or ``revision`` is given for local files.
    UnsupportedBackendError
        If the blocks are cuDF blocks.

    See Also
    --------
    write_tokens, blend

    Notes
    -----
    Rows: same. Columns: plus ``token_count``; with ``per_token`` also ``characters_per_token`` or ``bytes_per_token``.
    Backends: pandas. Peak extra memory: 0.6 x block, 60 MB in each task, and a tokenizer in each worker. Computes: no; it
    reads the tokenizer's files once for their digest.

    Profile rules can refer to these columns (``token_count``, ``characters_per_token``, ``bytes_per_token``):
    `keep_profile` after this operator reads them in addition to the text. The receipt counts ``tokens``.

    The plan reserves memory for the tokenizer once in each worker, and for a batch of texts in each task. Each thread
    counts by itself, and the tokenizer starts no further threads. A text of more than 131,072 bytes is counted in pieces that
    overlap, so that its tokens are those of the whole text.

    References
    ----------
    .. [1] https://huggingface.co/docs/tokenizers

    Examples
    --------
    >>> docs.pipe(cdf.add_token_count, "tokenizer.json", per_token="characters")  # doctest: +SKIP
    """
    operator = "add_token_count"
    require_text(df, operator, text)
    require_host(df._meta, operator)
    if per_token is not None:
        choose(operator, "per_token", per_token, PerToken)
    ratio = None if per_token is None else f"{per_token}_per_token"
    refuse_columns(df, operator, into, *([ratio] if ratio else []))
    found = find_tokenizer(operator, tokenizer, revision)
    parameters = {
        "text": text,
        "tokenizer": found,
        "into": into,
        "ratio": ratio,
        "special_tokens": bool(special_tokens),
    }
    kernel = BlockKernel(
        operator,
        add_token_count_block,
        parameters,
        price=Price(
            PEAK_FACTOR,
            fixed_bytes=CALL_BYTES,
            held_bytes=found.held_bytes,
            libraries={"tokenizers": LIBRARY_BYTES},
            is_measured=True,
        ),
    )
    new = {into: pd.Series(dtype="Int64"), **({ratio: pd.Series(dtype="Float64")} if ratio else {})}
    return map_blocks(df, kernel, meta=df._meta.assign(**new))


def add_token_count_block(
    block: Any, *, text: str, tokenizer: Tokenizer, into: str, ratio: str | None, special_tokens: bool
) -> Outcome:
    """Kernel of `add_token_count`."""
    require_host(block, "add_token_count")
    counter = loaded(tokenizer)
    tokens, is_null = counter.count(block[text]), block[text].isna().to_numpy(dtype=bool)
    total = int(tokens.sum())
    columns: dict[str, Any] = {}
    if ratio is not None:
        lengths = _lengths(block[text], in_bytes=ratio == "bytes_per_token")
        ratios = np.divide(lengths, tokens, out=np.full(len(tokens), NO_TOKENS), where=tokens > 0)
        columns[ratio] = pd.arrays.FloatingArray(ratios, is_null.copy())
    if special_tokens:
        tokens += counter.special_tokens
    columns = {into: pd.arrays.IntegerArray(tokens, is_null), **columns}
    added = {name: pd.Series(values, index=block.index, copy=False) for name, values in columns.items()}
    return Outcome(block.assign(**added), counters={"tokens": total})


def _lengths(texts: pd.Series, *, in_bytes: bool) -> npt.NDArray[np.int64]:
    chunks = text_chunks(texts)
    lengths = pc.binary_length(chunks) if in_bytes else pc.utf8_length(chunks)
    return np.asarray(pc.fill_null(lengths, 0), dtype=np.int64)
