# SPDX-License-Identifier: Apache-2.0
"""The metrics of NeMo Curator and dolma in plain Python, from their definitions: what the compiled pass is held to."""

from __future__ import annotations

import re
import statistics
import unicodedata
from collections import Counter

from curator_df.kernels.metrics.counts import REPEATED_GRAMS, STOP_WORDS, TOP_GRAMS
from curator_df.kernels.metrics.nemo.character_counts import ALPHABETIC, character_classes

URL = re.compile(r"https?://[!$-_a-z]+")
BULLETS = tuple("•‣⁃⁌⁍∙○●◘◦⦾⦿")
MARKS = ("...", "[...]", "…", "(...)", "[…]", "-»")
PHRASES = (
    "terms of use",
    "privacy policy",
    "cookie policy",
    "uses cookies",
    "privacy overview",
    "use of cookies",
    "use cookies",
    "privacy & cookies policy",
    "privacy and cookies policy",
)


def share(part: float, whole: float, undefined: float = 0) -> float:
    return part / whole if whole else undefined


def is_alphabetic(character: str) -> bool:
    """Python has no such property; letters, marks of the table, and nothing that is neither letter, mark nor symbol."""
    found = bool(character_classes()[ord(character)] & ALPHABETIC)
    assert found or not character.isalpha()
    assert not found or unicodedata.category(character)[0] in "LM" or unicodedata.category(character) in ("Nl", "So")
    return found


def grams(words: list[str], n: int) -> list[tuple[str, ...]]:
    return [tuple(words[at : at + n]) for at in range(len(words) - n + 1)]


def top_gram(words: list[str], n: int) -> tuple[tuple[str, ...], int]:
    return max(Counter(grams(words, n)).items(), key=lambda item: item[1], default=((), 0))


def removed_ratio(text: str, words: list[str], n: int) -> float:
    if len(words) < n:
        return 1
    gone = text.replace(" ".join(top_gram(words, n)[0]), "")
    return share(len(text) - len(gone), len(text), 1)


def duplicate_ratio(text: str, words: list[str], n: int) -> float:
    if len(words) < n:
        return 1
    seen: set[tuple[str, ...]] = set()
    covered: set[int] = set()
    characters = 0
    for at, gram in enumerate(grams(words, n)):
        if gram in seen:
            new = [number for number in range(at, at + n) if number not in covered]
            characters += sum(len(words[number]) for number in new) + min(len(new), n - 1)
            covered.update(new)
        seen.add(gram)
    return share(characters, len(text), 1)


def nemo_metrics(text: str) -> dict[str, float]:
    words = text.split()
    lines = [line for line in text.split("\n") if line.strip()]
    paragraphs = text.split("\n\n")
    lowered = [paragraph.lower() for paragraph in paragraphs]
    boilerplate = sum(any(phrase in paragraph for phrase in PHRASES) for paragraph in lowered)
    if "lorem ipsum" in text.lower():
        boilerplate = len(paragraphs)

    def of_characters(pattern: str) -> float:
        return share(len(re.findall(pattern, text)), len(text), 1)

    return {
        "non_alphanumeric_ratio": of_characters(r"[^a-zA-Z0-9\n?!,.]"),
        "nemo_symbol_word_ratio": share(
            sum(word in MARKS or len(re.findall("#+", word)) / len(word) > 0.5 for word in words), len(words)
        ),
        "digit_ratio": of_characters("[0-9]"),
        "url_character_ratio": share(sum(map(len, URL.findall(text))), len(text), 1),
        "white_space_ratio": of_characters("[\t\n\r\b ]"),
        "parenthesis_ratio": of_characters(r"[{}⟨⟩\[\]()]"),
        "boilerplate_paragraph_ratio": boilerplate / len(paragraphs),
        "unique_line_ratio": share(len(set(lines)), len(lines), 1),
        "unique_paragraph_ratio": len(set(paragraphs)) / len(paragraphs),
        "unique_line_character_ratio": share(len("".join(set(lines))), len("".join(lines)), 1),
        "unique_paragraph_character_ratio": share(len("".join(set(paragraphs))), len("".join(paragraphs)), 1),
        "unpunctuated_line_ratio": share(sum(line.strip()[-1] not in ".?!\"'" for line in lines), len(lines)),
        "alphabetic_word_ratio": share(sum(any(map(is_alphabetic, word)) for word in words), len(words)),
        "stop_word_occurrences": sum(word in STOP_WORDS for word in words),
        "mean_word_length": share(sum(map(len, words)), len(words)),
        "longest_word_length": max(map(len, words), default=0),
        "nemo_ellipsis_line_ratio": share(
            sum(line.strip().lower().endswith((*MARKS, "read more", "read more..")) for line in lines), len(lines)
        ),
        "nemo_bullet_line_ratio": share(sum(line.strip().startswith(BULLETS) for line in lines), len(lines)),
        **{f"nemo_top_{n}_gram_character_ratio": removed_ratio(text, words, n) for n in TOP_GRAMS},
        **{f"nemo_duplicate_{n}_gram_character_ratio": duplicate_ratio(text, words, n) for n in REPEATED_GRAMS},
        "line_count": text.count("\n") + 1,
        "xml_header": int("<?xml version=" in text[:100]),
        "alphabetic_ratio": share(sum(map(is_alphabetic, text)), len(text)),
    }


def repeated(pieces: list[str]) -> list[str]:
    times = Counter(pieces)
    return [piece for piece in pieces if times[piece] > 1]


def dolma_line_metrics(lines: list[str], prefix: str) -> dict[str, float]:
    return {
        f"{prefix}_bullet_line_ratio": sum(line.startswith(("*", "-")) for line in lines) / len(lines),
        f"{prefix}_ellipsis_line_ratio": sum(line.endswith("…") for line in lines) / len(lines),
        f"{prefix}_repeated_line_ratio": len(repeated(lines)) / len(lines),
    }


def dolma_metrics(text: str) -> dict[str, float]:
    words = text.split()
    letters = len("".join(words))

    def repeated_gram_ratio(n: int) -> float:
        joined = {gram: len("".join(gram)) for gram in grams(words, n)}
        times = Counter(grams(words, n))
        part = sum(count * joined[gram] for gram, count in times.items() if count > 1)
        return share(part, sum(count * joined[gram] for gram, count in times.items()))

    def top_gram_ratio(n: int) -> float:
        gram, count = top_gram(words, n)
        return share(count * len("".join(gram)), letters)

    return {
        "median_word_length": statistics.median(min(len(word), 4095) for word in words) if words else 0,
        "dolma_symbol_word_ratio": share(sum("#" in word or "…" in word for word in words), len(words)),
        **dolma_line_metrics(text.split("\n"), "dolma"),
        **dolma_line_metrics(re.split(r"\n+", text), "dolma_v2"),
        "dolma_repeated_line_character_ratio": share(len("".join(repeated(text.split("\n")))), letters),
        **{f"dolma_top_{n}_gram_character_ratio": top_gram_ratio(n) for n in TOP_GRAMS},
        **{f"dolma_repeated_{n}_gram_character_ratio": repeated_gram_ratio(n) for n in REPEATED_GRAMS},
        "has_curly_bracket": int("{" in text),
        "has_lorem_ipsum": int("lorem ipsum" in text.lower()),
        "has_javascript": int("javascript" in text.lower()),
    }
