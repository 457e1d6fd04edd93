# SPDX-License-Identifier: Apache-2.0
"""What a profile says of the rows of a block: the first rule that each breaks, from its text or from metrics kept before."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from curator_df.core.backend import require_backend
from curator_df.core.columns import require_columns, require_text
from curator_df.errors import ParameterError, SchemaError
from curator_df.kernels.measure import MEASURED_ROWS, Measured, measure
from curator_df.kernels.metrics import CATALOGUE, require_words_package
from curator_df.ops.rules import Profile

PASSES = -1
"""Code of a row that no rule drops. Other codes are positions in the profile's rules; missing text is one past them."""


@dataclass(frozen=True)
class Verdicts:
    """Of all rows of a block."""

    codes: npt.NDArray[np.int16]
    """`PASSES`, the position of the first rule that the row breaks, or the number of rules if its text is null."""
    metrics: dict[str, npt.NDArray[Any]]
    """Metric by name, one value a row; empty unless asked for."""


def measured_rows(block: Any, profile: Profile, text: str, *, from_metrics: bool) -> Iterator[Measured]:
    """Yield the metrics that a profile needs, some rows at a time: from the text, or from the columns of their names."""
    columns = profile.metrics if from_metrics else _column_metrics(profile)
    if from_metrics:
        for first_row in range(0, len(block), MEASURED_ROWS):
            yield _read(block, columns, Measured(first_row, {}, None, min(MEASURED_ROWS, len(block) - first_row)))
        return
    for measured in measure(block[text], profile.text_metrics, words=profile.words, stop_words=profile.stop_words):
        yield _read(block, columns, measured) if columns else measured


def _column_metrics(profile: Profile) -> tuple[str, ...]:
    return tuple(name for name in profile.metrics if name not in profile.text_metrics)


def _read(block: Any, names: Sequence[str], measured: Measured) -> Measured:
    """Return the metrics of some rows with those of columns beside them; a row without one is not valid."""
    rows = block.iloc[measured.first_row : measured.first_row + measured.rows]
    columns = {name: rows[name] for name in names}
    missing = np.zeros(len(rows), dtype=bool) if measured.valid is None else ~measured.valid
    for column in columns.values():
        missing |= column.isna().to_numpy(dtype=bool)
    read = {name: column.to_numpy(dtype=CATALOGUE[name].dtype.lower(), na_value=0) for name, column in columns.items()}
    return Measured(measured.first_row, {**measured.values, **read}, ~missing, measured.rows)


def judge(block: Any, profile: Profile, text: str, *, from_metrics: bool, with_metrics: bool) -> Verdicts:
    """Return the verdicts on a block and, if asked for, the metrics."""
    codes = np.full(len(block), PASSES, dtype=np.int16)
    dtypes = {name: CATALOGUE[name].dtype.lower() for name in profile.metrics} if with_metrics else {}
    metrics = {name: np.zeros(len(block), dtype=dtype) for name, dtype in dtypes.items()}
    for measured in measured_rows(block, profile, text, from_metrics=from_metrics):
        rows = slice(measured.first_row, measured.first_row + measured.rows)
        codes[rows] = first_broken(measured, profile)
        for name, values in metrics.items():
            values[rows] = measured.values[name]
    return Verdicts(codes, metrics)


def first_broken(measured: Measured, profile: Profile) -> npt.NDArray[np.int16]:
    """Return the code of each row."""
    codes = np.full(measured.rows, PASSES, dtype=np.int16)
    for position in reversed(range(len(profile.rules))):
        rule = profile.rules[position]
        codes[rule.breaks(measured.values[rule.metric])] = position
    if measured.valid is not None:
        codes[~measured.valid] = len(profile.rules)
    return codes


def with_metrics(
    block: Any,
    metrics: dict[str, npt.NDArray[Any]],
    names: Sequence[str],
    missing: npt.NDArray[np.bool_],
    rows: Any = slice(None),
) -> Any:
    """Return a block with the columns of metrics at its end, those of the given rows of ``metrics`` and ``missing``.

    They are taken out of ``metrics`` and put in one by one, because pandas copies what it is given: so they are held once.
    """
    masked = {"Int64": pd.arrays.IntegerArray, "Float64": pd.arrays.FloatingArray}
    for name in names:
        # Each column has its own mask: pandas columns may be written to.
        column = masked[CATALOGUE[name].dtype](metrics.pop(name)[rows], missing[rows].copy())
        block = block.assign(**{name: column})
    return block


def metrics_meta(meta: Any, names: Sequence[str]) -> Any:
    """Return an empty block with the columns of these metrics at its end."""
    return meta.assign(**{name: pd.Series(dtype=CATALOGUE[name].dtype) for name in names})


def require_measurable(df: Any, operator: str, profile: Profile, text: str, *, from_metrics: bool) -> None:
    """Raise unless ``profile`` is one, and the table has the text or the metrics that it needs."""
    if not isinstance(profile, Profile):
        raise ParameterError(f"{operator} needs a Profile, such as one of curator_df.profiles; found {profile!r}")
    names = profile.metrics if from_metrics else _column_metrics(profile)
    require_columns(df, operator, *names)
    for name in names:
        if not pd.api.types.is_numeric_dtype(df.dtypes[name]):
            adds = CATALOGUE[name].operator or "add_metrics"
            raise SchemaError(
                f"{operator} needs numbers in the column {name!r}, as {adds} makes them; it holds {df.dtypes[name]}"
            )
    if not from_metrics:
        require_text(df, operator, text)
        require_words_package(operator, profile.words)
    require_backend(df._meta, operator, "pandas")
