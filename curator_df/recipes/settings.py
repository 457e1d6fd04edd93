# SPDX-License-Identifier: Apache-2.0
"""Settings of a run that replace values of a recipe: ``memory=8GB``, ``steps.keep_language.min_score=0.8``."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from curator_df.errors import RecipeError
from curator_df.recipes.calls import readers, start_cluster, writers
from curator_df.recipes.yaml_values import Value, plain_value, read_yaml
from curator_df.suggestions import did_you_mean

PARTS = ("about", "read", "steps", "write", "cluster")
"""Keys of a recipe."""
OPTIONAL = "optional"
"""Key of a step that runs only if a setting names it."""
SHORT = {"input": "read.paths", "output": "write.path", "rejects": "write.rejects"}
"""Settings with a name of their own."""
_PATH = re.compile(r"\w+(\.[\w/-]+)*")


def typed_settings(texts: list[str]) -> dict[str, Value]:
    """Return the settings of ``--set NAME=VALUE``, each a value of YAML; what has no certain meaning is text.

    Examples
    --------
    >>> {name: value.data for name, value in typed_settings(["memory=8GB", "cpus=2", "steps.a.b=no"]).items()}
    {'memory': '8GB', 'cpus': 2, 'steps.a.b': 'no'}
    """
    found = {}
    for text in texts:
        name, sign, given = text.partition("=")
        place = f"--set {text}"
        if not sign or not _PATH.fullmatch(name):
            raise RecipeError.at(place, 0, "", "a setting is NAME=VALUE, such as --set memory=8GB")
        value = read_yaml(given, place) if given.strip() else Value("", place)
        value.line, value.doubt, value.is_typed = 0, "", True
        found[name] = value
    return found


def python_settings(settings: Mapping[str, Any]) -> dict[str, Value]:
    """Return settings that were passed from Python; a dict names parts: ``steps={"keep_language": {"min_score": 0.8}}``."""
    return {name: plain_value(value, f"load_recipe({name}=)") for name, value in _flat("", settings)}


def _flat(prefix: str, settings: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, value in settings.items():
        path = f"{prefix}{name}"
        depth = 1 + (path.partition(".")[0] in ("read", "steps", "write")) + (re.search(r"\.\d+$", path) is not None)
        if isinstance(value, Mapping) and path.partition(".")[0] in PARTS and path.count(".") < depth:
            yield from _flat(f"{path}.", value)
        else:
            yield path, value


def with_settings(recipe: Value, settings: Mapping[str, Value]) -> Value:
    """Return a recipe with other values; raise `RecipeError` for a name that it does not have."""
    for name, value in settings.items():
        _set(recipe, name, value)
    listed = recipe.data.get("steps")
    if listed is not None and isinstance(
        listed.data, list
    ):  # all at the end: numbers are those of the steps in the file
        listed.data = [item for item in listed.data if not isinstance(item.data, _Removed)]
    return recipe


@dataclass(frozen=True)
class _Removed:
    """Step that a setting leaves out."""

    name: str
    """Name of the step."""
    by: str
    """Setting that leaves it out."""


def _set(recipe: Value, name: str, value: Value) -> None:
    path = SHORT.get(name, name)
    if "." not in path and path in inspect.signature(start_cluster()).parameters:
        path = f"cluster.{path}"
    part, *rest = path.split(".")
    if part in ("read", "write") and not rest and isinstance(value.data, str):
        _set_kind(recipe, part, value)
        return
    if part not in PARTS or part == "about" or not rest:
        names = [*SHORT, *inspect.signature(start_cluster()).parameters]
        hint = (
            did_you_mean(name, names)
            or f" Use one of {', '.join(SHORT)}, a setting of cluster:, or a name that begins with read., steps. or write."
        )
        raise value.error("", f"there is no setting {name!r}.{hint}")
    if part == "cluster":
        _items(recipe.data, part, value)[rest[0]] = value
        if len(rest) > 1:
            raise value.error("", f"there is no setting {name!r}. Write {part}.{rest[0]}")
    elif part == "steps":
        _set_step(recipe, rest, value)
    else:
        _set_call(recipe, part, rest, value)


def _items(data: Any, name: Any, value: Value) -> dict[Any, Any]:
    """Return the mapping under a key, which is made if there is none."""
    inner = data.get(name)
    if inner is None or inner.data is None:
        inner = data[name] = Value({}, value.path)
    if isinstance(inner.data, str) and name in ("read", "write"):
        inner.data = {inner.data: Value({}, value.path)}
    if not isinstance(inner.data, dict):
        raise value.error("", f"{name} of the recipe is not a mapping, so nothing below it can be set")
    return inner.data


def _set_kind(recipe: Value, part: str, value: Value) -> None:
    """Replace the reader or the writer by another one with the same parameters: ``read=parquet``."""
    functions = readers() if part == "read" else writers()
    if value.data not in functions:
        hint = did_you_mean(value.data, functions) or f" The names are: {', '.join(functions)}"
        raise value.error("", f"there is no such name for {part}:.{hint}")
    calls = _items(recipe.data, part, value)
    options = next(iter(calls.values()), Value({}, value.path))
    calls.clear()
    calls[value.data] = options


def _set_call(recipe: Value, part: str, rest: list[str], value: Value) -> None:
    """Set a parameter of the reader or the writer: ``read.paths``, or ``read.warc.paths``."""
    functions = readers() if part == "read" else writers()
    calls = _items(recipe.data, part, value)
    if len(calls) != 1:
        raise value.error("", f"the recipe has no {part}:, so {part}.{'.'.join(rest)} cannot be set")
    (name,) = calls
    if rest[0] in functions and rest[0] != name:
        raise value.error("", f"the recipe has {part}: {name}, not {rest[0]}")
    _put(calls, name, rest[1:] if rest[0] == name else rest, value)


def _set_step(recipe: Value, rest: list[str], value: Value) -> None:
    """Set a parameter of a step, ``steps.keep_profile.words``, or of the second of two: ``steps.keep_profile.2.words``."""
    name, *rest = rest
    listed = recipe.data.get("steps")
    items = listed.data if listed is not None and isinstance(listed.data, list) else []
    places = [number for number, item in enumerate(items) if _name(optional_step(item) or item) == name]
    if not places:
        names = [_name(optional_step(item) or item) for item in items]
        hint = did_you_mean(name, names) or f" Its steps are: {', '.join(names)}"
        raise value.error("", f"the recipe has no step {name!r}.{hint}")
    numbers = {place: number for number, place in enumerate(places, 1)}
    kept = [place for place in places if not isinstance(items[place].data, _Removed)]
    if rest and rest[0].isdigit():
        which = int(rest.pop(0))
        if not 1 <= which <= len(places):
            raise value.error(
                "",
                f"the recipe has {len(places)} step{'s' * (len(places) > 1)} {name}, and no number {which}. Use a number "
                f"from 1 to {len(places)}",
            )
        kept = places = [places[which - 1]]
    if len(kept) > 1:
        which_of = ", ".join(f"steps.{name}.{numbers[place]}" for place in kept)
        raise value.error("", f"the recipe has {len(kept)} steps {name}. Name one of them: {which_of}")
    place = kept[0] if kept else places[0]
    if isinstance(items[place].data, _Removed):
        raise value.error("", f"{items[place].data.by} leaves this step of {name} out. Use one of the two settings")
    if not rest and value.data is None:
        items[place].data = _Removed(name, value.path)  # ``steps.redact_pii=null`` leaves the step out
        return
    places = [place]
    item = optional_step(items[places[0]]) or items[places[0]]
    items[places[0]] = item  # a setting turns an optional step into one of the others
    if isinstance(item.data, str):
        item.data = {name: Value({}, item.path, item.line)}
    _put(item.data, name, rest, value)


def optional_step(item: Value) -> Value | None:
    """Return the step of ``optional: {step: ...}``, which runs only if a setting names it; None for any other step."""
    if isinstance(item.data, dict) and [*item.data] == [OPTIONAL]:
        inner: Value = item.data[OPTIONAL]
        return inner
    return None


def _name(item: Value) -> str:
    if isinstance(item.data, _Removed):
        return item.data.name
    return str(next(iter(item.data), "")) if isinstance(item.data, dict) else str(item.data)


def _put(calls: dict[Any, Value], name: Any, path: list[str], value: Value) -> None:
    """Set a value below the parameters of a call."""
    if not path:
        calls[name] = value
        return
    data = _items(calls, name, value)
    for part in path[:-1]:
        data = _items(data, part, value)
    data[path[-1]] = value
