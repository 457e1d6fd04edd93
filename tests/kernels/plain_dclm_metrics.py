# SPDX-License-Identifier: Apache-2.0
"""The metrics of DCLM in plain Python, from their definitions: what the compiled pass is held to."""

from __future__ import annotations

import re
from collections import Counter

from curator_df.kernels.metrics.counts import REPEATED_GRAMS, STOP_WORDS, TOP_GRAMS
from curator_df.kernels.text.word_break import KIND, KINDS, PICTOGRAPH, word_break_classes
from tests.kernels.plain_web_metrics import grams, repeated, share

# A letter for each kind, other characters first; what WB4 skips is x, a joiner j.
LETTERS = dict(zip(KINDS, "oAHNKELMBSDxxj", strict=True))
# What stands before and after a place that is no boundary, two characters each: WB5 to WB13b.
JOINED = re.compile(
    r"[AH]\|[AHN]|[AH]\|[LBS][AH]|[AH][LBS]\|[AH]|H\|S|H\|DH|HD\|H|N\|[AHN]|N[MBS]\|N|N\|[MBS]N|K\|K|[AHNKE]\|E|E\|[AHNK]"
)
NEW_LINES = "\r\n\x0b\x0c\x85\u2028\u2029"


def unicode_words(text: str) -> list[str]:
    """Cut a text by UAX #29, but for what no word with a letter or digit in front has: CR LF, runs of spaces, flags."""
    classes = [word_break_classes()[ord(character)] for character in text]
    kinds = [LETTERS[KINDS[flags & KIND]] for flags in classes]
    solid = "".join(kinds).replace("x", "").replace("j", "")
    words: list[str] = []
    before = 0
    for at, (character, kind) in enumerate(zip(text, kinds, strict=True)):
        if kind in "xj":
            is_joined = at > 0 and text[at - 1] not in NEW_LINES
        else:
            context = f"{solid[max(before - 2, 0) : before]}|{solid[before : before + 2]}"
            is_pictograph = at > 0 and kinds[at - 1] == "j" and classes[at] & PICTOGRAPH
            is_joined = bool(is_pictograph or JOINED.search(context))
            before += 1
        words[-1:] = [words[-1] + character] if is_joined else [*words[-1:], character]
    return words


def spoken_words(text: str) -> list[str]:
    return [word for word in unicode_words(text) if word[0].isalnum()]


def of_pieces(text: str, separator: str, name: str) -> dict[str, float]:
    pieces = [piece.strip() for piece in text.split(separator) if piece.strip()]
    return {
        f"dclm_repeated_{name}_ratio": share(len(repeated(pieces)), len(pieces), 1),
        f"dclm_repeated_{name}_character_ratio": share(len("".join(repeated(pieces))), len("".join(pieces)), 1),
    }


def top_characters(words: list[str], n: int) -> int:
    times = Counter(grams(words, n))
    most = max(times.values(), default=0)
    return max((most * len("".join(gram)) for gram, count in times.items() if count == most > 1), default=0)


def repeated_characters(words: list[str], n: int) -> int:
    times = Counter(grams(words, n))
    places = {place for at, gram in enumerate(grams(words, n)) if times[gram] > 1 for place in range(at, at + n)}
    return sum(len(words[place]) for place in places)


def dclm_metrics(text: str) -> dict[str, float]:
    words = text.split()
    lines = [line.strip() for line in text.split("\n") if line.strip()]
    spoken = spoken_words(text)
    letters = len("".join(spoken))
    return {
        "dclm_word_count": sum(word[0].isalnum() for word in re.findall(r"[^ \t\n\v\f\r\0]+", text)),
        "dclm_symbol_word_ratio": share(sum(map(text.count, ("#", "...", ". . .", "…"))), len(words), 1),
        "dclm_bullet_line_ratio": share(sum(line.startswith(("●", "•", "*", "-")) for line in lines), len(lines)),
        "dclm_ellipsis_line_ratio": share(sum(line.endswith(("...", ". . .", "…")) for line in lines), len(lines)),
        "dclm_stop_word_count": sum(word.lower() in STOP_WORDS for word in words),
        **of_pieces(text, "\n", "line"),
        **of_pieces(text, "\n\n", "paragraph"),
        **{f"dclm_top_{n}_gram_character_ratio": share(top_characters(spoken, n), letters) for n in TOP_GRAMS},
        **{
            f"dclm_repeated_{n}_gram_character_ratio": share(repeated_characters(spoken, n), letters)
            for n in REPEATED_GRAMS
        },
    }
