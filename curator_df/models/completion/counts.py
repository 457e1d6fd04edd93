# SPDX-License-Identifier: Apache-2.0
"""Counters of the answers to the rows of a thread, each counted once, even if its block fails.

When one row of a block fails, the others are processed again, in parts whose outcomes are not counted
(`core.planning.failing_rows`), and their answers are then in the cache. So paid counts wait for a block whose counters are read.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Iterator, Mapping


class WhenRead(Mapping[str, int]):
    """Counters that are computed when they are first read."""

    def __init__(self, make: Callable[[], dict[str, int]]) -> None:
        self._make = make

    @functools.cached_property
    def _made(self) -> dict[str, int]:
        return self._make()

    def __getitem__(self, name: str) -> int:
        """Return a counter."""
        return self._made[name]

    def __iter__(self) -> Iterator[str]:
        """Yield the names of the counters."""
        return iter(self._made)

    def __len__(self) -> int:
        """Return the number of counters."""
        return len(self._made)


class Tally:
    """Counts that one thread has paid for and not yet reported; its blocks come one after the other."""

    def __init__(self) -> None:
        self._paid: Counter[str] = Counter()
        self._paid_before = self._cached = 0

    def begin(self) -> None:
        """Begin a block, or a part of a failed one."""
        self._paid_before, self._cached = self._paid["requests"] - self._paid["retries"], 0

    def add(self, counts: Mapping[str, int]) -> None:
        """Add the counts of one answer."""
        self._cached += counts.get("cached", 0)
        self._paid.update({name: number for name, number in counts.items() if name != "cached"})

    def counters(self) -> Mapping[str, int]:
        """Return the counters of the block; reading them reports what was paid until then."""
        cached = max(self._cached - self._paid_before, 0)  # the others are in the cache because the block failed
        return WhenRead(lambda: self._taken(cached))

    def _taken(self, cached: int) -> dict[str, int]:
        paid, self._paid = self._paid, Counter()
        # Names like those of other models, for the table of models and for watchers.
        documents, tokens = paid["requests"] - paid["retries"], paid["prompt_tokens"] + paid["completion_tokens"]
        return {"requests": 0, "retries": 0, **paid, "cached": cached, "documents": documents, "tokens": tokens}
