# SPDX-License-Identifier: Apache-2.0
"""Heuristic filters of NeMo Curator 0.9.0 for English and for code, in the order of its own configurations.

The reasons are the names of NeMo's score columns; where a filter has two limits, ``_min`` and ``_max`` are added. Scores are
NeMo's to 6 digits. The differences are listed with each metric (docs/profiles.md): texts on which NeMo divides by zero, and
ties between n-grams, which NeMo breaks by chance. Of its filters for code, `NEMO_CODE` has those that use only the text;
`NEMO_CODE_COMMENTS`, `NEMO_CODE_HTML` and `NEMO_CODE_TOKENS` are on columns that other operators add.

`nemo_per_extension` makes limits by file extension from a user's table, a CSV file with the columns of BigCode's
``visual_inspection.csv``, which the data of StarCoder was made with; NeMo calls it ``code_meta.csv``.
"""

from __future__ import annotations

import csv
import math
import os

from curator_df.errors import InputError, ParameterError
from curator_df.ops.filters.rules import Comparison, Profile, Rule

_CHAIN = "nemo_curator 0.9.0, config/heuristic_filter_en.yaml"


def _rule(metric: str, comparison: Comparison, threshold: float, reason: str, filter_and_argument: str) -> Rule:
    return Rule(metric, comparison, threshold, reason, f"{_CHAIN}: {filter_and_argument}={threshold:g}")


NEMO_ENGLISH = Profile(
    name="nemo_english",
    version="0.9.0",
    source=f"{_CHAIN}; filters/heuristic_filter.py",
    rules=(
        _rule(
            "non_alphanumeric_ratio",
            "<=",
            0.25,
            "alpha_numeric",
            "NonAlphaNumericFilter: max_non_alpha_numeric_to_text_ratio",
        ),
        _rule("nemo_symbol_word_ratio", "<=", 0.1, "symbol_to_word", "SymbolsToWordsFilter: max_symbol_to_word_ratio"),
        _rule("digit_ratio", "<=", 0.15, "numbers_ratio", "NumbersFilter: max_number_to_text_ratio"),
        _rule("url_character_ratio", "<=", 0.2, "urls_ratio", "UrlsFilter: max_url_to_text_ratio"),
        _rule("white_space_ratio", "<=", 0.25, "white_space", "WhiteSpaceFilter: max_white_space_ratio"),
        _rule("parenthesis_ratio", "<=", 0.1, "parentheses_ratio", "ParenthesesFilter: max_parentheses_ratio"),
        _rule(
            "boilerplate_paragraph_ratio",
            "<=",
            0.4,
            "boilerplate_string_ratio",
            "BoilerPlateStringFilter: max_boilerplate_string_ratio",
        ),
        # The following four keep large values, although their arguments are called max_.
        _rule("unique_line_ratio", ">=", 0.7, "repeated_lines", "RepeatedLinesFilter: max_repeated_line_fraction"),
        _rule(
            "unique_paragraph_ratio",
            ">=",
            0.7,
            "repeated_paragraphs",
            "RepeatedParagraphsFilter: max_repeated_paragraphs_ratio",
        ),
        _rule(
            "unique_line_character_ratio",
            ">=",
            0.8,
            "repeated_lines_char",
            "RepeatedLinesByCharFilter: max_repeated_lines_char_ratio",
        ),
        _rule(
            "unique_paragraph_character_ratio",
            ">=",
            0.8,
            "repeated_paragraphs_char",
            "RepeatedParagraphsByCharFilter: max_repeated_paragraphs_char_ratio",
        ),
        _rule("word_count", ">=", 50, "word_count_min", "WordCountFilter: min_words"),
        _rule("word_count", "<=", 100_000, "word_count_max", "WordCountFilter: max_words"),
        _rule(
            "unpunctuated_line_ratio",
            "<=",
            0.85,
            "punctuation",
            "PunctuationFilter: max_num_sentences_without_endmark_ratio",
        ),
        _rule(
            "alphabetic_word_ratio",
            ">=",
            0.8,
            "words_without_alphabets",
            "WordsWithoutAlphabetsFilter: min_words_with_alphabets",
        ),
        _rule(
            "stop_word_occurrences",
            ">=",
            2,
            "common_english_words",
            "CommonEnglishWordsFilter: min_num_common_words",
        ),
        _rule("mean_word_length", ">=", 3, "mean_word_length_min", "MeanWordLengthFilter: min_mean_word_length"),
        _rule("mean_word_length", "<=", 10, "mean_word_length_max", "MeanWordLengthFilter: max_mean_word_length"),
        _rule("longest_word_length", "<=", 1000, "max_word_length", "LongWordFilter: max_word_length"),
        _rule(
            "nemo_ellipsis_line_ratio",
            "<=",
            0.3,
            "ellipsis",
            "EllipsisFilter: max_num_lines_ending_with_ellipsis_ratio",
        ),
        *(
            _rule(
                f"nemo_top_{n}_gram_character_ratio",
                "<=",
                threshold,
                f"repeating_top_{n}grams",
                f"RepeatingTopNGramsFilter, n={n}: max_repeating_ngram_ratio",
            )
            for n, threshold in ((2, 0.2), (3, 0.18), (4, 0.16))
        ),
        *(
            _rule(
                f"nemo_duplicate_{n}_gram_character_ratio",
                "<=",
                threshold,
                f"repeating_dup_{n}gram",
                f"RepeatingDuplicateNGramsFilter, n={n}: max_repeating_duplicate_ngram_ratio",
            )
            for n, threshold in ((5, 0.15), (6, 0.14), (7, 0.13), (8, 0.12), (9, 0.11), (10, 0.1))
        ),
        _rule("nemo_bullet_line_ratio", "<=", 0.9, "bullet_ratio", "BulletsFilter: max_bullet_lines_ratio"),
    ),
)

_CODE_CHAIN = "nemo_curator 0.9.0, config/heuristic_filter_code.yaml"
_CODE = "nemo_curator 0.9.0, filters/code.py"

NEMO_CODE = Profile(
    name="nemo_code",
    version="0.9.0",
    source=f"{_CODE_CHAIN}; {_CODE}",
    rules=(
        Rule("line_count", ">=", 5, "num_lines_min", f"{_CODE_CHAIN}: NumberOfLinesOfCodeFilter: min_lines=5"),
        Rule("line_count", "<=", 20_000, "num_lines_max", f"{_CODE_CHAIN}: NumberOfLinesOfCodeFilter: max_lines=20000"),
        # Not in that configuration, but defaults of their classes, which are StarCoder's (arXiv 2305.06161, 3.1).
        Rule("xml_header", "<", 1, "xml_header", f"{_CODE}: XMLHeaderFilter: char_prefix_search_length=100"),
        Rule("alphabetic_ratio", ">=", 0.25, "alpha_filter", f"{_CODE}: AlphaFilter: min_alpha_ratio=0.25"),
    ),
)

# Rules on columns that `add_comment_ratio`, `add_html_text_ratio` and `add_token_count` make; they go with `NEMO_CODE` by ``+``.
NEMO_CODE_COMMENTS = Profile(
    name="nemo_code_comments",
    version="0.9.0",
    source=f"{_CODE_CHAIN}; {_CODE}",
    rules=(
        Rule(
            "comment_ratio",
            ">=",
            0.001,
            "comment_ratio_min",
            f"{_CODE_CHAIN}: PythonCommentToCodeFilter: min_comment_to_code_ratio=0.001",
        ),
        Rule(
            "comment_ratio",
            "<=",
            0.85,
            "comment_ratio_max",
            f"{_CODE_CHAIN}: PythonCommentToCodeFilter: max_comment_to_code_ratio=0.85",
        ),
    ),
)
NEMO_CODE_HTML = Profile(
    name="nemo_code_html",
    version="0.9.0",
    source=_CODE,
    rules=(
        Rule(
            "html_text_ratio",
            ">=",
            0.2,
            "html_boilerplate",
            f"{_CODE}: HTMLBoilerplateFilter: min_lang_content_ratio=0.2",
        ),
    ),
)
NEMO_CODE_TOKENS = Profile(
    name="nemo_code_tokens",
    version="0.9.0",
    source=f"{_CODE_CHAIN}; {_CODE}",
    rules=(
        Rule(
            "characters_per_token",
            ">=",
            2,
            "tokenizer_fertility",
            f"{_CODE_CHAIN}: TokenizerFertilityFilter: min_char_to_token_ratio=2",
        ),
    ),
)


COLUMNS = ("language", "extension", "Include", "Long_line_threshold", "Alphanum_threshold", "Alpha filter")
"""Columns that a row of the table must have."""
MEAN_LINE_LENGTH = 100
"""Maximum mean line length of files whose longest line is limited: nemo_curator 0.9.0, filters/code.py, PerExtensionFilter."""
_FILTER = "nemo_curator 0.9.0, filters/code.py, PerExtensionFilter"


def nemo_per_extension(table: str | os.PathLike[str], *, language: str, extension: str) -> Profile:
    r"""Return the limits in a table for the files of a language with an extension.

    Parameters
    ----------
    table : path
        A CSV file with the columns ``language``, ``extension``, ``Include``, ``Long_line_threshold``,
        ``Alphanum_threshold`` and ``Alpha filter``, such as BigCode's ``visual_inspection.csv``; others are ignored.
    language : str
        Language of the files, in any case: ``"C#"`` and ``"F#"`` are ``c-sharp`` and ``f-sharp`` in the table, and
        spaces are hyphens there.
    extension : str
        Extension of the files without the dot, case-sensitive; ``""`` for none.

    Returns
    -------
    Profile
        Limits on the longest line (code points), the mean line length (at most 100 if the longest line is limited), and
        the minimum shares of alphanumeric characters and of letters. A cell that is not a number, or is 0, sets no
        limit, as in NeMo.

    Raises
    ------
    InputError
        If the file does not exist, or a column is missing.
    ParameterError
        If the table does not have the language or the extension, excludes it (``Include`` is not 1), or sets no limit for it.

    References
    ----------
    .. [1] R. Li et al. 2023, StarCoder: may the source be with you!, arXiv 2305.06161, 3.1
    .. [2] nemo_curator 0.9.0, filters/code.py, PerExtensionFilter

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> folder = tempfile.TemporaryDirectory()
    >>> table = Path(folder.name) / "code_meta.csv"
    >>> lines = ",".join(COLUMNS), "python,py,1,1000,0.25,"
    >>> _ = table.write_text("\n".join(lines))
    >>> [str(rule) for rule in nemo_per_extension(table, language="Python", extension="py").rules]
    ['longest_line_length <= 1000', 'mean_line_length <= 100', 'alphanumeric_ratio >= 0.25']
    >>> folder.cleanup()
    """
    name = {"C#": "c-sharp", "F#": "f-sharp"}.get(language, language.lower().replace(" ", "-"))
    row = _row_of(os.fspath(table), name, extension)
    what = f"{name} files {f'.{extension}' if extension else 'without extension'}"
    if row["Include"] != "1":
        raise ParameterError(
            f"nemo_per_extension: {os.fspath(table)!r} marks {what} as excluded (Include is not 1), so it has no limits for it. "
            "Drop rows with this extension first, for example with keep_where"
        )
    rules = _rules(row, f"{_FILTER}: {os.path.basename(table)}, {name}, {extension!r}")
    if not rules:
        raise ParameterError(
            f"nemo_per_extension: {os.fspath(table)!r} sets no limit for {what}, so all of them are kept. Leave this "
            "language and extension out of the profiles"
        )
    return Profile(f"nemo_per_extension {name} {extension}".strip(), "0.9.0", f"{_FILTER}; {os.fspath(table)}", rules)


def _row_of(table: str, language: str, extension: str) -> dict[str, str]:
    """Return the last row of a language and an extension, as in NeMo."""
    found, extensions = None, set()
    try:
        with open(table, encoding="utf-8", newline="") as file:
            reader = csv.DictReader(file)
            missing = [column for column in COLUMNS if column not in (reader.fieldnames or ())]
            if missing:
                raise InputError(
                    f"nemo_per_extension: the file table={table!r} has no column {', '.join(map(repr, missing))}. Pass a "
                    "table such as visual_inspection.csv of BigCode"
                )
            for row in reader:
                if row["language"] == language:
                    extensions.add(row["extension"])
                    found = row if row["extension"] == extension else found
    except OSError as exc:
        raise InputError(
            f"nemo_per_extension: the file table={table!r} cannot be read: {exc}. Correct the path"
        ) from exc
    if found is None:
        known = ", ".join(map(repr, sorted(extensions))) if extensions else "none"
        raise ParameterError(
            f"nemo_per_extension: the file {table!r} has no row for the extension {extension!r} of {language!r}. Use another "
            f"table=, or an extension that the table has for this language: {known}"
        )
    return found


def _rules(row: dict[str, str], source: str) -> tuple[Rule, ...]:
    longest = _limit(row["Long_line_threshold"], int)
    limits: tuple[tuple[str, Comparison, float, str], ...] = (
        ("longest_line_length", "<=", longest, "per_extension_line_max"),
        ("mean_line_length", "<=", MEAN_LINE_LENGTH if longest else 0, "per_extension_line_mean"),
        ("alphanumeric_ratio", ">=", _limit(row["Alphanum_threshold"], float), "per_extension_alphanum"),
        ("letter_ratio", ">=", _limit(row["Alpha filter"], float), "per_extension_alpha"),
    )
    return tuple(
        Rule(metric, comparison, threshold, reason, source)
        for metric, comparison, threshold, reason in limits
        if threshold
    )


def _limit(cell: str | None, number: type[int | float]) -> float:
    """Return the number in a cell, or 0: the table also has notes, such as "remove"."""
    try:
        value = number(cell or "")
    except ValueError:
        return 0
    return 0 if math.isnan(value) else value
