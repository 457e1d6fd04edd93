# SPDX-License-Identifier: Apache-2.0
"""Combine several scores of a row into one, and assign a quality tier by it: `add_quality_tier`."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Literal

import dask.dataframe as dd
import numpy as np
import numpy.typing as npt
import pandas as pd

from curator_df.arguments import choose, require_mapping, require_number
from curator_df.core.columns import refuse_columns, require_columns
from curator_df.core.ranges.blocks import BlockKernel, map_blocks
from curator_df.core.ranges.price import Price
from curator_df.errors import ParameterError, SchemaError
from curator_df.kernels.text.buffers import repeated_texts
from curator_df.ops.host_only import require_host

Combine = Literal["max", "min", "weighted"]
PEAK_FACTOR = 0.9
"""Peak extra bytes for rows of 100 bytes and names of few letters: numbers, codes, and the strings made of them."""
SPAN_ROWS = 65_536
"""Number of rows whose scores are combined in one step."""


def add_quality_tier(
    df: dd.DataFrame,
    scores: Sequence[str] | Mapping[str, float],
    *,
    thresholds: Mapping[str, float],
    combine: Combine = "max",
    scale: Mapping[str, Sequence[float]] | None = None,
    into: str = "quality_tier",
) -> dd.DataFrame:
    """Add a quality tier to each row, from the combination of several scores, and the combined score.

    Parameters
    ----------
    df : dask.dataframe.DataFrame
        The table.
    scores : sequence of str, or mapping of str to float
        Columns of numbers, where higher is better; with ``combine="weighted"`` each with its weight (equal weights for a
        sequence).
    thresholds : mapping of str to float
        Lowest score of each tier, such as ``{"high": 0.8, "medium": 0.4, "low": 0.0}``. A row below all of them is in
        the lowest tier.
    combine : {"max", "min", "weighted"}, default "max"
        How to combine the scores: the largest, the smallest, or the weighted mean. Missing scores (null, NaN) are
        ignored.
    scale : mapping of str to sequence of float, optional
        How to map a column to numbers from 0 to 1 first: an increasing sequence of values, which map to evenly spaced
        numbers from 0 to 1, with linear interpolation. Two values are bounds, such as ``(0, 5)``. More values are
        quantiles of the column; the score is then the share of rows with a lower value, which makes different
        classifiers comparable. Other columns are used unchanged.
    into : str, default "quality_tier"
        Name of the tier column; the score column is named with the suffix ``_score``.

    Returns
    -------
    dask.dataframe.DataFrame
        The same rows with two columns: the tier, and the score as ``Float32``; null where a row has none of the scores.

    Raises
    ------
    ColumnError
        If a column is missing, or a new one already exists.
    SchemaError
        If a column is not numeric.
    ParameterError
        If ``thresholds`` is empty or has two equal thresholds, a weight is not positive, or the values of a scale do not
        increase.
    UnsupportedBackendError
        If the blocks are cuDF blocks.

    See Also
    --------
    add_class, keep_class, blend

    Notes
    -----
    Rows: same. Columns: plus ``quality_tier`` and ``quality_tier_score``. Backends: pandas. Peak extra memory: 0.9 x
    block for rows of 100 bytes and short tier names. Computes: no.

    Pass the table to `write_by` (or use ``partition_on=`` of a writer) to write each tier to its own folder. `blend`
    repeats the best tiers more often.

    References
    ----------
    .. [1] Su et al., Nemotron-CC, 2024, https://arxiv.org/abs/2412.02595 (the maximum of several classifiers' ranks, in tiers)

    Examples
    --------
    >>> import dask.dataframe as dd
    >>> import pandas as pd
    >>> docs = dd.from_pandas(pd.DataFrame({"edu": [4.0, 1.0, 0.5], "fluent": [0.1, 0.7, None]}), npartitions=1)
    >>> thresholds = {"high": 0.75, "medium": 0.5, "low": 0.0}
    >>> made = docs.pipe(add_quality_tier, scores=["edu", "fluent"], thresholds=thresholds, scale={"edu": (0, 5)}).compute()
    >>> made[["quality_tier", "quality_tier_score"]].values.tolist()
    [['high', 0.800000011920929], ['medium', 0.699999988079071], ['low', 0.10000000149011612]]
    """
    operator = "add_quality_tier"
    columns = tuple(scores) if isinstance(scores, Collection) else ()
    if not columns or isinstance(scores, str):
        raise ParameterError(
            f"{operator}: scores={scores!r} must be a list of columns, or a mapping of columns to weights"
        )
    require_columns(df, operator, *columns)
    require_host(df._meta, operator)
    refuse_columns(df, operator, into, f"{into}_score")
    for name in columns:
        if getattr(df.dtypes[name], "kind", "O") not in "iuf":
            raise SchemaError(
                f"{operator} needs numbers in the column {name!r}, but it holds {df.dtypes[name]}. Name another column, or "
                "convert it"
            )
    choose(operator, "combine", combine, Combine)
    for name, weight in scores.items() if isinstance(scores, Mapping) else ():
        require_number(operator, f"scores[{name!r}]", weight)
    weights = tuple(float(scores[name]) if isinstance(scores, Mapping) else 1.0 for name in columns)
    if isinstance(scores, Mapping) and combine != "weighted":
        raise ParameterError(
            f"{operator}: combine={combine!r} does not accept weights, but scores= is a mapping of columns to weights. Use "
            f"combine='weighted', or pass scores={list(columns)!r}"
        )
    if useless := [name for name, weight in zip(columns, weights, strict=True) if not weight > 0]:
        raise ParameterError(
            f"{operator}: scores={scores!r} has weights that are not above 0. Leave out the columns that are not to "
            f"count: {useless}"
        )
    names, bounds = ascending_tiers(operator, thresholds)
    parameters = {
        "columns": columns,
        "weights": weights,
        "combine": combine,
        "scale": _scales(operator, columns, scale or {}),
        "names": names,
        "bounds": bounds,
        "into": into,
    }
    kernel = BlockKernel(operator, add_quality_tier_block, parameters, price=Price(PEAK_FACTOR, is_measured=True))
    dtypes: dict[str, Any] = {into: pd.StringDtype("pyarrow"), f"{into}_score": "Float32"}
    return map_blocks(df, kernel, meta=df._meta.assign(**{n: pd.Series([], dtype=d) for n, d in dtypes.items()}))


def add_quality_tier_block(
    block: Any,
    *,
    columns: tuple[str, ...],
    weights: tuple[float, ...],
    combine: Combine,
    scale: Mapping[str, tuple[float, ...]],
    names: tuple[str, ...],
    bounds: tuple[float, ...],
    into: str,
) -> Any:
    """Kernel of `add_quality_tier`."""
    require_host(block, "add_quality_tier")
    together = np.full(len(block), np.nan, dtype=np.float32)
    for start in range(0, len(block), SPAN_ROWS):
        span = block.iloc[start : start + SPAN_ROWS]
        scaled = np.stack([_scaled(span[name], scale.get(name)) for name in columns])
        together[start : start + len(span)] = _together(scaled, np.asarray(weights), combine)
    is_missing = np.isnan(together)
    codes = np.searchsorted(np.asarray(bounds[1:], dtype=np.float32), together, side="right").astype(np.int32)
    codes[is_missing] = -1
    made = {
        into: pd.Series(repeated_texts(names, codes), index=block.index, copy=False),
        f"{into}_score": pd.Series(pd.arrays.FloatingArray(together, is_missing), index=block.index, copy=False),
    }
    return block.assign(**made)


def _scaled(values: Any, scale: tuple[float, ...] | None) -> npt.NDArray[np.float64]:
    numbers: npt.NDArray[np.float64] = values.to_numpy(dtype=np.float64, na_value=np.nan)
    if scale is None:
        return numbers
    found: npt.NDArray[np.float64] = np.interp(numbers, scale, np.linspace(0, 1, len(scale)))
    return np.where(np.isnan(numbers), np.nan, found)


def _together(
    scaled: npt.NDArray[np.float64], weights: npt.NDArray[np.float64], combine: Combine
) -> npt.NDArray[np.float64]:
    """Return one score for each column of ``scaled``, NaN where all are missing."""
    if combine == "weighted":
        counted = np.where(np.isnan(scaled), 0.0, weights[:, None])
        total = counted.sum(axis=0)
        sums = (np.nan_to_num(scaled) * counted).sum(axis=0)
        means: npt.NDArray[np.float64] = np.divide(sums, total, out=np.full(len(total), np.nan), where=total > 0)
        return means
    found: npt.NDArray[np.float64] = (np.fmax if combine == "max" else np.fmin).reduce(scaled, axis=0)
    return found


def ascending_tiers(operator: str, thresholds: Mapping[str, float]) -> tuple[tuple[str, ...], tuple[float, ...]]:
    """Return the names of tiers and the least score of each, the lowest first."""
    require_mapping(operator, "thresholds", thresholds)
    for name, least in thresholds.items():
        require_number(operator, f"thresholds[{name!r}]", least)
    rising = sorted(thresholds.items(), key=lambda tier: tier[1])
    bounds = tuple(float(least) for _, least in rising)
    if not thresholds or len(set(bounds)) < len(bounds) or not np.isfinite(bounds).all():
        raise ParameterError(
            f"{operator}: thresholds={dict(thresholds)!r} must give each tier a different minimum score, such as {{'high': "
            "0.8, 'low': 0.0}"
        )
    return tuple(str(name) for name, _ in rising), bounds


def _scales(
    operator: str, columns: tuple[str, ...], scale: Mapping[str, Sequence[float]]
) -> dict[str, tuple[float, ...]]:
    require_mapping(operator, "scale", scale)
    made: dict[str, tuple[float, ...]] = {}
    for name, values in scale.items():
        if isinstance(values, str) or not isinstance(values, Collection):
            raise ParameterError(
                f"{operator}: scale[{name!r}]={values!r} must be a list of two or more numbers in ascending order"
            )
        for value in values:
            require_number(operator, f"scale[{name!r}]", value)
        made[name] = tuple(float(value) for value in values)
    for name, values in made.items():
        if name not in columns:
            raise ParameterError(
                f"{operator}: scale= names {name!r}, which is not one of scores={list(columns)}. Leave it out"
            )
        falls = len(values) < 2 or not np.isfinite(values).all() or min(np.diff(values)) < 0 or values[0] == values[-1]
        if falls:
            raise ParameterError(
                f"{operator}: scale[{name!r}]={list(values)!r} must be a list of two or more numbers in ascending order"
            )
    return made
