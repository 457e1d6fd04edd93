# SPDX-License-Identifier: Apache-2.0
"""Make an operator that changes texts, and nothing else, from a function of a text column."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from curator_df.core.columns import require_text
from curator_df.core.ranges.blocks import BlockKernel, Outcome, map_blocks
from curator_df.core.ranges.price import Price
from curator_df.kernels.text.buffers import text_dtype, with_plain_text
from curator_df.ops.host_only import require_host

# Measured (tests/contracts/test_memory.py) of functions that copy texts once, each no longer than before: at most 1.00.
COPY_FACTOR = 1.2
# Measured (benchmarks/kernel_memory.py) of functions that replace pieces of texts: at most 1.29.
SPLICE_FACTOR = 1.4
COPY_PRICE = Price(COPY_FACTOR, is_measured=True)

Rewrite = Callable[..., tuple[Any, int | Mapping[str, int]]]
"""Takes a text column; returns it (the same object if nothing changes), and the rows changed or several counters."""


def rewrite_texts(
    df: Any,
    operator: str,
    text: str,
    rewrite: Rewrite,
    arguments: Mapping[str, Any] | None = None,
    *,
    compiled: tuple[str, ...] = (),
    price: Price = COPY_PRICE,
) -> Any:
    """Apply a module-level function to the text column of every block, lazily; ``arguments`` are its keyword arguments.

    The others are those of `BlockKernel`.
    """
    require_text(df, operator, text)
    require_host(df._meta, operator)
    kernel = BlockKernel(
        operator,
        rewrite_block,
        {"operator": operator, "text": text, "rewrite": rewrite, "arguments": dict(arguments or {})},
        price=price,
        compiled=compiled,
    )
    return map_blocks(df, kernel, meta=df._meta.astype({text: text_dtype(df._meta[text].dtype)}))


def rewrite_block(block: Any, *, operator: str, text: str, rewrite: Rewrite, arguments: Mapping[str, Any]) -> Outcome:
    """Kernel of the operators made with `rewrite_texts`."""
    require_host(block, operator)
    block = with_plain_text(block, text)
    texts, counts = rewrite(block[text], **arguments)
    counters = {"rows_changed": counts} if isinstance(counts, int) else dict(counts)
    return Outcome(block.assign(**{text: texts}) if counters["rows_changed"] else block, counters=counters)
