# SPDX-License-Identifier: Apache-2.0
"""Decide which URLs are kept: by domain, URL, expression, words and parts of words, in this order."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from curator_df.core.fingerprint import fingerprint
from curator_df.io.url_lists import UrlLists, comparable
from curator_df.kernels.urls.listed import HashedLists, has_part, has_word, matches, normalized, words_of
from curator_df.kernels.urls.parts import SplitUrls, split_urls, suffix_list
from curator_df.memory.process_cache import held

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
        return held(("url lists", fingerprint(lists)), lambda: cls.read(lists))

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
