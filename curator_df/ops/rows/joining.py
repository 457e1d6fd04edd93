# SPDX-License-Identifier: Apache-2.0
"""Segments of texts put together again: `join_documents`."""

from __future__ import annotations

from typing import Any, NoReturn

import dask.dataframe as dd

from curator_df.core.columns import is_text, require_columns, require_text
from curator_df.core.ranges.blocks import BlockKernel, map_blocks
from curator_df.core.sizes import read_size
from curator_df.errors import ParameterError, PendingError, SchemaError
from curator_df.kernels.compiling import kernel_sets
from curator_df.kernels.text.buffers import text_dtype
from curator_df.ops.host_only import require_host
from curator_df.ops.rows.document_joiner import OPERATOR, Joining
from curator_df.ops.rows.document_ranges import DocumentJoin

# Measured (tests/contracts/test_memory.py): at most 1.68, of rows of 100 bytes that are a document each; other columns may be
# copied twice.
PEAK_FACTOR = 2.2
HELD_DOCUMENTS = 4
"""The segments of the document that is open, the same put together, the joined text, and a file of segments of it."""


def join_documents(
    df: dd.DataFrame,
    *,
    separator: str = "\n\n",
    text: str = "text",
    id: str = "id",  # noqa: A002 - what users call it
    segment_id: str = "segment_id",
    max_chars: int | None = None,
    keep_segment_id: bool = False,
    max_document_size: int | str = "4MB",
) -> dd.DataFrame:
    r"""Join consecutive rows of the same document into one row, with their texts joined: the inverse of `split_documents`.

    Parameters
    ----------
    df : dask.dataframe.DataFrame
        A chain that begins with a reader. The segments of a document must be consecutive and in order, as
        `split_documents` leaves them; some may be missing.
    separator : str, default "\\n\\n"
        Inserted between two segments. May be empty.
    text : str, default "text"
        The text column. Null segments are skipped; if all are null, the joined text is null.
    id : str, default "id"
        Column of text or integers that identifies the document. A row without an id is a document by itself.
    segment_id : str, default "segment_id"
        Column of integers: the number of the segment in its document.
    max_chars : int, optional
        Start a new row at the segment with which the joined text would exceed this many characters, including
        separators. A longer segment is a row by itself. By default a document is one row.
    keep_segment_id : bool, default False
        Keep the column, as ``Int64``: the number of the row in its document, from 0.
    max_document_size : int or str, default "4MB"
        Maximum size of the segments of a document, with a separator for each; the plan reserves memory for this.

    Returns
    -------
    dask.dataframe.DataFrame
        The table with a pending join: `checkpoint` and the writers compute it, ``.compute()`` and ``.head()`` cannot.
        Rows are in the order of the documents; the other columns are those of the first row of each document. The
        receipt counts rows that were merged into another one as dropped, under ``joined``; they are not among the
        rejects.

    Raises
    ------
    ParameterError
        If ``max_chars`` is less than 1, ``max_document_size`` is not a valid size, or the three columns are not
        distinct.
    ColumnError
        If a column is missing.
    SchemaError
        If ``segment_id`` is not an integer column, or ``id`` is neither text nor integers.
    UnsupportedBackendError
        If the blocks are cuDF blocks.
    PendingError
        From ``.compute()`` or ``.head()`` on the result.
    OperatorError
        When running, if segments are out of order, those of one document are not consecutive, or a document is longer
        than ``max_document_size``. Nothing is joined incorrectly.

    Notes
    -----
    Rows: one for consecutive ones with the same id, in order. Columns: same, but for ``segment_id``; ``text`` is joined.
    Backends: pandas. Peak extra memory: 2.2 x block, and 4 x ``max_document_size`` in each task. Computes: no; writing
    reads the input once more.

    Documents are joined completely even where they span blocks, files or ranges. A pass over the preceding steps finds
    those that span several ranges, and checks that no document occurs in two places. It stores a hash (MurmurHash3, 128
    bits) and an address for each document, in files below the output folder.

    With ``max_chars`` the rows of a document share its address, as after `split_documents`.

    References
    ----------
    .. [1] nemo_curator 0.9.0, modules/joiner.py, DocumentJoiner

    Examples
    --------
    >>> import dask.dataframe as dd, pandas as pd
    >>> rows = pd.DataFrame({"id": ["a", "a", "b"], "segment_id": [0, 1, 0], "text": ["one", "two", "three"]})
    >>> join_documents(dd.from_pandas(rows, npartitions=2)).columns.tolist()
    ['id', 'text']
    """
    require_text(df, OPERATOR, text)
    require_columns(df, OPERATOR, id, segment_id)
    require_host(df._meta, OPERATOR)
    _check_columns(df, text, id, segment_id)
    if not isinstance(separator, str):
        raise ParameterError(f"{OPERATOR}: separator={separator!r} is not text")
    if max_chars is not None and (not isinstance(max_chars, int) or max_chars < 1):
        raise ParameterError(f"{OPERATOR}: max_chars={max_chars!r} is not a whole number from 1 up")
    max_document_bytes = read_size("max_document_size", max_document_size)
    joining = Joining(text, id, segment_id, separator, max_chars, bool(keep_segment_id), max_document_bytes)
    kernel = BlockKernel(
        OPERATOR,
        refuse_block,
        {},
        PEAK_FACTOR,
        fixed_bytes=HELD_DOCUMENTS * max_document_bytes,
        row_bytes=max_document_bytes,
        peak_is_measured=True,
        compiled=kernel_sets.JOINING,
        makes_rows=max_chars is not None,
        unites_rows=max_chars is None,
        pending=DocumentJoin(joining),
    )
    meta = df._meta.astype({text: text_dtype(df._meta[text].dtype), segment_id: "Int64"})
    return map_blocks(df, kernel, meta=meta if keep_segment_id else meta.drop(columns=segment_id))


def _check_columns(df: Any, text: str, document: str, segment_id: str) -> None:
    if len({text, document, segment_id}) < 3:
        raise ParameterError(
            f"{OPERATOR}: text={text!r}, id={document!r} and segment_id={segment_id!r} are not three columns"
        )
    dtypes = df.dtypes
    if getattr(dtypes[segment_id], "kind", "O") not in "iu":
        raise SchemaError(
            f"{OPERATOR}: segment_id={segment_id!r} needs integers, the column holds {dtypes[segment_id]}"
        )
    if not is_text(dtypes[document]) and getattr(dtypes[document], "kind", "O") not in "iu":
        raise SchemaError(f"{OPERATOR}: id={document!r} needs text or integers, the column holds {dtypes[document]}")


def refuse_block(block: Any) -> NoReturn:  # noqa: ARG001 - the face of a kernel
    """Refuse to run block by block."""
    raise PendingError(
        f"{OPERATOR} is pending: a document may go on in the next block. Looking at its result with head(), len() or "
        "compute() needs a running cluster (curator_df.start_cluster) and a table that begins with a reader of curator_df. "
        "Writing it needs the same: checkpoint(df, path), write_parquet or write_jsonl"
    )
