# SPDX-License-Identifier: Apache-2.0
"""The table of groups of near duplicates: a row for each member, with the row that it is most similar to."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd

from curator_df.core.near_barrier import EDGE_WORDS
from curator_df.core.near_stages import NearFound
from curator_df.core.near_tasks import NearJob, edge_slices
from curator_df.core.row_sort import merge_slices
from curator_df.core.slice_file import open_slices
from curator_df.core.source import Range
from curator_df.ops.groups import GroupTable, TableJob, address_columns

NEAR_COLUMNS: dict[str, Any] = {
    "address": "Int64",
    "file": "string[pyarrow]",
    "offset": "Int64",
    "group": "Int64",
    "group_size": "Int64",
    "kept": "boolean",
    "matched_address": "Int64",
    "matched_file": "string[pyarrow]",
    "matched_offset": "Int64",
    "jaccard": "Float64",
}
MERGE_BYTES = 2_000_000


def near_pieces(found: NearFound, ranges: int) -> list[Range]:
    """Return a piece for each group of ranges: first and last range stand where a piece has files."""
    each = found.groups.per_group
    starts = range(0, ranges, each)
    return [Range(number, start, 0, min(start + each, ranges) - 1, 0) for number, start in enumerate(starts)]


def near_blocks(job: TableJob, piece: Range, paths: Any) -> Iterator[pd.DataFrame]:
    """Yield rows of the table."""
    found: Any = job.found
    members = _members(found, piece)
    waiting = np.empty((0, 3), dtype=np.uint64)
    for best in _best_edges(found, piece.number):
        parts = [waiting]
        held = len(waiting)
        while held < len(best):
            part = next(members)
            parts.append(part)
            held += len(part)
        joined = np.concatenate(parts)
        rows, waiting = joined[: len(best)], joined[len(best) :]
        if (rows[:, 0] != best[:, 0]).any():
            raise ValueError("members and edges of groups are of different rows; this is a defect in curator_df")
        yield _block(rows, best, paths)


def _members(found: NearFound, piece: Range) -> Iterator[Any]:
    for number in range(piece.first_file, piece.last_file + 1):
        slices = open_slices(found.exchange.folder, found.members, number)
        yield from merge_slices(slices, memory_bytes=MERGE_BYTES)


def _best_edges(found: NearFound, group: int) -> Iterator[Any]:
    """Yield for each row of a group of ranges the edge to the row that it is most similar to, of those the first."""
    what = NearJob(found.exchange.folder, found.groups, None, found.edges, known=found.known)  # type: ignore[arg-type]
    held = np.empty((0, EDGE_WORDS), dtype=np.uint64)
    for rows in merge_slices(edge_slices(what, group), memory_bytes=MERGE_BYTES):
        of_table = rows[rows[:, 0] < found.groups.first_kept]
        best = _best(np.concatenate([held, of_table]))
        held = best[-1:].copy()
        if len(best) > 1:
            yield best[:-1]
    if len(held):
        yield held


def _best(edges: Any) -> Any:
    similarities = np.nan_to_num(edges[:, 2].copy().view(np.float64), nan=-1.0)
    order = np.lexsort((edges[:, 1], -similarities, edges[:, 0]))
    rows = edges[order]
    is_first = np.ones(len(rows), dtype=np.bool_)
    is_first[1:] = rows[1:, 0] != rows[:-1, 0]
    return rows[is_first]


def _block(members: Any, best: Any, paths: Any) -> pd.DataFrame:
    addresses, groups, sizes = (members[:, word].astype(np.int64) for word in range(3))
    columns = address_columns("", addresses, paths)
    columns["group"] = pd.array(groups, dtype="Int64")
    columns["group_size"] = pd.array(sizes, dtype="Int64")
    columns["kept"] = pd.array(addresses == groups, dtype="boolean")
    columns |= address_columns("matched_", best[:, 1].astype(np.int64), paths)
    similarities = best[:, 2].copy().view(np.float64)
    columns["jaccard"] = pd.arrays.FloatingArray(np.nan_to_num(similarities), np.isnan(similarities))
    return pd.DataFrame(columns)[list(NEAR_COLUMNS)]


NEAR_TABLE = GroupTable(NEAR_COLUMNS, near_pieces, near_blocks)
