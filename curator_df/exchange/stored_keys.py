# SPDX-License-Identifier: Apache-2.0
"""Content keys as values of a column, each with a header that identifies what was hashed.

A value has 24 bytes, little-endian: 8 bytes of header (``key``, the version, the number of the normalization, and the number of
columns), and the 128-bit hash. Parquet stores it as ``FIXED_LEN_BYTE_ARRAY``, so that any program can read it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, get_args

import numpy as np
import pandas as pd
import pyarrow as pa

from curator_df.core.planning.program import Program
from curator_df.core.ranges.blocks import BlockKernel
from curator_df.core.ranges.price import Price
from curator_df.core.ranges.sink import Sink
from curator_df.core.ranges.source import OFFSET_BITS
from curator_df.errors import SchemaError
from curator_df.exchange.keys import Keys
from curator_df.files.storage import shown_path
from curator_df.kernels.minhash.stored_signatures import fixed_width_values
from curator_df.kernels.rows.content_hash import Hashes, Normalize
from curator_df.kernels.rows.either_backend import block_hashes

KEY_COLUMN = "content_key"
"""Column of the keys."""
KEY_BYTES = 24
"""Bytes of a key."""
MAGIC, VERSION = b"key", 1
ROW_BYTES = 40
"""Bytes of a small row, of which the peak memory is a multiple."""
KEY_TYPE = pd.ArrowDtype(pa.binary(KEY_BYTES))
TEXT: Any = pd.StringDtype("pyarrow")
_NORMALIZATIONS = (None, *get_args(Normalize))


def key_header(columns: int, normalize: Normalize | None) -> bytes:
    """Return the first 8 bytes of keys.

    Examples
    --------
    >>> key_header(1, "case_and_spaces").hex(" ")
    '6b 65 79 01 01 00 01 00'
    """
    numbers = np.array([_NORMALIZATIONS.index(normalize), columns], dtype="<u2").tobytes()
    return MAGIC + bytes([VERSION]) + numbers


def pack_keys(hashes: Hashes, columns: int, normalize: Normalize | None) -> Any:
    """Return hashes as values of a column."""
    values = np.empty((len(hashes), KEY_BYTES), dtype=np.uint8)
    values[:, :8] = np.frombuffer(key_header(columns, normalize), dtype=np.uint8)
    values[:, 8:] = hashes.astype("<u8", copy=False).view(np.uint8)
    array = pa.FixedSizeBinaryArray.from_buffers(KEY_TYPE.pyarrow_dtype, len(hashes), [None, pa.py_buffer(values)])
    return pd.arrays.ArrowExtensionArray(array)


def stored_keys(block: Any, *, column: str, columns: int, normalize: Normalize | None) -> Keys:
    """Return the hashes in a column of keys.

    Raises
    ------
    SchemaError
        If the column has nulls, or keys that were made in another way.
    """
    require_keys(block.dtypes[column], column)
    values = fixed_width_values(block[column], "keep_keys= never writes. Write the keys again")
    headers = np.ascontiguousarray(values[:, :8])
    others = (headers != np.frombuffer(key_header(columns, normalize), dtype=np.uint8)).any(axis=1)
    if others.any():
        raise SchemaError(
            f"the column {column!r} has keys of {_described(headers[int(others.argmax())].tobytes())}, but this drop compares "
            f"{_described(key_header(columns, normalize))}. Use the subset= and normalize= that the keys were made with, or "
            "other keys"
        )
    return Keys(np.ascontiguousarray(values[:, 8:]).view("<u8").astype(np.uint64, copy=False))


def require_keys(dtype: Any, column: str) -> None:
    """Raise `SchemaError` unless a column can hold keys."""
    if dtype != KEY_TYPE:
        raise SchemaError(
            f"the column {column!r} has dtype {dtype}, so it does not hold keys. Use a folder that keep_keys= wrote. If the "
            "column is one of your own with the same name, rename it"
        )


def _described(header: bytes) -> str:
    if header[:3] != MAGIC or header[3] != VERSION:
        return "an unknown version"
    normalization, columns = np.frombuffer(header[4:], dtype="<u2").tolist()
    known = normalization < len(_NORMALIZATIONS)
    said = repr(_NORMALIZATIONS[normalization]) if known else "an unknown value"
    return f"{columns} column{'s' if columns != 1 else ''} with normalize={said}"


@dataclass(frozen=True)
class KeyFolder:
    """Folder for the keys of the rows that pass a drop."""

    sink: Sink
    """Sink of the folder."""
    columns: tuple[str, ...]
    """Columns that are compared."""
    normalize: Normalize | None
    """Normalization of their texts."""
    appends_to: ClassVar[str] = ""
    """It is not that of an index, so steps may follow the drop."""
    guard: ClassVar[Any] = None
    """Nothing is locked but the folder."""

    def kernel(self, program: Program) -> tuple[BlockKernel, Any]:
        """Return the kernel that makes the rows of the folder from those of a program, and their empty block."""
        files = tuple(map(shown_path, program.source.files))
        longest = max(map(len, files), default=0)
        kernel = BlockKernel(
            "keep_keys",
            keep_keys_block,
            {"columns": self.columns, "normalize": self.normalize, "files": files},
            price=Price(1.0 + (KEY_BYTES + 32 + longest) / ROW_BYTES),
        )
        return kernel, keep_keys_block(program.meta, columns=self.columns, normalize=self.normalize, files=())


def keep_keys_block(
    block: Any, *, columns: tuple[str, ...], normalize: Normalize | None, files: tuple[str, ...]
) -> Any:
    """Return the keys of the rows of a block, and where each row was read."""
    addresses = block.index.to_numpy().astype(np.int64, copy=False)
    numbers, places = np.unique(addresses >> OFFSET_BITS, return_inverse=True)
    names = pa.array([files[number] for number in numbers.tolist()], pa.large_string())
    keys = pack_keys(block_hashes(block, columns, normalize=normalize), len(columns), normalize)
    return pd.DataFrame(
        {
            KEY_COLUMN: keys,
            "file": TEXT.__from_arrow__(pa.chunked_array([names.take(pa.array(places))])),
            "offset": pd.array(addresses & ((1 << OFFSET_BITS) - 1), dtype="Int64"),
        },
        index=block.index,
    )
