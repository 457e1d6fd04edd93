# SPDX-License-Identifier: Apache-2.0
"""How fast the models of a run were, and how well their batches were filled."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import pandas as pd

COLUMNS = (
    "step",
    "documents",
    "documents_per_second",
    "tokens",
    "tokens_per_second",
    "padding_share",
    "documents_per_batch",
    "batches_halved",
)


class _Step(Protocol):
    @property
    def name(self) -> str: ...
    @property
    def seconds(self) -> float: ...
    @property
    def counters(self) -> Mapping[str, int]: ...


def model_figures(steps: list[Any]) -> pd.DataFrame:
    """Return one row of `COLUMNS` for each step that gave batches to a model (`curator_df.models.batches.BatchCounts`)."""
    import pandas as pd

    rows = [_figures(step) for step in steps if step.counters.get("batches")]
    return pd.DataFrame(rows, columns=list(COLUMNS))


def _figures(step: _Step) -> tuple[Any, ...]:
    counted = step.counters
    documents, tokens, padding = counted["documents"], counted["tokens"], counted["padding_tokens"]
    seconds = max(step.seconds, 1e-9)
    return (
        step.name,
        documents,
        round(documents / seconds, 1),
        tokens,
        round(tokens / seconds, 1),
        padding / max(tokens + padding, 1),
        round(documents / counted["batches"], 1),
        counted.get("batches_halved", 0),
    )
