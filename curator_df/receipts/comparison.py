# SPDX-License-Identifier: Apache-2.0
"""Comparison of two receipts: the effect of a change of settings."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pandas as pd

from curator_df.errors import ParameterError
from curator_df.receipts.receipt import Receipt

FIGURES = (
    "rows_read",
    "rows_written",
    "rows_dropped",
    "rows_quarantined",
    "rows_out_of_memory",
    "input_bytes",
    "output_bytes",
    "files",
    "ranges",
    "seconds",
    "allowed_bytes",
    "projected_bytes",
    "measured_bytes",
)


def compare_receipts(first: Receipt, second: Receipt) -> pd.DataFrame:
    """Compare the receipts of two runs and return the differences.

    Parameters
    ----------
    first, second : Receipt
        Receipts returned by `write_parquet` and the like, or read by `read_receipt`.

    Returns
    -------
    pandas.DataFrame
        Table of the differences. One row for each figure, retry, step, drop reason and setting:
        ``kind``, ``name``, ``first``, ``second`` and ``ratio``, which is second / first (missing if one of them is 0 or
        text). Figures are always listed with both values; reasons, retries and settings only if they differ.

    Raises
    ------
    ParameterError
        If one of them is not a receipt.

    See Also
    --------
    read_receipt, write_parquet

    Notes
    -----
    Rows: none. Peak extra memory: none. Computes: no.

    Wall times are comparable only between runs on the same machine, with nothing else running.

    Examples
    --------
    >>> small = cdf.read_receipt("clean-1GB/")  # doctest: +SKIP
    >>> large = cdf.read_receipt("clean-4GB/")  # doctest: +SKIP
    >>> cdf.compare_receipts(small, large)  # doctest: +SKIP
    """
    for receipt in (first, second):
        if not isinstance(receipt, Receipt):
            raise ParameterError(
                f"compare_receipts expected two receipts; got {type(receipt).__name__}. "
                "read_receipt(folder) returns the receipt of an output folder"
            )
    rows = [
        *_figures(first, second),
        *_steps(first, second),
        *_counts("reason", _reasons(first), _reasons(second)),
        *_counts("retry", first.retries, second.retries),
        *_settings(first, second),
    ]
    table = pd.DataFrame(rows, columns=["kind", "name", "first", "second"], dtype=object)
    table = table.astype({"kind": "str", "name": "str"})
    ratios = [_ratio(one, two) for one, two in zip(table["first"], table["second"], strict=True)]
    return table.assign(ratio=pd.array(ratios, dtype="Float64"))


def _figures(first: Receipt, second: Receipt) -> Iterator[tuple[str, str, Any, Any]]:
    for name in FIGURES:
        yield "figure", name, getattr(first, name), getattr(second, name)
    yield "figure", "bytes_per_second", _speed(first), _speed(second)


def _speed(receipt: Receipt) -> float | None:
    # The time of a resumed run covers only its last part.
    return None if receipt.ranges_resumed or not receipt.seconds else receipt.input_bytes / receipt.seconds


def _steps(first: Receipt, second: Receipt) -> Iterator[tuple[str, str, Any, Any]]:
    one, two = _named_steps(first), _named_steps(second)
    for name in {**one, **two}:
        yield "step seconds", name, one.get(name), two.get(name)


def _named_steps(receipt: Receipt) -> dict[str, float]:
    """Return the seconds of each step; repeated names are numbered."""
    seconds: dict[str, float] = {}
    for step in receipt.steps:
        again = sum(name == step.name or name.startswith(f"{step.name} (") for name in seconds)
        seconds[f"{step.name} ({again + 1})" if again else step.name] = step.seconds
    return seconds


def _reasons(receipt: Receipt) -> dict[str, int]:
    table = receipt.reasons()
    counts: dict[str, int] = {}
    for step, reason, rows in zip(table.step, table.reason, table.rows, strict=True):
        counts[f"{step}: {reason}"] = counts.get(f"{step}: {reason}", 0) + int(rows)
    return counts


def _counts(kind: str, one: dict[str, int], two: dict[str, int]) -> Iterator[tuple[str, str, Any, Any]]:
    for name in {**one, **two}:
        if one.get(name, 0) != two.get(name, 0):
            yield kind, name, one.get(name, 0), two.get(name, 0)


def _settings(first: Receipt, second: Receipt) -> Iterator[tuple[str, str, Any, Any]]:
    for name in {**first.settings, **second.settings}:
        one, two = first.settings.get(name), second.settings.get(name)
        if one != two:
            yield "setting", name, one, two


def _ratio(one: Any, two: Any) -> float | None:
    numbers = isinstance(one, int | float) and isinstance(two, int | float)
    return two / one if numbers and one and two else None
