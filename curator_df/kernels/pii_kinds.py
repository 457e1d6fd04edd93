# SPDX-License-Identifier: Apache-2.0
"""What counts as personal data or as a secret in a piece of text: one finder for each kind, each in linear time.

Every expression is bounded, and what it finds is checked (check digits, ranges, lengths by country), because a number that
only looks like a card number is worth keeping.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal, get_args

Kind = Literal["key", "email", "iban", "credit_card", "ssn", "ip", "phone"]
"""Kinds, those first that win where two overlap."""
KINDS: tuple[Kind, ...] = get_args(Kind)

Spans = Iterator[tuple[int, int]]
"""First character and the one after the last, in order and apart."""

# Letters of a name before the at sign: Latin ones, because scripts without spaces stand right before it.
_NAME = r"A-Za-z0-9_\u00c0-\u024f"
_LABEL = r"[^\W_](?:[\w-]{0,61}[^\W_])?"
_TOP = r"(?:[A-Za-z]{2,24}(?![A-Za-z0-9-])|xn--[A-Za-z0-9-]{1,59}|[^\W\d_A-Za-z]{2,24})"
_EMAIL = re.compile(rf"(?<![{_NAME}%+])[{_NAME}][{_NAME}.%+-]{{0,63}}@(?:{_LABEL}\.){{1,8}}{_TOP}(?!@)")

_OCTET = r"(?:25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)"
_IPV4 = re.compile(rf"(?<![\w.])(?:{_OCTET}\.){{3}}{_OCTET}(?!\w|\.\d)", re.ASCII)
_IPV6 = re.compile(r"(?<![\w:.])[0-9A-Fa-f]{4}(?::[0-9A-Fa-f]{0,4}){2,7}(?<!(?<!:):)(?!\w)", re.ASCII)
_NO_HOST = ("0.", "127.", "255.")

# Between two digits of a telephone number: at most two of these.
_GAP = r"[ .()/\u00a0\u2010\u2011\u202f-]{0,2}"
_PHONES = re.compile(
    rf"(?<![\w+])\+\d(?:{_GAP}\d){{7,14}}(?!\d)"
    r"|(?<![\w+.-])(?:1[ .-])?(?:\([2-9]\d\d\) ?|[2-9]\d\d[ .-])[2-9]\d\d[ .-]\d{4}(?![\w-]|\.\d)"
    r"|(?i:(?<!\w)(?:tel(?:ephone)?|phone|fax|mobile|cell|whatsapp)\b)(?: ?(?i:no|nr|number)\b)?[.:#][.:# ]{0,3}"
    rf"(?P<labelled>\(?\d(?:{_GAP}\d){{6,14}})(?!\d)",
    re.ASCII,
)

_SSN = re.compile(
    r"(?<![\w-])(?!000|666|9)\d{3}-(?!00)\d\d-(?!0000)\d{4}(?![\w-])"
    r"|(?i:(?<!\w)(?:ssn|social security(?: number| no)?)\b)[.:# ]{1,4}"
    r"(?P<labelled>(?!000|666|9)\d{3}(?P<gap>[ -]?)(?!00)\d\d(?P=gap)(?!0000)\d{4})(?![\w-])",
    re.ASCII,
)

_CARD = re.compile(
    r"(?<![\w.+-])(?:\d{13,19}|\d{4}(?P<four>[ -])\d{4}(?P=four)\d{4}(?P=four)\d{4}(?:(?P=four)\d{3})?"
    r"|3\d{3}(?P<six>[ -])\d{6}(?P=six)\d{4,5})(?!\w|\.\d)",
    re.ASCII,
)
# ISO/IEC 7812 issuer identification numbers: first and last number of a range, digits compared, lengths of a card's number.
_ISSUERS = (
    (4, 4, (13, 16, 19)),  # Visa
    (51, 55, (16,)),  # Mastercard
    (2221, 2720, (16,)),
    (34, 34, (15,)),  # American Express
    (37, 37, (15,)),
    (300, 305, (14,)),  # Diners Club
    (36, 36, (14, 16, 19)),
    (38, 39, (16, 19)),
    (3528, 3589, (16, 17, 18, 19)),  # JCB
    (6011, 6011, (16, 17, 18, 19)),  # Discover
    (644, 659, (16, 17, 18, 19)),
    (62, 62, (16, 17, 18, 19)),  # UnionPay
)

_IBAN = re.compile(r"(?<!\w)[A-Z]{2}\d\d(?= ?[A-Z0-9])", re.ASCII)
_IBAN_PART = re.compile(r" ?([A-Z0-9]{1,34})", re.ASCII)
# SWIFT IBAN registry: length by country.
_IBAN_REGISTRY = (
    "AD24 AE23 AL28 AT20 AZ28 BA20 BE16 BG22 BH22 BI27 BR29 BY28 CH21 CR22 CY28 CZ24 DE22 DJ27 DK18 DO28 EE20 EG29 ES24 "
    "FI18 FK18 FO18 FR27 GB22 GE22 GI23 GL18 GR27 GT28 HN28 HR21 HU28 IE22 IL23 IQ23 IS26 IT27 JO30 KW30 KZ20 LB28 LC32 "
    "LI21 LT20 LU20 LV21 LY25 MC27 MD24 ME22 MK19 MN20 MR27 MT31 MU30 NI28 NL18 NO15 OM23 PK24 PL28 PS29 PT25 QA29 RO24 "
    "RS22 RU33 SA24 SC31 SD18 SE24 SI19 SK24 SM27 SO23 ST25 SV28 TL23 TN24 TR26 UA29 VA22 VG24 XK20 YE30"
)
_IBAN_LENGTHS = {entry[:2]: int(entry[2:]) for entry in _IBAN_REGISTRY.split()}

KEY_CAPITALS = 16
"""Capitals that a key without a digit has; that of Amazon has 16 letters and digits."""
# Shapes that the issuers document, or that their secret scanners look for.
_KEYS = re.compile(
    r"-----BEGIN (?:[A-Z0-9]+ ){0,4}PRIVATE KEY(?: BLOCK)?-----(?:[^-]|-(?!----)){16,16000}-----END [A-Z0-9 ]{1,40}-----"
    r"|(?<![\w.-])eyJ[\w-]{8,4096}\.eyJ[\w-]{8,8192}\.[\w-]{8,1024}"  # JSON web tokens
    r"|(?<![A-Za-z0-9])(?:"
    r"(?:AKIA|ASIA|ABIA|ACCA)[A-Z2-7]{16}(?![A-Za-z0-9])"  # AWS
    r"|gh[pousr]_[A-Za-z0-9]{36,255}|github_pat_[A-Za-z0-9_]{36,255}"
    r"|glpat-[\w-]{20,255}"  # GitLab
    r"|xox[abeoprs]-[A-Za-z0-9-]{15,255}"  # Slack
    r"|[rs]k_(?:live|test)_[A-Za-z0-9]{16,255}"  # Stripe
    r"|sk-(?:ant-|proj-|svcacct-|or-)?[A-Za-z0-9_-]{20,255}"  # OpenAI, Anthropic, OpenRouter
    r"|AIza[\w-]{35}(?![\w-])"  # Google
    r"|hf_[A-Za-z0-9]{30,255}|npm_[A-Za-z0-9]{36}(?![A-Za-z0-9])|pypi-AgE[\w-]{40,255}"
    r"|SG\.[\w-]{16,64}\.[\w-]{16,64}"  # SendGrid
    r")"
    r"|(?i:(?:(?:api|access|secret|auth|private|client)[_-]?(?:key|secret|token)|secret|token|passwd|password)"
    r"[\"']?[ \t]{0,3}[:=][ \t]{0,3}[\"']?|(?<!\w)bearer )(?P<labelled>[\w./+~-]{19,511}[\w/+~-]={0,2})",
    re.ASCII,
)


@dataclass(frozen=True)
class Finder:
    """How one kind is found."""

    flags: int
    """Those of `pii_scan` of which a segment has one that can hold this kind."""
    find: Callable[[str], Spans]
    """Yields what it finds."""
    plain: Callable[[str], str]
    """Makes the same of every spelling of the same value."""


def _emails(text: str) -> Spans:
    return (match.span() for match in _EMAIL.finditer(text))


def _ips(text: str) -> Spans:
    found = [match.span() for match in _IPV4.finditer(text) if not match.group().startswith(_NO_HOST)]
    found += [match.span() for match in _IPV6.finditer(text) if _is_ipv6(match.group())]
    return iter(sorted(found))


def _is_ipv6(text: str) -> bool:
    try:
        ipaddress.IPv6Address(text)
    except ValueError:
        return False
    return True


def _labelled(pattern: re.Pattern[str], text: str) -> Spans:
    return (match.span("labelled" if match["labelled"] else 0) for match in pattern.finditer(text))


def _phones(text: str) -> Spans:
    return _labelled(_PHONES, text)


def _ssns(text: str) -> Spans:
    return _labelled(_SSN, text)


def _keys(text: str) -> Spans:
    """Yield keys. They have a digit or many capitals; what only a word such as ``token=`` announces has digits and letters."""
    for match in _KEYS.finditer(text):
        start, stop = match.span("labelled" if match["labelled"] else 0)
        value = text[start:stop]
        has_digit = any(character.isdigit() for character in value)
        if match["labelled"]:
            is_key = has_digit and any(character.isalpha() for character in value)
        else:
            is_key = has_digit or sum(character.isupper() for character in value) >= KEY_CAPITALS
        if is_key:
            yield start, stop


def _cards(text: str) -> Spans:
    return (match.span() for match in _CARD.finditer(text) if is_card_number(_digits(match.group())))


def is_card_number(digits: str) -> bool:
    """Tell whether an issuer, its lengths and the check digit (Luhn, ISO/IEC 7812-1) fit.

    Examples
    --------
    >>> is_card_number("4111111111111111"), is_card_number("4111111111111112")
    (True, False)
    """
    issued = any(
        first <= int(digits[: len(str(first))]) <= last and len(digits) in lengths for first, last, lengths in _ISSUERS
    )
    doubled = sum(sum(divmod(2 * int(digit), 10)) for digit in digits[-2::-2])
    return issued and (doubled + sum(int(digit) for digit in digits[::-2])) % 10 == 0


def _ibans(text: str) -> Spans:
    free_from = 0
    for match in _IBAN.finditer(text):
        start = match.start()
        stop = _iban_stop(text, start) if start >= free_from else 0
        if stop and is_iban(text[start:stop].replace(" ", "")):
            free_from = stop
            yield start, stop


def _iban_stop(text: str, start: int) -> int:
    """Return where the number ends that is as long as its country says; 0 if there is none, or it goes on."""
    left, place = _IBAN_LENGTHS.get(text[start : start + 2], 0), start
    while left and (digits := _IBAN_PART.match(text, place)):
        part = min(left, len(digits[1]))
        left, place = left - part, digits.start(1) + part
    goes_on = place < len(text) and (text[place].isalnum() or text[place] == "_")
    return 0 if left or goes_on else place


def is_iban(number: str) -> bool:
    """Tell whether the length of the country and the check digits (ISO 13616, modulus 97) fit.

    Examples
    --------
    >>> is_iban("GB82WEST12345698765432"), is_iban("GB83WEST12345698765432")
    (True, False)
    """
    rotated = number[4:] + number[:4]
    return _IBAN_LENGTHS.get(number[:2]) == len(number) and int("".join(str(int(one, 36)) for one in rotated)) % 97 == 1


def _digits(text: str) -> str:
    return "".join(character for character in text if character.isdigit())


def _same_ip(text: str) -> str:
    return str(ipaddress.ip_address(text))


def finders() -> dict[Kind, Finder]:
    """Return the finder of each kind, in the order of `KINDS`. Imports the compiled scan, whose flags they name."""
    from curator_df.kernels import pii_scan as scan

    return {
        "key": Finder(scan.KEY, _keys, str),
        "email": Finder(scan.AT_SIGN, _emails, str.lower),
        "iban": Finder(scan.IBAN_HEAD, _ibans, lambda text: text.replace(" ", "")),
        "credit_card": Finder(scan.NUMBER, _cards, _digits),
        "ssn": Finder(scan.NUMBER, _ssns, _digits),
        "ip": Finder(scan.DOTTED | scan.COLONS, _ips, _same_ip),
        "phone": Finder(scan.NUMBER, _phones, _digits),
    }
