# SPDX-License-Identifier: Apache-2.0
"""Remove lines or paragraphs that repeat in the input from the texts in which they repeat: `remove_repeated_parts`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

import dask.dataframe as dd
import numpy as np

from curator_df.arguments import choose, require_integer
from curator_df.core.columns import require_text
from curator_df.core.planning.lowering import require_addresses
from curator_df.core.ranges.blocks import BlockKernel, Outcome, map_blocks
from curator_df.core.ranges.price import Price
from curator_df.errors import ParameterError
from curator_df.exchange.key_drop import Going, PartDrop, PartKeys
from curator_df.kernels.compiling import kernel_sets
from curator_df.kernels.edits.text_parts import PartKind, part_hashes, without_parts
from curator_df.kernels.rows.content_hash import Normalize
from curator_df.kernels.rows.keep_rows import keep_rows
from curator_df.kernels.text.buffers import text_dtype, with_plain_text
from curator_df.ops.duplicates.exact import hash_kernels, refuse_block
from curator_df.ops.host_only import require_host

OPERATOR = "remove_repeated_parts"
PEAK_FACTOR = 2.3
"""Peak extra bytes: the texts without the parts that go, and the rows of which something is left."""

NOTHING_LEFT = {"lines": "only_duplicate_lines", "paragraphs": "only_duplicate_paragraphs"}
"""Reasons for which a whole row goes."""


def remove_repeated_parts(
    df: dd.DataFrame,
    unit: PartKind,
    *,
    normalize: Normalize | None = None,
    keep: Literal["first", "last", "none"] = "first",
    max_documents: int | None = None,
    text: str = "text",
) -> dd.DataFrame:
    r"""Remove lines or paragraphs that repeat in the input, or occur in too many documents, except for one occurrence.

    Parameters
    ----------
    df : dask.dataframe.DataFrame
        A table of Dask. A chain on one of the readers is streamed; any other table is first computed into working files.
    unit : {"lines", "paragraphs"}
        What to compare, across the texts of all rows.
    normalize : {"case_and_spaces"}, optional
        Compare in lower case, with each run of white space as one space and the ends stripped. What stays is not
        changed.
    keep : {"first", "last", "none"}
        Which occurrence to keep, in input order; ``"none"`` removes all of them.
    max_documents : int, optional
        Largest number of documents (rows) in which a line or paragraph may occur. One that occurs in more of them is
        removed from all of them, except for the occurrence that ``keep`` names. Repetition within one document counts
        once. Default: what occurs twice is removed, also within one document.
    text : str, default "text"
        The text column.

    Returns
    -------
    dask.dataframe.DataFrame
        The table with a deferred step. The writers and `checkpoint` run it; in a cluster of curator_df, so do ``head()``,
        ``len()`` and ``compute()``.
        A row is dropped only when nothing is left of its text.

    Raises
    ------
    ColumnError
        If the text column is missing.
    ParameterError
        If ``unit``, ``normalize`` or ``keep`` is none of these, or ``max_documents`` is not an integer of at least 1.
    UnsupportedBackendError
        If the blocks are cuDF blocks.
    PendingError
        From ``head()``, ``len()`` or ``compute()`` on the result outside a cluster of curator_df.

    See Also
    --------
    drop_exact_duplicates, remove_repeated_substrings, remove_lines

    Notes
    -----
    Rows: subset, order kept. Columns: same; the text is shorter. Backends: pandas. Peak extra memory: 2.3 x block.
    Computes: no; writing reads the input once more.

    With ``keep="none"`` and ``max_documents=6``, menus, cookie notices and footers of a site disappear, and a sentence
    that a few pages quote stays.

    The preceding steps run twice: once to hash the parts (MurmurHash3, 128 bits) and once to write. A line ends at a
    line feed; a paragraph ends at a line feed followed by blank lines. Lines or paragraphs of only white space are not
    compared. When a line or paragraph is removed, so are the line ends after it or, at the end of a text, those before
    it. The receipt counts ``lines_removed`` (or ``paragraphs_removed``) and ``bytes_removed``.

    Examples
    --------
    >>> import pandas as pd, dask.dataframe as dd
    >>> docs = dd.from_pandas(pd.DataFrame({"text": ["menu\na", "menu\nb"]}), npartitions=1)
    >>> remove_repeated_parts(docs, "lines").columns.tolist()
    ['text']
    """
    choose(OPERATOR, "unit", unit, PartKind)
    choose(OPERATOR, "keep", keep, Literal["first", "last", "none"])
    if max_documents is not None:
        require_integer(OPERATOR, "max_documents", max_documents)
        if max_documents < 1:
            raise ParameterError(
                f"{OPERATOR}: max_documents={max_documents} must be at least 1. With 1, a line or paragraph that "
                "occurs in two documents is removed"
            )
    require_text(df, OPERATOR, text)
    require_host(df._meta, OPERATOR)
    require_addresses(df, OPERATOR)
    if normalize is not None:
        choose(OPERATOR, "normalize", normalize, Normalize)
    parameters = {"text": text, "kind": unit, "normalize": normalize}
    pending = PartDrop(part_keys, remove_parts, parameters, keep, max_documents, columns=(text,))
    kernel = BlockKernel(
        OPERATOR,
        refuse_block,
        {"operator": OPERATOR},
        price=Price(PEAK_FACTOR, is_measured=True),
        pending=pending,
        compiled=(*kernel_sets.PARTS, *hash_kernels(normalize)),
    )
    return map_blocks(df, kernel, meta=df._meta.astype({text: text_dtype(df._meta[text].dtype)}))


def part_keys(block: Any, *, text: str, kind: PartKind, normalize: Normalize | None) -> Iterator[PartKeys]:
    """Hash the parts of a block's texts."""
    for parts in part_hashes(block[text], kind, normalize=normalize):
        yield PartKeys(*parts)


def remove_parts(block: Any, going: Going, *, text: str, kind: PartKind, normalize: Normalize | None) -> Outcome:
    """Remove the parts that go, and the rows of which nothing is left."""
    del normalize  # it told which parts are alike; what goes is known
    block = with_plain_text(block, text)
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
