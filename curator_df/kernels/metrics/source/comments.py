# SPDX-License-Identifier: Apache-2.0
"""Fraction of comments in source code, by language: the definitions of NeMo Curator 0.9.0.

Python is parsed by Python itself: comments and docstrings. Other languages are scanned by a compiled kernel, which only knows
what begins a comment or a string, as in the package comment_parser.
"""

from __future__ import annotations

import ast
import io
import tokenize
from collections.abc import Mapping
from typing import Literal

import numpy as np
import numpy.typing as npt
import pandas as pd

from curator_df.kernels.metrics.source.comment_scan import count_comments_of_span
from curator_df.kernels.text.buffers import text_spans

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
PARSED_FACTOR = 700
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
    Memory: 24 bytes a row of a span; of Python `PARSED_FACTOR` x the longest text that is parsed.

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
        bytearray(PARSED_FACTOR * len(source))
        return None
    except (SyntaxError, ValueError, RecursionError, tokenize.TokenError):
        return None
    nodes = [node for node in ast.walk(tree) if isinstance(node, _HAS_DOCSTRING)]
    docstrings = [text for node in nodes if (text := ast.get_docstring(node))]
    return sum(map(len, comments)) + sum(map(len, docstrings)) + max(len(docstrings) - 1, 0)
