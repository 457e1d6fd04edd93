# SPDX-License-Identifier: Apache-2.0
"""Metrics that other operators add as columns, such as `add_token_count`: rules of profiles may be on them."""

from __future__ import annotations

from curator_df.kernels.metric import Metric

_FILTERS = "nemo_curator 0.9.0, filters"
_OPERATOR = "add_token_count"

COLUMN_METRICS = (
    Metric(
        "token_count",
        "Int64",
        "",
        None,
        "Number of tokens of a tokenizer, as `add_token_count` counts them.",
        f"{_FILTERS}/heuristic_filter.py, TokenCountFilter",
        "0 for an empty text, or the special tokens where these are counted",
        operator=_OPERATOR,
    ),
    Metric(
        "characters_per_token",
        "Float64",
        "",
        None,
        "Code points of the text divided by its tokens, special ones left out.",
        f"{_FILTERS}/code.py, TokenizerFertilityFilter",
        "-1 for a text without tokens, as there",
        operator=_OPERATOR,
    ),
    Metric(
        "bytes_per_token",
        "Float64",
        "",
        None,
        "Bytes of the text in UTF-8 divided by its tokens, special ones left out.",
        "the same of bytes, so that scripts can be compared",
        "-1 for a text without tokens",
        operator=_OPERATOR,
    ),
    Metric(
        "comment_ratio",
        "Float64",
        "",
        None,
        "Share of the code points of source code that are in comments, as `add_comment_ratio` says for each language.",
        f"{_FILTERS}/code.py, PythonCommentToCodeFilter and GeneralCommentToCodeFilter",
        "0 for an empty text (NeMo divides by zero) and for Python that cannot be parsed; 9999 for a comment that does not end",
        operator="add_comment_ratio",
    ),
    Metric(
        "html_text_ratio",
        "Float64",
        "",
        None,
        "Share of the code points of an HTML page that are its text, without scripts and styles, as `add_html_text_ratio` says.",
        f"{_FILTERS}/code.py, HTMLBoilerplateFilter",
        "0 for an empty page (NeMo divides by zero), for one with too little text and for one that cannot be parsed",
        operator="add_html_text_ratio",
    ),
)
