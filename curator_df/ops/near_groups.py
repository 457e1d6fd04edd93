# SPDX-License-Identifier: Apache-2.0
"""The rows of a table of groups of near duplicates: every member, and the row that it is most similar to."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from curator_df.core.duplicates.id_pass import GroupRows, Matches
from curator_df.core.duplicates.near_stages import NearFound
from curator_df.core.duplicates.near_tasks import NearJob, edge_slices
from curator_df.core.exchange.exchange import MEMBER_WORDS
from curator_df.core.exchange.near_barrier import EDGE_WORDS
from curator_df.core.files.row_sort import merge_slices
from curator_df.ops.group_table import MERGE_BYTES


def near_matches(found: NearFound, group: int) -> Matches:
    """Yield the members of a group of ranges, each with the row that it is most similar to of those it was compared with."""
    members = found.member_rows(group, memory_bytes=MERGE_BYTES)
    waiting = np.empty((0, MEMBER_WORDS), dtype=np.uint64)
    for best in _best_edges(found, group):
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
        yield GroupRows(rows, best[:, 1].copy(), best[:, 2].copy().view(np.float64))


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
