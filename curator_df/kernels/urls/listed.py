# SPDX-License-Identifier: Apache-2.0
"""Look up texts in lists of millions of entries, held as sorted 64-bit hashes; and find words of URLs.

The hash is the first half of MurmurHash3_x64_128. A lookup in lists of n entries gives a wrong hit with a chance of n / 2**64:
of 10**10 lookups in a million entries, one in about 2,000 such runs has one. A text that is in a list is always found.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from curator_df.kernels.rows.content_hash import span_hashes
from curator_df.kernels.text.buffers import array_spans

ENTRY_BYTES = 8
"""Memory of an entry of a list, in bytes."""
ALTERNATIVES_CHARS = 4_000
"""Maximum length of the words of one regular expression, which RE2 compiles within its limit of memory."""
_OTHER = re.compile(r"[^a-zA-Z0-9]+")


def hashes_of(texts: pa.Array) -> npt.NDArray[np.uint64]:
    """Return the hash of each text, shape (texts,); the one of null is undefined."""
    parts = [span_hashes(span.data, span.offsets)[:, 0] for span in array_spans(texts)]
    return np.concatenate(parts) if parts else np.empty(0, dtype=np.uint64)


@dataclass(frozen=True)
class HashedLists:
    """Entries of several lists as hashes."""

    hashes: npt.NDArray[np.uint64]
    """Hashes of all lists, those of a list together and ascending, shape (entries,)."""
    bounds: tuple[int, ...]
    """Position of the first hash of each list, and the end of the last."""

    @classmethod
    def of(cls, lists: Iterable[Iterable[pa.Array]], entries: int) -> HashedLists:
        """Hash lists, given in batches, with ``entries`` entries in all."""
        hashes, bounds = np.empty(entries, dtype=np.uint64), [0]
        for batches in lists:
            stop = bounds[-1]
            for batch in batches:
                hashes[stop : stop + len(batch)] = hashes_of(batch)
                stop += len(batch)
            hashes[bounds[-1] : stop].sort()  # in place
            bounds.append(stop)
        return cls(hashes, tuple(bounds))

    def find(self, texts: pa.Array) -> npt.NDArray[np.int32]:
        """Return the number of the first list that contains each text, -1 if none does.

        Examples
        --------
        >>> lists = HashedLists.of([[pa.array(["b", "a"])], [pa.array(["a", "c"])]], 4)
        >>> lists.find(pa.array(["c", "a", "d"])).tolist()
        [1, 0, -1]
        """
        found = np.full(len(texts), -1, dtype=np.int32)
        if not len(self.hashes) or not len(texts):
            return found
        wanted = hashes_of(texts)
        for number in range(len(self.bounds) - 2, -1, -1):  # the first list is written last
            own = self.hashes[self.bounds[number] : self.bounds[number + 1]]
            if len(own):
                places = np.minimum(np.searchsorted(own, wanted), len(own) - 1)
                found[own[places] == wanted] = number
        return found


def normalized(text: str) -> str:
    """Return the ASCII letters and digits of a text, in lower case.

    Examples
    --------
    >>> normalized("Free-Prizes 24!")
    'freeprizes24'
    """
    return _OTHER.sub("", text).lower()


def words_of(url: str) -> set[str]:
    """Return the runs of ASCII letters and digits of a URL."""
    return {word for word in _OTHER.split(url) if word}


def has_word(urls: pa.Array, words: Sequence[str], *, ignore_case: bool) -> npt.NDArray[np.bool_]:
    """Return which URLs contain one of some words between characters that are neither ASCII letters nor digits.

    Examples
    --------
    >>> has_word(pa.array(["x.com/Slots-now", "x.com/slotsnow"]), ["slots"], ignore_case=True).tolist()
    [True, False]
    """
    patterns = (rf"(?:^|[^a-zA-Z0-9])(?:{some})(?:[^a-zA-Z0-9]|$)" for some in _alternatives(words))
    return _any_match(urls, patterns, ignore_case=ignore_case)


def has_part(urls: pa.Array, parts: Sequence[str]) -> npt.NDArray[np.bool_]:
    """Return which URLs contain one of some texts after `normalized`."""
    letters = pc.ascii_lower(pc.replace_substring_regex(urls, "[^a-zA-Z0-9]+", ""))
    return _any_match(letters, _alternatives(parts), ignore_case=False)


def matches(urls: pa.Array, pattern: str) -> npt.NDArray[np.bool_]:
    """Return which URLs match a regular expression of RE2 anywhere, in any case."""
    return _any_match(urls, [pattern], ignore_case=True)


def _any_match(urls: pa.Array, patterns: Iterable[str], *, ignore_case: bool) -> npt.NDArray[np.bool_]:
    found = np.zeros(len(urls), dtype=np.bool_)
    for pattern in patterns:
        hit = pc.match_substring_regex(urls, pattern, ignore_case=ignore_case)
        found |= pc.fill_null(hit, False).to_numpy(zero_copy_only=False)
    return found


def _alternatives(words: Sequence[str]) -> Iterator[str]:
    """Yield words, which are letters and digits, joined to alternatives of limited length."""
    some, length = list[str](), 0
    for word in words:
        if some and length + len(word) > ALTERNATIVES_CHARS:
            yield "|".join(some)
            some, length = [], 0
        some.append(word)
        length += len(word) + 1
    if some:
        yield "|".join(some)
