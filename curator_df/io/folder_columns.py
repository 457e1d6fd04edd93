# SPDX-License-Identifier: Apache-2.0
"""Columns in the names of folders, ``lang=en/``, and not in the files below them, as ``partition_on=`` writes them.

Only folders below the given path count, as in pyarrow and Spark: with ``read_parquet("out/lang=en")`` there are none.
"""

from __future__ import annotations

import re
import urllib.parse
from collections.abc import Collection, Sequence
from typing import Any

import pyarrow as pa

from curator_df.errors import ColumnError
from curator_df.files.storage import shown_path
from curator_df.io.listing import Listing

HIVE_NULL = "__HIVE_DEFAULT_PARTITION__"
"""Folder name of a null value in Hive, Spark, pyarrow and Dask."""
SOURCE_COLUMNS = {"source_file": pa.large_string(), "source_line": pa.int64()}
"""Columns that ``add_source=True`` adds."""
_MAGIC = re.compile(r"[*?\[]")


def folder_columns(listing: Listing, in_files: Collection[str]) -> tuple[str, ...]:
    """Return the columns that every file has in the names of its folders, and that are not in the files, in order."""
    roots = [_root(entry) for entry in listing.entries]
    found: dict[str, None] | None = None
    for path in listing.paths:
        root = next((root for root in roots if path.startswith(root)), None)
        names = {} if root is None else dict.fromkeys(values_in(path[len(root) :]))
        found = names if found is None else {name: None for name in found if name in names}
        if not found:
            return ()
    in_folders = tuple(name for name in found or () if name not in in_files)
    clashing = next((name for name in in_folders if name in SOURCE_COLUMNS), None)
    if clashing is not None:
        raise ColumnError(
            f"the folders in {listing.paths[0]!r} are named after a column {clashing!r}, which add_source=True also adds. "
            "Rename the folders, pass the files one by one, or leave add_source= out"
        )
    return in_folders


def split_folder_columns(
    listing: Listing, in_files: Collection[str], columns: Any, known: tuple[str, ...] | None = None
) -> tuple[Any, tuple[str, ...]]:
    """Return the user's ``columns`` without those in folder names (``known``, or found), and the latter; all of them for None."""
    found = folder_columns(listing, in_files) if known is None else known
    if columns is None or not found:
        return columns, found
    asked = [columns] if isinstance(columns, str) else list(columns)
    return [name for name in asked if name not in found], tuple(name for name in found if name in asked)


def folder_values(paths: Sequence[str], name: str) -> pa.Array:
    """Return the value of a column for each file, as text.

    Examples
    --------
    >>> folder_values(["out/lang=de/a.parquet", "out/lang=pt%2Fbr/a.parquet", f"out/lang={HIVE_NULL}/a"], "lang").to_pylist()
    ['de', 'pt/br', None]
    """
    return pa.array([values_in(path)[name] for path in paths], pa.large_string())


def values_in(path: str) -> dict[str, str | None]:
    """Return the columns in the names of the folders of a path, with their values."""
    pairs = [folder.partition("=") for folder in path.split("/")[:-1] if "=" in folder]
    return {_unquoted(name): None if value == HIVE_NULL else _unquoted(value) for name, _, value in pairs if name}


def _unquoted(text: str) -> str:
    r"""Return a text of a folder name; bytes that are not UTF-8 are shown as hex digits.

    Examples
    --------
    >>> print(_unquoted("a%2Fb"), _unquoted("caf%E9"))
    a/b caf\xe9
    """
    return shown_path(urllib.parse.unquote(text, errors="surrogateescape"))


def _root(entry: str) -> str:
    """Return the folder below which an entry finds files, with a slash at its end."""
    parts = entry.split("/")
    fixed = next((place for place, part in enumerate(parts) if _MAGIC.search(part)), len(parts))
    return "/".join(parts[:fixed]).rstrip("/") + "/"
