# SPDX-License-Identifier: Apache-2.0
"""Replace personal data and secrets in texts: `redact_pii`.

A compiled scan finds the segments that may hold some, and only those are decoded and searched (`kinds`). A text takes
its length once more if something is replaced, nothing otherwise, and a segment of at most 104 KB while Python
processes it. The entities of a model (`entities`) are searched for in the same, unchanged text.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple, Protocol, runtime_checkable

import dask.dataframe as dd
import numpy as np
import numpy.typing as npt
import pandas as pd

from curator_df.arguments import choose, strings_of
from curator_df.core.ranges.price import Price
from curator_df.errors import ParameterError
from curator_df.kernels.compiling import kernel_sets
from curator_df.kernels.edits.splices import Splice, splice_texts
from curator_df.kernels.pii.kinds import KINDS, Finder, Kind, finders
from curator_df.kernels.pii.scan import next_suspect
from curator_df.kernels.text.buffers import TextSpan
from curator_df.ops.cleaning.rewriting import SPLICE_FACTOR, rewrite_texts

PIECE_BYTES = 4_000
"""Maximum number of bytes of a text passed to a model in one call. The memory of a call depends on this, and not on the text."""
RUN_BYTES = 500
"""Maximum number of bytes without white space in a piece: spaCy takes quadratic time in them (6 s for 5,000 marks, 23 s for
10,000)."""

_LONG_RUN = re.compile(rb"(?:^|(?<=[ \t\r\n]))[^ \t\r\n]{%d}" % (RUN_BYTES + 1))
_SENTENCE_ENDS = (b". ", b"! ", b"? ")
_FULL_STOP = "。".encode()
_NO_CHARACTER = re.compile("[\ud800-\udfff]")


@runtime_checkable
class EntityFinder(Protocol):
    """Model that finds names, places and other entities, as a value that is sent to workers."""

    @property
    def entities(self) -> tuple[str, ...]:
        """Return the names of the entities that it finds."""

    @property
    def held_bytes(self) -> int:
        """Return the bytes that a worker holds once."""

    @property
    def libraries(self) -> Mapping[str, int]:
        """Return the part of these bytes that stays after the run, by library."""

    @property
    def shared(self) -> Mapping[str, int]:
        """Return the part of these bytes that is shared with other steps with this model."""

    @property
    def call_bytes(self) -> int:
        """Return the bytes that a call needs for a piece."""

    def find(self, document: str) -> Sequence[tuple[int, int, str]]:
        """Return the first character, the one after the last, and the name of each entity, in order and without overlaps."""


class Find(NamedTuple):
    """Text to be replaced."""

    row: int
    """Row in the span."""
    start: int
    """First byte, in the span's data."""
    stop: int
    """Byte after the last."""
    kind: str
    value: str
    """Value, with a surrogate for each byte that is not UTF-8."""


def entities_in(span: TextSpan, finder: EntityFinder) -> Iterator[Find]:
    """Yield the entities that the model finds in the texts of a span, in order and without overlaps."""
    for row in range(len(span)):
        if span.valid is not None and not span.valid[row]:
            continue
        for start, stop in pieces(span.data, int(span.offsets[row]), int(span.offsets[row + 1])):
            # Bytes that are not UTF-8 are kept; the model sees one character in place of each.
            text = span.data[start:stop].tobytes().decode("utf-8", "surrogateescape")
            if any(map(str.isalnum, text)):
                yield from located(row, start, text, finder.find(_NO_CHARACTER.sub("\ufffd", text)))


def located(row: int, start: int, text: str, found: Sequence[tuple[int, int, str]]) -> Iterator[Find]:
    """Yield findings given by characters with their byte positions; the text begins at byte ``start``."""
    if text.isascii():
        for first, stop, kind in found:
            yield Find(row, start + first, start + stop, kind, text[first:stop])
        return
    at, seen = start, 0
    for first, stop, kind in found:
        at += _length(text[seen:first])
        begin = at
        at += _length(text[first:stop])
        seen = stop
        yield Find(row, begin, at, kind, text[first:stop])


def rules_first(rules: Iterator[Find], entities: Iterator[Find]) -> Iterator[Find]:
    """Yield both in order, without the entities that overlap a finding of a rule. Each input is in order and without overlaps."""
    rule, ended = next(rules, None), -1
    for entity in entities:
        while rule is not None and rule.start < entity.stop:
            ended = rule.stop
            yield rule
            rule = next(rules, None)
        if ended <= entity.start:
            yield entity
    if rule is not None:
        yield rule
        yield from rules


def pieces(data: npt.NDArray[np.uint8], start: int, stop: int) -> Iterator[tuple[int, int]]:
    """Yield the first byte and the one after the last of each piece of a text.

    In a longer text, a piece ends with the last line end in its second half, else with the last sentence, else with the last
    white space; more than `RUN_BYTES` without white space are split.
    """
    while start < stop:
        window = data[start : min(start + PIECE_BYTES, stop)].tobytes()
        taken = _taken(window, is_last=start + len(window) == stop)
        yield start, start + taken
        start += taken


def _taken(window: bytes, *, is_last: bool) -> int:
    if run := _LONG_RUN.search(window):
        return _cut_run(window, run.start())
    if is_last:
        return len(window)
    half = len(window) // 2
    if (line := window.rfind(b"\n", half)) >= 0:
        return line + 1
    if (sentence := max(window.rfind(mark, half) for mark in _SENTENCE_ENDS)) >= 0:
        return sentence + 2
    return max(window.rfind(space) for space in (b" ", b"\t", b"\r")) + 1


def _cut_run(window: bytes, start: int) -> int:
    """Return where a run without white space from ``start`` on is split: after a full stop, else between two characters."""
    cut = start + RUN_BYTES
    if (sentence := window.rfind(_FULL_STOP, start + RUN_BYTES // 2, cut)) >= 0:
        return sentence + len(_FULL_STOP)
    return next((place for place in range(cut, cut - 4, -1) if window[place] & 0xC0 != 0x80), cut)


def _length(text: str) -> int:
    return len(text.encode("utf-8", "surrogateescape"))


MAX_KEY_BYTES = 64
"""Size of a BLAKE2b digest in bytes."""
HASH_FACTOR = 4.1
"""Factor of ``replacement="hash"``: a digest takes 24 bytes, an address 6, and the buffer grows by steps of an eighth."""
LABEL_GROWTH = 1.15
DIGEST_LENGTH = 17
"""An entity of one letter and the space after it become a label, or one with a digest, and that space; the buffer grows by
steps of an eighth."""
SEGMENT_BYTES = 8_000_000
"""Memory in Python for one segment of a text that consists of personal data (measured: 3 MB)."""
Replacement = Literal["label", "hash", "mask"]
DIGEST_BYTES = 8
"""Length of a digest in bytes: the chance that two of a million different values share one is 3e-8."""
PERSON_BYTES = 16
"""Length of BLAKE2b's ``person``, which makes the digests of kinds differ; a longer name is itself hashed."""


def redact_pii(
    df: dd.DataFrame,
    *,
    kinds: Collection[Kind] = KINDS,
    replacement: Replacement = "label",
    key: str | bytes | None = None,
    presidio: EntityFinder | None = None,
    text: str = "text",
) -> dd.DataFrame:
    """Replace e-mail and IP addresses, phone, card, account and social security numbers and keys; with a model also names.

    Parameters
    ----------
    df : dask.dataframe.DataFrame
        The table.
    kinds : collection of {"key", "email", "iban", "credit_card", "ssn", "ip", "phone"}
        What the rules find and replace; by default all of them. May be empty with ``presidio``.
    replacement : {"label", "hash", "mask"}
        ``"label"``: the kind, as ``<EMAIL>``. ``"hash"``: the kind and a digest of the value, as
        ``<EMAIL_d521dadfe137a4fe>``, so that the same person stays recognizable as one person. ``"mask"``: an asterisk
        for each character.
    key : str or bytes, optional
        For ``"hash"``: a secret of up to 64 bytes. Without a key, anyone with the texts can recover a number by hashing
        all possible ones. With the same key every run gives the same digests.
    presidio : `presidio`, optional
        Names, places and the like to replace as well: what presidio finds with a spaCy pipeline.
    text : str, default "text"
        The text column.

    Returns
    -------
    dask.dataframe.DataFrame
        The same rows; null stays null.

    Raises
    ------
    ParameterError
        If ``kinds`` is empty without ``presidio``, or has an unknown name; if ``replacement`` is not one of its
        choices; if ``key`` is longer than 64 bytes or given with another replacement than ``"hash"``; or if
        ``presidio`` is of another type.
    ColumnError
        If the text column is missing.
    UnsupportedBackendError
        If the blocks are cuDF blocks.

    See Also
    --------
    presidio, remove_urls

    Notes
    -----
    Rows: same. Columns: same; ``text`` changes. Backends: pandas. Peak extra memory: 1.4 x block; with
    ``replacement="hash"`` 4.1 x, if the texts consist of addresses only; with ``presidio`` for ``PERSON`` and
    ``LOCATION`` 6.4 x, hashed 16.1 x, if the texts consist of one-letter names only, and the pipeline in each worker.
    Computes: no.

    ============= =======================================================================================
    kind          what counts
    ============= =======================================================================================
    key           keys and tokens in the formats of AWS, GitHub, GitLab, Slack, Stripe, OpenAI, Google, Hugging Face, npm, PyPI
                  and SendGrid; JSON web tokens; private keys in PEM format; values after ``api_key=``, ``token:``,
                  ``password=`` and the like, of 20 characters or more, with letters and digits
    email         addresses with up to 64 characters before the at sign, and what has their form: message IDs, ``user@host``
                  of social networks. Not versions (``pkg@1.2.3-beta.rc``), files (``icon@2x.png``), ``git@host:path``
    iban          account numbers with the length for their country and valid check digits; groups may be separated by
                  spaces or hyphens
    credit_card   14, 15, 16 or 19 digits, unbroken or in the usual groups, of a known issuer, with a valid check digit
                  (Luhn); after a word such as ``card`` also 13, 17 or 18 digits. Not after ``EAN``, ``order no.`` and the
                  like, not in the path of a URL, and not one of several columns of four digits
    ssn           a valid ``ddd-dd-dddd`` of the USA, but not after ``part no.`` and the like; after ``SSN`` also with other
                  separators
    ip            IPv4 with octets up to 255, except those that begin with 0, 127 or 255, which identify nobody, and
                  versions. Small numbers such as ``2.0.0.4``, and numbers after a product such as ``Chrome/``, count only
                  after a word such as ``IP``, in a URL, or before a port or network length. IPv6 of global, unique local
                  or link-local scope with a digit, written with four digits in the first group
    phone         numbers with ``+``, an assigned country code and a length that fits it, except decimals; ten digits in
                  North American groups, separated by spaces only after a word such as ``call``; after ``Tel.:``,
                  ``Fax:`` and the like, in ten languages, 7 to 15 digits
    ============= =======================================================================================

    A key must have a digit or 16 capital letters, so ``sk-xxxxxxxx...`` is kept. Rules do not find names and street
    addresses. Where two kinds overlap, the one listed first wins. Different spellings of a value have the same digest:
    e-mail addresses are hashed in lower case, numbers by their digits. Digests are 8-byte BLAKE2b, keyed, and different
    for each kind. The result does not depend on blocks or workers. Lines of more than 100,000 bytes are cut after a
    word; a value that spans such a cut may be missed. The receipt counts ``rows_changed`` and the values found, by
    kind.

    With ``presidio`` the labels are presidio's names, such as ``<PERSON>``, and digests are computed after collapsing
    runs of white space to one space. It analyses the original text in separate pieces of at most 4,000 bytes, which end
    at a line end, or else at a sentence end, or else after a word; 500 bytes without white space are cut too. A name
    that spans a cut may be found only in part, and a piece without a letter or digit is skipped. Where an entity
    overlaps with a match of a rule, the rule wins; of two entities the one with the higher score wins, then the longer
    one, then the first. The plan reserves memory for the pipeline once in each worker, and for a piece in each task.
    Threads of a worker analyze texts one after the other, so use workers with one thread each.

    References
    ----------
    .. [1] ISO/IEC 7812-1 (cards), ISO 13616 and the SWIFT IBAN registry (accounts), RFC 4291 and 4193 (IPv6), E.164 (telephones)
    .. [2] https://microsoft.github.io/presidio/ (what ``presidio`` finds)

    Examples
    --------
    >>> import dask.dataframe as dd, pandas as pd
    >>> docs = dd.from_pandas(pd.DataFrame({"text": ["Mail me@example.org or call +49 30 1234567."]}), npartitions=1)
    >>> docs.pipe(redact_pii).compute()["text"][0]
    'Mail <EMAIL> or call <PHONE>.'
    >>> docs.pipe(redact_pii, kinds=["email"], replacement="hash", key="secret").compute()["text"][0]
    'Mail <EMAIL_b82535e2be43db72> or call +49 30 1234567.'
    >>> docs.pipe(redact_pii, presidio=cdf.presidio(entities=["PERSON"]))  # doctest: +SKIP
    """
    chosen = strings_of("redact_pii", "kinds", kinds)
    for kind in chosen:
        choose("redact_pii", "kinds", kind, Kind)
    if presidio is not None and not isinstance(presidio, EntityFinder):
        raise ParameterError(
            f"redact_pii: presidio={presidio!r} is not what curator_df.presidio(...) returns. Call that function, as in "
            "presidio=curator_df.presidio()"
        )
    if not chosen and presidio is None:
        raise ParameterError(
            f"redact_pii: kinds is empty. Name some of {', '.join(map(repr, KINDS))}, or set presidio=curator_df.presidio() "
            "to find names and places"
        )
    choose("redact_pii", "replacement", replacement, Replacement)
    settings = RedactionSettings(
        tuple(kind for kind in KINDS if kind in chosen), replacement, _secret(key, replacement), presidio
    )
    price = Price(_peak_factor(settings), is_measured=True, fixed_bytes=SEGMENT_BYTES)
    if presidio is not None:
        price = replace(
            price,
            fixed_bytes=SEGMENT_BYTES + presidio.call_bytes,
            held_bytes=presidio.held_bytes,
            libraries=presidio.libraries,
            shared=presidio.shared,
        )
    return rewrite_texts(
        df,
        "redact_pii",
        text,
        redact_texts,
        {"settings": settings},
        compiled=kernel_sets.PERSONAL_DATA,
        price=price,
    )


def _secret(key: str | bytes | None, replacement: Replacement) -> bytes:
    if not isinstance(key, (str, bytes, type(None))):
        raise ParameterError(f"redact_pii: key must be a str or bytes, not {type(key).__name__}")
    secret = key.encode() if isinstance(key, str) else key or b""
    if secret and replacement != "hash":
        raise ParameterError(
            f"redact_pii: key= is used only with replacement='hash', but replacement is {replacement!r}. Leave key= out, or "
            "use replacement='hash'"
        )
    if len(secret) > MAX_KEY_BYTES:
        raise ParameterError(
            f"redact_pii: key= has {len(secret)} bytes, but the hash function (BLAKE2b) takes at most {MAX_KEY_BYTES}. Use "
            "a shorter key"
        )
    return secret


def _peak_factor(settings: RedactionSettings) -> float:
    by_rules = HASH_FACTOR if settings.replacement == "hash" else SPLICE_FACTOR
    if settings.entities is None or settings.replacement == "mask":
        return by_rules
    label = max(map(len, settings.entities.entities)) + len("<>") + DIGEST_LENGTH * (settings.replacement == "hash")
    return max(by_rules, math.ceil(10 * LABEL_GROWTH * (label + 1) / 2) / 10)


@dataclass(frozen=True)
class RedactionSettings:
    """Kinds of values to replace, and their replacements."""

    kinds: tuple[Kind, ...]
    """Kinds in the order of `kinds.KINDS`."""
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
