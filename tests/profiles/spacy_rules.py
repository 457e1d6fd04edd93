# SPDX-License-Identifier: Apache-2.0
"""What spaCy's English tokenizer rules say, as data: a script for a Python that has spaCy.

Prints the JSON of ``kernels/english_tokens/english_tokens.json``. Each kind of character is found by trying its expression on
every code point, so that the file holds what the rules match and nothing of how they are written.
"""

from __future__ import annotations

import json
import re
import sys

import spacy
from spacy.lang import char_classes
from spacy.lang.tokenizer_exceptions import URL_MATCH
from spacy.pipeline import Sentencizer
from spacy.symbols import ORTH

SOURCE = (
    "Rules of spaCy {version}'s blank English tokenizer (MIT license, Copyright ExplosionAI GmbH), which datatrove 0.10.0 "
    "splits words with; made by tests/profiles/spacy_rules.py"
)
LAST = 0x40000


def ranges(expression: str) -> str:
    """Return the code points that match, as hexadecimal ranges."""
    matches = re.compile(expression).fullmatch
    found: list[list[int]] = []
    for code in range(LAST):
        if not matches(chr(code)):
            continue
        if found and found[-1][1] == code - 1:
            found[-1][1] = code
        else:
            found.append([code, code])
    return " ".join(f"{first:x}" if first == last else f"{first:x}-{last:x}" for first, last in found)


def main() -> None:
    tokenizer = spacy.blank("en").tokenizer
    assert tokenizer.token_match is None
    assert tokenizer.url_match is URL_MATCH or tokenizer.url_match == URL_MATCH
    singles = {
        "prefix": tokenizer.prefix_search.__self__.pattern,
        "suffix": tokenizer.suffix_search.__self__.pattern,
        "infix": tokenizer.infix_finditer.__self__.pattern,
    }
    before_dot = char_classes.ALPHA_LOWER + r"%²\-\+" + char_classes.PUNCT + f"(?:{char_classes.CONCAT_QUOTES})"
    classes = {name: ranges(expression) for name, expression in singles.items()} | {
        "alpha": ranges(f"[{char_classes.ALPHA}]"),
        "lower": ranges(f"[{char_classes.ALPHA_LOWER}]"),
        "upper": ranges(f"[{char_classes.ALPHA_UPPER}]"),
        "quote": ranges(f"[{char_classes.CONCAT_QUOTES}]"),
        "before_dot": ranges(f"[0-9{before_dot}]"),
        "sentence_end": ranges(f"[{re.escape(''.join(Sentencizer.default_punct_chars))}]"),
    }
    exceptions = sorted(
        " ".join(token[ORTH] for token in tokens)
        for text, tokens in tokenizer.rules.items()
        if text.strip() == text != ""
    )
    assert all(len(item.replace(" ", "").encode()) < 32 for item in exceptions)
    after_digits = [re.sub(r"\\", "", item) for item in (char_classes.UNITS + "|" + char_classes.CURRENCY).split("|")]
    rules = {
        "source": SOURCE.format(version=spacy.__version__),
        "classes": classes,
        "after_digits": sorted({*after_digits, "+"}),
        "exceptions": exceptions,
    }
    json.dump(rules, sys.stdout, ensure_ascii=True, indent=1)
    print()


if __name__ == "__main__":
    main()
