# SPDX-License-Identifier: Apache-2.0
"""curator_df: curate text for training language models with Dask, under a memory budget.

Name one number of bytes; the plan is refused before it starts if it cannot fit; what runs stays under it, on any input;
what is interrupted resumes; every dropped row has a reason.
"""

from curator_df import errors, profiles
from curator_df.cluster.connect import connect
from curator_df.cluster.local import start_cluster
from curator_df.io.jsonl import read_jsonl
from curator_df.io.parquet import read_parquet
from curator_df.io.write import write_jsonl, write_parquet
from curator_df.ops.accessor import register_operators as _register_operators
from curator_df.ops.duplicates import best, drop_exact_duplicates
from curator_df.ops.explain import explain
from curator_df.ops.lines import remove_c4_lines
from curator_df.ops.profile import add_profile, keep_profile
from curator_df.ops.unicode import normalize_unicode
from curator_df.ops.where import keep_where

__version__ = "0.1.0"

__all__ = [
    "add_profile",
    "best",
    "connect",
    "drop_exact_duplicates",
    "errors",
    "explain",
    "keep_profile",
    "keep_where",
    "normalize_unicode",
    "profiles",
    "read_jsonl",
    "read_parquet",
    "remove_c4_lines",
    "start_cluster",
    "write_jsonl",
    "write_parquet",
]

_register_operators(
    (
        add_profile,
        drop_exact_duplicates,
        explain,
        keep_profile,
        keep_where,
        normalize_unicode,
        remove_c4_lines,
        write_jsonl,
        write_parquet,
    )
)
