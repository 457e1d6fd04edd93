# SPDX-License-Identifier: Apache-2.0
"""Rows of the other table of a join in memory, sorted by the hashes of their keys, and the search for those of a block.

A `Lookup` is what a worker process holds once for all its tasks. `HeldFrame` is a pandas DataFrame on its way to the workers;
the rows of a table that is read from files are in `stages.HeldFiles`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa

from curator_df.core.host_blocks import pandas_block
from curator_df.core.ranges.blocks import Outcome
from curator_df.errors import ParameterError, SchemaError
from curator_df.io.output.files import arrow_schema
from curator_df.io.shuffle.sink import Taken, stored_schema
from curator_df.kernels.rows.content_hash import Hashes
from curator_df.kernels.rows.keep_rows import keep_rows
from curator_df.memory.process_cache import cached
from curator_df.memory.sizes import show_sizes
from curator_df.ops.host_only import require_host
from curator_df.ops.joins.keys import Joining, key_hashes, key_kind, require_kinds

HASH_BYTES = 16
"""Bytes of the hash of a row."""
MOST_FRAME_BYTES = 256_000_000
"""Largest pandas DataFrame that is sent to workers, in bytes of its keys and columns."""
PACKED_ROWS = 100_000
"""Rows of a batch of a packed DataFrame."""
SORT_BYTES = 64
"""Bytes of a row while rows are sorted by the hashes of their keys: hashes, their copies and the order."""
Places = npt.NDArray[np.int64]


class Lookup:
    """Rows of the other table, each found by the hash of its key.

    Parameters
    ----------
    hashes : ndarray of uint64, shape (rows, 2)
        Hashes of the keys, sorted and without repetition.
    table : pyarrow.Table
        Columns that the join adds, in the same order.
    """

    def __init__(self, hashes: Hashes, table: pa.Table) -> None:
        self._high, self._low = np.ascontiguousarray(hashes[:, 0]), np.ascontiguousarray(hashes[:, 1])
        self._table = table

    def find(self, hashes: Hashes, valid: npt.NDArray[np.bool_]) -> Places:
        """Return the place of the row with each hash; -1 where there is none, or ``valid`` is False."""
        places = np.full(len(hashes), -1, dtype=np.int64)
        rows = np.flatnonzero(valid)
        at = np.searchsorted(self._high, hashes[rows, 0])
        while len(rows):
            inside = at < len(self._high)
            rows, at = rows[inside], at[inside]
            same = self._high[at] == hashes[rows, 0]
            rows, at = rows[same], at[same]
            is_it = self._low[at] == hashes[rows, 1]
            places[rows[is_it]] = at[is_it]
            rows, at = rows[~is_it], at[~is_it] + 1  # another key with the same first half
        return places

    def columns_at(self, places: Places) -> pd.DataFrame:
        """Return the columns of some rows, null where the place is -1."""
        return pandas_block(self._table.take(pa.array(places, mask=places < 0)).combine_chunks())


class Other(Protocol):
    """The other table of a join, in a form that is sent to workers."""

    def lookup(self) -> Lookup:
        """Return its rows, which this process holds once."""


def join_block(block: Any, *, joining: Joining, other: Other) -> Outcome:
    """Kernel of `join`."""
    require_host(block, "join")
    require_kinds(block, joining.left, joining.kinds)
    places = other.lookup().find(*key_hashes(block, joining.left, joining.signed))
    is_matched = places >= 0
    counters = {"rows_matched": int(is_matched.sum())}
    keep = ~is_matched if joining.how == "anti" else is_matched
    if joining.how == "left" or keep.all():
        return Outcome(_with_columns(block, places, joining, other), counters=counters)
    gone = ~keep
    count = int(gone.sum())
    return Outcome(
        _with_columns(keep_rows(block, keep), places[keep], joining, other),
        {joining.reason: count},
        counters,
        rejects=lambda: (keep_rows(block, gone), {"reason": [joining.reason] * count, "rule": [joining.rule] * count}),
    )


def _with_columns(block: Any, places: Places, joining: Joining, other: Other) -> Any:
    if not joining.columns:
        return block
    added = other.lookup().columns_at(places)
    return block.assign(**{into: added[name].array for into, name in zip(joining.into, joining.columns, strict=True)})


class Distinct(NamedTuple):
    """Order of some rows by the hashes of their keys."""

    order: Places
    """Positions of the rows, sorted by hash; of each key only the first row."""
    repeated: tuple[int, int] | None
    """Positions of two rows with the same key; None if there are none."""


def distinct(hashes: Hashes, numbers: npt.NDArray[np.int64]) -> Distinct:
    """Return the order of rows by hash, without repeated keys; ``numbers`` tell which row of a key is the first.

    Examples
    --------
    >>> hashes = np.array([[7, 0], [5, 0], [7, 0]], dtype=np.uint64)
    >>> distinct(hashes, np.arange(3))
    Distinct(order=array([1, 0]), repeated=(0, 2))
    """
    order = np.lexsort((numbers, hashes[:, 1], hashes[:, 0]))
    is_again = np.zeros(len(order), dtype=np.bool_)
    is_again[1:] = (hashes[order[1:]] == hashes[order[:-1]]).all(axis=1)
    again = np.flatnonzero(is_again)
    pair = (int(order[again[0] - 1]), int(order[again[0]])) if len(again) else None
    return Distinct(order[~is_again], pair)


@dataclass(frozen=True)
class HeldFrame:
    """A pandas DataFrame that is the other table of a join."""

    digest: str
    """Digest of its keys and columns."""
    packed: bytes = field(repr=False, metadata={"identity": False})
    """Keys and columns of its rows, one row for each key: an Arrow stream, compressed."""
    signed: tuple[bool, ...] = field(metadata={"identity": False})
    """Whether each key column is compared with signed integers, as in `Joining`."""
    held_bytes: int = field(metadata={"identity": False})
    """Bytes that each worker process needs to sort the rows, and then holds."""
    row_bytes: int = field(metadata={"identity": False})
    """Mean bytes of the added columns of a row."""

    def lookup(self) -> Lookup:
        """Return its rows, which this process holds once."""
        found: Lookup = cached(("join", self.digest, self.signed), self._unpack)
        return found

    def _unpack(self) -> Lookup:
        table, count = pa.ipc.open_stream(self.packed).read_all(), len(self.signed)
        keys = pandas_block(table.select(range(count)))
        hashes, valid = key_hashes(keys, tuple(keys.columns), self.signed)
        rows = np.flatnonzero(valid)
        rows = rows[distinct(hashes[rows], rows).order]
        columns = table.select(range(count, table.num_columns))
        return Lookup(hashes[rows], columns.take(pa.array(rows)).combine_chunks())

    def __dask_tokenize__(self) -> Any:
        """Identify the value for Dask without walking its bytes."""
        return ("curator_df.HeldFrame", self.digest, self.signed)


def hold_frame(frame: pd.DataFrame, joining: Joining) -> tuple[HeldFrame, pa.Schema]:
    """Pack the keys and columns of a DataFrame for the workers; return them with the schema of the added columns.

    Raises
    ------
    ParameterError
        If a key is in several rows, or the frame is too large to be sent.
    SchemaError
        If a column has values of several types.
    """
    numbers = np.arange(len(frame))
    keys, columns = (_arrow(frame[list(names)]) for names in (joining.right, joining.columns))
    values = pandas_block(keys)
    _require_kinds_of_values(values, joining)
    is_valid = values.notna().all(axis=1).to_numpy()
    is_again = values.duplicated().to_numpy() & is_valid
    if is_again.any() and joining.duplicates == "raise" and joining.how in ("left", "inner"):
        again = int(np.flatnonzero(is_again)[0])
        key = tuple(values.iloc[again])
        is_same = np.ones(len(values), dtype=bool)
        for name, value in zip(values.columns, key, strict=True):
            is_same &= (values[name] == value).to_numpy(dtype=bool, na_value=False)
        first = int(np.flatnonzero(is_same)[0])
        raise repeated_key(key, f"row {first:,}", f"row {again:,}")
    rows = pa.array(numbers[is_valid & ~is_again])
    keys, columns = keys.take(rows), columns.take(rows)
    names = [f"key {place}" for place in range(keys.num_columns)]
    whole = pa.Table.from_arrays([*keys.columns, *columns.columns], names=[*names, *columns.column_names])
    if whole.nbytes > MOST_FRAME_BYTES:
        has, most = show_sizes(whole.nbytes, MOST_FRAME_BYTES)
        raise ParameterError(
            f"join: the other table is a pandas DataFrame of {has}, but at most {most} can be sent to workers. Write it "
            "with its to_parquet(path), and pass curator_df.read_parquet(path)"
        )
    digest, packed = _packed(whole)
    held_bytes = 2 * (whole.nbytes + len(packed)) + SORT_BYTES * len(whole)
    return HeldFrame(
        digest, packed, joining.signed, held_bytes, -(-columns.nbytes // max(len(whole), 1))
    ), columns.schema


def _require_kinds_of_values(keys: pd.DataFrame, joining: Joining) -> None:
    """Raise `SchemaError` for a key column of objects that are not text."""
    for name, kind in zip(joining.right, joining.kinds, strict=True):
        if key_kind(keys.dtypes[name]) != kind and keys[name].notna().any():
            raise SchemaError(
                f"join: the key {name!r} of the other table holds {keys.dtypes[name]}, but the key of this table holds {kind}. "
                f"Convert the column of the other table first; bytes become text with other[{name!r}].str.decode('utf-8')"
            )


def _arrow(frame: pd.DataFrame) -> pa.Table:
    """Return columns of a DataFrame in Arrow, with the types in which curator_df writes them."""
    try:
        table = pa.Table.from_pandas(frame, schema=arrow_schema(frame), preserve_index=False)
        return table.replace_schema_metadata(None).cast(stored_schema(frame, Taken(0)))
    except (pa.ArrowException, OverflowError, UnicodeEncodeError) as exc:
        raise SchemaError(
            f"join: a column of the other table has values that differ in type, or that Arrow cannot hold: {exc}. Convert the "
            "column with astype() first"
        ) from exc


def _packed(table: pa.Table) -> tuple[str, bytes]:
    """Return the digest of a table, and its bytes for the workers."""
    digest, content = hashlib.blake2b(str(table.schema).encode(), digest_size=16), pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    with pa.ipc.new_stream(content, table.schema, options=options) as writer:
        for batch in table.to_batches(max_chunksize=PACKED_ROWS):
            digest.update(batch.serialize())
            writer.write_batch(batch)
    return digest.hexdigest(), content.getvalue().to_pybytes()


def repeated_key(key: Sequence[Any], first: str, again: str) -> ParameterError:
    """Return the error for a key in two rows of the other table."""
    values = tuple(value.item() if isinstance(value, np.generic) else value for value in key)
    shown = repr(values[0]) if len(values) == 1 else repr(values)
    return ParameterError(
        f"join: the key {shown} is in several rows of the other table, such as {first} and {again}. Use duplicates='first' to "
        "take the first row of each key, or make the keys unique before"
    )
