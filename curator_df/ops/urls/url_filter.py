# SPDX-License-Identifier: Apache-2.0
"""Drop rows by their URL: `keep_urls`, with block lists, allow lists and words."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import dask.dataframe as dd
import numpy as np
import pyarrow.compute as pc

from curator_df.arguments import choose, path_of, require_integer, require_mapping, strings_of
from curator_df.core.columns import require_text
from curator_df.core.ranges.blocks import BlockKernel, Outcome, map_blocks
from curator_df.errors import ParameterError
from curator_df.extras import require_package
from curator_df.io.url_lists import LOAD_BYTES, Paths, find_lists, read_words
from curator_df.kernels.compiling import kernel_sets
from curator_df.kernels.rows.keep_rows import keep_rows
from curator_df.kernels.text.buffers import text_chunks
from curator_df.kernels.urls.listed import normalized
from curator_df.kernels.urls.parts import spans_of
from curator_df.ops.host_only import require_host
from curator_df.ops.urls.url_parts import suffix_list_price
from curator_df.ops.urls.verdicts import Hit, Matching, UrlRules, hits_of

Missing = Literal["keep", "drop"]
"""Treatment of rows without a URL."""
WordList = str | os.PathLike[str] | Sequence[str]
"""Words, or the path of a file with a word on each line."""
NO_URL = "no_url"
OPERATOR = "keep_urls"
# Measured (tests/contracts/memory_server.py, all rows but one kept): 1.1 on URLs of 60 bytes, 1.3 on lists of addresses,
# 1.9 on URLs of 6 bytes.
PEAK_FACTOR = 2.0


def keep_urls(
    df: dd.DataFrame,
    *,
    block_lists: Paths = (),
    allow_lists: Paths = (),
    hard_words: WordList = (),
    soft_words: WordList = (),
    min_soft_words: int = 2,
    substrings: WordList = (),
    matching: Matching = "ut1",
    missing: Missing = "keep",
    url: str = "url",
    storage_options: dict[str, Any] | None = None,
) -> dd.DataFrame:
    r"""Keep the rows whose URL is in no block list and has no banned words.

    Parameters
    ----------
    df : dask.dataframe.DataFrame
        The table.
    block_lists, allow_lists : str, path, list of them, or mapping of names to them
        Lists whose entries drop rows, and lists whose entries keep rows, whatever else matches. Each is a folder with
        files named ``domains``, ``urls`` and ``expressions`` (any of them), as UT1 publishes, or a file with a domain on
        each line; plain or compressed. Without names, lists have the name of the folder or file.
    hard_words : list of str, or a path, optional
        Words of which one drops a row; or the path of a file with a word on each line. A word is a run of ASCII
        letters and digits of the URL.
    soft_words : list of str, or a path, optional
        Words of which ``min_soft_words`` different ones drop a row.
    min_soft_words : int, default 2
        Number of different soft words that drop a row.
    substrings : list of str, or a path, optional
        Texts that drop a row anywhere in its URL, even across words: only ASCII letters and digits of both are compared.
    matching : {"ut1", "datatrove"}
        How URLs are compared. ``"ut1"``: as squidGuard reads the lists of UT1. ``"datatrove"``: with the verdicts of
        datatrove's ``URLFilter``. See Notes.
    missing : {"keep", "drop"}
        What to do with rows whose URL is null, empty, or longer than 64 kB. Lists and words do not apply to them.
    url : str, default "url"
        Column of URLs.
    storage_options : dict, optional
        fsspec options for the lists and files of words.

    Returns
    -------
    dask.dataframe.DataFrame
        The remaining rows in order, with their index. Dropped rows are counted as ``blocked_domain``,
        ``blocked_subdomain`` (only datatrove), ``blocked_url``, ``blocked_expression``, ``hard_word``, ``soft_words``,
        ``substring`` or ``no_url``: the first that applies.

    Raises
    ------
    InputError
        If a list does not exist, has no entries, or is a folder without any of the three files; when computing, if a
        list has changed.
    BadRowError
        If a list is not text in UTF-8, a line is longer than 8 kB, an expression is invalid, or most lines of a list
        of domains or URLs are something else. Single lines of that kind are ignored with a warning.
    ColumnError
        If the column of URLs is missing.
    ParameterError
        If there is nothing to compare with, or a word has neither ASCII letters nor digits.
    MissingExtraError
        If tldextract is not installed (the extra ``urls``).
    UnsupportedBackendError
        If the blocks are cuDF blocks.

    See Also
    --------
    add_url_parts, describe_domains

    Notes
    -----
    Rows: subset. Columns: same. Backends: pandas. Peak extra memory: 2.0 x block, and the lists in each worker: 8 bytes for
    a domain, 16 bytes for a URL, and 33 MB. Computes: no; it reads the lists.

    With ``matching="ut1"``, a domain blocks its host and all hosts below it; hosts are compared as `add_url_parts` makes
    them. A URL blocks all URLs that begin with it, up to the end, a ``/`` or a ``?``; both are compared in lower case,
    without scheme, user, port, fragment, a first label such as ``www`` or ``www2``, and a final ``/``. An expression is a
    regular expression of RE2 (which covers the POSIX expressions of the lists), matched anywhere in the URL in any case.
    Words are compared in any case.

    With ``matching="datatrove"``, a domain blocks URLs with this registered domain or exactly this host, a URL blocks only
    itself, all compared unchanged; words are compared with lower-case words of the URL only, and expressions are
    not used. An empty line of a list blocks nothing.

    In the rejects, ``reject_rule`` is the list and its entry (``adult: example.com``), or the words; for soft words
    ``reject_value`` is their number and ``reject_threshold`` is ``min_soft_words``. The receipt counts dropped rows by list.

    The lists are read when the operator is called, because a resumed run compares their content with that of before, and
    once in each worker. Workers hold 64-bit hashes: an entry is always found, and the chance that another URL is taken
    for one of n entries is n / 2**64 for each lookup.

    References
    ----------
    .. [1] Université Toulouse Capitole, Blacklists UT1, https://dsi.ut-capitole.fr/blacklists/index_en.php
    .. [2] squidGuard, https://www.squidguard.org/Doc/
    .. [3] datatrove 0.10.1, pipeline/filters/url_filter.py, URLFilter
    .. [4] Penedo et al. 2023, https://arxiv.org/abs/2306.01116, appendix G.1: URL filtering of RefinedWeb

    Examples
    --------
    >>> import tempfile, dask.dataframe as dd
    >>> import pandas as pd
    >>> urls = ["http://a.bad.example/x", "https://good.example/", "https://good.example/free-casino-slots"]
    >>> docs = dd.from_pandas(pd.DataFrame({"url": urls}), npartitions=1)
    >>> with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
    ...     _ = file.write("# domains that we do not want\nbad.example\n")
    ...     file.flush()
    ...     docs.pipe(keep_urls, block_lists=file.name, soft_words=["casino", "slots"]).compute()["url"].tolist()
    ['https://good.example/']
    """
    require_text(df, OPERATOR, url, parameter="url")
    require_host(df._meta, OPERATOR)
    choose(OPERATOR, "matching", matching, Matching)
    choose(OPERATOR, "missing", missing, Missing)
    require_integer(OPERATOR, "min_soft_words", min_soft_words)
    if min_soft_words < 1:
        raise ParameterError(f"{OPERATOR}: min_soft_words={min_soft_words} must be at least 1")
    if storage_options is not None:
        require_mapping(OPERATOR, "storage_options", storage_options)
    require_package(OPERATOR, "tldextract", "urls")
    rules = UrlRules(
        find_lists(OPERATOR, "block_lists", block_lists, matching == "datatrove", storage_options),
        find_lists(OPERATOR, "allow_lists", allow_lists, matching == "datatrove", storage_options),
        _words("hard_words", hard_words, storage_options),
        _words("soft_words", soft_words, storage_options),
        int(min_soft_words),
        _words("substrings", substrings, storage_options),
        matching,
    )
    if not (rules.blocked.names or rules.hard_words or rules.soft_words or rules.substrings) and missing == "keep":
        raise ParameterError(
            f"{OPERATOR} has nothing to drop rows by. Pass block_lists=, hard_words=, soft_words= or substrings="
        )
    kernel = BlockKernel(
        OPERATOR,
        keep_urls_block,
        {"rules": rules, "missing": missing, "url": url},
        price=suffix_list_price(PEAK_FACTOR, rules.blocked.held_bytes + rules.allowed.held_bytes + LOAD_BYTES),
        compiled=kernel_sets.CONTENT,
    )
    return map_blocks(df, kernel, meta=df._meta)


def keep_urls_block(block: Any, *, rules: UrlRules, missing: Missing, url: str) -> Outcome:
    """Kernel of `keep_urls`."""
    require_host(block, OPERATOR)
    keep, dropped, lists = np.ones(len(block), dtype=np.bool_), Counter[str](), Counter[str]()
    first = 0
    for hits, rows in _hits(block, rules, missing, url):
        for row, hit in hits.items():
            keep[first + row] = False
            dropped[hit.reason] += 1
            if hit.listed_in is not None:
                lists[hit.listed_in] += 1
        first += rows
    if not dropped:
        return Outcome(block)
    return Outcome(
        keep_rows(block, keep),
        dropped,
        lists,
        rejects=lambda: _rejects(keep_rows(block, ~keep), rules, missing, url),
    )


def _hits(block: Any, rules: UrlRules, missing: Missing, url: str) -> Any:
    """Yield why rows are dropped, by position in a span of rows, and the number of rows of the span."""
    for urls in spans_of(text_chunks(block[url])):
        hits = hits_of(urls, rules)
        if missing == "drop":
            without = pc.fill_null(pc.equal(pc.utf8_trim_whitespace(urls), ""), True)
            hits |= dict.fromkeys(
                np.flatnonzero(without.to_numpy(zero_copy_only=False)).tolist(), Hit(NO_URL, "no URL")
            )
        yield hits, len(urls)


def _rejects(removed: Any, rules: UrlRules, missing: Missing, url: str) -> tuple[Any, Mapping[str, Any]]:
    found = [hits[row] for hits, rows in _hits(removed, rules, missing, url) for row in range(rows)]
    threshold = [float(rules.min_soft_words) if hit.reason == "soft_words" else float("nan") for hit in found]
    return removed, {
        "reason": [hit.reason for hit in found],
        "rule": [hit.rule for hit in found],
        "value": [hit.value for hit in found],
        "threshold": threshold,
    }


def _words(parameter: str, words: WordList, storage_options: Mapping[str, Any] | None) -> tuple[str, ...]:
    """Return words in the form in which they are compared, in order."""
    if isinstance(words, (str, os.PathLike)):
        lines: Sequence[str] = read_words(path_of(OPERATOR, parameter, words), storage_options)
    else:
        lines = strings_of(OPERATOR, parameter, words)
    found = dict.fromkeys(map(normalized, lines))
    if "" in found:
        empty = next(line for line in lines if not normalized(line))
        raise ParameterError(
            f"{OPERATOR}: {parameter}= has {empty!r}, which has neither ASCII letters nor digits, so it cannot be compared"
        )
    return tuple(found)
