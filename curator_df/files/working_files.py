# SPDX-License-Identifier: Apache-2.0
"""Working files of a cluster, in which the rows of tables of Dask and pandas lie: how they are named, and when they are gone."""

import re
from collections.abc import Iterable

SPOOL_FOLDER = "spool"
"""Folder below the working folder of a cluster."""
CLOSED = "lay in the working files of a cluster that is closed"
"""End of a sentence about rows of a table of Dask or pandas."""
_FILE = re.compile(rf"/{SPOOL_FOLDER}/[^/]+-[0-9a-f]{{8}}/[^/]+\.parquet$")


def part_name(number: int, folder: str = "") -> str:
    """Return the name of the file of a partition, below the folder of its table."""
    return f"{folder}{'/' * bool(folder)}part-{number:06d}.parquet"


def has_working_file(paths: Iterable[str]) -> bool:
    """Return whether one of some files is a working file of a cluster.

    Examples
    --------
    >>> has_working_file(["a.parquet", "/tmp/found/spool/frompandas-06fe-f10bd10a/part-000001.parquet"])
    True
    >>> has_working_file(["/data/spool/part-000001.parquet"])
    False
    """
    return any(_FILE.search(path) for path in paths)
