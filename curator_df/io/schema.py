# SPDX-License-Identifier: Apache-2.0
"""Types of JSON columns from the first lines of a few files, and from what the user says.

A type is taken from values as they are: a string that looks like a date stays a string.
"""

from __future__ import annotations

import difflib
import json
import warnings
from collections.abc import Callable, Collection, Container, Iterable, Mapping
from typing import Any

import pyarrow as pa

from curator_df.errors import ParameterError, SchemaError

TEXT = pa.large_string()
"""Strings of a block: offsets of 64 bits, so that a long row or a large block fits."""
_NAMES = {"string": TEXT, "str": TEXT, "int": pa.int64(), "float": pa.float64(), "bool": pa.bool_()}

_SCALARS = {type(None): pa.null(), bool: pa.bool_(), float: pa.float64(), str: pa.string()}
HEAD_ROWS = 2000
"""Most rows of a file that its types are taken from: 16 files of short rows would take seconds otherwise."""
NEAR = 0.75
"""How alike, from 0 to 1, two names are that may be meant to be the same."""
MOST_LEVELS = 120
"""Levels of a column: a type with 165 of them cannot be sent to a worker."""
Dtypes = Mapping[str, str | pa.DataType]
"""What users may give as ``dtype``."""


def requested_types(dtype: Dtypes | None) -> dict[str, pa.DataType]:
    """Turn the user's ``dtype`` into Arrow types.

    Examples
    --------
    >>> requested_types({"text": "string", "n": "int32"})
    {'text': DataType(large_string), 'n': DataType(int32)}
    """
    if dtype is not None and not isinstance(dtype, Mapping):
        raise ParameterError(f"dtype must map columns to types, such as {{'id': 'int64'}}; got {dtype!r}")
    return {str(name): _requested_type(str(name), kind) for name, kind in (dtype or {}).items()}


def _requested_type(name: str, kind: Any) -> pa.DataType:
    if isinstance(kind, pa.DataType):
        return TEXT if pa.types.is_string(kind) else kind
    try:
        return _NAMES[kind] if kind in _NAMES else pa.type_for_alias(kind)
    except (TypeError, ValueError) as exc:
        raise ParameterError(
            f"dtype={{{name!r}: {kind!r}}} is not a type; give a pyarrow type, or a name such as 'string', 'int64', "
            "'float64', 'bool' or 'timestamp[ms]'"
        ) from exc


def warn_of_near_names(operator: str, given: Iterable[str], found: Collection[str]) -> None:
    """Warn of columns of ``dtype`` that the first rows do not have, but one that is written almost so."""
    for name in given:
        near = [] if name in found else difflib.get_close_matches(name, set(found) - set(given), n=1, cutoff=NEAR)
        if near:
            warnings.warn(
                f"{operator}: dtype names {name!r}, which is in no row that was looked at; did you mean {near[0]!r}? {name!r} is "
                "empty where rows do not have it",
                UserWarning,
                stacklevel=4,
            )


def type_of(value: Any) -> pa.DataType:
    """Return the Arrow type of a JSON value; null when it says nothing about the type.

    Examples
    --------
    >>> type_of([1, 2.5, None])
    ListType(list<item: double>)
    """
    if type(value) in _SCALARS:
        return _SCALARS[type(value)]
    if isinstance(value, int):
        return pa.int64() if -(2**63) <= value < 2**63 else pa.uint64() if 0 <= value < 2**64 else pa.float64()
    if isinstance(value, list):
        kind = pa.null()
        for item in value:
            kind = unify(kind, type_of(item))
        return pa.list_(kind)
    return pa.struct([pa.field(name, type_of(item)) for name, item in value.items()])


def unify(one: pa.DataType, other: pa.DataType) -> pa.DataType:
    """Return the type that holds values of both.

    Raises
    ------
    TypeError
        There is none.

    Examples
    --------
    >>> unify(pa.int64(), pa.float64()), unify(pa.null(), pa.string())
    (DataType(double), DataType(string))
    """
    if one.equals(other) or pa.types.is_null(other):
        return one
    if pa.types.is_null(one):
        return other
    if pa.types.is_list(one) and pa.types.is_list(other):
        return pa.list_(unify(one.value_type, other.value_type))
    if pa.types.is_struct(one) and pa.types.is_struct(other):
        fields = {item.name: item.type for item in one}
        for item in other:
            fields[item.name] = unify(fields.get(item.name, pa.null()), item.type)
        return pa.struct(list(fields.items()))
    if _is_number(one) and _is_number(other):
        return pa.float64() if pa.types.is_floating(one) or pa.types.is_floating(other) else pa.uint64()
    raise TypeError(f"{one} and {other}")


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind))


def infer(
    heads: Iterable[tuple[int, list[dict[str, Any]]]],
    given: Mapping[str, pa.DataType],
    path: Callable[[int], str],
    columns: Container[str] | None = None,
) -> tuple[dict[str, pa.DataType], dict[str, int]]:
    """Unify the types of first rows of several files.

    Parameters
    ----------
    heads : iterable of (int, list of dict)
        File number and its first rows.
    given : mapping
        Types that the user gave; what is found under these names does not count.
    path : callable
        File number -> path, for the error.
    columns : container of str, optional
        Only the types of these have to go together; others are only listed.

    Returns
    -------
    dict of str to pyarrow.DataType
        Columns in the order in which they were first seen; null for a column without any value.
    dict of str to int
        File number from which the type came.

    Raises
    ------
    SchemaError
        A column has types that do not go together.
    """
    types: dict[str, pa.DataType] = {}
    origins: dict[str, int] = {}
    for number, rows in heads:
        for row in rows:
            for name, value in row.items():
                if name in given or (columns is not None and name not in columns):
                    types.setdefault(name, given.get(name, pa.null()))
                    continue
                before = types.get(name, pa.null())
                try:
                    types[name] = unify(before, type_of(value))
                except RecursionError:
                    types[name] = before  # too deep to have a type: the reader reports the row
                except TypeError as exc:
                    raise SchemaError(
                        f"the column {name!r} holds {_shown(before)} in {path(origins.get(name, number))!r} and "
                        f"{_safe_type(value)} in {path(number)!r}; say which it is with dtype={{{name!r}: ...}} "
                        "('string' takes numbers as they are written; other rows that do not fit are then bad rows), or leave "
                        "it out with columns="
                    ) from exc
                if not types[name].equals(before) or name not in origins:
                    origins[name] = number
    for name, kind in types.items():
        if (depth := levels(kind)) > MOST_LEVELS:
            raise SchemaError(
                f"the column {name!r} is nested {depth} levels deep in {path(origins.get(name, 0))!r}, and a table can have "
                f"{MOST_LEVELS}; leave it out with columns="
            )
    return types, origins


def levels(kind: pa.DataType, levels_of_list: int = 1) -> int:
    """Return how many levels deep a type is nested; 1 for one that holds no other.

    Examples
    --------
    >>> levels(pa.int64()), levels(pa.struct([("a", pa.list_(pa.int64()))]))
    (1, 3)
    """
    own = 1 if pa.types.is_struct(kind) or not kind.num_fields else levels_of_list
    return own + max((levels(kind.field(place).type, levels_of_list) for place in range(kind.num_fields)), default=0)


def _shown(kind: pa.DataType) -> str:
    return str(kind).replace("large_string", "string").replace("double", "float64")


def _safe_type(value: Any) -> str:
    try:
        return _shown(type_of(value))
    except TypeError as exc:
        return f"a mix of {exc}"


def block_type(kind: pa.DataType) -> pa.DataType:
    """Return the type of a column in blocks: strings are large, what was only ever null is a string.

    Examples
    --------
    >>> block_type(pa.null()), block_type(pa.list_(pa.null()))
    (DataType(large_string), ListType(list<item: string>))
    """
    if pa.types.is_null(kind) or pa.types.is_string(kind):
        return TEXT
    return _without_null(kind)


def _without_null(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_null(kind):
        return pa.string()
    if pa.types.is_list(kind):
        return pa.list_(_without_null(kind.value_type))
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(item.name, _without_null(item.type)) for item in kind])
    return kind


def rows_of(head: bytes, *, whole: bool) -> list[dict[str, Any]]:
    """Return the objects among the first lines of a file; what cannot be parsed is left for the reader to report.

    A head without a single line end (one huge first row) gives the fields that begin in it.
    """
    lines = head.removeprefix(b"\xef\xbb\xbf").split(b"\n")
    if not whole:
        cut = lines.pop()
        if not lines:
            return [first_fields(cut.decode("utf-8", "ignore"))]
    rows = []
    for line in lines:
        try:
            row = json.loads(line) if line.strip() else None
        except (ValueError, RecursionError):
            continue
        if isinstance(row, dict):
            rows.append(row)
            if len(rows) == HEAD_ROWS:
                break
    return rows


def first_fields(text: str) -> dict[str, Any]:
    """Return the fields at the beginning of a JSON object that is cut off; a string that is cut off counts.

    Examples
    --------
    >>> first_fields('{"id": 7, "text": "a long sto')
    {'id': 7, 'text': ''}
    """
    decoder, row = json.JSONDecoder(), {}
    position = text.find("{") + 1
    while position:
        position = _after_spaces(text, position)
        try:
            name, position = decoder.raw_decode(text, position)
            position = _after_spaces(text, _after_spaces(text, position) + 1)
            if text[position : position + 1] == '"':
                row[name] = ""
            row[name], position = decoder.raw_decode(text, position)
        except (ValueError, RecursionError, TypeError):
            break
        position = _after_spaces(text, position)
        position = position + 1 if text[position : position + 1] == "," else 0
    return row


def _after_spaces(text: str, position: int) -> int:
    while position < len(text) and text[position] in " \t\r\n":
        position += 1
    return position
