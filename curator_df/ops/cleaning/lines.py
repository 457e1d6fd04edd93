# SPDX-License-Identifier: Apache-2.0
"""Removal of lines from texts: `remove_c4_lines` and `remove_lines`."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import dask.dataframe as dd

from curator_df.core.columns import require_text
from curator_df.core.ranges.blocks import BlockKernel, Outcome, map_blocks
from curator_df.core.ranges.price import Price
from curator_df.errors import ParameterError
from curator_df.kernels.compiling import kernel_sets
from curator_df.kernels.edits.cut_texts import without_lines
from curator_df.kernels.metrics.c4.c4_texts import keep_c4_lines
from curator_df.kernels.text.buffers import text_dtype, with_plain_text
from curator_df.ops.cleaning.rewriting import rewrite_texts
from curator_df.ops.host_only import require_host

# Measured (tests/contracts/test_memory.py): 1.00 where nearly every line stays.
PEAK_FACTOR = 1.2


def remove_c4_lines(df: dd.DataFrame, *, text: str = "text", require_punctuation: bool = True) -> dd.DataFrame:
    r"""Remove the lines that C4's filter rejects.

    Parameters
    ----------
    df : dask.dataframe.DataFrame
        The table.
    text : str, default "text"
        The text column.
    require_punctuation : bool, default True
        Remove lines that do not end in one of ``. ? ! " '``, or that end in ``...``. FineWeb was made with False.

    Returns
    -------
    dask.dataframe.DataFrame
        The same rows; null stays null. A text consists of the remaining lines, stripped and joined by line feeds,
        without citations such as ``[1]``; it may be empty.

    Raises
    ------
    ColumnError
        If the text column is missing.
    UnsupportedBackendError
        If the blocks are cuDF blocks.

    See Also
    --------
    remove_lines, keep_profile

    Notes
    -----
    Rows: same. Columns: same; ``text`` changes. Backends: pandas. Peak extra memory: 1.2 x block. Computes: no.

    A line (``str.splitlines``) is removed if it has a word of more than 1,000 characters, does not end in punctuation,
    has fewer than 3 words, or mentions javascript, terms of use, a privacy or cookie policy, or the use of cookies. A
    text with a line that makes C4 reject the whole text (``lorem ipsum`` or ``{`` in a line that was not already
    removed) is left unchanged. After `keep_profile` with `profiles.DATATROVE_C4`, or with `profiles.FINEWEB_C4` and
    ``require_punctuation=False``, the text is the one that datatrove's C4QualityFilter returns. Sentence counts refer
    to the original text, so filter first. The receipt counts ``rows_changed``.

    References
    ----------
    .. [1] Raffel et al. 2020, https://arxiv.org/abs/1910.10683, section 2.2
    .. [2] datatrove 0.10.0, pipeline/filters/c4_filters.py, C4QualityFilter

    Examples
    --------
    >>> import dask.dataframe as dd, pandas as pd
    >>> docs = dd.from_pandas(pd.DataFrame({"text": ["Home | About\nA line of prose.[1]\nRead our Privacy Policy."]}))
    >>> docs.pipe(remove_c4_lines).compute()["text"][0]
    'A line of prose.'
    """
    require_text(df, "remove_c4_lines", text)
    require_host(df._meta, "remove_c4_lines")
    parameters = {"text": text, "require_punctuation": bool(require_punctuation)}
    kernel = BlockKernel(
        "remove_c4_lines",
        remove_c4_lines_block,
        parameters,
        price=Price(PEAK_FACTOR, is_measured=True),
        compiled=kernel_sets.C4_LINES,
    )
    return map_blocks(df, kernel, meta=df._meta.astype({text: text_dtype(df._meta[text].dtype)}))


def remove_c4_lines_block(block: Any, *, text: str, require_punctuation: bool) -> Outcome:
    """Kernel of `remove_c4_lines`."""
    require_host(block, "remove_c4_lines")
    block = with_plain_text(block, text)
    texts, rows_changed = keep_c4_lines(block[text], require_punctuation=require_punctuation)
    kept = block.assign(**{text: texts}) if rows_changed else block
    return Outcome(kept, counters={"rows_changed": rows_changed})


def remove_lines(df: dd.DataFrame, lines: Collection[str], *, text: str = "text") -> dd.DataFrame:
    r"""Remove the lines that are in a given list.

    Parameters
    ----------
    df : dask.dataframe.DataFrame
        The table.
    lines : collection of str
        The lines to remove, such as text that a site has on all its pages; without line ends.
    text : str, default "text"
        The text column.

    Returns
    -------
    dask.dataframe.DataFrame
        The same rows; null stays null. A text consists of the remaining lines, joined by line feeds; it may be empty.

    Raises
    ------
    ParameterError
        If ``lines`` is empty, is a single string, or has an element that contains a line feed, which no line does.
    ColumnError
        If the text column is missing.
    UnsupportedBackendError
        If the blocks are cuDF blocks.

    See Also
    --------
    remove_c4_lines, remove_repeated_parts, remove_boilerplate

    Notes
    -----
    Rows: same. Columns: same; ``text`` changes. Backends: pandas. Peak extra memory: 1.2 x block. Computes: no.

    Lines end at ``\n`` and are compared exactly: with their spaces, and with the ``\r`` of Windows files. The cost per
    line does not depend on the length of the list. The receipt counts ``rows_changed``.

    References
    ----------
    .. [1] nemo_curator 0.9.0, modifiers/line_remover.py, LineRemover

    Examples
    --------
    >>> import dask.dataframe as dd, pandas as pd
    >>> docs = dd.from_pandas(pd.DataFrame({"text": ["Share this\nA story.\nShare this"]}), npartitions=1)
    >>> docs.pipe(remove_lines, lines=["Share this"]).compute()["text"][0]
    'A story.'
    """
    listed = () if isinstance(lines, str) or not isinstance(lines, Collection) else tuple(lines)
    if not listed or not all(isinstance(line, str) for line in listed):
        raise ParameterError(
            f"remove_lines: lines={lines!r} is not a list of lines; name at least one, as lines=['...']"
        )
    if long := [line for line in listed if "\n" in line]:
        raise ParameterError(
            f"remove_lines: {long[0]!r} has a line feed in it, so no line is equal to it; name its lines"
        )
    arguments = {"lines": tuple(sorted(set(listed)))}
    return rewrite_texts(df, "remove_lines", text, without_lines, arguments, compiled=kernel_sets.LISTED_LINES)
