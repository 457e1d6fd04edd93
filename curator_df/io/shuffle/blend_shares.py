# SPDX-License-Identifier: Apache-2.0
"""Epochs of rows for shares of the output in `blend`: a pass that counts rows, and the arithmetic."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from curator_df.core.columns import is_text
from curator_df.core.files.storage import FileRecord, Folder
from curator_df.core.fingerprint import fingerprint
from curator_df.core.ranges.journal import Journal
from curator_df.core.ranges.sink import StageSink
from curator_df.core.runner.run import run
from curator_df.errors import ParameterError
from curator_df.io.shuffle.sink import kinds_of


@dataclass(frozen=True)
class Shares:
    """Shares of the output of each table, or kind of rows."""

    weights: Mapping[Any, float]
    """Shares by name; they need not add up to 1."""
    rows: int | None
    """Approximate number of rows of the output; None for as many as possible without taking a row twice."""

    def epochs(self, counted: Mapping[Any, int]) -> dict[Any, float]:
        """Return how often rows are taken, given the number of rows of each name.

        Raises
        ------
        ParameterError
            If a name with a share has no rows.

        Examples
        --------
        >>> Shares({"web": 1, "wiki": 3}, None).epochs({"web": 400, "wiki": 600})
        {'web': 0.5, 'wiki': 1.0}
        >>> Shares({"web": 1, "wiki": 3}, 1600).epochs({"web": 400, "wiki": 600})
        {'web': 1.0, 'wiki': 2.0}
        """
        for name, weight in self.weights.items():
            if weight and not counted[name]:
                raise ParameterError(
                    f"blend: weights= gives a share to {name!r}, which has no rows. Remove it, or set it to 0"
                )
        density = {name: weight / counted[name] if weight else 0.0 for name, weight in self.weights.items()}
        if self.rows is None:
            most = max(density.values())
            return {name: value / most for name, value in density.items()}
        total = sum(self.weights.values())
        return {name: value * self.rows / total for name, value in density.items()}


@dataclass(frozen=True)
class KindSink(StageSink):
    """Sink of a pass that counts the rows of each kind."""

    folder: Folder
    """Folder of the journal."""
    column: str | None
    """Column of the kinds; None to count all rows as one kind."""
    names: tuple[Any, ...]
    """Names of the kinds."""
    writer_factor: float = 3.0
    """Memory multiplier of the writer: 25 to 30 bytes a row (measured), for rows of 9 bytes where a kind is one byte."""

    @property
    def fingerprint(self) -> str:
        """Digest of the counted column and names."""
        return fingerprint("kinds", self.column, self.names)

    def open(self, number: int, meta: Any, buffer_bytes: int) -> _RangeKinds:  # noqa: ARG002 - the interface of a sink
        """Start an input split."""
        return _RangeKinds(self)


class _RangeKinds:
    def __init__(self, sink: KindSink) -> None:
        self._column, self._names = sink.column, sink.names
        self._counts = np.zeros(len(sink.names), dtype=np.int64)

    def append(self, block: Any) -> None:
        if self._column is None:
            self._counts[0] += len(block)
        else:
            kinds = kinds_of(block, self._column, self._names)
            self._counts += np.bincount(kinds, minlength=len(self._names))

    def commit(self) -> list[FileRecord]:
        return []

    @property
    def summary(self) -> dict[str, int]:
        return {str(place): int(count) for place, count in enumerate(self._counts)}

    def discard(self) -> None:
        pass


def count_kinds(df: Any, folder: Folder, column: str | None, names: Sequence[Any], **how: Any) -> dict[Any, int]:
    """Run a table and return the number of rows of each name; without a column all rows have the single name.

    For an unchanged table from Parquet, only this column is read; without a column, one that holds no text.
    """
    light = [name for name, dtype in df.dtypes.items() if not is_text(dtype)] or list(df.columns)
    run(df[[column or light[0]]], KindSink(folder, column, tuple(names)), on_existing="resume", **how)
    summaries = {done["number"]: done["summary"] for done in Journal(folder).done()}
    return {name: sum(summary[str(place)] for summary in summaries.values()) for place, name in enumerate(names)}
