# SPDX-License-Identifier: Apache-2.0
"""Families of the counts that passes over a text make: names, the feature bits that request them, and their kernels.

The metrics of the catalog (`metrics`) are these counts or quotients of them. A new family is one `CountFamily` in `FAMILIES`
and the kernel that it names; on a GPU it also needs its kernel in `device.measured` or, with a table, in `device.tables`.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

STOP_WORDS = ("the", "be", "to", "of", "and", "that", "have", "with")
"""Eight words of Rae et al. 2021 (Gopher), appendix A.1.1; case-sensitive, as in datatrove 0.10.0."""

TOP_GRAMS = (2, 3, 4)
"""Lengths in words of the n-grams whose most frequent one is counted."""
REPEATED_GRAMS = (5, 6, 7, 8, 9, 10)
"""Lengths in words of the n-grams whose repetitions are counted."""

SHORT_TEXT_BYTES = 1 << 16
"""Size of the longest text whose words are stored contiguously for its n-grams (`short_grams`)."""

COUNT_WORDS = 1
"""Feature bit: words and lines (``str.split`` and ``str.splitlines``) and their properties."""
COUNT_STOP_WORDS = 2
"""Feature bit: look each short word up among the stop words."""
COUNT_MARKS = 4
"""Feature bit: count ``#``, ``...`` and ``…``."""
COUNT_LENGTH = 8
"""Feature bit: code points and line feeds."""
COUNT_LINES = 16
r"""Feature bit: text between line feeds: how it ends, how long it is, and whether it is repeated."""
COUNT_PARAGRAPHS = 32
"""Feature bit: text between two or more line feeds, and whether it is repeated."""
COUNT_C4 = 64
"""Feature bit: C4's test of each line, terminal punctuation required."""
COUNT_C4_UNPUNCTUATED = 128
"""Feature bit: C4's test of each line, terminal punctuation not required."""
COUNT_FIRST_GRAM = 256
"""Feature bit of the n-grams of 2 words; those of the n-grams of 3 words and more are the next ones."""
COUNT_CHARACTERS = 1 << 17
"""Feature bit: kinds of characters, URLs, and words as NeMo Curator and dolma define them."""
COUNT_WEB_LINES = 1 << 18
"""Feature bit: lines as NeMo Curator defines them."""
COUNT_DOLMA_LINES = 1 << 19
"""Feature bit: lines as dolma defines them."""
COUNT_WEB_PARAGRAPHS = 1 << 20
"""Feature bit: paragraphs between two line feeds, and the phrases of boilerplate in them."""
COUNT_FIRST_REMOVED = 1 << 21
"""Feature bit for n = 2, the next ones for 3 and 4: characters removed with the most frequent n-gram."""
COUNT_FIRST_TOP_LETTERS = 1 << 24
"""Feature bit for n = 2, the next ones for 3 and 4: characters of the most frequent n-gram without spaces."""
COUNT_FIRST_DUPLICATE = 1 << 27
"""Feature bit for n = 5, the next ones up to 10: repeated n-grams as NeMo Curator and dolma count them."""
COUNT_DCLM_TEXT = 1 << 33
"""Feature bit: words as fastText splits them, case-insensitive stop words, symbols, and lines, as DCLM defines them."""
COUNT_DCLM_REPEATS = 1 << 34
"""Feature bit: lines and paragraphs, stripped of white space, that occur more than once."""
COUNT_UNICODE_GRAMS = 1 << 35
"""Feature bit: repeated n-grams of the words of Unicode's rules, of every n."""
COUNT_SOURCE = 1 << 36
"""Feature bit: the lines and characters of source code."""
COUNT_SENTENCES = 1 << 37
"""Feature bit: sentences."""
LONGEST_COUNTED_WORD = 4095
"""Length that ``middle_word_lengths`` uses for any longer word."""

WORD_COUNTS = (
    "words",
    "non_symbol_words",
    "non_symbol_code_points",
    "alpha_words",
    "stop_words",
    "hashes",
    "ellipses",
    "text_lines",
    "bullet_lines",
    "ellipsis_lines",
)
"""``text_lines`` and the two after it count lines of ``str.splitlines``."""
LENGTH_COUNTS = ("code_points", "line_feeds", "code_points_but_line_feeds")
LINE_COUNTS = (
    "lines",
    "duplicate_lines",
    "duplicate_line_code_points",
    "filled_lines",
    "terminal_lines",
    "short_lines",
    "duplicate_filled_line_code_points",
)
"""``lines`` are the pieces between runs of line feeds; filled lines are those with more than white space."""
PARAGRAPH_COUNTS = ("paragraphs", "duplicate_paragraphs", "duplicate_paragraph_code_points")
TOP_GRAM_COUNTS = tuple(f"top_{n}_gram_code_points" for n in TOP_GRAMS)
REPEATED_GRAM_COUNTS = tuple(f"repeated_{n}_gram_code_points" for n in REPEATED_GRAMS)
C4_COUNTS = ("c4_lorem_ipsum", "c4_curly_bracket", "c4_sentences")
C4_UNPUNCTUATED_COUNTS = ("c4_unpunctuated_lorem_ipsum", "c4_unpunctuated_curly_bracket", "c4_unpunctuated_sentences")
CHARACTER_COUNTS = (
    "characters",
    "not_alphanumeric_characters",
    "digits",
    "url_characters",
    "white_characters",
    "parentheses",
    "alphabetic_characters",
    "word_characters",
    "longest_word",
    "alphabetic_words",
    "stop_word_occurrences",
    "nemo_symbol_words",
    "dolma_symbol_words",
    "middle_word_lengths",
    "middle_words",
    "split_lines",
    "xml_header",
    "curly_bracket",
    "javascript",
    "lorem_ipsum",
)
"""``middle_words`` is 2, or 0 for a text without words: what to divide ``middle_word_lengths`` by for the median. ``split_lines``
are line feeds and one; the four after it are 0 or 1."""
WEB_LINE_COUNTS = (
    "web_lines",
    "unique_web_lines",
    "web_line_characters",
    "unique_web_line_characters",
    "unpunctuated_web_lines",
    "ellipsis_web_lines",
    "bullet_web_lines",
)
"""Lines between single line feeds with more than white space."""
DOLMA_LINE_COUNTS = (
    "dolma_v1_lines",
    "dolma_v2_lines",
    "dolma_bullet_lines",
    "dolma_ellipsis_lines",
    "dolma_v1_repeated_lines",
    "dolma_v2_repeated_lines",
    "dolma_repeated_line_characters",
)
WEB_PARAGRAPH_COUNTS = (
    "web_paragraphs",
    "unique_web_paragraphs",
    "web_paragraph_characters",
    "unique_web_paragraph_characters",
    "boilerplate_web_paragraphs",
)
REMOVED_GRAM_COUNTS = tuple(f"removed_{n}_gram_characters" for n in TOP_GRAMS)
TOP_LETTER_COUNTS = tuple(f"top_{n}_gram_letters" for n in TOP_GRAMS)
DUPLICATE_GRAM_COUNTS = tuple(f"duplicate_{n}_gram_characters" for n in REPEATED_GRAMS)
REPEATED_LETTER_COUNTS = tuple(f"repeated_{n}_gram_letters" for n in REPEATED_GRAMS)
GRAM_LETTER_COUNTS = tuple(f"all_{n}_gram_letters" for n in REPEATED_GRAMS)
"""Counts of all n-grams, which overlap."""
DCLM_TEXT_COUNTS = (
    "fasttext_words",
    "dclm_symbols",
    "any_case_stop_words",
    "stripped_lines",
    "bullet_stripped_lines",
    "ellipsis_stripped_lines",
)
"""Stripped lines are separated by line feeds, stripped of white space, and not empty."""
DCLM_REPEAT_COUNTS = (
    "repeated_stripped_lines",
    "stripped_line_characters",
    "repeated_stripped_line_characters",
    "stripped_paragraphs",
    "repeated_stripped_paragraphs",
    "stripped_paragraph_characters",
    "repeated_stripped_paragraph_characters",
)
UNICODE_GRAM_COUNTS = (
    "unicode_word_characters",
    *(f"top_{n}_unicode_gram_characters" for n in TOP_GRAMS),
    *(f"repeated_{n}_unicode_gram_characters" for n in REPEATED_GRAMS),
)
SOURCE_COUNTS = (
    "source_characters",
    "source_lines",
    "source_line_characters",
    "longest_source_line",
    "alphanumeric_characters",
    "letters",
)
"""Lines are separated by single line feeds, whatever they contain; their characters are all but line feeds."""
SENTENCE_COUNTS = ("sentences",)

Classes = Literal["words", "characters", "word_breaks"]
"""Kinds of tables in which a pass looks characters up."""


@dataclass(frozen=True)
class CountFamily:
    """Counts that one pass over a text makes together. Feature bits, columns and kernels follow from `FAMILIES`."""

    parts: tuple[tuple[int, tuple[str, ...]], ...]
    """Feature bit and names of each part, in the order of the columns. A count in several parts needs the bits of all."""
    kernels: tuple[str, ...]
    """Kernel that makes the counts in host memory (``module.function``). Several families may name the same."""
    token_kernels: tuple[str, ...] = ()
    """Kernels for datatrove's words; empty if the counts do not depend on how words are split."""
    classes: Classes = "words"
    """Tables in which the pass looks characters up."""
    work_columns: int = 0
    """Number of working columns behind those of the counts."""
    table_factor: float = 0.0
    """Table in which a GPU counts one text, as a multiple of its bytes; 0 if the counts need none."""

    @functools.cached_property
    def features(self) -> int:
        """Feature bits of all parts."""
        return functools.reduce(operator.or_, (bit for bit, _ in self.parts))

    @functools.cached_property
    def counts(self) -> tuple[str, ...]:
        """Names of the counts, in the order of their columns."""
        return tuple(dict.fromkeys(name for _, names in self.parts for name in names))

    @property
    def columns(self) -> int:
        """Number of columns of an array that holds only these counts, working columns included."""
        return len(self.counts) + self.work_columns


def _one_bit_each(first: int, names: tuple[str, ...]) -> tuple[tuple[int, tuple[str, ...]], ...]:
    return tuple((first << number, (name,)) for number, name in enumerate(names))


_TOKENS = "english_tokens.spans.split_span"
_SENTENCES_OF_TOKENS = "metrics.lines.text_sentences.count_sentences_of_lines"
_WORDS = "metrics.words.word_counts.count_words_of_span"
_GRAMS = "metrics.ngrams.gram_counts.count_grams_of_span"
_C4 = "metrics.c4.c4_lines.count_c4_of_span"
_DCLM = ("metrics.dclm_counts.count_dclm_of_span",)

WORDS = CountFamily(
    ((COUNT_WORDS, WORD_COUNTS), (COUNT_STOP_WORDS, ("stop_words",)), (COUNT_MARKS, ("hashes", "ellipses"))),
    (_WORDS,),
    token_kernels=(_WORDS, _TOKENS),
)
LINES = CountFamily(
    ((COUNT_LENGTH, LENGTH_COUNTS), (COUNT_LINES, LINE_COUNTS), (COUNT_PARAGRAPHS, PARAGRAPH_COUNTS)),
    ("metrics.lines.line_counts.count_lines_of_span",),
    table_factor=4.0,  # every other byte is a line feed
)
GRAMS = CountFamily(
    _one_bit_each(COUNT_FIRST_GRAM, TOP_GRAM_COUNTS + REPEATED_GRAM_COUNTS),
    (_GRAMS,),
    token_kernels=(_GRAMS, _TOKENS),
)
C4 = CountFamily(
    ((COUNT_C4, C4_COUNTS), (COUNT_C4_UNPUNCTUATED, C4_UNPUNCTUATED_COUNTS)),
    (_C4,),
    token_kernels=(_C4, _TOKENS, _SENTENCES_OF_TOKENS, "metrics.c4.c4_texts.copy_c4_lines"),
    table_factor=1.0,
)
CHARACTERS = CountFamily(
    ((COUNT_CHARACTERS, CHARACTER_COUNTS),),
    ("metrics.nemo.character_counts.count_characters_of_span",),
    classes="characters",
)
WEB = CountFamily(
    (
        (COUNT_WEB_LINES, WEB_LINE_COUNTS),
        (COUNT_DOLMA_LINES, DOLMA_LINE_COUNTS),
        (COUNT_WEB_PARAGRAPHS, WEB_PARAGRAPH_COUNTS),
    ),
    ("metrics.nemo.web_metrics.count_web_of_span",),
    table_factor=4.2,  # as dolma counts lines, a bit more for each byte
)
REPEATS = CountFamily(
    (
        *_one_bit_each(COUNT_FIRST_REMOVED, REMOVED_GRAM_COUNTS),
        *_one_bit_each(COUNT_FIRST_TOP_LETTERS, TOP_LETTER_COUNTS),
        *_one_bit_each(COUNT_FIRST_DUPLICATE, DUPLICATE_GRAM_COUNTS),
        *_one_bit_each(COUNT_FIRST_DUPLICATE, REPEATED_LETTER_COUNTS),
        *_one_bit_each(COUNT_FIRST_DUPLICATE, GRAM_LETTER_COUNTS),
    ),
    ("metrics.ngrams.gram_repeats.count_repeats_of_span",),
    work_columns=3,
)
DCLM_TEXT = CountFamily(((COUNT_DCLM_TEXT, DCLM_TEXT_COUNTS),), _DCLM, classes="word_breaks")
DCLM_REPEATS = CountFamily(
    ((COUNT_DCLM_REPEATS, DCLM_REPEAT_COUNTS),),
    _DCLM,
    classes="word_breaks",
    table_factor=4.3,  # two bits more for each byte
)
UNICODE_GRAMS = CountFamily(
    ((COUNT_UNICODE_GRAMS, UNICODE_GRAM_COUNTS),),
    _DCLM,
    classes="word_breaks",
    table_factor=16.0,  # two words in three bytes
)
SOURCE = CountFamily(((COUNT_SOURCE, SOURCE_COUNTS),), ("metrics.source.source_metrics.count_source_of_span",))
SENTENCES = CountFamily(
    ((COUNT_SENTENCES, SENTENCE_COUNTS),),
    ("metrics.lines.sentences.count_sentences_of_span",),
    token_kernels=(_TOKENS, _SENTENCES_OF_TOKENS),
)

FAMILIES = (
    *(WORDS, LINES, GRAMS, C4, CHARACTERS, WEB, REPEATS, DCLM_TEXT, DCLM_REPEATS, UNICODE_GRAMS, SOURCE, SENTENCES),
)
"""Families in the order of their columns, in which the passes are made: a pass may overwrite the columns behind its own."""

COUNTS = tuple(name for family in FAMILIES for name in family.counts)
"""All counts, in the order of the columns that the passes fill."""

WORD_FEATURES, LINE_FEATURES, GRAM_FEATURES = WORDS.features, LINES.features, GRAMS.features
C4_FEATURES, WEB_FEATURES, REPEAT_FEATURES = C4.features, WEB.features, REPEATS.features


def features_of_counts(names: Iterable[str]) -> int:
    """Return the feature bits that request these counts.

    Examples
    --------
    >>> features_of_counts(["words", "lines"]) == COUNT_WORDS | COUNT_LINES
    True
    """
    wanted, features = set(names), 0
    for family in FAMILIES:
        for bit, counts in family.parts:
            features |= 0 if wanted.isdisjoint(counts) else bit
    return features
