# SPDX-License-Identifier: Apache-2.0
"""Check that foreign steps preserve the row-ID index, if a later step or pass identifies rows by it."""

from __future__ import annotations

from typing import Any

import numpy as np

from curator_df.core.planning.program import Step
from curator_df.errors import OperatorError


def require_kept_addresses(step: Step, before: Any, after: Any) -> None:
    """Raise an error unless the rows that a step returned have row IDs of the block it received, in order.

    Parameters
    ----------
    step : Step
        Step to check; nothing is checked unless a later step or pass uses row IDs.
    before, after : pandas.DataFrame or cudf.DataFrame
        Block that the step received, and block that it returned.

    Raises
    ------
    OperatorError
        If there are other row IDs, or they are repeated or reordered.
    """
    if not step.addresses_for or after.index is before.index:
        return
    fault = _fault(before.index.to_numpy(), after.index.to_numpy())
    if not fault and len(after) < len(before) and after.index.name != before.index.name:
        fault = "the index is a new one"  # numbers from 0 look like row IDs in the first block of a Parquet file
    if fault:
        raise OperatorError(
            f"step {step.name!r} changed the index: of the {len(after):,} rows that it returned for a block of {len(before):,}, "
            f"{fault}. The index contains the row IDs, by which {step.addresses_for} identifies rows. Keep the index of "
            "the block, without reset_index or set_index; or run the chain up to this step with checkpoint(df, path), and use "
            "the table that it returns, which has new row IDs"
        )


def _fault(before: Any, after: Any) -> str:
    """Return the fault in the row IDs after a step; empty if there is none."""
    if not len(after):
        return ""
    if after.dtype != before.dtype or not len(before):
        return f"none has a row ID (the index has the type {after.dtype})"
    places = np.minimum(np.searchsorted(before, after), len(before) - 1)
    strange = int((before[places] != after).sum())
    if strange:
        return f"{strange:,} have an index value that is not in the block"
    # Rows made from one row, as by a split, share its row ID until they are joined again.
    shared = bool((before[1:] == before[:-1]).any())
    moved = after[1:] < after[:-1] if shared else after[1:] <= after[:-1]
    return f"{int(moved.sum()):,} are repeated or reordered" if moved.any() else ""
