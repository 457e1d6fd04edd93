# SPDX-License-Identifier: Apache-2.0
"""Texts that nobody wrote, and chains that between them make every metric: what a time that grows too fast is looked for with."""

from __future__ import annotations

from curator_df.kernels.metrics.catalog import METRICS
from curator_df.ops.filters.rules import Profile, Rule
from curator_df.profiles import (
    DATATROVE_C4,
    DATATROVE_FINEWEB,
    DATATROVE_GOPHER_QUALITY,
    DATATROVE_GOPHER_REPETITION,
    DCLM_QUALITY,
    DCLM_REPETITION,
    DOLMA_C4,
    DOLMA_GOPHER_V1,
    DOLMA_GOPHER_V2,
    FINEWEB_C4,
    FINEWEB_PAPER,
    NEMO_CODE,
    NEMO_ENGLISH,
    fineweb_2,
)

MARKS = "?!.,;:'\"()[]{}<>#*_-&@/\\|~^%$+=`"
REPEATED = {
    "one character": "x",
    "line feeds": "\n",
    "marks in one line": MARKS,
    "brackets": "[",
    "one word": "a ",
    "lines of one letter": "a\n",
    "mojibake in one line": "cafÃ© ",
    "addresses in one line": "a@b.co 8.8.8.8 +49 30 1234567 ",
}
DISTINCT = "ten million distinct words"
TEXTS = (*REPEATED, DISTINCT)
TAGS = ("<p>", "<b>", "</b>", "<div>", "<div><p>", "<a href=x>", "<table><tr><td>", "<!--", "<", "<a ", "&amp;", "<li>")
"""What HTML pages are made of, over and over."""


def odd_text(name: str, megabytes: float) -> str:
    """Make a text of so many million bytes; of distinct words a fifth as many million words."""
    if name == DISTINCT:
        return "".join(f"{number:x} " for number in range(int(megabytes * 200_000)))
    piece = REPEATED[name]
    return piece * int(megabytes * 1_000_000 / len(piece.encode()))


GOPHER = DATATROVE_GOPHER_QUALITY + DATATROVE_GOPHER_REPETITION
DATATROVE = GOPHER + DATATROVE_FINEWEB + DATATROVE_C4
FINEWEB = FINEWEB_PAPER + FINEWEB_C4
FILES = (
    "longest_line_length",
    "mean_line_length",
    "alphanumeric_ratio",
    "letter_ratio",
    "character_count",
    "sentence_count",
    "paragraph_count",
)
CHAINS = {
    "datatrove": DATATROVE,
    "datatrove, at white space": DATATROVE.replace(words="whitespace"),
    "datatrove, ICU's words": DATATROVE.replace(words="icu"),
    "FineWeb's paper and C4": FINEWEB,
    "FineWeb's paper and C4, at white space": FINEWEB.replace(words="whitespace"),
    "FineWeb-2, Thai": fineweb_2("tha_Thai"),
    "NeMo, English and code": NEMO_ENGLISH + NEMO_CODE,
    "files and sizes": Profile(
        "files and sizes", "1", "nemo_curator and ours", tuple(Rule(name, ">=", 0, name) for name in FILES)
    ),
    "dolma, Gopher 1 and C4": DOLMA_GOPHER_V1 + DOLMA_C4,
    "dolma, Gopher 2": DOLMA_GOPHER_V2,
    "DCLM": DCLM_QUALITY + DCLM_REPETITION,
}
"""Profiles, of all systems."""
NOT_MADE = set(METRICS) - {metric for profile in CHAINS.values() for metric in profile.text_metrics}
"""Metrics that no chain makes: none, or a test fails."""
