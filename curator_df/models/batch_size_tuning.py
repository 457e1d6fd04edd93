# SPDX-License-Identifier: Apache-2.0
"""Find the fastest batch size: a few sizes are tried in turn on the incoming documents, whose results are kept."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

MOST_HALVINGS = 3
"""Maximum number of halvings: the sizes tried are the planned maximum, a half, a quarter and an eighth of it."""
WARM_BATCHES = 1
"""Batches of each size that are not timed: buffers and threads are created, and on a GPU kernels are chosen."""
MEASURED_BATCHES = 3
"""Timed batches of each size. The fastest of them counts: other work on the machine only makes a batch slower."""
CLEARLY = 1.1
"""Minimum speedup at which a smaller size is preferred; less is noise. On two shared cores, sizes that were equal within 3%
in one run differed by 12% in another, by the sum of all batches."""


@dataclass
class _Tried:
    given: int = 0
    """Number of batches, including those in progress."""
    rates: list[float] = field(default_factory=list)
    """Tokens per second of each finished batch."""


class SizeTrial:
    """Sizes in padded tokens, and the speed of each. `BatchSize` holds its lock around every call.

    Examples
    --------
    >>> trial = SizeTrial([100, 50])
    >>> while not trial.is_done:
    ...     size = trial.turn()
    ...     trial.note(size, tokens=size, seconds=size / {100: 4_000, 50: 7_000}[size])
    >>> trial.best()
    50
    """

    def __init__(self, sizes: Sequence[int]) -> None:
        self._tried = {size: _Tried() for size in sorted(sizes, reverse=True)}

    @classmethod
    def below(cls, most: int, least: int) -> SizeTrial:
        """Return a trial of the maximum size and its halves; none is below ``least``, the size of one long document."""
        halves = (most >> halvings for halvings in range(1, MOST_HALVINGS + 1))
        return cls([most, *(size for size in halves if size >= least)])

    @property
    def is_done(self) -> bool:
        """Whether the trial has ended."""
        wanted = WARM_BATCHES + MEASURED_BATCHES
        return len(self._tried) < 2 or all(len(one.rates) >= wanted for one in self._tried.values())

    @property
    def sizes(self) -> tuple[int, ...]:
        """Compared sizes, the largest first."""
        return tuple(self._tried)

    def turn(self) -> int:
        """Return the size to try next. Each size begins a round once, because the longest documents come first."""
        sizes = self.sizes
        fewest = min(one.given for one in self._tried.values())
        waiting = [place for place, size in enumerate(sizes) if self._tried[size].given == fewest]
        chosen = sizes[min(waiting, key=lambda place: (place - fewest) % len(sizes))]
        self._tried[chosen].given += 1
        return chosen

    def note(self, size: int, tokens: int, seconds: float) -> None:
        """Record the time of a batch."""
        if size in self._tried:
            self._tried[size].rates.append(tokens / max(seconds, 1e-9))

    def take_back(self, size: int) -> None:
        """Forget an attempt without a result: the documents ended before the batch was full."""
        if size in self._tried:
            self._tried[size].given -= 1

    def leave_out(self, above: int) -> None:
        """Exclude larger sizes, because memory ran out."""
        self._tried = {size: one for size, one in self._tried.items() if size <= above}

    def best(self) -> int | None:
        """Return the fastest size, of about equally fast ones the largest; None if no size remains."""
        found: int | None = None
        for size in self._tried:
            if found is None or self._rate(size) > CLEARLY * self._rate(found):
                found = size
        return found

    def _rate(self, size: int) -> float:
        measured = self._tried[size].rates[WARM_BATCHES:]
        return max(measured, default=0.0)
