# SPDX-License-Identifier: Apache-2.0
"""Remove markup from texts: `remove_markdown` and `remove_html`.

resiliparse (Lexbor's parser) alone runs in this process. trafilatura and jusText, which do not return from some pages, and
several extractors together run in a process for each thread that can be killed (`curator_df.memory.killable_process`).
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import dask.dataframe as dd
import numpy as np
import pandas as pd

from curator_df.arguments import choose, require_integer, require_number, require_string, strings_of
from curator_df.core.columns import refuse_columns, require_text
from curator_df.core.ranges.blocks import BlockKernel, Outcome, map_blocks
from curator_df.core.ranges.price import Price
from curator_df.errors import ParameterError
from curator_df.extras import require_package
from curator_df.kernels.compiling import kernel_sets
from curator_df.kernels.edits.cut_texts import without_markdown
from curator_df.kernels.edits.page_extractors import MAX_DIV_DEPTH, Extraction, div_depth, resiliparse_text
from curator_df.kernels.edits.splices import Splice, splice_texts
from curator_df.kernels.text.buffers import TextSpan, repeated_texts, text_dtype
from curator_df.memory.killable_process import CallFailedError, KillableProcesses
from curator_df.memory.process_cache import cached
from curator_df.memory.sizes import read_size
from curator_df.ops.cleaning.rewriting import SPLICE_FACTOR, rewrite_texts
from curator_df.ops.host_only import require_host

LinkPart = Literal["text", "url"]
Extractor = Literal["resiliparse", "trafilatura", "justext"]
Favor = Literal["precision", "recall"]
TextOutput = Literal["text", "markdown"]
OWNERS = {"favor": "trafilatura", "main_content": "resiliparse", "alt_texts": "resiliparse", "stop_words": "justext"}
"""Extractor that has an option."""
MIN_TIMEOUT_SECONDS, MAX_TIMEOUT_SECONDS = 0.01, 3_600
PASSED_FACTOR = 4
"""Bytes of a page that is passed to another process, and of its text, as a multiple of the page's: two copies of both."""
PARSED_FACTOR = 110
"""Bytes of a parsed page as a multiple of the page's: 16 on prose in paragraphs, 103 where it is tags alone (measured)."""
LEAST_PAGE_BYTES = 1_000
EXTRACTION = "curator_df.kernels.edits.page_extractors:extract_page"
"""Function that a process of its own runs."""
IDLE_BYTES = 48_000_000
"""Memory of an idle process: 22 MB of private pages were measured with trafilatura and jusText, 35 MB after the crawl sample."""
CALL_FIXED_BYTES = 32_000_000
CALL_FACTOR = 128
"""Memory of a call as a multiple of the page's bytes: at most 42 on the crawl sample for pages over 100 KB. Pages of tags alone
take up to 510 (trafilatura); they fail, and are quarantined, where that is more than is planned."""


def remove_markdown(
    df: dd.DataFrame, *, links: LinkPart = "text", inside_words: bool = False, text: str = "text"
) -> dd.DataFrame:
    r"""Remove the Markdown markup for bold, italic and links.

    Parameters
    ----------
    df : dask.dataframe.DataFrame
        The table.
    links : {"text", "url"}
        What to keep of ``[text](url)``.
    inside_words : bool, default False
        True: pairs of markers count anywhere, so ``snake_case_name`` and ``2 * 3 * 4`` lose theirs. False: a marker
        must begin before a word and end after one.
    text : str, default "text"
        The text column.

    Returns
    -------
    dask.dataframe.DataFrame
        The same rows; null stays null.

    Raises
    ------
    ParameterError
        If ``links`` is not one of its choices.
    ColumnError
        If the text column is missing.
    UnsupportedBackendError
        If the blocks are cuDF blocks.

    See Also
    --------
    remove_html, remove_urls

    Notes
    -----
    Rows: same. Columns: same; ``text`` changes. Backends: pandas. Peak extra memory: 1.2 x block. Computes: no.

    Markers are pairs of ``**``, ``*`` and ``_`` (and of ``__``) within a line. With ``links="url", inside_words=True``
    the result is NeMo's, whose regular expressions take time at least quadratic in the length of a line; this takes
    linear time. The defaults differ because NeMo removes the underscores of identifiers and the words of links.
    Headings, lists, tables and code are unchanged. The receipt counts ``rows_changed``.

    References
    ----------
    .. [1] nemo_curator 0.9.0, modifiers/markdown_remover.py, MarkdownRemover

    Examples
    --------
    >>> import dask.dataframe as dd, pandas as pd
    >>> docs = dd.from_pandas(pd.DataFrame({"text": ["Call **my_func_x**, see [the docs](https://a.b/c)."]}), npartitions=1)
    >>> docs.pipe(remove_markdown).compute()["text"][0]
    'Call my_func_x, see the docs.'
    >>> docs.pipe(remove_markdown, links="url", inside_words=True).compute()["text"][0]
    'Call myfuncx, see https://a.b/c.'
    """
    choose("remove_markdown", "links", links, LinkPart)
    arguments = {"keep_url": links == "url", "inside_words": bool(inside_words)}
    return rewrite_texts(df, "remove_markdown", text, without_markdown, arguments, compiled=kernel_sets.MARKDOWN)


def remove_html(
    df: dd.DataFrame,
    *,
    extractor: Extractor | Sequence[Extractor] = "resiliparse",
    favor: Favor | None = None,
    output: TextOutput = "text",
    main_content: bool = True,
    alt_texts: bool = False,
    stop_words: str = "English",
    min_chars: int = 200,
    extractor_into: str | None = None,
    timeout_seconds: float = 10,
    max_page_size: int | str = "1MB",
    text: str = "text",
) -> dd.DataFrame:
    r"""Extract the text of HTML pages with resiliparse, trafilatura or jusText.

    Parameters
    ----------
    df : dask.dataframe.DataFrame
        The table.
    extractor : {"resiliparse", "trafilatura", "justext"} or sequence of these
        What extracts the text. Several are tried in this order: the first text of at least ``min_chars`` characters is kept,
        and if there is none, the longest (of equally long ones the first).
    favor : {"precision", "recall"}, optional
        For trafilatura: prefer less text that is more certainly content, or more text. By default, a balance of both.
    output : {"text", "markdown"}
        Plain text, or Markdown with headings, lists, tables, code blocks and LaTeX formulas, which only trafilatura makes.
    main_content : bool, default True
        For resiliparse: leave out navigation, headers, footers, sidebars and comments, by simple rules on the elements.
        False: all visible text.
    alt_texts : bool, default False
        For resiliparse: keep the alternative texts of images.
    stop_words : str, default "English"
        For jusText: name of its list of stop words (``justext.get_stoplists()``), in the language of the pages.
    min_chars : int, default 200
        With several extractors: least number of characters, without white space around them, with which a text is kept before
        the next extractor is tried.
    extractor_into : str, optional
        With several extractors: new column for the name of the extractor whose text was kept.
    timeout_seconds : float, default 10
        CPU seconds after which the extraction of a page is ended, except with resiliparse alone, which needs no limit. The
        page then stops the run, or is quarantined (``on_error`` of `write_parquet`).
    max_page_size : int or str, default "1MB"
        Bytes of a page to read; the rest of a longer page is ignored, as in crawls that truncate pages. Parsing takes
        up to about 110 times the bytes of a page; the plan reserves memory for this.
    text : str, default "text"
        Column with the pages.

    Returns
    -------
    dask.dataframe.DataFrame
        The same rows; null stays null, and a text without a ``<`` is unchanged. Paragraphs, lists and preformatted text
        keep their line breaks. A page in which an extractor finds nothing becomes an empty text.

    Raises
    ------
    ParameterError
        If ``max_page_size`` is not a valid size, or is less than 1 kB; if an extractor or a choice is unknown; or if an option
        is given that no extractor of ``extractor`` has.
    MissingExtraError
        If an extractor is not installed.
    ColumnError
        If the text column is missing, or ``extractor_into`` exists.
    OperatorError
        When running: if a page passes its limit of time or memory, or an extractor raises an exception on it, unless such rows
        are quarantined with ``on_error="quarantine"``.
    UnsupportedBackendError
        If the blocks are cuDF blocks.

    See Also
    --------
    read_warc, remove_markdown, add_html_text_ratio

    Notes
    -----
    Rows: same. Columns: same, plus ``extractor_into`` if given; ``text`` changes. Backends: pandas. Peak extra memory: 1.4 x
    block, and for a parsed page 110 x ``max_page_size`` in each task. Computes: no.

    With trafilatura, jusText or several extractors, each task uses a process of its own, which is part of the budget: 80 MB +
    128 x ``max_page_size``. A page that needs more, such as 1 MB of tags alone, fails. trafilatura's own removal of duplicates,
    which depends on earlier pages, is off, and so are comments.

    With resiliparse alone, the text is that of ``extract_plain_text``. For a page with more than 500 nested ``div`` elements,
    all text is extracted, because the search for the main content would take minutes.

    The receipt counts ``rows_changed`` and ``pages_cut``; with resiliparse alone, ``pages_without_main_content``; with several
    extractors, ``kept_resiliparse``, ``kept_trafilatura`` and ``kept_justext``.

    References
    ----------
    .. [1] J. Bevendorff et al. 2018, Elastic ChatNoir (resiliparse), https://resiliparse.chatnoir.eu
    .. [2] A. Barbaresi 2021, Trafilatura, https://trafilatura.readthedocs.io
    .. [3] J. Pomikalek 2011, Removing Boilerplate and Duplicate Content from Web Corpora (jusText)

    Examples
    --------
    >>> import dask.dataframe as dd, pandas as pd
    >>> page = "<nav><a href='/'>Home</a></nav><main><h1>A story</h1><p>It is <b>short</b>.</p></main>"
    >>> docs = dd.from_pandas(pd.DataFrame({"text": [page]}), npartitions=1)
    >>> docs.pipe(remove_html).compute()["text"][0]
    'A story\n\nIt is short.'

    The main text by trafilatura, as in FineWeb; a page that takes too long is quarantined:

    >>> texts = docs.pipe(cdf.remove_html, extractor="trafilatura", favor="precision")  # doctest: +SKIP
    >>> cdf.write_parquet(texts, "texts/", on_error="quarantine")  # doctest: +SKIP
    """
    extractors = _extractors(extractor)
    max_page_bytes = read_size("max_page_size", max_page_size)
    if max_page_bytes < LEAST_PAGE_BYTES:
        raise ParameterError(
            f"remove_html: max_page_size={max_page_size!r} is less than the minimum of 1 kB, because no page fits into "
            "less. Use a larger max_page_size="
        )
    if favor is not None:
        choose("remove_html", "favor", favor, Favor)
    choose("remove_html", "output", output, TextOutput)
    require_string("remove_html", "stop_words", stop_words)
    require_integer("remove_html", "min_chars", min_chars)
    seconds = _seconds(timeout_seconds)
    given = {
        "favor": favor is not None,
        "main_content": not main_content,
        "alt_texts": alt_texts,
        "stop_words": stop_words != "English",
    }
    _require_options(extractors, [name for name, is_given in given.items() if is_given], output)
    for name in extractors:
        require_package("remove_html", name, "html")
    if extractors == ("resiliparse",):
        if extractor_into is not None:
            raise ParameterError(
                f"remove_html: extractor_into={extractor_into!r} names the column for the extractor of each text, which "
                "needs several extractors. Leave it out, or name several in extractor="
            )
        return rewrite_texts(
            df,
            "remove_html",
            text,
            text_of_html,
            {"settings": HtmlSettings(bool(main_content), bool(alt_texts), max_page_bytes)},
            price=Price(SPLICE_FACTOR, is_measured=True, fixed_bytes=PARSED_FACTOR * max_page_bytes),
        )
    how = Extraction(
        extractors, int(min_chars), favor, output == "markdown", stop_words, bool(main_content), bool(alt_texts)
    )
    return _within_limits(df, text, LimitedSettings(how, max_page_bytes, seconds, _versions(how)), extractor_into)


def _extractors(asked: Extractor | Sequence[Extractor]) -> tuple[Extractor, ...]:
    names = strings_of("remove_html", "extractor", asked)
    if not names:
        raise ParameterError("remove_html: extractor is empty; name one, such as 'trafilatura'")
    if len(set(names)) < len(names):
        raise ParameterError(f"remove_html: extractor={asked!r} names an extractor twice. Name each once")
    for name in names:
        choose("remove_html", "extractor", name, Extractor)
    found: Any = tuple(names)
    return found  # type: ignore[no-any-return]


def _require_options(extractors: Sequence[str], given: Sequence[str], output: str) -> None:
    """Raise an error for an option that no extractor has, and for Markdown if one of them has none."""
    for name in given:
        owner = OWNERS[name]
        if owner not in extractors:
            raise ParameterError(
                f"remove_html: {name}= is an option of {owner}, which is not in extractor={extractors!r}. Leave {name} out, or "
                f"use extractor={owner!r}"
            )
    if output == "markdown" and (others := [name for name in extractors if name != "trafilatura"]):
        raise ParameterError(
            f"remove_html: output='markdown' is made by trafilatura only, and extractor= names {' and '.join(others)}, which "
            "returns plain text. Use extractor='trafilatura'"
        )


def _seconds(timeout_seconds: float) -> float:
    require_number("remove_html", "timeout_seconds", timeout_seconds)
    if not MIN_TIMEOUT_SECONDS <= timeout_seconds <= MAX_TIMEOUT_SECONDS:
        raise ParameterError(
            f"remove_html: timeout_seconds={timeout_seconds!r} is not from {MIN_TIMEOUT_SECONDS} to {MAX_TIMEOUT_SECONDS:,} "
            "seconds. Use a number in this range"
        )
    return float(timeout_seconds)


def _versions(how: Extraction) -> tuple[str, ...]:
    """Return the versions of the extractors, and check that jusText has the list of stop words."""
    if "justext" in how.extractors:
        folder = Path(importlib.util.find_spec("justext").origin).parent / "stoplists"  # type: ignore[union-attr, arg-type]
        choose("remove_html", "stop_words", how.stop_words, tuple(sorted(each.stem for each in folder.glob("*.txt"))))
    return tuple(f"{name} {importlib.metadata.version(name)}" for name in how.extractors)


def _within_limits(df: Any, text: str, settings: LimitedSettings, into: str | None) -> Any:
    """Return the table with the texts that `texts_within_limits` extracts."""
    require_text(df, "remove_html", text)
    require_host(df._meta, "remove_html")
    meta = df._meta.astype({text: text_dtype(df._meta[text].dtype)})
    if into is not None:
        if len(settings.extraction.extractors) == 1:
            raise ParameterError(
                "remove_html: extractor_into= names the column for the extractor of each text, which needs several "
                "extractors. Leave it out, or name several in extractor="
            )
        refuse_columns(df, "remove_html", into, parameter="extractor_into")
        meta = meta.assign(**{into: pd.Series(pd.array([], "string[pyarrow]"), index=meta.index)})
    kernel = BlockKernel(
        "remove_html",
        extract_block,
        {"text": text, "settings": settings, "into": into},
        price=Price(
            SPLICE_FACTOR,
            is_measured=True,
            fixed_bytes=PASSED_FACTOR * settings.max_page_bytes,
            held_by_task=settings.held_by_task,
        ),
    )
    return map_blocks(df, kernel, meta=meta)


def extract_block(block: Any, *, text: str, settings: LimitedSettings, into: str | None) -> Outcome:
    """Kernel of `remove_html` with a limit of time for each page."""
    require_host(block, "remove_html")
    found = texts_within_limits(block[text], settings)
    columns = {text: found.texts} if found.counts["rows_changed"] else {}
    if into is not None:
        names = settings.extraction.extractors
        codes = np.full(len(block), -1, dtype=np.int32)
        for row, name in found.kept.items():
            codes[row] = names.index(name)
        columns[into] = pd.Series(repeated_texts(list(names), codes), index=block.index)
    made = block.assign(**columns)
    if found.failed:
        made = made.iloc[np.delete(np.arange(len(block)), list(found.failed))]
    return Outcome(made, counters=dict(found.counts), failed=found.failed)


@dataclass(frozen=True)
class HtmlSettings:
    """Settings for extracting the text of a page."""

    main_content: bool
    """Whether to remove navigation, headers, footers and the like."""
    alt_texts: bool
    """Whether to include the descriptions of images."""
    max_page_bytes: int
    """Maximum number of bytes read from a page."""


@dataclass(frozen=True)
class LimitedSettings:
    """Settings for extracting the text of a page under limits of time and memory."""

    extraction: Extraction
    """Extractors, and their settings."""
    max_page_bytes: int
    """Maximum number of bytes read from a page."""
    timeout_seconds: float
    """CPU seconds after which the extraction of a page is killed."""
    versions: tuple[str, ...]
    """Versions of the extractors, because others may extract other texts."""

    @property
    def call_bytes(self) -> int:
        """Memory that the extraction of a page may use."""
        return CALL_FIXED_BYTES + CALL_FACTOR * self.max_page_bytes

    @property
    def held_by_task(self) -> dict[str, int]:
        """Memory of the process of each task, by its name; steps with equal limits share the processes."""
        return {f"page extractors {self.call_bytes}": IDLE_BYTES + self.call_bytes}


@dataclass
class Extracted:
    """Result for a column of pages."""

    texts: pd.Series
    """Column with the texts; that of a failed page is unchanged."""
    counts: Counter[str]
    """Counts for the receipt."""
    failed: dict[int, str] = field(default_factory=dict)
    """Reason for each page that failed, by its position."""
    kept: dict[int, str] = field(default_factory=dict)
    """Extractor of each page whose text was extracted, by its position."""


def text_of_html(texts: pd.Series, settings: HtmlSettings) -> tuple[pd.Series, Counter[str]]:
    r"""Replace each page with its text by resiliparse; return the column (the same object if nothing changes), and counts.

    The counts are ``rows_changed``, ``pages_cut`` and ``pages_without_main_content``.

    Examples
    --------
    >>> pages = pd.Series(["<p>One &amp; two.<p>Three.", "no page"], dtype="string")
    >>> text_of_html(pages, HtmlSettings(False, False, 1_000_000))[0].tolist()
    ['One & two.\n\nThree.', 'no page']
    """
    counts: Counter[str] = Counter(pages_cut=0, pages_without_main_content=0)
    how = Extraction(("resiliparse",), 0, None, False, "", settings.main_content, settings.alt_texts)

    def text_of(_: int, page: bytes) -> bytes:
        decoded = page.decode("utf-8", "ignore")
        counts["pages_without_main_content"] += settings.main_content and div_depth(decoded) > MAX_DIV_DEPTH
        return resiliparse_text(decoded, how).encode("utf-8", "ignore")

    changed, counts["rows_changed"] = _spliced(texts, settings.max_page_bytes, counts, text_of)
    return changed, counts


def texts_within_limits(texts: pd.Series, settings: LimitedSettings) -> Extracted:
    """Replace each page with its text; a page that passes a limit, or on which an extractor raises, is reported as failed."""
    counts: Counter[str] = Counter(pages_cut=0)
    counts.update(
        {f"kept_{name}": 0 for name in settings.extraction.extractors if len(settings.extraction.extractors) > 1}
    )
    found = Extracted(texts, counts)
    (name,) = settings.held_by_task
    pool = cached(name, lambda: KillableProcesses(EXTRACTION, settings.call_bytes))
    with pool.borrowed() as process:

        def text_of(row: int, page: bytes) -> bytes | None:
            try:
                answer = process.call(settings.extraction.request(page), settings.timeout_seconds)
            except CallFailedError as exc:
                found.failed[row] = str(exc)
                return None
            extractor, _, text = answer.partition(b"\n")
            found.kept[row] = extractor.decode()
            if f"kept_{found.kept[row]}" in counts:
                counts[f"kept_{found.kept[row]}"] += 1
            return text

        found.texts, counts["rows_changed"] = _spliced(texts, settings.max_page_bytes, counts, text_of)
    return found


def _spliced(
    texts: pd.Series, max_page_bytes: int, counts: Counter[str], text_of: Callable[[int, bytes], bytes | None]
) -> tuple[pd.Series, int]:
    """Replace each page with its text, if it has one; return the column and the number of rows changed."""
    first = 0  # row of the column at which the span begins: spans come in order, and count from their chunk

    def pages(span: TextSpan) -> Iterator[Splice]:
        nonlocal first
        for row in range(len(span)):
            start, stop = int(span.offsets[row]), int(span.offsets[row + 1])
            if not (span.data[start:stop] == ord("<")).any():
                continue
            counts["pages_cut"] += stop - start > max_page_bytes
            # The last character may be split, and is then ignored.
            page = span.data[start : min(stop, start + max_page_bytes)].tobytes()
            text = text_of(first + row, page)
            if text is not None:
                yield row, start, stop, text
        first += len(span)

    return splice_texts(texts, pages)
