# SPDX-License-Identifier: Apache-2.0
"""Drop rows by their URL: `keep_urls`, with block lists, allow lists and words.

A URL is compared by domain, URL, expression, words and parts of words, in this order.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import dask.dataframe as dd
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from curator_df.arguments import choose, path_of, require_integer, require_mapping, strings_of
from curator_df.core.columns import require_text
from curator_df.core.fingerprint import fingerprint
from curator_df.core.ranges.blocks import BlockKernel, Outcome, map_blocks
from curator_df.errors import ParameterError
from curator_df.extras import require_package
from curator_df.io.url_lists import LOAD_BYTES, Paths, UrlLists, comparable, find_lists, read_words
from curator_df.kernels.compiling import kernel_sets
from curator_df.kernels.rows.keep_rows import keep_rows
from curator_df.kernels.text.buffers import text_chunks
from curator_df.kernels.urls.listed import HashedLists, has_part, has_word, matches, normalized, words_of
from curator_df.kernels.urls.parts import SplitUrls, spans_of, split_urls, suffix_list
from curator_df.memory.process_cache import cached
from curator_df.ops.host_only import require_host
from curator_df.ops.urls.url_parts import suffix_list_price

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
            f"{OPERATOR}: {parameter}= has {empty!r}, which has neither ASCII letters nor digits. "
            "Only these are compared with URLs. Remove the word"
        )
    return tuple(found)


Matching = Literal["ut1", "datatrove"]
"""Way in which URLs are compared with lists and words."""
_RAW_AUTHORITY = r"^(?:(?:[A-Za-z0-9+.\-]+:)?//)?(?P<authority>[^/?#]*)"
CANDIDATE_CHARS = 1_000_000
"""Number of characters of the beginnings of URLs that are looked up together."""
_BOUNDARY = re.compile(r"[/?]")


@dataclass(frozen=True)
class UrlRules:
    """Lists and words of `keep_urls`."""

    blocked: UrlLists
    """Lists whose entries drop a row."""
    allowed: UrlLists
    """Lists whose entries keep a row, whatever else matches."""
    hard_words: tuple[str, ...]
    """Words of which one drops a row."""
    soft_words: tuple[str, ...]
    """Words of which several drop a row."""
    min_soft_words: int
    """Number of different soft words that drop a row."""
    substrings: tuple[str, ...]
    """Letters and digits that drop a row wherever they stand."""
    matching: Matching
    """Way in which URLs are compared."""

    @property
    def digested_files(self) -> dict[str, str]:
        """Digest of each file of a list, by path."""
        return {file.path: file.digest for file in (*self.blocked.files, *self.allowed.files)}

    @property
    def is_raw(self) -> bool:
        """True if URLs are compared in the way of datatrove."""
        return self.matching == "datatrove"


@dataclass(frozen=True)
class Hit:
    """Why a row is dropped."""

    reason: str
    """Name under which the row is counted."""
    rule: str
    """List and entry, or word."""
    listed_in: str | None = None
    """Name of the list."""
    value: float = float("nan")
    """Number of different soft words."""


@dataclass(frozen=True)
class _Entry:
    reason: str
    number: int
    """Number of the list."""
    entry: str


@dataclass
class Lookups:
    """Hashes of lists in a process."""

    lists: UrlLists
    """Files that were read."""
    domains: HashedLists
    """Domains."""
    urls: HashedLists
    """URLs, in the form in which they are compared."""
    url_hosts: HashedLists
    """First parts of these URLs, in one list."""

    @classmethod
    def of(cls, lists: UrlLists) -> Lookups:
        """Return the lookups of this process, which are made once."""
        return cached(("url lists", fingerprint(lists)), lambda: cls.read(lists))

    @classmethod
    def read(cls, lists: UrlLists) -> Lookups:
        """Read the lists."""
        return cls(lists, lists.domains(), *lists.urls())


def hits_of(urls: pa.Array, rules: UrlRules) -> dict[int, Hit]:
    """Return why rows are dropped, by position. A null URL is not dropped."""
    split = None if rules.is_raw else split_urls(urls)
    found = _listed(urls, split, Lookups.of(rules.blocked))
    hits = {
        row: Hit(hit.reason, f"{name}: {hit.entry}", name)
        for row, hit in found.items()
        for name in (rules.blocked.names[hit.number],)
    }
    for reason, wanted, explain in _word_rules(urls, rules):
        for row in np.flatnonzero(wanted).tolist():
            if row not in hits and (hit := explain(urls[row].as_py(), reason)) is not None:
                hits[row] = hit
    if hits and rules.allowed.names:
        rows = sorted(hits)
        some = urls.take(pa.array(rows))
        for place in _listed(some, None if rules.is_raw else split_urls(some), Lookups.of(rules.allowed)):
            del hits[rows[place]]
    return hits


def _word_rules(
    urls: pa.Array, rules: UrlRules
) -> Iterator[tuple[str, npt.NDArray[np.bool_], Callable[[str, str], Hit | None]]]:
    """Yield for each rule on words its reason, the rows that may break it, and a function that says whether one does."""

    def words(url: str) -> set[str]:
        return words_of(url if rules.is_raw else url.lower())

    def hard(url: str, reason: str) -> Hit:
        own = words(url)
        return Hit(reason, next(word for word in rules.hard_words if word in own))

    def soft(url: str, reason: str) -> Hit | None:
        own = words(url)
        found = [word for word in rules.soft_words if word in own]
        return Hit(reason, ", ".join(found), value=len(found)) if len(found) >= rules.min_soft_words else None

    def part(url: str, reason: str) -> Hit:
        letters = normalized(url)
        return Hit(reason, next(part for part in rules.substrings if part in letters))

    ignore_case = not rules.is_raw
    if rules.hard_words:
        yield "hard_word", has_word(urls, rules.hard_words, ignore_case=ignore_case), hard
    if rules.soft_words:
        yield "soft_words", has_word(urls, rules.soft_words, ignore_case=ignore_case), soft
    if rules.substrings:
        yield "substring", has_part(urls, rules.substrings), part


def _listed(urls: pa.Array, split: SplitUrls | None, lookups: Lookups) -> dict[int, _Entry]:
    """Return the entry that each row matches first, by position."""
    if not lookups.lists.names:
        return {}
    if split is None:
        return _raw_domains(urls, lookups)
    found = _domains(split, lookups.domains)
    found |= {row: hit for row, hit in _urls(split, lookups).items() if row not in found}
    for number, pattern in lookups.lists.expressions:
        for row in np.flatnonzero(matches(urls, pattern)).tolist():
            found.setdefault(row, _Entry("blocked_expression", number, pattern))
    return found


def _first_found(candidates: list[list[str]], lists: HashedLists) -> list[tuple[int, int] | None]:
    """Return for each item the place of its first candidate that is in a list, and the number of the list."""
    flat = pa.array([text for own in candidates for text in own], pa.large_string())
    numbers = lists.find(flat).tolist()
    found: list[tuple[int, int] | None] = []
    at = 0
    for own in candidates:
        hit = next((place for place in range(len(own)) if numbers[at + place] >= 0), None)
        found.append(None if hit is None else (hit, numbers[at + hit]))
        at += len(own)
    return found


def _rows_by_code(codes: npt.NDArray[np.int32], wanted: list[int]) -> Iterator[tuple[int, int]]:
    """Yield each row whose code is wanted, with the code."""
    if wanted:
        for row in np.flatnonzero(np.isin(codes, wanted)).tolist():
            yield row, int(codes[row])


def with_parents(host: str) -> list[str]:
    """Return a host and the domains above it, longest first; an address has none.

    Examples
    --------
    >>> with_parents("a.b.com"), with_parents("10.0.0.1")
    (['a.b.com', 'b.com', 'com'], ['10.0.0.1'])
    """
    labels = host.split(".")
    if host.startswith("[") or labels[-1].isdecimal():
        return [host]
    return [".".join(labels[place:]) for place in range(len(labels))]


def _domains(split: SplitUrls, domains: HashedLists) -> dict[int, _Entry]:
    if not len(domains.hashes):
        return {}
    candidates = [with_parents(host) for host in split.hosts]
    entries = {
        code: _Entry("blocked_domain", hit[1], candidates[code][hit[0]])
        for code, hit in enumerate(_first_found(candidates, domains))
        if hit is not None
    }
    return {row: entries[code] for row, code in _rows_by_code(split.codes, list(entries))}


def _urls(split: SplitUrls, lookups: Lookups) -> dict[int, _Entry]:
    if not len(lookups.urls.hashes):
        return {}
    first_parts = pa.array([comparable(host, "") for host in split.hosts], pa.large_string())
    wanted = np.flatnonzero(lookups.url_hosts.find(first_parts) >= 0).tolist()
    found: dict[int, _Entry] = {}
    rows, candidates, chars = list[int](), list[list[str]](), 0
    for row, code in [*_rows_by_code(split.codes, wanted), (-1, -1)]:
        if row < 0 or chars > CANDIDATE_CHARS:
            for place, hit in enumerate(_first_found(candidates, lookups.urls)):
                if hit is not None:
                    found[rows[place]] = _Entry("blocked_url", hit[1], candidates[place][hit[0]])
            rows, candidates, chars = [], [], 0
        if row >= 0:
            rest = split.paths[row].as_py() + split.queries[row].as_py()
            candidates.append(_prefixes(comparable(split.hosts[code], rest), lookups.lists.longest_url))
            rows.append(row)
            chars += sum(map(len, candidates[-1]))
    return found


def _prefixes(key: str, longest: int) -> list[str]:
    """Return a URL and its beginnings up to each slash and question mark, longest first, of at most ``longest`` characters."""
    stops = [found.start() for found in _BOUNDARY.finditer(key, 0, longest + 1)]
    return ([key] if len(key) <= longest else []) + [key[:stop] for stop in reversed(stops)]


def _raw_domains(urls: pa.Array, lookups: Lookups) -> dict[int, _Entry]:
    """Return the entries that rows match as datatrove compares them: registered domain, host, and the unchanged URL."""
    found = pc.struct_field(pc.extract_regex(urls, _RAW_AUTHORITY), "authority").dictionary_encode()
    codes = pc.fill_null(found.indices, -1).to_numpy(zero_copy_only=False)
    parts = [suffix_list()(authority) for authority in found.dictionary.to_pylist()]
    candidates = [[part.top_domain_under_public_suffix, part.fqdn] for part in parts]
    entries: dict[int, _Entry] = {}
    for code, hit in enumerate(_first_found(candidates, lookups.domains)):
        if hit is not None:
            reason = ("blocked_domain", "blocked_subdomain")[hit[0]]
            entries[code] = _Entry(reason, hit[1], candidates[code][hit[0]])
    hits = {row: entries[code] for row, code in _rows_by_code(codes, list(entries))}
    numbers = np.where(pc.is_valid(urls).to_numpy(zero_copy_only=False), lookups.urls.find(urls), -1)
    for row in np.flatnonzero(numbers >= 0).tolist():
        hits.setdefault(row, _Entry("blocked_url", int(numbers[row]), urls[row].as_py()))
    return hits
