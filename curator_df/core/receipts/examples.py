# SPDX-License-Identifier: Apache-2.0
"""Examples of dropped rows for the page of a receipt, from the rejects of its run: a few for each reason, truncated."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

MOST_EXAMPLES = 3
"""Maximum number of examples for each reason."""
MOST_CHARS = 300
"""Maximum number of characters of an example."""
MOST_ROW_GROUP_BYTES = 32_000_000
"""Size above which a row group is not read, decompressed and without the columns that are not needed."""
MOST_BYTES = 256_000_000
"""Maximum number of bytes that are read."""
FOUND = ("reject_step", "reject_reason", "reject_value")
TEXT = "text"
"""Column that is shown if there is one; else the largest column of text."""

Reason = tuple[str, str]


@dataclass(frozen=True)
class Example:
    """A dropped row."""

    text: str
    """Beginning of its text, with white space as single spaces."""
    value: float | None
    """Value that broke the rule, if the step gives one."""


def dropped_examples(folder: str, reasons: Collection[Reason]) -> dict[Reason, list[Example]]:
    """Return a few rows for each pair of step and reason, from a local folder of rejects.

    Parameters
    ----------
    folder : str
        The folder; an empty result if it is not a local one or holds no rejects any more.
    reasons : collection of (str, str)
        Pairs of step and reason for which rows are looked for.
    """
    found: dict[Reason, list[Example]] = {reason: [] for reason in reasons}
    missing = set(reasons)
    for batch in _batches(folder):
        for step, reason, value, text in zip(*(column.to_pylist() for column in batch.columns), strict=True):
            examples = found.get((step, reason))
            if examples is not None and len(examples) < MOST_EXAMPLES and text is not None:
                examples.append(Example(_shortened(text), value))
                if len(examples) == MOST_EXAMPLES:
                    missing.discard((step, reason))
        if not missing:
            break
    return {reason: examples for reason, examples in found.items() if examples}


def _batches(folder: str) -> Iterator[Any]:
    """Yield step, reason, value and the beginning of the text of rejects, in the order of their files."""
    read = 0
    names = sorted(name for name in os.listdir(folder) if name.endswith(".parquet")) if os.path.isdir(folder) else []
    for name in names:
        with pq.ParquetFile(os.path.join(folder, name)) as file:
            if not {*FOUND} <= set(file.schema_arrow.names):
                return  # these are not rejects of this version
            for group in range(file.num_row_groups):
                sizes = _sizes(file.metadata.row_group(group))
                text = _text_column(file.schema_arrow, sizes)
                if text is None:
                    return
                size = sum(sizes.get(column, 0) for column in (*FOUND, text))
                if size > MOST_ROW_GROUP_BYTES:
                    continue
                read += size
                if read > MOST_BYTES:
                    return
                table = file.read_row_group(group, columns=[*FOUND, text])
                yield from table.select([*FOUND, text]).to_batches(max_chunksize=1_000)


def _sizes(group: Any) -> dict[str, int]:
    columns = [group.column(place) for place in range(group.num_columns)]
    return {column.path_in_schema: column.total_uncompressed_size for column in columns}


def _text_column(schema: Any, sizes: dict[str, int]) -> str | None:
    names = [
        each.name
        for each in schema
        if (pa.types.is_string(each.type) or pa.types.is_large_string(each.type))
        and not each.name.startswith("reject_")
    ]
    return TEXT if TEXT in names else max(names, key=lambda name: sizes.get(name, 0), default=None)


def _shortened(text: str) -> str:
    said = " ".join(text[: 2 * MOST_CHARS].split())
    return said if len(said) <= MOST_CHARS and len(text) <= 2 * MOST_CHARS else said[: MOST_CHARS - 1] + "…"
