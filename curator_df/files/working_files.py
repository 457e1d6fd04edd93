# SPDX-License-Identifier: Apache-2.0
"""Working files of a cluster: rows of tables of Dask and pandas, and results of searches; their names, and errors when gone."""

import re
from collections.abc import Iterable

SPOOL_FOLDER = "spool"
"""Folder below the working folder of a cluster."""
CLOSED = "lay in the working files of a cluster that is closed"
"""End of a sentence about rows of a table of Dask or pandas, or of a blend, or about the result of a search."""
FOUND_FOLDER = "found"
"""Folder below the temporary folder of a cluster, in which its working files are."""
PREVIEW_FOLDER = "previews"
"""Folder among the working files, in which a preview writes its rows."""
NO_FOLDER = "explained-by-curator-df"
"""Folder among temporary files that stands for one that a call to be explained does not name; nothing is written there."""
FIND_AGAIN = (
    "a result without workdir= is among the working files of its cluster, and is deleted when the cluster is closed. Find groups "
    "again, with workdir= to keep them"
)
"""End of an error about groups that are gone."""
COMPARE_PARQUET = (
    f"groups= were found in a table of Dask or pandas, whose rows {CLOSED}, so they cannot be compared with this table. Write "
    "the rows to Parquet, read them with read_parquet, and find groups again in that table"
)
"""End of an error about groups of rows that are gone."""
RESUMES_WITH_CLUSTER = (
    "Rows of a table of Dask or pandas, or of blend without path=, are written to working files, which are deleted with their "
    "cluster, so that a run on them can only be resumed in the same cluster. Write them to Parquet (blend: with path=), and read "
    "them with read_parquet"
)
"""Sentences after an error about a run whose working files are not those of its beginning."""
_FILE = re.compile(rf"/(?:{SPOOL_FOLDER}/[^/]+-[0-9a-f]{{8}}|blend-[0-9a-f]{{16}})/[^/]+\.parquet$")
_TITLE = re.compile(rf"/{FOUND_FOLDER}/(find_[a-z_]+)-[0-9a-f]{{16}}$|/{PREVIEW_FOLDER}/[0-9a-f]{{12}}/kept$")
_RESULT = re.compile(rf"/{FOUND_FOLDER}/(find_[a-z_]+)-[0-9a-f]{{16}}/part-[^/]+\.parquet$")


def part_name(number: int, folder: str = "") -> str:
    """Return the name of the file of a partition, below the folder of its table."""
    return f"{folder}{'/' * bool(folder)}part-{number:06d}.parquet"


def has_working_file(paths: Iterable[str]) -> bool:
    """Return whether one of some files is a working file of a cluster.

    Examples
    --------
    >>> has_working_file(["a.parquet", "/tmp/found/spool/frompandas-06fe-f10bd10a/part-000001.parquet"])
    True
    >>> has_working_file(["/tmp/found/blend-2ee7b6f9563caa6c/part-000000-000.parquet"])
    True
    >>> has_working_file(["/data/spool/part-000001.parquet"])
    False
    """
    return any(_FILE.search(path) for path in paths)


def gone_file(path: str) -> str:
    """Return what to say about a working file of a closed cluster that cannot be opened; empty for any other file.

    Examples
    --------
    >>> gone_file("/tmp/a/found/find_exact_duplicates-3b32d2ba12a34d5b/part-000000-000.parquet").partition(".")[0][:48]
    'the result of find_exact_duplicates lay in the w'
    >>> gone_file("/data/found/part-000000-000.parquet")
    ''
    """
    if has_working_file([path]):
        return (
            f"the rows of a table of Dask or pandas, or of blend without path=, {CLOSED} ({path!r}). Start a cluster, and "
            "call the function that made this table again (concat, join, blend, ...); or write the rows to Parquet first, and "
            "read them with read_parquet"
        )
    if found := _RESULT.search(path):
        return (
            f"the result of {found[1]} {CLOSED} ({path!r}). Start a cluster, and call {found[1]} again, with workdir= to keep "
            "its result"
        )
    return ""


def title_of(output: str) -> str:
    """Return what a run is called where its progress is shown: its output, or what it does if it writes working files.

    Examples
    --------
    >>> title_of("/tmp/a/found/find_exact_duplicates-3b32d2ba12a34d5b")
    'find_exact_duplicates'
    >>> title_of("/tmp/a/found/previews/835c2d167b57/kept")
    'preview'
    >>> title_of("/data/found/kept")
    '/data/found/kept'
    """
    found = _TITLE.search(output)
    return output if found is None else found[1] or "preview"
