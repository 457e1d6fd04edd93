# SPDX-License-Identifier: Apache-2.0
"""The rows of a table of groups of near duplicates: every member, and the row that it is most similar to."""

from __future__ import annotations

import numpy as np

from curator_df.dedup.near.stages import NearFound
from curator_df.dedup.table.id_pass import GroupRows, Matches
from curator_df.exchange.exchange import MEMBER_WORDS
from curator_df.ops.duplicates.group_table import MERGE_BYTES


def near_matches(found: NearFound, group: int) -> Matches:
    """Yield the members of a group of ranges, each with the row that it is most similar to of those it was compared with."""
    members = found.member_rows(group, memory_bytes=MERGE_BYTES)
    waiting = np.empty((0, MEMBER_WORDS), dtype=np.uint64)
    for best in found.matches(group, memory_bytes=MERGE_BYTES):
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
