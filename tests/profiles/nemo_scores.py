# SPDX-License-Identifier: Apache-2.0
"""NeMo Curator's scores, by its own released code: a script for a Python that has nemo_curator 0.9.0 (and regex).

Reads lines of JSON texts; answers each with ``{reason: score or null}``, null where the filter fails. Only the modules of
the filters are loaded: what they import for other purposes is left empty. Of n-grams that are as frequent the first
counts, where NeMo leaves it to a set.

A line with a pair of a language and a text is answered with the share of comments, by the filter for that language; null
where it fails. Of the language "page" it is the share of text in a page; of "extension", with a table, a language, an
extension and a text in the text's place, the score by file extension.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import json
import sys
from types import ModuleType
from typing import Any

EMPTY = ["requests", "platformdirs", "transformers", "sentencepiece"]
EMPTY += [name for name in ("comment_parser", "bs4") if importlib.util.find_spec(name) is None]
NAMES = ("user_cache_dir", "AutoTokenizer", "BeautifulSoup", "comment_parser", "BitextFilter")


def stand_in(name: str, path: list[str] | None = None) -> None:
    module = ModuleType(name)
    vars(module).update(dict.fromkeys(NAMES, object))
    if path:
        module.__path__ = path
    sys.modules[name] = module


def load(name: str) -> Any:
    return importlib.import_module(f"nemo_curator.{name}")


(root,) = importlib.util.find_spec("nemo_curator").submodule_search_locations
for name in EMPTY:
    stand_in(name)
stand_in("nemo_curator", [root])
stand_in("nemo_curator.filters", [f"{root}/filters"])
stand_in("nemo_curator.utils", [f"{root}/utils"])
stand_in("nemo_curator.filters.bitext_filter")
heuristic, code = load("filters.heuristic_filter"), load("filters.code")
heuristic.set = dict.fromkeys  # keeps the order of the text

FILTERS = {
    "alpha_numeric": heuristic.NonAlphaNumericFilter(),
    "symbol_to_word": heuristic.SymbolsToWordsFilter(),
    "numbers_ratio": heuristic.NumbersFilter(),
    "urls_ratio": heuristic.UrlsFilter(),
    "white_space": heuristic.WhiteSpaceFilter(),
    "parentheses_ratio": heuristic.ParenthesesFilter(),
    "boilerplate_string_ratio": heuristic.BoilerPlateStringFilter(),
    "repeated_lines": heuristic.RepeatedLinesFilter(),
    "repeated_paragraphs": heuristic.RepeatedParagraphsFilter(),
    "repeated_lines_char": heuristic.RepeatedLinesByCharFilter(),
    "repeated_paragraphs_char": heuristic.RepeatedParagraphsByCharFilter(),
    "word_count": heuristic.WordCountFilter(),
    "punctuation": heuristic.PunctuationFilter(),
    "words_without_alphabets": heuristic.WordsWithoutAlphabetsFilter(),
    "common_english_words": heuristic.CommonEnglishWordsFilter(),
    "mean_word_length": heuristic.MeanWordLengthFilter(),
    "max_word_length": heuristic.LongWordFilter(),
    "ellipsis": heuristic.EllipsisFilter(),
    **{
        f"repeating_top_{n}grams": heuristic.RepeatingTopNGramsFilter(n, most)
        for n, most in ((2, 0.2), (3, 0.18), (4, 0.16))
    },
    **{
        f"repeating_dup_{n}gram": heuristic.RepeatingDuplicateNGramsFilter(n, (20 - n) / 100)
        for n in (5, 6, 7, 8, 9, 10)
    },
    "bullet_ratio": heuristic.BulletsFilter(),
    "num_lines": code.NumberOfLinesOfCodeFilter(5, 20_000),
    "xml_header": code.XMLHeaderFilter(),
    "alpha_filter": code.AlphaFilter(),
}
"""Each under the reason of our profiles, without ``_min`` and ``_max``."""
FAILURES = (ZeroDivisionError, ValueError)
MIMES = {
    "c": "text/x-c",
    "go": "text/x-go",
    "html": "text/html",
    "javascript": "application/javascript",
    "ruby": "text/x-ruby",
    "shell": "text/x-shellscript",
}


def score(name: str, text: str) -> list[Any]:
    try:
        value = FILTERS[name].score_document(text)
    except FAILURES:
        return [None, None]
    return [value, bool(FILTERS[name].keep_document(value))]


def comment_ratio(language: str, text: Any) -> float | None:
    if language == "page":
        return page_ratio(text)
    if language == "extension":
        return extension_score(*text)
    general = code.GeneralCommentToCodeFilter
    peer = code.PythonCommentToCodeFilter() if language == "python" else general(MIMES[language])
    try:
        return peer.score_document(text)
    except ZeroDivisionError:
        return None


def page_ratio(page: str) -> float | None:
    try:
        return code.HTMLBoilerplateFilter(min_lang_content_num_chars=3).score_document(page)
    except (ZeroDivisionError, importlib.import_module("bs4.exceptions").ParserRejectedMarkup):
        return None


def extension_score(table: str, language: str, extension: str, text: str) -> float | None:
    try:
        return code.PerExtensionFilter(language, extension, table).score_document(text)
    except ZeroDivisionError:
        return None


def main() -> None:
    about = [importlib.metadata.version("nemo_curator"), load("utils.constants").policy_substrings]
    print(json.dumps([*about, "comment_parser" not in EMPTY]), flush=True)
    for line in sys.stdin:
        asked = json.loads(line)
        if isinstance(asked, list):
            print(json.dumps(comment_ratio(*asked)), flush=True)
        else:
            print(json.dumps({name: score(name, asked) for name in FILTERS}), flush=True)


if __name__ == "__main__":
    main()
