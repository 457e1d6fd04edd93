# SPDX-License-Identifier: Apache-2.0
"""How often rows are taken where `blend` is told shares of the output: a pass that counts rows, and the arithmetic."""

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
from curator_df.io.shuffle_sink import kinds_of


@dataclass(frozen=True)
class Shares:
    """What part of the output each table, or kind of rows, is to be."""

    weights: Mapping[Any, float]
    """By name; they need not add up to 1."""
    rows: int | None
    """About how many the output is to have; None for as many as there are without taking one twice."""

    def epochs(self, counted: Mapping[Any, int]) -> dict[Any, float]:
        """Return how often rows are taken, from the number of rows of each name.

        Raises
        ------
        ParameterError
            If there are no rows of a name that is to have a share.

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
                    f"blend: weights= gives a share of the rows to {name!r}, which has none; leave it out, or give it 0"
                )
        density = {name: weight / counted[name] if weight else 0.0 for name, weight in self.weights.items()}
        if self.rows is None:
            most = max(density.values())
            return {name: value / most for name, value in density.items()}
        total = sum(self.weights.values())
        return {name: value * self.rows / total for name, value in density.items()}


@dataclass(frozen=True)
class KindSink(StageSink):
    """The end of a pass that counts the rows of each kind."""

    folder: Folder
    """Where the journal is."""
    column: str | None
    """Holds the kinds; None to count all rows as one kind."""
    names: tuple[Any, ...]
    """The kinds."""
    writer_factor: float = 3.0
    """Peak extra bytes as a multiple of the block's: 25 to 30 a row (measured), of rows of 9 bytes where a kind is one byte."""

    @property
    def fingerprint(self) -> str:
        """Digest of what is counted."""
        return fingerprint("kinds", self.column, self.names)

    def open(self, number: int, meta: Any, buffer_bytes: int) -> _RangeKinds:  # noqa: ARG002 - the face of a sink
        """Start a range."""
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
    """Run a table through and return the rows of each name; without a column all rows are those of the one name.

    Only the column is read, of a table that comes from Parquet as it is; without one a column that holds no text.
    """
    light = [name for name, dtype in df.dtypes.items() if not is_text(dtype)] or list(df.columns)
    run(df[[column or light[0]]], KindSink(folder, column, tuple(names)), on_existing="resume", **how)
    summaries = {done["number"]: done["summary"] for done in Journal(folder).done()}
    return {name: sum(summary[str(place)] for summary in summaries.values()) for place, name in enumerate(names)}
