# SPDX-License-Identifier: Apache-2.0
"""Whole numbers that lost digits in a column of float64: their rows are found after the lines were parsed.

pyarrow reads ``9007199254740993`` into float64 as ``9007199254740992.0``, and one of 400 digits as infinity, without an error.
Only lines with such large values are examined again, so that other columns cost one pass over their values.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from curator_df.io.jsonl.lines import Bytes
from curator_df.io.jsonl.scan import Lines
from curator_df.io.jsonl.schema import MOST_EXACT, is_exact, shorten

MOST_DIGITS = 400
"""Number of digits beyond which whole numbers exceed float64; Python refuses to count those of more than 4,300."""
SHOWN_DIGITS = 40
_MANY_DIGITS = re.compile(rb"[0-9]{16}")
_ONLY_ARROW = re.compile(rb"(?<=[:,\[ ])(?:-NaN|-?Inf)(?=[ ,\]}])")
"""Pattern of numbers that pyarrow reads and Python does not."""
_TOO_LARGE = 10**MOST_DIGITS


def rounded_rows(
    table: pa.Table, data: Bytes, lines: Lines, columns: frozenset[str] | set[str]
) -> Iterator[tuple[int, str, str]]:
    """Find the rows in which a whole number did not fit into float64.

    Parameters
    ----------
    table : pyarrow.Table
        One row for each line.
    data : ndarray of uint8
        The chunk from which it was parsed.
    lines : Lines
        Bounds of the lines.
    columns : set of str
        Columns to check.

    Yields
    ------
    int, str, str
        Number of the row, ascending; the reason in words; and the column.
    """
    suspects: list[npt.NDArray[np.int64]] = []
    for name in table.schema.names:
        if name in columns and holds_float64(table.schema.field(name).type):
            before = 0
            for chunk in table.column(name).chunks:
                suspects.append(_large(chunk) + before)
                before += len(chunk)
    for row in np.unique(np.concatenate(suspects)).tolist() if suspects else ():
        raw = data[lines.starts[row] : lines.stops[row]].tobytes()
        if _MANY_DIGITS.search(raw):
            found = _rounded(raw, table.schema, columns)
            if found is not None:
                yield row, *found


def holds_float64(kind: pa.DataType) -> bool:
    """Return whether values of a type are float64 numbers, or contain such numbers.

    Examples
    --------
    >>> holds_float64(pa.list_(pa.struct([("score", pa.float64())]))), holds_float64(pa.float32())
    (True, False)
    """
    if pa.types.is_struct(kind):
        return any(holds_float64(item.type) for item in kind)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return holds_float64(kind.value_type)
    return bool(pa.types.is_float64(kind))


def _large(values: pa.Array) -> npt.NDArray[np.int64]:
    """Return the positions of values that are, or contain, a number that may have lost digits."""
    none = np.empty(0, np.int64)
    if not holds_float64(values.type) or len(values) == values.null_count:
        return none
    if pa.types.is_struct(values.type):
        below = [_large(values.field(number)) for number in range(values.type.num_fields)]
        return np.unique(np.concatenate(below))
    if pa.types.is_float64(values.type):
        ends = pc.min_max(values)
        least, most = ends["min"].as_py(), ends["max"].as_py()
        if least > -MOST_EXACT and most < MOST_EXACT:
            return none
        return np.flatnonzero(np.abs(values.to_numpy(zero_copy_only=False)) >= MOST_EXACT)
    inner = _large(values.flatten())
    return np.unique(pc.list_parent_indices(values).to_numpy()[inner]) if len(inner) else none


def _rounded(raw: bytes, schema: pa.Schema, columns: frozenset[str] | set[str]) -> tuple[str, str] | None:
    """Return why a line's whole numbers do not fit, with the column, or None."""
    text = _ONLY_ARROW.sub(b"0", raw) if _ONLY_ARROW.search(raw) else raw
    try:
        row = json.loads(text, parse_int=lambda digits: int(digits) if len(digits) <= MOST_DIGITS else _TOO_LARGE)
    except (ValueError, RecursionError):
        return "it holds a number beyond 2^53, and nests too deep to tell whether all its digits were kept", ""
    for field in schema:
        if field.name in columns:
            number = _inexact(row.get(field.name), field.type)
            if number is not None:
                digits = (
                    f"a whole number of more than {MOST_DIGITS} digits"
                    if number == _TOO_LARGE
                    else f"the whole number {_shown(number)}"
                )
                return f"column {shorten(field.name)!r}: float64 cannot hold {digits} exactly", field.name
    return None


def _shown(number: int) -> str:
    digits = str(number)
    return digits if len(digits) <= SHOWN_DIGITS else f"{digits[:SHOWN_DIGITS]}... ({len(digits):,} digits)"


def _inexact(value: Any, kind: pa.DataType) -> int | None:
    """Return a whole number that float64 cannot hold, among those in float64 columns."""
    if value is None:
        return None
    if pa.types.is_float64(kind):
        return value if isinstance(value, int) and not is_exact(value) else None
    if isinstance(value, list) and holds_float64(kind):
        found = (_inexact(item, kind.value_type) for item in value)
    elif isinstance(value, dict) and pa.types.is_struct(kind):
        found = (_inexact(value.get(item.name), item.type) for item in kind)
    else:
        return None
    return next((number for number in found if number is not None), None)
