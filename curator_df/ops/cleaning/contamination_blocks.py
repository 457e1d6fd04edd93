# SPDX-License-Identifier: Apache-2.0
"""Kernels of the operators of `contamination`, and the table of benchmarks that a process makes once for all of them."""

from __future__ import annotations

import threading
from collections import Counter
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from curator_df.core.ranges.blocks import Outcome
from curator_df.io.benchmarks import Benchmarks
from curator_df.kernels.edits.ngram_match import GRAMS, NUMBER, START, STOP
from curator_df.kernels.edits.ngram_table import (
    NgramTable,
    find_passages,
    places_of,
    rows_with_passages,
    without_passages,
)
from curator_df.kernels.rows.keep_rows import keep_rows
from curator_df.kernels.text.buffers import TextSpan, text_spans
from curator_df.ops.host_only import require_host

REASON = "contaminated"
SHOWN_BYTES = 100
"""Most bytes of a passage that are shown."""
MOST_PASSAGES = 16
"""Most passages of a text that are shown."""
ROWS_AT_A_TIME = 256
"""Number of rows whose passages are held as Python objects."""
PASSAGE: Any = pa.struct(
    [
        ("benchmark", pa.large_string()),
        ("item", pa.int64()),
        ("start", pa.int64()),
        ("stop", pa.int64()),
        ("ngrams", pa.int64()),
        ("passage", pa.large_string()),
    ]
)
PASSAGES: Any = pd.ArrowDtype(pa.list_(PASSAGE))
"""Type of the column that `add_contamination` adds."""

MOST_TABLES = 4
"""Tables that a process keeps: of the steps of one chain; older ones go."""

_tables: dict[Any, NgramTable] = {}
_lock = threading.Lock()


def add_contamination_block(block: Any, *, text: str, benchmarks: Benchmarks, into: str) -> Outcome:
    """Kernel of `add_contamination`."""
    require_host(block, "add_contamination")
    table, counters = table_of(benchmarks), {"rows_contaminated": 0, "passages": 0}
    chunks = [_passages(span, table, benchmarks, counters) for span in text_spans(block[text], ROWS_AT_A_TIME)]
    column = PASSAGES.__from_arrow__(pa.chunked_array(chunks, type=PASSAGES.pyarrow_dtype))
    return Outcome(block.assign(**{into: pd.Series(column, index=block.index)}), counters=counters)


def drop_contaminated_block(block: Any, *, text: str, benchmarks: Benchmarks) -> Outcome:
    """Kernel of `drop_contaminated`."""
    require_host(block, "drop_contaminated")
    table, keep, counters = table_of(benchmarks), np.ones(len(block), dtype=np.bool_), Counter[str]()
    for span in text_spans(block[text]):
        rows = rows_with_passages(span, table)
        keep[rows + span.first_row] = False
        for row in rows.tolist():
            counters[_first_match(span, row, table, benchmarks)[0]] += 1
    if keep.all():
        return Outcome(block)
    gone = int((~keep).sum())
    return Outcome(
        keep_rows(block, keep),
        {REASON: gone},
        counters,
        rejects=lambda: _rejects(keep_rows(block, ~keep), text, table, benchmarks),
    )


def _first_match(span: TextSpan, row: int, table: NgramTable, benchmarks: Benchmarks) -> tuple[str, int, int]:
    """Return the benchmark and the item of the first passage of a text, and its first character."""
    first = find_passages(span, row, table, 1)
    ((name, item),) = _names(first, table, benchmarks)
    return name, item, places_of(span, row, first)[0][0]


def _rejects(removed: Any, text: str, table: NgramTable, benchmarks: Benchmarks) -> tuple[Any, dict[str, Any]]:
    spans = text_spans(removed[text])
    firsts = [_first_match(span, row, table, benchmarks) for span in spans for row in range(len(span))]
    rules = [f"{name}:{item}" for name, item, _ in firsts]
    return removed, {
        "reason": [REASON] * len(rules),
        "rule": rules,
        "value": [float(place) for *_, place in firsts],
        "threshold": [float(benchmarks.ngram_size)] * len(rules),
    }


def remove_contamination_block(block: Any, *, text: str, benchmarks: Benchmarks, margin: int, least: int) -> Outcome:
    """Kernel of `remove_contamination`."""
    require_host(block, "remove_contamination")
    texts, counters = without_passages(block[text], table_of(benchmarks), margin=margin, least=least)
    return Outcome(block.assign(**{text: texts}) if counters["rows_changed"] else block, counters=counters)


def table_of(benchmarks: Benchmarks) -> NgramTable:
    """Return the table of benchmarks, which this process makes once."""
    with _lock:
        if benchmarks.key not in _tables:
            while len(_tables) >= MOST_TABLES:
                del _tables[next(iter(_tables))]
            _tables[benchmarks.key] = benchmarks.table()
        return _tables[benchmarks.key]


def _names(regions: Any, table: NgramTable, benchmarks: Benchmarks) -> list[tuple[str, int]]:
    """Return the benchmark and the item of the first n-gram of each passage."""
    numbers = regions[:, NUMBER]
    names = [benchmarks.files[number].name for number in table.benchmarks[numbers]]
    return list(zip(names, table.items[numbers].tolist(), strict=True))


def _passages(span: TextSpan, table: NgramTable, benchmarks: Benchmarks, counters: dict[str, int]) -> pa.Array:
    """Return the passages of each text of a span as an array of lists, null where there are none."""
    offsets, values = np.zeros(len(span) + 1, dtype=np.int32), tuple[list[Any], ...]([] for _ in PASSAGE)
    for row in rows_with_passages(span, table).tolist():
        found = find_passages(span, row, table, MOST_PASSAGES)
        named, places = _names(found, table, benchmarks), places_of(span, row, found)
        offsets[row + 1] = len(found)
        for (name, item), (first, last), region in zip(named, places, found.tolist(), strict=True):
            shown = span.data[region[START] : min(region[STOP], region[START] + SHOWN_BYTES)].tobytes()
            one = (name, item, first, last, region[GRAMS], shown.decode("utf-8", "ignore"))
            for column, value in zip(values, one, strict=True):
                column.append(value)
    counters["rows_contaminated"] += int((offsets > 0).sum())
    counters["passages"] += len(values[0])
    is_null = np.append(offsets[1:] == 0, False)
    arrays = [pa.array(column, kind.type) for column, kind in zip(values, PASSAGE, strict=True)]
    structs = pa.StructArray.from_arrays(arrays, fields=list(PASSAGE))
    return pa.ListArray.from_arrays(pa.array(np.cumsum(offsets, dtype=np.int32), mask=is_null), structs)
