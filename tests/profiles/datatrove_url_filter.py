# SPDX-License-Identifier: Apache-2.0
"""Verdicts of datatrove's `URLFilter` on URLs, by its own released code: a script for a Python that has datatrove 0.10.1.

Reads an object of JSON with the lists (``domains``, ``urls``, ``hard``, ``soft``, ``parts``), ``min_soft_words`` and
``input``, and writes the reason of each URL, null for a URL that is kept. The lists that datatrove contains are not
used, and its public suffix list is the one in tldextract.
"""

from __future__ import annotations

import json
import sys

from datatrove.data import Document
from datatrove.pipeline.filters.url_filter import URLFilter
from tldextract import TLDExtract


def main() -> None:
    given = json.load(sys.stdin)
    judge = URLFilter(
        soft_word_threshold=given["min_soft_words"],
        extra_domains=given["domains"],
        extra_urls=given["urls"],
        banned_words=given["hard"],
        banned_subwords=given["parts"],
        soft_banned_words=given["soft"],
        use_integrated_lists=False,
    )
    judge.tldextractor = TLDExtract(cache_dir=None, suffix_list_urls=())
    verdicts = (judge.filter(Document(text="", id="", metadata={"url": url})) for url in given["input"])
    json.dump([None if verdict is True else verdict[1] for verdict in verdicts], sys.stdout)


main()
