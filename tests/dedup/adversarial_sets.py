# SPDX-License-Identifier: Apache-2.0
"""Sets of documents that share much of their text and are no copies, each with some real copies, generated in code.

A set consists of rows (text, source, copy of). Words of bodies are random, so two bodies have no shingle in common unless one is
a copy of the other; what documents share is the part that each set is about.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import dataclass, field

SOURCES = 6
"""Number of sources of a set, each of which must keep all rows that are not copies."""


@dataclass
class Documents:
    """Rows of a set."""

    seed: int
    texts: list[str] = field(default_factory=list)
    sources: list[str] = field(default_factory=list)
    copies: dict[int, int] = field(default_factory=dict)
    """Row of a copy, and the row that it was copied from."""

    def __post_init__(self) -> None:
        self.chance = random.Random(self.seed)
        letters = "abcdefghijklmnopqrstuvwxyz"
        self.vocabulary = ["".join(self.chance.choices(letters, k=self.chance.randint(3, 9))) for _ in range(5_000)]

    def words(self, count: int) -> str:
        return " ".join(self.chance.choices(self.vocabulary, k=count))

    def sentence(self, count: int) -> str:
        return self.words(count).capitalize() + "."

    def add(self, text: str, source: int | str) -> int:
        self.texts.append(text)
        self.sources.append(f"source {source}")
        return len(self.texts) - 1

    def add_copy(self, number: int, source: int | str, changed: Callable[[str], str]) -> None:
        self.copies[self.add(changed(self.texts[number]), source)] = number

    def one_word_changed(self, text: str) -> str:
        words = text.split(" ")
        words[self.chance.randrange(len(words) // 2, len(words))] = "altered"
        return " ".join(words)


def function_calls(rows: int, seed: int = 1) -> Documents:
    """Make training examples of function calls: the same long list of tools, a short question, and a call."""
    docs = Documents(seed)
    kinds = ("string", "integer", "boolean")
    tools = [
        {
            "name": docs.words(2).replace(" ", "_"),
            "description": docs.sentence(12),
            "parameters": {docs.words(1): {"type": kinds[n % 3], "description": docs.sentence(7)} for n in range(3)},
        }
        for _ in range(8)
    ]
    for number in range(rows):
        call = {"name": tools[number % 8]["name"], "arguments": {"query": docs.words(5)}}
        text = json.dumps({"tools": tools, "user": docs.sentence(9), "assistant": call}, indent=1)
        docs.add(text, number % SOURCES)
    return with_copies(docs, rows // 20)


def dialogues(rows: int, seed: int = 2) -> Documents:
    """Make dialogues from a template of phrases with slots."""
    docs = Documents(seed)
    phrases = [docs.sentence(14) for _ in range(16)]
    for number in range(rows):
        turns = [
            f"{'Agent' if turn % 2 else 'Customer'}: {phrase} {docs.words(2)}" for turn, phrase in enumerate(phrases)
        ]
        docs.add("\n".join(turns), number % SOURCES)
    return with_copies(docs, rows // 20)


def licensed_books(rows: int, seed: int = 3) -> Documents:
    """Make short books of which a license makes up most of the text, before and after it."""
    docs = Documents(seed)
    before, after = docs.words(150), docs.words(900)
    for number in range(rows):
        docs.add(f"{before}\n\n{docs.words(100)}\n\n{after}", number % SOURCES)
    return with_copies(docs, rows // 20)


def forum_signatures(rows: int, seed: int = 4) -> Documents:
    """Make short posts, each with the long signature of one of few authors, who are the sources."""
    docs = Documents(seed)
    signatures = [docs.words(90) for _ in range(SOURCES)]
    for number in range(rows):
        docs.add(f"{docs.sentence(14)}\n--\n{signatures[number % SOURCES]}", number % SOURCES)
    return with_copies(docs, rows // 20)


def mirrored_sites(rows: int, seed: int = 5) -> Documents:
    """Make pages of sites with a menu of their own, and one site that mirrors another under its own name."""
    docs = Documents(seed)
    menus = [docs.words(40) for _ in range(SOURCES)]
    pages = [docs.add(f"{menus[n % SOURCES]}\n{docs.words(160)}\nsite{n % SOURCES}", n % SOURCES) for n in range(rows)]
    for number in pages[::SOURCES]:
        docs.add_copy(number, "mirror", lambda text: text.replace("site0", "mirror of site0"))
    return docs


def translated_pages(rows: int, seed: int = 6) -> Documents:
    """Make pages in several languages: the code and the names are the same in each, the sentences are not."""
    docs = Documents(seed)
    for _ in range(rows // SOURCES):
        shared = [f"    {docs.words(6).replace(' ', '_')}({docs.words(4).replace(' ', ', ')})" for _ in range(20)]
        for language in range(SOURCES):
            lines = [f"{docs.sentence(3)}\n{line}" for line in shared]
            docs.add("\n".join(lines), language)
    return with_copies(docs, rows // 20)


def with_copies(docs: Documents, count: int) -> Documents:
    """Add copies of some rows, each with another word in its second half, to the source of the original."""
    for number in docs.chance.sample(range(len(docs.texts)), count):
        docs.add_copy(number, docs.sources[number].removeprefix("source "), docs.one_word_changed)
    return docs


SETS: dict[str, Callable[..., Documents]] = {
    "function calls": function_calls,
    "dialogues": dialogues,
    "licensed books": licensed_books,
    "forum signatures": forum_signatures,
    "mirrored sites": mirrored_sites,
    "translated pages": translated_pages,
}
