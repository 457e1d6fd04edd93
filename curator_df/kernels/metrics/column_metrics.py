# SPDX-License-Identifier: Apache-2.0
"""Metrics in columns that other operators add, such as `add_token_count`; rules of profiles may use them."""

from __future__ import annotations

from curator_df.kernels.metrics.metric import Metric

_FILTERS = "nemo_curator 0.9.0, filters"
_OPERATOR = "add_token_count"

COLUMN_METRICS = (
    Metric(
        "token_count",
        "Int64",
        "",
        None,
        "Number of tokens, as counted by `add_token_count`.",
        f"{_FILTERS}/heuristic_filter.py, TokenCountFilter",
        "0 for an empty text, or the number of special tokens if they are counted",
        operator=_OPERATOR,
    ),
    Metric(
        "characters_per_token",
        "Float64",
        "",
        None,
        "Number of code points divided by the number of tokens, without special tokens.",
        f"{_FILTERS}/code.py, TokenizerFertilityFilter",
        "-1 for a text without tokens, as in NeMo",
        operator=_OPERATOR,
    ),
    Metric(
        "bytes_per_token",
        "Float64",
        "",
        None,
        "Number of UTF-8 bytes divided by the number of tokens, without special tokens.",
        "variant of tokenizer_fertility on bytes, so that scripts can be compared",
        "-1 for a text without tokens",
        operator=_OPERATOR,
    ),
    Metric(
        "comment_ratio",
        "Float64",
        "",
        None,
        "Fraction of the code points of source code that are in comments, as `add_comment_ratio` defines it for each language.",
        f"{_FILTERS}/code.py, PythonCommentToCodeFilter and GeneralCommentToCodeFilter",
        "0 for an empty text (NeMo divides by zero) and for Python that cannot be parsed; 9999 for an unterminated comment",
        operator="add_comment_ratio",
    ),
    Metric(
        "html_text_ratio",
        "Float64",
        "",
        None,
        "Fraction of the code points of an HTML page that are text, without scripts and styles, as in `add_html_text_ratio`.",
        f"{_FILTERS}/code.py, HTMLBoilerplateFilter",
        "0 for an empty page (NeMo divides by zero), for a page with too little text and for a page that cannot be parsed",
        operator="add_html_text_ratio",
    ),
)
