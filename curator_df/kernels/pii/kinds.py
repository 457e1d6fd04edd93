# SPDX-License-Identifier: Apache-2.0
"""Definitions of personal data and secrets in a piece of text: one finder for each kind, each in linear time.

Every expression is bounded, and each match is checked (check digits, ranges, lengths by country), because a number that
only looks like a card number is worth keeping.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal, get_args

from curator_df.kernels.pii import scan

Spans = Iterator[tuple[int, int]]
"""Spans: first character and the one after the last, in order and without overlap."""

_SPACE = r" \u00a0\u202f"
_HYPHEN = r"\u2010\u2011-"
# Between two digits: at most two of these characters, or a hyphen between spaces, but not a space and a minus sign.
_GAP = rf"(?:[{_SPACE}][{_HYPHEN}][{_SPACE}]|(?![{_SPACE}][{_HYPHEN}])[{_SPACE}.()/{_HYPHEN}]{{0,2}})"
_AREA = r"[2-9](?!11)[0-8]\d"
_EXCHANGE = r"[2-9](?!11)\d\d"
_BETWEEN = r"(?: ?[-./] ?| )"
_AFTER_PARENTHESIS = rf"{_AREA}\){_BETWEEN}?{_EXCHANGE}{_BETWEEN}\d{{4}}"
_LAST_SEVEN = rf"(?:-{_EXCHANGE}-|\.{_EXCHANGE}\.|[/ ]{_EXCHANGE}[-. ])\d{{4}}"
# Each alternative begins with a character and then looks behind it, so that `re` skips impossible starts.
_PHONES = re.compile(
    rf"[+＋](?<![\w+＋].) ?[1-9](?:{_GAP}\d){{7,14}}(?!\d)"
    rf"|(?P<american>(?:\((?<![\w+].){_AFTER_PARENTHESIS}"
    rf"|1(?<![\w+].)(?:{_BETWEEN}?\({_AFTER_PARENTHESIS}|(?<![.-].)[ .-]{_AREA}{_LAST_SEVEN})"
    rf"|[2-9](?<![\w+.-].)(?!11)[0-8]\d{_LAST_SEVEN})(?!(?!x\d)[\w-]|\.\d))"
    rf"|[:：#. \t](?<!\d.)(?P<labeled>\(?\d(?:{_GAP}\d){{6,14}})(?!\d)",
    re.ASCII,
)
_AMERICAN_HERE = re.compile(
    rf"(?:1{_BETWEEN}?)?(?:\({_AREA}\)|{_AREA}){_BETWEEN}?{_EXCHANGE}{_BETWEEN}?\d{{4}}(?!\w|\.\d)", re.ASCII
)
_MARKS = " \t.:：#"
_MOST_MARKS = 16
_SPACED = re.compile(r"(?:1 )?\d{3} \d{3} \d{4}", re.ASCII)

CONTEXT = 48
"""Number of characters before a match that are read for the decision."""
# Chinese, Japanese and Korean labels need no word boundary.
_PHONE_LABEL = (
    r"(?:(?:(?<![A-Za-z0-9_\u00c0-\u024f\u0400-\u04ff])(?:tel(?:e(?:ph|f)one?|fax|\.? ?fax)?|t[eé]l[eé](?:phone|copie)|phone"
    r"|fax|mobile?|cell|handy|rufnummer|portable|whatsapp|(?-i:ph|Ph|PH)|tel[eé]fono|telefoon|telefoni|puhelin|тел(?:ефон)?|факс)"
    r"|电话|手机|電話(?:番号)?|手機|传真|傳真|携帯|전화|휴대폰|팩스)(?:[ .]{0,2}(?:no|nr|number|nummer|n[o°º]))?)"
)
_LABEL_BEFORE = re.compile(rf"{_PHONE_LABEL}$", re.IGNORECASE)
_ANNOUNCED = re.compile(
    rf"(?:{_PHONE_LABEL}|(?<![^\W_])(?:ph|fone|tele|voice|call|calling|dial|contact|sms|home|office|work|wk|evenings?|pager|hotline|bbs"
    r"|bell|number)(?![^\W_]))[^\d\n]{0,20}$",
    re.IGNORECASE,
)
_EXTENDED = re.compile(
    r"[ ,]{0,2}(?:x ?\d|ext\b|\((?:home|work|office|cell|mobile|voice|fax|h|w|o|c)\))", re.IGNORECASE
)
NOT_A_PERSON = re.compile(
    r"(?<![^\W_])(?:part|order|item|sku|model|serial|s/n|invoice|tracking|ticket|ref(?:erence)?|catalog(?:ue)?|lot|batch|ean|upc|gtin"
    r"|isbn|issn|bar ?code|doi|pmid|imei|product|article|artikel|isbn-1[03])s?(?:[ _-]?(?:no|nr|num|number|code|id|#))?"
    r"[ \t]{0,3}(?:is )?[.:#=\"' \t-]{0,4}$|(?<!\d)10\.\d{4,9}/[^\s]{0,40}$",
    re.IGNORECASE,
)
"""Expression for text before the numbers of things, and before a DOI that they are a part of."""
_ARITHMETIC = re.compile(r"[\d)\]][ \t]{0,3}$")
_DATE = re.compile(
    r"(?:19|20)\d\d[-./](?:0?[1-9]|1[0-2])(?!\d)|(?:0?[1-9]|[12]\d|3[01])[./-](?:0?[1-9]|1[0-2])[./-](?:19|20)\d\d(?!\d)"
)
_TIME = re.compile(r":\d\d(?!\d)")
_GROUP = re.compile(r"\d+", re.ASCII)

# Lengths of national numbers by country code (ITU-T E.164 Annex, national plans as collected by libphonenumber).
_PLANS = (
    "4-5:290 4-7:683,690 4-10:98 4-11:352 4-13:43,598 4-15:49 5-5:500,682 5-6:247 5-7:676,677,678,688 5-8:47,386,686 "
    "5-10:27,64,685 5-11:31,852 5-12:61,358,971 5-14:82 6-6:298,299,672,687 6-7:597 6-9:40,252,355,376,421,508,681,689 "
    "6-10:48,53,95,880 6-11:375,595 6-12:39,46,359,381 6-13:63 7-7:238,239,246,248,269,291,297,592,673,674,680,691,692 "
    "7-8:241,599,670,675,853,961,965,975 7-9:220,231,245,265,354,385,423,967,968 7-10:44,84,230,243,254,263,267,353,372,960 "
    "7-11:501,503,507,679,886,974 7-12:86,882,972 7-13:90 7-17:62 "
    "8-8:45,216,222,223,226,227,228,232,235,236,253,257,266,350,356,357,370,371,373,374,389,505,509,800,808,973,993 "
    "8-9:32,36,51,213,224,233,237,250,258,264,268,377,382,387,591,962,963 8-10:20,60,378,506,850,855,856,964,970,976 "
    "8-11:55,57,65,502,504,593,977 8-12:92,383,883 8-13:66,91 8-17:81 "
    "9-9:33,34,93,94,211,212,218,221,240,242,244,249,251,255,256,260,261,262,351,590,594,596,979,992,994,995,998 "
    "9-10:380,881,966,996 9-11:56 9-12:41,420,870 10-10:52,58,225,229 10-11:54 10-12:30 10-14:7,234 11-11:888 12-12:878"
)
_LENGTHS = {
    code: tuple(map(int, plan.split(":")[0].split("-")))
    for plan in _PLANS.split()
    for code in plan.split(":")[1].split(",")
}
_SHORTER, _LONGER = 2, 1
"""Number of digits by which numbers of older plans and numbers with a trunk prefix differ from the present lengths."""


def phones(text: str) -> Spans:
    """Yield the telephone numbers of a text.

    Examples
    --------
    >>> list(phones("Call +49 30 1234567, it was 13:08:45 +0000 2008"))
    [(5, 19)]
    """
    at = 0
    while match := _PHONES.search(text, at):
        start, stop = match.span("labeled" if match["labeled"] else 0)
        if match["labeled"]:
            stop = _labeled_stop(text, start, stop)
        elif not match["american"]:
            stop = _international_stop(text, start, stop)
        elif not _is_american(text, start, stop):
            stop = 0
        if stop:
            yield start, stop
        at = stop or match.start() + 1


def is_international(digits: str) -> bool:
    """Return whether digits after a plus sign have an assigned country code and a valid length for it.

    Examples
    --------
    >>> is_international("14155552671"), is_international("10002008")
    (True, False)
    """
    if digits[0] == "1":
        return re.fullmatch(rf"1{_AREA}{_EXCHANGE}\d{{4}}", digits) is not None
    code = next((digits[:length] for length in (1, 2, 3) if digits[:length] in _LENGTHS), None)
    if code is None:
        return False
    least, most = _LENGTHS[code]
    national = len(digits) - len(code)
    trunk = digits[len(code)] == "0"
    return least - _SHORTER <= national <= most + _LONGER or (trunk and least <= national - 1 <= most)


def _international_stop(text: str, start: int, stop: int) -> int:
    """Return the end of the longest number that begins here and is valid for its country; 0 if there is none."""
    value = text[start:stop]
    before = text[max(0, start - CONTEXT) : start]
    if not _ANNOUNCED.search(before):
        separators = re.sub(r"\d+", " ", value[1:]).split()
        is_decimal = separators[:1] == ["."] and (len(separators) == 1 or set(separators) != {"."})
        if is_decimal or value[1] == " " or (value[1:].isdigit() and _ARITHMETIC.search(before)):
            return 0
    stop = _without_rest(text, start, stop)
    ends = [group.end() for group in _GROUP.finditer(text, start, stop)]
    for end in reversed(ends):
        digits = "".join(filter(str.isdigit, text[start:end]))
        if len(digits) >= 8 and is_international(digits):
            return end
    return 0


def _is_american(text: str, start: int, stop: int) -> bool:
    before = text[max(0, start - CONTEXT) : start]
    if NOT_A_PERSON.search(before):
        return False
    if not _SPACED.fullmatch(text, start, stop):
        return True
    return bool(_ANNOUNCED.search(before) or _EXTENDED.match(text, stop))


def _labeled_stop(text: str, start: int, stop: int) -> int:
    """Return the end of a number after a label; 0 if there is no label, or if it is a date."""
    before = text[max(0, start - CONTEXT) : start]
    word = before.rstrip(_MARKS)
    marks = before[len(word) :]
    if (
        not word[-1:].isalpha()
        or len(marks) > _MOST_MARKS
        or not (marks.strip() or text.startswith(("0", "(0"), start))
    ):
        return 0
    if not _LABEL_BEFORE.search(word) or _DATE.match(text, start):
        return 0
    if american := _AMERICAN_HERE.match(text, start):
        return american.end()
    return _without_rest(text, start, stop)


def _without_rest(text: str, start: int, stop: int) -> int:
    """Return the end of the number, without a following hour of a time of day and without an open parenthesis."""
    opened = text.rfind("(", start + 1, stop)
    if opened > text.rfind(")", start, stop):
        stop = start + len(text[start:opened].rstrip())
    if _TIME.match(text, stop):
        hour = max(text.rfind(space, start, stop) for space in " \u00a0\u202f")
        return hour if hour > start else stop
    return stop


Kind = Literal["key", "email", "iban", "credit_card", "ssn", "ip", "phone"]
"""Kinds; where two overlap, the earlier one wins."""
KINDS: tuple[Kind, ...] = get_args(Kind)

# Letters of a name before the at sign: only Latin ones, because scripts without spaces are written right before it.
_NAME = r"A-Za-z0-9_\u00c0-\u024f"
_LABEL = r"[^\W_](?:[\w-]{0,61}[^\W_])?"
_TOP = r"(?:[A-Za-z]{2,24}(?![A-Za-z0-9-])|xn--[A-Za-z0-9-]{1,59}|[^\W\d_A-Za-z]{2,24})"
# File name extensions that are not top-level domains (icon@2x.png), and those that are.
_FILE_ENDINGS = (
    "png jpg jpeg gif webp svg ico bmp tif tiff avif heic psd css scss sass less js cjs mjs jsx ts tsx json json5 yaml yml "
    "htm html xhtml xml php asp aspx jsp txt csv tsv log cfg conf ini toml lock tar gz tgz bz2 xz zst rar exe dll whl jar "
    "war cpp hpp kt rb sql pdf doc docx xls xlsx ppt pptx mp3 mp4 m4a ogg wav webm mkv avi otf ttf woff woff2 eot patch "
    "diff bak tmp orig vue svelte wasm ipynb parquet"
)
_FILES = frozenset((_FILE_ENDINGS + " " + _FILE_ENDINGS.upper()).split())
_FILES_AND_DOMAINS = frozenset(("map", "mov", "zip"))
_VERSION = re.compile(r"v?[0-9]+(?:\.(?:[0-9]+|x)[.+-]|-(?:alpha|beta|rc|pre|dev|next|canary)\b)", re.IGNORECASE)
_DENSITY = re.compile(r"[0-9]+(?:\.[0-9]+)?x(?:[~_-][^.]{0,20})?\.", re.IGNORECASE)
_EMAIL = re.compile(rf"[{_NAME}](?<![{_NAME}%+].)[{_NAME}.%+-]{{0,63}}@(?=(.))(?:{_LABEL}\.){{1,8}}({_TOP})(?!@)")
# First letter of names such as O'Neil.
_APOSTROPHE = re.compile(rf"(?:(?<![{_NAME}.%+'-])|(?<![{_NAME}.%+'-])[{_NAME}][{_NAME}.%+-]{{0,30}}[._-])[Oo]'$")
# Shared logins, and names of algorithms in the form of addresses (RFC 4251, section 6).
_SHARED_LOGIN = re.compile(r"(?:git|hg|aur|gitea|forgejo)@[^@]{1,255}$", re.IGNORECASE)
_REPOSITORY = re.compile(r"[:/]~?\w")
_ALGORITHMS = ("openssh.com", "libssh.org")
# First characters of domains, endings and following characters that need a closer look, for speed.
_ODD_FIRST = frozenset("0123456789vV") | {name[0] for name in _ALGORITHMS}
_ODD_AFTER = frozenset(":/")

# These and the next ones begin with a character and then look behind it, so that `re` skips impossible starts.
_IPV4 = re.compile(r"\d(?<![\w.].)\d{0,2}\.\d{1,3}\.\d{1,3}\.\d{1,3}(?!\w|\.\d)", re.ASCII)
_IPV6 = re.compile(
    r"[0-9A-Fa-f](?<![\w:.].)[0-9A-Fa-f]{3}(?::[0-9A-Fa-f]{0,4}){2,7}"
    r"(?:(?<=:)\d{1,3}\.\d{1,3}\.\d{1,3}\.\d{1,3}(?!\.\d)|(?<!(?<!:):)(?!\.\d))(?!\w)",
    re.ASCII,
)
_NO_HOST = ("0.", "127.", "255.")
_RESOLVERS = frozenset(("1.0.0.1", "1.1.1.1", "4.2.2.1", "4.2.2.2", "8.8.4.4", "8.8.8.8", "9.9.9.9"))
# Words that mark four numbers as a version or a section, and words that mark them as an address.
_VERSION_BEFORE = re.compile(
    r"(?:(?<![^\W_])(?:versions?|vers?|v|rev(?:ision)?|release[ds]?|build|firmware|sections?|sect?|chapter|clause|paragraph|para|figure"
    r"|appendix|annex|oid|versi[oó]n|versione|vers[aã]o|wersj[aiię]|verze|versie|versionen|abschnitt|kapitel|secci[oó]n|верси[яию]|раздел)"
    r"|§|バージョン|版本|버전)[ \t]{0,3}(?:(?:no|nr|number|is|to)(?![^\W_]))?[ \t:=.(\"'#\[-]{0,4}$",
    re.IGNORECASE,
)
_VERSION_AFTER = re.compile(
    r"[-_~.]?(?:alpha|beta|rc|pre|dev|snapshot|release|final|build|preview|nightly|canary|post|stable|lts|ga(?![a-z]))|[-_~][abpr]\d|\+[a-z\d]",
    re.IGNORECASE,
)
_IP_BEFORE = re.compile(
    r"(?:(?<![a-z])ips?(?:v?4)?|addr(?:ess(?:es)?)?|adress[ea]n?|host|dns|listen|gateway|netmask|subnet|ping|ssh|telnet|inet|nameserver"
    r"|resolver|peer|(?:allow|deny) from|//|@)[^\d\n]{0,12}$|[a-z\d-]\.[a-z]{2,}[ \t]{0,3}[\[(]$",
    re.IGNORECASE,
)
_IP_AFTER = re.compile(r":\d{2,5}(?![\d.])|/\d{1,2}(?![\d./])", re.ASCII)
# A product and its version, as browsers name themselves (SamsungBrowser/12.1.1.36).
_PRODUCT_BEFORE = re.compile(r"(?<![\w./-])[A-Z][A-Za-z]{1,30}/$")
_SLICE_BEFORE = re.compile(r"[\w)\]]\[$")
_CLOCK_LIKE = re.compile(r"\d{4}(?::\d\d){7}", re.ASCII)

_SSN = re.compile(r"[0-8](?<![\w-].)\d\d-(?!00)\d\d-(?!0000)\d{4}(?![\w-])", re.ASCII)
_LABELED_SSN = re.compile(
    r"(?i:(?<!\w)(?:ssn|social security(?: number| no)?)\b)[.:# ]{1,4}"
    r"(?P<labeled>(?!9)\d{3}(?P<gap>[ -]?)(?!00)\d\d(?P=gap)(?!0000)\d{4})(?![\w-])",
    re.ASCII,
)
_NO_AREA = ("000", "666")

_CARD = re.compile(
    r"\d(?<![\w.+-].)(?:\d{12,18}"
    r"|\d{3}(?P<four>[ .\u00a0\u2010\u2011\u202f-])\d{4}(?P=four)\d{4}(?P=four)\d{4}(?:(?P=four)\d{3})?"
    r"|(?<=3)\d{3}(?P<six>[ .\u00a0\u2010\u2011\u202f-])\d{6}(?P=six)\d{4,5})(?!\w|\.\d)",
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
_USUAL_LENGTHS = (14, 15, 16, 19)
"""Lengths of unbroken digits without a label: 13 are mostly bar codes, 17 and 18 identifiers of posts and rows."""
_CARD_BEFORE = re.compile(
    r"(?:card|credit|debit|visa|amex|american express|discover|diners|jcb|unionpay|maestro|(?<![^\W_])(?:cc|pan)(?![^\W_])"
    r"|kreditkarte|karte|carte|tarjeta|carta|cart[aã]o|карт[аыу]|卡号|信用卡|银行卡|カード|카드)[^\d\n]{0,20}$",
    re.IGNORECASE,
)
_IN_URL = re.compile(r"/$|[?&][\w.%-]{1,40}=$", re.ASCII)
_FOUR_BEFORE = re.compile(r"(?<!\d)\d{4}(.)$", re.ASCII)

_IBAN = re.compile(r"(?<!\w)[A-Z]{2}\d\d(?=[ \u00a0\u202f-]?[A-Z0-9])", re.ASCII)
_IBAN_PART = re.compile(r"[ \u00a0\u202f-]?([A-Z0-9]{1,34})", re.ASCII)
_IBAN_GAPS = str.maketrans("", "", " \u00a0\u202f-")
# SWIFT IBAN registry: length by country.
_IBAN_REGISTRY = (
    "AD24 AE23 AL28 AT20 AZ28 BA20 BE16 BG22 BH22 BI27 BR29 BY28 CH21 CR22 CY28 CZ24 DE22 DJ27 DK18 DO28 EE20 EG29 ES24 "
    "FI18 FK18 FO18 FR27 GB22 GE22 GI23 GL18 GR27 GT28 HN28 HR21 HU28 IE22 IL23 IQ23 IS26 IT27 JO30 KW30 KZ20 LB28 LC32 "
    "LI21 LT20 LU20 LV21 LY25 MC27 MD24 ME22 MK19 MN20 MR27 MT31 MU30 NI28 NL18 NO15 OM23 PK24 PL28 PS29 PT25 QA29 RO24 "
    "RS22 RU33 SA24 SC31 SD18 SE24 SI19 SK24 SM27 SO23 ST25 SV28 TL23 TN24 TR26 UA29 VA22 VG24 XK20 YE30"
)
_IBAN_LENGTHS = {entry[:2]: int(entry[2:]) for entry in _IBAN_REGISTRY.split()}

# Formats that the issuers document, or that their secret scanners look for.
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
    r"[\"']?[ \t]{0,3}[:=][ \t]{0,3}[\"']?|(?<!\w)bearer )(?P<labeled>[\w./+~-]{19,511}[\w/+~-]={0,2})",
    re.ASCII,
)
# One of these is in every text with a key: they are found 5 times as fast as that `_KEYS` finds nothing.
_KEY_HINTS = (
    "-----BEGIN",
    "eyJ",
    "AKIA",
    "ASIA",
    "ABIA",
    "ACCA",
    "ghp_",
    "gho_",
    "ghu_",
    "ghs_",
    "ghr_",
    "github_pat_",
    "glpat-",
    "xox",
    "k_live_",
    "k_test_",
    "sk-",
    "AIza",
    "hf_",
    "npm_",
    "pypi-AgE",
    "SG.",
)
_KEY_LABEL_HINTS = ("key", "secret", "token", "passw", "bearer")


@dataclass(frozen=True)
class Finder:
    """Finder of one kind."""

    flags: int
    """Flags of `scan`; a segment that can hold this kind has one of them."""
    find: Callable[[str], Spans]
    """Function that yields the findings."""
    plain: Callable[[str], str]
    """Function that maps every spelling of a value to the same text."""


def _emails(text: str) -> Spans:
    ended = 0
    for match in _EMAIL.finditer(text):
        start, stop = match.span()
        first, ending = match.groups()
        is_odd = first in _ODD_FIRST or ending in _FILES or text[stop : stop + 1] in _ODD_AFTER
        if is_odd and _names_nobody(text, start, stop):
            continue
        if start and text[start - 1] == "'" and (name := _APOSTROPHE.search(text, max(ended, start - 36), start)):
            start = name.start()
        ended = stop
        yield start, stop


def _names_nobody(text: str, start: int, stop: int) -> bool:
    """Return whether a match is a version, a file, the login of a code host before a repository, or the name of an algorithm."""
    domain = text[text.index("@", start) + 1 : stop]
    host, _, ending = domain.rpartition(".")
    is_dense = _DENSITY.match(domain) is not None
    is_file = ending in _FILES and (is_dense or "." not in host)
    is_login = _SHARED_LOGIN.match(text, start, stop) and _REPOSITORY.match(text, stop)
    return bool(
        is_file
        or (is_dense and ending.lower() in _FILES_AND_DOMAINS)
        or domain in _ALGORITHMS
        or _VERSION.match(domain)
        or is_login
    )


def _ips(text: str) -> Spans:
    found: list[tuple[int, int]] = []
    if text.count(".") > 2:
        found = [match.span() for match in _IPV4.finditer(text) if _is_ipv4(text, *match.span())]
    if text.count(":") > 1 and (more := [m.span() for m in _IPV6.finditer(text) if _is_ipv6(text, *m.span())]):
        return iter(sorted(found + more, key=lambda span: (span[0], -span[1])))
    return iter(found)


def _is_ipv4(text: str, start: int, stop: int) -> bool:
    """Return whether four numbers are an address and not a version or a section, by their context if they are small."""
    value = text[start:stop]
    if value.startswith(_NO_HOST) or not _is_address(ipaddress.IPv4Address, value):
        return False
    before = text[max(0, start - CONTEXT) : start]
    if _VERSION_BEFORE.search(before) or _VERSION_AFTER.match(text, stop):
        return False
    first, *others = map(int, value.split("."))
    is_doubtful = (first < 10 and max(others) < 100) or (first != 10 and max(first, *others) < 32)
    is_doubtful = is_doubtful or (before.endswith("/") and _PRODUCT_BEFORE.search(before) is not None)
    return not is_doubtful or value in _RESOLVERS or bool(_IP_BEFORE.search(before) or _IP_AFTER.match(text, stop))


def _is_ipv6(text: str, start: int, stop: int) -> bool:
    """Return whether an address is valid, in a block for hosts (RFC 4291, 4193), and not a scope, slice or time."""
    value = text[start:stop]
    first = int(value[:4], 16)
    is_of_hosts = first >> 13 == 0b001 or first >> 9 == 0xFC00 >> 9 or first >> 6 == 0xFE80 >> 6
    if not is_of_hosts or value[4:] == "::" or not any(map(str.isdigit, value)):
        return False
    if _CLOCK_LIKE.fullmatch(value) or (
        value.replace(":", "").isdigit() and _SLICE_BEFORE.search(text, max(0, start - 2), start)
    ):
        return False
    return _is_address(ipaddress.IPv6Address, value)


def _is_address(kind: type[ipaddress.IPv4Address | ipaddress.IPv6Address], value: str) -> bool:
    try:
        kind(value)
    except ValueError:
        return False
    return True


def _ssns(text: str) -> Spans:
    found: list[tuple[int, int]] = []
    lowered = text.lower()
    if "ssn" in lowered or "social security" in lowered:
        found = [match.span("labeled") for match in _LABELED_SSN.finditer(text)]
    if text.count("-") > 1:
        found += [
            match.span()
            for match in _SSN.finditer(text)
            if match.span() not in found
            and not NOT_A_PERSON.search(text[max(0, match.start() - CONTEXT) : match.start()])
        ]
    return (span for span in sorted(found) if not text.startswith(_NO_AREA, span[0]))


def _keys(text: str) -> Spans:
    """Yield keys. They have a digit or many capitals; keys found only by a label such as ``token=`` have digits and letters."""
    lowered = text.lower()
    if not any(map(text.__contains__, _KEY_HINTS)) and not any(map(lowered.__contains__, _KEY_LABEL_HINTS)):
        return
    for match in _KEYS.finditer(text):
        start, stop = match.span("labeled" if match["labeled"] else 0)
        value = text[start:stop]
        has_digit = any(character.isdigit() for character in value)
        if match["labeled"]:
            is_key = has_digit and any(character.isalpha() for character in value)
        else:
            is_key = has_digit or sum(character.isupper() for character in value) >= scan.KEY_CAPITALS
        if is_key:
            yield start, stop


def _cards(text: str) -> Spans:
    ended = 0
    for match in _CARD.finditer(text):
        start, stop = match.span()
        if is_card_number(_digits(match.group())) and _is_card_here(text, match, ended):
            ended = stop
            yield start, stop


def _is_card_here(text: str, match: re.Match[str], ended: int) -> bool:
    """Return whether the context of a valid number indicates a card; the previous card ended at ``ended``."""
    start, stop = match.span()
    before = text[max(0, start - CONTEXT) : start]
    if _CARD_BEFORE.search(before):
        return True
    if NOT_A_PERSON.search(before):
        return False
    if gap := match["four"] or match["six"]:
        # One of several columns of four-digit numbers.
        in_table = (column := _FOUR_BEFORE.search(before)) and column[1] == gap and ended != start - 1
        return not in_table
    return stop - start in _USUAL_LENGTHS and not _IN_URL.search(before)


def is_card_number(digits: str) -> bool:
    """Return whether the issuer, its lengths and the check digit (Luhn, ISO/IEC 7812-1) match.

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
        if stop and is_iban(text[start:stop].translate(_IBAN_GAPS)):
            free_from = stop
            yield start, stop


def _iban_stop(text: str, start: int) -> int:
    """Return the end of a number of the length for its country; 0 if there is none, or it continues."""
    left, place = _IBAN_LENGTHS.get(text[start : start + 2], 0), start
    while left and (digits := _IBAN_PART.match(text, place)):
        part = min(left, len(digits[1]))
        left, place = left - part, digits.start(1) + part
    goes_on = place < len(text) and (text[place].isalnum() or text[place] == "_")
    return 0 if left or goes_on else place


def is_iban(number: str) -> bool:
    """Return whether the length for the country and the check digits (ISO 13616, modulus 97) match.

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
    """Return the finder of each kind, in the order of `KINDS`. Imports the compiled scan, for its flags."""
    return {
        "key": Finder(scan.KEY, _keys, str),
        "email": Finder(scan.AT_SIGN, _emails, str.lower),
        "iban": Finder(scan.IBAN_HEAD, _ibans, lambda text: text.translate(_IBAN_GAPS)),
        "credit_card": Finder(scan.NUMBER, _cards, _digits),
        "ssn": Finder(scan.NUMBER, _ssns, _digits),
        "ip": Finder(scan.DOTTED | scan.COLONS, _ips, _same_ip),
        "phone": Finder(scan.NUMBER, phones, _digits),
    }
