# SPDX-License-Identifier: Apache-2.0
"""Texts without what stands around or at their ends: `remove_quotation_marks`, `remove_boilerplate`, `remove_outside`."""

from __future__ import annotations

import dask.dataframe as dd

from curator_df.errors import ParameterError
from curator_df.kernels.compiling import kernel_sets
from curator_df.kernels.edits.cut_texts import SliceEnds, slices_of, without_boilerplate, without_quotation_marks
from curator_df.ops.cleaning.rewriting import rewrite_texts


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
    >>> docs = dd.from_pandas(pd.DataFrame({"text": ["Header *** START *** A book. *** END *** Licence"]}), npartitions=1)
    >>> book = docs.pipe(remove_outside, left="START ***", right="*** END", include_left=False, include_right=False)
    >>> book.compute()["text"][0]
    'A book.'
    """
    for name, end in (("left", left), ("right", right)):
        if not (end is None or isinstance(end, str) or (isinstance(end, int) and -(1 << 62) < end < 1 << 62)):
            raise ParameterError(f"remove_outside: {name}={end!r} must be an int, a str or None")
        if end == "":
            raise ParameterError(
                f"remove_outside: {name} is an empty str, which is found everywhere; name a mark, or None"
            )
    ends = SliceEnds(left, right, bool(include_left), bool(include_right))
    return rewrite_texts(
        df, "remove_outside", text, slices_of, {"ends": ends, "strip": bool(strip)}, compiled=kernel_sets.SLICES
    )
