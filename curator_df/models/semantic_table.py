# SPDX-License-Identifier: Apache-2.0
"""The table of groups of semantic duplicates: for each ``eps`` a row for each member of a group."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd

from curator_df.core.row_sort import merge_slices
from curator_df.core.slice_file import open_slices
from curator_df.core.source import Range
from curator_df.core.vector_compare import MEMBER_HEAD
from curator_df.ops.groups import GroupTable, TableJob, address_columns
from curator_df.ops.near_groups import MERGE_BYTES, NEAR_COLUMNS, near_pieces

SEMANTIC_COLUMNS: dict[str, Any] = {
    "eps": "Float64",
    **{name: dtype for name, dtype in NEAR_COLUMNS.items() if name != "jaccard"},
    "cosine": "Float64",
}


def semantic_blocks(job: TableJob, piece: Range, paths: Any) -> Iterator[pd.DataFrame]:
    """Yield rows of the table, by ``eps`` and in order of address."""
    found: Any = job.found
    for place, eps in enumerate(found.barrier.eps):
        slices = open_slices(found.exchange.folder, found.members[piece.number : piece.number + 1], 0)
        for rows in merge_slices(slices, memory_bytes=MERGE_BYTES):
            members = rows[rows[:, MEMBER_HEAD + 2 * place + 1] > 1]
            if len(members):
                yield _block(members, place, eps, paths)


def _block(members: Any, place: int, eps: float, paths: Any) -> pd.DataFrame:
    addresses, matched = members[:, 0].astype(np.int64), members[:, 1].astype(np.int64)
    groups = members[:, MEMBER_HEAD + 2 * place].astype(np.int64)
    kept = addresses == groups
    columns: dict[str, Any] = {"eps": pd.array(np.full(len(members), eps), dtype="Float64")}
    columns |= address_columns("", addresses, paths)
    columns["group"] = pd.array(groups, dtype="Int64")
    columns["group_size"] = pd.array(members[:, MEMBER_HEAD + 2 * place + 1].astype(np.int64), dtype="Int64")
    columns["kept"] = pd.array(kept, dtype="boolean")
    for name, values in address_columns("matched_", matched, paths).items():
        values[kept] = pd.NA
        columns[name] = values
    cosines = members[:, 2].copy().view(np.float64)
    columns["cosine"] = pd.arrays.FloatingArray(np.nan_to_num(cosines), kept)
    return pd.DataFrame(columns)[list(SEMANTIC_COLUMNS)]


SEMANTIC_TABLE = GroupTable(SEMANTIC_COLUMNS, near_pieces, semantic_blocks)
