# SPDX-License-Identifier: Apache-2.0
"""Choose the reader for a set of files by their names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from curator_df.errors import ParameterError
from curator_df.io.jsonl.reader import SUFFIXES as JSONL_SUFFIXES
from curator_df.io.listing import Paths, list_files
from curator_df.io.parquet.reader import SUFFIXES as PARQUET_SUFFIXES
from curator_df.io.warc.reader import SUFFIXES as WARC_SUFFIXES
from curator_df.memory.sizes import show_count


def holds_parquet(paths: Paths, storage_options: Mapping[str, Any] | None = None) -> bool:
    """Return True if all files are Parquet, False if no file is.

    Raises
    ------
    ParameterError
        If the kinds are mixed, or some are WARC files.
    InputError
        If no file is found.
    """
    listing = list_files(paths, suffixes=(*JSONL_SUFFIXES, *PARQUET_SUFFIXES), storage_options=storage_options)
    if crawls := sum(name.lower().endswith(WARC_SUFFIXES) for name in listing.paths):
        files = show_count(crawls, "WARC file")
        raise ParameterError(
            f"{paths if isinstance(paths, str) else 'paths='} has {files}, but this command or function reads only JSON "
            "Lines and Parquet files. Read web crawls in Python with curator_df.read_warc(), and write the pages with "
            "write_jsonl()"
        )
    parquet = [name.lower().endswith(PARQUET_SUFFIXES) for name in listing.paths]
    if any(parquet) and not all(parquet):
        said, example = (
            (paths, f"{paths.rstrip('/')}/**/*.parquet")
            if isinstance(paths, str)
            else ("paths=", "corpus/**/*.parquet")
        )
        raise ParameterError(
            f"{said} has {show_count(sum(parquet), 'Parquet file')} and {show_count(parquet.count(False), 'file')} of JSON "
            f"Lines. Choose one kind, as in {example!r}"
        )
    return all(parquet)
