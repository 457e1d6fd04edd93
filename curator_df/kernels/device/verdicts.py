# SPDX-License-Identifier: Apache-2.0
# numba has no types.
# mypy: disable-error-code="untyped-decorator"
"""First rule that each row breaks, on a device, from existing metrics; the counterpart of `ops.filters.verdicts` on the host."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from numba import cuda

from curator_df.kernels.device.launch import allocate, one_by_one, to_device

KEEPS = (">=", "<=", ">", "<")
"""Comparisons, in the order of their numbers in `rule_kernel`."""
PASSES = -1
"""Code of a row that no rule drops."""


def first_broken(
    values: Mapping[str, Any], rules: Sequence[tuple[str, str, float]], valid: Any, rows: int
) -> tuple[Any, Any, npt.NDArray[np.int64]]:
    """Evaluate the rules on the rows.

    Parameters
    ----------
    values : mapping of str to device array, shape (rows,)
        Metric by name.
    rules : sequence of (metric, comparison, threshold)
        In the order in which they are tried.
    valid : device array of bool, shape (rows,)
        False for null; of length 0 if there are no nulls.
    rows : int
        Number of rows.

    Returns
    -------
    codes : device array of int16, shape (rows,)
        Position of the rule, `PASSES`, or the number of rules for a row without text.
    passes : device array of bool, shape (rows,)
        True if no rule is broken and the text is not null.
    counted : ndarray of int64, shape (rules + 1,), on the host
        Rows that break each rule first; last, those without text.
    """
    codes, passes = allocate(rows, np.int16), allocate(rows, np.bool_)
    counted = to_device(np.zeros(len(rules) + 1, dtype=np.int64))
    if rows:
        launch = one_by_one(rows)
        pass_kernel[launch](valid, len(rules), codes)
        for position in reversed(range(len(rules))):
            metric, keep, threshold = rules[position]
            rule_kernel[launch](values[metric], KEEPS.index(keep), float(threshold), position, len(rules), codes)
        outcome_kernel[launch](codes, passes, counted)
    return codes, passes, counted.copy_to_host()


@cuda.jit
def pass_kernel(valid: Any, missing: int, codes: Any) -> None:
    """Pass all rows except those without text."""
    for row in range(cuda.grid(1), len(codes), cuda.gridsize(1)):
        codes[row] = missing if len(valid) > 0 and not valid[row] else PASSES


@cuda.jit
def rule_kernel(values: Any, keep: int, threshold: float, position: int, missing: int, codes: Any) -> None:
    """Record the rows with a text that break a rule. Rules are applied last to first, so that the first one remains."""
    for row in range(cuda.grid(1), len(codes), cuda.gridsize(1)):
        value = values[row]
        if keep == 0:
            keeps = value >= threshold
        elif keep == 1:
            keeps = value <= threshold
        elif keep == 2:
            keeps = value > threshold
        else:
            keeps = value < threshold
        if not keeps and codes[row] != missing:
            codes[row] = position


@cuda.jit
def outcome_kernel(codes: Any, passes: Any, counted: Any) -> None:
    """Write which rows pass, and count the others."""
    for row in range(cuda.grid(1), len(codes), cuda.gridsize(1)):
        passes[row] = codes[row] == PASSES
        if codes[row] != PASSES:
            cuda.atomic.add(counted, codes[row], 1)
