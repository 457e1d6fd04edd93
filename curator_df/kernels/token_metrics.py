# SPDX-License-Identifier: Apache-2.0
"""The metrics that need a tokenizer: columns of `add_token_count`, which rules of profiles may be on."""

from __future__ import annotations

from curator_df.kernels.metric import Metric

_FILTERS = "nemo_curator 0.9.0, filters"
_OPERATOR = "add_token_count"

TOKEN_METRICS = (
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
)
