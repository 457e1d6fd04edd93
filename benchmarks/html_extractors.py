# SPDX-License-Identifier: Apache-2.0
"""Extractors of `remove_html` on the pages of a crawl: speed of one core, boilerplate left, tables and code kept.

``python benchmarks/html_extractors.py CRAWL.warc.gz`` prints the table of docs/html.md. What counts as boilerplate, table and
code is said by the elements of a page, whatever an extractor thinks of them: texts of at least 3 words inside ``nav``,
``header``, ``footer``, ``aside`` and ``form``; cells of ``td`` with a word; lines of ``pre``, outside of these. A text
counts as kept if it is in the extracted text, white space and Markdown's escapes aside.
"""

from __future__ import annotations

import importlib.metadata
import re
import resource
import sys
import time
from collections.abc import Iterator

import pandas as pd

import curator_df as cdf
from curator_df.kernels.edits.page_extractors import EXTRACTORS, Extraction

WAYS = {
    "resiliparse": ("resiliparse", {}),
    "trafilatura, precision": ("trafilatura", {"favor": "precision"}),
    "trafilatura": ("trafilatura", {}),
    "trafilatura, recall": ("trafilatura", {"favor": "recall"}),
    "trafilatura, Markdown": ("trafilatura", {"markdown": True}),
    "justext": ("justext", {}),
}
BOILERPLATE = "nav|header|footer|aside|form"


def plain(text: str) -> str:
    """Return the letters and digits of a text, with single spaces."""
    return " ".join(re.findall(r"\w+", text.replace("\\", ""), re.ASCII | re.IGNORECASE))


def parts(page: str) -> Iterator[tuple[str, str]]:
    """Yield the texts of a page that are counted, with their kind."""
    from lxml import html

    tree = html.fromstring(page.encode(), parser=html.HTMLParser(encoding="utf-8"))
    inside = " or ".join(f"ancestor::{name}" for name in BOILERPLATE.split("|"))
    for kind, path in (
        ("boilerplate", f"//text()[{inside}][not(ancestor::script or ancestor::style)]"),
        ("table", f"//td[not({inside} or .//td)]"),
        ("code", f"//pre[not({inside})]"),
    ):
        for found in tree.xpath(path):
            text = found if isinstance(found, str) else found.text_content()
            for line in text.splitlines() if kind == "code" else [text]:
                words = plain(line).split()
                if len(words) >= (1 if kind == "table" else 3):
                    yield kind, " ".join(words)


def read_pages(path: str) -> list[str]:
    with cdf.start_cluster(memory="2GB", cpus=1):
        pages: pd.Series = cdf.read_warc(path)["text"].compute()
    return [page for page in pages if isinstance(page, str) and "<" in page and "</" in page]


def passing_seconds(pages: list[str]) -> float:
    """Return the CPU seconds, of both processes, by which a page in the process of an extractor costs more than in this one."""
    from curator_df.memory.killable_process import KillableProcess

    process = KillableProcess("benchmarks.html_extractors:unchanged", 100_000_000)
    process.call(b"", 10)
    before, times = time.perf_counter(), 20
    for page in pages * times:
        process.call(page.encode(), 10)
    seconds = (time.perf_counter() - before) / (times * len(pages))
    process.close()
    return seconds


def unchanged(request: bytes) -> bytes:
    return request


def main() -> None:
    pages = read_pages(sys.argv[1])
    counted = []
    for page in pages:
        try:
            counted.append(list(parts(page)))
        except ValueError:  # a page without an element
            counted.append([])
    size = sum(len(page.encode()) for page in pages)
    versions = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in EXTRACTORS)
    print(f"{len(pages)} pages, {size / 1e6:.0f} MB; {versions}")
    print(
        "| extractor | MB/s per core | ms per page | characters | boilerplate left | table cells kept | code lines kept |"
    )
    print("|---|---|---|---|---|---|---|")
    for title, (name, options) in WAYS.items():
        how = Extraction((name,), 0, options.get("favor"), options.get("markdown", False), "English", True, False)
        EXTRACTORS[name](pages[0], how)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_utime
        texts = [EXTRACTORS[name](page, how) for page in pages]
        seconds = resource.getrusage(resource.RUSAGE_SELF).ru_utime - before
        kept, total = (
            dict.fromkeys(("boilerplate", "table", "code"), 0),
            dict.fromkeys(("boilerplate", "table", "code"), 0),
        )
        for text, found in zip(texts, counted, strict=True):
            shown = f" {plain(text)} "
            for kind, part in found:
                total[kind] += len(part)
                kept[kind] += len(part) * (f" {part} " in shown)
        shares = " | ".join(f"{100 * kept[kind] / max(total[kind], 1):.0f}%" for kind in kept)
        characters = sum(map(len, texts)) / 1e6
        print(
            f"| {title} | {size / 1e6 / seconds:.1f} | {1000 * seconds / len(pages):.1f} | {characters:.1f} M | {shares} |"
        )
    print(f"Passing a page to another process and back: {1e6 * passing_seconds(pages):.0f} microseconds")


if __name__ == "__main__":
    main()
