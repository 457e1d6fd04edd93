# SPDX-License-Identifier: Apache-2.0
"""Columns of CSV: fields as text by `pyarrow.csv`, and their conversion to types, in which no whole number loses digits."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from curator_df.errors import SchemaError
from curator_df.io.csv.records import Dialect
from curator_df.io.jsonl.lines import Bytes
from curator_df.io.jsonl.schema import MOST_EXACT, TEXT, is_exact, shorten

PARSE_BYTES = 1 << 20
"""Bytes that pyarrow.csv parses at once, or the longest record if that is longer."""
WHOLE, NUMBER = r"-?(0|[1-9][0-9]*)", r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?|NaN|-?Infinity"
"""Spellings of numbers in JSON, by which a column is found to hold numbers: ``007`` is text."""
ANY_WHOLE, ANY_NUMBER = r"[+-]?[0-9]+", r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?|[+-]?(?i:nan|inf|infinity)"
"""Spellings of numbers in a column whose type the user gave."""
TRUTH = r"true|True|TRUE|false|False|FALSE"
SHOWN_CHARACTERS = 40
_WHOLE, _NUMBER, _TRUTH = (re.compile(rf"(?:{spelling})\Z") for spelling in (WHOLE, NUMBER, TRUTH))


class Fault(NamedTuple):
    """Reason why a row cannot be read."""

    row: int
    """Number of the row."""
    reason: str
    """Reason in words."""
    column: str
    """Column with the value."""


def parse(data: Bytes, longest: int, names: Sequence[str], wanted: Sequence[str], dialect: Dialect) -> pa.Table:
    """Parse records without faults, all with the same fields, into columns of text.

    A field is null if it is empty and not quoted.

    Parameters
    ----------
    data : ndarray of uint8
        The records, in valid UTF-8, without blank lines.
    longest : int
        Bytes of the longest record.
    names : sequence of str
        Name of each field; names may be any text, as fields are found by their place.
    wanted : sequence of str
        Columns of the result, in order.
    dialect : Dialect
        Form of the file.
    """
    places = [f"f{place}" for place in range(len(names))]
    place_of = dict(zip(reversed(names), reversed(places), strict=True))  # the first of several
    chosen = [place_of[name] for name in wanted]
    # pyarrow refuses a record that is longer than its block. With threads, it would parse several blocks ahead.
    reader = pyarrow.csv.open_csv(
        pa.BufferReader(pa.py_buffer(data)),
        read_options=pyarrow.csv.ReadOptions(
            use_threads=False, block_size=max(PARSE_BYTES, longest + 2), column_names=places
        ),
        parse_options=pyarrow.csv.ParseOptions(
            delimiter=dialect.delimiter,
            quote_char=dialect.quote or False,
            newlines_in_values=dialect.quote is not None,
            ignore_empty_lines=False,
        ),
        convert_options=pyarrow.csv.ConvertOptions(
            check_utf8=False,
            column_types=dict.fromkeys(places, TEXT),
            include_columns=chosen,
            null_values=[""],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        ),
    )
    return pa.Table.from_batches(list(reader), pa.schema([(place, TEXT) for place in chosen])).rename_columns(
        list(wanted)
    )


def converted(
    column: pa.ChunkedArray, name: str, kind: pa.DataType, *, is_given: bool
) -> tuple[pa.ChunkedArray, list[Fault]]:
    """Convert a column of text to a type; return it, null where a value does not fit, with these values."""
    if kind == TEXT:
        return column, []
    values = pc.if_else(pc.equal(column, ""), pa.scalar(None, TEXT), column)  # an empty field in quotes is not a number
    spelling = _spelling(kind, is_given=is_given)
    fits = pc.fill_null(pc.match_substring_regex(values, rf"^(?:{spelling})$"), fill_value=True)
    faults: dict[int, str] = {}
    if spelling and not pc.all(fits).as_py():
        faults |= {row: f"not {_name(kind)}" for row in np.flatnonzero(~mask_of(fits)).tolist()}
        values = pc.if_else(fits, values, pa.scalar(None, TEXT))
    try:
        result = _cast(values, kind)
    except pa.ArrowInvalid:
        failing = {row: f"not {_name(kind)}" for row in _failing(values, kind)}
        faults |= failing
        keep = np.ones(len(values), np.bool_)
        keep[list(failing)] = False
        values = pc.if_else(pa.array(keep), values, pa.scalar(None, TEXT))
        result = _cast(values, kind)
    if pa.types.is_float64(kind) and not is_given:
        faults |= dict.fromkeys(_rounded(values, result), "a whole number that float64 cannot hold exactly")
    if pa.types.is_floating(kind):
        faults |= dict.fromkeys(_infinite(values, result), f"beyond the largest number of {_name(kind)}")
    shown = column.take(pa.array(sorted(faults), pa.int64())).to_pylist()
    return result, [
        Fault(row, f"column {shorten(name)!r}: {_shown(text)} is {faults[row]}", name)
        for row, text in zip(sorted(faults), shown, strict=True)
    ]


def _spelling(kind: pa.DataType, *, is_given: bool) -> str:
    if pa.types.is_integer(kind):
        return ANY_WHOLE if is_given else WHOLE
    if pa.types.is_floating(kind):
        return ANY_NUMBER if is_given else NUMBER
    return TRUTH if pa.types.is_boolean(kind) else ""


def _cast(values: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    if pa.types.is_boolean(kind):
        return pc.equal(pc.utf8_lower(values), "true")
    if pa.types.is_integer(kind) or pa.types.is_floating(kind):
        values = pc.replace_substring_regex(values, r"^\+", "")  # which Arrow does not read
    if pa.types.is_float16(kind):
        return values.cast(pa.float32()).cast(kind)
    return values.cast(kind)


def _failing(values: pa.ChunkedArray, kind: pa.DataType) -> Iterator[int]:
    """Yield the rows whose values cannot be converted, found by halving."""
    pending = [(0, len(values))]
    while pending:
        start, stop = pending.pop()
        try:
            _cast(values.slice(start, stop - start), kind)
        except pa.ArrowInvalid:
            if stop - start == 1:
                yield start
            else:
                middle = (start + stop) // 2
                pending += [(middle, stop), (start, middle)]


def _rounded(values: pa.ChunkedArray, numbers: pa.ChunkedArray) -> Iterator[int]:
    """Yield the rows with a whole number that lost digits."""
    large = mask_of(pc.fill_null(pc.greater_equal(pc.abs(numbers), float(MOST_EXACT)), fill_value=False))
    rows = np.flatnonzero(large)
    for row, text in zip(rows.tolist(), values.take(pa.array(rows)).to_pylist(), strict=True):
        if _WHOLE.match(text) and (len(text) > MOST_DIGITS or not is_exact(int(text))):
            yield row


def _infinite(values: pa.ChunkedArray, numbers: pa.ChunkedArray) -> Iterator[int]:
    """Yield the rows with a number in digits that became infinite."""
    for row in np.flatnonzero(np.isinf(numbers.to_numpy())).tolist():
        if "inf" not in values[row].as_py().lower():
            yield row


MOST_DIGITS = 400
"""Digits beyond which whole numbers exceed float64."""


def mask_of(values: pa.ChunkedArray) -> npt.NDArray[np.bool_]:
    """Return truth values as an array of NumPy."""
    mask: npt.NDArray[np.bool_] = values.to_numpy()
    return mask


def _name(kind: pa.DataType) -> str:
    return {"double": "float64", "float": "float32", "halffloat": "float16"}.get(str(kind), str(kind))


def _shown(text: str) -> str:
    return repr(text if len(text) <= SHOWN_CHARACTERS else f"{text[:SHOWN_CHARACTERS]}...")


def require_possible(given: Mapping[str, pa.DataType]) -> None:
    """Raise `SchemaError` for a type that a field of text cannot be converted to."""
    for name, kind in given.items():
        try:
            pa.array([], TEXT).cast(kind)
        except (pa.ArrowNotImplementedError, pa.ArrowInvalid):
            raise SchemaError(
                f"read_csv: dtype={{{name!r}: '{kind}'}} is not possible, because a field of CSV is text without structure. Read "
                "it as 'string'"
            ) from None


def infer_types(heads: Iterable[pa.Table], given: Mapping[str, pa.DataType]) -> dict[str, pa.DataType]:
    """Find the types of columns from the first rows of files: numbers or booleans if all values are spelled so, otherwise text.

    Examples
    --------
    >>> head = pa.table({"a": ["1", "2"], "b": ["007", "1"], "c": ["1", "2.5"], "d": ["true", None]})
    >>> {name: str(kind) for name, kind in infer_types([head], {}).items()}
    {'a': 'int64', 'b': 'large_string', 'c': 'double', 'd': 'bool'}
    """
    # By name, because a table searches all of its names for one.
    tables = [dict(zip(table.column_names, table.columns, strict=True)) for table in heads]
    names = dict.fromkeys(itertools.chain.from_iterable(tables))
    return {
        name: given[name]
        if name in given
        else _type_of(text for table in tables if name in table for text in table[name].to_pylist() if text)
        for name in names
    }


def _type_of(values: Iterable[str]) -> pa.DataType:
    kinds, least, most, inexact = set[str](), 0, 0, False
    for text in values:
        if _WHOLE.match(text) and len(text) <= MOST_DIGITS:
            kinds.add("whole")
            least, most, inexact = min(least, int(text)), max(most, int(text)), inexact or not is_exact(int(text))
        elif _NUMBER.match(text) and not _WHOLE.match(text):
            kinds.add("number")
        else:
            kinds.add("truth" if _TRUTH.match(text) else "text")
    if kinds == {"whole"}:
        fitting = (kind for kind, low, high in _RANGES if low <= least and most <= high)
        return next(fitting, TEXT)
    if kinds and kinds <= {"whole", "number"}:
        return TEXT if inexact else pa.float64()
    return pa.bool_() if kinds == {"truth"} else TEXT


_RANGES = ((pa.int64(), -(1 << 63), (1 << 63) - 1), (pa.uint64(), 0, (1 << 64) - 1))
