# SPDX-License-Identifier: Apache-2.0
"""JSON Schema of recipe files, generated from the signatures of the public functions, for editors and other programs."""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Mapping
from typing import Any

from curator_df.recipes.calls import TABLE_PARAMETERS, names_of, readers, start_cluster, steps, writers
from curator_df.recipes.parameter_types import (
    SIZE_PATTERN,
    Anything,
    Choice,
    ListOf,
    Made,
    MappingOf,
    OneOf,
    Refused,
    Scalar,
    Size,
    Sum,
    Table,
    parameters_of,
    public_makers,
)
from curator_df.recipes.recipe import ABOUT
from curator_df.recipes.settings import OPTIONAL

DIALECT = "https://json-schema.org/draft/2020-12/schema"
_SCALARS: Mapping[type, str] = {
    bool: "boolean",
    int: "integer",
    float: "number",
    str: "string",
    type(None): "null",
}
_TEXTS = {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]}


def recipe_schema() -> dict[str, Any]:
    """Return the JSON Schema (draft 2020-12) of a recipe file."""
    used: dict[str, Any] = {}
    parts = {
        "about": {
            "anyOf": [
                {"type": "string"},
                {"type": "object", "properties": dict.fromkeys(ABOUT, _TEXTS), "additionalProperties": False},
                {"type": "null"},
            ]
        },
        "read": {"$ref": "#/$defs/read"},
        "steps": {"$ref": "#/$defs/steps"},
        "write": _one_of(writers(), used),
        "cluster": {"anyOf": [_options(start_cluster(), used), {"type": "null"}]},
    }
    table = {
        "type": "object",
        "properties": {"read": parts["read"], "steps": parts["steps"]},
        "required": ["read"],
        "additionalProperties": False,
    }
    alone = [name for name, function in steps().items() if not _required(function)]
    step = {"anyOf": [{"enum": alone}, _one_of(steps(), used, alone)["anyOf"][-1]]}
    chain = {"read": _one_of(readers(), used), "step": step, "steps": _steps()}
    _complete(used)
    return {
        "$schema": DIALECT,
        "title": "Recipe of curator_df",
        "description": "A run as a file: what is read, the steps, what is written, and the budget.",
        "type": "object",
        "properties": parts,
        "required": ["read"],
        "additionalProperties": False,
        "$defs": {"table": table, **chain, **{name: used[name] for name in sorted(used)}},
    }


def _complete(used: dict[str, Any]) -> None:
    """Add the definitions of all makers that are referred to, directly or by another one."""
    while missing := [name for name, found in used.items() if found is None]:
        for name in missing:
            used[name] = _options(public_makers()[name], used)


def _steps() -> dict[str, Any]:
    step = {"$ref": "#/$defs/step"}
    optional = {"type": "object", "properties": {OPTIONAL: step}, "required": [OPTIONAL], "additionalProperties": False}
    return {
        "anyOf": [
            {"type": "array", "items": {"anyOf": [{"$ref": "#/$defs/step"}, optional]}},
            {"type": "null"},
        ]
    }


def _one_of(functions: Mapping[str, Any], used: dict[str, Any], alone: list[str] | None = None) -> dict[str, Any]:
    """Return the schema of a mapping with one of these functions, or of its name alone."""
    names = [name for name, function in functions.items() if not _required(function)] if alone is None else alone
    one = {
        "type": "object",
        "properties": {
            name: _options(function, used, name=name)
            if name not in names
            else _or_null(_options(function, used, name=name))
            for name, function in functions.items()
        },
        "minProperties": 1,
        "maxProperties": 1,
        "additionalProperties": False,
    }
    return {"anyOf": [*([{"enum": names}] if names else []), one]}


def _or_null(schema: dict[str, Any]) -> dict[str, Any]:
    return {"anyOf": [schema, {"type": "null"}]}


def _required(function: Callable[..., Any]) -> list[str]:
    return [
        name
        for name, (_, parameter) in parameters_of(function).items()
        if parameter.default is inspect.Parameter.empty and name not in TABLE_PARAMETERS
    ]


def _options(function: Any, used: dict[str, Any], *, name: str = "") -> dict[str, Any]:
    """Return the schema of the parameters of a function or a class."""
    is_reader = name in readers() and readers()[name] is function
    without = () if is_reader or not name else TABLE_PARAMETERS
    properties: dict[str, Any] = {}
    for parameter, (kind, each) in parameters_of(function).items():
        if parameter in without or isinstance(kind, Refused):
            continue
        properties[parameter] = _schema(kind, used)
        default = each.default
        if isinstance(default, str | bool | int | float) and not isinstance(kind, Size):
            properties[parameter] = {**properties[parameter], "default": default}
    required = [one for one in parameters_of(function) if one in properties and one in _required_all(function)]
    if name == "many" and function is writers().get("many"):
        properties = {"tables": {"type": "object", "additionalProperties": {"type": "string"}}, **properties}
        required = ["tables", *required]
    schema: dict[str, Any] = {"type": "object", "properties": properties, "additionalProperties": False}
    summary = _summary(function)
    return {
        **({"description": summary} if summary else {}),
        **schema,
        **({"required": required} if required else {}),
    }


def _required_all(function: Any) -> set[str]:
    return {name for name, (_, one) in parameters_of(function).items() if one.default is inspect.Parameter.empty}


def _summary(function: Any) -> str:
    first = (inspect.getdoc(function) or "").partition("\n\n")[0]
    return re.sub(r"\s+", " ", first).replace("`", "")


def _schema(kind: Any, used: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of a type."""
    if isinstance(kind, Made):
        return _made(kind, used)
    if isinstance(kind, OneOf):
        return {"anyOf": [_schema(one, used) for one in kind.types if not isinstance(one, Refused)]}
    if isinstance(kind, ListOf | Sum):
        least = {"minItems": 1} if isinstance(kind, Sum) else {}
        return {"type": "array", "items": _schema(kind.item, used), **least}
    if isinstance(kind, MappingOf):
        return {"type": "object", "additionalProperties": _schema(kind.item, used)}
    return _of_scalar(kind)


def _of_scalar(kind: Any) -> dict[str, Any]:
    if isinstance(kind, Scalar):
        return {"type": _SCALARS[kind.kind]}
    if isinstance(kind, Choice):
        return {"enum": list(kind.values)}
    if isinstance(kind, Size):
        return {"type": "string", "pattern": SIZE_PATTERN}
    if isinstance(kind, Table):
        return {"$ref": "#/$defs/table"}
    return {} if isinstance(kind, Anything) else {"not": {}}


def _made(kind: Made, used: dict[str, Any]) -> dict[str, Any]:
    for name in kind.makers:
        used.setdefault(name, None)
    properties: dict[str, Any] = {name: {"$ref": f"#/$defs/{name}"} for name in kind.makers}
    if names := _names(kind):
        of: dict[str, Any] = {"anyOf": [{"enum": list(names)}, {"type": ["object", "array"]}]}
        properties["replace"] = {"type": "object", "properties": {"of": of}, "required": ["of"]}
    return {
        "type": "object",
        "properties": properties,
        "minProperties": 1,
        "maxProperties": 1,
        "additionalProperties": False,
    }


@functools.cache
def _names(kind: Made) -> tuple[str, ...]:
    return tuple(names_of(kind))
