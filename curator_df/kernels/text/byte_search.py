# SPDX-License-Identifier: Apache-2.0
# numba has no types.
# mypy: disable-error-code="untyped-decorator,no-any-return"
"""Compiled comparison of bytes with bytes. Functions that other compiled functions call; nothing is compiled here."""

from __future__ import annotations

from typing import Any

from curator_df.kernels.compiling.compiled import helper


@helper
def are_same(data: Any, at: int, other: Any, first: int, length: int) -> bool:
    """Return whether ``length`` bytes from ``at`` on equal those of ``other`` from ``first`` on."""
    step = 0
    while step < length and data[at + step] == other[first + step]:
        step += 1
    return step == length


@helper
def is_here(data: Any, at: int, stop: int, letters: Any) -> bool:
    """Return whether all these letters are at position ``at`` of a text that ends at ``stop``."""
    return at + len(letters) <= stop and are_same(data, at, letters, 0, len(letters))
