# SPDX-License-Identifier: Apache-2.0
"""Size and lengths of a text table, in all or for each value of a column: `describe`.

Lengths are counted rounded down to three digits, so that the counts of a block have a bounded size. The counts of all blocks are
added up in this process, with fewer digits if there are many of them.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from typing import Any

import dask.dataframe as dd
import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from curator_df.arguments import require_string
from curator_df.core.columns import is_text, require_columns, require_table, require_text
from curator_df.core.ranges.blocks import BlockKernel, Outcome
from curator_df.core.ranges.price import Price
from curator_df.errors import ParameterError, SchemaError
from curator_df.kernels.text.buffers import text_chunks
from curator_df.ops.block_counts import Batches, count_blocks, require_token_column
from curator_df.ops.host_only import require_host

OPERATOR = "describe"
PEAK_FACTOR = 4.0
TEXT = pd.StringDtype("pyarrow")
MOST_GROUPS = 10_000
"""Maximum number of different values of ``by``."""
DIGITS = 3
"""Digits of a length that are counted; the others are zeros."""
MOST_COUNTS = 500_000
"""Maximum number of counts in this process, each of a value of ``by`` and a length: beyond it, lengths lose a digit."""
SUMS = ("rows", "missing_texts", "characters", "tokens")
NUMBERS = ("length", *SUMS, "longest")
"""Numbers of a row of counts: the rounded length, sums, and the largest length."""
QUANTILES = {"p5_chars": 0.05, "median_chars": 0.5, "p95_chars": 0.95}
SHARES = ("share_of_rows", "share_of_characters")
LENGTHS = ("mean_chars", *QUANTILES, "max_chars")
BOUNDS = (0, *(digit * 10**power for power in range(10) for digit in (1, 2, 5)))
"""Least characters of the classes of ``attrs["lengths"]``."""


def describe(
    df: dd.DataFrame | pd.DataFrame,
    *,
    by: str | None = None,
    token_column: str | None = None,
    text: str = "text",
    workdir: str | os.PathLike[str] | None = None,
    storage_options: dict[str, Any] | None = None,
) -> pd.DataFrame:
    """Count rows, characters and tokens, and show how long the texts are, in all or for each value of a column.

    Parameters
    ----------
    df : dask.dataframe.DataFrame or pandas.DataFrame
        The table.
    by : str, optional
        Column of text, numbers, booleans, dates or categories whose values get a row each, such as ``"language"`` or
        ``"source"``: at most 10,000 different ones.
    token_column : str, optional
        Column of integers with the number of tokens of each row, as `add_token_count` adds it. Null counts as 0.
    text : str, default "text"
        The text column.
    workdir : str or path, optional
        Folder (or URL) visible to all workers, where the counts of blocks are stored in a subfolder: the same call finds
        them again, complete or interrupted. Defaults to the cluster's ``workdir``.
    storage_options : dict, optional
        fsspec options for ``workdir``.

    Returns
    -------
    pandas.DataFrame
        One row, or one for each value of ``by`` (as text), those with the most rows first. ``rows``; ``share_of_rows`` and
        ``share_of_characters`` of all, from 0 to 1 (with ``by``); ``missing_texts``, rows whose text is null; ``characters``
        (code points); ``tokens`` with ``token_column``; ``mean_chars``; ``p5_chars``, ``median_chars`` and ``p95_chars``, of
        texts that are not null, rounded down to ``attrs["digits"]`` digits: three, or fewer if ``by`` has more than about a
        hundred values; ``max_chars``. ``attrs["lengths"]`` is a table of all texts by length: ``min_chars``, ``max_chars``
        and ``rows``.

    Raises
    ------
    ColumnError
        If a column is missing.
    SchemaError
        If ``text`` is not a column of text, ``token_column`` not one of integers, or ``by`` one of binary or nested values.
    ParameterError
        If ``by`` has more than 10,000 different values.
    BudgetError
        If the plan does not fit the budget; nothing has been started.
    NoClusterError
        If the table is a Dask table and no cluster is running.
    UnsupportedBackendError
        If the blocks are cuDF blocks.

    See Also
    --------
    describe_domains, explore_thresholds, add_token_count

    Notes
    -----
    Rows: one, or one for each value of ``by``. Columns: ``rows``, ``missing_texts``, ``characters``, ``tokens``, lengths. Peak
    extra memory: 4.0 x block (assumed), and 350 MB in this process. Computes: yes, one pass over the table.

    Examples
    --------
    >>> import pandas as pd
    >>> docs = pd.DataFrame({"text": ["ab", "abcd", None, "x" * 1_234], "language": ["de", "de", "de", "en"]})
    >>> describe(docs)[["rows", "missing_texts", "characters", "median_chars", "p95_chars", "max_chars"]]
       rows  missing_texts  characters  median_chars  p95_chars  max_chars
    0     4              1        1240             4       1230       1234
    >>> describe(docs, by="language")[["language", "rows", "share_of_rows", "mean_chars"]]
      language  rows  share_of_rows  mean_chars
    0       de     3           0.75         3.0
    1       en     1           0.25      1234.0
    """
    require_string(OPERATOR, "text", text)
    kernel = _kernel(df, by, text, token_column)
    meta = pd.DataFrame(
        {
            "group": pd.Series(dtype=TEXT),
            **{name: pd.Series(dtype=np.int64) for name in NUMBERS},
        }
    )
    counted = count_blocks(df, kernel, (text, by, token_column), meta, workdir, storage_options)
    counts, digits = _added_up(counted)
    groups = _groups(counts)
    made = pd.DataFrame([_figures(own) for _, own in groups])
    if token_column is None:
        made = made.drop(columns="tokens")
    if by is not None:
        made.insert(0, by, pd.array([name for name, _ in groups], dtype=TEXT))
        made = made[: len(counts)]  # without rows there are no values
        for place, name in enumerate(SHARES, 2):
            counts_of = made[name.removeprefix("share_of_")]
            made.insert(place, name, counts_of / max(int(counts_of.sum()), 1))
        made = made.sort_values(["rows", "characters"], ascending=False, kind="stable", ignore_index=True)
    made.attrs |= {"lengths": _lengths(counts), "digits": digits}
    return made


def _kernel(table: Any, by: str | None, text: str, tokens: str | None) -> BlockKernel:
    """Check a table, and return the kernel that counts it."""
    if isinstance(table, pd.DataFrame):
        table = dd.from_pandas(table.iloc[:0], npartitions=1)
    require_table(table, OPERATOR)
    require_text(table, OPERATOR, text)
    require_host(table._meta, OPERATOR)
    if by is not None:
        require_string(OPERATOR, "by", by)
        require_columns(table, OPERATOR, by)
        if not _is_groupable(table.dtypes[by]):
            raise _not_groupable(by, table.dtypes[by])
        if by in (*SUMS, *SHARES, *LENGTHS):
            raise ParameterError(
                f"{OPERATOR}: by={by!r} is also the name of a column that the result adds. Rename the column of the table "
                "first"
            )
    if tokens is not None:
        require_token_column(table, OPERATOR, tokens)
    return BlockKernel(
        OPERATOR,
        describe_block,
        {"text": text, "by": by, "tokens": tokens},
        price=Price(PEAK_FACTOR, is_measured=False),
    )


def describe_block(block: Any, *, text: str, by: str | None, tokens: str | None) -> Outcome:
    """Kernel of `describe`: a row for each value of ``by`` and rounded length in the block; -1 is the length of null."""
    require_host(block, OPERATOR)
    lengths = np.asarray(pc.fill_null(pc.utf8_length(text_chunks(block[text])), -1), dtype=np.int64)
    codes, groups = np.zeros(len(block), dtype=np.int64), pd.array([""], dtype=TEXT)
    if by is not None:
        _require_plain_values(block[by], by)
        codes, found = pd.factorize(block[by].astype(TEXT), use_na_sentinel=False)
        groups = pd.array(found, dtype=TEXT)
    rounded = rounded_down(lengths)
    order = np.lexsort((rounded, codes))
    begins = np.ones(len(block), dtype=np.bool_)
    begins[1:] = (np.diff(codes[order]) != 0) | (np.diff(rounded[order]) != 0)
    starts = np.flatnonzero(begins)
    firsts = order[starts]
    given = np.zeros(len(block), dtype=np.int64) if tokens is None else block[tokens].to_numpy(np.int64, na_value=0)
    columns = {
        "length": rounded[firsts],
        "rows": np.diff(np.append(starts, len(block))),
        "missing_texts": _sums(lengths[order] < 0, starts),
        "characters": _sums(np.maximum(lengths, 0)[order], starts),
        "tokens": _sums(given[order], starts),
        "longest": np.maximum.reduceat(lengths[order], starts) if len(starts) else starts,
    }
    made = pd.DataFrame({"group": groups[codes[firsts]], **columns}, index=block.index[firsts])
    shared = len(block) - len(made)
    return Outcome(made, {"counted with another row": shared} if shared else {})


def _is_groupable(dtype: Any) -> bool:
    """Return whether a column can be ``by``; Python objects are checked in each block."""
    if isinstance(dtype, pd.CategoricalDtype):
        return dtype.categories is None or _is_groupable(dtype.categories.dtype)
    if isinstance(dtype, pd.ArrowDtype):
        kind = dtype.pyarrow_dtype
        return is_text(dtype) or (pa.types.is_primitive(kind) or pa.types.is_decimal(kind) or pa.types.is_null(kind))
    return is_text(dtype) or getattr(dtype, "kind", "") in "biufM"


def _require_plain_values(column: Any, by: str) -> None:
    """Raise `SchemaError` if a block's column, or its categories, has bytes or nested values among Python objects."""
    values = column.cat.categories if isinstance(column.dtype, pd.CategoricalDtype) else column
    if values.dtype == object:
        for value in values:
            if isinstance(value, Collection) and not isinstance(value, str):
                raise _not_groupable(by, type(value).__name__)
    elif not _is_groupable(values.dtype):  # categories that Dask did not know
        raise _not_groupable(by, values.dtype)


def _not_groupable(by: str, kind: Any) -> SchemaError:
    return SchemaError(
        f"{OPERATOR}: by={by!r} must be a column of text, numbers, booleans, dates or categories, but it holds {kind}. "
        "Name another column, or convert this one to text first"
    )


def rounded_down(lengths: npt.NDArray[np.int64], digits: int = DIGITS) -> npt.NDArray[np.int64]:
    """Return lengths with zeros after their first three digits, or another number of digits.

    Examples
    --------
    >>> rounded_down(np.array([-1, 0, 999, 1_239, 123_999])).tolist()
    [-1, 0, 999, 1230, 123000]
    """
    powers = 10 ** np.arange(digits, 19, dtype=np.int64)
    units = 10 ** np.searchsorted(powers, lengths, side="right").astype(np.int64)
    return lengths - lengths % units


def _sums(values: npt.NDArray[Any], starts: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    values = values.astype(np.int64)
    return np.add.reduceat(values, starts) if len(starts) else values[:0]


def _added_up(batches: Batches) -> tuple[pd.DataFrame, int]:
    """Return the counts of all blocks by group and length, and the digits that lengths have."""
    total, digits = pd.DataFrame(), DIGITS
    for counted in _frames(batches):
        rounded = counted.assign(length=rounded_down(counted["length"].to_numpy(), digits))
        total = _merged([total, rounded] if len(total) else [rounded])
        if (values := total["group"].nunique(dropna=False)) > MOST_GROUPS:
            raise ParameterError(
                f"{OPERATOR}: the column of by= has more than {MOST_GROUPS:,} different values ({values:,} so far). Name one "
                "with fewer, or use describe_domains to count rows by the domain of a URL"
            )
        while len(total) > MOST_COUNTS and digits > 1:
            digits -= 1
            total = _merged([total.assign(length=rounded_down(total["length"].to_numpy(), digits))])
    return total, digits


def _merged(counts: list[pd.DataFrame]) -> pd.DataFrame:
    """Return one row for each group and length in counts."""
    grouped = pd.concat(counts).groupby(["group", "length"], dropna=False, sort=False)
    return pd.concat([grouped[[*SUMS]].sum(), grouped["longest"].max()], axis=1).reset_index()


def _frames(batches: Batches) -> Iterator[pd.DataFrame]:
    """Yield counts in tables of at least `MOST_COUNTS` rows, except the last: all of them are added up in linear time."""
    waiting, rows = [], 0
    for counted in batches():
        waiting.append(counted.select(["group", *NUMBERS]))
        rows += counted.num_rows
        if rows >= MOST_COUNTS:
            yield _as_frame(waiting)
            waiting, rows = [], 0
    if waiting:
        yield _as_frame(waiting)


def _as_frame(counts: list[pa.Table]) -> pd.DataFrame:
    whole = pa.concat_tables(counts, promote_options="permissive")
    made: pd.DataFrame = whole.to_pandas(types_mapper=dict.fromkeys((pa.string(), pa.large_string()), TEXT).get)
    return made


def _groups(counts: pd.DataFrame) -> list[tuple[Any, pd.DataFrame]]:
    """Return the counts of each group; one group without rows if there are none."""
    if not len(counts):
        return [(pd.NA, pd.DataFrame({name: pd.Series(dtype=np.int64) for name in NUMBERS}))]
    return list(counts.groupby("group", dropna=False, sort=False))


def _figures(counts: pd.DataFrame) -> dict[str, Any]:
    """Return the figures of one group."""
    sums = {name: int(counts[name].sum()) for name in SUMS}
    texts = counts[counts["length"] >= 0].sort_values("length")
    below = texts["rows"].cumsum().to_numpy()
    count = sums["rows"] - sums["missing_texts"]
    figures: dict[str, Any] = {**sums, "mean_chars": sums["characters"] / count if count else np.nan}
    for name, share in QUANTILES.items():
        place = int(np.searchsorted(below, share * count)) if count else -1
        figures[name] = int(texts["length"].iloc[place]) if count else pd.NA
    return {**figures, "max_chars": int(texts["longest"].max()) if count else pd.NA}


def _lengths(counts: pd.DataFrame) -> pd.DataFrame:
    """Return the number of texts in each class of lengths, from the shortest to the longest."""
    texts = counts[counts["length"] >= 0] if len(counts) else pd.DataFrame({"length": [], "rows": []}, dtype=np.int64)
    places = np.searchsorted(BOUNDS, texts["length"], side="right") - 1
    rows = np.bincount(places, weights=texts["rows"], minlength=1).astype(np.int64)
    ends = [bound - 1 for bound in BOUNDS[1 : len(rows) + 1]]
    return pd.DataFrame({"min_chars": BOUNDS[: len(rows)], "max_chars": ends, "rows": rows})
