# SPDX-License-Identifier: Apache-2.0
"""What the answers to the rows of a thread took, each counted once, even if the block that they were for fails.

When one row of a block fails, the others are taken again, in parts whose outcomes nobody counts (`core.planning.failing_rows`),
and their answers are in the cache by then. So what was paid waits for a block whose counters are read.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Iterator, Mapping


class WhenRead(Mapping[str, int]):
    """Counters that are made when they are first read."""

    def __init__(self, make: Callable[[], dict[str, int]]) -> None:
        self._make = make

    @functools.cached_property
    def _made(self) -> dict[str, int]:
        return self._make()

    def __getitem__(self, name: str) -> int:
        """Return one of them."""
        return self._made[name]

    def __iter__(self) -> Iterator[str]:
        """Yield their names."""
        return iter(self._made)

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self._made)


class Tally:
    """What one thread has paid for and not yet counted; the blocks that it takes come one after the other."""

    def __init__(self) -> None:
        self._paid: Counter[str] = Counter()
        self._paid_before = self._cached = 0

    def begin(self) -> None:
        """Begin a block, or a part of one that failed."""
        self._paid_before, self._cached = self._paid["requests"] - self._paid["retries"], 0

    def add(self, counts: Mapping[str, int]) -> None:
        """Add what one answer took."""
        self._cached += counts.get("cached", 0)
        self._paid.update({name: number for name, number in counts.items() if name != "cached"})

    def counters(self) -> Mapping[str, int]:
        """Return the counters of the block; to read them is to count what was paid until then."""
        cached = max(self._cached - self._paid_before, 0)  # the others are in the cache since the block failed
        return WhenRead(lambda: self._taken(cached))

    def _taken(self, cached: int) -> dict[str, int]:
        paid, self._paid = self._paid, Counter()
        # As of other models, for the table of models and for watchers.
        documents, tokens = paid["requests"] - paid["retries"], paid["prompt_tokens"] + paid["completion_tokens"]
        return {"requests": 0, "retries": 0, **paid, "cached": cached, "documents": documents, "tokens": tokens}
