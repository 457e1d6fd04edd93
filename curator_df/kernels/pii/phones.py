# SPDX-License-Identifier: Apache-2.0
"""Telephone numbers in a piece of text: international, North American, and those after a label.

Shape alone is not enough: time zones, signed decimals, page ranges and columns of numbers look alike. International numbers
need an assigned country code and a length that fits it, North American ones groups that the numbering plan allows.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

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
_LABEL = (
    r"(?:(?:(?<![A-Za-z0-9_\u00c0-\u024f\u0400-\u04ff])(?:tel(?:e(?:ph|f)one?|fax|\.? ?fax)?|t[eé]l[eé](?:phone|copie)|phone"
    r"|fax|mobile?|cell|handy|rufnummer|portable|whatsapp|(?-i:ph|Ph|PH)|tel[eé]fono|telefoon|telefoni|puhelin|тел(?:ефон)?|факс)"
    r"|电话|手机|電話(?:番号)?|手機|传真|傳真|携帯|전화|휴대폰|팩스)(?:[ .]{0,2}(?:no|nr|number|nummer|n[o°º]))?)"
)
_LABEL_BEFORE = re.compile(rf"{_LABEL}$", re.IGNORECASE)
_ANNOUNCED = re.compile(
    rf"(?:{_LABEL}|(?<![^\W_])(?:ph|fone|tele|voice|call|calling|dial|contact|sms|home|office|work|wk|evenings?|pager|hotline|bbs"
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
