# SPDX-License-Identifier: Apache-2.0
"""Personal data and secrets out of texts: `redact_pii`."""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import Any

from curator_df.core.arguments import strings_of
from curator_df.core.columns import choose
from curator_df.errors import ParameterError
from curator_df.kernels.pii_entities import EntityFinder
from curator_df.kernels.pii_kinds import KINDS, Kind
from curator_df.kernels.pii_redaction import RedactionSettings, Replacement, redact_texts
from curator_df.ops.rewriting import SPLICE_FACTOR, rewrite_texts

MAX_KEY_BYTES = 64
"""Of BLAKE2b."""
HASH_FACTOR = 4.1
"""Of ``replacement="hash"``: a digest takes 24 bytes where an address of 6 was, and the buffer grows by steps of an eighth."""
LABEL_GROWTH = 1.15
DIGEST_LENGTH = 17
"""An entity of one letter and the space after it become a label, or one with a digest, and that space; the buffer grows by
steps of an eighth."""
SEGMENT_BYTES = 8_000_000
"""What Python holds for one segment of a text that is full of what is looked for (measured: 3 MB)."""


def redact_pii(
    df: Any,
    *,
    kinds: Collection[Kind] = KINDS,
    replacement: Replacement = "label",
    key: str | bytes | None = None,
    presidio: EntityFinder | None = None,
    text: str = "text",
) -> Any:
    """Replace e-mail and IP addresses, telephone, card, account and social security numbers, secret keys; by a model also names.

    Parameters
    ----------
    df : dask.dataframe.DataFrame
        The table.
    kinds : collection of {"key", "email", "iban", "credit_card", "ssn", "ip", "phone"}
        What rules find and is replaced; by default all of them. May be empty beside ``presidio``.
    replacement : {"label", "hash", "mask"}
        ``"label"``: the kind, as ``<EMAIL>``. ``"hash"``: the kind and a digest of the value, as ``<EMAIL_d521dadfe137a4fe>``, so
        that what was one person stays one person. ``"mask"``: a star for each character.
    key : str or bytes, optional
        For ``"hash"``: a secret of up to 64 bytes. Without one, whoever has the texts can find out a number by hashing all there
        are; with the same key every run gives the same digests.
    presidio : `presidio`, optional
        Names, places and the like that are replaced besides: what presidio finds with a spaCy pipeline.
    text : str, default "text"
        Column of the text.

    Returns
    -------
    dask.dataframe.DataFrame
        The same rows; null stays null.

    Raises
    ------
    ParameterError
        If ``kinds`` is empty without ``presidio``, or has another name in it, ``replacement`` is none of its choices, ``key`` is
        longer than 64 bytes or goes with another replacement than ``"hash"``, or ``presidio`` is something else.
    ColumnError
        If the text column is missing.
    UnsupportedBackendError
        If the blocks are cuDF blocks.

    Notes
    -----
    Rows: same. Columns: same; ``text`` changes. Backends: pandas. Peak extra memory: 1.4 x block; with
    ``replacement="hash"`` 4.1 x, where all of it is addresses; with ``presidio`` of ``PERSON`` and ``LOCATION`` 6.4 x, hashed
    16.1 x, where all of it is names of one letter, and the pipeline in each worker. Computes: no.

    ============= =======================================================================================
    kind          what counts
    ============= =======================================================================================
    key           keys and tokens in the shapes of AWS, GitHub, GitLab, Slack, Stripe, OpenAI, Google, Hugging Face, npm, PyPI
                  and SendGrid; JSON web tokens; private keys in PEM form; what follows ``api_key=``, ``token:``,
                  ``password=`` and the like, of 20 characters or more, with letters and digits
    email         addresses with up to 64 characters before the at sign
    iban          account numbers with the length of their country and right check digits
    credit_card   13 to 19 digits, whole or in the usual groups, of a known issuer, with a right check digit (Luhn)
    ssn           ``ddd-dd-dddd`` that can be given out in the USA; after ``SSN`` also with other gaps
    ip            IPv4 with octets up to 255, but for those that begin with 0, 127 or 255, which are nobody's; IPv6 whose first
                  group has four digits
    phone         numbers with ``+`` and 8 to 15 digits; ten digits in the groups of North America; after ``Tel.:``, ``Fax:`` and
                  the like 7 to 15 digits
    ============= =======================================================================================

    A key has a digit or 16 capitals, so that ``sk-xxxxxxxx...`` stays. Names and street addresses are not found by rules.
    Where two kinds overlap the one named first wins. Spellings of the same value have the same digest: that of an e-mail
    address is of its lower case, that of a number of its digits. Digests are BLAKE2b of 8 bytes, keyed and told apart by kind.
    Nothing depends on blocks or workers. What lies across the cut of a line of more than 100,000 bytes may be missed; such
    lines are cut after a word. The receipt counts ``rows_changed`` and what was found, by kind.

    With ``presidio`` labels are its names, as ``<PERSON>``, and digests are of the value with runs of white space as one space.
    It is given the text as it was, in pieces of at most 4,000 bytes that end with a line, else a sentence, else a word, each by
    itself; after 500 bytes without white space there is a cut too. A name that lies across a cut may be found in part, and a
    piece without a letter or digit is not looked at. Where an entity overlaps what a rule found the rule wins; of two entities
    the one with the higher score, then the longer, then the first. The plan has room for the pipeline once in each worker, and
    for a piece in each task; of a worker's threads one at a time analyses, so workers with one thread each suit it.

    References
    ----------
    .. [1] ISO/IEC 7812-1 (cards), ISO 13616 and the SWIFT IBAN registry (accounts), RFC 4291 (IPv6), E.164 (telephones)
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
        raise ParameterError(f"redact_pii: presidio={presidio!r} is not what curator_df.presidio(...) returns")
    if not chosen and presidio is None:
        raise ParameterError(
            f"redact_pii: kinds is empty; name some of {', '.join(map(repr, KINDS))}, or say presidio= for names and places"
        )
    choose("redact_pii", "replacement", replacement, Replacement)
    settings = RedactionSettings(
        tuple(kind for kind in KINDS if kind in chosen), replacement, _secret(key, replacement), presidio
    )
    model: dict[str, Any] = {}
    if presidio is not None:
        model = {"held_bytes": presidio.held_bytes, "libraries": presidio.libraries, "shared": presidio.shared}
    return rewrite_texts(
        df,
        "redact_pii",
        text,
        redact_texts,
        {"settings": settings},
        compiled=("pii",),
        peak_factor=_peak_factor(settings),
        fixed_bytes=SEGMENT_BYTES + (0 if presidio is None else presidio.call_bytes),
        **model,
    )


def _secret(key: str | bytes | None, replacement: Replacement) -> bytes:
    if not isinstance(key, (str, bytes, type(None))):
        raise ParameterError(f"redact_pii: key must be a str or bytes, not {type(key).__name__}")
    secret = key.encode() if isinstance(key, str) else key or b""
    if secret and replacement != "hash":
        raise ParameterError(
            f"redact_pii: key= is for replacement='hash', and replacement={replacement!r} makes no digests"
        )
    if len(secret) > MAX_KEY_BYTES:
        raise ParameterError(f"redact_pii: key has {len(secret)} bytes; BLAKE2b takes {MAX_KEY_BYTES} at most")
    return secret


def _peak_factor(settings: RedactionSettings) -> float:
    by_rules = HASH_FACTOR if settings.replacement == "hash" else SPLICE_FACTOR
    if settings.entities is None or settings.replacement == "mask":
        return by_rules
    label = max(map(len, settings.entities.entities)) + len("<>") + DIGEST_LENGTH * (settings.replacement == "hash")
    return max(by_rules, math.ceil(10 * LABEL_GROWTH * (label + 1) / 2) / 10)
