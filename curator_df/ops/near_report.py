# SPDX-License-Identifier: Apache-2.0
"""What was found by `find_near_duplicates`, in figures: groups by size, pairs by similarity, and what the settings miss."""

from __future__ import annotations

import html
import os
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from dask.dataframe.dask_expr import FrameBase

from curator_df.errors import InputError
from curator_df.io.checkpoint import read_receipt
from curator_df.io.parquet import read_parquet
from curator_df.kernels.minhash_scheme import Scheme
from curator_df.ops.groups import found_drops

OPERATOR = "describe_near_duplicates"


@dataclass(frozen=True, repr=False)
class NearDuplicateReport:
    """What `describe_near_duplicates` returns. It shows itself in a terminal and in a notebook."""

    rows: int
    """Rows that were looked at."""
    rows_in_groups: int
    """Rows that are in a group of two or more."""
    rows_going: int
    """Rows that `drop_near_duplicates` drops."""
    compared: int | None
    """Pairs of different texts that were compared exactly; None with ``verify=None``."""
    precision: float | None
    """Share of these that were similar enough: how often agreement in a band means what it should."""
    recall: float | None
    """About the share of all pairs at or above ``verify`` that agree in a band: pairs found, over pairs found divided by the
    chance to find a pair of their similarity. Pairs that were not compared because their bucket was large do not count, nor
    do those that are joined over others."""
    sizes: pd.DataFrame
    """Index ``rows``: size of a group; columns ``groups`` (how many) and ``going`` (rows that go)."""
    similarities: pd.DataFrame
    """Index ``jaccard``: lower end of a bin; columns ``compared`` (pairs) and ``chance`` (that a pair there is found)."""
    largest: pd.DataFrame
    """The largest groups: ``group``, ``group_size``, and ``file`` and ``offset`` of the row that stays."""
    settings: dict[str, Any]
    """What was asked for, and bands for an iteration, iterations, buckets and the largest of them."""

    def lines(self) -> list[tuple[str, str]]:
        """Return the report as (name, value) lines."""
        share = self.rows_going / self.rows if self.rows else 0.0
        found = [
            (
                "rows",
                f"{self.rows:,}, of which {self.rows_in_groups:,} are in {int(self.sizes['groups'].sum()):,} groups",
            ),
            ("go", f"{self.rows_going:,} ({share:.2%})"),
        ]
        if self.compared is not None:
            shown = "none was compared" if self.precision is None else f"{self.precision:.1%} of them similar enough"
            found.append(("pairs", f"{self.compared:,} compared, {shown}"))
        if self.recall is not None:
            found.append(("recall", f"about {self.recall:.1%} of the pairs at or above {self.settings['verify']}"))
        scheme = self.settings["scheme"]
        shingles = f"{scheme['ngram_size']} {scheme['ngrams']}, {64 if scheme['use_64_bit_hash'] else 32} bits"
        bands = f"{scheme['num_bands']} bands of {scheme['minhashes_per_band']}"
        found.append(("scheme", f"{shingles}, {bands}, {self.settings['bands_per_iteration']} bands an iteration"))
        return found

    def __str__(self) -> str:
        head = "\n".join(f"{name:<10} {value}" for name, value in self.lines())
        return f"{head}\n\n{self.sizes.head(10)}\n\n{self.largest.to_string(index=False)}"

    __repr__ = __str__

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><th style='text-align:left'>{name}</th><td style='text-align:left'>{html.escape(value)}</td></tr>"
            for name, value in self.lines()
        )
        return f"<table>{rows}</table>{self.sizes.head(10).to_html()}{self.largest.to_html(index=False)}"


def describe_near_duplicates(groups: Any, *, largest: int = 5) -> NearDuplicateReport:
    """Say what was found: groups by size, pairs by similarity, and about how many pairs the settings do not find.

    Parameters
    ----------
    groups : dask.dataframe.DataFrame, str or path
        What `find_near_duplicates` returned, or its folder.
    largest : int
        How many of the largest groups to list.

    Returns
    -------
    NearDuplicateReport
        Shows itself in a terminal and in a notebook.

    Raises
    ------
    InputError
        If ``groups`` were not left by `find_near_duplicates`.

    Notes
    -----
    Computes: yes, two columns of the table on disk.
    """
    _, parameters = found_drops(groups, OPERATOR)
    if "scheme" not in parameters:
        raise InputError(f"{OPERATOR}: groups= were left by another find_ operator; they have no similarities")
    table = groups if isinstance(groups, FrameBase) else read_parquet(os.fspath(groups))
    receipt = read_receipt(groups)
    details = receipt.exchanges[-1].details
    staying = table[table["kept"]]
    members = table["group_size"].value_counts().compute()
    sizes = _sizes(members.sort_index(ascending=False), staying["group_size"].value_counts().compute())
    top = staying[["group", "group_size", "file", "offset"]].nlargest(largest, "group_size").compute()
    similarities, precision, recall = _pairs(details, Scheme(**parameters["scheme"]), parameters["verify"])
    return NearDuplicateReport(
        rows=receipt.rows_read,
        rows_in_groups=int((sizes.index * sizes["groups"]).sum()),
        rows_going=int(sizes["going"].sum()),
        compared=details.get("compared"),
        precision=precision,
        recall=recall,
        sizes=sizes,
        similarities=similarities,
        largest=top.reset_index(drop=True),
        settings={**parameters, **{name: details[name] for name in SETTINGS}},
    )


def _sizes(members: pd.Series, staying: pd.Series) -> pd.DataFrame:
    """Return groups and rows that go, by the rows of the group, from how many rows there are and how many stay."""
    rows = members.index.astype(np.int64)
    going = (members - staying.reindex(members.index, fill_value=0)).to_numpy(dtype=np.int64)
    groups = members.to_numpy(dtype=np.int64) // rows
    return pd.DataFrame({"groups": groups, "going": going}, index=pd.Index(rows, name="rows"))


SETTINGS = ("bands_per_iteration", "iterations", "buckets", "largest_bucket")


def _pairs(
    details: dict[str, Any], scheme: Scheme, verify: float | None
) -> tuple[pd.DataFrame, float | None, float | None]:
    """Return compared pairs by similarity, precision and recall."""
    counts = np.array(details.get("compared_by_similarity", []), dtype=np.int64)
    edges = np.linspace(0, 1, len(counts) + 1)
    middles = (edges[:-1] + edges[1:]) / 2
    chances = scheme.candidate_probability(middles)
    index = pd.Index(edges[:-1].round(4), name="jaccard")
    table = pd.DataFrame({"compared": counts, "chance": chances}, index=index)
    if verify is None or not counts.sum():
        return table, None, None
    similar = middles >= verify
    found = counts[similar]
    recall = float(found.sum() / (found / chances[similar]).sum()) if found.sum() else None
    return table, details["joined"] / int(counts.sum()), recall
