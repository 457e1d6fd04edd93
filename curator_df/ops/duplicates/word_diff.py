# SPDX-License-Identifier: Apache-2.0
"""Word-by-word comparison of two texts, for people who judge whether one is a copy of the other."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from typing import Literal, NamedTuple

MOST_WORDS = 400
"""Number of words of each text that are compared, from the first difference on: the time grows with their product."""
CONTEXT_WORDS = 30
"""Number of equal words that are shown before and after a difference."""


class Piece(NamedTuple):
    """Consecutive words of one or of both texts."""

    kind: Literal["same", "left", "right", "skipped"]
    """Text that has the words: both, only the left one, only the right one; "skipped" for words that are not shown."""
    words: str
    """The words; for "skipped", a note of how many they are."""


def word_diff(left: str, right: str, *, most_words: int = MOST_WORDS, context: int = CONTEXT_WORDS) -> list[Piece]:
    """Compare two texts word by word.

    Equal beginnings and ends are found in one pass; only the words between are aligned, up to ``most_words`` of each text.

    Parameters
    ----------
    left, right : str
        Texts of any length. White space only separates words.
    most_words : int
        Number of words to align.
    context : int
        Number of equal words to show around a difference.

    Examples
    --------
    >>> [tuple(piece) for piece in word_diff("a b c d", "a x c d")]
    [('same', 'a'), ('left', 'b'), ('right', 'x'), ('same', 'c d')]
    """
    one, two = left.split(), right.split()
    begin = 0
    while begin < min(len(one), len(two)) and one[begin] == two[begin]:
        begin += 1
    end = 0
    while end < min(len(one), len(two)) - begin and one[-1 - end] == two[-1 - end]:
        end += 1
    middle_one, middle_two = one[begin : len(one) - end], two[begin : len(two) - end]
    pieces = _shortened(one[:begin], context, has_before=False, has_after=bool(middle_one or middle_two))
    matcher = difflib.SequenceMatcher(None, middle_one[:most_words], middle_two[:most_words], autojunk=False)
    codes = matcher.get_opcodes()
    for number, (tag, i1, i2, j1, j2) in enumerate(codes):
        if tag == "equal":
            has_before, has_after = number > 0 or begin > 0, number < len(codes) - 1 or end > 0
            pieces += _shortened(middle_one[i1:i2], context, has_before=has_before, has_after=has_after)
            continue
        pieces += [Piece("left", " ".join(middle_one[i1:i2]))] if i2 > i1 else []
        pieces += [Piece("right", " ".join(middle_two[j1:j2]))] if j2 > j1 else []
    left_over = [max(len(middle) - most_words, 0) for middle in (middle_one, middle_two)]
    if any(left_over):
        pieces.append(Piece("skipped", f"{left_over[0]:,} and {left_over[1]:,} more words that differ"))
    return pieces + _shortened(
        one[len(one) - end :], context, has_before=bool(middle_one or middle_two), has_after=False
    )


def _shortened(words: list[str], context: int, *, has_before: bool, has_after: bool) -> list[Piece]:
    """Return equal words, without those that are far from a difference."""
    first, last = context if has_before else 0, context if has_after else 0
    if not (has_before or has_after):
        first = context
    if len(words) <= first + last:
        return [Piece("same", " ".join(words))] if words else []
    pieces = [Piece("same", " ".join(words[:first]))] if first else []
    pieces.append(Piece("skipped", f"{len(words) - first - last:,} equal words"))
    return pieces + ([Piece("same", " ".join(words[len(words) - last :]))] if last else [])


def as_marked_text(pieces: Sequence[Piece]) -> str:
    """Return a comparison as text: words of the left text in ``[- -]``, of the right one in ``{+ +}``.

    Examples
    --------
    >>> as_marked_text(word_diff("a b c", "a x c"))
    'a [-b-] {+x+} c'
    """
    marks = {"same": "{}", "left": "[-{}-]", "right": "{{+{}+}}", "skipped": "[... {} ...]"}
    return " ".join(marks[piece.kind].format(piece.words) for piece in pieces)
