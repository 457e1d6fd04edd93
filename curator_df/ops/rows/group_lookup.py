# SPDX-License-Identifier: Apache-2.0
"""Look up the group of a row in a table that a ``find_`` operator wrote, by file and offset; a worker holds it once."""

from __future__ import annotations

import json
import os
import zlib
from dataclasses import dataclass, field
from typing import Any

import dask.dataframe as dd
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from dask.dataframe.dask_expr import FrameBase

from curator_df.core.files.storage import JOURNAL_FOLDER, Folder, shown_path
from curator_df.core.fingerprint import fingerprint
from curator_df.core.memory.process_cache import held
from curator_df.core.planning.lowering import lower
from curator_df.core.ranges.source import OFFSET_BITS
from curator_df.errors import InputError, OperatorError, ParameterError
from curator_df.io.output.checkpoint import folder_of

ROW_BYTES = 48
"""Bytes of a row of the table in a worker: its row ID and its group, and a copy of both while they are sorted."""
READ_BYTES = 20_000_000
"""Bytes of a row group of the table while it is read. Assumed."""
COLUMNS = ("file", "offset", "group")


@dataclass(frozen=True)
class GroupLookup:
    """Groups of the rows of a table."""

    folder: Folder = field(metadata={"identity": False})
    """Folder of the table of groups."""
    digest: str
    """Identity of the search that found them."""
    rows: int = field(metadata={"identity": False})
    """Rows of the table of groups."""
    packed_files: bytes = field(metadata={"identity": False}, repr=False)
    """Files of the table that is split, in order, compressed."""

    @property
    def held_bytes(self) -> int:
        """Bytes that each worker process holds."""
        return READ_BYTES + ROW_BYTES * self.rows

    def of(self, addresses: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
        """Return the group of each row, and which rows are in one."""
        known, groups = held(("groups", self.folder.url, self.digest, zlib.crc32(self.packed_files)), self._read)
        places = np.minimum(np.searchsorted(known, addresses), max(len(known) - 1, 0))
        is_found = known[places] == addresses if len(known) else np.zeros(len(addresses), dtype=bool)
        return (groups[places] if len(known) else np.zeros(len(addresses), dtype=np.int64)), is_found

    def _read(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        files = pa.array(zlib.decompress(self.packed_files).decode().split("\0"), pa.large_string())
        addresses: npt.NDArray[np.int64] = np.empty(self.rows, dtype=np.int64)
        groups: npt.NDArray[np.int64] = np.empty(self.rows, dtype=np.int64)
        start = 0
        for name in self.folder.names():
            if name.startswith(f"{JOURNAL_FOLDER}/") or not name.endswith(".parquet"):
                continue
            with self.folder.filesystem.open(self.folder.path(name)) as opened, pq.ParquetFile(opened) as file:
                for number in range(file.num_row_groups):
                    table = file.read_row_group(number, columns=list(COLUMNS))
                    places = pc.index_in(table["file"].cast(pa.large_string()), value_set=files)
                    if places.null_count:
                        other = table["file"].filter(pc.is_null(places))[0].as_py()
                        raise OperatorError(
                            f"split_rows: groups= were found in another table: it has rows of {other!r}, which is not among "
                            "the files of this one. Find them again for this table"
                        )
                    stop = start + len(table)
                    offsets = table["offset"].to_numpy().astype(np.int64)
                    addresses[start:stop] = (places.to_numpy().astype(np.int64) << OFFSET_BITS) | offsets
                    groups[start:stop] = table["group"].to_numpy().astype(np.int64)
                    start = stop
        order = np.argsort(addresses[:start], kind="stable")
        return addresses[:start][order], groups[:start][order]


def group_lookup(df: dd.DataFrame, operator: str, groups: Any) -> GroupLookup:
    """Return the groups of a table's rows.

    Raises
    ------
    InputError
        If no ``find_`` operator wrote the table of groups.
    ParameterError
        If it is neither a Dask DataFrame nor a path.
    """
    if isinstance(groups, FrameBase):
        folder = folder_of(groups)
    elif isinstance(groups, (str, os.PathLike)):
        folder = Folder(os.fspath(groups).rstrip("/"), {})
    else:
        raise ParameterError(
            f"{operator}: groups= must be what a find_ operator returned (a Dask DataFrame), or its folder; got "
            f"{type(groups).__name__}"
        )
    names = [f"{JOURNAL_FOLDER}/{name}.json" for name in ("parameters", "plan", "receipt")]
    if not all(map(folder.exists, names)):
        raise InputError(
            f"{operator}: groups= was read from {folder.url}, where no find_ operator has finished. Use what "
            "find_near_duplicates returned"
        )
    asked, plan, receipt = (folder.read(name) for name in names)
    files = "\0".join(shown_path(path) for path in lower(df).source.files)
    digest = fingerprint(asked.decode(), json.loads(plan)["program"], json.loads(plan)["input"])
    return GroupLookup(folder, digest, json.loads(receipt)["rows_written"], zlib.compress(files.encode()))
