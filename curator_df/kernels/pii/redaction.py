# SPDX-License-Identifier: Apache-2.0
"""Replace personal data and secrets in a text column.

A compiled scan finds the segments that may hold some, and only those are decoded and searched (`kinds`). A text takes
its length once more if something is replaced, nothing otherwise, and a segment of at most 104 KB while Python
processes it. The entities of a model (`entities`) are searched for in the same, unchanged text.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

import pandas as pd

from curator_df.kernels.edits.splices import Splice, splice_texts
from curator_df.kernels.pii.entities import EntityFinder, Find, entities_in, located, rules_first
from curator_df.kernels.pii.kinds import Finder, Kind, finders
from curator_df.kernels.pii.scan import next_suspect
from curator_df.kernels.text.buffers import TextSpan

Replacement = Literal["label", "hash", "mask"]
DIGEST_BYTES = 8
"""Length of a digest in bytes: the chance that two of a million different values share one is 3e-8."""
PERSON_BYTES = 16
"""Length of BLAKE2b's ``person``, which makes the digests of kinds differ; a longer name is itself hashed."""


@dataclass(frozen=True)
class RedactionSettings:
    """Kinds of values to replace, and their replacements."""

    kinds: tuple[Kind, ...]
    """Kinds in the order of `pii_kinds.KINDS`."""
    replacement: Replacement
    """Replacement: a label of the kind, a label with a digest of the value, or a star for each character."""
    key: bytes = b""
    """Key of the digest, up to 64 bytes; empty for none."""
    entities: EntityFinder | None = None
    """Finder of names, places and the like; None to use only rules."""


Found = tuple[int, int, Kind]
"""First character, the one after the last, and the kind."""


def redact_texts(texts: pd.Series, settings: RedactionSettings) -> tuple[pd.Series, Counter[str]]:
    """Replace all findings; return the column (the same object if there are none), and their number by kind.

    The counter also has ``rows_changed``.

    Examples
    --------
    >>> settings = RedactionSettings(("email",), "label")
    >>> redacted, counts = redact_texts(pd.Series(["Write to a@example.org.", "no"], dtype="string"), settings)
    >>> redacted.tolist(), dict(counts)
    (['Write to <EMAIL>.', 'no'], {'email': 1, 'rows_changed': 1})
    """
    counts: Counter[str] = Counter()
    chosen = {kind: finder for kind, finder in finders().items() if kind in settings.kinds}
    replaced = _replacement_of(settings, chosen)
    redacted, rows_changed = splice_texts(
        texts, lambda span: _replacements(_found(span, chosen, settings.entities), replaced, counts)
    )
    counts["rows_changed"] = rows_changed
    return redacted, counts


def find_in_text(text: str, chosen: dict[Kind, Finder], flags: int = -1) -> list[Found]:
    """Return the findings in a text, in order and without overlaps: where two overlap, the kind listed first wins."""
    found: list[Found] = []
    for kind, finder in chosen.items():
        if finder.flags & flags and (spans := list(finder.find(text))):
            is_first = len(spans) == 1 and not found
            found = [(*spans[0], kind)] if is_first else list(_merged(found, spans, kind))
    return found


def _merged(found: list[Found], spans: list[tuple[int, int]], kind: Kind) -> Iterator[Found]:
    """Yield the existing findings and, between them, the spans that do not overlap them."""
    position = free_from = 0
    for start, stop in spans:
        while position < len(found) and found[position][0] < stop:
            if found[position][1] > start:
                break
            free_from = found[position][1]
            yield found[position]
            position += 1
        if start >= free_from and (position == len(found) or found[position][0] >= stop):
            yield start, stop, kind
            free_from = stop
    yield from found[position:]


def _found(span: TextSpan, chosen: dict[Kind, Finder], entities: EntityFinder | None) -> Iterator[Find]:
    rules = _rules_in(span, chosen) if chosen else iter(())
    return rules if entities is None else rules_first(rules, entities_in(span, entities))


def _rules_in(span: TextSpan, chosen: dict[Kind, Finder]) -> Iterator[Find]:
    wanted = 0
    for finder in chosen.values():
        wanted |= finder.flags
    row, at = 0, int(span.offsets[0])
    while True:
        row, start, at, flags = next_suspect(span.data, span.offsets, row, at, wanted)
        if row == len(span):
            return
        if span.valid is not None and not span.valid[row]:
            continue
        # Bytes that are not UTF-8 are kept.
        text = span.data[start:at].tobytes().decode("utf-8", "surrogateescape")
        yield from located(row, start, text, find_in_text(text, chosen, flags))


def _replacements(found: Iterator[Find], replaced: Callable[[str, str], str], counts: Counter[str]) -> Iterator[Splice]:
    for row, start, stop, kind, value in found:
        counts[kind] += 1
        yield row, start, stop, replaced(value, kind).encode("utf-8", "surrogateescape")


def _replacement_of(settings: RedactionSettings, chosen: dict[Kind, Finder]) -> Callable[[str, str], str]:
    """Return the function that makes the replacement of a value, given its kind."""
    if settings.replacement == "mask":
        return lambda value, _: "*" * len(value)
    if settings.replacement == "label":
        return lambda _, kind: f"<{kind.upper()}>"
    plain = {str(kind): finder.plain for kind, finder in chosen.items()}

    def hashed(value: str, kind: str) -> str:
        same = plain.get(kind, _single_spaces)(value).encode("utf-8", "surrogateescape")
        digest = hashlib.blake2b(same, digest_size=DIGEST_BYTES, key=settings.key, person=_person(kind))
        return f"<{kind.upper()}_{digest.hexdigest()}>"

    return hashed


def _single_spaces(value: str) -> str:
    return " ".join(value.split())


def _person(kind: str) -> bytes:
    name = kind.encode()
    return name if len(name) <= PERSON_BYTES else hashlib.blake2b(name, digest_size=PERSON_BYTES).digest()
