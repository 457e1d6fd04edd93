# SPDX-License-Identifier: Apache-2.0
"""Verdicts of a profile on the rows of a block: the first rule that each breaks, from its text or from stored metrics."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from curator_df.core.backend import backend_of
from curator_df.core.columns import require_columns, require_text
from curator_df.errors import SchemaError
from curator_df.kernels.metrics.catalog import CATALOGUE, require_words_package
from curator_df.kernels.metrics.measure import MEASURED_ROWS, Measured, measure
from curator_df.kernels.rows.keep_rows import keep_rows
from curator_df.ops.filters.device_blocks import device_meta
from curator_df.ops.filters.reject_reasons import PASSES, every_reason
from curator_df.ops.filters.rules import MISSING_METRIC, MISSING_TEXT, Profile, ProfilesByValue
from curator_df.ops.filters.user_metrics import user_values


@dataclass(frozen=True)
class Verdicts:
    """Verdicts on all rows of a block."""

    codes: npt.NDArray[np.int16]
    """`PASSES`, or a position in `every_reason`: the first rule that the row breaks, no text, no profile, or no metric."""
    metrics: dict[str, npt.NDArray[Any]]
    """Metric by name, one value a row; empty unless asked for."""
    absent: dict[str, npt.NDArray[np.bool_]] = field(default_factory=dict)
    """Rows without a metric, because their profile does not use it; a metric that is not listed is of all rows."""


@dataclass(frozen=True)
class RowMetrics:
    """Metrics of consecutive rows, and which rows have them."""

    values: Measured
    """The metrics; those of a null text are not valid."""
    lacks: npt.NDArray[np.bool_]
    """Rows that have a text, but lack a metric of the profile."""

    @property
    def rows(self) -> slice:
        """Positions of the rows in the block."""
        return slice(self.values.first_row, self.values.first_row + self.values.rows)

    @property
    def without_text(self) -> npt.NDArray[np.bool_]:
        """Rows whose text is null."""
        valid = self.values.valid
        return np.zeros(self.values.rows, dtype=bool) if valid is None else ~valid


def measured_rows(block: Any, profile: Profile, text: str, *, from_metrics: bool) -> Iterator[RowMetrics]:
    """Yield the metrics that a profile needs, some rows after others: from the text, or from the columns of their names.

    Of stored metrics the text column, if there is one, says which rows have a text; without it those that have any metric, also
    one of another profile.
    """
    columns = {name: block[name] for name in (profile.metrics if from_metrics else profile.column_metrics)}
    if from_metrics:
        has_text = block[text].notna().to_numpy(dtype=bool) if text in block.columns else _has_any(block, columns)
        for first_row in range(0, len(block), MEASURED_ROWS):
            valid = has_text[first_row : first_row + MEASURED_ROWS]
            yield _read(columns, Measured(first_row, {}, valid, len(valid)))
        return
    columns |= {metric.name: pd.Series(user_values(block, metric, text)) for metric in profile.user_metrics}
    for measured in measure(block[text], profile.text_metrics, words=profile.words, stop_words=profile.stop_words):
        yield _read(columns, measured)


def _has_any(block: pd.DataFrame, metrics: Collection[str]) -> npt.NDArray[np.bool_]:
    """Return the rows that have one of these metrics, or any published one."""
    has = np.zeros(len(block), dtype=bool)
    for name in block.columns:
        if name in metrics or name in CATALOGUE:
            has |= block[name].notna().to_numpy(dtype=bool)
    return has


def _read(columns: Mapping[str, pd.Series], measured: Measured) -> RowMetrics:
    """Return the metrics of some rows, with those of columns added."""
    missing = np.zeros(measured.rows, dtype=bool)
    read = {}
    for name, column in columns.items():
        rows = column.iloc[measured.first_row : measured.first_row + measured.rows]
        missing |= rows.isna().to_numpy(dtype=bool)
        dtype = dtype_of(name).lower()
        read[name] = rows.to_numpy(dtype=dtype, na_value=np.nan if dtype == "float64" else 0)
    if measured.valid is not None:
        missing &= measured.valid
    return RowMetrics(replace(measured, values={**measured.values, **read}), missing)


def dtype_of(metric: str) -> str:
    """Return the dtype of a metric's column; those of users' are of one."""
    return CATALOGUE[metric].dtype if metric in CATALOGUE else "Float64"


def judge(
    block: Any, profile: Profile | ProfilesByValue, text: str, *, from_metrics: bool, with_metrics: bool
) -> Verdicts:
    """Return the verdicts on a block and, if asked for, the metrics."""
    if isinstance(profile, ProfilesByValue):
        return _judge_by_value(block, profile, text, from_metrics=from_metrics, with_metrics=with_metrics)
    codes = np.full(len(block), PASSES, dtype=np.int16)
    dtypes = {name: dtype_of(name).lower() for name in profile.metrics} if with_metrics else {}
    metrics = {name: np.zeros(len(block), dtype=dtype) for name, dtype in dtypes.items()}
    for measured in measured_rows(block, profile, text, from_metrics=from_metrics):
        codes[measured.rows] = first_broken(measured, profile)
        for name, values in metrics.items():
            values[measured.rows] = measured.values.values[name]
    return Verdicts(codes, metrics)


def _judge_by_value(
    block: Any, profile: ProfilesByValue, text: str, *, from_metrics: bool, with_metrics: bool
) -> Verdicts:
    """Return the verdicts of each row's profile; the rows of one profile after those of another."""
    rules = len(profile.rules)
    codes = np.full(len(block), rules + 1, dtype=np.int16)
    metrics: dict[str, npt.NDArray[Any]] = {}
    absent: dict[str, npt.NDArray[np.bool_]] = {}
    positions, first_rule = _profile_of_rows(block[profile.column], profile), 0
    for position, one in enumerate(profile.profiles):
        rows = positions == position
        if rows.any():
            stored = [*one.metrics, *({text} & {*block.columns})]
            needed = stored if from_metrics else [text, *one.column_metrics]
            part = keep_rows(block if one.user_metrics and not from_metrics else block[needed], rows)
            verdicts = judge(part, one, text, from_metrics=from_metrics, with_metrics=with_metrics)
            found = verdicts.codes + np.int16(first_rule)
            found[verdicts.codes == PASSES] = PASSES
            no_rule = verdicts.codes >= len(one.rules)
            found[no_rule] = verdicts.codes[no_rule] - len(one.rules) + rules
            codes[rows] = found
            for name, values in verdicts.metrics.items():
                if name not in metrics:
                    metrics[name] = np.zeros(len(block), dtype=values.dtype)
                    absent[name] = np.ones(len(block), dtype=bool)
                metrics[name][rows], absent[name][rows] = values, False
        first_rule += len(one.rules)
    if from_metrics and text not in block.columns:
        other = (codes == rules) & _has_any(block, {name for one in profile.profiles for name in one.metrics})
        codes[other] = rules + 2  # it lacks the metrics of its profile, but has others, so it has a text
    if with_metrics:  # of profiles that no row has
        for name in {name for one in profile.profiles for name in one.metrics} - metrics.keys():
            metrics[name] = np.zeros(len(block), dtype=dtype_of(name).lower())
            absent[name] = np.ones(len(block), dtype=bool)
    return Verdicts(codes, metrics, absent)


def _profile_of_rows(column: pd.Series, profile: ProfilesByValue) -> npt.NDArray[np.int16]:
    """Return the position of each row's profile, -1 for none."""
    numbers, values = pd.factorize(column)
    chosen = dict(profile.chosen)
    # The code of null is -1, which leads to the last place.
    return np.array([*(chosen.get(value, profile.other) for value in values), profile.other], dtype=np.int16)[numbers]


def first_broken(measured: RowMetrics, profile: Profile) -> npt.NDArray[np.int16]:
    """Return the code of each row."""
    codes = np.full(measured.values.rows, PASSES, dtype=np.int16)
    for position in reversed(range(len(profile.rules))):
        rule = profile.rules[position]
        codes[rule.breaks(measured.values.values[rule.column])] = position
    reasons = every_reason(profile)
    codes[measured.without_text], codes[measured.lacks] = reasons.index(MISSING_TEXT), reasons.index(MISSING_METRIC)
    return codes


def with_metrics(
    block: Any,
    metrics: dict[str, npt.NDArray[Any]],
    names: Sequence[str],
    missing: npt.NDArray[np.bool_],
    rows: Any = slice(None),
    absent: Mapping[str, npt.NDArray[np.bool_]] | None = None,
) -> Any:
    """Return a block with the columns of metrics at its end, those of the given rows of ``metrics`` and ``missing``.

    They are taken out of ``metrics`` and put in one by one, because pandas copies what it is given: so they are held once.
    """
    masked = {"Int64": pd.arrays.IntegerArray, "Float64": pd.arrays.FloatingArray}
    for name in names:
        # Each column has its own mask: pandas columns may be written to.
        values, mask = metrics.pop(name)[rows], missing[rows].copy()
        if name not in CATALOGUE:
            mask |= np.isnan(values)
        if absent and name in absent:
            mask |= absent[name][rows]
        column = masked[dtype_of(name)](values, mask)
        block = block.assign(**{name: column})
    return block


def metrics_meta(meta: Any, names: Sequence[str]) -> Any:
    """Return an empty block with the columns of these metrics at its end."""
    if backend_of(meta) == "cudf":
        return device_meta(meta, {name: dtype_of(name).lower() for name in names})
    return meta.assign(**{name: pd.Series(dtype=dtype_of(name)) for name in names})


def require_measurable(df: Any, operator: str, profile: Profile, text: str, *, from_metrics: bool) -> None:
    """Raise unless ``profile`` is one, and the table has the text or the metrics that it needs."""
    names = profile.metrics if from_metrics else profile.column_metrics
    require_columns(df, operator, *names)
    for name in names:
        if not pd.api.types.is_numeric_dtype(df.dtypes[name]):
            adds = (name in CATALOGUE and CATALOGUE[name].operator) or "add_metrics"
            raise SchemaError(
                f"{operator} needs numbers in the column {name!r}, but it holds {df.dtypes[name]}. Make the column with "
                f"{adds}"
            )
    if not from_metrics:
        require_text(df, operator, text)
        require_words_package(operator, profile.words)
