# SPDX-License-Identifier: Apache-2.0
"""Block-by-block Dask operations that are not kernels of curator_df: their execution, cost and identity."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import dask
import numpy as np

from curator_df.core.fingerprint import fingerprint
from curator_df.core.ranges.blocks import Action, Outcome
from curator_df.core.ranges.parameter_digests import Digested, Printed, printed

FOREIGN_PEAK_FACTOR = 1.5
"""Assumed peak factor of a foreign step: one copy of the block, and masks and new columns of half its size."""
FOREIGN_REASON = "filtered"
"""Reason under which rows are counted that a foreign step removed."""


@dataclass(frozen=True)
class Graph(Action):
    """Block-by-block Dask operation that is not a kernel of curator_df."""

    tasks: Mapping[Any, Any]
    """Dask tasks of the operation for one partition."""
    hole: Any
    """Key that receives the input block."""
    result: Any
    """Key of its result."""
    makes_rows: bool = False
    """True if it may make several rows with one address from one row."""
    text: str = ""
    """Text of the operation as a user would write it, for rejects."""
    may_change_index: ClassVar[bool] = True
    """True, because nothing is known of the function."""
    is_users: bool = True
    """True, because the code is the user's."""
    pending: None = None
    """None, because it needs only one block."""

    def __call__(self, block: Any) -> Any:
        """Run the tasks in this thread."""
        return dask.get({**self.tasks, self.hole: block}, self.result)

    def printed(self, fingerprint: str) -> Printed:
        """Return the whole operation."""
        return printed({"the step": Digested(self.text, fingerprint)})

    def identity(self, name: str) -> str:
        """Return a digest of its tasks."""
        return fingerprint([name, *canonical_tasks(self)])

    def run(self, block: Any) -> Outcome:
        """Run the operation on a block; rows that it removes are counted."""
        result = self(block)
        removed = len(block) - len(result)
        if removed <= 0:
            return Outcome(result, dropped={FOREIGN_REASON: removed} if removed else {})
        return Outcome(result, dropped={FOREIGN_REASON: removed}, rejects=lambda: self._rejects(block, result))

    def _rejects(self, block: Any, result: Any) -> tuple[Any, Mapping[str, Any]]:
        places = np.arange(len(block))
        addresses = block.index.to_numpy()
        if len(block) > 1 and (addresses[1:] == addresses[:-1]).any():  # addresses do not identify the removed rows
            gone = ~np.isin(places, self(block.set_axis(places)).index.to_numpy())
        else:
            gone = ~np.isin(addresses, result.index.to_numpy())
        count = int(gone.sum())
        return block[gone], {"reason": [FOREIGN_REASON] * count, "rule": [self.text or None] * count}


def canonical_tasks(graph: Graph) -> Iterable[Any]:
    """Yield the tasks with their keys replaced by their order: Dask's keys contain tokens that may change."""
    order = {key: number for number, key in enumerate(_topological(graph))}
    names = {key: str(number) for key, number in order.items()}
    for key, number in order.items():
        yield number
        if key != graph.hole:
            yield graph.tasks[key].substitute(names)


def _topological(graph: Graph) -> list[Any]:
    done: list[Any] = []

    def visit(key: Any) -> None:
        if key in done:
            return
        for dependency in sorted(graph.tasks[key].dependencies, key=str):
            visit(dependency)
        done.append(key)

    visit(graph.result)
    return done
