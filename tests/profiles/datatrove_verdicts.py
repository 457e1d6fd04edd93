# SPDX-License-Identifier: Apache-2.0
"""datatrove's verdicts, by its own released code: a script for a Python that has datatrove 0.10.0 and spaCy.

Reads a line of JSON with the marks of `plain_sentences`, then lines of JSON texts; answers each with
``{filter: [reason or null, text]}``. Words are cut at white space, and sentences by the plain rule: both are put in
datatrove's place for a tokenizer, the filters themselves are untouched. A name that ends in ``, spaCy`` is the filter as it
is, ``words`` asks for the words of datatrove's tokenizer, and ``sentences`` for how many sentences it finds, those of
white space alone left out. ``fineweb_2`` and a language are the filters of FineWeb-2's pipeline one after the other, with the
values of that language.
"""

from __future__ import annotations

import importlib.metadata
import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "kernels"))

from datatrove.data import Document
from datatrove.pipeline.filters import (
    C4QualityFilter,
    FineWebQualityFilter,
    GopherQualityFilter,
    GopherRepetitionFilter,
    c4_filters,
    fineweb_quality_filter,
    gopher_quality_filter,
    gopher_repetition_filter,
)
from datatrove.pipeline.filters.base_filter import BaseFilter
from datatrove.utils.text import PUNCTUATION_SET, TERMINAL_PUNCTUATION, split_into_sentences, split_into_words
from datatrove.utils.word_tokenizers import load_word_tokenizer
from plain_sentences import Marks, sentences

FILTERS = {
    "gopher_quality": GopherQualityFilter(),
    "gopher_repetition": GopherRepetitionFilter(),
    "c4": C4QualityFilter(),
    "c4, unpunctuated": C4QualityFilter(filter_no_terminal_punct=False),
    "fineweb": FineWebQualityFilter(),
}
FINEWEB_2 = "fineweb_2 "
SPACY = ", spaCy"
WORD_MODULES = (gopher_quality_filter, gopher_repetition_filter, fineweb_quality_filter)


def white_space_words(text: str, language: str) -> list[str]:
    return text.split()


def fineweb_2_filters(language: str) -> list[BaseFilter]:
    """Return the filters with the arguments that huggingface/fineweb-2, fineweb-2-pipeline.py gives them."""
    held = Path(__file__).resolve().parents[2] / "curator_df" / "profiles" / "fineweb_2.json"
    values = json.loads(held.read_text(encoding="utf-8"))[language]
    return [
        GopherRepetitionFilter(
            dup_para_frac=0,
            dup_line_char_frac=0,
            dup_para_char_frac=0,
            **{name: values[name] for name in ("dup_line_frac", "top_n_grams", "dup_n_grams")},
        ),
        FineWebQualityFilter(
            short_line_thr=999,
            char_duplicates_ratio=0.1,
            **{name: values[name] for name in ("line_punct_thr", "new_line_ratio")},
        ),
        GopherQualityFilter(
            stop_words=values["stopwords"],
            min_stop_words=2,
            **{
                name: values[name]
                for name in ("min_avg_word_length", "max_avg_word_length", "max_non_alpha_words_ratio")
            },
        ),
    ]


def verdict(name: str, text: str) -> list[str | None]:
    document = Document(text=text, id="")
    if name.startswith(FINEWEB_2):
        FILTERS.setdefault(name, fineweb_2_filters(name.removeprefix(FINEWEB_2)))
        answers = (answer for each in FILTERS[name] if (answer := each.filter(document)) is not True)
        return [next((answer[1] for answer in answers), None), text]
    try:
        answer = FILTERS[name.removesuffix(SPACY)].filter(document)
    except ZeroDivisionError:
        return ["ZeroDivisionError", text]
    return [None if answer is True else answer[1], document.text]


def main() -> None:
    closers, abbreviations = json.loads(sys.stdin.readline())
    marks = Marks(PUNCTUATION_SET, TERMINAL_PUNCTUATION, closers, frozenset(abbreviations))
    print(json.dumps(importlib.metadata.version("datatrove")), flush=True)
    for line in sys.stdin:
        text, names = json.loads(line)
        answers = {}
        for name in names:
            if name == "words":
                answers[name] = split_into_words(text)
                continue
            if name == "sentences":
                answers[name] = len(load_word_tokenizer("eng").sent_tokenize(text))
                continue
            plain = not name.endswith(SPACY)
            for module in WORD_MODULES:
                module.split_into_words = white_space_words if plain else split_into_words
            c4_filters.split_into_sentences = (
                (lambda line, language: [""] * sentences(line, marks)) if plain else split_into_sentences
            )
            answers[name] = verdict(name, text)
        print(json.dumps(answers), flush=True)


if __name__ == "__main__":
    main()
