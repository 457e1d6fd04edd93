# SPDX-License-Identifier: Apache-2.0
"""The metrics in plain Python, from their definitions: what the compiled pass is held to."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from curator_df.kernels.metrics.counts import REPEATED_GRAMS, STOP_WORDS, TOP_GRAMS
from curator_df.kernels.metrics.lines.sentences import ABBREVIATIONS, CLOSERS
from curator_df.kernels.text.code_points import SYMBOLS, TERMINALS
from tests.kernels.plain_dclm_metrics import dclm_metrics
from tests.kernels.plain_sentences import Marks, sentences
from tests.kernels.plain_web_metrics import dolma_metrics, nemo_metrics

CITATION = re.compile(r"\[(\d*|edit|citation needed)\]")
MARKS = Marks(SYMBOLS, TERMINALS, CLOSERS, ABBREVIATIONS)
POLICIES = ("terms of use", "privacy policy", "cookie policy", "uses cookies", "use of cookies", "use cookies")


def share(part: float, whole: float) -> float:
    return part / whole if whole else 0


def duplicates(pieces: Sequence[str]) -> list[str]:
    seen: set[str] = set()
    return [piece for piece in pieces if piece in seen or seen.add(piece)]


def word_metrics(text: str) -> dict[str, float]:
    words = text.split()
    spoken = [word for word in words if any(character not in SYMBOLS for character in word)]
    lines = text.splitlines()
    return {
        "word_count": len(words),
        "non_symbol_word_count": len(spoken),
        "non_symbol_word_mean_length": share(sum(map(len, spoken)), len(spoken)),
        "hash_ratio": share(text.count("#"), len(words)),
        "ellipsis_ratio": share(text.count("...") + text.count("…"), len(words)),
        "bullet_line_ratio": share(sum(line.lstrip().startswith(("•", "-")) for line in lines), len(lines)),
        "ellipsis_line_ratio": share(sum(line.rstrip().endswith(("...", "…")) for line in lines), len(lines)),
        "alpha_word_ratio": share(sum(any(map(str.isalpha, word)) for word in words), len(words)),
        "stop_word_count": len(set(STOP_WORDS) & set(words)),
    }


def top_gram_characters(words: list[str], n: int) -> int:
    grams = Counter(" ".join(words[at : at + n]) for at in range(len(words) - n + 1))
    # max returns the first of several, and a Counter keeps the order of first occurrence.
    top = max(grams, key=grams.__getitem__, default="")
    return len(top) * grams[top]


def repeated_gram_characters(words: list[str], n: int) -> int:
    seen, at, characters = set(), 0, 0
    while at + n <= len(words):
        gram = "".join(words[at : at + n])
        characters += len(gram) if gram in seen else 0
        at += n if gram in seen else 1
        seen.add(gram)
    return characters


def repetition_metrics(text: str) -> dict[str, float]:
    paragraphs = re.split(r"\n\n+", text.strip())
    lines = re.split(r"\n+", text)
    words = text.split()
    return {
        "duplicate_paragraph_ratio": share(len(duplicates(paragraphs)), len(paragraphs)),
        "duplicate_paragraph_character_ratio": share(len("".join(duplicates(paragraphs))), len(text)),
        "duplicate_line_ratio": share(len(duplicates(lines)), len(lines)),
        "duplicate_line_character_ratio": share(len("".join(duplicates(lines))), len(text)),
        **{f"top_{n}_gram_character_ratio": share(top_gram_characters(words, n), len(text)) for n in TOP_GRAMS},
        **{
            f"repeated_{n}_gram_character_ratio": share(repeated_gram_characters(words, n), len(text))
            for n in REPEATED_GRAMS
        },
    }


def fineweb_metrics(text: str) -> dict[str, float]:
    filled = [line for line in text.split("\n") if line.strip()]
    return {
        "filled_line_count": len(filled),
        "terminal_line_ratio": share(sum(line[-1] in TERMINALS for line in filled), len(filled)),
        "short_line_ratio": share(sum(len(line) <= 30 for line in filled), len(filled)),
        "duplicate_filled_line_character_ratio": share(len("".join(duplicates(filled))), len(text.replace("\n", ""))),
        "line_feed_word_ratio": share(text.count("\n"), len(text.split())),
    }


def c4_lines(text: str, *, is_punctuated: bool) -> tuple[list[str], str]:
    """Return the lines that stay, up to one that fails the text, and why that one does."""
    kept: list[str] = []
    for read in text.splitlines():
        words = read.split()
        line = CITATION.sub("", read.strip())
        ends_well = line.endswith((".", "?", "!", '"', "'")) and not line.endswith("...")
        lower = line.lower()
        if any(len(word) > 1000 for word in words) or (is_punctuated and not ends_well) or len(words) < 3:
            continue
        if "lorem ipsum" in lower:
            return kept, "lorem_ipsum"
        if "javascript" in lower:
            continue
        if "{" in line:
            return kept, "curly_bracket"
        if not any(policy in lower for policy in POLICIES):
            kept.append(line)
    return kept, ""


def c4_metrics(text: str, prefix: str, *, is_punctuated: bool) -> dict[str, float]:
    kept, failure = c4_lines(text, is_punctuated=is_punctuated)
    return {
        f"{prefix}_lorem_ipsum": int(failure == "lorem_ipsum"),
        f"{prefix}_curly_bracket": int(failure == "curly_bracket"),
        f"{prefix}_sentence_count": sum(sentences(line, MARKS) for line in kept),
    }


def source_metrics(text: str) -> dict[str, float]:
    lines = text.split("\n")
    return {
        "longest_line_length": max(map(len, lines)),
        "mean_line_length": sum(map(len, lines)) / len(lines),
        "alphanumeric_ratio": share(len(re.findall(r"[a-zA-Z0-9\n?!,.]", text)), len(text)),
        "letter_ratio": share(sum(map(str.isalpha, text)), len(text)) if text else 1,
    }


def size_metrics(text: str) -> dict[str, float]:
    return {
        "character_count": len(text),
        "sentence_count": sentences(text, MARKS) if text.split() else 0,
        "paragraph_count": len(re.split(r"\n\n+", text.strip())),
    }


def plain_metrics(text: str) -> dict[str, float]:
    """Return every metric of the catalogue."""
    return {
        **word_metrics(text),
        **repetition_metrics(text),
        **fineweb_metrics(text),
        **c4_metrics(text, "c4", is_punctuated=True),
        **c4_metrics(text, "c4_unpunctuated", is_punctuated=False),
        **nemo_metrics(text),
        **dolma_metrics(text),
        **dclm_metrics(text),
        **source_metrics(text),
        **size_metrics(text),
    }
