# SPDX-License-Identifier: Apache-2.0
"""Remove parts of texts: lines, quotation marks, boilerplate, and what is outside of two marks."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import dask.dataframe as dd

from curator_df.core.columns import require_text
from curator_df.core.ranges.blocks import BlockKernel, Outcome, map_blocks
from curator_df.core.ranges.price import Price
from curator_df.errors import ParameterError
from curator_df.kernels.compiling import kernel_sets
from curator_df.kernels.edits.cut_texts import (
    SliceEnds,
    slices_of,
    without_boilerplate,
    without_lines,
    without_quotation_marks,
)
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
            f"remove_lines: lines={lines!r} is not a list of lines. Name at least one, such as lines=['...']"
        )
    if long := [line for line in listed if "\n" in line]:
        raise ParameterError(
            f"remove_lines: {long[0]!r} in lines= has a line feed in it, so no single line can be equal to it. Pass its "
            "lines as separate entries"
        )
    arguments = {"lines": tuple(sorted(set(listed)))}
    return rewrite_texts(df, "remove_lines", text, without_lines, arguments, compiled=kernel_sets.LISTED_LINES)


def remove_quotation_marks(df: dd.DataFrame, *, text: str = "text") -> dd.DataFrame:
    r"""Remove the quotation marks around a whole text.

    Parameters
    ----------
    df : dask.dataframe.DataFrame
        The table.
    text : str, default "text"
        The text column.

    Returns
    -------
    dask.dataframe.DataFrame
        The same rows; null stays null.

    Raises
    ------
    ColumnError
        If the text column is missing.
    UnsupportedBackendError
        If the blocks are cuDF blocks.

    See Also
    --------
    remove_outside, normalize_whitespace

    Notes
    -----
    Rows: same. Columns: same; ``text`` changes. Backends: pandas. Peak extra memory: 1.2 x block. Computes: no.

    Removes a ``"`` from both ends of a text that begins and ends with one and has something in between. An exception is
    a text of several lines whose first line ends with one, because that line is a quotation by itself. Curly quotes are
    kept. The receipt counts ``rows_changed``.

    References
    ----------
    .. [1] nemo_curator 0.9.0, modifiers/quotation_remover.py, QuotationRemover

    Examples
    --------
    >>> import dask.dataframe as dd, pandas as pd
    >>> docs = dd.from_pandas(pd.DataFrame({"text": ['"To be."', '"To be."\nHe said: "or not"']}), npartitions=1)
    >>> docs.pipe(remove_quotation_marks).compute()["text"].tolist()
    ['To be.', '"To be."\nHe said: "or not"']
    """
    return rewrite_texts(
        df, "remove_quotation_marks", text, without_quotation_marks, compiled=kernel_sets.QUOTATION_MARKS
    )


def remove_boilerplate(df: dd.DataFrame, *, text: str = "text") -> dd.DataFrame:
    r"""Remove paragraphs of boilerplate, such as cookie notices, from the beginning or the end of texts.

    Parameters
    ----------
    df : dask.dataframe.DataFrame
        The table.
    text : str, default "text"
        The text column.

    Returns
    -------
    dask.dataframe.DataFrame
        The same rows; null stays null. A text with *lorem ipsum* becomes empty.

    Raises
    ------
    ColumnError
        If the text column is missing.
    UnsupportedBackendError
        If the blocks are cuDF blocks.

    See Also
    --------
    remove_lines, remove_html

    Notes
    -----
    Rows: same. Columns: same; ``text`` changes. Backends: pandas. Peak extra memory: 1.2 x block. Computes: no.

    Texts are split into paragraphs by ``text.split("\n\n")``. A paragraph is boilerplate if it contains *privacy
    policy*, *terms of use*, *use of cookies* or another of NeMo's phrases, in any case. Boilerplate is removed if it is
    one run of paragraphs at the beginning or the end of the text. Texts that also have it elsewhere, or have nothing
    else, are unchanged: `keep_profile` with `profiles.NEMO_ENGLISH` drops those that are mostly boilerplate. The
    receipt counts ``rows_changed``.

    References
    ----------
    .. [1] nemo_curator 0.9.0, modifiers/c4.py, BoilerPlateStringModifier

    Examples
    --------
    >>> import dask.dataframe as dd, pandas as pd
    >>> docs = dd.from_pandas(pd.DataFrame({"text": ["A story.\n\nIt ends.\n\nRead our Privacy Policy."]}))
    >>> docs.pipe(remove_boilerplate).compute()["text"][0]
    'A story.\n\nIt ends.'
    """
    return rewrite_texts(df, "remove_boilerplate", text, without_boilerplate, compiled=kernel_sets.BOILERPLATE)


def remove_outside(
    df: dd.DataFrame,
    *,
    left: int | str | None = 0,
    right: int | str | None = None,
    include_left: bool = True,
    include_right: bool = True,
    strip: bool = True,
    text: str = "text",
) -> dd.DataFrame:
    """Remove everything outside a slice of each text, given by positions or markers.

    Parameters
    ----------
    df : dask.dataframe.DataFrame
        The table.
    left : int, str or None, default 0
        Start of the slice: the index of a character, as in ``text[left:right]``, or a marker, of which the first
        occurrence counts. None is the beginning of the text.
    right : int, str or None, default None
        End of the slice: an index, or a marker, of which the last occurrence counts. None is the end of the text.
    include_left : bool, default True
        Whether the left marker belongs to the slice.
    include_right : bool, default True
        Whether the right marker belongs to the slice.
    strip : bool, default True
        Strip white space from both ends of the slice.
    text : str, default "text"
        The text column.

    Returns
    -------
    dask.dataframe.DataFrame
        The same rows; null stays null. A text without one of the markers becomes empty.

    Raises
    ------
    ParameterError
        If an end is not an integer, a string or None, or a marker is empty.
    ColumnError
        If the text column is missing.
    UnsupportedBackendError
        If the blocks are cuDF blocks.

    See Also
    --------
    remove_boilerplate, split_documents

    Notes
    -----
    Rows: same. Columns: same; ``text`` changes. Backends: pandas. Peak extra memory: 1.2 x block. Computes: no.

    The receipt counts ``rows_changed``.

    References
    ----------
    .. [1] nemo_curator 0.9.0, modifiers/slicer.py, Slicer

    Examples
    --------
    >>> import dask.dataframe as dd, pandas as pd
    >>> docs = dd.from_pandas(pd.DataFrame({"text": ["Header *** START *** A book. *** END *** License"]}), npartitions=1)
    >>> book = docs.pipe(remove_outside, left="START ***", right="*** END", include_left=False, include_right=False)
    >>> book.compute()["text"][0]
    'A book.'
    """
    for name, end in (("left", left), ("right", right)):
        if not (end is None or isinstance(end, str) or (isinstance(end, int) and -(1 << 62) < end < 1 << 62)):
            raise ParameterError(f"remove_outside: {name}={end!r} must be an int, a str or None")
        if end == "":
            raise ParameterError(
                f"remove_outside: {name} is an empty str, which is found everywhere. Pass a mark of at least one character, "
                "or None for no mark"
            )
    ends = SliceEnds(left, right, bool(include_left), bool(include_right))
    return rewrite_texts(
        df, "remove_outside", text, slices_of, {"ends": ends, "strip": bool(strip)}, compiled=kernel_sets.SLICES
    )
