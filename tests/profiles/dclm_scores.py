# SPDX-License-Identifier: Apache-2.0
"""What DCLM's document filters measure, out of the libraries that they call: a script for a Python that has them.

DCLM is no package. The filters are written down again here from their definitions; how words are cut is left to uniseg and
fastText, and n-grams to nltk, as there. Reads lines of JSON texts; answers each with ``{metric: value}``, and before that
with the version of uniseg.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from importlib.metadata import version

import fasttext
from nltk import ngrams
from uniseg.wordbreak import words as uniseg_words

STOP_WORDS = {"the", "be", "to", "of", "and", "that", "have", "with"}


def quality(text: str) -> dict[str, float]:
    """Return what the filters of documents compare; a text that a filter drops at once has the worst value."""
    words = text.split()
    lines = [line.strip() for line in text.split("\n") if line.strip()]
    without_letters = [word for word in words if not any(map(str.isalpha, word))]
    return {
        "dclm_word_count": sum(word[0].isalnum() for word in fasttext.FastText.tokenize(text)),
        "mean_word_length": sum(map(len, words)) / len(words) if words else 0,
        "dclm_symbol_word_ratio": sum(map(text.count, ("#", "...", ". . .", "…"))) / len(words) if words else 1,
        "dclm_bullet_line_ratio": sum(line.startswith(("●", "•", "*", "-")) for line in lines) / max(len(lines), 1),
        "dclm_ellipsis_line_ratio": sum(line.endswith(("...", ". . .", "…")) for line in lines) / max(len(lines), 1),
        "alpha_word_ratio": 1 - len(without_letters) / len(words) if words else 0,
        "dclm_stop_word_count": sum(word.lower() in STOP_WORDS for word in words),
    }


def of_pieces(pieces: list[str]) -> tuple[float, float]:
    """Return the shares of pieces that occur twice: by number and by characters."""
    if not pieces:
        return 1, 1
    times = Counter(pieces)
    repeated = [piece for piece in pieces if times[piece] > 1]
    return len(repeated) / len(pieces), len("".join(repeated)) / len("".join(pieces))


def of_grams(words: list[str], n: int) -> float:
    """Return the share of the words' characters in the top n-gram (n to 4), or in all that occur twice."""
    grams = list(ngrams(words, n))
    times = Counter(grams)
    most = max(times.values(), default=0)
    if most < 2:
        return 0
    if n < 5:
        longest = max(len("".join(gram)) for gram, count in times.items() if count == most)
        return longest * most / len("".join(words))
    covered = {place for at, gram in enumerate(grams) if times[gram] > 1 for place in range(at, at + n)}
    return sum(len(words[place]) for place in covered) / len("".join(words))


def repetition(text: str) -> dict[str, float]:
    lines = of_pieces([line.strip() for line in text.split("\n") if line.strip()])
    paragraphs = of_pieces([part.strip() for part in text.split("\n\n") if part.strip()])
    words = [word for word in uniseg_words(text) if word[0].isalnum()]
    return {
        "dclm_repeated_line_ratio": lines[0],
        "dclm_repeated_paragraph_ratio": paragraphs[0],
        "dclm_repeated_line_character_ratio": lines[1],
        "dclm_repeated_paragraph_character_ratio": paragraphs[1],
        **{f"dclm_top_{n}_gram_character_ratio": of_grams(words, n) for n in (2, 3, 4)},
        **{f"dclm_repeated_{n}_gram_character_ratio": of_grams(words, n) for n in (5, 6, 7, 8, 9, 10)},
    }


def main() -> None:
    print(json.dumps(version("uniseg")), flush=True)
    for line in sys.stdin:
        text = json.loads(line)
        print(json.dumps({**quality(text), **repetition(text)}), flush=True)


if __name__ == "__main__":
    main()
