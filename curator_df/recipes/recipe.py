# SPDX-License-Identifier: Apache-2.0
"""Load a recipe, and run it: the same calls as a chain in Python."""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
import inspect
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from curator_df.core.planning.plan import Plan
from curator_df.core.ranges.journal import OnExisting
from curator_df.core.runner.session import has_session
from curator_df.errors import ParameterError, RecipeError
from curator_df.memory.small_input import threads_asked
from curator_df.recipes.calls import (
    TABLE_PARAMETERS,
    Arguments,
    call,
    makes_parts,
    one_call,
    readers,
    runs,
    start_cluster,
    steps,
    writers,
)
from curator_df.recipes.parameter_types import said_of
from curator_df.recipes.settings import PARTS, optional_step, python_settings, with_settings
from curator_df.recipes.shipped import is_name, no_such_recipe, shipped_text
from curator_df.recipes.yaml_values import Value, read_yaml
from curator_df.suggestions import did_you_mean, suggests_names

ABOUT = ("reproduces", "source", "differs", "missing", "needs")
"""Keys of ``about:``."""


@suggests_names
class Recipe:
    """Run that a recipe describes, as `load_recipe` returns it.

    Attributes
    ----------
    name : str
        Name of the shipped recipe, or path of the file.
    about : dict
        What the recipe says of itself: ``reproduces``, ``source``, ``differs``, ``missing``, ``needs``.

    See Also
    --------
    load_recipe, explain
    """

    def __init__(self, name: str, value: Value) -> None:
        self.name, self._value = name, value
        self._prepared: Any = None
        self.about = _about(value)
        _check(value)

    def __repr__(self) -> str:
        chain = [f"read {name}" for name, _, _ in self._part("read", readers())]
        chain += [name for name, _, _ in self._steps()]
        chain += [f"write {name}" for name, _, _ in self._part("write", writers())]
        return f"Recipe {self.name}: {', '.join(chain)}"

    def table(self) -> Any:
        """Return the lazy table of reader and steps; for a recipe that ends in `split_rows`, its dict of tables.

        Steps that run when they are called, such as `checkpoint`, do so, and need a running cluster.
        """
        return _table(self._value, "")

    def run(self, *, on_existing: OnExisting | None = None) -> Any:
        """Run the recipe, on the running cluster or else on one with the settings of ``cluster:``.

        Parameters
        ----------
        on_existing : {"raise", "resume", "overwrite"}, optional
            What to do if the output folder is not empty, as for `write_parquet`. Default: as the recipe says.

        Returns
        -------
        Receipt
            What the writer returns: a receipt; for `write_many` a dict of receipts, for `write_by` its tables. Without
            ``write:``, the receipt of the last step.

        Raises
        ------
        ParameterError
            If ``on_existing`` is given and the recipe has no ``write:``: it would have no effect on the steps.
        """
        self._require_writer(on_existing)
        with self.cluster():
            result, self._prepared = self.table() if self._prepared is None else self._prepared, None
            for name, options, key in self._part("write", writers()):
                function = writers()[name]
                arguments = self._writer_arguments(name, options, key)
                arguments |= {} if on_existing is None else {"on_existing": on_existing}
                return call(function, (), arguments | _tables(function, result, options), options, key)
            return importlib.import_module("curator_df").read_receipt(result)

    def explain(self, *, on_existing: OnExisting | None = None) -> Plan:
        """Return the plan: passes, steps and memory. Nothing runs.

        If a step runs the chain before it, such as `checkpoint`, the plan is that of the chain up to this step. The same is
        true of the reader `blend`.

        Parameters
        ----------
        on_existing : {"raise", "resume", "overwrite"}, optional
            As for `run`, whose refusals are those of this plan.
        """
        self._require_writer(on_existing)
        asked = threads_asked.set(self._settings().get("processes") is False)
        try:
            return self._explained(on_existing)
        finally:
            threads_asked.reset(asked)

    def _explained(self, on_existing: OnExisting | None) -> Plan:
        explain = importlib.import_module("curator_df").explain
        plan: Plan
        budget = {name: value for name, value in self._settings().items() if name in ("memory", "cpus")}
        ((name, options, key),) = self._part("read", readers())
        if runs(readers()[name]):
            arguments = _arguments(makes=True).of(readers()[name], options, key)
            plan = call(explain, (arguments.pop("tables"), readers()[name]), budget | arguments, options, key)
            return _planned_to(plan, name)
        number, running = next(
            ((number, step) for number, step in enumerate(self._steps()) if runs(steps()[step[0]])), (None, None)
        )
        if running is not None:
            name, options, key = running
            table = _table(self._value, "", until=number)
            arguments = _arguments(makes=True).of(steps()[name], options, key, without=TABLE_PARAMETERS)
            plan = call(explain, (table, steps()[name]), budget | arguments, options, key)
            return _planned_to(plan, name)
        ((name, options, key),) = self._part("write", writers())
        function, table = writers()[name], self.table()
        arguments = self._writer_arguments(name, options, key)
        arguments |= {} if on_existing is None else {"on_existing": on_existing}
        tables = _tables(function, table, options)
        plan = call(explain, (next(iter(tables.values())), function), budget | arguments, options, key)
        return plan

    def _require_writer(self, on_existing: OnExisting | None) -> None:
        """Raise an error if ``on_existing`` is given and no writer could follow it."""
        if on_existing is not None and "write" not in self._value.data:
            name = self._steps()[-1][0]
            way = f"Set it for the last step: load_recipe(..., steps={{{name!r}: {{'on_existing': {on_existing!r}}}}})"
            if "on_existing" not in inspect.signature(steps()[name]).parameters:
                way = f"Leave it out: the last step is {name}, which has no such option"
            raise ParameterError(
                f"on_existing={on_existing!r} is an option of the writer, but the recipe {self.name} has no section write. "
                f"{way}"
            )

    @contextlib.contextmanager
    def cluster(self) -> Iterator[Any]:
        """Return a context with the cluster of the recipe; with one that is running already, None.

        The table is made before the cluster starts, so that a missing input is noticed at once.
        """
        if has_session():
            yield None
            return
        called = [readers()[name] for name, _, _ in self._part("read", readers())]
        called += [steps()[name] for name, _, _ in self._steps()]
        if not any(map(runs, called)):
            self._prepared = self.table()
        value = self._value.data.get("cluster", Value(None, self._value.path))
        with call(start_cluster(), (), self._settings(), value, "cluster") as cluster:
            yield cluster

    def _part(self, part: str, functions: Mapping[str, Any]) -> Iterator[tuple[str, Value, str]]:
        value = self._value.data.get(part)
        if value is not None:
            yield one_call(value, part, functions, "a reader" if part == "read" else "a writer")

    def _steps(self) -> list[tuple[str, Value, str]]:
        return list(_steps_of(self._value, ""))

    def _writer_arguments(self, name: str, options: Value, key: str) -> dict[str, Any]:
        without = ("df",) if name == "many" else TABLE_PARAMETERS
        if name != "many":
            return _arguments(makes=True).of(writers()[name], options, key, without=without)
        rest = dataclasses.replace(options, data={k: v for k, v in options.data.items() if k != "tables"})
        return _arguments(makes=True).of(writers()[name], rest, key, without=TABLE_PARAMETERS)

    def _settings(self) -> dict[str, Any]:
        value = self._value.data.get("cluster")
        if value is None or value.data is None:
            return {}
        return _arguments(makes=True).of(start_cluster(), value, "cluster")


def load_recipe(recipe: str | os.PathLike[str], **settings: Any) -> Recipe:
    """Load a recipe: a YAML file, or a shipped recipe by its name.

    Parameters
    ----------
    recipe : str or path
        Path of a file, or a name that ``curator-df recipe list`` shows, such as ``"fineweb"``.
    **settings
        Values that replace those of the recipe: ``input``, ``output`` and ``rejects``; the settings of ``cluster:`` such
        as ``memory``; and parts of it as dicts: ``steps={"keep_language": {"min_score": 0.8}}``. None instead of the
        parameters of a step removes the step.

    Returns
    -------
    Recipe
        A recipe with `Recipe.table`, `Recipe.run` and `Recipe.explain`.

    Raises
    ------
    RecipeError
        If the file is not a recipe; the message names file, line and key, and says what to write.

    See Also
    --------
    read_receipt, explain

    Notes
    -----
    Computes: no. See ``docs/recipes.md``.

    Examples
    --------
    >>> recipe = load_recipe("fineweb", input="crawl/", output="clean/", memory="8GB")
    >>> recipe.about["source"][:9]
    'datatrove'
    >>> recipe.run()  # doctest: +SKIP
    """
    return read_recipe(recipe, python_settings(settings))


def read_recipe(recipe: str | os.PathLike[str], settings: Mapping[str, Value]) -> Recipe:
    """Load a recipe with settings that are values of YAML; see `load_recipe`."""
    name = os.fspath(recipe) if isinstance(recipe, (str, os.PathLike)) else None
    if not isinstance(name, str) or "\0" in name:
        raise RecipeError(
            f"{recipe!r} is neither the path of a recipe file nor the name of a shipped recipe. Pass a path such as "
            "'recipe.yaml'; curator-df recipe list shows the names"
        )
    text = shipped_text(name) if is_name(name) and not Path(name).is_file() else _file_text(name)
    value = read_yaml(text, name)
    if not isinstance(value.data, dict):
        raise value.error("", f"found {said_of(value)}, but a recipe is a mapping with read:, steps: and write:")
    return Recipe(name, with_settings(value, settings))


def _file_text(path: str) -> str:
    try:
        return Path(path).read_bytes().decode("utf-8-sig")
    except FileNotFoundError as exc:
        raise no_such_recipe(path) from exc
    except UnicodeDecodeError as exc:
        line = exc.object[: exc.start].count(b"\n") + 1
        raise RecipeError.at(
            path, line, "", f"byte {exc.object[exc.start]:#04x} is not UTF-8. Save the file as UTF-8"
        ) from exc
    except OSError as exc:
        raise RecipeError(
            f"the recipe {path!r} cannot be read: {exc.strerror}. Check the path and its permissions"
        ) from exc


def _planned_to(plan: Plan, name: str) -> Plan:
    """Return the plan up to a step, with a remark about the steps after it."""
    return dataclasses.replace(plan, remarks=(*plan.remarks, (f"after {name}", "planned when this step has run")))


def _about(value: Value) -> dict[str, Any]:
    about = value.data.get("about")
    if about is None or about.data is None:
        return {}
    if isinstance(about.data, str):
        return {"reproduces": about.data}
    if not isinstance(about.data, dict):
        raise about.error("about", f"found {said_of(about)}, but about: is text, or a mapping of {', '.join(ABOUT)}")
    for name, one in about.data.items():
        if name not in ABOUT:
            raise one.error(f"about.{name}", f"about: has no {name!r}.{did_you_mean(str(name), ABOUT)}")
        texts = one.data if isinstance(one.data, list) else [one]
        for text in texts:
            if not isinstance(text.data, str) or text.doubt:
                raise text.error(
                    f"about.{name}", text.doubt or f"found {said_of(text)}, but {name} is text, or a list of texts"
                )
    return {
        name: [text.data for text in one.data] if isinstance(one.data, list) else one.data
        for name, one in about.data.items()
    }


def _arguments(*, makes: bool) -> Arguments:
    return Arguments(makes=makes, table_of=_table if makes else _check_table)


def _require_parts(value: Value, key: str, parts: tuple[str, ...]) -> None:
    """Raise `RecipeError` if a mapping has another key, or does not say what is read."""
    for name, one in value.data.items():
        if name not in parts:
            line = (value.key_lines or {}).get(str(name), one.line)
            verb, _, rest = str(name).partition("_")
            hint = f" Write {verb}: {{{rest}: ...}}" if verb in parts and rest else did_you_mean(str(name), parts)
            hint = hint or (f" Write it as an item of steps: '- {name}: ...'" if name in steps() else "")
            hint = hint or f" Its keys are: {', '.join(parts)}"
            raise RecipeError.at(value.path, line, f"{key}{name}", f"a recipe has no key {name!r}.{hint}")
    if "read" not in value.data:
        kinds = ", ".join(readers())
        raise value.error(
            key.rstrip("."), f"there is no read:. Write read: {{parquet: {{paths: in/}}}}, with one of {kinds}"
        )


def _steps_of(value: Value, prefix: str, *, with_optional: bool = False) -> Iterator[tuple[str, Value, str]]:
    """Yield the steps; those that are optional only on request."""
    listed = value.data.get("steps")
    if listed is None or listed.data is None:
        return
    if not isinstance(listed.data, list):
        write = "Begin each step with '- '"
        raise listed.error(f"{prefix}steps", f"found {said_of(listed)}, but steps: is a list. {write}")
    for item in listed.data:
        inner = optional_step(item)
        if inner is None or with_optional:
            yield one_call(item if inner is None else inner, f"{prefix}steps", steps(), "a step")


def _check_steps(value: Value, prefix: str) -> tuple[str, Value, str] | None:
    """Check the reader and the steps, and return the last step that runs."""
    arguments = _arguments(makes=False)
    name, options, key = one_call(value.data["read"], f"{prefix}read", readers(), "a reader")
    arguments.of(readers()[name], options, key)
    last: tuple[str, Value, str] | None = None
    for step in _steps_of(value, prefix, with_optional=True):
        if last is not None and makes_parts(last[0]):
            raise step[1].error(
                step[2],
                f"{step[0]} comes after {last[0]}, which makes several tables and must be the last step. Move it up",
            )
        arguments.of(steps()[step[0]], step[1], step[2], without=TABLE_PARAMETERS)
        last = step
    return next(reversed([*_steps_of(value, prefix)]), None)


def _check(value: Value) -> None:
    """Raise `RecipeError` for the first thing in a recipe that is wrong; nothing is called."""
    _require_parts(value, "", PARTS)
    last = _check_steps(value, "")
    cluster = value.data.get("cluster")
    if cluster is not None and cluster.data is not None:
        _arguments(makes=False).of(start_cluster(), cluster, "cluster")
    if "write" not in value.data:
        if last is None or not runs(steps()[last[0]]):
            kinds = ", ".join(writers())
            raise value.error("", f"there is no write:. Write write: {{parquet: {{path: out/}}}}, with one of {kinds}")
        return
    name, options, key = one_call(value.data["write"], "write", writers(), "a writer")
    parts = last is not None and makes_parts(last[0])
    if parts != (name == "many"):
        said = (
            f"{last[0]} makes several tables, which write: {{many: ...}} writes"
            if parts and last
            else ("many writes the tables of split_rows, which must be the last step. Write parquet or jsonl")
        )
        raise options.error(key, said)
    if name == "many":
        _check_many(options, key, last)
        options = dataclasses.replace(options, data={k: v for k, v in options.data.items() if k != "tables"})
    _arguments(makes=False).of(writers()[name], options, key, without=TABLE_PARAMETERS)


def _check_many(options: Value, key: str, last: Any) -> None:
    """Raise `RecipeError` unless ``tables`` names the folder of each part of the last step."""
    tables = options.data.get("tables") if isinstance(options.data, dict) else None
    known = list(last[1].data["parts"].data)
    if tables is None or not isinstance(tables.data, dict):
        place = options if tables is None else tables
        raise place.error(
            f"{key}.tables", f"many needs tables: {{folder: part}}, with the parts {', '.join(map(str, known))}"
        )
    for folder, part in tables.data.items():
        if part.data not in known:
            hint = did_you_mean(str(part.data), map(str, known)) or f" The parts are: {', '.join(map(str, known))}"
            raise part.error(
                f"{key}.tables.{folder}", f"found {said_of(part)}, which is not a part of {last[0]}.{hint}"
            )


def _check_table(value: Value, key: str) -> None:
    if not isinstance(value.data, dict):
        raise value.error(key, f"found {said_of(value)}, but a table is a mapping with read: and steps:")
    _require_parts(value, f"{key}.", ("read", "steps"))
    last = _check_steps(value, f"{key}.")
    if last is not None and makes_parts(last[0]):
        raise last[1].error(last[2], f"{last[0]} makes several tables, and {key} is one")


def _table(value: Value, key: str, *, until: int | None = None) -> Any:
    """Return the table of a reader and its steps, or of the first of these."""
    prefix = f"{key}." if key else ""
    arguments = _arguments(makes=True)
    name, options, place = one_call(value.data["read"], f"{prefix}read", readers(), "a reader")
    table = call(readers()[name], (), arguments.of(readers()[name], options, place), options, place)
    for name, options, place in list(_steps_of(value, prefix))[:until]:
        function = steps()[name]
        table = call(
            function, (table,), arguments.of(function, options, place, without=TABLE_PARAMETERS), options, place
        )
    return table


def _tables(function: Any, table: Any, options: Value) -> dict[str, Any]:
    """Return the argument of a writer that has the table, or the tables."""
    if "df" in inspect.signature(function).parameters:
        return {"df": table}
    return {"tables": {folder: table[part.data] for folder, part in options.data["tables"].data.items()}}
