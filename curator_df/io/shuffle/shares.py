# SPDX-License-Identifier: Apache-2.0
"""Shares of tables, or of kinds of rows, in a blend: the arithmetic, and the sink of the pass that counts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from curator_df.core.fingerprint import fingerprint
from curator_df.core.ranges.journal import Journal
from curator_df.core.ranges.parameter_digests import Digested
from curator_df.core.ranges.sink import StageSink
from curator_df.errors import ParameterError
from curator_df.files.storage import FileRecord, Folder, NewFile
from curator_df.io.shuffle.sink import Taken, kinds_of, row_sizes, sums_of
from curator_df.kernels.rows.row_shuffle import times_taken

MOST_EPOCHS = 1_000_000
"""Maximum number of times that a row is taken: the first pass writes each copy."""
FAR_OFF = 0.05
"""Difference of a share from the requested one that is reported."""
SIZES = "sizes"
"""Folder of the sizes of rows."""
STORED = pa.schema([("address", pa.int64()), ("kind", pa.int64()), ("size", pa.int64())])
"""Columns of a file of sizes: row ID, number of the row's kind, and its tokens."""


def require_few_epochs(epochs: Mapping[Any, float]) -> None:
    """Raise `ParameterError` if rows would be taken more often than `MOST_EPOCHS` times."""
    for name, number in epochs.items():
        if number > MOST_EPOCHS:
            raise ParameterError(
                f"blend: the rows of {name!r} would be taken {number:,.0f} times, but a row can be taken at most "
                f"{MOST_EPOCHS:,} times. Use fewer epochs=, or a smaller rows= or tokens="
            )


@dataclass(frozen=True)
class Shares:
    """Shares of the output of each table, or kind of rows."""

    weights: Mapping[Any, float]
    """Shares by name; they need not add up to 1."""
    total: int | None
    """Approximate size of the output in the unit; None for as much as possible without taking a row twice."""
    unit: Literal["rows", "tokens"] = "rows"
    """Unit of the shares."""
    column: str | None = None
    """Column with the number of tokens of each row; None to count rows."""
    tokenizer: Any = None
    """Tokenizer that counts into this column; None for a column of the tables."""
    text: str | None = None
    """Column whose tokens are counted."""

    def epochs(self, counted: Mapping[Any, int]) -> dict[Any, float]:
        """Return how often rows are taken, given the size of each name in the unit.

        Raises
        ------
        ParameterError
            If a name with a share has no rows or no tokens; or if its rows would be taken too often.

        Examples
        --------
        >>> Shares({"web": 1, "wiki": 3}, None).epochs({"web": 400, "wiki": 600})
        {'web': 0.5, 'wiki': 1.0}
        >>> Shares({"web": 1, "wiki": 3}, 1600).epochs({"web": 400, "wiki": 600})
        {'web': 1.0, 'wiki': 2.0}
        """
        for name, weight in self.weights.items():
            if weight and not counted[name]:
                lacks = f"no {self.unit}" + (f" in its column {self.column!r}" if self._is_of_tables else "")
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
        >>> Shares({"web": 7, "code": 3}, None, "tokens", "token_count").requested()
        "of the tokens: 'web' 70.0%, 'code' 30.0%"
        """
        whole = sum(self.weights.values())
        said = ", ".join(f"{name!r} {100 * weight / whole:.1f}%" for name, weight in self.weights.items())
        return f"of the {self.unit}: {said}"

    def taken(self, counted: Mapping[Any, int]) -> str:
        """Return the shares of the output, given its size in the unit for each name, and the requested shares in words.

        Examples
        --------
        >>> Shares({"web": 7, "code": 3}, None).taken({"web": 1_404, "code": 596})
        "of the rows: 'web' 70.2% (1,404; requested 70.0%), 'code' 29.8% (596; requested 30.0%)"
        """
        whole, total = sum(self.weights.values()), max(sum(counted.values()), 1)
        said = [
            f"{name!r} {100 * counted[name] / total:.1f}% ({counted[name]:,}; requested {100 * weight / whole:.1f}%)"
            for name, weight in self.weights.items()
        ]
        return f"of the {self.unit}: {', '.join(said)}"

    def far_off(self, counted: Mapping[Any, int]) -> str:
        """Return advice where a share of the output is far from the requested one; empty where all are close.

        Examples
        --------
        >>> Shares({"web": 7, "code": 3}, None).far_off({"web": 1_404, "code": 596})
        ''
        """
        whole, total = sum(self.weights.values()), max(sum(counted.values()), 1)
        off = {name: counted[name] / total - weight / whole for name, weight in self.weights.items()}
        name = max(off, key=lambda each: abs(off[each]))
        if abs(off[name]) <= FAR_OFF:
            return ""
        return (
            f"{name!r} has {counted[name] / total:.1%} of the {self.unit} instead of {self.weights[name] / whole:.1%}. Whole "
            "rows are taken at random, so small mixes miss their shares. Take more rows, or cut long texts (split_documents)"
        )

    @property
    def _is_of_tables(self) -> bool:
        return self.column is not None and self.tokenizer is None

    @property
    def counts(self) -> str:
        """Description of the counts that a pass over each table makes."""
        if self.tokenizer is not None:
            return f"the tokens of {self.text!r} with {self.tokenizer.name!r}"
        return "the rows" if self.column is None else f"the tokens in the column {self.column!r}"

    @property
    def said(self) -> dict[str, Any]:
        """Arguments for an error, if they are not those of the run to resume."""
        rows, tokens = (self.total, None) if self.unit == "rows" else (None, self.total)
        said = {"weights": self.weights, "unit": self.unit, "rows": rows, "tokens": tokens}
        if self.tokenizer is not None:
            return {**said, "tokenizer": Digested(self.tokenizer.name, self.tokenizer.digest), "text": self.text}
        return {**said, "token_column": self.column}


@dataclass(frozen=True)
class KindSink(StageSink):
    """Sink of a pass that counts the rows of each kind, or adds up a column over them."""

    folder: Folder
    """Folder of the journal."""
    column: str | None
    """Column of the kinds; None to count all rows as one kind."""
    names: tuple[Any, ...]
    """Names of the kinds."""
    sizes: str | None
    """Column that is added up; None to count rows."""
    is_stored: bool = False
    """Whether row ID, kind and size of each row are written, so that sums over taken rows need no second count."""
    writer_factor: float = 3.0
    """Memory multiplier of the writer: 25 to 30 bytes a row (measured), for rows of 9 bytes where a kind is one byte."""

    @property
    def fingerprint(self) -> str:
        """Digest of the counted column, names and unit."""
        return fingerprint("kinds", self.column, self.names, self.sizes, self.is_stored)

    def open(self, number: int, meta: Any, buffer_bytes: int) -> _RangeKinds:  # noqa: ARG002 - the interface of a sink
        """Start an input split."""
        return _RangeKinds(self, number)


class _RangeKinds:
    def __init__(self, sink: KindSink, number: int) -> None:
        self._column, self._names, self._unit = sink.column, sink.names, sink.sizes
        self._counts = np.zeros(len(sink.names), dtype=np.int64)
        self._file = NewFile(sink.folder, f"{SIZES}/part-{number:06d}.arrow") if sink.is_stored else None
        self._writer = None if self._file is None else pa.ipc.new_stream(self._file, STORED)
        self._rows = 0

    def append(self, block: Any) -> None:
        kinds = None if self._column is None else kinds_of(block, self._column, self._names)
        sizes = row_sizes(block, self._unit)
        self._counts += sums_of(sizes, kinds, len(self._names))
        self._rows += len(block)
        if self._writer is not None:
            places = np.zeros(len(block), dtype=np.int64) if kinds is None else kinds
            columns = [pa.array(column) for column in (block.index.to_numpy().astype(np.int64), places, sizes)]
            self._writer.write_batch(pa.RecordBatch.from_arrays(columns, schema=STORED))

    def commit(self) -> list[FileRecord]:
        if self._file is None or self._writer is None:
            return []
        self._writer.close()
        return [self._file.commit(self._rows)]

    @property
    def summary(self) -> dict[str, int]:
        return {str(place): int(count) for place, count in enumerate(self._counts)}

    def discard(self) -> None:
        if self._file is not None:
            self._file.discard()


def taken_sizes(folder: Folder, taken: Taken) -> list[int]:
    """Return the size of each kind over the rows that are taken, from the files that a `KindSink` has stored.

    The journal of the pass names the files; others are of input splits that did not finish, or not of this pass.
    """
    epochs = np.array(list(taken.epochs.values()) if isinstance(taken.epochs, Mapping) else [taken.epochs], np.float64)
    sums = np.zeros(len(epochs), dtype=np.int64)
    for stored in (file for done in Journal(folder).records().values() for file in done.files):
        with folder.filesystem.open(folder.path(stored.name), "rb") as file, pa.ipc.open_stream(file) as batches:
            for batch in batches:
                addresses, kinds, sizes = (column.to_numpy() for column in batch.columns)
                sums += sums_of(
                    sizes * times_taken(addresses, epochs[kinds], taken.seed, taken.table), kinds, len(sums)
                )
    return [int(size) for size in sums]
