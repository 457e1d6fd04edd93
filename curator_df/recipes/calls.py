# SPDX-License-Identifier: Apache-2.0
"""Calls of public functions from a recipe: which functions are readers, steps and writers, their arguments, and their errors.

Nothing is listed by hand: a reader is a public function that returns a table and takes none as ``df``; a step takes ``df`` and
returns a table, or a dict of tables; a writer begins with ``write_``.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib
import inspect
import re
from collections.abc import Callable, Mapping
from typing import Any, get_args, get_origin

from curator_df.errors import (
    ColumnError,
    ExpressionError,
    ParameterError,
    RecipeError,
    SchemaError,
    UnsupportedBackendError,
)
from curator_df.recipes.parameter_types import (
    Choice,
    Made,
    OneOf,
    Refused,
    Sum,
    Table,
    accept,
    anything,
    parameters_of,
    public_makers,
    said_of,
)
from curator_df.recipes.yaml_values import Value
from curator_df.suggestions import name_of_ours

LONGEST_WORDS = 80
"""Characters of the description of a type in an error about missing parameters."""
TABLE_PARAMETERS = ("df", "tables")
"""Parameters of steps and writers that the recipe itself fills."""
_OF_CALLS = (ParameterError, ColumnError, SchemaError, ExpressionError, UnsupportedBackendError)
"""Errors of a call that are errors of the recipe's values."""


def _package() -> Any:
    return importlib.import_module(__name__.partition(".")[0])


@functools.cache
def _public() -> dict[str, tuple[Callable[..., Any], Any]]:
    """Return the public functions and what they return."""
    package = _package()
    found: dict[str, tuple[Callable[..., Any], Any]] = {}
    for name in package.__all__:
        value = getattr(package, name)
        if inspect.isfunction(value):
            hints = inspect.get_annotations(inspect.unwrap(value), eval_str=True)
            found[name] = (value, hints.get("return"))
    return found


def _is_table(kind: Any) -> bool:
    return getattr(kind, "__name__", "") == "DataFrame" and kind.__module__.startswith("dask")


@functools.cache
def readers() -> dict[str, Callable[..., Any]]:
    """Return the readers by their names in a recipe, such as ``warc`` for `read_warc`."""
    return {
        name.removeprefix("read_"): function
        for name, (function, kind) in _public().items()
        if _is_table(kind) and "df" not in inspect.signature(function).parameters
    }


@functools.cache
def steps() -> dict[str, Callable[..., Any]]:
    """Return the operators by name."""
    return {
        name: function
        for name, (function, kind) in _public().items()
        if next(iter(inspect.signature(function).parameters), "") == "df" and (_is_table(kind) or _is_parts(kind))
    }


def _is_parts(kind: Any) -> bool:
    return get_origin(kind) is dict and _is_table(get_args(kind)[1])


def makes_parts(name: str) -> bool:
    """Return whether a step returns several tables."""
    return _is_parts(_public()[name][1])


def runs(function: Callable[..., Any]) -> bool:
    """Return whether a step, or a reader, runs what comes before it when it is called."""
    return "on_oom" in inspect.signature(function).parameters


@functools.cache
def writers() -> dict[str, Callable[..., Any]]:
    """Return the writers by their names in a recipe, such as ``parquet`` for `write_parquet`."""
    return {name.removeprefix("write_"): one for name, (one, _) in _public().items() if name.startswith("write_")}


def start_cluster() -> Callable[..., Any]:
    """Return the function whose parameters ``cluster:`` has."""
    return _public()["start_cluster"][0]


def one_call(value: Value, key: str, functions: Mapping[str, Any], what: str) -> tuple[str, Value, str]:
    """Return the name, the parameters and the key of a mapping with one key, or of a name alone."""
    if isinstance(value.data, str) and not value.doubt:
        name, options = value.data, Value({}, value.path, value.line)
    elif isinstance(value.data, dict) and len(value.data) == 1:
        ((name, options),) = value.data.items()
        options = Value({}, value.path, _line(value, name)) if options.data is None else options
        if options.path == value.path and name in (value.key_lines or {}):
            options = dataclasses.replace(options, line=_line(value, name))  # not that of its first parameter
    elif isinstance(value.data, dict) and value.data:
        names = ", ".join(map(str, value.data))
        raise value.error(
            key,
            f"found the keys {names}, but {what} is one name with its parameters below it. Indent the parameters further",
        )
    else:
        raise value.error(key, value.doubt or f"found {said_of(value)}, but {what} is a name with its parameters")
    if name not in functions:
        place = Value(None, value.path, _line(value, name))
        raise place.error(key, _no_such(str(name), what, functions))
    return name, options, f"{key}.{name}"


def _line(value: Value, name: Any) -> int:
    return (value.key_lines or {}).get(str(name), value.line)


def _no_such(name: str, what: str, functions: Mapping[str, Any]) -> str:
    short = name.removeprefix("read_").removeprefix("write_")
    if short in functions:
        return f"found {name!r}. Write {short!r}"
    if functions is steps() and (short in writers() or short in readers()):
        part = "write" if short in writers() and not name.startswith("read_") else "read"
        return (
            f"found {name!r}, which is {'a writer' if part == 'write' else 'a reader'}, not a step. Move it out of steps: to "
            f"{part}: {{{short}: ...}}"
        )
    if name in _public():
        return f"found {name!r}, but this function is not {what}"
    return f"found {name!r}, but there is no such name for {what}.{name_of_ours(name, functions) or _listed(functions)}"


def _listed(functions: Mapping[str, Any]) -> str:
    return f" The names are: {', '.join(sorted(functions))}" if len(functions) < 12 else ""


def _needed(name: str, words: str) -> str:
    return f"{name}: ({words})" if len(words) <= LONGEST_WORDS else f"{name}:"


class Arguments:
    """Check arguments, and make the objects and tables among them; without ``makes`` they are only checked."""

    def __init__(self, *, makes: bool, table_of: Callable[[Value, str], Any]) -> None:
        self._makes, self._table_of = makes, table_of

    def of(
        self, function: Callable[..., Any], options: Value, key: str, *, without: tuple[str, ...] = ()
    ) -> dict[str, Any]:
        """Return the arguments of a function; raise `RecipeError` for the first that is wrong."""
        name, taken = function.__name__, parameters_of(function)
        if not isinstance(options.data, dict):
            first = next((one for one in taken if one not in without), None)
            write = f"Write {name}: {{{first}: ...}}" if first else f"Write {name} alone"
            raise options.error(key, f"found {said_of(options)}, but {name} takes a mapping of parameters. {write}")
        found = {}
        for given, value in options.data.items():
            is_in_file = str(given) in (options.key_lines or {})
            line = Value(None, options.path, _line(options, given)) if is_in_file else value
            if given not in taken or given in without:
                names = [one for one in taken if one not in without]
                hint = name_of_ours(str(given), names) or (
                    f" Its parameters are: {', '.join(names)}" if names else " It has none"
                )
                raise line.error(f"{key}.{given}", f"{name} has no parameter {given!r}.{hint}")
            kind = taken[given][0]
            if isinstance(kind, Refused):
                raise line.error(f"{key}.{given}", f"{given} is {kind.words}. Call {name} from Python")
            found[given] = accept(kind, value, f"{key}.{given}", self.make)
        missing = [
            each
            for each, (_, parameter) in taken.items()
            if parameter.default is inspect.Parameter.empty and each not in options.data and each not in without
        ]
        if missing:
            words = " and ".join(_needed(each, taken[each][0].words) for each in missing)
            raise options.error(key, f"{name} needs {words}")
        return found

    def make(self, kind: Any, value: Value, key: str) -> Any:
        """Make the object, or the table, that a mapping describes."""
        if isinstance(kind, Table):
            return self._table_of(value, key)
        if isinstance(kind, Sum):
            parts = [accept(kind.item, one, f"{key}[{number}]", self.make) for number, one in enumerate(value.data, 1)]
            if not parts:
                raise value.error(key, "found an empty list")
            return call(published, (kind.made, parts), {}, value, key) if self._makes else None
        if not isinstance(value.data, dict):
            return value.data
        ((name, options),) = value.data.items()
        if name == "replace":
            return self._replaced(kind, options, f"{key}.replace")
        maker = public_makers()[name]
        arguments = self.of(maker, options, f"{key}.{name}")
        return call(maker, (), arguments, options, f"{key}.{name}") if self._makes else None

    def _replaced(self, kind: Made, options: Value, key: str) -> Any:
        """Return a value with other settings: ``{replace: {of: fineweb, use_64_bit_hash: false}}``."""
        if not isinstance(options.data, dict) or "of" not in options.data:
            raise options.error(key, "replace needs of: (a name, or what makes a value), and what to replace")
        names = Choice(tuple(names_of(kind)))
        base = (names, kind, Sum(OneOf((names, kind)), kind)) if kind.joins else (names, kind)
        of = accept(OneOf(base), options.data["of"], f"{key}.of", self.make)
        changes = {name: anything(one, f"{key}.{name}") for name, one in options.data.items() if name != "of"}
        if not self._makes:
            return None
        return call(published(kind, of).replace, (), changes, options, key)


def names_of(kind: Made) -> dict[str, Any]:
    """Return the published values of a type by name."""
    published_names = importlib.import_module("curator_df.ops.filters.published")
    by_kind: dict[str, Any] = {
        "Profile": published_names.published_profiles,
        "Scheme": published_names.schemes,
    }
    named: dict[str, Any] = by_kind[kind.kind.__name__]() if kind.kind.__name__ in by_kind else {}
    return named


def published(kind: Made, value: Any) -> Any:
    """Return a value for its name, and the sum of a list."""
    if isinstance(value, list):
        first, *rest = (published(kind, one) for one in value)
        for one in rest:
            first = first + one
        return first
    return names_of(kind).get(value, value) if isinstance(value, str) else value


def call(
    function: Callable[..., Any], given: tuple[Any, ...], arguments: dict[str, Any], place: Value, key: str
) -> Any:
    """Call a function; its errors about arguments name the line of the parameter, or else of the call."""
    try:
        return function(*given, **arguments)
    except RecipeError:
        raise
    except _OF_CALLS as exc:
        raise _place_of(str(exc), place).error(key, str(exc)) from exc


def _place_of(said: str, options: Value) -> Value:
    """Return the place of the parameter that an error is about: one with its value, or its name, in the text."""
    if not isinstance(options.data, dict):
        return options
    given: dict[str, Value] = {str(name): value for name, value in options.data.items()}
    values = {
        name: re.escape(repr(value.data)) for name, value in given.items() if not isinstance(value.data, dict | list)
    }
    patterns = [{name: rf"\b{name}={shown}(?!\w)" for name, shown in values.items()}]
    patterns += [{name: rf"\b{name}=" for name in given}]
    patterns += [{name: shown for name, shown in values.items() if isinstance(given[name].data, str)}]
    for one in patterns:
        places = {found.start(): name for name, each in one.items() if (found := re.search(each, said))}
        if places:
            name = places[min(places)]
            line = (options.key_lines or {}).get(name)
            if line is None or given[name].path != options.path:  # by a setting
                return given[name]
            return Value(None, options.path, line)
    return options
