# SPDX-License-Identifier: Apache-2.0
"""A block-by-block Dask operation that is not one of our kernels: what runs, what it costs, and what it is."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import dask
import numpy as np

from curator_df.core.memory.resources import NO_LIMITS, Resources
from curator_df.core.ranges.blocks import Outcome

FOREIGN_PEAK_FACTOR = 1.5
"""Assumed for a step that is not ours: one copy of the block, and masks and new columns half as large again."""
FOREIGN_REASON = "filtered"
"""Reason under which rows count that a step removed which is not ours."""


@dataclass(frozen=True)
class Graph:
    """A block-by-block Dask operation that is not one of our kernels."""

    tasks: Mapping[Any, Any]
    """Its Dask tasks for one partition."""
    hole: Any
    """The key to which the input block is put."""
    result: Any
    """The key of its result."""
    held_bytes: int = 0
    """Bytes that a worker holds once, as an object of the user says."""
    resources: Resources = NO_LIMITS
    """What a call takes of its worker, as such an object says and asks for itself."""
    fixed_bytes: int = 0
    """Extra bytes of one call whatever the block: values that it holds, such as those of ``isin``, are laid out once more."""
    makes_rows: bool = False
    """True when several rows with one address may come of one."""
    text: str = ""
    """The operation as a user would write it, for rejects."""
    is_users: ClassVar[bool] = True
    """What runs is the user's."""

    def __call__(self, block: Any) -> Any:
        """Run the tasks in this thread."""
        return dask.get({**self.tasks, self.hole: block}, self.result)


def foreign_outcome(action: Graph, block: Any) -> Outcome:
    """Run an operation on a block; rows that it takes away are counted."""
    result = action(block)
    removed = len(block) - len(result)
    if removed <= 0:
        return Outcome(result, dropped={FOREIGN_REASON: removed} if removed else {})

    def rejects() -> tuple[Any, Mapping[str, Any]]:
        places = np.arange(len(block))
        addresses = block.index.to_numpy()
        if len(block) > 1 and (addresses[1:] == addresses[:-1]).any():  # they do not say which of these rows went
            gone = ~np.isin(places, action(block.set_axis(places)).index.to_numpy())
        else:
            gone = ~np.isin(addresses, result.index.to_numpy())
        count = int(gone.sum())
        return block[gone], {"reason": [FOREIGN_REASON] * count, "rule": [action.text or None] * count}

    return Outcome(result, dropped={FOREIGN_REASON: removed}, rejects=rejects)


def canonical_tasks(graph: Graph) -> Iterable[Any]:
    """Yield the tasks with their keys replaced by their order: Dask's keys carry tokens that may change."""
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
