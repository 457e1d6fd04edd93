# SPDX-License-Identifier: Apache-2.0
"""Below the document: lines or paragraphs that stood in the input before are removed from the texts they repeat in."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from curator_df.core.exchange.part_barrier import Going, PartKeys
from curator_df.core.ranges.blocks import Outcome
from curator_df.kernels.content_hash import Normalize
from curator_df.kernels.keep_rows import keep_rows
from curator_df.kernels.text_parts import PartKind, part_hashes, without_parts

NOTHING_LEFT = {"lines": "only_duplicate_lines", "paragraphs": "only_duplicate_paragraphs"}
"""Reasons for which a whole row goes."""


def part_keys(block: Any, *, text: str, kind: PartKind, normalize: Normalize | None) -> Iterator[PartKeys]:
    """Hash the parts of a block's texts."""
    for parts in part_hashes(block[text], kind, normalize=normalize):
        yield PartKeys(*parts)


def remove_parts(block: Any, going: Going, *, text: str, kind: PartKind, normalize: Normalize | None) -> Outcome:
    """Remove the parts that go, and the rows of which nothing is left."""
    del normalize  # it told which parts are alike; what goes is known
    counted = _Counted(going)
    shortened = without_parts(block[text], kind, counted)
    if not counted.parts:
        return Outcome(block)
    rows = block.assign(**{text: shortened.texts})
    emptied, reason = shortened.emptied, NOTHING_LEFT[kind]
    count = int(emptied.sum())
    return Outcome(
        keep_rows(rows, ~emptied) if count else rows,
        {reason: count} if count else {},
        {f"{kind}_removed": counted.parts, "bytes_removed": shortened.removed_bytes},
        rejects=lambda: (keep_rows(block, emptied), {"reason": [reason] * count}),
    )


class _Counted:
    """Counts what passes."""

    def __init__(self, going: Going) -> None:
        self._going = going
        self.parts = 0

    def __iter__(self) -> Iterator[tuple[Any, Any]]:
        for rows, ordinals in self._going:
            self.parts += len(rows)
            yield np.ascontiguousarray(rows), np.ascontiguousarray(ordinals)
