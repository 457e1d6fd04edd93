# SPDX-License-Identifier: Apache-2.0
"""Report on the groups that `find_near_duplicates` found: groups by size, pairs by similarity, and what the settings miss."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

import dask.dataframe as dd
import numpy as np
import pandas as pd
from dask.dataframe.dask_expr import FrameBase

from curator_df.dedup.near.crowds import FOUND_BINS
from curator_df.errors import ParameterError
from curator_df.io.output.receipts import read_receipt
from curator_df.io.parquet.reader import read_parquet
from curator_df.kernels.minhash.scheme import Scheme
from curator_df.ops.duplicates.group_report import (
    as_html,
    as_text,
    example_rows,
    group_sizes,
    largest_groups,
    require_counts,
)
from curator_df.ops.duplicates.groups import found_drops
from curator_df.ops.duplicates.near_duplicates import drop_near_duplicates
from curator_df.suggestions import suggests_names

OPERATOR = "describe_near_duplicates"


@suggests_names
@dataclass(frozen=True, repr=False)
class NearDuplicateReport:
    """The report of `describe_near_duplicates`. It displays itself in terminals and notebooks.

    See Also
    --------
    describe_near_duplicates, drop_near_duplicates
    """

    rows: int
    """Rows that were examined."""
    rows_in_groups: int
    """Rows that are in a group of two or more."""
    rows_going: int
    """Rows that `drop_near_duplicates` drops."""
    compared: int | None
    """Pairs of different texts that were compared exactly; None with ``jaccard_threshold=None``."""
    precision: float | None
    """Share of the compared pairs that were similar enough, that is, the precision of agreement in a band."""
    recall: float | None
    """Estimated share of all pairs at or above ``jaccard_threshold`` that were compared. A pair that was found because it agrees
    in a band stands for 1 / chance pairs of its similarity; one that was found in a crowd, where rows are compared by their own
    shingles, stands for itself. Pairs that are joined through other rows are not counted."""
    recall_interval: tuple[float, float] | None
    """Interval that contains ``recall`` with a probability of about 95 %, if pairs are found independently of each other."""
    sizes: pd.DataFrame
    """Index ``rows``: group size. Columns: ``groups`` (number of groups) and ``going`` (rows to drop)."""
    similarities: pd.DataFrame
    """Index ``jaccard``: lower end of a bin. Columns: ``compared`` (pairs) and ``chance`` (probability of finding one)."""
    largest: pd.DataFrame
    """The largest groups: ``group``, ``group_size``, and ``file`` and ``offset`` of the row that is kept (with
    ``keep="none"``, of the first row)."""
    examples: pd.DataFrame | None
    """Some rows of these groups: ``group``, ``kept``, ``jaccard`` (with the row that it matched), ``file``, ``offset``, and the
    beginning of ``text``. The row that is kept comes first, then those least similar to their match. None without ``docs``."""
    settings: dict[str, Any]
    """The parameters, and bands per iteration, iterations, number of buckets and size of the largest."""

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
            found.append(
                ("recall", f"about {self.recall:.1%} of the pairs at or above {self.settings['jaccard_threshold']}")
            )
            if self.recall_interval is not None:
                low, high = self.recall_interval
                found[-1] = ("recall", f"{found[-1][1]} ({low:.1%} to {high:.1%})")
        scheme = self.settings["scheme"]
        shingles = f"{scheme['ngram_size']} {scheme['ngrams']}, {64 if scheme['use_64_bit_hash'] else 32} bits"
        bands = f"{scheme['num_bands']} bands of {scheme['minhashes_per_band']}"
        found.append(("scheme", f"{shingles}, {bands}, {self.settings['bands_per_iteration']} bands an iteration"))
        return found

    def __str__(self) -> str:
        return as_text(self.lines(), self.sizes, self._tables())

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return as_html(self.lines(), self.sizes, self._tables())

    def _tables(self) -> list[pd.DataFrame]:
        return [self.largest] if self.examples is None else [self.largest, self.examples]


def describe_near_duplicates(
    groups: dd.DataFrame | str | os.PathLike[str],
    *,
    docs: dd.DataFrame | None = None,
    largest: int = 5,
    examples: int = 3,
    max_chars: int = 200,
) -> NearDuplicateReport:
    """Report the groups by size, pairs by similarity, and an estimate of the share of pairs that the settings miss.

    Parameters
    ----------
    groups : dask.dataframe.DataFrame, str or path
        The table that `find_near_duplicates` returned, or its folder.
    docs : dask.dataframe.DataFrame, optional
        The table in which the groups were found. With it the report shows texts of the largest groups. To judge
        ``jaccard_threshold``, look at the texts of pairs that are only just similar enough.
    largest : int
        Number of largest groups to list.
    examples : int
        With ``docs``: number of rows to show of each of these groups, at least 1.
    max_chars : int
        With ``docs``: number of characters to show of each text, at least 1.

    Returns
    -------
    NearDuplicateReport
        A report: groups by size, pairs by similarity, precision and recall, examples. It displays itself in terminals
        and notebooks.

    Raises
    ------
    InputError
        If ``groups`` were not written by `find_near_duplicates`.
    ParameterError
        If the groups were found in a table other than ``docs``, or a number is out of range.
    ExpressionError
        If a step of ``docs`` needs more than one block, or the range of its block.

    See Also
    --------
    find_near_duplicates, drop_near_duplicates

    Notes
    -----
    Rows: none. Peak extra memory: with ``docs`` 8 MB in this process, or the whole file if it was compressed
    as a whole. Computes: yes, from two columns of the table on disk, and with ``docs`` the parts of the input that
    contain the examples.

    Examples
    --------
    >>> docs = cdf.read_jsonl("corpus/")  # doctest: +SKIP
    >>> groups = cdf.find_near_duplicates(docs, workdir="near/")  # doctest: +SKIP
    >>> report = cdf.describe_near_duplicates(groups, docs=docs)  # doctest: +SKIP
    """
    require_counts(OPERATOR, largest=largest, examples=examples, max_chars=max_chars)
    _, parameters = found_drops(groups, OPERATOR)
    table = groups if isinstance(groups, FrameBase) else read_parquet(os.fspath(groups))
    receipt = read_receipt(groups)
    details = receipt.exchanges[-1].details
    sizes, top = group_sizes(table), largest_groups(table, largest)
    shown = None
    if docs is not None:
        if parameters["text"] is None:
            raise ParameterError(
                f"{OPERATOR}: groups= were found by signatures alone; there is no text to show of docs="
            )
        drop_near_duplicates(docs, groups=groups)  # raises if they were found for another table
        shown = example_rows(docs, table, top, OPERATOR, examples, max_chars, parameters["text"], "jaccard")
    scheme = Scheme(**parameters["scheme"])
    similarities, precision = _pairs(details, scheme, parameters["jaccard_threshold"])
    recall, interval = _recall(details, scheme)
    return NearDuplicateReport(
        rows=receipt.rows_read,
        rows_in_groups=int((sizes.index * sizes["groups"]).sum()),
        rows_going=int(sizes["going"].sum()),
        compared=details.get("compared"),
        precision=precision,
        recall=recall,
        recall_interval=interval,
        sizes=sizes,
        similarities=similarities,
        largest=top,
        examples=shown,
        settings={**parameters, **{name: details[name] for name in SETTINGS}},
    )


SETTINGS = ("bands_per_iteration", "iterations", "buckets", "largest_bucket")


def _pairs(
    details: dict[str, Any], scheme: Scheme, jaccard_threshold: float | None
) -> tuple[pd.DataFrame, float | None]:
    """Return compared pairs by similarity, and precision."""
    counts = np.array(details.get("compared_by_similarity", []), dtype=np.int64)
    edges = np.linspace(0, 1, len(counts) + 1)
    chances = scheme.candidate_probability((edges[:-1] + edges[1:]) / 2)
    index = pd.Index(edges[:-1].round(4), name="jaccard")
    table = pd.DataFrame({"compared": counts, "chance": chances}, index=index)
    if jaccard_threshold is None or not counts.sum():
        return table, None
    return table, details["joined"] / int(counts.sum())


def _recall(details: dict[str, Any], scheme: Scheme) -> tuple[float | None, tuple[float, float] | None]:
    """Return the estimated share of similar pairs that were compared, and its interval."""
    by_band = np.array(details.get("found_by_band", []), dtype=np.float64)
    in_crowds = float(sum(details.get("found_by_crowd", [])))
    found = float(by_band.sum()) + in_crowds
    if not found:
        return None, None
    first = FOUND_BINS - len(by_band)
    chances = scheme.candidate_probability((np.arange(first, FOUND_BINS) + 0.5) / FOUND_BINS)
    all_pairs = float((by_band / chances).sum()) + in_crowds
    spread = 1.96 * float(np.sqrt((by_band * (1 - chances) / chances**2).sum()))
    return found / all_pairs, (found / (all_pairs + spread), min(found / max(all_pairs - spread, found), 1.0))
