# SPDX-License-Identifier: Apache-2.0
"""Numbers that a type cannot hold: whole ones that lose digits in float64, and finite ones that become infinite in float32."""

from __future__ import annotations

import json
import math
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
BEYOND_FLOAT32 = 2.0**128 - 2.0**103
"""Least number that float32 rounds to infinity."""


def lossy_rows(
    table: pa.Table, data: Bytes, lines: Lines, columns: frozenset[str] | set[str]
) -> Iterator[tuple[int, str, str]]:
    """Find the rows in which a whole number did not fit into float64, or a number became infinite in float32.

    Parameters
    ----------
    table : pyarrow.Table
        One row for each line.
    data : ndarray of uint8
        The chunk from which it was parsed.
    lines : Lines
        Bounds of the lines.
    columns : set of str
        Columns in which whole numbers must keep their digits.

    Yields
    ------
    int, str, str
        Number of the row, ascending; the reason in words; and the column.
    """
    suspects: list[npt.NDArray[np.int64]] = []
    for name in table.schema.names:
        if holds_floats(table.schema.field(name).type, 64 if name in columns else 32):
            before = 0
            for chunk in table.column(name).chunks:
                suspects.append(_large(chunk) + before)
                before += len(chunk)
    for row in np.unique(np.concatenate(suspects)).tolist() if suspects else ():
        raw = data[lines.starts[row] : lines.stops[row]].tobytes()
        found = _lost(raw, table.schema, columns)
        if found is not None:
            yield row, *found


def holds_floats(kind: pa.DataType, most_bits: int = 64) -> bool:
    """Return whether values of a type are float numbers of at most ``most_bits`` bits, or contain such numbers.

    Examples
    --------
    >>> scores = pa.list_(pa.struct([("score", pa.float64())]))
    >>> holds_floats(scores), holds_floats(scores, 32), holds_floats(pa.float32(), 32)
    (True, False, True)
    """
    inner = (kind.field(place).type for place in range(kind.num_fields))
    if any(holds_floats(each, most_bits) for each in inner):
        return True
    return bool(pa.types.is_floating(kind) and kind.bit_width <= most_bits)


def _large(values: pa.Array) -> npt.NDArray[np.int64]:
    """Return the positions of values that are, or contain, a number that may have lost digits."""
    none = np.empty(0, np.int64)
    if not holds_floats(values.type) or len(values) == values.null_count:
        return none
    if pa.types.is_struct(values.type):
        below = [_large(values.field(number)) for number in range(values.type.num_fields)]
        return np.unique(np.concatenate(below))
    if pa.types.is_floating(values.type):
        ends = pc.min_max(values)
        least, most = ends["min"].as_py(), ends["max"].as_py()
        limit = MOST_EXACT if pa.types.is_float64(values.type) else math.inf
        if least > -limit and most < limit:
            return none
        return np.flatnonzero(np.abs(values.to_numpy(zero_copy_only=False)) >= limit)
    inner = _large(values.flatten())
    return np.unique(pc.list_parent_indices(values).to_numpy()[inner]) if len(inner) else none


def _lost(raw: bytes, schema: pa.Schema, columns: frozenset[str] | set[str]) -> tuple[str, str] | None:
    """Return why a line's numbers do not fit, with the column, or None."""
    if not (_MANY_DIGITS.search(raw) or any(holds_floats(each.type, 32) for each in schema)):
        return None
    text = _ONLY_ARROW.sub(b"0", raw) if _ONLY_ARROW.search(raw) else raw
    try:
        row = json.loads(text, parse_int=lambda digits: int(digits) if len(digits) <= MOST_DIGITS else _TOO_LARGE)
    except (ValueError, RecursionError):
        return "it holds a number beyond 2^53, and nests too deep to tell whether all its digits were kept", ""
    for one in schema:
        found = _misfit(row.get(one.name), one.type, keeps_digits=one.name in columns)
        if found is None:
            continue
        number, kind = found
        is_rounded = pa.types.is_float64(kind)
        digits = (
            f"a whole number of more than {MOST_DIGITS} digits"
            if number == _TOO_LARGE
            else f"the {'whole ' if isinstance(number, int) else ''}number {_shown(number)}"
        )
        held = f"float64 cannot hold {digits} exactly" if is_rounded else f"float32 cannot hold {digits}"
        return f"column {shorten(one.name)!r}: {held}", one.name
    return None


def _shown(number: float) -> str:
    digits = str(number)
    return digits if len(digits) <= SHOWN_DIGITS else f"{digits[:SHOWN_DIGITS]}... ({len(digits):,} digits)"


def _misfit(value: Any, kind: pa.DataType, *, keeps_digits: bool) -> tuple[float, pa.DataType] | None:
    """Return a number that its type, also returned, cannot hold: with all its digits if it is whole, or at all."""
    if value is None:
        return None
    if pa.types.is_floating(kind):
        if not isinstance(value, int | float):
            return None
        if pa.types.is_float64(kind):
            fits = not keeps_digits or isinstance(value, float) or is_exact(value)
        else:
            fits = not BEYOND_FLOAT32 <= abs(value) < math.inf
        return None if fits else (value, kind)
    if isinstance(value, list) and holds_floats(kind):
        found = (_misfit(item, kind.value_type, keeps_digits=keeps_digits) for item in value)
    elif isinstance(value, dict) and pa.types.is_struct(kind):
        found = (_misfit(value.get(item.name), item.type, keeps_digits=keeps_digits) for item in kind)
    else:
        return None
    return next((number for number in found if number is not None), None)


def becomes_infinite(before: Any, after: Any) -> bool:
    """Return whether a finite number in an array, at any depth, is infinite in the same array of another type.

    Examples
    --------
    >>> numbers = pa.array([[1e39], None, [float("inf")]])
    >>> becomes_infinite(numbers, numbers.cast(pa.list_(pa.float32())))
    True
    """
    if isinstance(before, pa.ChunkedArray):
        return any(map(becomes_infinite, before.chunks, after.chunks))
    kind = after.type
    if not holds_floats(kind, 32):
        return False
    if isinstance(before, pa.ExtensionArray):  # such as tensors
        before = before.storage
    if pa.types.is_floating(kind):
        return bool(pc.sum(pc.is_inf(after)).as_py() != pc.sum(pc.is_inf(before.cast(pa.float64()))).as_py())
    if pa.types.is_struct(kind):  # Arrow's cast finds fields by their names
        held = dict(zip((field.name for field in before.type), before.flatten(), strict=True))
        pairs = zip((field.name for field in kind), after.flatten(), strict=True)
        return any(name in held and becomes_infinite(held[name], values) for name, values in pairs)
    return becomes_infinite(_entries(before, kind), _entries(after, kind))


def _entries(values: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return the values inside lists or maps; those of maps with the names of the fields that another type has."""
    if pa.types.is_map(values.type):
        names = [field.name for field in kind.field(0).type]
        types = values.type.key_type, values.type.item_type
        values = values.cast(pa.list_(pa.struct(zip(names, types, strict=True))))
    return values.flatten()
