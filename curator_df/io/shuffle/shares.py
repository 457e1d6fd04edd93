# SPDX-License-Identifier: Apache-2.0
"""Shares of tables, or of kinds of rows, in a blend: the arithmetic, and the sink of the pass that counts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from curator_df.core.fingerprint import fingerprint
from curator_df.core.ranges.sink import StageSink
from curator_df.errors import ParameterError
from curator_df.files.storage import FileRecord, Folder
from curator_df.io.shuffle.sink import kinds_of, sizes_of

MOST_EPOCHS = 1_000_000
"""Maximum number of times that a row is taken: the first pass writes each copy."""
ROW_UNIT = "rows"
"""Unit of shares that are numbers of rows."""


def require_few_epochs(epochs: Mapping[Any, float]) -> None:
    """Raise `ParameterError` if rows would be taken more often than `MOST_EPOCHS` times."""
    for name, number in epochs.items():
        if number > MOST_EPOCHS:
            raise ParameterError(
                f"blend: the rows of {name!r} would be taken {number:,.0f} times, but at most {MOST_EPOCHS:,} times is possible. "
                "Use fewer epochs=, or a smaller rows= or total="
            )


@dataclass(frozen=True)
class Shares:
    """Shares of the output of each table, or kind of rows."""

    weights: Mapping[Any, float]
    """Shares by name; they need not add up to 1."""
    total: int | None
    """Approximate size of the output in the unit; None for as much as possible without taking a row twice."""
    unit: str | None = None
    """Column of whole numbers whose sums have the shares; None for numbers of rows."""

    def epochs(self, counted: Mapping[Any, int]) -> dict[Any, float]:
        """Return how often rows are taken, given the size of each name in the unit.

        Raises
        ------
        ParameterError
            If a name with a share has no rows, or only zeros in the column; or if its rows would be taken too often.

        Examples
        --------
        >>> Shares({"web": 1, "wiki": 3}, None).epochs({"web": 400, "wiki": 600})
        {'web': 0.5, 'wiki': 1.0}
        >>> Shares({"web": 1, "wiki": 3}, 1600).epochs({"web": 400, "wiki": 600})
        {'web': 1.0, 'wiki': 2.0}
        """
        for name, weight in self.weights.items():
            if weight and not counted[name]:
                lacks = "no rows" if self.unit is None else f"no {self.unit!r} above 0"
                raise ParameterError(
                    f"blend: weights= gives a share to {name!r}, which has {lacks}. Remove it, or set it to 0"
                )
        density = {name: weight / counted[name] if weight else 0.0 for name, weight in self.weights.items()}
        if self.total is None:
            most = max(density.values())
            return {name: value / most for name, value in density.items()}
        whole = sum(self.weights.values())
        epochs = {name: value / whole * self.total for name, value in density.items()}
        require_few_epochs(epochs)
        return epochs

    def requested(self) -> str:
        """Return the requested shares in words.

        Examples
        --------
        >>> Shares({"web": 7, "code": 3}, None, "token_count").requested()
        "of 'token_count': 'web' 70.0 %, 'code' 30.0 %"
        """
        whole = sum(self.weights.values())
        said = ", ".join(f"{name!r} {100 * weight / whole:.1f} %" for name, weight in self.weights.items())
        return f"of {self._unit}: {said}"

    def taken(self, counted: Mapping[Any, int]) -> str:
        """Return the shares of the output, given its size in the unit for each name, and the requested shares in words.

        Examples
        --------
        >>> Shares({"web": 7, "code": 3}, None).taken({"web": 1_404, "code": 596})
        "of the rows: 'web' 70.2 % (1,404; requested 70.0 %), 'code' 29.8 % (596; requested 30.0 %)"
        """
        whole, total = sum(self.weights.values()), max(sum(counted.values()), 1)
        said = [
            f"{name!r} {100 * counted[name] / total:.1f} % ({counted[name]:,}; requested {100 * weight / whole:.1f} %)"
            for name, weight in self.weights.items()
        ]
        return f"of {self._unit}: {', '.join(said)}"

    @property
    def said(self) -> dict[str, Any]:
        """Arguments for an error, if they are not those of the run to resume."""
        rows, total = (self.total, None) if self.unit is None else (None, self.total)
        return {"weights": self.weights, "unit": self.unit or ROW_UNIT, "rows": rows, "total": total}

    @property
    def _unit(self) -> str:
        return "the rows" if self.unit is None else repr(self.unit)


@dataclass(frozen=True)
class KindSink(StageSink):
    """Sink of a pass that counts the rows of each kind, or adds up a column over them."""

    folder: Folder
    """Folder of the journal."""
    column: str | None
    """Column of the kinds; None to count all rows as one kind."""
    names: tuple[Any, ...]
    """Names of the kinds."""
    unit: str | None
    """Column that is added up; None to count rows."""
    writer_factor: float = 3.0
    """Memory multiplier of the writer: 25 to 30 bytes a row (measured), for rows of 9 bytes where a kind is one byte."""

    @property
    def fingerprint(self) -> str:
        """Digest of the counted column, names and unit."""
        return fingerprint("kinds", self.column, self.names, self.unit)

    def open(self, number: int, meta: Any, buffer_bytes: int) -> _RangeKinds:  # noqa: ARG002 - the interface of a sink
        """Start an input split."""
        return _RangeKinds(self)


class _RangeKinds:
    def __init__(self, sink: KindSink) -> None:
        self._column, self._names, self._unit = sink.column, sink.names, sink.unit
        self._counts = np.zeros(len(sink.names), dtype=np.int64)

    def append(self, block: Any) -> None:
        kinds = None if self._column is None else kinds_of(block, self._column, self._names)
        self._counts += sizes_of(block, self._unit, kinds, len(self._names))

    def commit(self) -> list[FileRecord]:
        return []

    @property
    def summary(self) -> dict[str, int]:
        return {str(place): int(count) for place, count in enumerate(self._counts)}

    def discard(self) -> None:
        pass
