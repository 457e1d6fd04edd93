# SPDX-License-Identifier: Apache-2.0
"""Repeated substrings by a sorted array of all suffixes, as the definition reads: for small corpora."""

from itertools import pairwise


def common_prefix(one, other):
    """Return the number of equal bytes at the beginning."""
    length = min(len(one), len(other))
    return next((place for place in range(length) if one[place] != other[place]), length)


def runs_of_windows(texts, window_bytes):
    """Yield the (text, first byte) of all occurrences of each window, in input order."""
    encoded = [(text or "").encode() for text in texts]
    places = [(row, at) for row, text in enumerate(encoded) for at in range(len(text) - window_bytes + 1)]
    places.sort(key=lambda place: (encoded[place[0]][place[1] :], place))
    run = places[:1]
    for (row, at), following in pairwise(places):
        if common_prefix(encoded[row][at:], encoded[following[0]][following[1] :]) < window_bytes:
            yield sorted(run)
            run = []
        run.append(following)
    yield sorted(run)


def covered_bytes(texts, window_bytes, keep="first", max_documents=None):
    """Return for each text the set of bytes to remove, before code points are made whole."""
    covered = [set() for _ in texts]
    for places in runs_of_windows(texts, window_bytes):
        found = len(places) if max_documents is None else len({row for row, _ in places})
        if found > (max_documents or 1):
            for row, at in places[0 if keep == "none" else 1 :]:
                covered[row].update(range(at, at + window_bytes))
    return covered


def without_repeated(texts, window_bytes, keep="first", max_documents=None):
    """Return {number: text} of the rows that stay, and the removed spans and characters."""
    staying, spans, characters = {}, 0, 0
    for row, covered in enumerate(covered_bytes(texts, window_bytes, keep, max_documents)):
        kept, at, removes, removed_here = [], 0, False, 0
        for character in texts[row] or "":
            width = len(character.encode())
            goes = covered.issuperset(range(at, at + width))
            spans += goes and not removes
            removed_here += goes
            removes, at = goes, at + width
            if not goes:
                kept.append(character)
        characters += removed_here
        if not removed_here or "".join(kept).strip(" \t\n\r\x0b\x0c"):
            staying[row] = None if texts[row] is None else "".join(kept)
    return staying, spans, characters
