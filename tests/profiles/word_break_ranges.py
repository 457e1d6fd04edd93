# SPDX-License-Identifier: Apache-2.0
"""Unicode's Word_Break property as uniseg has it: a script for a Python that has uniseg 0.10.1.

Prints a line of JSON: for each value that words are made of, the code points that have it, as `kernels.text.word_break` writes
them. Its tables were made with this.
"""

from __future__ import annotations

import json
from itertools import groupby

from uniseg.emoji import extended_pictographic
from uniseg.wordbreak import word_break

NAMES = (
    "ALetter",
    "Hebrew_Letter",
    "Numeric",
    "Katakana",
    "ExtendNumLet",
    "MidLetter",
    "MidNum",
    "MidNumLet",
    "Single_Quote",
    "Double_Quote",
    "Extend",
    "Format",
    "ZWJ",
)


def ranges(codes: list[int]) -> str:
    """Write sorted code points as ``first-last`` in hexadecimal, a single one as itself."""
    runs = []
    for _, run in groupby(enumerate(codes), key=lambda place: place[1] - place[0]):
        members = [code for _, code in run]
        runs.append(f"{members[0]:x}" if len(members) == 1 else f"{members[0]:x}-{members[-1]:x}")
    return " ".join(runs)


def main() -> None:
    codes = [code for code in range(0x110000) if not 0xD800 <= code < 0xE000]
    value_of = {code: word_break(chr(code)).value for code in codes}
    found = {name: ranges([code for code in codes if value_of[code] == name]) for name in NAMES}
    found["Extended_Pictographic"] = ranges([code for code in codes if extended_pictographic(chr(code))])
    print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
