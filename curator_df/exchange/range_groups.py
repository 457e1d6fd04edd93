# SPDX-License-Identifier: Apache-2.0
"""Groups of consecutive input ranges, for the tasks after a pass and for the files of a table of groups."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from curator_df.core.ranges.source import Ranges, range_starts
from curator_df.exchange.exchange import drop_bounds

MOST_GROUPS = 256
"""Maximum number of groups of ranges, and so of tasks and files of pairs in an iteration."""
FEWEST_GROUPS = 8
"""Minimum number of groups, if there are as many ranges."""
GROUP_RANGES = 8
"""Number of ranges of a group, unless one of the limits above requires another."""


@dataclass(frozen=True)
class RangeGroups:
    """Division of ranges into groups for the tasks after the first pass."""

    starts: npt.NDArray[np.int64] = field(repr=False)
    """Array of shape (ranges,): smallest address of each range."""
    per_group: int
    """Number of consecutive ranges in a group."""
    kept: int = 0
    """Number of ranges, at the end, that belong to kept signatures."""

    @property
    def first_kept(self) -> np.uint64:
        """Smallest address of a kept signature."""
        return np.uint64(self.starts[-self.kept]) if self.kept else np.uint64((1 << 64) - 1)

    def __len__(self) -> int:
        return (len(self.starts) + self.per_group - 1) // self.per_group

    @property
    def bounds(self) -> npt.NDArray[np.uint64]:
        """Smallest address of each group, for files with a slice for each."""
        return drop_bounds(self.starts[:: self.per_group])

    def range_bounds(self, group: int) -> npt.NDArray[np.uint64]:
        """Return the smallest address of each range of a group, for a file with a slice for each."""
        first = group * self.per_group
        return drop_bounds(self.starts[first : first + self.per_group])


def ranges_per_group(ranges: int) -> int:
    """Return the number of consecutive ranges in a group. It depends only on the number of ranges, so that runs can resume.

    Examples
    --------
    >>> [ranges_per_group(ranges) for ranges in (1, 8, 32, 1_000, 50_000)]
    [1, 1, 4, 8, 196]
    """
    return max(min(GROUP_RANGES, -(-ranges // FEWEST_GROUPS)), -(-ranges // MOST_GROUPS))


def group_ranges(ranges: Ranges, against: Any = None) -> RangeGroups:
    """Group the ranges of a table and those of another one (`exchange.keys.KeptRows`), which follow them; None for none."""
    starts = range_starts(ranges)
    if against is None:
        return RangeGroups(starts, ranges_per_group(len(starts)))
    joined = np.concatenate([starts, range_starts(against.ranges) + against.first_address])
    return RangeGroups(joined, ranges_per_group(len(joined)), len(against.ranges))
