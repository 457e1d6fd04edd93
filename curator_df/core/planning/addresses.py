# SPDX-License-Identifier: Apache-2.0
"""That a step which is not ours kept the addresses of rows, the index, where something later tells rows apart by them."""

from __future__ import annotations

from typing import Any

import numpy as np

from curator_df.core.planning.program import Step
from curator_df.errors import OperatorError


def require_kept_addresses(step: Step, before: Any, after: Any) -> None:
    """Raise unless the rows that came out of a step have addresses of those that it took, in order.

    Parameters
    ----------
    step : Step
        The step; nothing is checked unless something later uses addresses.
    before, after : pandas.DataFrame or cudf.DataFrame
        The block that it took, and the one that it returned.

    Raises
    ------
    OperatorError
        If there are others, or they are repeated or moved.
    """
    if not step.addresses_for or after.index is before.index:
        return
    fault = _fault(before.index.to_numpy(), after.index.to_numpy())
    if not fault and len(after) < len(before) and after.index.name != before.index.name:
        fault = "the index is a new one"  # numbers from 0 on look like addresses in the first block of a Parquet file
    if fault:
        raise OperatorError(
            f"step {step.name!r} changed the index: of the {len(after):,} rows that it returned for a block of {len(before):,}, "
            f"{fault}. The index is the address of each row, by which {step.addresses_for} tells rows apart. Keep the index of "
            "the block, without reset_index or set_index; or run the chain up to this step with checkpoint(df, path), and go on "
            "from the table that it returns, where each row has a new address"
        )


def _fault(before: Any, after: Any) -> str:
    """Return what is wrong with the addresses after a step; empty where nothing is."""
    if not len(after):
        return ""
    if after.dtype != before.dtype or not len(before):
        return f"none has an address (the index holds {after.dtype})"
    places = np.minimum(np.searchsorted(before, after), len(before) - 1)
    strange = int((before[places] != after).sum())
    if strange:
        return f"{strange:,} have an index that is none of the block's"
    # Rows that were made of one, as a split makes them, share its address until they are joined again.
    shared = bool((before[1:] == before[:-1]).any())
    moved = after[1:] < after[:-1] if shared else after[1:] <= after[:-1]
    return f"{int(moved.sum()):,} are repeated or moved" if moved.any() else ""
