# SPDX-License-Identifier: Apache-2.0
"""Extract the text of a column of HTML pages, one page after the other.

resiliparse (Lexbor's parser) alone runs in this process. trafilatura and jusText, which do not return from some pages, and
several extractors together run in a process for each thread that can be killed (`curator_df.memory.killable_process`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pandas as pd

from curator_df.kernels.edits.page_extractors import MAX_DIV_DEPTH, Extraction, div_depth, resiliparse_text
from curator_df.kernels.edits.splices import Splice, splice_texts
from curator_df.kernels.text.buffers import TextSpan
from curator_df.memory.killable_process import CallFailedError, KillableProcesses
from curator_df.memory.process_cache import held

TARGET = "curator_df.kernels.edits.page_extractors:extract_page"
IDLE_BYTES = 48_000_000
"""Memory of an idle process: 22 MB of private pages were measured with trafilatura and jusText, 35 MB after the crawl sample."""
CALL_FIXED_BYTES = 32_000_000
CALL_FACTOR = 128
"""Memory of a call as a multiple of the page's bytes: at most 42 on the crawl sample for pages over 100 KB. Pages of tags alone
take up to 510 (trafilatura); they fail, and are quarantined, where that is more than is planned."""


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
    pool = held(name, lambda: KillableProcesses(TARGET, settings.call_bytes))
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
