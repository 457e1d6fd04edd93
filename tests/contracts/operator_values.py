# SPDX-License-Identifier: Apache-2.0
"""Other values of the operators' parameters: what is another program, what changes nothing, what is tested elsewhere."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd

import curator_df as cdf
from tests.contracts.model_functions import LetterEntities, vowel_counts
from tests.contracts.operator_cases import DOMAINS, EVERYWHERE, NGRAMS, OPERATORS, OURS, VECTORS
from tests.contracts.tiny_prompts import prompts_model

_CONTAMINATION = {
    "benchmarks": EVERYWHERE,
    "benchmark_columns": ("question",),
    "ngram_size": 9,
    "min_ngram_size": 7,
    "text": "title",
}
_CLASSES = {"classifier": vowel_counts, "labels": ("long", "not long"), "text": "title"}
ALL_OTHER_VALUES: Mapping[str, Mapping[str, Any]] = {
    "add_contamination": {**_CONTAMINATION, "into": "found"},
    "add_class": {**_CLASSES, "into": "kind", "score_of": "long"},
    "keep_class": {**_CLASSES, "classes": "short", "into": "kind", "score_of": "long"},
    "add_completion": {
        "prompt": "Say twice: {text}",
        "model": "another",
        "into": "said",
        "system_prompt": "Be brief.",
        "max_tokens": 7,
        "options": {"temperature": 1},
        "max_chars": 100,
    },
    "add_html_text_ratio": {"min_chars": 7, "max_page_size": "9kB", "into": "share", "text": "title"},
    "add_comment_ratio": {"language": "python", "max_file_size": "5kB", "into": "comments", "text": "title"},
    "add_embedding": {
        "model": vowel_counts,
        "into": "vector",
        "normalize_vectors": False,
        "precision": "float16",
        "text": "title",
    },
    "add_ids": {"into": "key", "identity": "content", "subset": "title", "dense": True, "start": 7},
    "add_importance": {
        "ngram_weights": pd.DataFrame({"bucket": [0, 1], "log_weight": [0.5, -0.5]}),
        "text": "title",
        "into": "resemblance",
    },
    "add_language": {"unit": "lines", "top": 3, "max_chars": 50, "into": "lang", "text": "title"},
    "add_metrics": {"metrics": ("word_count",), "text": "title", "words": "datatrove"},
    "add_profile": {
        "profile": OURS.replace(too_short=3),
        "words": "datatrove",
        "text": "title",
        "into": "why",
        "add_metrics": False,
    },
    "add_prompt_scores": {
        "model": cdf.model(prompts_model(1) if "add_prompt_scores" in OPERATORS else "", max_tokens=16, max_chars=40),
        "prefix": "prompt_",
        "text": "title",
    },
    "add_quality_tier": {
        "scores": ("score",),
        "thresholds": {"high": 7, "low": 0},
        "combine": "max",
        "scale": {"score": (0, 9)},
        "into": "tier",
    },
    "add_perplexity": {
        "model": NGRAMS.removesuffix(".bin"),
        "normalization": "none",
        "buckets": (6.0, 60.0),
        "text": "title",
        "into": "surprise",
    },
    "add_token_count": {"into": "tokens", "per_token": "characters", "special_tokens": True, "text": "title"},
    "add_url_parts": {"url": "title", "prefix": "page_", "private_suffixes": True},
    "add_minhash": {
        "text": "title",
        "scheme": cdf.minhash.FINEWEB,
        "into": "signature",
    },
    "drop_contaminated": _CONTAMINATION,
    "drop_exact_duplicates": {"subset": "title", "normalize": "case_and_spaces", "keep": "last", "count_into": "n"},
    "drop_near_duplicates": {
        "text": "title",
        "scheme": cdf.minhash.FINEWEB,
        "jaccard_threshold": None,
        "keep": "last",
        "linkage": "transitive",
        "ignore_common": 0.1,
        "count_into": "n",
    },
    "drop_semantic_duplicates": {
        "embedding": VECTORS[1],
        "eps": 0.2,
        "num_clusters": 2,
        "keep": "easy",
        "linkage": "transitive",
        "seed": 7,
        "count_into": "n",
    },
    "join_documents": {
        "separator": " ",
        "max_chars": 9,
        "keep_segment_id": True,
        "max_document_size": "1MB",
    },
    "keep_language": {
        "into": "tongue",
        "languages": "de",
        "min_score": 0.5,
        "unit": "lines",
        "max_chars": 50,
        "text": "title",
    },
    "keep_profile": {"profile": OURS.replace(too_short=3), "words": "datatrove", "text": "title", "add_metrics": True},
    "keep_urls": {
        "block_lists": DOMAINS,
        "allow_lists": DOMAINS,
        "hard_words": ["worse"],
        "soft_words": ["to", "be"],
        "min_soft_words": 3,
        "substrings": ["tobe"],
        "matching": "datatrove",
        "missing": "drop",
        "url": "title",
    },
    "keep_where": {"predicate": "score > 4", "reason": "low_score"},
    "normalize_newlines": {"text": "title"},
    "normalize_unicode": {
        "text": "title",
        "form": "NFKC",
        "unescape_html": False,
        "fix_encoding": False,
        "fix_line_breaks": False,
    },
    "normalize_whitespace": {"text": "title"},
    "redact_pii": {
        "text": "title",
        "kinds": ["ip", "email"],
        "replacement": "mask",
        "key": "another",
        "presidio": LetterEntities(),
    },
    "remove_boilerplate": {"text": "title"},
    "remove_c4_lines": {"text": "title", "require_punctuation": False},
    "remove_contamination": {**_CONTAMINATION, "margin": 7, "min_piece_chars": 7},
    "remove_html": {
        "text": "title",
        "extractor": "justext",
        "favor": "recall",
        "output": "markdown",
        "main_content": False,
        "alt_texts": True,
        "stop_words": "German",
        "min_chars": 7,
        "extractor_into": "kept",
        "timeout_seconds": 7,
        "max_page_size": "2MB",
    },
    "remove_lines": {"text": "title", "lines": ["a"]},
    "remove_markdown": {"text": "title", "links": "url", "inside_words": True},
    "remove_outside": {
        "text": "title",
        "left": "b",
        "right": 3,
        "include_left": False,
        "include_right": False,
        "strip": True,
    },
    "remove_quotation_marks": {"text": "title"},
    "remove_repeated_parts": {
        "unit": "paragraphs",
        "normalize": "case_and_spaces",
        "keep": "last",
        "max_documents": 2,
        "text": "title",
    },
    "remove_repeated_substrings": {"min_bytes": 30, "keep": "none", "max_documents": 2, "text": "title"},
    "remove_urls": {"text": "title"},
    "sample_by_importance": {"rows": 5, "importance": "id", "noise": True, "seed": 7},
    "sample_rows": {"fraction": 0.25, "seed": 7, "by": "content", "subset": "title"},
    "split_rows": {"parts": {"a": 0.25}, "seed": 7, "by": "address", "subset": "title", "group_column": "score"},
    "join": {
        "other": pd.DataFrame({"doc": [2, 5, 8, 400], "label": ["two", None, "seven", "none"], "title": ["x"] * 4}),
        "on": {"title": "label"},
        "how": "inner",
        "columns": ["title"],
        "suffix": "_other",
        "duplicates": "first",
    },
    "repeat_rows": {"by": "title", "times": {None: 2}, "seed": 7, "into": "copy"},
    "split_documents": {"separator": "\n", "text": "title", "segment_id": "segment"},
}
OTHER_VALUES = {name: values for name, values in ALL_OTHER_VALUES.items() if name in OPERATORS}
"""For each parameter of each operator a value that the operator's first case does not have: another program."""


ONLY_WITH: Mapping[tuple[str, str], Mapping[str, Any]] = {
    ("add_ids", "subset"): {"identity": "content"},
    ("add_ids", "start"): {"dense": True},
    ("redact_pii", "key"): {"replacement": "hash"},
    ("remove_html", "extractor_into"): {"extractor": ("trafilatura", "justext")},
    ("remove_html", "favor"): {"extractor": "trafilatura"},
    ("remove_html", "min_chars"): {"extractor": ("trafilatura", "justext")},
    ("remove_html", "output"): {"extractor": "trafilatura"},
    ("remove_html", "stop_words"): {"extractor": "justext"},
    ("remove_html", "timeout_seconds"): {"extractor": "trafilatura"},
    ("remove_outside", "include_left"): {"left": "a"},
    ("sample_rows", "subset"): {"by": "content"},
}
"""Arguments without which a parameter has no meaning."""
NO_IDENTITY = {
    *(
        ("add_completion", parameter)
        for parameter in ("api_key_env", "base_url", "cache", "max_concurrent", "max_retries", "timeout_seconds")
    ),
    ("add_contamination", "storage_options"),
    ("add_importance", "storage_options"),
    ("add_profile", "from_metrics"),
    ("drop_contaminated", "storage_options"),
    ("drop_exact_duplicates", "groups"),
    ("drop_exact_duplicates", "keep_keys"),
    ("drop_near_duplicates", "bands_per_iteration"),
    ("drop_near_duplicates", "groups"),
    ("drop_semantic_duplicates", "groups"),
    ("keep_profile", "from_metrics"),
    ("keep_urls", "storage_options"),
    ("remove_contamination", "storage_options"),
}
"""Parameters that change nothing that comes out: how files and servers are reached, what was computed before, in how many
steps."""
TESTED_ELSEWHERE = {
    ("add_class", "answer_into"),
    ("keep_class", "answer_into"),
    ("add_embedding", "dimensions"),
    ("add_embedding", "pooling"),
    ("add_language", "model"),
    *(("add_perplexity", parameter) for parameter in ("by", "tokenizer")),
    ("add_token_count", "tokenizer"),
    ("add_token_count", "revision"),
    ("sample_by_importance", "fraction"),
    ("split_rows", "groups"),
    *((name, "index") for name in ("drop_exact_duplicates", "drop_near_duplicates")),
    ("drop_exact_duplicates", "against"),
    ("drop_near_duplicates", "against"),
    ("drop_near_duplicates", "signatures"),
    ("drop_semantic_duplicates", "dimensions"),
    ("drop_semantic_duplicates", "k_means"),
    *(("join_documents", parameter) for parameter in ("text", "id", "segment_id")),
    ("keep_language", "model"),
    *((name, "by") for name in ("add_profile", "keep_profile")),
    *((name, "thresholds") for name in ("add_class", "keep_class")),
}
"""Parameters whose values need another table than `ROWS`, a model or tokenizer as files, or a GPU."""
