# SPDX-License-Identifier: Apache-2.0
"""Parts that the reports on all tables of groups have in common: groups by size, the largest groups, and some of their rows."""

from __future__ import annotations

import html
from typing import Any

import numpy as np
import pandas as pd

from curator_df.core.planning.lowering import lower
from curator_df.core.ranges.blocks import BlockKernel, map_blocks
from curator_df.core.ranges.price import Price
from curator_df.errors import ParameterError
from curator_df.ops.rows.row_lookup import rows_at

Lines = list[tuple[str, str]]
SIZES_SHOWN = 10
"""Number of lines of the table of sizes that a report shows."""


def require_counts(operator: str, **numbers: int) -> None:
    """Raise `ParameterError` unless all numbers are whole numbers from 1 up."""
    for name, value in numbers.items():
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise ParameterError(f"{operator}: {name}={value!r} is not a whole number from 1 up")


def group_sizes(table: Any) -> pd.DataFrame:
    """Return the number of groups (``groups``) and of rows to drop (``going``) by the rows of a group, the largest first."""
    members = table["group_size"].value_counts().compute().sort_index(ascending=False)
    staying = table[table["kept"]]["group_size"].value_counts().compute()
    rows = members.index.astype(np.int64)
    going = (members - staying.reindex(members.index, fill_value=0)).to_numpy(dtype=np.int64)
    groups = members.to_numpy(dtype=np.int64) // rows
    return pd.DataFrame({"groups": groups, "going": going}, index=pd.Index(rows, name="rows"))


def largest_groups(table: Any, count: int) -> pd.DataFrame:
    """Return the largest groups, with the place of the row that is kept, or of the first row if none is."""
    named = table[table["address"] == table["group"]]
    top = named[["group", "group_size", "file", "offset"]].nlargest(count, "group_size").compute()
    largest: pd.DataFrame = top.reset_index(drop=True)
    return largest


def example_rows(
    docs: Any, table: Any, top: pd.DataFrame, operator: str, examples: int, max_chars: int, text: str, measure: str
) -> pd.DataFrame:
    """Return rows of the largest groups, with the beginning of their texts: the kept row, then those least like their match."""
    columns = ["group", "kept", measure, "address", "file", "offset"]
    chosen: dict[str, Any] = {"groups": top["group"].tolist(), "examples": examples, "measure": measure}
    kernel = BlockKernel(operator, first_of_groups, chosen, price=Price(1.0))
    some = map_blocks(table[columns], kernel, meta=table[columns]._meta)
    rows = first_of_groups(some.compute(), **chosen)
    texts = rows_at(lower(docs, spools=True), rows["address"].to_numpy(dtype=np.int64), operator)[text]
    rows["text"] = texts.astype("string[pyarrow]").str.slice(0, max_chars).reindex(rows["address"]).to_numpy()
    return rows.drop(columns="address").reset_index(drop=True)


def first_of_groups(rows: pd.DataFrame, groups: list[int], examples: int, measure: str) -> pd.DataFrame:
    """Return, for each of these groups, its kept row followed by its members least like their match."""
    members = rows[rows["group"].isin(groups)].reset_index(
        drop=True
    )  # the index of a table on disk has a name of its own
    place = members["group"].map({group: place for place, group in enumerate(groups)})
    members = members.assign(place=place, goes=~members["kept"]).sort_values(["place", "goes", measure, "address"])
    return members.groupby("place").head(examples).drop(columns=["place", "goes"])


def as_text(lines: Lines, sizes: pd.DataFrame, tables: list[pd.DataFrame]) -> str:
    """Return a report for a terminal."""
    head = "\n".join(f"{name:<10} {value}" for name, value in lines)
    return "\n\n".join([head, str(sizes.head(SIZES_SHOWN)), *(table.to_string(index=False) for table in tables)])


def as_html(lines: Lines, sizes: pd.DataFrame, tables: list[pd.DataFrame]) -> str:
    """Return a report for a notebook."""
    rows = "".join(
        f"<tr><th style='text-align:left'>{name}</th><td style='text-align:left'>{html.escape(value)}</td></tr>"
        for name, value in lines
    )
    shown = "".join(table.to_html(index=False) for table in tables)
    return f"<table>{rows}</table>{sizes.head(SIZES_SHOWN).to_html()}{shown}"
