# SPDX-License-Identifier: Apache-2.0
"""Types of JSON columns from the first lines of a few files, and from the user's ``dtype``.

A type follows from the literal values: a string that looks like a date stays a string.
"""

from __future__ import annotations

import difflib
import json
import re
import warnings
from collections.abc import Callable, Collection, Container, Iterable, Mapping
from typing import Any

import pyarrow as pa

from curator_df.errors import ParameterError, SchemaError, outside_level
from curator_df.io.formats import MOST_LEVELS

TEXT = pa.large_string()
"""Type of strings in a block: offsets of 64 bits, so that a long row or a large block fits."""
_NAMES = {"string": TEXT, "str": TEXT, "int": pa.int64(), "float": pa.float64(), "bool": pa.bool_()}

NUMBERS = (pa.int64(), pa.uint64(), pa.float64())
"""Number types; the first that holds all numbers of a column is used."""
MOST_EXACT = 1 << 53
"""Largest number up to which every whole number keeps all its digits in float64."""
SHOWN_NAME, SHOWN_TYPE = 80, 200
"""Maximum characters of a name and of a type in a message."""
Place = tuple[int, int]
"""Number of a file and of a line in it, from 1."""
_KINDS = {bool: "bool", str: "string", list: "list", dict: "object"}
_SCALARS = {"bool": pa.bool_(), "string": pa.string()}
_ALIKE = ({bool}, {str}, {float})
_NUMBER_WORDS = {
    0b000: "a whole number that no 64-bit number holds exactly",
    0b001: "a whole number beyond 2^53",
    0b010: "a whole number beyond 2^63",
    0b011: "a whole number beyond 2^53",
    0b100: "float64",
    0b101: "int64",
    0b110: "a whole number beyond 2^63",
    0b111: "int64",
}
"""Descriptions of numbers, by the types of `NUMBERS` that hold them exactly."""
HEAD_ROWS = 2000
"""Maximum number of rows of a file from which types are inferred: 16 files of short rows would take seconds otherwise."""
NEAR = 0.75
"""Minimum similarity, from 0 to 1, of two names that are possibly meant to be the same."""
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")
Dtypes = Mapping[str, str | pa.DataType]
"""Types as users may give them with ``dtype``."""


def requested_types(dtype: Dtypes | None) -> dict[str, pa.DataType]:
    """Convert the user's ``dtype`` to Arrow types.

    Examples
    --------
    >>> requested_types({"text": "string", "n": "int32"})
    {'text': DataType(large_string), 'n': DataType(int32)}
    """
    if dtype is not None and not isinstance(dtype, Mapping):
        raise ParameterError(f"dtype must map columns to types, such as {{'id': 'int64'}}; got {dtype!r}")
    names = [str(name) for name in dtype or {}]
    require_text("dtype", names)
    return {name: _requested_type(name, kind) for name, kind in zip(names, (dtype or {}).values(), strict=True)}


def require_text(argument: str, names: Iterable[str]) -> None:
    """Raise `ParameterError` if the name of a column has a lone surrogate, which no file can hold."""
    for name in names:
        try:
            name.encode()
        except UnicodeEncodeError as exc:
            raise ParameterError(
                f"{argument}= has the column {name!r}, whose name is not Unicode text: it has a lone surrogate. Correct the name"
            ) from exc


def _requested_type(name: str, kind: Any) -> pa.DataType:
    if isinstance(kind, pa.DataType):
        return TEXT if pa.types.is_string(kind) else kind
    try:
        return _NAMES[kind] if kind in _NAMES else pa.type_for_alias(kind)
    except (TypeError, ValueError) as exc:
        raise ParameterError(
            f"dtype= of the column {name!r}: {kind!r} is not a type. Use a pyarrow type, or a name such as 'string', 'int64', "
            "'float64', 'bool' or 'timestamp[ms]'"
        ) from exc


def warn_of_near_names(operator: str, given: Iterable[str], found: Collection[str]) -> None:
    """Warn about columns of ``dtype`` that the first rows do not have, if a similar name exists."""
    for name in given:
        near = [] if name in found else difflib.get_close_matches(name, set(found) - set(given), n=1, cutoff=NEAR)
        if near:
            warnings.warn(
                f"{operator}: dtype has {name!r}, which is not in the rows examined. Did you mean {near[0]!r}? {name!r} is "
                "null in rows without it",
                UserWarning,
                stacklevel=outside_level(),
            )


class Seen:
    """Kinds of JSON values at one place of the rows of a file (column, field, element), with the number of rows of each."""

    def __init__(self) -> None:
        self.rows: dict[str, int] = {}
        """Number of rows with a value of each kind."""
        self.first: dict[str, Place] = {}
        """Place of the first value of each kind."""
        self.whole: dict[int, tuple[int, Place]] = {}
        """Number of rows and first place of numbers, by the types of `NUMBERS` that hold them exactly."""
        self.fields: dict[str, Seen] = {}
        """Fields of the objects, in the order in which they were first seen."""
        self.elements: Seen | None = None
        """Elements of the lists."""
        self._last: dict[Any, Place] = {}

    def add(self, value: Any, place: Place) -> None:
        """Record a value of a row."""
        if value is None:
            return
        kind = _KINDS.get(type(value), "number")
        if self._last.get(kind) != place:  # once in a row, also in a list
            self._last[kind] = place
            self.rows[kind] = self.rows.get(kind, 0) + 1
            self.first.setdefault(kind, place)
        if kind == "number":
            self._add_number(_exact_in(value), place)
        elif kind == "object":
            for name, item in value.items():
                self.fields.setdefault(name, Seen()).add(item, place)
        elif kind == "list":
            self.elements = self.elements or Seen()
            types = {type(item) for item in value} - {type(None)}
            for item in [next(item for item in value if item is not None)] if types in _ALIKE else value:
                self.elements.add(item, place)

    def add_deep(self, place: Place) -> None:
        """Record a value that nests too deep to have a type."""
        self.rows["deep"] = 0  # never the most
        self.first.setdefault("deep", place)

    def _add_number(self, exact_in: int, place: Place) -> None:
        rows, first = self.whole.get(exact_in, (0, place))
        if self._last.get(exact_in) != place:
            self._last[exact_in] = place
            self.whole[exact_in] = (rows + 1, first)

    def keep_most(self) -> None:
        """Forget, at every depth, the kinds of values that occur in fewer rows than another kind."""
        self.rows.pop("deep", None)
        kind = max(self.rows, key=lambda kind: self.rows[kind], default=None)
        self.rows = {} if kind is None else {kind: self.rows[kind]}
        self.first = {} if kind is None else {kind: self.first[kind]}
        if kind != "number":
            self.whole = {}
        elif self.whole:
            best = self._number()
            self.whole = {mask: seen for mask, seen in self.whole.items() if mask >> best & 1}
        if kind != "object":
            self.fields = {}
        if kind != "list":
            self.elements = None
        for below in [*self.fields.values(), *([self.elements] if self.elements else [])]:
            below.keep_most()

    def merge(self, other: Seen) -> None:
        """Add the kinds in the rows of a later file."""
        for kind, rows in other.rows.items():
            self.rows[kind] = self.rows.get(kind, 0) + rows
            self.first.setdefault(kind, other.first[kind])
        for mask, (rows, place) in other.whole.items():
            before, first = self.whole.get(mask, (0, place))
            self.whole[mask] = (before + rows, first)
        for name, below in other.fields.items():
            self.fields.setdefault(name, Seen()).merge(below)
        if other.elements is not None:
            self.elements = self.elements or Seen()
            self.elements.merge(other.elements)

    def type(self) -> tuple[pa.DataType, int]:
        """Return the type that holds all values, null if only nulls were seen, and the last file that determines it.

        Raises
        ------
        Conflict
            If there is no such type.
        """
        if not self.rows:
            return pa.null(), -1
        if "deep" in self.rows:
            raise Conflict("", [(f"lists or objects nested more than {MOST_LEVELS} levels deep", self.first["deep"])])
        if len(self.rows) > 1:
            raise Conflict("", [(self._shown(kind), place) for kind, place in _by_place(self.first)[:2]])
        ((kind, (file, _)),) = self.first.items()
        if kind == "number":
            return self._number_type() if self.whole else (NUMBERS[0], file)
        if kind == "list":
            inner, below = _below(self.elements or Seen(), "[]")
            return pa.list_(inner), max(file, below)
        if kind == "object":
            found = {name: _below(seen, f".{name}") for name, seen in self.fields.items()}
            types = pa.struct([(name, below) for name, (below, _) in found.items()])
            return types, max([file, *(below for _, below in found.values())])
        return _SCALARS[kind], file

    def _number(self) -> int:
        """Return the type of `NUMBERS` that holds most of the numbers; in a tie the one of the first number."""

        def order(bit: int) -> tuple[int, Place]:
            held = [seen for mask, seen in self.whole.items() if mask >> bit & 1]
            return -sum(rows for rows, _ in held), min((place for _, place in held), default=(0, 0))

        return min(range(len(NUMBERS)), key=order)

    def _number_type(self) -> tuple[pa.DataType, int]:
        best = self._number()
        outside = {mask: place for mask, (_, place) in self.whole.items() if not mask >> best & 1}
        if outside:
            inside = {mask: place for mask, (_, place) in self.whole.items() if mask >> best & 1}
            clash = [*_by_place(outside)[:1], *_by_place(inside)[:1]]
            raise Conflict(
                "", [(_NUMBER_WORDS[mask], place) for mask, place in sorted(clash, key=lambda item: item[1])]
            )
        decisive = [place for mask, (_, place) in self.whole.items() if not mask & ((1 << best) - 1)]
        return NUMBERS[best], min(decisive or [place for _, place in self.whole.values()])[0]

    def _shown(self, kind: str) -> str:
        """Return a kind in the form for a message: its own type, if it has one."""
        alone = Seen()
        alone.rows, alone.first, alone.whole = {kind: 1}, {kind: self.first[kind]}, self.whole
        alone.fields, alone.elements = self.fields, self.elements
        try:
            shown = str(alone.type()[0]).replace("double", "float64")
        except Conflict:
            shown = kind
        return shown if len(shown) <= SHOWN_TYPE else f"{shown[:SHOWN_TYPE]}..."


class Conflict(Exception):  # noqa: N818 - never seen by users
    """Error of a place whose values have no common type.

    Parameters
    ----------
    path : str
        The place below the column, such as ``.field[]``.
    values : list of (str, Place)
        Description of each value found, with its first row; more than one, or one that no type can hold.
    """

    def __init__(self, path: str, values: list[tuple[str, Place]]) -> None:
        super().__init__(path, values)
        self.path, self.values = path, values


def _below(seen: Seen, step: str) -> tuple[pa.DataType, int]:
    try:
        return seen.type()
    except Conflict as exc:
        raise Conflict(step + exc.path, exc.values) from None


def _is_deep(value: Any, levels: int = MOST_LEVELS) -> bool:
    """Return whether lists and objects nest more than ``levels`` levels deep."""
    below = value.values() if isinstance(value, dict) else value
    return not levels or any(isinstance(item, (list, dict)) and _is_deep(item, levels - 1) for item in below)


def _by_place(first: Mapping[Any, Place]) -> list[tuple[Any, Place]]:
    return sorted(first.items(), key=lambda item: item[1])


def _exact_in(value: float) -> int:
    """Return the types of `NUMBERS` that hold a number exactly, as bits."""
    if isinstance(value, float):
        return 0b100
    if -MOST_EXACT <= value <= MOST_EXACT:
        return 0b111 if value >= 0 else 0b101
    return (-(2**63) <= value < 2**63) | (0 <= value < 2**64) << 1 | is_exact(value) << 2


def is_exact(value: int) -> bool:
    """Return whether a whole number keeps all its digits in float64.

    Examples
    --------
    >>> is_exact(2**53), is_exact(2**53 + 1), is_exact(10**400)
    (True, False, False)
    """
    try:
        return int(float(value)) == value
    except OverflowError:
        return False


def infer(
    heads: Iterable[tuple[int, list[tuple[int, dict[str, Any]]]]],
    given: Mapping[str, pa.DataType],
    path: Callable[[int], str],
    columns: Container[str] | None = None,
    *,
    quarantines: bool = False,
) -> tuple[dict[str, pa.DataType], dict[str, int]]:
    """Find the types of columns from the first rows of several files.

    Parameters
    ----------
    heads : iterable of (int, list of (int, dict))
        File number and its first rows, each after its line.
    given : mapping
        Types that the user gave; values found under these names are ignored.
    path : callable
        File number -> path, for the error.
    columns : container of str, optional
        Columns whose types must be compatible; others are only listed.
    quarantines : bool
        Whether to ignore rows that do not fit the type of most rows of their file, because the reader quarantines them.

    Returns
    -------
    dict of str to pyarrow.DataType
        Columns in the order in which they were first seen; null for a column without any value.
    dict of str to int
        File number from which each type came.

    Raises
    ------
    SchemaError
        If a column has incompatible types.
    """
    columns_seen: dict[str, Seen] = {}
    for number, rows in heads:
        for name, seen in _seen_in(number, rows, given, columns).items():
            if quarantines:
                seen.keep_most()
            columns_seen.setdefault(name, Seen()).merge(seen)
    types: dict[str, pa.DataType] = {}
    origins: dict[str, int] = {}
    for name, seen in columns_seen.items():
        try:
            types[name], origin = seen.type()
        except Conflict as exc:
            raise _conflict_error(name, exc, path, quarantines) from None
        types[name] = given.get(name, types[name])
        if origin >= 0:
            origins[name] = origin
    return types, origins


def _seen_in(
    number: int,
    rows: list[tuple[int, dict[str, Any]]],
    given: Mapping[str, pa.DataType],
    columns: Container[str] | None,
) -> dict[str, Seen]:
    """Return the kinds of values of each column in the first rows of a file; columns whose type does not matter are ignored."""
    found: dict[str, Seen] = {}
    for line, row in rows:
        for name, value in row.items():
            seen = found.setdefault(name, Seen())
            if name in given or not (columns is None or name in columns):
                continue
            if isinstance(value, (list, dict)) and _is_deep(value):
                seen.add_deep((number, line))
            else:
                seen.add(value, (number, line))
    return found


def levels(kind: pa.DataType, levels_of_list: int = 1) -> int:
    """Return how many levels deep a type is nested; 1 for one that holds no other.

    Examples
    --------
    >>> levels(pa.int64()), levels(pa.struct([("a", pa.list_(pa.int64()))]))
    (1, 3)
    """
    if pa.types.is_map(kind):  # a list of entries, each with a key and a value
        return 2 + max(levels(kind.key_type, levels_of_list), levels(kind.item_type, levels_of_list))
    own = 1 if pa.types.is_struct(kind) or not kind.num_fields else levels_of_list
    return own + max((levels(kind.field(place).type, levels_of_list) for place in range(kind.num_fields)), default=0)


def _conflict_error(name: str, conflict: Conflict, path: Callable[[int], str], quarantines: bool) -> SchemaError:
    """Make the error for a column whose values have no common type."""
    found = " and ".join(f"{shown} in line {line:,} of {path(file)!r}" for shown, (file, line) in conflict.values)
    name, where = shorten(name), f" (at {shorten(name + conflict.path)!r})" if conflict.path else ""
    keeps = ""
    if len(conflict.values) == 1:  # nested too deeply, for which there is no type
        aside = "" if quarantines else "quarantine such rows with on_bad_rows='quarantine', or "
        way_out = f"{aside}leave the column out with columns="
        return SchemaError(f"the column {name!r} has {found}{where}. {way_out[0].upper()}{way_out[1:]}")
    if not conflict.path:
        keeps = " ('string' reads numbers literally; other rows that do not fit are then bad rows)"
    aside = "" if quarantines else ", quarantine the rows that do not fit with on_bad_rows='quarantine'"
    return SchemaError(
        f"the column {name!r} has {found}{where}. Choose a type with dtype={{{name!r}: ...}}{keeps}{aside}, or leave the "
        "column out with columns="
    )


def shorten(text: str) -> str:
    """Return a text for a message: a long one with its length instead of its end.

    Examples
    --------
    >>> shorten("text"), shorten("k" * 1000)[-30:]
    ('text', 'kkkkk... (1,000 characters)')
    """
    return text if len(text) <= SHOWN_NAME else f"{text[:SHOWN_NAME]}... ({len(text):,} characters)"


def block_type(kind: pa.DataType) -> pa.DataType:
    """Return the type of a column in blocks: strings are large, and a column of only nulls is a string column.

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


def rows_of(head: bytes, *, whole: bool) -> list[tuple[int, dict[str, Any]]]:
    """Return the objects among the first lines of a file, each after its line; the others are left for the reader to report.

    A head without a single line end (one huge first row) gives the fields that begin in it.
    """
    lines = head.removeprefix(b"\xef\xbb\xbf").split(b"\n")
    if not whole:
        cut = lines.pop()
        if not lines:
            begun = first_fields(cut.decode("utf-8", "ignore"))
            return [(1, begun)] if _is_text(begun) else []
    rows = []
    for number, line in enumerate(lines, start=1):
        row = _row_of(line)
        if row is not None:
            rows.append((number, row))
            if len(rows) == HEAD_ROWS:
                break
    return rows


def _row_of(line: bytes) -> dict[str, Any] | None:
    """Return the object on a line, or None if there is none that can be read."""
    if not line.strip():
        return None
    try:
        row = json.loads(line.decode())
    except (ValueError, RecursionError):
        return None
    is_row = isinstance(row, dict) and (not _SURROGATE.search(line) or _is_text(row))
    return row if is_row else None


def _is_text(row: dict[str, Any]) -> bool:
    """Return whether all strings and names are text: a lone surrogate is not, and makes the row a bad row."""
    try:
        json.dumps(row, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return False
    return True


def first_fields(text: str) -> dict[str, Any]:
    """Return the fields at the beginning of a truncated JSON object; a truncated string counts.

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
