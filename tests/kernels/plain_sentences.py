# SPDX-License-Identifier: Apache-2.0
"""The rule of sentences in plain Python. It imports nothing of the package, so that a peer's Python can use it too."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import NamedTuple


class Marks(NamedTuple):
    """What the rule knows of characters and words."""

    symbols: Collection[str]
    terminals: Collection[str]
    closers: str
    abbreviations: Collection[str]


def ends_sentence(word: str, marks: Marks) -> bool:
    bare = word.rstrip(marks.closers)
    if not bare or bare[-1] not in marks.terminals:
        return False
    if bare[-1] != "." or bare == ".":
        return True
    is_initial = len(bare) == 2 and bare[0].isalpha()
    is_lone_capital = bare[-2].isupper() and not bare[-3:-2].isupper()
    return not (bare.endswith("..") or is_initial or is_lone_capital or bare in marks.abbreviations)


def sentences(line: str, marks: Marks) -> int:
    count, has_ended = 1, False
    for word in line.split():
        if has_ended and any(character not in marks.symbols for character in word):
            count, has_ended = count + 1, False
        count += len(re.findall(r"(?<=[a-z])\.(?=[A-Z])", word))
        has_ended = has_ended or ends_sentence(word, marks)
    return count
