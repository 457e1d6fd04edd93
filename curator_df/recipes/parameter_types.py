# SPDX-License-Identifier: Apache-2.0
"""Types of parameters as a file can express them, from the annotations of the functions: check values, and describe them.

`type_of` gives the type of an annotation. A type accepts a `Value` or raises `RecipeError`; `json_schema` describes a type.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib
import inspect
import math
import os
import re
import types
import typing
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args, get_origin

from curator_df.core.recorded_calls import is_size
from curator_df.errors import RecipeError
from curator_df.recipes.yaml_values import Value
from curator_df.suggestions import did_you_mean

Make = Callable[[Any, Value, str], Any]
"""Function that makes an object or a table from a mapping or a list; `recipes.calls` has it."""
_SIZE_TEXT = re.compile(r"\d[\d_]*(\.\d+)? ?([kKMGTP]i?)?B")
SIZE_PATTERN = r"^[0-9]+(\.[0-9]+)? ?([kKMGTP]i?)?B$"
_SCALARS: dict[type, str] = {bool: "true or false", int: "a whole number", float: "a number", str: "text"}

_EXAMPLES = {bool: "true", int: "1", float: "0.5"}


@dataclass(frozen=True)
class Scalar:
    """Text, a number, true or false, or no value."""

    kind: type

    @property
    def words(self) -> str:
        """Description in an error."""
        return "null" if self.kind is type(None) else _SCALARS[self.kind]

    def fits(self, data: Any) -> bool:
        """Return whether a value has this type."""
        if self.kind is float:
            return isinstance(data, int | float) and not isinstance(data, bool) and math.isfinite(data)
        return type(data) is self.kind


@dataclass(frozen=True)
class Size:
    """Number of bytes, which needs its unit."""

    words: str = "a size with its unit, such as 8GB"


@dataclass(frozen=True)
class Choice:
    """One of some values."""

    values: tuple[Any, ...]

    @property
    def words(self) -> str:
        """Description in an error."""
        return f"one of {', '.join(map(str, self.values))}"


@dataclass(frozen=True)
class ListOf:
    """List of values of one type."""

    item: Any

    @property
    def words(self) -> str:
        """Description in an error."""
        return f"a list, each item {self.item.words}"


@dataclass(frozen=True)
class MappingOf:
    """Mapping of names to values of one type."""

    key: Any
    item: Any

    @property
    def words(self) -> str:
        """Description in an error."""
        return f"a mapping of names to {self.item.words}"


@dataclass(frozen=True)
class Table:
    """Table, as a mapping with ``read:`` and ``steps:``."""

    words: str = "a table (a mapping with read: and steps:)"


@dataclass(frozen=True)
class Anything:
    """Any value that YAML has."""

    words: str = "any value"


@dataclass(frozen=True)
class Made:
    """Object that a public class or function makes: a mapping with the maker's name and its parameters."""

    kind: type
    makers: tuple[str, ...]
    """Names of classes and functions, in `curator_df` or `curator_df.profiles`."""

    @property
    def words(self) -> str:
        """Description in an error."""
        return f"a mapping such as {{{self.makers[0]}: {{...}}}}"

    @property
    def joins(self) -> bool:
        """Whether a list of such values is one value, their sum."""
        return hasattr(self.kind, "__add__") and hasattr(self.kind, "replace")


@dataclass(frozen=True)
class Sum:
    """List of values that are joined to one by ``+``."""

    item: Any
    made: Made

    @property
    def words(self) -> str:
        """Description in an error."""
        return "a list of these, which are joined"


@dataclass(frozen=True)
class Refused:
    """Value that a file cannot hold."""

    words: str


@dataclass(frozen=True)
class OneOf:
    """One of several types."""

    types: tuple[Any, ...]

    @property
    def words(self) -> str:
        """Description in an error."""
        shown = [one.words for one in self.types if not isinstance(one, Refused)]
        return " or ".join(dict.fromkeys(shown))


def parameters_of(function: Callable[..., Any]) -> dict[str, tuple[Any, inspect.Parameter]]:
    """Return the type and the parameter of each argument of a function or of a dataclass."""
    plain: Any = inspect.unwrap(function)
    hints = _hints(plain)
    found = {}
    for name, parameter in inspect.signature(plain).parameters.items():
        if parameter.kind not in (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL):
            found[name] = (type_of(hints.get(name, Any), name), parameter)
    return found


@functools.cache
def _hints(function: Any) -> dict[str, Any]:
    return typing.get_type_hints(function)


def type_of(annotation: Any, name: str) -> Any:
    """Return the type of an annotation, for a parameter of this name.

    Examples
    --------
    >>> type_of(int | None, "top").words, type_of(str | int, "memory").words
    ('a whole number or null', 'a size with its unit, such as 8GB')
    """
    members = get_args(annotation) if get_origin(annotation) in (typing.Union, types.UnionType) else (annotation,)
    if int in members and str in members and is_size(name, "int | str"):
        members = (*(one for one in members if one not in (int, str)), Size)
    found = [one for member in members for one in _types_of(member)]
    made = [one for one in found if isinstance(one, Made) and one.joins]
    choice = [one for one in found if isinstance(one, Choice)]
    if made and choice:  # profiles can be joined
        found.append(Sum(OneOf((*choice, *made)), made[0]))
    found = list(dict.fromkeys(found))
    return found[0] if len(found) == 1 else OneOf(tuple(found))


def _types_of(annotation: Any) -> list[Any]:
    origin, inner = get_origin(annotation), get_args(annotation)
    if origin in (typing.Union, types.UnionType):
        return [one for member in inner for one in _types_of(member)]
    if origin is Literal:
        values = tuple(value for value in inner if value is not None)
        return [Choice(values)] + ([Scalar(type(None))] if None in inner else [])
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return [MappingOf(type_of(inner[0], ""), type_of(inner[1], ""))]
    if origin in (Sequence, Collection, list, tuple):
        return [ListOf(type_of(inner[0], ""))]
    simple: dict[Any, Any] = {kind: Scalar(kind) for kind in (*_SCALARS, type(None))}
    simple |= {None: Scalar(type(None)), Any: Anything(), os.PathLike: Scalar(str), Size: Size()}
    if (origin or annotation) in simple:
        return [simple[origin or annotation]]
    return [_of_class(annotation, origin)]


def _of_class(annotation: Any, origin: Any) -> Any:
    if origin is Callable or annotation is Callable:
        return Refused("a function, which a file cannot hold")
    name = getattr(annotation, "__name__", str(annotation))
    if name == "DataFrame" and str(getattr(annotation, "__module__", "")).startswith("dask"):
        return Table()
    is_ours = isinstance(annotation, type) and annotation.__module__.startswith("curator_df.")
    makers = _makers(annotation) if is_ours else ()
    return Made(annotation, makers) if makers else Refused(f"a {name}, which a file cannot hold")


@functools.cache
def _makers(kind: type) -> tuple[str, ...]:
    """Return the names of the public classes and functions that make objects of a class or an interface."""
    found = []
    for name, value in public_makers().items():
        made = _hints(inspect.unwrap(value)).get("return") if inspect.isfunction(value) else value
        if isinstance(made, type) and _is_kind(made, kind) and _is_writable(value):
            found.append(name)
    return tuple(sorted(found))


def _is_writable(maker: Any) -> bool:
    """Return whether a file can hold every parameter that a maker requires."""
    return not any(
        isinstance(kind, Refused) and parameter.default is inspect.Parameter.empty
        for kind, parameter in parameters_of(maker).values()
    )


def _is_kind(made: type, kind: type) -> bool:
    """Return whether a class is another one or has its interface."""
    if not getattr(kind, "_is_protocol", False):
        return issubclass(made, kind)
    has = {*dir(made), *getattr(made, "__dataclass_fields__", ())}
    return all(name in has for name in vars(kind) if not name.startswith("_"))


@functools.cache
def public_makers() -> dict[str, Any]:
    """Return the public functions without a table, and the public dataclasses, by name."""
    package, profiles = _package(), _package().profiles
    found = {}
    for module in (package, profiles):
        for name in module.__all__:
            value = getattr(module, name)
            takes = inspect.signature(value).parameters if inspect.isfunction(value) else ()
            is_function = inspect.isfunction(value) and not {"df", "tables", "source"}.intersection(takes)
            if is_function or (isinstance(value, type) and dataclasses.is_dataclass(value)):
                found[name] = value
    return found


def _package() -> Any:
    return importlib.import_module(__name__.partition(".")[0])


def accept(kind: Any, value: Value, key: str, make: Make) -> Any:
    """Return a value of a recipe as a parameter of this type takes it; raise `RecipeError` if it does not."""
    if isinstance(kind, OneOf):
        return _one_of(kind, value, key, make)
    if value.doubt:
        raise value.error(key, value.doubt)
    if isinstance(kind, Made):
        return _accept_made(kind, value, key, make)
    if isinstance(kind, Table) or (isinstance(kind, Sum) and isinstance(value.data, list)):
        return make(kind, value, key)
    if isinstance(kind, ListOf | MappingOf) and isinstance(value.data, list | dict):
        return _accept_items(kind, value, key, make)
    return anything(value, key) if isinstance(kind, Anything) else _accept_scalar(kind, value, key)


def _accept_scalar(kind: Any, value: Value, key: str) -> Any:
    if value.is_typed and value.text and value.data is not None and kind == Scalar(str):
        return value.text
    if _has_type(kind, value.data):
        return value.data
    raise mismatch(kind, value, key)


def _has_type(kind: Any, data: Any) -> bool:
    """Return whether a value that holds no others has a type."""
    if isinstance(kind, Scalar):
        return kind.fits(data)
    if isinstance(kind, Size):
        return isinstance(data, str) and _SIZE_TEXT.fullmatch(data) is not None
    return isinstance(kind, Choice) and any(data == one and type(data) is type(one) for one in kind.values)


def _accept_items(kind: Any, value: Value, key: str, make: Make) -> Any:
    if isinstance(kind, ListOf) and isinstance(value.data, list):
        return [accept(kind.item, one, f"{key}[{number}]", make) for number, one in enumerate(value.data, 1)]
    if not isinstance(kind, MappingOf) or not isinstance(value.data, dict):
        raise mismatch(kind, value, key)
    for name in value.data:
        if not _is_key(kind.key, name):
            line = dataclasses.replace(value, line=(value.key_lines or {}).get(str(name), value.line))
            raise line.error(
                key, f'found the key {name}, which is {said_of(Value(name, ""))}. Write "{name}": in quotes'
            )
    return {name: accept(kind.item, one, f"{key}.{name}", make) for name, one in value.data.items()}


def _is_key(kind: Any, name: Any) -> bool:
    members = kind.types if isinstance(kind, OneOf) else (kind,)
    return any(isinstance(one, Anything | Choice) or (isinstance(one, Scalar) and one.fits(name)) for one in members)


def anything(value: Value, key: str) -> Any:
    """Return a value as plain Python values."""
    if value.doubt:
        raise value.error(key, value.doubt)
    if isinstance(value.data, list):
        return [anything(one, f"{key}[{number}]") for number, one in enumerate(value.data, 1)]
    if isinstance(value.data, dict):
        return {name: anything(one, f"{key}.{name}") for name, one in value.data.items()}
    return value.data


def _accept_made(kind: Made, value: Value, key: str, make: Make) -> Any:
    if isinstance(value.data, kind.kind):  # passed from Python
        return value.data
    if not isinstance(value.data, dict):
        raise mismatch(kind, value, key)
    return make(kind, value, key)


def _one_of(kind: OneOf, value: Value, key: str, make: Make) -> Any:
    """Return a value as the first of several types accepts it; raise the error of the only one that it may be meant for."""
    if value.doubt:
        raise value.error(key, value.doubt)
    maker = next((one for one in kind.types if isinstance(one, Made) and is_made(one, value)), None)
    if maker is not None:
        return make(maker, value, key)
    errors = []
    for one in sorted(kind.types, key=lambda each: each == Scalar(str)):  # typed numbers are numbers if they can be
        if isinstance(value.data, dict) and isinstance(one, Made):
            continue
        if isinstance(one, Refused) or not _may_be(one, value.data) or _is_other_kind(one, kind, value.data):
            continue
        try:
            return accept(one, value, key, make)
        except RecipeError as exc:
            errors.append(exc)
    if len(errors) == 1 and not (isinstance(value.data, str) and not _only_choice(kind)):
        raise errors[0]
    deeper = [one for one in errors if one.key != key]
    raise deeper[0] if deeper else mismatch(kind, value, key)


def _is_other_kind(one: Any, kind: OneOf, data: Any) -> bool:
    """Return whether a mapping is a table where this is a mapping of tables, or the other way around."""
    if not isinstance(data, dict) or not {Table, MappingOf} <= {type(each) for each in kind.types}:
        return False
    return isinstance(one, MappingOf if "read" in data else Table)


def _only_choice(kind: OneOf) -> bool:
    return any(isinstance(one, Choice) for one in kind.types)


def is_made(kind: Made, value: Value) -> bool:
    """Return whether a value names a maker of this type, or is such an object from Python."""
    if isinstance(value.data, dict):
        return len(value.data) == 1 and next(iter(value.data)) in (*kind.makers, "replace")
    return not isinstance(value.data, str | list) and isinstance(value.data, kind.kind)


def _may_be(kind: Any, data: Any) -> bool:
    """Return whether a value has the shape of a type."""
    if isinstance(data, list):
        return isinstance(kind, ListOf | Sum | Anything)
    if isinstance(data, dict):
        return isinstance(kind, MappingOf | Anything | Made | Table)
    return isinstance(kind, Scalar | Choice | Size | Anything) or not isinstance(data, bool | int | float | str | None)


def mismatch(kind: Any, value: Value, key: str) -> RecipeError:
    """Return the error for a value of another type."""
    name = (
        re.split(r"[.\[]", key)[-1] if "[" not in key.rpartition(".")[2] else key.rpartition(".")[2].partition("[")[0]
    )
    members = kind.types if isinstance(kind, OneOf) else (kind,)
    found = said_of(value)
    if isinstance(kind, Refused):
        return value.error(
            key, f"{name} is {kind.words}. Pass it from Python: df.pipe(curator_df.operator, {name}=...)"
        )
    hint = ""
    choices = [str(one) for each in members if isinstance(each, Choice) for one in each.values]
    texts = any(isinstance(each, Scalar) and each.kind is str for each in members)
    sizes = any(isinstance(each, Size) for each in members)
    lists = any(isinstance(each, ListOf | Sum) for each in members)
    if isinstance(value.data, str) and choices and (near := did_you_mean(value.data, choices)) and not texts:
        return value.error(key, f"found {found}, which is not one of the values of {name}.{near}")
    if sizes and isinstance(value.data, int) and not isinstance(value.data, bool):
        hint = f" Write {name}: {value.data}GB or {value.data}MB; {value.data}B is {value.data} bytes"
    elif value.text is not None and texts and value.data is not None:
        hint = f' For the text, write {name}: "{value.text}"'
    elif lists and not isinstance(value.data, list | dict):
        hint = f" Write {name}: [{value.text if value.text is not None else value.data}]"
    elif isinstance(value.data, str) and value.text is None and _reads_as_other(members, value.data):
        hint = f" Write {name}: {value.data} without quotes"
    elif isinstance(value.data, dict) and len(value.data) == 1 and next(iter(value.data)) in public_makers():
        hint = f" A file cannot hold a {next(iter(value.data))}; pass it from Python"
    elif not isinstance(value.data, list | dict):
        examples = [_EXAMPLES[each.kind] for each in members if isinstance(each, Scalar) and each.kind in _EXAMPLES]
        hint = f" Write for example {name}: {examples[0]}" if examples else ""
    return value.error(key, f"found {found}, but {name} is {kind.words}.{hint}")


def _reads_as_other(members: Sequence[Any], text: str) -> bool:
    from curator_df.recipes.yaml_values import scalar

    data = scalar(text, "").data
    return any(isinstance(one, Scalar) and one.kind is not str and one.fits(data) for one in members)


def said_of(value: Value) -> str:
    """Return a value in words, for an error.

    Examples
    --------
    >>> said_of(Value("high", "")), said_of(Value(8, "")), said_of(Value([], ""))
    ("the text 'high'", 'the number 8', 'a list')
    """
    data = value.data
    if data is None:
        return "no value"
    if isinstance(data, bool):
        return str(data).lower()
    if isinstance(data, int | float):
        return f"the number {value.text or data}"
    if isinstance(data, str):
        return f"the text {data!r}" if len(data) <= 80 else f"a text of {len(data):,} characters"
    if isinstance(data, list | dict):
        return "a list" if isinstance(data, list) else "a mapping"
    return f"a {type(data).__name__}"
