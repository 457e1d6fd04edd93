# SPDX-License-Identifier: Apache-2.0
"""Near duplicates by their definition in one process, with dictionaries, to hold whole runs against."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence

import numpy as np
import pandas as pd

from curator_df.dedup.near.settings import text_bands
from curator_df.kernels.minhash.graphs import component_names, vertices
from curator_df.kernels.minhash.jaccard import TABLE_BYTES, jaccard_similarities
from curator_df.kernels.minhash.residuals import residual_hashes
from curator_df.kernels.minhash.scheme import Scheme
from curator_df.kernels.rows.content_hash import row_hashes


class PlainPairs:
    """Pairs that are compared, of a list of texts."""

    def __init__(self, texts: list, scheme: Scheme, threshold: float | None, anchors: int = 2) -> None:
        self.series = pd.Series(texts, dtype="string[pyarrow]")
        self.scheme, self.threshold, self.anchors = scheme, threshold, anchors
        self.first, self._order, bands, compared = self._contents()
        self.pairs: set[tuple[int, int]] = set()
        crowd: set[tuple[int, int]] = set()
        for band in range(scheme.num_bands):
            buckets = defaultdict(list)
            for number in np.flatnonzero(compared).tolist():
                if self.first[number] == number:
                    buckets[int(bands[number, band])].append(number)
            for members in buckets.values():
                members.sort(key=lambda number: self._order[number])
                for place, member in enumerate(members):
                    for anchor in members[: min(place, anchors)]:
                        self.pairs.add(pair_of(member, anchor))
                        if place >= anchors and len(members) > anchors + 1:
                            crowd.add((member, anchor))
        if threshold is not None:
            for _ in range(3):
                crowd = self._pairs_of_crowd(crowd)

    def _contents(self) -> tuple[list[int], list[int], np.ndarray, np.ndarray]:
        """Return the first row with each row's text, the order of contents, the band hashes, and which rows have any."""
        block = pd.DataFrame({"text": self.series})
        nothing = self.series.notna() & (self.series.fillna("").str.strip() == "")
        contents = row_hashes(block.mask(nothing, "") if self.scheme.normalize else block, ("text",))
        bands, compared = text_bands(block, text="text", scheme=self.scheme, signatures=None)
        same: dict = {}
        first = [same.setdefault(tuple(content), number) for number, content in enumerate(contents.tolist())]
        return first, [int(content) for content in contents[:, 0]], bands, compared

    def similarities(self, pairs: Sequence[tuple[int, int]]) -> np.ndarray:
        """Return the exact similarities."""
        found = np.array(pairs, dtype=np.int64).reshape(-1, 2)
        return jaccard_similarities(self.series, self.series, found, self.scheme)

    def _pairs_of_crowd(self, crowd: set[tuple[int, int]]) -> set[tuple[int, int]]:
        """Add the pairs of rows that share a shingle of their own; return the rows of new crowds with their anchors."""
        asked = sorted(crowd)
        if not asked:
            return set()
        is_like = self.similarities(asked) >= 0.5 * self.threshold
        asked = [pair for pair, chosen in zip(asked, is_like, strict=True) if chosen]
        pairs = np.array(asked, dtype=np.int64).reshape(-1, 2)
        hashes, numbers = residual_hashes(self.series, pairs, self.scheme, table_bytes=TABLE_BYTES)
        rows = defaultdict(set)
        for shingle, number in zip(hashes.tolist(), numbers.tolist(), strict=True):
            rows[shingle].add(asked[number][0])
        found = set()
        for some in map(sorted, rows.values()):
            for place in range(1, len(some)):
                others = {some[0], *some[max(place - 2, 0) : place]}
                self.pairs |= {pair_of(some[place], other) for other in others}
                if len(some) > 4:
                    found.add((some[place], some[0]))
        return found

    def verified(self) -> dict[tuple[int, int], float]:
        """Return the similar pairs with their similarities, and the rows with the same text."""
        pairs = sorted(self.pairs)
        if self.threshold is None:
            found = dict.fromkeys(pairs, np.nan)
        else:
            similar = self.similarities(pairs)
            found = {pair: float(j) for pair, j in zip(pairs, similar, strict=True) if j >= self.threshold}
        return found | {pair_of(number, other): 1.0 for number, other in enumerate(self.first) if number != other}


def pair_of(one: int, two: int) -> tuple[int, int]:
    """Return a pair with the smaller row first."""
    return (one, two) if one < two else (two, one)


def plain_groups(texts: list, scheme: Scheme, threshold: float | None, anchors: int = 2) -> np.ndarray:
    """Return the first row of each row's group, where groups are joined through other rows."""
    joined = np.array(sorted(PlainPairs(texts, scheme, threshold, anchors).verified()), dtype=np.int64).reshape(-1, 2)
    names = np.arange(len(texts))
    ids = vertices([joined])
    names[ids] = component_names(ids, [joined])
    return names


def greedy(neighbors: dict[int, dict[int, float]], order: Sequence[int]) -> dict[int, tuple[int, float]]:
    """Return the most similar kept row before it, and the similarity, of each dropped row."""
    place = {row: at for at, row in enumerate(order)}
    matches: dict[int, tuple[int, float]] = {}
    for row in order:
        kept = [other for other in neighbors[row] if place[other] < place[row] and other not in matches]
        if kept:
            best = min(kept, key=lambda other: (-neighbors[row][other], place[other]))
            matches[row] = best, neighbors[row][best]
    return matches


def plain_matches(
    texts: list, scheme: Scheme, threshold: float, order: Sequence[int] | None = None
) -> dict[int, tuple[int, float]]:
    """Return the kept row that each dropped row matches, with the similarity; ``order`` begins with the preferred row."""
    pairs = PlainPairs(texts, scheme, threshold)
    preferred = list(range(len(texts)) if order is None else order)
    named: dict[int, int] = {}
    for row in preferred:  # of rows with the same text, the preferred one stands for all
        named.setdefault(pairs.first[row], row)
    edges = {pair: j for pair, j in pairs.verified().items() if pairs.first[pair[0]] != pairs.first[pair[1]]}
    some = sorted({row for pair in edges for row in pair}, key=lambda row: preferred.index(named[row]))
    matches = with_all_asked(edges, some, pairs.similarities, threshold)
    found = {}
    for row in preferred:
        first = pairs.first[row]
        if first in matches:
            found[row] = named[matches[first][0]], matches[first][1]
        elif named[first] != row:
            found[row] = named[first], 1.0
    return found


def with_all_asked(
    edges: dict[tuple[int, int], float], order: Sequence[int], similarities: Callable, threshold: float
) -> dict[int, tuple[int, float]]:
    """Return the matches of a greedy cover after all its questions were answered."""
    asked: set[tuple[int, int]] = set()
    while True:
        neighbors: dict[int, dict[int, float]] = {row: {} for row in order}
        for (one, two), j in edges.items():
            neighbors[one][two] = neighbors[two][one] = j
        matches = greedy(neighbors, order)
        new = {
            pair_of(row, matches[other][0])
            for row in order
            if row not in matches
            for other in neighbors[row]
            if other in matches and matches[other][0] != row
        } - asked
        asked |= new
        answers = sorted(new)
        more = (
            {pair: float(j) for pair, j in zip(answers, similarities(answers), strict=True) if j >= threshold}
            if answers
            else {}
        )
        if not more:
            return matches
        edges = edges | more
