# SPDX-License-Identifier: Apache-2.0
# numba has no types.
# mypy: disable-error-code="untyped-decorator,no-any-return"
"""Fraction of comments in source code, by language: the definitions of NeMo Curator 0.9.0.

Python is parsed by Python itself: comments and docstrings. Other languages are scanned by a compiled kernel, which only knows
what begins a comment or a string, as in the package comment_parser.
"""

from __future__ import annotations

import ast
import io
import tokenize
from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pandas as pd

from curator_df.kernels.compiling.compiled import helper, kernel, types
from curator_df.kernels.metrics.words.word_counts import BYTES
from curator_df.kernels.text.buffers import text_spans

C, GO, JAVASCRIPT, HTML, RUBY, SHELL = range(6)
_LINE_FEED, _BACKSLASH, _SLASH, _STAR, _HASH = 0x0A, 0x5C, 0x2F, 0x2A, 0x23
_DOUBLE, _SINGLE, _BACK = 0x22, 0x27, 0x60


@helper
def _line_stop(data: Any, at: int, stop: int) -> int:
    while at < stop and data[at] != _LINE_FEED:
        at += 1
    return at


@helper
def _quote_on_line(data: Any, at: int, stop: int, escapes: bool) -> int:
    """Return the end on this line of the string that begins here, or -1.

    With ``escapes`` a quote after a backslash ends it only if no other on the line does.
    """
    found = -1
    for place in range(at + 1, stop):
        if data[place] == _LINE_FEED:
            break
        if data[place] == data[at]:
            found = place
            if not (escapes and place - 1 > at and data[place - 1] == _BACKSLASH):
                break
    return found


@helper
def _string_stop(data: Any, at: int, stop: int) -> int:
    """Return the position after the string that begins here, across lines and past escaped characters."""
    quote = data[at]
    at += 1
    while at < stop and data[at] != quote:
        at += 2 if data[at] == _BACKSLASH else 1
    return min(at + 1, stop)


@helper
def _is_quote(byte: int, family: int) -> bool:
    if family in (C, HTML):
        return byte == _DOUBLE
    return byte in (_DOUBLE, _SINGLE) or (family == GO and byte == _BACK)


@helper
def _after_string(data: Any, at: int, stop: int, family: int) -> int:
    if family in (GO, JAVASCRIPT, SHELL):
        return _string_stop(data, at, stop)
    closing = _quote_on_line(data, at, stop, family == RUBY)
    return at + 1 if closing < 0 else closing + 1


@helper
def _opens(data: Any, at: int, stop: int, family: int) -> tuple[int, int]:
    """Return the length of the mark that begins a comment here, and of the mark that ends it: 0 for the end of the line."""
    if family == HTML:
        is_open = at + 4 <= stop and data[at] == 0x3C and data[at + 1] == 0x21 and data[at + 2] == data[at + 3] == 0x2D
        return (4, 3) if is_open else (0, 0)
    if family in (RUBY, SHELL):
        return (1, 0) if data[at] == _HASH else (0, 0)
    if at + 2 > stop or data[at] != _SLASH:
        return 0, 0
    return (2, 0) if data[at + 1] == _SLASH else (2, 2) if data[at + 1] == _STAR else (0, 0)


@helper
def _close(data: Any, at: int, stop: int, closing: int) -> int:
    """Return the position of the next ``*/`` or ``-->``, or -1."""
    while at + closing <= stop:
        if closing == 2 and data[at] == _STAR and data[at + 1] == _SLASH:
            return at
        if closing == 3 and data[at] == 0x2D and data[at + 1] == 0x2D and data[at + 2] == 0x3E:
            return at
        at += 1
    return -1


@helper
def _count(data: Any, at: int, stop: int, family: int) -> tuple[int, int]:
    """Return the number of code points in the comments of a text and of comments; -1 if one does not end."""
    characters, comments = 0, 0
    while at < stop:
        opening, closing = _opens(data, at, stop, family)
        if opening:
            first = at + opening
            last = _close(data, first, stop, closing) if closing else _line_stop(data, first, stop)
            if last < 0:
                return -1, 0
            for place in range(first, last):
                characters += (data[place] & 0xC0) != 0x80
            comments += 1
            at = last + closing
        elif _is_quote(data[at], family):
            at = _after_string(data, at, stop, family)
        else:
            # A slash consumes the following character in these families, a backslash in that one.
            skips = data[at] == _SLASH and family in (GO, JAVASCRIPT)
            at += 2 if skips or (data[at] == _BACKSLASH and family == SHELL) else 1
    return characters, comments


@kernel(types.void(BYTES, types.Array(types.int64, 1, "C", readonly=True), types.int64, types.int64[:, ::1]))
def count_comments_of_span(data: Any, offsets: Any, family: int, counts: Any) -> None:
    """Fill a row for each text: code points of its comments (-1 if one does not end), comments, and code points of the text."""
    for row in range(len(counts)):
        start, stop = offsets[row], offsets[row + 1]
        counts[row, 0], counts[row, 1] = _count(data, start, stop, family)
        length = 0
        for place in range(start, stop):
            length += (data[place] & 0xC0) != 0x80
        counts[row, 2] = length


Language = Literal["c", "c++", "c#", "go", "html", "java", "javascript", "python", "ruby", "shell", "xml"]
FAMILIES: Mapping[str, int] = {
    "c": 0,
    "c++": 0,
    "c#": 0,
    "java": 0,
    "go": 1,
    "javascript": 2,
    "html": 3,
    "xml": 3,
    "ruby": 4,
    "shell": 5,
}
"""Families of languages for the compiled scan, by its constants, in order."""
NOT_ENDED = 9999.0
"""Score of a text with an unterminated comment, as in NeMo Curator: higher than any limit."""
PYTHON_FACTOR = 700
"""Memory that Python needs for a parsed file, as a multiple of its bytes; 190 to 674 were measured."""
_HAS_DOCSTRING = (ast.FunctionDef, ast.ClassDef, ast.Module)


def comment_ratios(texts: pd.Series, language: Language, max_file_bytes: int) -> tuple[npt.NDArray[np.float64], int]:
    """Return the fraction of each text that is in comments, and how many texts could not be read.

    Parameters
    ----------
    texts : pandas.Series of strings
        Source code; null is allowed and has 0.
    language : str
        One of `Language`.
    max_file_bytes : int
        Maximum size of Python source; longer texts are not parsed.

    Notes
    -----
    Memory: 24 bytes a row of a span; of Python `PYTHON_FACTOR` x the longest text that is parsed.

    Examples
    --------
    >>> ratios, failed = comment_ratios(pd.Series(["int a; // four", "/* open"]), "c", 1000)
    >>> ratios.round(2).tolist(), failed
    ([0.36, 9999.0], 1)
    """
    if language == "python":
        return _python_ratios(texts, max_file_bytes)

    ratios, failed = np.zeros(len(texts), dtype=np.float64), 0
    for span in text_spans(texts):
        counts = np.empty((len(span), 3), dtype=np.int64)
        count_comments_of_span(span.data, span.offsets, FAMILIES[language], counts)
        characters, comments, length = counts.T
        # A space separates two comments.
        found = ratios[span.first_row : span.first_row + len(span)]
        np.divide(characters + np.maximum(comments - 1, 0), length, out=found, where=length > 0)
        found[characters < 0] = NOT_ENDED
        failed += int((characters < 0).sum())
    return ratios, failed


def _python_ratios(texts: pd.Series, max_file_bytes: int) -> tuple[npt.NDArray[np.float64], int]:
    ratios, failed = np.zeros(len(texts), dtype=np.float64), 0
    for span in text_spans(texts):
        for row in range(len(span)):
            start, stop = int(span.offsets[row]), int(span.offsets[row + 1])
            if start == stop:
                continue
            source = (
                span.data[start:stop].tobytes().decode("utf-8", "replace") if stop - start <= max_file_bytes else ""
            )
            natural = python_comments(source) if source else None
            failed += natural is None
            ratios[span.first_row + row] = natural / len(source) if natural is not None else 0.0
    return ratios, failed


def python_comments(source: str) -> int | None:
    r"""Return the number of characters in comments, with their marks, and in docstrings; None if Python cannot parse the text.

    Examples
    --------
    >>> python_comments("# one\nx = 1")
    5
    """
    try:
        tree = ast.parse(source)
        lines = io.StringIO(source).readline
        comments = [token.string for token in tokenize.generate_tokens(lines) if token.type == tokenize.COMMENT]
    except MemoryError:
        # Python also raises this for source that is nested too deeply, when there is enough memory.
        bytearray(PYTHON_FACTOR * len(source))
        return None
    except (SyntaxError, ValueError, RecursionError, tokenize.TokenError):
        return None
    nodes = [node for node in ast.walk(tree) if isinstance(node, _HAS_DOCSTRING)]
    docstrings = [text for node in nodes if (text := ast.get_docstring(node))]
    return sum(map(len, comments)) + sum(map(len, docstrings)) + max(len(docstrings) - 1, 0)
