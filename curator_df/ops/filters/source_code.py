# SPDX-License-Identifier: Apache-2.0
"""Shares of source code: comments in programs (`add_comment_ratio`), text in HTML pages (`add_html_text_ratio`).

Each page is read in one pass, without building a tree. Its text is what Beautiful Soup's ``get_text`` returns with Python's
``html.parser`` after ``script`` and ``style`` are removed, so that the numbers are those of NeMo Curator. White space alone
between two tags counts as one character.
"""

from __future__ import annotations

import re
from collections import Counter
from html.entities import html5
from html.parser import HTMLParser
from typing import Any, get_args

import dask.dataframe as dd
import numpy as np
import numpy.typing as npt
import pandas as pd

from curator_df.arguments import require_integer
from curator_df.core.columns import refuse_columns, require_text
from curator_df.core.ranges.blocks import BlockKernel, Outcome, map_blocks
from curator_df.core.ranges.price import Price
from curator_df.errors import ParameterError
from curator_df.kernels.compiling import kernel_sets
from curator_df.kernels.metrics.source.comments import PYTHON_FACTOR, Language, comment_ratios
from curator_df.kernels.rows.keep_rows import keep_rows
from curator_df.kernels.text.buffers import text_spans
from curator_df.memory.sizes import read_size
from curator_df.ops.host_only import require_host
from curator_df.suggestions import did_you_mean

PEAK_FACTOR = 0.4
"""A number and its mask of 9 bytes for each row, made twice, of rows of 100 bytes."""
BY_PEAK_FACTOR = 2.0
"""With languages from a column: the texts of one language, and a code and a mask of each row."""
EXTENSIONS: dict[str, Language] = {
    **dict.fromkeys(("c", "h"), "c"),
    **dict.fromkeys(("c++", "cc", "cpp", "cxx", "hh", "hpp", "hxx"), "c++"),
    **dict.fromkeys(("c#", "c-sharp", "cs", "csharp"), "c#"),
    **dict.fromkeys(("go", "golang"), "go"),
    **dict.fromkeys(("htm", "html", "xhtml"), "html"),
    "java": "java",
    **dict.fromkeys(("cjs", "javascript", "js", "jsx", "mjs"), "javascript"),
    **dict.fromkeys(("py", "pyi", "python"), "python"),
    **dict.fromkeys(("rb", "ruby"), "ruby"),
    **dict.fromkeys(("bash", "sh", "shell", "zsh"), "shell"),
    "xml": "xml",
}
"""Languages by extension or name in lower case, for languages from a column."""
PAGE_FACTOR = 270
"""Memory for reading a page, as a multiple of its bytes: 25 on unclosed tags, 265 on a tag of only attributes (measured)."""
MOST_UNCLOSED = 5_000
"""Maximum excess of ``<`` over ``>``: beyond it ``html.parser`` would search for their ends again and again, minutes for a
page."""
_SPACES = " \n\t\f\r"
_DECIMAL, _HEXADECIMAL = re.compile(r"([0-9]+)(.*)"), re.compile(r"([0-9a-fA-F]+)(.*)")
_TAKEN_OUT = ("script", "style")
_NO_MAIN_TEXT = ("template", "rt", "rp")
"""Elements whose text is not that of the page, except CDATA in them."""
_KEEPS_SPACES = ("pre", "textarea")
_VOID = frozenset(
    [
        "area",
        "base",
        "basefont",
        "bgsound",
        "br",
        "col",
        "command",
        "embed",
        "frame",
        "hr",
        "image",
        "img",
        "input",
        "isindex",
        "keygen",
        "link",
        "menuitem",
        "meta",
        "nextid",
        "param",
        "source",
        "spacer",
        "track",
        "wbr",
    ]
)
"""Elements without an end tag, including obsolete ones."""


def add_html_text_ratio(
    df: dd.DataFrame,
    *,
    min_chars: int = 100,
    max_page_size: int | str = "400kB",
    into: str = "html_text_ratio",
    text: str = "text",
) -> dd.DataFrame:
    """Add the share of each HTML page that is text; pages with a low share are mostly markup.

    Parameters
    ----------
    df : dask.dataframe.DataFrame
        The table.
    min_chars : int, default 100
        A page with less text than this gets 0.
    max_page_size : int or str, default "400kB"
        Bytes of a page to read; for a longer page the share is that of its beginning. Parsing takes up to 270 times the
        bytes of a page; the plan reserves memory for this.
    into : str, default "html_text_ratio"
        Name of the column; profile rules can refer to it under this name.
    text : str, default "text"
        Column with the pages.

    Returns
    -------
    dask.dataframe.DataFrame
        The same rows with a column ``Float64`` from 0 to 1, null where the page is null.

    Raises
    ------
    ParameterError
        If ``min_chars`` is negative, or ``max_page_size`` is not a valid size.
    ColumnError
        If the text column is missing, or ``into`` already exists.
    UnsupportedBackendError
        If the blocks are cuDF blocks.

    See Also
    --------
    remove_html, add_comment_ratio

    Notes
    -----
    Rows: same. Columns: plus ``html_text_ratio``. Backends: pandas. Peak extra memory: 0.4 x block, and for a parsed page
    270 x ``max_page_size`` in each task. Computes: no.

    Text is everything between tags, without ``script``, ``style``, ``template``, comments and ruby annotations; white
    space alone between two tags counts as one character. Pages are parsed by Python's ``html.parser``, one after the other
    while holding the GIL: use worker processes rather than threads. The numbers are those of NeMo Curator, which builds
    a tree of the page with Beautiful Soup and the same parser. The receipt counts ``pages_cut`` and
    ``pages_not_parsed``: pages that the parser rejects, or that have thousands of tags without a closing ``>``,
    which would take minutes to parse. These get 0.

    References
    ----------
    .. [1] nemo_curator 0.9.0, filters/code.py, HTMLBoilerplateFilter

    Examples
    --------
    >>> import dask.dataframe as dd
    >>> import pandas as pd
    >>> page = "<script>let x = 1;</script><p>To be or not to be</p>"
    >>> docs = dd.from_pandas(pd.DataFrame({"text": [page]}), npartitions=1)
    >>> docs.pipe(add_html_text_ratio, min_chars=5).compute()["html_text_ratio"].round(2).tolist()
    [0.35]
    """
    operator = "add_html_text_ratio"
    require_text(df, operator, text)
    require_host(df._meta, operator)
    refuse_columns(df, operator, into)
    require_integer(operator, "min_chars", min_chars)
    if min_chars < 0:
        raise ParameterError(f"{operator}: min_chars={min_chars} is negative. Use 0 or more")
    max_page_bytes = read_size("max_page_size", max_page_size)
    kernel = BlockKernel(
        operator,
        add_html_text_ratio_block,
        {"text": text, "min_chars": min_chars, "max_page_bytes": max_page_bytes, "into": into},
        price=Price(PEAK_FACTOR, fixed_bytes=PAGE_FACTOR * max_page_bytes, is_measured=True),
    )
    return map_blocks(df, kernel, meta=df._meta.assign(**{into: pd.Series(dtype="Float64")}))


def add_html_text_ratio_block(block: Any, *, text: str, min_chars: int, max_page_bytes: int, into: str) -> Outcome:
    """Kernel of `add_html_text_ratio`."""
    require_host(block, "add_html_text_ratio")
    ratios, counts = html_text_ratios(block[text], min_chars, max_page_bytes)
    column = pd.arrays.FloatingArray(ratios, block[text].isna().to_numpy(dtype=bool))
    added = block.assign(**{into: pd.Series(column, index=block.index, copy=False)})
    return Outcome(added, counters=dict(counts))


def add_comment_ratio(
    df: dd.DataFrame,
    language: Language | str,
    *,
    max_file_size: int | str = "100kB",
    into: str = "comment_ratio",
    text: str = "text",
) -> dd.DataFrame:
    """Add the share of each text that consists of comments, for source code.

    Parameters
    ----------
    df : dask.dataframe.DataFrame
        The table.
    language : {"c", "c++", "c#", "go", "html", "java", "javascript", "python", "ruby", "shell", "xml"}, or a column
        Programming language of the texts; or the name of a column with the language or file extension of each text, such
        as ``"python"``, ``"C++"``, ``".py"`` or ``"cpp"``, in any case. In Python, docstrings and the comment markers
        count too. In the other languages, only what is between the markers counts, plus a space between two comments.
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
        The same rows with a column ``Float64``, 0 for an empty text and null where the text is null, or the column has
        another language or null. Python code that
        cannot be parsed gets 0. A text in another language with an unterminated comment gets 9999. Both are as in NeMo
        Curator, so limits at both ends drop such rows.

    Raises
    ------
    ParameterError
        If the language is neither one of these nor a column, or ``max_file_size`` is not a valid size.
    ColumnError
        If the text column is missing, or ``into`` already exists.
    UnsupportedBackendError
        If the blocks are cuDF blocks.

    See Also
    --------
    add_html_text_ratio, keep_where

    Notes
    -----
    Rows: same. Columns: plus ``comment_ratio``. Backends: pandas. Peak extra memory: 0.4 x block; of Python a parsed file
    too, 70 MB for the default of 100 kB; with a column of languages 2.0 x block. Computes: no.

    Python code is parsed by the running Python, one text after the other, while holding the GIL: use worker processes rather
    than threads. Other languages are scanned by a compiled kernel. The receipt counts ``texts_not_parsed``, and with a column
    ``texts_in_other_languages``. A name that is both a language and a column is the language: rename the column.

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
    is_column = isinstance(language, str) and language not in get_args(Language) and language in df.columns
    if is_column:
        require_text(df, operator, language, parameter="language")
    else:
        _require_language(operator, language, [name for name in df.columns if name != text])
    refuse_columns(df, operator, into)
    max_file_bytes = read_size("max_file_size", max_file_size)
    by = {"by": language} if is_column else {"language": language}
    kernel = BlockKernel(
        operator,
        comment_ratio_by_column if is_column else add_comment_ratio_block,
        {"text": text, **by, "max_file_bytes": max_file_bytes, "into": into},
        price=Price(
            BY_PEAK_FACTOR if is_column else PEAK_FACTOR,
            fixed_bytes=PYTHON_FACTOR * max_file_bytes if is_column or language == "python" else 0,
            is_measured=True,
        ),
        compiled=() if language == "python" else kernel_sets.COMMENTS,
    )
    return map_blocks(df, kernel, meta=df._meta.assign(**{into: pd.Series(dtype="Float64")}))


def _require_language(operator: str, language: Any, columns: list[Any]) -> None:
    """Raise `ParameterError` unless this is a language; suggest a language or a column."""
    languages = get_args(Language)
    if isinstance(language, str) and language in languages:
        return
    names = [*languages, *(name for name in columns if isinstance(name, str))]
    hint = did_you_mean(language, names) if isinstance(language, str) else ""
    raise ParameterError(
        f"{operator}: language={language!r} is not one of {', '.join(map(repr, languages))}, nor a column of the table"
        f"{'.' * bool(hint)}{hint}"
    )


def add_comment_ratio_block(block: Any, *, text: str, language: Language, max_file_bytes: int, into: str) -> Outcome:
    """Kernel of `add_comment_ratio`."""
    require_host(block, "add_comment_ratio")
    ratios, failed = comment_ratios(block[text], language, max_file_bytes)
    added = _with_ratios(block, into, ratios, block[text].isna().to_numpy(dtype=bool))
    return Outcome(added, counters={"texts_not_parsed": failed})


def comment_ratio_by_column(block: Any, *, text: str, by: str, max_file_bytes: int, into: str) -> Outcome:
    """Kernel of `add_comment_ratio` with languages from a column: the texts of one language after those of another."""
    require_host(block, "add_comment_ratio")
    numbers, values = pd.factorize(block[by])
    named = [EXTENSIONS.get(str(value).strip().lower().removeprefix(".")) for value in values]
    ratios, missing, failed = np.zeros(len(block)), np.ones(len(block), dtype=bool), 0
    for language in dict.fromkeys(name for name in named if name is not None):
        # The code of null is -1, which leads to the last place.
        rows = np.array([*(name == language for name in named), False])[numbers]
        part = keep_rows(block[[text]], rows)[text]
        ratios[rows], failures = comment_ratios(part, language, max_file_bytes)
        missing[rows] = part.isna().to_numpy(dtype=bool)
        failed += failures
    others = int(np.array([*(name is None for name in named), True])[numbers].sum())
    counters = {"texts_not_parsed": failed, "texts_in_other_languages": others}
    return Outcome(_with_ratios(block, into, ratios, missing), counters=counters)


def _with_ratios(block: Any, into: str, ratios: npt.NDArray[np.float64], missing: npt.NDArray[np.bool_]) -> Any:
    column = pd.arrays.FloatingArray(ratios, missing)
    return block.assign(**{into: pd.Series(column, index=block.index, copy=False)})


def html_text_ratios(
    texts: pd.Series, min_chars: int, max_page_bytes: int
) -> tuple[npt.NDArray[np.float64], Counter[str]]:
    """Return the fraction of each page that is text, shape (rows,), and counts: ``pages_cut`` and ``pages_not_parsed``.

    A page with less text than ``min_chars``, or one that ``html.parser`` refuses, has 0; so has a null.

    Examples
    --------
    >>> pages = pd.Series(["<p>four</p>", "<script>x = 1</script>", "text"], dtype="string")
    >>> html_text_ratios(pages, 0, 1_000_000)[0].round(2).tolist()
    [0.36, 0.0, 1.0]
    """
    ratios = np.zeros(len(texts), dtype=np.float64)
    counts: Counter[str] = Counter(pages_cut=0, pages_not_parsed=0)
    for span in text_spans(texts):
        for row in range(len(span)):
            start, stop = int(span.offsets[row]), int(span.offsets[row + 1])
            if start == stop:
                continue
            counts["pages_cut"] += stop - start > max_page_bytes
            # The last character may be split.
            page = span.data[start : min(stop, start + max_page_bytes)].tobytes().decode("utf-8", "ignore")
            characters = text_characters(page)
            counts["pages_not_parsed"] += characters is None
            if characters is not None and characters >= min_chars:
                ratios[span.first_row + row] = characters / len(page)
    return ratios, counts


def text_characters(page: str) -> int | None:
    """Return the number of characters of a page that are text; None if it cannot be parsed."""
    if page.count("<") - page.count(">") > MOST_UNCLOSED:
        return None
    reader = _TextCounter()
    try:
        reader.feed(page)
        reader.close()
    except AssertionError:  # html.parser raises it for some marked sections
        return None
    reader.end_text()
    return reader.characters


class _TextCounter(HTMLParser):
    """Counter of the characters of text in the elements of a page."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=False)
        self.characters = 0
        self._text: list[str] = []
        self._open: list[str] = []
        self._open_by_name: Counter[str] = Counter()
        self._closed_void: Counter[str] = Counter()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_startendtag(tag, attrs) if tag in _VOID else self._begin(tag)
        self._closed_void[tag] += tag in _VOID

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:  # noqa: ARG002
        self._begin(tag)
        self._end(tag)

    def handle_endtag(self, tag: str) -> None:
        if self._closed_void[tag]:
            self._closed_void[tag] -= 1
        else:
            self._end(tag)

    def handle_data(self, data: str) -> None:
        self._text.append(data)

    def handle_charref(self, name: str) -> None:
        # The value of the character matters only if it is white space. Characters after the digits are text.
        is_hexadecimal = name[:1] in ("x", "X")
        found = (_HEXADECIMAL if is_hexadecimal else _DECIMAL).match(name[is_hexadecimal:])
        if found is None:
            self._text.append(name[is_hexadecimal:])
            return
        number = int(found[1], 16 if is_hexadecimal else 10)
        self._text += [chr(number) if number in map(ord, _SPACES) else "?", found[2]]

    def handle_entityref(self, name: str) -> None:
        self._text.append(html5.get(f"{name};") or html5.get(name) or f"&{name}")

    def handle_comment(self, data: str) -> None:  # noqa: ARG002
        self.end_text()

    def handle_decl(self, decl: str) -> None:  # noqa: ARG002
        self.end_text()

    def handle_pi(self, data: str) -> None:  # noqa: ARG002
        self.end_text()

    def unknown_decl(self, data: str) -> None:
        self.end_text()
        if data.upper().startswith("CDATA["):
            self._text.append(data[len("CDATA[") :])
            self.end_text(_TAKEN_OUT)

    def end_text(self, hidden: tuple[str, ...] = _TAKEN_OUT + _NO_MAIN_TEXT) -> None:
        """Count the text since the last tag, unless it is in one of these elements."""
        text = "".join(self._text)
        self._text.clear()
        if not text or any(self._open_by_name[name] for name in hidden):
            return
        is_space = not text.strip(_SPACES) and not any(self._open_by_name[name] for name in _KEEPS_SPACES)
        self.characters += 1 if is_space else len(text)

    def _begin(self, tag: str) -> None:
        self.end_text()
        self._open.append(tag)
        self._open_by_name[tag] += 1

    def _end(self, tag: str) -> None:
        self.end_text()
        while self._open_by_name[tag]:
            name = self._open.pop()
            self._open_by_name[name] -= 1
            if name == tag:
                return
