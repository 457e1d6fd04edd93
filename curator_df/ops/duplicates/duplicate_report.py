# SPDX-License-Identifier: Apache-2.0
"""Report on the groups that `find_exact_duplicates`, `find_near_duplicates` and `find_semantic_duplicates` found."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

import dask.dataframe as dd
import numpy as np
import pandas as pd
from dask.dataframe.dask_expr import FrameBase

from curator_df.core.columns import require_columns
from curator_df.dedup.near.crowds import FOUND_BINS
from curator_df.dedup.vectors.settings import UNUSABLE
from curator_df.errors import ParameterError
from curator_df.io.output.receipts import read_receipt
from curator_df.io.parquet.reader import read_parquet
from curator_df.kernels.minhash.scheme import Scheme
from curator_df.memory.sizes import show_count
from curator_df.ops.duplicates.exact import drop_exact_duplicates
from curator_df.ops.duplicates.group_report import (
    Lines,
    as_html,
    as_text,
    example_rows,
    group_sizes,
    largest_groups,
    require_counts,
)
from curator_df.ops.duplicates.groups import found_drops, require_same_input
from curator_df.ops.duplicates.near_duplicates import drop_near_duplicates
from curator_df.suggestions import suggests_names

EXACT, NEAR, SEMANTIC = "describe_exact_duplicates", "describe_near_duplicates", "describe_semantic_duplicates"
SIMILARITY_STEPS = 10
"""Number of intervals of equal length between 1 - ``eps`` and 1 in which similarities are counted."""
SETTINGS = ("bands_per_iteration", "iterations", "buckets", "largest_bucket")
"""Details of the search that the report on near duplicates has."""


@suggests_names
@dataclass(frozen=True, repr=False)
class DuplicateReport:
    """The report of `describe_exact_duplicates` or `describe_semantic_duplicates`.

    See Also
    --------
    describe_exact_duplicates, describe_semantic_duplicates
    """

    rows: int
    """Rows that were examined."""
    rows_in_groups: int
    """Rows that are in a group of two or more."""
    rows_going: int
    """Rows that the drop removes."""
    share_going: float
    """Share of the examined rows that the drop removes, from 0 to 1."""
    sizes: pd.DataFrame
    """Index ``rows``: group size. Columns: ``groups`` (number of groups) and ``going`` (rows to drop)."""
    not_compared: dict[str, int]
    """Semantic duplicates: rows without a usable vector, which are kept and not compared, by cause: ``null``, ``empty``,
    ``zeros``, or ``not finite`` (NaN or infinity). Empty for exact duplicates."""
    similarities: pd.DataFrame | None
    """Semantic duplicates: index ``cosine``, the lower end of an interval; column ``going``, rows to drop by their similarity to
    their match. None for exact duplicates."""
    largest: pd.DataFrame
    """The largest groups: ``group``, ``group_size``, and ``file`` and ``offset`` of the row that is kept (with ``keep="none"``,
    of the first row)."""
    examples: pd.DataFrame | None
    """Some rows of these groups: ``group``, ``kept``, ``jaccard`` or ``cosine`` (with the row that it matched), ``file``,
    ``offset``, and the beginning of ``text``. None without ``docs``."""
    settings: dict[str, Any]
    """Parameters of the search; for semantic duplicates, ``eps`` is the value that the report is about."""

    def lines(self) -> Lines:
        """Return the report as (name, value) lines."""
        found = _rows_lines(self.rows, self.rows_in_groups, self.rows_going, self.sizes)
        if self.not_compared:
            causes = ", ".join(f"{count:,} {cause}" for cause, count in self.not_compared.items())
            rows = show_count(sum(self.not_compared.values()), "row")
            found.append(("kept", f"{rows} without a usable vector, not compared: {causes}"))
        return [*found, ("found with", ", ".join(f"{name}={value!r}" for name, value in self.settings.items()))]

    def __str__(self) -> str:
        return as_text(self.lines(), self.sizes, self._tables())

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return as_html(self.lines(), self.sizes, self._tables())

    def _tables(self) -> list[pd.DataFrame]:
        similarities = [] if self.similarities is None else [self.similarities.reset_index()]
        return [*similarities, self.largest, *([] if self.examples is None else [self.examples])]


def describe_exact_duplicates(
    groups: dd.DataFrame | str | os.PathLike[str],
    *,
    docs: dd.DataFrame | None = None,
    text: str = "text",
    largest: int = 5,
    max_chars: int = 200,
) -> DuplicateReport:
    """Report groups of equal rows by size, the share of rows to drop, and the largest groups.

    Parameters
    ----------
    groups : dask.dataframe.DataFrame, str or path
        The table that `find_exact_duplicates` returned, or its folder.
    docs : dask.dataframe.DataFrame, optional
        The table in which the groups were found. With it, the report shows a text of each of the largest groups.
    text : str
        With ``docs``: column to show.
    largest : int
        Number of largest groups to list.
    max_chars : int
        With ``docs``: number of characters to show of each text, at least 1.

    Returns
    -------
    DuplicateReport
        A report. It displays itself in terminals and notebooks.

    Raises
    ------
    ColumnError
        If ``docs`` lack the column.
    InputError
        If ``groups`` were not written by `find_exact_duplicates`.
    ParameterError
        If the groups were found in a table other than ``docs``, or a number is out of range.
    ExpressionError
        If a step of ``docs`` needs more than one block, or the range of its block.

    See Also
    --------
    find_exact_duplicates, drop_exact_duplicates, describe_near_duplicates, audit_duplicates

    Notes
    -----
    Rows: none. Peak extra memory: with ``docs`` 8 MB in this process, or the whole file if it was compressed
    as a whole. Computes: yes, from a few columns of the table on disk, and with ``docs`` the parts of the input that
    contain the examples.

    Examples
    --------
    >>> docs = cdf.read_jsonl("corpus/")  # doctest: +SKIP
    >>> groups = cdf.find_exact_duplicates(docs, workdir="exact/")  # doctest: +SKIP
    >>> report = cdf.describe_exact_duplicates(groups, docs=docs)  # doctest: +SKIP
    """
    require_counts(EXACT, largest=largest, max_chars=max_chars)
    _, parameters = found_drops(groups, EXACT, needs_table=True)
    table = table_of(groups)
    top = largest_groups(table, largest)
    shown = None
    if docs is not None:
        require_columns(docs, EXACT, text)
        drop_exact_duplicates(docs, groups=groups)  # raises if they were found for another table
        shown = example_rows(docs, table, top, EXACT, 1, max_chars, text, "jaccard")
    return _report(groups, group_sizes(table), None, top, shown, parameters)


def describe_semantic_duplicates(
    groups: dd.DataFrame | str | os.PathLike[str],
    *,
    eps: float | None = None,
    docs: dd.DataFrame | None = None,
    text: str = "text",
    largest: int = 5,
    examples: int = 3,
    max_chars: int = 200,
) -> DuplicateReport:
    """Report groups of rows with similar vectors by size, rows to drop by similarity, and the largest groups.

    Parameters
    ----------
    groups : dask.dataframe.DataFrame, str or path
        The table that `find_semantic_duplicates` returned, or its folder.
    eps : float, optional
        Value to report about, one of those that the groups were found with. Required if there are several.
    docs : dask.dataframe.DataFrame, optional
        The table in which the groups were found. With it, the report shows texts of the largest groups. To judge
        ``eps``, look at the texts of rows that are only just similar enough.
    text : str
        With ``docs``: column to show.
    largest : int
        Number of largest groups to list.
    examples : int
        With ``docs``: number of rows to show of each of these groups, at least 1.
    max_chars : int
        With ``docs``: number of characters to show of each text, at least 1.

    Returns
    -------
    DuplicateReport
        A report. It displays itself in terminals and notebooks.

    Raises
    ------
    ColumnError
        If ``docs`` lack the column.
    InputError
        If ``groups`` were not written by `find_semantic_duplicates`.
    ParameterError
        If ``eps`` is missing or not one of the values that were searched, the groups were found in a table other than
        ``docs``, or a number is out of range.
    ExpressionError
        If a step of ``docs`` needs more than one block, or the range of its block.

    See Also
    --------
    find_semantic_duplicates, drop_semantic_duplicates, describe_near_duplicates, audit_duplicates

    Notes
    -----
    Rows: none. Peak extra memory: with ``docs`` 8 MB in this process, or the whole file if it was compressed
    as a whole. Computes: yes, from a few columns of the table on disk, and with ``docs`` the parts of the input that
    contain the examples.

    Examples
    --------
    >>> docs = cdf.read_parquet("vectors/")  # doctest: +SKIP
    >>> groups = cdf.find_semantic_duplicates(docs, eps=[0.01, 0.05], workdir="semantic/")  # doctest: +SKIP
    >>> report = cdf.describe_semantic_duplicates(groups, eps=0.05, docs=docs)  # doctest: +SKIP
    """
    require_counts(SEMANTIC, largest=largest, examples=examples, max_chars=max_chars)
    drops, parameters = found_drops(groups, SEMANTIC, needs_table=True)
    chosen = chosen_eps(SEMANTIC, eps, parameters["eps"])
    whole = table_of(groups)
    table = whole[whole["eps"] == chosen]
    top = largest_groups(table, largest)
    shown = None
    if docs is not None:
        require_columns(docs, SEMANTIC, text)
        require_same_input(docs, SEMANTIC, drops)
        shown = example_rows(docs, table, top, SEMANTIC, examples, max_chars, text, "cosine")
    similarities = _similarities(table, chosen)
    return _report(groups, group_sizes(table), similarities, top, shown, {**parameters, "eps": chosen})


def _rows_lines(rows: int, rows_in_groups: int, rows_going: int, sizes: pd.DataFrame) -> Lines:
    """Return the lines of a report on the rows in groups, and on those that the drop removes."""
    share = rows_going / rows if rows else 0.0
    return [
        ("rows", f"{rows:,}, of which {rows_in_groups:,} are in {int(sizes['groups'].sum()):,} groups"),
        ("go", f"{rows_going:,} ({share:.2%})"),
    ]


def table_of(groups: Any) -> Any:
    """Return the table of groups, given it or its folder."""
    return groups if isinstance(groups, FrameBase) else read_parquet(os.fspath(groups))


def chosen_eps(operator: str, eps: float | None, found: list[float]) -> float:
    """Return the value of ``eps`` to look at; raise `ParameterError` if it is missing or was not searched."""
    listed = ", ".join(map(str, found))
    if eps is None and len(found) > 1:
        raise ParameterError(f"{operator}: groups= has results for eps={listed}. Choose one of them with eps=")
    if eps is not None and eps not in found:
        raise ParameterError(
            f"{operator}: groups= has results for eps={listed}, but not for eps={eps}. Choose one of them with eps="
        )
    return float(found[0] if eps is None else eps)


def _similarities(table: Any, eps: float) -> pd.DataFrame:
    """Return the number of rows to drop by their similarity to their match."""
    step = eps / SIMILARITY_STEPS
    going = table[~table["kept"]]["cosine"]
    places = ((going - (1 - eps)) / max(step, 1e-12)).clip(0, SIMILARITY_STEPS - 1).astype("int64")
    counts = places.value_counts().compute().reindex(range(SIMILARITY_STEPS), fill_value=0)
    index = pd.Index((1 - eps + step * np.arange(SIMILARITY_STEPS)).round(6), name="cosine")
    return pd.DataFrame({"going": counts.to_numpy(dtype=np.int64)}, index=index)


def _report(
    groups: Any,
    sizes: pd.DataFrame,
    similarities: pd.DataFrame | None,
    top: pd.DataFrame,
    shown: pd.DataFrame | None,
    parameters: dict[str, Any],
) -> DuplicateReport:
    receipt, going = read_receipt(groups), int(sizes["going"].sum())
    rows = receipt.rows_read
    details = {name: count for exchange in receipt.exchanges for name, count in exchange.details.items()}
    causes = {cause.replace("_", " "): details.get(f"{cause}_vectors", 0) for cause in UNUSABLE}
    return DuplicateReport(
        rows=rows,
        rows_in_groups=int((sizes.index * sizes["groups"]).sum()),
        rows_going=going,
        share_going=going / rows if rows else 0.0,
        sizes=sizes,
        not_compared={cause: count for cause, count in causes.items() if count},
        similarities=similarities,
        largest=top,
        examples=shown,
        settings=parameters,
    )


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
    """Interval that contains ``recall`` with a probability of about 95%, if pairs are found independently of each other."""
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

    def lines(self) -> Lines:
        """Return the report as (name, value) lines."""
        found = _rows_lines(self.rows, self.rows_in_groups, self.rows_going, self.sizes)
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
    require_counts(NEAR, largest=largest, examples=examples, max_chars=max_chars)
    _, parameters = found_drops(groups, NEAR, needs_table=True)
    table, receipt = table_of(groups), read_receipt(groups)
    details = receipt.exchanges[-1].details
    sizes, top = group_sizes(table), largest_groups(table, largest)
    shown = None
    if docs is not None:
        if parameters["text"] is None:
            raise ParameterError(
                f"{NEAR}: groups= were found from stored signatures alone, so there is no text of docs= to show. Find "
                "the groups again with text=, or leave docs= out"
            )
        drop_near_duplicates(docs, groups=groups)  # raises if they were found for another table
        shown = example_rows(docs, table, top, NEAR, examples, max_chars, parameters["text"], "jaccard")
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
