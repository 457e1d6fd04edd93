# SPDX-License-Identifier: Apache-2.0
"""Recipe of a run, as a receipt stores it: the recorded calls as the text of a YAML file that repeats the run.

What a file cannot hold (a function, a step of Dask's own, a secret) is a `RecipeError` that names the step.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import math
import os
import re
import sys
from collections.abc import Mapping
from typing import Any

import numpy as np

from curator_df.arguments import listed
from curator_df.core.columns import left_out
from curator_df.core.planning.dask_steps import title
from curator_df.core.ranges.parameter_digests import SECRET
from curator_df.core.recorded_calls import Call, call_of, current_call, is_size
from curator_df.errors import RecipeError
from curator_df.receipts.recipe_file import dump, size_text

LONGEST = 1_000_000
"""Characters of a recipe that a receipt stores at most."""
LEFT_OUT = ("on_existing",)
"""Parameters that say what to do this time, not what a run does."""
_SECRET = re.compile(r"(?i)key|token(?!s)|secret|pass|pwd|auth(?!or)|cookie|credential|connection_string|signature|sas")
"""Names of options that may be secrets; ``max_tokens`` is none."""
_SECRET_IN_URL = re.compile(r"://[^/@\s]*:[^/@\s]+@|(?i:[?&](x-amz-signature|signature|sig|token|key)=)")
_OF_STORES = ("storage_options", "options")
"""Parameters with options of stores and servers, some of which may be secrets."""


def recorded_recipe() -> tuple[str, str]:
    """Return the recipe of the run that the current call starts, and an empty text.

    If a file cannot hold it, the first is empty and the second says why.
    """
    try:
        text = dump(recipe_values(current_call()))
    except RecipeError as gap:
        return "", str(gap)
    if len(text) > LONGEST:
        return "", (
            f"the recipe of this run would have {len(text):,} characters, but a receipt stores at most {LONGEST:,}. Write "
            "the recipe file yourself"
        )
    return text, ""


def recipe_values(run: Call | None) -> dict[str, Any]:
    """Return the recipe of a run, which a call starts; raise `RecipeError` if a file cannot hold it."""
    if run is None:
        raise RecipeError(
            "no recipe file can be made of this run, because it was not started by a public function of curator_df, such as "
            "write_parquet. Start it with one"
        )
    if "tables" in run.arguments and run.name.startswith("write_"):
        return _of_parts(run)
    if "df" not in run.arguments:
        return {"read": _one(run)}
    if isinstance(run.arguments["df"], Mapping):
        raise RecipeError(
            f"{run.name} was called with a dict of tables, but a recipe file has one table. Call {run.name} with one table"
        )
    found = _chain(run.arguments["df"].expr)
    if run.name.startswith("write_"):
        return found | {"write": _one(run)}
    return found | {"steps": [*found.get("steps", []), _step(run)]}


def _step(call: Call) -> Any:
    """Return a call as an item of ``steps``: a name alone if it has no parameters."""
    ((name, options),) = _one(call).items()
    return {name: options} if options else name


def _of_parts(run: Call) -> dict[str, Any]:
    """Return the recipe of a run that writes the tables of one `split_rows`."""
    calls = {os.fspath(path): call_of(table.expr) for path, table in run.arguments["tables"].items()}
    parts = {path: None if call is None else call.part for path, call in calls.items()}
    split = next(iter(calls.values()))
    if split is None or not all(
        call is not None and call.part and call.arguments is split.arguments for call in calls.values()
    ):
        raise RecipeError(
            "a recipe file can hold a run with several tables only if they are the unchanged parts from one call of "
            f"split_rows, but {run.name} wrote others. Write each table in a run of its own"
        )
    found = _chain(split.arguments["df"].expr)
    steps = [*found.get("steps", []), _step(split)]
    (name, options), *_ = _one(run).items()
    return found | {"steps": steps, "write": {name: {"tables": parts, **options}}}


def _chain(expression: Any) -> dict[str, Any]:
    """Return the reader and the steps that made a table."""
    steps: list[Any] = []
    while True:
        call = call_of(expression)
        if call is None:
            raise RecipeError(_said_of_unknown(expression))
        if call.part is not None:
            raise RecipeError(
                f"the table is one part ({call.part!r}) of {call.name}, but a recipe file writes all parts. Write them in "
                "one call of write_many"
            )
        if "df" not in call.arguments:
            read = {"read": _one(call)}
            return read | {"steps": steps[::-1]} if steps else read
        steps.append(_step(call))
        expression = call.arguments["df"].expr


def _said_of_unknown(expression: Any) -> str:
    """Return what to say of a step without a call."""
    name = title(expression)
    if left := left_out(expression):
        return (
            f"the step {name}, which leaves out {listed(left)}, is an operation of Dask, which a recipe file cannot hold. If no "
            f"step needs {listed(left)}, read the other columns alone, with columns=[{listed(expression.columns)}] of the "
            "reader; otherwise write all columns"
        )
    kernel = name.removeprefix("map_partitions(").removesuffix(")")
    if kernel in _package().__all__:
        return f"the step {kernel} was not called as curator_df.{kernel}, so its parameters were not recorded"
    return (
        f"the step {name} is an operation of Dask, which a recipe file cannot hold. Use an operator of curator_df, such as "
        "keep_where with an expression: 'n > 3'"
    )


def _package() -> Any:
    return sys.modules[__name__.partition(".")[0]]


def _one(call: Call) -> dict[str, Any]:
    """Return a call as a file has it: its name without the verb of readers and writers, and its parameters."""
    parameters = inspect.signature(call.function).parameters
    options = {
        name: _plain(call.name, name, value, parameters[name].annotation if name in parameters else "")
        for name, value in call.arguments.items()
        if name not in ("df", *LEFT_OUT)
        and not (name == "tables" and call.name.startswith("write_"))
        and not (value is None and name in parameters and parameters[name].default is None)
    }
    return {call.name.removeprefix("read_").removeprefix("write_"): options}


def _refuse_secrets(step: str, name: str, value: Any) -> None:
    if value is not None and (name == "key" or name in SECRET):
        raise RecipeError(
            f"{step}: {name}= may be a secret, so the receipt (the record of the run) does not have it, and no recipe file "
            "can be made of it. Write the recipe file yourself, and pass the value when it runs, as with --set "
            f"steps.{step}.{name}=..."
        )
    if isinstance(value, str) and _SECRET_IN_URL.search(value):
        raise RecipeError(
            f"{step}: {name or 'a path'} has a password or a signature in its URL, which the receipt (the record of the run) "
            "must not store, so no recipe file can be made of it. Put it in an environment variable or a configuration file "
            "of fsspec, and run again with a URL without it"
        )
    if isinstance(value, Mapping) and name in _OF_STORES:
        for key, one in value.items():
            if one is not None and _SECRET.search(str(key)):
                raise RecipeError(
                    f"{step}: {name}= has {key!r}, which may be a secret that the receipt (the record of the run) must not "
                    "store, so no recipe file can be made of it. Put it in an environment variable or a configuration file "
                    "of fsspec, and run again without it"
                )


@functools.singledispatch
def recipe_value(value: Any) -> Any:  # noqa: ARG001 - implementations use it
    """Return how a recipe names a value of a class that has names of its own; None if it has none.

    The module of such a class registers an implementation.
    """
    return None


def _plain(step: str, name: str, value: Any, annotation: Any = "") -> Any:
    """Return a value of a parameter as YAML can hold it."""
    _refuse_secrets(step, name, value)
    if (short := recipe_value(value)) is not None:
        return short
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, int) and not isinstance(value, bool) and is_size(name, annotation):
        return size_text(value)
    if value is None or isinstance(value, bool | int | str) or (isinstance(value, float) and math.isfinite(value)):
        return value
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    return _nested(step, name, value)


def _nested(step: str, name: str, value: Any) -> Any:
    """Return a value with values in it: a list, a mapping, a table or an object."""
    if isinstance(value, set | frozenset):
        value = sorted(value, key=repr)
    if isinstance(value, list | tuple):
        return [_plain(step, name, one) for one in value]
    if isinstance(value, Mapping):
        inner = name if name in _OF_STORES else ""
        return {_plain(step, "", key): _plain(step, inner, one) for key, one in value.items()}
    return _chain(value.expr) if hasattr(value, "expr") else _made(step, name, value)


def _made(step: str, name: str, value: Any) -> Any:
    """Return an object of a public dataclass as its name and the fields that differ from their defaults."""
    kind = type(value)
    if kind.__name__ not in _package().__all__ or not dataclasses.is_dataclass(value):
        what = f"the function {getattr(value, '__name__', '')}".rstrip() if callable(value) else f"a {kind.__name__}"
        raise RecipeError(f"{step}: {name}= is {what}, which a recipe file cannot hold. Repeat this run from Python")
    fields = {
        each.name: _plain(step, each.name, getattr(value, each.name), each.type)
        for each in dataclasses.fields(value)
        if each.default is dataclasses.MISSING or getattr(value, each.name) != each.default
    }
    return {kind.__name__: fields}
