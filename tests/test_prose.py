# SPDX-License-Identifier: Apache-2.0
"""Prose: what people read is in plain US English, by a table of patterns and what to write instead.

``python tests/test_prose.py`` prints each place where a pattern stands.
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[1]

ANYWHERE = {
    r"(?i)\bpending (?:operation|drop|step|sample|removal)s?\b": "deferred operation",
    r"(?i)\b(?:row's address|addresses of rows|the address of (?:the|each|its) row)\b": "row ID",
    r"\banswers? in words\b": "generative classifier",
    r"(?i)\b(?:functions|objects) that hold something\b": "stateful functions",
    r"(?i)\bexclusive lanes?\b": "runs exclusively",
    r"\b(?:a|the|all|each|of) barriers?\b": "deferred operation",
    r"\btold (?:apart|of)\b|\b(?:is|are|was|were|be|been) told\b": "identified, distinguished, reported",
    r"(?i)\bset aside\b": "quarantined",
    r"(?i)\bsurvivors?\b": "kept row",
    r"\bends? (?:its|the|a) worker": "crashes the worker",
    r"\balone on the node\b": "runs exclusively",
    r"\bbesides?\b": "next to, in addition to, concurrently",
    r"\banew\b": "again",
    r"\bas (?:it|they) (?:is|are|stand)\b": "unchanged",
    r"\bwithout a word\b": "silently",
    r"\bso many\b": "the number",
    r"\bat a time\b": "concurrently, in each step",
    r"(?<![Tt]here )\b(?:is|are|was|were) no\b(?! longer)": "is not a",
    r"\btakes? no\b": "does not accept",
    r"\b(?:is|are|was|were) asked for\b": "requested",
    r"\b(?:is|are) said\b": "is reported",
    r"\bwhat is left\b": "the rest, the kept rows",
    r"\bof what\b": "name the noun",
    r"\bthat and some\b": "the sum, in bytes",
    r"\b(?:1) (?:files|rows|bytes|splits|ranges|workers|threads|lines|columns|records|pages)\b": "the singular",
    r"(?:\A|\d) %(?!\w)": "no space before the percent sign",
    r"(?i)\b(?:colour|behaviour|favour|neighbour|centre|grey|defence|artefact)s?\b": "US spelling",
    r"(?i)\b\w*(?:normalis|serialis|optimis|recognis|summaris|organis|quantis|initialis|minimis|maximis)\w*": "US spelling",
    r"(?i)\b(?:licences?|labell(?:ed|ing)|modell(?:ed|ing)|travell\w+|analys(?:e|ed|ing)|catalogues?)\b": "US spelling",
}
"""Patterns that no text may have, and what to write instead."""
AT_THE_START = {
    r"(?:Of|And|The same|Its|Whose|As|What|Which|That|How)\b": "begin with a noun or an imperative verb",
}
"""Patterns at the start of a docstring or of the description of a field, which must be readable alone."""


def texts() -> Iterator[tuple[str, str, int, str]]:
    """Yield the kind of each text, its file, its line and the text."""
    for path in sorted((CHECKOUT / "curator_df").rglob("*.py")):
        name = path.relative_to(CHECKOUT).as_posix()
        code = path.read_text(encoding="utf-8")
        for kind, line, text in [*strings_of(ast.parse(code)), *comments_of(code)]:
            yield kind, name, line, text
    for path in [*sorted(CHECKOUT.glob("*.md")), *sorted((CHECKOUT / "docs").rglob("*.md"))]:
        if "_build" not in path.parts:
            kind = "decisions" if "decisions" in path.parts else "pages"
            yield kind, path.relative_to(CHECKOUT).as_posix(), 1, without_code(path.read_text(encoding="utf-8"))


def strings_of(tree: ast.AST) -> Iterator[tuple[str, int, str]]:
    """Yield docstrings, and other strings that have a space, each with its line."""
    documented: set[tuple[int, int]] = set()
    for node in ast.walk(tree):
        body = getattr(node, "body", ())
        for statement in body if isinstance(body, list) else ():
            if isinstance(statement, ast.Expr) and is_text(statement.value):
                documented.add((statement.value.lineno, statement.value.col_offset))
                yield "docstrings", statement.lineno, without_examples(statement.value.value)
    for node in ast.walk(tree):
        if is_text(node) and " " in node.value.strip() and (node.lineno, node.col_offset) not in documented:
            yield "messages", node.lineno, node.value


def comments_of(code: str) -> Iterator[tuple[str, int, str]]:
    for token in tokenize.generate_tokens(io.StringIO(code).readline):
        if token.type == tokenize.COMMENT and not token.string.startswith(("# SPDX", "# noqa", "# type:")):
            yield "comments", token.start[0], token.string[1:]


def without_examples(text: str) -> str:
    """Return a docstring without its lines of code."""
    return re.sub(r"^ *(?:>>>|\.\.\.) .*$", "", text, flags=re.MULTILINE)


def is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def without_code(page: str) -> str:
    """Return a Markdown page with its code blanked out."""

    def blank(match: re.Match[str]) -> str:
        return re.sub(r"[^\n]", " ", match[0])

    return re.sub(r"`[^`\n]*`", blank, re.sub(r"^```.*?^```", blank, page, flags=re.MULTILINE | re.DOTALL))


def findings() -> Iterator[tuple[str, str, str, int, str]]:
    """Yield for each place the kind of text, the pattern, the file, the line and what stands there."""
    for kind, name, line, text in texts():
        plain = re.sub(r"``[^`]*``|`[^`]*`", lambda match: " " * len(match[0]), text) if kind != "messages" else text
        for pattern in ANYWHERE:
            for match in re.finditer(pattern, plain):
                yield kind, pattern, name, line + text.count("\n", 0, match.start()), match[0]
        if kind == "docstrings":
            for pattern in AT_THE_START:
                match = re.match(pattern, text.strip())
                if match:
                    yield kind, pattern, name, line, " ".join(text.split()[:8])


def lines() -> list[str]:
    """Return a line for each place: the kind of text, the file, what stands there, and what to write instead."""
    return [
        f"{kind}\t{name}:{line}\t{found!r}\twrite: {(ANYWHERE | AT_THE_START)[pattern]}"
        for kind, pattern, name, line, found in findings()
    ]


def test_no_text_has_a_pattern_of_stilted_prose():
    found = lines()
    assert not found, "\n".join(found)


def test_entries_of_the_changelog_are_few_and_short():
    entries = re.findall(
        r"^- .*\n(?:  .*\n)*", (CHECKOUT / "CHANGELOG.md").read_text(encoding="utf-8"), flags=re.MULTILINE
    )
    assert 10 < len(entries) <= 30
    assert [entry for entry in entries if entry.count("\n") > 2] == []


def test_the_patterns_find_what_they_are_for():
    assert any(re.search(pattern, "the path is no file") for pattern in ANYWHERE)
    assert any(re.search(pattern, "the file holds 1 rows") for pattern in ANYWHERE)
    assert not any(re.search(pattern, "The file no longer exists. The run reads 11 rows.") for pattern in ANYWHERE)
    assert any(re.search(pattern, "95 % of the rows") for pattern in ANYWHERE)
    assert any(re.match(pattern, "Of these, the largest.") for pattern in AT_THE_START)
    assert without_code("a `set aside` b\n```\nset aside\n```\n").count("set aside") == 0


if __name__ == "__main__":
    sys.stdout.write("".join(f"{line}\n" for line in lines()))
