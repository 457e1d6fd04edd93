# SPDX-License-Identifier: Apache-2.0
"""Throughput of the models of a run, and how full their batches were."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from curator_df.memory.torch_memory import TORCH_PEAKS

if TYPE_CHECKING:
    import pandas as pd

COLUMNS = (
    "step",
    "dtype",
    "documents",
    "documents_per_second",
    "tokens",
    "tokens_per_second",
    "padding_share",
    "documents_per_batch",
    "batches_halved",
    "batch_tokens_tried",
    "batch_tokens",
    *TORCH_PEAKS,
    "process_peak_bytes",
)
TRIED_TOKENS, TRIED_MICROSECONDS = "tokens_in_batches_of_", "microseconds_in_batches_of_"
"""Prefixes of counters of batches of sizes that were tried in turn; the names end with the size in padded tokens."""
SETTLED = "settled_on_batches_of_"
"""Prefix of counters of the worker processes that chose this size afterwards; the names end with the size."""
COMPUTED_IN = "batches_in_"
"""Prefix of counters of batches; the names end with the number format in which a model computes, such as float32."""
OF_BATCHES = ("padding_share", "documents_per_batch")
"""Columns that are missing if a model gets one document per call."""
PEAKS = COLUMNS[-3:]
"""Peak memory while a step ran, in bytes: in tensors on the GPU, in total on the GPU, and resident in a worker process."""
WAITED = "waited_milliseconds"
"""Counter of the time in which a step kept a block and waited, in milliseconds: for its turn
(`curator_df.memory.resources`), or for the model to be loaded.
"""


class _Step(Protocol):
    @property
    def name(self) -> str: ...
    @property
    def seconds(self) -> float: ...
    @property
    def counters(self) -> Mapping[str, int]: ...
    @property
    def peaks(self) -> Mapping[str, int]: ...


def model_figures(steps: list[Any]) -> pd.DataFrame:
    """Return one row of `COLUMNS` for each step that gave documents to a model (`curator_df.models.batches.BatchCounts`).

    ``dtype`` is missing if the number format is fixed: functions, fastText, scikit-learn, servers. A server gets one document
    per call, and the columns about batches are missing.
    """
    import pandas as pd

    rows = [_figures(step) for step in steps if step.counters.get("documents")]
    kinds = dict.fromkeys(("batch_tokens", *PEAKS), "Int64") | dict.fromkeys(OF_BATCHES, "float64")
    return pd.DataFrame(rows, columns=list(COLUMNS)).astype(kinds)


def sizes_of(counters: Mapping[str, int]) -> tuple[list[int], int | None]:
    """Return the batch sizes that were tried in turn, in padded tokens, and the one that most worker processes chose afterwards.

    Examples
    --------
    >>> sizes_of({"tokens_in_batches_of_512": 9, "tokens_in_batches_of_256": 9, "settled_on_batches_of_256": 1})
    ([256, 512], 256)
    """
    taken = _of_sizes(counters, SETTLED)
    return list(_of_sizes(counters, TRIED_TOKENS)), max(taken, key=lambda size: taken[size], default=None)


def most_reserved(steps: Iterable[_Step]) -> int | None:
    """Return the peak GPU memory that torch reserved in any worker, in bytes; None if no model was on a GPU."""
    reserved = TORCH_PEAKS[1]
    return max((step.peaks[reserved] for step in steps if reserved in step.peaks), default=None)


def plain_counters(counters: Mapping[str, int]) -> dict[str, int]:
    """Return the counters without those that `model_figures` shows as columns.

    Examples
    --------
    >>> plain_counters({"batches": 3, "tokens_in_batches_of_512": 400, "settled_on_batches_of_512": 1, "batches_in_float32": 3})
    {'batches': 3}
    """
    hidden = (TRIED_TOKENS, TRIED_MICROSECONDS, SETTLED, COMPUTED_IN)
    return {name: number for name, number in counters.items() if not name.startswith(hidden)}


def _of_sizes(counters: Mapping[str, int], prefix: str) -> dict[int, int]:
    found = {int(name.removeprefix(prefix)): number for name, number in counters.items() if name.startswith(prefix)}
    return dict(sorted(found.items()))


def _figures(step: _Step) -> tuple[Any, ...]:
    counted = step.counters
    documents, tokens, batches = counted["documents"], counted["tokens"], counted.get("batches")
    padding = counted.get("padding_tokens", 0)
    seconds = max(step.seconds - counted.get(WAITED, 0) / 1000, 1e-9)
    tried = _of_sizes(counted, TRIED_TOKENS)
    computed_in = sorted(name.removeprefix(COMPUTED_IN) for name in counted if name.startswith(COMPUTED_IN))
    microseconds = _of_sizes(counted, TRIED_MICROSECONDS)
    return (
        step.name,
        ", ".join(computed_in) or None,
        documents,
        round(documents / seconds, 1),
        tokens,
        round(tokens / seconds, 1),
        padding / max(tokens + padding, 1) if batches else None,
        round(documents / batches, 1) if batches else None,
        counted.get("batches_halved", 0),
        {size: round(1e6 * number / max(microseconds[size], 1), 1) for size, number in tried.items()},
        sizes_of(counted)[1],
        *(step.peaks.get(name) for name in PEAKS),
    )
