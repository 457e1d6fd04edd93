# SPDX-License-Identifier: Apache-2.0
"""Consecutive ranges of the input in groups, for the tasks after a pass and for the files of a table of groups."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from curator_df.core.exchange.exchange import drop_bounds

MOST_GROUPS = 256
"""Of ranges: as many tasks and files of pairs in an iteration."""
FEWEST_GROUPS = 8
"""Where there are as many ranges."""
GROUP_RANGES = 8
"""Ranges of a group, where neither of the above asks for another number."""


@dataclass(frozen=True)
class RangeGroups:
    """How ranges are grouped for the tasks after the first pass."""

    starts: npt.NDArray[np.int64] = field(repr=False)
    """Shape (ranges,): least address of each range."""
    per_group: int
    """Consecutive ranges of a group."""
    kept: int = 0
    """How many of the ranges, the last ones, are of kept signatures."""

    @property
    def first_kept(self) -> np.uint64:
        """Least address of a kept signature."""
        return np.uint64(self.starts[-self.kept]) if self.kept else np.uint64((1 << 64) - 1)

    def __len__(self) -> int:
        return (len(self.starts) + self.per_group - 1) // self.per_group

    @property
    def bounds(self) -> npt.NDArray[np.uint64]:
        """Least address of each group, for files with a slice for each."""
        return drop_bounds(self.starts[:: self.per_group])

    def range_bounds(self, group: int) -> npt.NDArray[np.uint64]:
        """Least address of each range of a group, for a file with a slice for each."""
        first = group * self.per_group
        return drop_bounds(self.starts[first : first + self.per_group])


def ranges_per_group(ranges: int) -> int:
    """Return how many consecutive ranges are a group: it follows from their number alone, so that runs can resume.

    Examples
    --------
    >>> [ranges_per_group(ranges) for ranges in (1, 8, 32, 1_000, 50_000)]
    [1, 1, 4, 8, 196]
    """
    return max(min(GROUP_RANGES, -(-ranges // FEWEST_GROUPS)), -(-ranges // MOST_GROUPS))
