# SPDX-License-Identifier: Apache-2.0
"""Deferred operation in a Dask expression: evaluated by Dask when a table with a deferred operation is inspected.

A writer runs the passes that a deferred operation needs (`core.runner.passes`). ``.compute()``, ``.head()`` and the like evaluate
an expression instead. They lower it, and `DeferredStep` then asks the open session (`evaluates_deferred`) to run the passes and
return the resulting table, with the same partitions. Without a session the kernel stays, and refuses to run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, ClassVar

from dask.dataframe.dask_expr._expr import MapPartitions, Partitions, PartitionsFiltered

_evaluators: list[Callable[[Any], Any]] = []
"""Evaluators of the open sessions, of which the latest is used."""
_is_kept: ContextVar[bool] = ContextVar("is_kept", default=False)


@dataclass(frozen=True)
class Original:
    """Expression of a deferred step as it was built, before Dask's optimizer changed it."""

    expression: Any

    def __dask_tokenize__(self) -> str:
        return str(self.expression._name)


class DeferredStep(MapPartitions):  # type: ignore[misc]
    """Deferred operation, which needs all rows before it can drop the first one."""

    _parameters: ClassVar[list[str]] = [*MapPartitions._parameters[:-1], "original", "nargs"]
    _defaults: ClassVar[dict[str, Any]] = {**MapPartitions._defaults, "original": None}

    def __str__(self) -> str:
        return f"{self.operand('func').name} (deferred until all rows were read)"

    def _lower(self) -> Any:
        if _is_kept.get() or not _evaluators:
            return None
        evaluated = _evaluators[-1](self.operand("original").expression)
        if evaluated is None:
            return None
        chosen = self._chosen()
        return evaluated if chosen is None else Partitions(evaluated, chosen)

    def _chosen(self) -> list[int] | None:
        """Return the partitions that are wanted: ``head`` and ``partitions[]`` are moved down towards where they are read."""
        before = {node._name for node in self.operand("original").expression.walk()}
        for node in self.walk():
            if node._name not in before and isinstance(node, Partitions):
                return list(node.operand("partitions"))
            if node._name not in before and isinstance(node, PartitionsFiltered) and node._filtered:
                return list(node._partitions)
        return None


def defer(step: Any) -> Any:
    """Return the expression of a deferred operation that was mapped over the partitions, as a deferred step."""
    operands = dict(zip(step._parameters, step.operands, strict=True))
    return DeferredStep(*({**operands, "original": Original(step)}[name] for name in DeferredStep._parameters))


@contextmanager
def kept_deferred() -> Iterator[None]:
    """Leave deferred steps in the expressions that are lowered in this context: a run resolves them itself."""
    token = _is_kept.set(True)
    try:
        yield
    finally:
        _is_kept.reset(token)


def add_evaluator(evaluate: Callable[[Any], Any]) -> None:
    """Register ``evaluate(expression)``: it returns the table of an expression that ends in a deferred operation, or None."""
    _evaluators.append(evaluate)


def remove_evaluator(evaluate: Callable[[Any], Any]) -> None:
    """Remove an evaluator that `add_evaluator` registered."""
    if evaluate in _evaluators:
        _evaluators.remove(evaluate)
