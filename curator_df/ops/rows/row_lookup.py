# SPDX-License-Identifier: Apache-2.0
"""Look up a few rows of a table by their row IDs: only the pieces of the input that contain them are read."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pandas as pd

from curator_df.core.planning.program import Program, run_step
from curator_df.core.ranges.blocks import row_error
from curator_df.core.ranges.source import OFFSET_BITS, BadRow, among
from curator_df.errors import ExpressionError

PIECE_BYTES = 8_000_000
"""Approximate bytes of decompressed text that are read in one step."""


def rows_at(program: Program, addresses: npt.NDArray[np.int64], operator: str) -> pd.DataFrame:
    """Return the rows that come out of a program for some rows of its input, in the order of the input.

    Parameters
    ----------
    program : Program
        Where they come from, and what happens to them. Its steps must need nothing but their block.
    addresses : ndarray of int64
        Which; the others are dropped before the first step.
    operator : str
        For the error.

    Returns
    -------
    pandas.DataFrame
        Its index holds the addresses. A row that a step drops is not in it.

    Raises
    ------
    ExpressionError
        If a step waits for other rows, or needs to know the range of its block.
    """
    for step in program.steps:
        if step.pending is not None or step.on_device:
            raise ExpressionError(
                f"{operator} must read single rows of the table a second time, but {step.name} can only process the whole "
                f"table. Write the table up to and including {step.name} with checkpoint(df, path), and use the table that "
                "it returns"
            )
    wanted = np.unique(addresses)
    ranges = program.source.cut(PIECE_BYTES)
    starts = ranges.table[:, 0] << OFFSET_BITS | ranges.table[:, 1]
    blocks: list[pd.DataFrame] = []
    for number in np.unique(np.searchsorted(starts, wanted, side="right") - 1):
        pieces = program.source.blocks(
            ranges[number],
            block_bytes=PIECE_BYTES,
            on_bad_row=_is_told_by_runs if program.source.quarantines else None,
            wanted=among(wanted),
        )
        for block in pieces:
            rows = block
            for step in program.steps:
                outcome = run_step(step, rows)[0]
                if outcome.failed:
                    raise row_error(step.name, outcome.failed)
                rows = outcome.block
            blocks.append(rows)
    found: pd.DataFrame = pd.concat(blocks or [program.meta])
    return found


def _is_told_by_runs(row: BadRow) -> None:
    """Leave a row out: no row of these can be read here that a run could not."""
