# SPDX-License-Identifier: Apache-2.0
"""Terminal tables of figures, with rich. Square brackets in values are not markup."""

from __future__ import annotations

from typing import Any

import pandas as pd
from rich.table import Table
from rich.text import Text

from curator_df.memory.sizes import show_float


def grid_of(lines: list[tuple[str, str]]) -> Table:
    """Return names and values, one per line, without a frame."""
    grid = Table.grid(padding=(0, 2))
    for name, value in lines:
        grid.add_row(Text(name, style="bold"), Text(value))
    return grid


def table_of(frame: pd.DataFrame) -> Table:
    """Return a small table with column names; numbers are aligned right, and missing values are empty."""
    table = Table()
    for name in frame.columns:
        table.add_column(Text(str(name)), justify="left" if frame[name].dtype == "str" else "right")
    for row in frame.itertuples(index=False):
        table.add_row(*(Text(_cell(name, value)) for name, value in zip(frame.columns, row, strict=True)))
    return table


def _cell(name: str, value: Any) -> str:
    if name == "share" or pd.isna(value):
        return "" if pd.isna(value) else f"{value:.2%}"
    if isinstance(value, float) and name in ("reject_value", "reject_threshold"):
        return f"{value:,.3f}".rstrip("0").rstrip(".")  # 0.13 is not shown as the threshold that it exceeds, 0.1
    if isinstance(value, float):
        return show_float(value)
    return f"{value:,}" if isinstance(value, int) else str(value)
