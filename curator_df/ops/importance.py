# SPDX-License-Identifier: Apache-2.0
"""Importance weights after DSIR: `describe_importance` fits the weights of n-grams, `add_importance` adds those of texts.

Both hash words and pairs of words into buckets (`kernels.text.bucket_ngrams`). A bag of n-grams of the target and one of the raw
corpus are two distributions over the buckets; the logarithm of their quotient is the weight of a bucket.
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass, field
from typing import Any

import dask.dataframe as dd
import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from curator_df.arguments import path_of, require_integer
from curator_df.core.columns import refuse_columns, require_text
from curator_df.core.ranges.blocks import BlockKernel, Outcome, map_blocks
from curator_df.core.ranges.price import Price
from curator_df.core.runner.explaining import PlanKnown, joined_plans
from curator_df.errors import InputError, ParameterError
from curator_df.files.storage import reading_errors
from curator_df.io.streams.file_stream import open_file
from curator_df.kernels.compiling import kernel_sets
from curator_df.kernels.text.bucket_ngrams import count_ngrams, sum_ngram_weights, tables
from curator_df.kernels.text.buffers import text_spans
from curator_df.ops.block_counts import Batches, count_blocks
from curator_df.ops.host_only import require_host

NUM_BUCKETS = 10_000
"""Number of buckets in DSIR."""
MOST_BUCKETS = 1 << 20
SMOOTHING = 1e-8
"""Number that DSIR adds to each share before it takes the logarithm."""
COUNTED = "counted with another row"
"""Reason of the rows of a block, whose counts are one row."""
COUNT_FACTOR = 0.5
SCORE_FACTOR = 0.3
"""Peak extra bytes as a multiple of the block's: a number and its mask of 9 bytes, for rows of 100 bytes."""
MOST_BATCH_ROWS, BATCH_BYTES = 64, 10_000_000
"""Number of blocks whose counts are added up together, and their bytes at most: 16 for each bucket of a block."""
COLUMNS = ("bucket", "target_count", "raw_count", "log_weight")
_COUNTS: Any = {name: pd.ArrowDtype(pa.list_(pa.int64())) for name in ("buckets", "counts")}


@dataclass(frozen=True)
class NgramWeights:
    """Weights of the buckets of n-grams."""

    digest: str
    """Digest (BLAKE2b) of the weights."""
    weights: npt.NDArray[np.float64] = field(repr=False, compare=False, metadata={"identity": False})
    """Weight of each bucket, read-only, shape (buckets,)."""


def describe_importance(
    df: dd.DataFrame | pd.DataFrame,
    target: dd.DataFrame | pd.DataFrame,
    *,
    num_buckets: int = NUM_BUCKETS,
    text: str = "text",
    workdir: str | os.PathLike[str] | None = None,
    storage_options: dict[str, Any] | None = None,
) -> pd.DataFrame:
    """Compare the words and pairs of words of a table with those of a target, as weights for `add_importance`.

    Parameters
    ----------
    df : dask.dataframe.DataFrame or pandas.DataFrame
        The raw corpus, or a sample of it: ten million words are enough for 10,000 buckets.
    target : dask.dataframe.DataFrame or pandas.DataFrame
        Texts that the selected rows are to resemble, such as pages of Wikipedia.
    num_buckets : int, default 10_000
        Number of buckets into which words and pairs of words are hashed, up to 1,048,576.
    text : str, default "text"
        The text column of both tables.
    workdir : str or path, optional
        Folder (or URL) visible to all workers, where the counts of blocks are stored in a subfolder: the same call finds
        them again, complete or interrupted. Defaults to the cluster's ``workdir``.
    storage_options : dict, optional
        fsspec options for ``workdir``.

    Returns
    -------
    pandas.DataFrame
        One row for each bucket: ``bucket``, from 0; ``target_count`` and ``raw_count``, the words and pairs of words of the
        two tables in it; and ``log_weight``, the natural logarithm of the share in the target divided by that in the corpus. Pass
        it to `add_importance`, or save it with ``to_parquet``.

    Raises
    ------
    ColumnError
        If the text column is missing.
    SchemaError
        If it is not a column of text.
    ParameterError
        If ``num_buckets`` is out of range, or a table has no word.
    BudgetError
        If the plan does not fit the budget; nothing has been started.
    NoClusterError
        If a table is a Dask table and no cluster is running.
    UnsupportedBackendError
        If the blocks are cuDF blocks.

    See Also
    --------
    add_importance, describe

    Notes
    -----
    Rows: one for each bucket. Columns: ``bucket``, ``target_count``, ``raw_count``, ``log_weight``. Peak extra memory: 0.5 x
    block (assumed), and 50 MB in this process. Computes: yes, one pass over each table.

    The features and the formula are those of DSIR [1]_ and of its package ``data-selection``: words by NLTK's
    ``WordPunctTokenizer`` on the text in lower case, and pairs of consecutive words; 1e-8 is added to each share. The hash
    differs (FNV-1a, mixed, in place of SHA-256), so the buckets, and not the weights of the package, do.

    References
    ----------
    .. [1] Xie et al., Data Selection for Language Models via Importance Resampling, 2023, https://arxiv.org/abs/2302.03169;
       ``data_selection/hashed_ngram_dsir.py`` in https://github.com/p-lambda/dsir

    Examples
    --------
    >>> import pandas as pd
    >>> raw = pd.DataFrame({"text": ["buy now, buy cheap", "a river runs"]})
    >>> found = describe_importance(raw, pd.DataFrame({"text": ["a river runs"]}), num_buckets=64)
    >>> found[["target_count", "raw_count"]].sum().tolist()
    [5, 14]
    """
    operator = "describe_importance"
    require_integer(operator, "num_buckets", num_buckets)
    if not 1 < num_buckets <= MOST_BUCKETS:
        raise ParameterError(f"{operator}: num_buckets={num_buckets} must be from 2 to {MOST_BUCKETS:,}")
    shares, counts, explained = [], [], []
    for name, given in (("target", target), ("df", df)):
        kernel = _counting(operator, given, text, num_buckets)
        meta = pd.DataFrame({column: pd.Series(dtype=dtype) for column, dtype in _COUNTS.items()})
        try:
            total = _added_up(count_blocks(given, kernel, (text,), meta, workdir, storage_options), num_buckets)
        except PlanKnown as known:
            explained.append(known)
            continue
        if not total.any():
            raise ParameterError(f"{operator}: {name}= has no words in the column {text!r}. Pass a table with texts")
        counts.append(total)
        shares.append(total / total.sum())
    if explained:
        plan = explained[-1].plan
        if len(explained) > 1:
            plan = joined_plans(
                [each.plan for each in reversed(explained)], "a pass like this over the table of target="
            )
        raise PlanKnown(plan, [program for each in explained for program in each.programs])
    weights = np.log(shares[0] + SMOOTHING) - np.log(shares[1] + SMOOTHING)
    return pd.DataFrame(dict(zip(COLUMNS, (np.arange(num_buckets), *counts, weights), strict=True)))


def _counting(operator: str, given: Any, text: str, num_buckets: int) -> BlockKernel:
    """Check a table, and return the kernel that counts its n-grams."""
    table = dd.from_pandas(given.iloc[:0], npartitions=1) if isinstance(given, pd.DataFrame) else given
    require_text(table, operator, text)
    require_host(table._meta, operator)
    return BlockKernel(
        operator,
        describe_importance_block,
        {"text": text, "num_buckets": num_buckets},
        price=Price(COUNT_FACTOR, fixed_bytes=24 * num_buckets, is_measured=False),
        compiled=kernel_sets.BUCKETS,
    )


def describe_importance_block(block: Any, *, text: str, num_buckets: int) -> Outcome:
    """Kernel of `describe_importance`: a row with the buckets that occur in the block, and their counts."""
    require_host(block, "describe_importance")
    counts, arrays = np.zeros(num_buckets, dtype=np.int64), tables()
    for span in text_spans(block[text]):
        count_ngrams(span.data, span.offsets, *arrays, counts)
    found = np.flatnonzero(counts)
    rows = block.index[:1]
    columns = {
        name: pd.Series(pd.array([values] * len(rows), dtype=_COUNTS[name]), index=rows)
        for name, values in (("buckets", found), ("counts", counts[found]))
    }
    return Outcome(pd.DataFrame(columns, index=rows), {COUNTED: len(block) - 1} if len(block) > 1 else {})


def _added_up(batches: Batches, num_buckets: int) -> npt.NDArray[np.int64]:
    """Return the counts of all blocks by bucket."""
    total = np.zeros(num_buckets, dtype=np.int64)
    for batch in batches(max(1, min(MOST_BATCH_ROWS, BATCH_BYTES // (16 * num_buckets)))):
        for buckets, counts in zip(batch["buckets"].chunks, batch["counts"].chunks, strict=True):
            np.add.at(total, buckets.flatten().to_numpy(), counts.flatten().to_numpy())
    return total


def add_importance(
    df: dd.DataFrame,
    ngram_weights: pd.DataFrame | str | os.PathLike[str],
    *,
    text: str = "text",
    into: str = "importance",
    storage_options: dict[str, Any] | None = None,
) -> dd.DataFrame:
    """Add the importance weight of each text: the higher, the more it resembles the target of `describe_importance`.

    Parameters
    ----------
    df : dask.dataframe.DataFrame
        The table.
    ngram_weights : pandas.DataFrame or path
        What `describe_importance` returned, or a Parquet file (or URL) in which it was saved.
    text : str, default "text"
        The text column.
    into : str, default "importance"
        Name of the new column.
    storage_options : dict, optional
        fsspec options for the file.

    Returns
    -------
    dask.dataframe.DataFrame
        The same rows with a column ``Float64``: the logarithm of the probability of the text in the target, divided by that in
        the corpus; 0 for a text without words, null where the text is null.

    Raises
    ------
    ColumnError
        If the text column is missing, or the new column already exists.
    InputError
        If the file does not exist, or the table is not one of `describe_importance`.
    UnsupportedBackendError
        If the blocks are cuDF blocks.

    See Also
    --------
    describe_importance, add_perplexity, keep_where

    Notes
    -----
    Rows: same. Columns: plus ``importance``. Backends: pandas. Peak extra memory: 0.3 x block, and 8 bytes for each bucket in
    each worker. Computes: no; it reads the file once.

    The weight of a text is the sum of the weights of its words and pairs of words, as in DSIR [1]_, so it grows with the length
    of the text, and a sample of whole texts by weight prefers short ones if most weights are negative. DSIR samples parts of
    about one length: split the texts (`split_documents`), and write the parts with `checkpoint` before they are sampled.

    References
    ----------
    .. [1] Xie et al., 2023, https://arxiv.org/abs/2302.03169

    Examples
    --------
    >>> import dask.dataframe as dd, pandas as pd
    >>> raw = pd.DataFrame({"text": ["buy now, buy cheap", "a river runs"]})
    >>> weights = describe_importance(raw, pd.DataFrame({"text": ["a river runs"]}))
    >>> docs = dd.from_pandas(raw, npartitions=1)
    >>> (docs.pipe(add_importance, weights).compute()["importance"] > 0).tolist()
    [False, True]
    """
    operator = "add_importance"
    require_text(df, operator, text)
    require_host(df._meta, operator)
    refuse_columns(df, operator, into)
    found = _weights_of(operator, ngram_weights, storage_options)
    kernel = BlockKernel(
        operator,
        add_importance_block,
        {"text": text, "ngram_weights": found, "into": into},
        price=Price(SCORE_FACTOR, held_bytes=8 * len(found.weights), is_measured=True),
        compiled=kernel_sets.BUCKETS,
    )
    return map_blocks(df, kernel, meta=df._meta.assign(**{into: pd.Series(dtype="Float64")}))


def add_importance_block(block: Any, *, text: str, ngram_weights: NgramWeights, into: str) -> Outcome:
    """Kernel of `add_importance`."""
    require_host(block, "add_importance")
    sums, missing = np.zeros(len(block)), np.zeros(len(block), dtype=np.bool_)
    weights = ngram_weights.weights.view()
    weights.flags.writeable = False  # a copy that was sent to a worker can be written
    arrays = tables()
    for span in text_spans(block[text]):
        rows = slice(span.first_row, span.first_row + len(span))
        sum_ngram_weights(span.data, span.offsets, *arrays, weights, sums[rows])
        if span.valid is not None:
            missing[rows] = ~span.valid
    return Outcome(block.assign(**{into: pd.Series(pd.arrays.FloatingArray(sums, missing), index=block.index)}))


def _weights_of(operator: str, given: Any, options: dict[str, Any] | None) -> NgramWeights:
    """Return the weights of a table, or of a file.

    Raises
    ------
    InputError
        If it is not a table of `describe_importance`.
    """
    if isinstance(given, pd.DataFrame):
        name, table = "the table", given
    else:
        name = path_of(operator, "ngram_weights", given)
        with reading_errors(name), open_file(name, options or {}) as file:
            try:
                table = pq.read_table(file).to_pandas()
            except pa.ArrowInvalid as exc:
                raise InputError(
                    f"{operator}: {name!r} is not a Parquet file: {exc}. Pass a Parquet file with the table that "
                    "describe_importance returned"
                ) from exc
        name = repr(name)
    missing = [column for column in ("bucket", "log_weight") if column not in table.columns]
    if missing or not 1 < len(table) <= MOST_BUCKETS:
        what = f"no column {missing[0]!r}" if missing else f"{len(table):,} rows"
        raise InputError(
            f"{operator}: {name} has {what}, so it is not a table that describe_importance returned. Pass the table that it "
            "returned, unchanged"
        )
    weights = np.ascontiguousarray(table["log_weight"], dtype=np.float64)
    if not np.array_equal(table["bucket"], np.arange(len(table))) or not np.isfinite(weights).all():
        raise InputError(
            f"{operator}: {name} must have one row for each bucket, in order, with a finite weight. Pass the table that "
            "describe_importance returned, unchanged"
        )
    return NgramWeights(hashlib.blake2b(weights.tobytes(), digest_size=16).hexdigest(), weights)
