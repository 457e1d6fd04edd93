# SPDX-License-Identifier: Apache-2.0
"""Tell by their names which reader a set of files is for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from curator_df.errors import ParameterError
from curator_df.io.jsonl import SUFFIXES as JSONL_SUFFIXES
from curator_df.io.listing import Paths, list_files
from curator_df.io.parquet import SUFFIXES as PARQUET_SUFFIXES


def holds_parquet(paths: Paths, storage_options: Mapping[str, Any] | None = None) -> bool:
    """Return True if all files are Parquet, False if none is.

    Raises
    ------
    ParameterError
        If some are and some are not.
    InputError
        If there is no file.
    """
    listing = list_files(paths, suffixes=(*JSONL_SUFFIXES, *PARQUET_SUFFIXES), storage_options=storage_options)
    parquet = [name.lower().endswith(PARQUET_SUFFIXES) for name in listing.paths]
    if any(parquet) and not all(parquet):
        said, example = (
            (paths, f"{paths.rstrip('/')}/**/*.parquet")
            if isinstance(paths, str)
            else ("paths=", "corpus/**/*.parquet")
        )
        raise ParameterError(
            f"{said} holds {sum(parquet):,} Parquet files and {len(parquet) - sum(parquet):,} others; name one kind, as in "
            f"{example!r}"
        )
    return all(parquet)
