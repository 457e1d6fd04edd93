# SPDX-License-Identifier: Apache-2.0
"""Refuse cuDF blocks in functions that support only pandas blocks, with the reason and the way out.

What a function that takes cuDF blocks for some arguments says of the others stands where it refuses them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from curator_df.core.backend import require_backend

MODEL = "models and their tokenizers take Python strings"
LANGUAGE = "the language model is evaluated by a kernel that is compiled for CPUs alone"
CONTAMINATION = "n-grams are looked up in host memory, by a kernel that is compiled for CPUs alone"
WRITES = "its kernel, which writes new texts, is compiled for CPUs alone"
VECTORS = "vectors are written to files, and compared on CPUs"
URLS = "URLs are split by pyarrow and Python, in host memory"
BUCKETS = "n-grams are hashed by a kernel that is compiled for CPUs alone"
COUNTED = "shingles are counted by a kernel that is compiled for CPUs alone"
FIXED_WIDTH = "cuDF has no type for the fixed-width bytes of signatures"

HOST_ONLY: Mapping[str, str] = {
    "add_class": MODEL,
    "add_comment_ratio": "code is parsed by Python, or scanned by a kernel that is compiled for CPUs alone",
    "add_completion": "prompts are made of Python strings, and sent from host memory",
    "add_contamination": CONTAMINATION,
    "add_embedding": MODEL,
    "add_html_text_ratio": "pages are parsed by Python's html.parser",
    "add_importance": BUCKETS,
    "add_language": LANGUAGE,
    "add_minhash": FIXED_WIDTH,
    "add_perplexity": "KenLM and SentencePiece take Python strings",
    "add_prompt_scores": MODEL,
    "add_quality_tier": "scores are combined with NumPy, in host memory",
    "add_token_count": "tokenizers take Python strings",
    "add_url_parts": URLS,
    "describe": "lengths are counted with NumPy, in host memory",
    "describe_domains": URLS,
    "describe_drops": "rows and characters are counted with NumPy, in host memory",
    "describe_importance": BUCKETS,
    "drop_contaminated": CONTAMINATION,
    "drop_semantic_duplicates": VECTORS,
    "explore_thresholds": "values are counted with NumPy, in host memory",
    "find_semantic_duplicates": VECTORS,
    "join": "keys are hashed and looked up in host memory",
    "join_documents": "documents that span blocks are held and joined in host memory",
    "keep_class": MODEL,
    "keep_language": LANGUAGE,
    "keep_urls": URLS,
    "normalize_newlines": WRITES,
    "normalize_unicode": "ftfy repairs Python strings",
    "normalize_whitespace": WRITES,
    "redact_pii": "values are found by regular expressions of Python",
    "remove_boilerplate": WRITES,
    "remove_c4_lines": WRITES,
    "remove_contamination": CONTAMINATION,
    "remove_html": "pages are parsed by resiliparse, on the CPU",
    "remove_lines": WRITES,
    "remove_markdown": WRITES,
    "remove_outside": WRITES,
    "remove_quotation_marks": WRITES,
    "remove_repeated_parts": WRITES,
    "remove_repeated_substrings": WRITES,
    "remove_urls": WRITES,
    "repeat_rows": WRITES,
    "sample_by_importance": "weights are compared with NumPy, in host memory",
    "split_documents": WRITES,
    "write_tokens": "tokenizers take Python strings",
}
"""A clause by function, as `require_backend` takes it."""


def require_host(block: Any, operator: str) -> None:
    """Raise `UnsupportedBackendError`, with the reason and the way out, unless the block is of pandas.

    Examples
    --------
    >>> import pandas as pd
    >>> require_host(pd.DataFrame({"text": ["a"]}), "normalize_unicode")
    """
    require_backend(block, operator, "pandas", because=HOST_ONLY[operator])
