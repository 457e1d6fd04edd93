# SPDX-License-Identifier: Apache-2.0
"""Sample rows at random, the same ones in every run: `sample_rows` keeps one part, `split_rows` makes several disjoint ones."""

from __future__ import annotations

import itertools
import json
import math
import os
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import dask.dataframe as dd
import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from dask.dataframe.dask_expr import FrameBase

from curator_df.arguments import choose, require_number, strings_of
from curator_df.core.backend import backend_of, require_backend
from curator_df.core.columns import require_columns, require_table
from curator_df.core.fingerprint import fingerprint
from curator_df.core.planning.lowering import lower
from curator_df.core.ranges.blocks import BlockKernel, Outcome, map_blocks
from curator_df.core.ranges.price import Price
from curator_df.core.ranges.source import OFFSET_BITS
from curator_df.errors import OperatorError, ParameterError, SchemaError
from curator_df.files.hub import without_commits
from curator_df.files.storage import JOURNAL_FOLDER, Folder, shown_path
from curator_df.io.listing import Listing, list_files
from curator_df.io.output.receipts import folder_of
from curator_df.io.streams.file_stream import open_file
from curator_df.kernels.compiling import kernel_sets
from curator_df.kernels.device.support import hashes_price
from curator_df.kernels.rows.either_backend import block_hashes, nulls_on_host, require_device_text, rows_where
from curator_df.kernels.rows.row_sample import random_numbers, sampled
from curator_df.memory.process_cache import cached
from curator_df.ops.duplicates.groups import (
    FIND_GROUPS,
    no_groups,
    require_open_files,
    require_searched_files,
    require_whole_table,
    table_files,
)
from curator_df.ops.rows.ids import IdentityKind

ROW_BYTES = 48
"""Bytes of a row of the table in a worker: its row ID and its group, and a copy of both while they are sorted."""
READ_BYTES = 20_000_000
"""Bytes of a row group of the table while it is read. Assumed."""
COLUMNS = ("file", "offset", "group")


@dataclass(frozen=True)
class GroupLookup:
    """Groups of the rows of a table."""

    listing: Listing = field(metadata={"identity": False})
    """Files of the table of groups."""
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
        known, groups = cached(
            ("groups", self.listing.fingerprint, self.digest, zlib.crc32(self.packed_files)), self._read
        )
        places = np.minimum(np.searchsorted(known, addresses), max(len(known) - 1, 0))
        is_found = known[places] == addresses if len(known) else np.zeros(len(addresses), dtype=bool)
        return (groups[places] if len(known) else np.zeros(len(addresses), dtype=np.int64)), is_found

    def _read(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        files = pa.array(zlib.decompress(self.packed_files).decode().split("\0"), pa.large_string())
        addresses: npt.NDArray[np.int64] = np.empty(self.rows, dtype=np.int64)
        groups: npt.NDArray[np.int64] = np.empty(self.rows, dtype=np.int64)
        start = 0
        for path in self.listing.paths:
            listed = self.listing.listed(path)
            with open_file(path, self.listing.storage_options, listed=listed) as opened, pq.ParquetFile(opened) as file:
                for number in range(file.num_row_groups):
                    table = file.read_row_group(number, columns=list(COLUMNS))
                    places = _places(table["file"], files)
                    if places.null_count:
                        other = table["file"].filter(pc.is_null(places))[0].as_py()
                        raise OperatorError(
                            f"split_rows: groups= belong to another table: they name rows of {other!r}, which is not an input "
                            f"file of this table. {FIND_GROUPS}"
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
        If it is neither a Dask DataFrame nor a path, or an input file has changed since the groups were found.
    InputChangedError
        If a file of the table of groups is not as it was written.
    """
    if isinstance(groups, FrameBase):
        folder = folder_of(groups)
    elif isinstance(groups, (str, os.PathLike)):
        folder = Folder(os.fspath(groups).rstrip("/"), {})
    else:
        raise ParameterError(
            f"{operator}: groups= must be the Dask DataFrame that find_exact_duplicates, find_near_duplicates or "
            f"find_semantic_duplicates returned, or its folder; got "
            f"{type(groups).__name__}"
        )
    names = [f"{JOURNAL_FOLDER}/{name}.json" for name in ("parameters", "plan", "receipt")]
    if not all(map(folder.exists, names)):
        raise no_groups(operator, folder)
    require_open_files(operator, folder)
    asked, plan, receipt = (folder.read(name) for name in names)
    source = lower(df, spools=True).source
    require_searched_files(folder, source, operator)
    require_whole_table(folder, operator)
    named = [f"{folder.url}/{file.name}" for file in table_files(folder)]
    listing = list_files(named or folder.url, suffixes=(".parquet",), storage_options=folder.options)
    require_whole_table(folder, operator)  # from the listing on, a worker detects each change
    files = "\0".join(without_commits(shown_path(path)) for path in source.files)
    digest = fingerprint(asked.decode(), json.loads(plan)["program"], json.loads(plan)["input"])
    return GroupLookup(listing, digest, json.loads(receipt)["rows_written"], zlib.compress(files.encode()))


def _places(names: pa.ChunkedArray, files: pa.Array) -> pa.Array:
    """Return which of some files each name is, whatever its commit on the hub: the files of both tables were compared before."""
    encoded = names.combine_chunks().dictionary_encode()
    known = pa.array([without_commits(name) for name in encoded.dictionary.to_pylist()], pa.large_string())
    return pc.index_in(known, value_set=files).take(encoded.indices)


REASON = "not_sampled"
OTHER_PART = "other_part"
# Measured (tests/contracts/test_memory.py) where nine tenths of the rows stay: at most 0.96, of rows of 100 bytes as well.
PEAK_FACTOR = 1.2
GROUPS_PEAK_FACTOR = 1.4
"""Memory multiplier with ``groups``: row IDs, places and groups of 8 bytes each, for rows of 100 bytes. Assumed."""


def sample_rows(
    df: dd.DataFrame,
    fraction: float,
    *,
    seed: int = 0,
    by: IdentityKind = "address",
    subset: str | Sequence[str] = "text",
) -> dd.DataFrame:
    """Keep a random sample of the rows; a larger sample contains a smaller one: for disjoint samples see `split_rows`.

    Parameters
    ----------
    df : dask.dataframe.DataFrame
        A table of Dask.
    fraction : float
        Share of the rows to keep, more than 0 and at most 1. Each row is kept with this probability, so of n rows about
        ``fraction * n`` are kept, plus or minus ``2 * sqrt(fraction * n)``.
    seed : int, default 0
        Another seed gives another, independent sample; it shares rows with the first one by chance.
    by : {"address", "content"}
        What identifies a row, as in `add_ids`. ``"address"``: its position in the list of input files. ``"content"``:
        the hash of its text, so a document is sampled, or not, in any input alike; equal texts are kept or dropped
        together.
    subset : str or list of str
        With ``by="content"``: column or columns to hash.

    Returns
    -------
    dask.dataframe.DataFrame
        The kept rows in order, with their index; dropped rows are counted as ``not_sampled``.

    Raises
    ------
    ParameterError
        If ``fraction`` is not more than 0 and at most 1, or ``seed`` is not a 64-bit integer.
    ColumnError
        If one of ``subset`` is missing, with ``by="content"``.
    UnsupportedBackendError
        If the blocks are cuDF blocks and more than one text column is hashed, or a column that is not text.
    SchemaError
        If the index is not an integer index, with ``by="address"``.

    See Also
    --------
    split_rows, preview

    Notes
    -----
    Rows: subset. Columns: same. Backends: pandas; cudf by address, and by content of one column. Peak extra memory: 1.2 x
    block. Computes: no.

    The sample does not depend on blocks, workers or earlier drops: a row is kept if a hash of its identity and the seed
    is below ``fraction``. Samples of 1%, 5% and 25% with the same seed are therefore nested, so you can try a recipe
    on increasing samples that share documents.

    Two samples are not a training and a test set: with the same seed, ``fraction=0.9`` contains every row of
    ``fraction=0.1``; with different seeds, 90% of the rows of the smaller one are in the larger one too. Use `split_rows`
    for disjoint parts.

    Examples
    --------
    >>> import dask.dataframe as dd
    >>> import pandas as pd
    >>> docs = dd.from_pandas(pd.DataFrame({"text": list("abcdefghij")}), npartitions=3)
    >>> [docs.pipe(sample_rows, fraction=part).compute().index.tolist() for part in (0.2, 0.5)]
    [[1, 4], [1, 4, 5, 6, 7]]
    """
    require_table(df, "sample_rows")
    require_number("sample_rows", "fraction", fraction)
    if not 0 < fraction <= 1:
        raise ParameterError(f"sample_rows: fraction={fraction} must be more than 0 and at most 1")
    columns = _identifying_columns(df, "sample_rows", by, subset, seed)
    kernel = BlockKernel(
        "sample_rows",
        sample_rows_block,
        {"fraction": float(fraction), "seed": seed, "columns": columns},
        price=Price(PEAK_FACTOR, device_peak_factor=PEAK_FACTOR + hashes_price(normalized=False)[0], is_measured=True),
        uses_addresses=by == "address",
        row_share=float(fraction),
        compiled=kernel_sets.CONTENT if by == "content" else (),
    )
    return map_blocks(df, kernel, meta=df._meta)


def sample_rows_block(block: Any, *, fraction: float, seed: int, columns: tuple[str, ...]) -> Outcome:
    """Kernel of `sample_rows`; without columns, the index identifies rows."""
    keep = sampled(_identities(block, columns), fraction, seed)
    if keep.all():
        return Outcome(block)
    gone = int((~keep).sum())
    return Outcome(
        rows_where(block, keep),
        {REASON: gone},
        rejects=lambda: (rows_where(block, ~keep), _why(block, ~keep, fraction, seed, columns)),
    )


def split_rows(
    df: dd.DataFrame,
    parts: Mapping[str, float],
    *,
    seed: int = 0,
    by: IdentityKind = "content",
    subset: str | Sequence[str] = "text",
    group_column: str | None = None,
    groups: dd.DataFrame | str | os.PathLike[str] | None = None,
) -> dict[str, dd.DataFrame]:
    """Split a table at random into disjoint parts, such as a training, a validation and a test set.

    Parameters
    ----------
    df : dask.dataframe.DataFrame
        A table of Dask.
    parts : mapping of str to float
        Name of each part and its share of the rows, more than 0; together at most 1. Rows of a remaining share are in no
        part. Each row goes to a part with this probability, so of n rows about ``share * n`` are in it, plus or minus
        ``2 * sqrt(share * n)``.
    seed : int, default 0
        Another seed gives another, independent split.
    by : {"content", "address"}
        What identifies a row, as in `add_ids`. ``"content"``: the hash of its text, so rows with equal texts are in one
        part, and a document is in the same part of any input. ``"address"``: its position in the list of input files.
    subset : str or list of str
        With ``by="content"``: column or columns to hash.
    group_column : str, optional
        Column whose equal values belong together, such as the domain of a page: all rows of a value are in one part.
        Rows where it is null are identified with ``by``.
    groups : dask.dataframe.DataFrame or path, optional
        Groups that `find_near_duplicates` (or another ``find_`` operator) found in this table, or their folder: all rows
        of a group are in one part, so no text of the test set is nearly in the training set. Rows in no group are
        identified with ``by``.

    Returns
    -------
    dict of str to dask.dataframe.DataFrame
        A table for each part, in the order of ``parts``, with its rows in order. In the receipt of a part, rows of other
        parts are counted as ``other_part``.

    Raises
    ------
    InputError
        If no ``find_`` operator wrote ``groups``.
    ParameterError
        If ``parts`` is empty, a share is not more than 0, the shares add up to more than 1, ``seed`` is not a 64-bit
        integer, or ``group_column`` and ``groups`` are both given.
    ColumnError
        If ``group_column`` or, with ``by="content"``, one of ``subset`` is missing.
    UnsupportedBackendError
        If the blocks are cuDF blocks, and more than one column is hashed, a column that is not text, or with ``groups``.
    SchemaError
        If the index is not an integer index, with ``by="address"``.
    OperatorError
        When computing, if ``groups`` were found in other files.
    InputChangedError
        If a file of ``groups`` is not as it was written, or is replaced before the rows are split.

    See Also
    --------
    sample_rows, write_many, find_near_duplicates

    Notes
    -----
    Rows: subset, in each part. Columns: same. Backends: pandas; cudf by address, and by content of one column. Peak extra
    memory: 1.2 x block; with ``groups=`` also 20 bytes per row, and 48 bytes per row of the groups in each worker. Computes: no;
    with ``groups=`` a table of Dask or pandas is written to working files.

    A row is in a part if a hash of its identity and the seed, as a number from 0 to 1, is in the part's interval: with
    ``{"train": 0.9, "test": 0.1}`` from 0 to 0.9, or from 0.9 to 1. Blocks, workers and earlier drops make no difference.
    Steps before the split run once if the parts are written together, with `write_many`. The first part has the rows of
    `sample_rows` with its share, ``seed`` and ``by``.

    Examples
    --------
    >>> import dask.dataframe as dd
    >>> import pandas as pd
    >>> docs = dd.from_pandas(pd.DataFrame({"text": list("abcdefghij")}), npartitions=3)
    >>> parts = split_rows(docs, {"train": 0.7, "test": 0.3})
    >>> {name: part["text"].compute().tolist() for name, part in parts.items()}
    {'train': ['a', 'b', 'c', 'e', 'f', 'g', 'h', 'j'], 'test': ['d', 'i']}
    """
    operator = "split_rows"
    require_table(df, operator)
    bounds = _bounds(operator, parts)
    columns = _identifying_columns(df, operator, by, subset, seed)
    if group_column is not None:
        require_columns(df, operator, group_column)
        require_device_text(operator, df._meta, (group_column,))
    lookup = None
    if groups is not None:
        if group_column is not None:
            raise ParameterError(
                f"{operator}: group_column= and groups= both say which rows belong together. Use one of them"
            )
        require_backend(df._meta, operator, "pandas", because="groups are looked up with NumPy, in host memory")
        lookup = group_lookup(df, operator, groups)
    hashed = hashes_price(normalized=False)[0]
    return {
        name: map_blocks(
            df,
            BlockKernel(
                operator,
                split_rows_block,
                {"part": name, "bounds": bounds[name], "seed": seed, "columns": columns, "group_column": group_column}
                | ({} if lookup is None else {"groups": lookup}),
                price=Price(
                    PEAK_FACTOR if lookup is None else GROUPS_PEAK_FACTOR,
                    device_peak_factor=PEAK_FACTOR + hashed * (2 if group_column else 1),
                    is_measured=lookup is None,
                    held_bytes=0 if lookup is None else lookup.held_bytes,
                    shared={} if lookup is None else {f"groups {lookup.digest}": lookup.held_bytes},
                ),
                uses_addresses=by == "address" or lookup is not None,
                compiled=kernel_sets.CONTENT if by == "content" or group_column is not None else (),
                row_share=float(share),
            ),
            meta=df._meta,
        )
        for name, share in parts.items()
    }


def split_rows_block(
    block: Any,
    *,
    part: str,
    bounds: tuple[float, float],
    seed: int,
    columns: tuple[str, ...],
    group_column: str | None,
    groups: GroupLookup | None = None,
) -> Outcome:
    """Kernel of `split_rows`: keep the rows of one part; without columns, the index identifies rows."""
    low, high = bounds
    identities = _identities(block, columns)
    if group_column is not None:
        is_null = nulls_on_host(block[group_column])
        np.copyto(identities, block_hashes(block, (group_column,))[:, 0], where=~is_null)
    if groups is not None:
        found, is_member = groups.of(block.index.to_numpy().astype(np.int64))
        np.copyto(identities, found.view(np.uint64), where=is_member)
    keep = sampled(identities.copy(), high, seed) & ~sampled(identities.copy(), low, seed)
    if keep.all():
        return Outcome(block)
    gone = ~keep

    def rejects() -> tuple[Any, dict[str, Any]]:
        numbers = random_numbers(identities[gone], seed)
        rule = [f"part={part}, seed={seed}"] * len(numbers)
        edge = np.where(numbers < low, low, high)
        return rows_where(block, gone), {
            "reason": [OTHER_PART] * len(numbers),
            "rule": rule,
            "value": numbers,
            "threshold": edge,
        }

    return Outcome(rows_where(block, keep), {OTHER_PART: int(gone.sum())}, rejects=rejects)


def _bounds(operator: str, parts: Mapping[str, float]) -> dict[str, tuple[float, float]]:
    """Return the interval of random numbers of each part; the last one ends at 1 if the shares add up to 1."""
    if not isinstance(parts, Mapping) or not parts:
        raise ParameterError(
            f"{operator}: parts={parts!r} must be a mapping of names to shares, as {{'train': 0.9, 'test': 0.1}}"
        )
    edges = [0.0]
    for name, share in parts.items():
        require_number(operator, f"parts[{name!r}]", share)
        if not 0 < share <= 1:
            raise ParameterError(
                f"{operator}: parts[{name!r}]={share} must be a share of the rows, more than 0 and at most 1"
            )
        edges.append(math.fsum([edges[-1], share]))
    total = math.fsum(parts.values())
    if total > 1 + 1e-9:
        raise ParameterError(
            f"{operator}: the shares of the parts add up to {total:g}, which is more than 1. Use smaller shares"
        )
    if total > 1 - 1e-9:
        edges[-1] = 1.0
    return dict(zip(parts, itertools.pairwise(edges), strict=True))


def _identifying_columns(
    df: Any, operator: str, by: IdentityKind, subset: str | Sequence[str], seed: int
) -> tuple[str, ...]:
    """Return the columns that identify a row, none for its address, after checks of the caller's arguments."""
    choose(operator, "by", by, IdentityKind)
    if not isinstance(seed, int) or not -(1 << 63) <= seed < 1 << 63:
        raise ParameterError(f"{operator}: seed={seed!r} is not a 64-bit integer. Use a whole number such as 0")
    backend_of(df._meta)  # an error unless it is pandas or cuDF
    if by == "content":
        columns = strings_of(operator, "subset", subset)
        require_columns(df, operator, *columns)
        require_device_text(operator, df._meta, columns)
        return columns
    if not pd.api.types.is_integer_dtype(df._meta.index.dtype):
        raise SchemaError(
            f"{operator} with by='address' needs the index of whole numbers that readers create, but this table's index "
            f"has the type {df._meta.index.dtype}. Use by='content', or remove the step that changes the index"
        )
    return ()


def _why(block: Any, gone: Any, fraction: float, seed: int, columns: tuple[str, ...]) -> dict[str, Any]:
    """Return what rejects say: the sample, and the random number of each row, which would have to be below the fraction."""
    numbers = random_numbers(_identities(block, columns), seed)[gone]
    rows = len(numbers)
    said = f"fraction={fraction:g}, seed={seed}"
    return {"reason": [REASON] * rows, "rule": [said] * rows, "value": numbers, "threshold": [fraction] * rows}


def _identities(block: Any, columns: tuple[str, ...]) -> Any:
    """Return a new array of uint64."""
    if columns:
        return block_hashes(block, columns)[:, 0].copy()
    return block.index.to_numpy().astype(np.int64).view(np.uint64)
