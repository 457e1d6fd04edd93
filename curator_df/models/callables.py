# SPDX-License-Identifier: Apache-2.0
"""User-defined model: a function of a list of strings that returns a row of numbers for each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from curator_df.errors import OperatorError
from curator_df.memory.process_cache import cached
from curator_df.models.batches import BatchCounts, row_batches, run_batches

DEFAULT_ROWS = 256
"""Default number of texts passed to a function in each call."""


@dataclass(frozen=True)
class UserModel:
    """User's function, and its parameters."""

    operator: str
    """Name of the operator, for errors."""
    function: Callable[[Sequence[str]], Any]
    """Function of a list of texts; it returns an array of shape (texts, width)."""
    width: int
    """Number of values for each text."""
    max_chars: int | None
    """Maximum number of characters of a text passed to the function; None for all."""
    rows: int = field(metadata={"identity": False})
    """Maximum number of texts passed in each call."""

    def run(self, texts: pa.ChunkedArray, keep: Callable[[npt.NDArray[np.int64], Any], None]) -> BatchCounts:
        """Pass all non-null texts to the function, in order, and its results to ``keep`` with their positions.

        If it runs out of memory, it gets half as many texts from then on in this process.
        """
        counts, places = BatchCounts(), np.flatnonzero(texts.is_valid().to_numpy())

        def call(chosen: npt.NDArray[np.int64]) -> None:
            these = places[chosen]
            window = texts.slice(these[0], these[-1] - these[0] + 1).drop_null()
            if self.max_chars is not None:
                window = pc.utf8_slice_codeunits(window, 0, self.max_chars)
            keep(these, self._checked(self.function(window.to_pylist()), len(these)))

        size = cached(("rows", self.operator, id(self.function), self.rows), lambda: row_batches(self.rows))
        run_batches(np.zeros(len(places), np.int64), size, call, counts)
        return counts

    def _checked(self, made: Any, rows: int) -> npt.NDArray[np.float32]:
        wanted = f"{self.operator}: the function must return numbers of shape ({rows}, {self.width}) for {rows} texts"
        try:
            with np.errstate(over="ignore"):
                numbers = np.asarray(made, dtype=np.float32)
        except (TypeError, ValueError) as exc:
            raise OperatorError(
                f"{wanted}; it returned a {type(made).__name__} that cannot be converted to an array: {exc}"
            ) from exc
        if numbers.shape != (rows, self.width):
            raise OperatorError(f"{wanted}; it returned the shape {numbers.shape}")
        if np.isinf(numbers).any():
            self._require_range(np.asarray(made, dtype=np.float64), numbers)
        return numbers

    def _require_range(self, made: npt.NDArray[np.float64], numbers: npt.NDArray[np.float32]) -> None:
        """Raise `OperatorError` if a finite number became an infinity of float32."""
        for row, place in np.argwhere(np.isinf(numbers) & np.isfinite(made))[:1]:
            raise OperatorError(
                f"{self.operator}: the function returned {made[row, place]:g} for text {row + 1:,} of {len(made):,}, beyond the "
                "range of float32 (3.4e38). Let it scale its results"
            )
