# SPDX-License-Identifier: Apache-2.0
"""The share of comments in source code: `add_comment_ratio`."""

from __future__ import annotations

from typing import Any

import dask.dataframe as dd
import pandas as pd

from curator_df.core.columns import choose, refuse_columns, require_text
from curator_df.core.ranges.blocks import BlockKernel, Outcome, map_blocks
from curator_df.core.sizes import read_size
from curator_df.kernels.compiling import kernel_sets
from curator_df.kernels.metrics.source.comments import PARSED_FACTOR, Language, comment_ratios
from curator_df.ops.host_only import require_host

PEAK_FACTOR = 0.4
"""A number and its mask of 9 bytes for each row, made twice, of rows of 100 bytes."""


def add_comment_ratio(
    df: dd.DataFrame,
    language: Language,
    *,
    max_file_size: int | str = "100kB",
    into: str = "comment_ratio",
    text: str = "text",
) -> dd.DataFrame:
    """Add the share of each text that consists of comments, for source code in one language.

    Parameters
    ----------
    df : dask.dataframe.DataFrame
        The table.
    language : {"c", "c++", "c#", "go", "html", "java", "javascript", "python", "ruby", "shell", "xml"}
        Programming language of the texts. In Python, docstrings and the comment markers count too. In the other
        languages, only what is between the markers counts, plus a space between two comments.
    max_file_size : int or str, default "100kB"
        Python only: longer texts are not parsed. Parsing takes up to 700 times the bytes of a text; the plan reserves
        memory for this.
    into : str, default "comment_ratio"
        Name of the column; profile rules can refer to it under this name.
    text : str, default "text"
        The text column.

    Returns
    -------
    dask.dataframe.DataFrame
        The same rows with a column ``Float64``, 0 for an empty text and null where the text is null. Python code that
        cannot be parsed gets 0. A text in another language with an unterminated comment gets 9999. Both are as in NeMo
        Curator, so limits at both ends drop such rows.

    Raises
    ------
    ParameterError
        If the language is not one of these, or ``max_file_size`` is not a valid size.
    ColumnError
        If the text column is missing, or ``into`` already exists.
    UnsupportedBackendError
        If the blocks are cuDF blocks.

    Notes
    -----
    Rows: same. Columns: plus ``comment_ratio``. Backends: pandas. Peak extra memory: 0.4 x block; of Python a parsed file
    too, 70 MB for the default of 100 kB. Computes: no.

    Python code is parsed by the running Python, one text after the other, while holding the GIL: use worker processes rather
    than threads. Other languages are scanned by a compiled kernel. The receipt counts ``texts_not_parsed``.

    References
    ----------
    .. [1] nemo_curator 0.9.0, filters/code.py, PythonCommentToCodeFilter and GeneralCommentToCodeFilter

    Examples
    --------
    >>> import dask.dataframe as dd
    >>> import pandas as pd
    >>> docs = dd.from_pandas(pd.DataFrame({"text": ["x = 1  # one", "int a;"]}), npartitions=1)
    >>> docs.pipe(add_comment_ratio, language="python").compute()["comment_ratio"].round(2).tolist()
    [0.42, 0.0]
    """
    operator = "add_comment_ratio"
    require_text(df, operator, text)
    require_host(df._meta, operator)
    choose(operator, "language", language, Language)
    refuse_columns(df, operator, into)
    max_file_bytes = read_size("max_file_size", max_file_size)
    is_python = language == "python"
    kernel = BlockKernel(
        operator,
        add_comment_ratio_block,
        {"text": text, "language": language, "max_file_bytes": max_file_bytes, "into": into},
        PEAK_FACTOR,
        fixed_bytes=PARSED_FACTOR * max_file_bytes if is_python else 0,
        peak_is_measured=True,
        compiled=() if is_python else kernel_sets.COMMENTS,
    )
    return map_blocks(df, kernel, meta=df._meta.assign(**{into: pd.Series(dtype="Float64")}))


def add_comment_ratio_block(block: Any, *, text: str, language: Language, max_file_bytes: int, into: str) -> Outcome:
    """Kernel of `add_comment_ratio`."""
    require_host(block, "add_comment_ratio")
    ratios, failed = comment_ratios(block[text], language, max_file_bytes)
    column = pd.arrays.FloatingArray(ratios, block[text].isna().to_numpy(dtype=bool))
    added = block.assign(**{into: pd.Series(column, index=block.index, copy=False)})
    return Outcome(added, counters={"texts_not_parsed": failed})
