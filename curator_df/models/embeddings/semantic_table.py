# SPDX-License-Identifier: Apache-2.0
"""Rows of a table of groups of semantic duplicates: every member of a group, for each ``eps``."""

from __future__ import annotations

import numpy as np

from curator_df.dedup.table.id_pass import GroupRows, Matches
from curator_df.dedup.vectors.cluster_rows import MEMBER_HEAD
from curator_df.dedup.vectors.stages import VectorFound
from curator_df.ops.duplicates.group_table import MERGE_BYTES, GroupTable


def semantic_matches(found: VectorFound, group: int) -> Matches:
    """Yield the members of a group of input splits, by ``eps``; the kept row of a group has no match."""
    for place, eps in enumerate(found.pending.eps):
        survivor, size = MEMBER_HEAD + 2 * place, MEMBER_HEAD + 2 * place + 1
        for rows in found.member_rows(group, memory_bytes=MERGE_BYTES):
            inside = rows[rows[:, size] > 1]
            if not len(inside):
                continue
            members = inside[:, [0, survivor, size]]
            is_kept = members[:, 0] == members[:, 1]
            matched = np.where(is_kept, members[:, 0], inside[:, 1])
            cosines = np.where(is_kept, np.nan, inside[:, 2].copy().view(np.float64))
            yield GroupRows(members, matched, cosines, eps)


SEMANTIC_TABLE = GroupTable(semantic_matches, measure="cosine", by_eps=True)
