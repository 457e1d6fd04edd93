# SPDX-License-Identifier: Apache-2.0
"""Personal data and secrets out of texts: `redact_pii`."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from curator_df.core.columns import choose
from curator_df.errors import ParameterError
from curator_df.kernels.pii_kinds import KINDS, Kind
from curator_df.kernels.pii_redaction import RedactionSettings, Replacement, redact_texts
from curator_df.ops.rewriting import SPLICE_FACTOR, rewrite_texts

MAX_KEY_BYTES = 64
"""Of BLAKE2b."""
HASH_FACTOR = 4.1
"""Of ``replacement="hash"``: a digest takes 24 bytes where an address of 6 was, and the buffer grows by steps of an eighth."""
SEGMENT_BYTES = 8_000_000
"""What Python holds for one segment of a text that is full of what is looked for (measured: 3 MB)."""


def redact_pii(
    df: Any,
    *,
    kinds: Collection[Kind] = KINDS,
    replacement: Replacement = "label",
    key: str | bytes | None = None,
    text: str = "text",
) -> Any:
    """Replace e-mail and IP addresses, telephone, card, account and social security numbers, and secret keys.

    Parameters
    ----------
    df : dask.dataframe.DataFrame
        The table.
    kinds : collection of {"key", "email", "iban", "credit_card", "ssn", "ip", "phone"}
        What is replaced; by default all of them.
    replacement : {"label", "hash", "mask"}
        ``"label"``: the kind, as ``<EMAIL>``. ``"hash"``: the kind and a digest of the value, as ``<EMAIL_d521dadfe137a4fe>``, so
        that what was one person stays one person. ``"mask"``: a star for each character.
    key : str or bytes, optional
        For ``"hash"``: a secret of up to 64 bytes. Without one, whoever has the texts can find out a number by hashing all there
        are; with the same key every run gives the same digests.
    text : str, default "text"
        Column of the text.

    Returns
    -------
    dask.dataframe.DataFrame
        The same rows; null stays null.

    Raises
    ------
    ParameterError
        If ``kinds`` is empty or has another name in it, ``replacement`` is none of its choices, ``key`` is longer than 64 bytes
        or goes with another replacement than ``"hash"``.
    ColumnError
        If the text column is missing.
    UnsupportedBackendError
        If the blocks are cuDF blocks.

    Notes
    -----
    Rows: same. Columns: same; ``text`` changes. Backends: pandas. Peak extra memory: 1.4 x block; with
    ``replacement="hash"`` 4.1 x, where all of it is addresses. Computes: no.

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

    A key has a digit or 16 capitals, so that ``sk-xxxxxxxx...`` stays. Names and street addresses are not found; no rule could.
    Where two kinds overlap the one named first wins. Spellings of the same value have the same digest: that of an e-mail
    address is of its lower case, that of a number of its digits. Digests are BLAKE2b of 8 bytes, keyed and told apart by kind.
    Nothing depends on blocks or workers. What lies across the cut of a line of more than 100,000 bytes may be missed; such
    lines are cut after a word. The receipt counts ``rows_changed`` and what was found, by kind.

    References
    ----------
    .. [1] ISO/IEC 7812-1 (cards), ISO 13616 and the SWIFT IBAN registry (accounts), RFC 4291 (IPv6), E.164 (telephones)

    Examples
    --------
    >>> import dask.dataframe as dd, pandas as pd
    >>> docs = dd.from_pandas(pd.DataFrame({"text": ["Mail me@example.org or call +49 30 1234567."]}), npartitions=1)
    >>> docs.pipe(redact_pii).compute()["text"][0]
    'Mail <EMAIL> or call <PHONE>.'
    >>> docs.pipe(redact_pii, kinds=["email"], replacement="hash", key="secret").compute()["text"][0]
    'Mail <EMAIL_b82535e2be43db72> or call +49 30 1234567.'
    """
    chosen = (kinds,) if isinstance(kinds, str) else tuple(kinds)
    for kind in chosen:
        choose("redact_pii", "kinds", kind, Kind)
    if not chosen:
        raise ParameterError(f"redact_pii: kinds is empty; name some of {', '.join(map(repr, KINDS))}")
    choose("redact_pii", "replacement", replacement, Replacement)
    secret = key.encode() if isinstance(key, str) else key or b""
    if secret and replacement != "hash":
        raise ParameterError(
            f"redact_pii: key= is for replacement='hash', and replacement={replacement!r} makes no digests"
        )
    if len(secret) > MAX_KEY_BYTES:
        raise ParameterError(f"redact_pii: key has {len(secret)} bytes; BLAKE2b takes {MAX_KEY_BYTES} at most")
    settings = RedactionSettings(tuple(kind for kind in KINDS if kind in chosen), replacement, secret)
    return rewrite_texts(
        df,
        "redact_pii",
        text,
        redact_texts,
        {"settings": settings},
        compiled=("pii",),
        peak_factor=HASH_FACTOR if replacement == "hash" else SPLICE_FACTOR,
        fixed_bytes=SEGMENT_BYTES,
    )
