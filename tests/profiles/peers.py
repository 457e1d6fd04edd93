# SPDX-License-Identifier: Apache-2.0
"""Released packages in a process of their own, asked in lines of JSON, and the texts that they are asked about."""

from __future__ import annotations

import gzip
import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

LINES = st.sampled_from(
    [
        "It was the best of times, and it was the worst of times; that we have to be with all of it.",
        "It was the best of times.",
        "wait for it...",
        "wait for it…",
        "one two",
        "Go on [...] Read More",
        "see http://a.b/c?d=e#f, or https://x~y [1] (2) {3}",
        "We use cookies. See our Privacy Policy.",
        "Enable JavaScript to go on, please.",
        "lorem ipsum dolor sit amet.",
        "- a bullet •",
        "* 12 345 67",
        "● 漢字 です。 日本",
        "# #a# ## … -» (...)",
        "<?xml version='1.0'?>",
        "Ⅷ ⓐ एक ١٢",
        "\b\x1f \t",
        "a b c d e f g h i j k",
        "ab c d e f g h i j k",
        "a bc d e f g h i j k",
        "",
        " ",
    ]
)
# What was not assigned in Unicode 14 is no letter here, and may be one there.
SHORT_TEXTS = st.text(st.characters(exclude_categories=("Cs", "Cn")), max_size=8)
BREAKS = st.sampled_from(["\n", "\n", "\n\n", "\n\n\n", "\r\n", " ", "  ", "\u2028", "\u3000", "\x0b"])
TEXTS = st.lists(st.one_of(LINES, SHORT_TEXTS).flatmap(lambda line: BREAKS.map(line.__add__)), max_size=14).map("".join)


class Peer:
    """A package that answers."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process

    def ask(self, question: Any) -> Any:
        assert self.process.stdin and self.process.stdout
        self.process.stdin.write(json.dumps(question) + "\n")
        self.process.stdin.flush()
        return self.hear()

    def hear(self) -> Any:
        assert self.process.stdout
        return json.loads(self.process.stdout.readline())


@contextmanager
def running(python: str, script: str) -> Iterator[Peer]:
    """Run a script beside this module."""
    command = [python, str(Path(__file__).with_name(script))]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        yield Peer(process)
        assert process.stdin
        process.stdin.close()


def real_texts(folder: Path) -> list[str]:
    """Return the documents of the sample, each also cut in two between lines."""
    texts = []
    for name in ("news_4k", "mdn_3k", "docs_neardup"):
        with gzip.open(folder / f"{name}.jsonl.gz", "rt", encoding="utf-8") as lines:
            for line in lines:
                text = json.loads(line)["text"]
                middle = text.find("\n", len(text) // 2)
                texts += [text] if middle < 0 else [text, text[:middle], text[middle:]]
    return texts
