# SPDX-License-Identifier: Apache-2.0
"""Which size of a batch is the fastest: a few of them take turns on the documents that come, and what they make is kept."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

MOST_HALVINGS = 3
"""Sizes that are tried: the most that is planned, half of it, a quarter, an eighth."""
WARM_BATCHES = 1
"""Of each size that do not count: buffers and threads are made, and on a GPU kernels are chosen."""
MEASURED_BATCHES = 3
"""Of each size, after that. The fastest of them counts: other work on the machine only makes a batch slower."""
CLEARLY = 1.1
"""A smaller size must be so much faster than a larger one to be taken: less is noise. On two shared cores sizes between which
there was nothing to choose (within 3 % in one run) were 12 % apart in another by the sum of all batches."""


@dataclass
class _Tried:
    given: int = 0
    """Batches, those that are still under way among them."""
    rates: list[float] = field(default_factory=list)
    """Tokens a second of each that is done."""


class SizeTrial:
    """Sizes in padded tokens, and how fast each was. `BatchSize` holds its lock around every call.

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
        """Return one of the most tokens and some halves of it; none is below ``least``, what one long document takes."""
        halves = (most >> halvings for halvings in range(1, MOST_HALVINGS + 1))
        return cls([most, *(size for size in halves if size >= least)])

    @property
    def is_done(self) -> bool:
        """Whether there is nothing more to find out."""
        wanted = WARM_BATCHES + MEASURED_BATCHES
        return len(self._tried) < 2 or all(len(one.rates) >= wanted for one in self._tried.values())

    @property
    def sizes(self) -> tuple[int, ...]:
        """Those that are compared, the largest first."""
        return tuple(self._tried)

    def turn(self) -> int:
        """Return the size whose turn it is. Each begins a round once, for the longest documents come first."""
        sizes = self.sizes
        fewest = min(one.given for one in self._tried.values())
        waiting = [place for place, size in enumerate(sizes) if self._tried[size].given == fewest]
        chosen = sizes[min(waiting, key=lambda place: (place - fewest) % len(sizes))]
        self._tried[chosen].given += 1
        return chosen

    def note(self, size: int, tokens: int, seconds: float) -> None:
        """Note how long a batch of a size took."""
        if size in self._tried:
            self._tried[size].rates.append(tokens / max(seconds, 1e-9))

    def take_back(self, size: int) -> None:
        """Forget a turn that told nothing: the documents had come to their end before the batch was full."""
        if size in self._tried:
            self._tried[size].given -= 1

    def leave_out(self, above: int) -> None:
        """Leave out larger sizes, because memory ran out."""
        self._tried = {size: one for size, one in self._tried.items() if size <= above}

    def best(self) -> int | None:
        """Return the fastest; of those that are about as fast the largest, and None where none is left."""
        found: int | None = None
        for size in self._tried:
            if found is None or self._rate(size) > CLEARLY * self._rate(found):
                found = size
        return found

    def _rate(self, size: int) -> float:
        measured = self._tried[size].rates[WARM_BATCHES:]
        return max(measured, default=0.0)
