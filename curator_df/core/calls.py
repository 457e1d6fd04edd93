# SPDX-License-Identifier: Apache-2.0
"""Calls of public functions as users write them: signatures that show every choice, and errors that name the right argument."""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

from curator_df.core.recorded_calls import calling, keep
from curator_df.errors import ExpressionError
from curator_df.suggestions import OTHERS, name_of_ours

TABLE = "df"
"""Name of the first parameter of functions that take a table."""
NOT_NEEDED = {
    "char_ngrams": "N-grams are set by scheme=; see help(curator_df.Scheme)",
    "chunksize": "Tables are read and written in blocks that fit memory=; blocksize= of a reader sets their size",
    "engine": "There is one engine, pyarrow. Leave it out",
    "index": "Readers create an index, and it is never written. Leave it out, or add an ID column with add_ids()",
    "lines": "JSON Lines files, with one row on each line, have functions of their own. Leave it out",
    "nrows": "To look at some rows, use preview(df, rows=1000) or df.head()",
    "orient": "JSON files have one row on each line. Leave it out",
    "row_group_size": "curator_df chooses the size of row groups. Leave it out",
    "write_index": "The index is never written. Leave it out, or add an ID column with add_ids()",
}
"""Advice in place of a parameter that functions of pandas and Dask have, and ours do not need."""
Shown = TypeVar("Shown", bound=Callable[..., Any])
_NAME = re.compile(r"""(?P<quoted>'[^']*'|"[^"]*")|(?<![\w.])[A-Za-z_]\w*(?!\w*\.)""")
"""Name in an annotation, or a string in it."""


def public(function: Callable[..., Any], module: str) -> Callable[..., Any]:
    """Return a function as users get it: with checked names of arguments, and its closed choices in its signature.

    Parameters
    ----------
    function : callable
        Function of the package.
    module : str
        Module from which users import it.
    """
    signature = inspect.signature(function)
    kinds = [each.kind for each in signature.parameters.values()]
    names = signature.parameters.keys()
    most = sum(kind in (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD) for kind in kinds)
    takes_any = inspect.Parameter.VAR_KEYWORD in kinds
    takes_table = next(iter(names), "") == TABLE

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if not takes_any and not names >= kwargs.keys():
            raise TypeError(unknown_keyword(function, next(name for name in kwargs if name not in names)))
        if len(args) > most:
            raise TypeError(too_many(function, args, most))
        if takes_table and not args and TABLE not in kwargs:
            raise TypeError(no_table(function))
        if takes_table and args and (isinstance(args[0], str) or callable(args[0])) and not _takes_text(function):
            raise ExpressionError(no_table(function, args[0]))
        with calling(function, signature, args, kwargs) as recorded:
            result = function(*args, **kwargs)
        keep(recorded, result)
        return result

    call.__module__ = module
    call.__signature__ = with_choices(function, signature)  # type: ignore[attr-defined]
    return call


def _takes_text(function: Callable[..., Any]) -> bool:
    """Return whether a function takes a path in place of a table, as `explain` does for functions that take a folder."""
    return str in get_args(get_type_hints(function)[TABLE])


def with_choices(function: Callable[..., Any], signature: inspect.Signature) -> inspect.Signature:
    """Return a signature whose annotations have the values of closed choices, where the source has a name for them.

    Examples
    --------
    >>> from curator_df.io.output.write import write_parquet
    >>> with_choices(write_parquet, inspect.signature(write_parquet)).parameters["on_existing"].annotation
    "Literal['raise', 'resume', 'overwrite']"
    """
    known = inspect.unwrap(function).__globals__

    def shown(found: re.Match[str]) -> str:
        value = None if found["quoted"] else known.get(found[0])
        return _of_choices(value) if value is not None and list(choices(value)) else found[0]

    def changed(annotation: Any) -> Any:
        return _NAME.sub(shown, annotation) if isinstance(annotation, str) else annotation

    parameters = [each.replace(annotation=changed(each.annotation)) for each in signature.parameters.values()]
    return signature.replace(parameters=parameters)


def show_choices(value: Shown) -> Shown:
    """Decorate a function, or a class with its public methods, so that its signature shows the values of closed choices.

    Examples
    --------
    >>> from curator_df.ops.filters.rules import Rule
    >>> inspect.signature(show_choices(Rule)).parameters["comparison"].annotation
    "Literal['>=', '<=', '>', '<']"
    """
    members: list[Any] = [value]
    if inspect.isclass(value):
        members = [getattr(each, "__func__", each) for name, each in vars(value).items() if not name.startswith("_")]
        members.append(value.__init__)
    for each in filter(inspect.isfunction, members):
        each.__signature__ = with_choices(each, inspect.signature(each))  # type: ignore[attr-defined]
    return value


def choices(annotation: Any) -> Iterator[Any]:
    """Yield the values of all Literals in an annotation.

    Examples
    --------
    >>> list(choices(int | Literal["auto"] | None))
    ['auto']
    """
    if get_origin(annotation) is Literal:
        yield from get_args(annotation)
    else:
        for each in get_args(annotation):
            yield from choices(each)


def _of_choices(annotation: Any) -> str:
    """Return an annotation with Literals in words."""
    if get_origin(annotation) is Literal:
        return f"Literal[{', '.join(map(repr, get_args(annotation)))}]"
    return " | ".join(
        _of_choices(each) if list(choices(each)) else getattr(each, "__name__", str(each))
        for each in get_args(annotation)
    )


def unknown_keyword(function: Callable[..., Any], name: str) -> str:
    """Return what to say of a keyword that a function does not take: the most similar one, its value, or where it belongs.

    Examples
    --------
    >>> from curator_df import add_embedding, keep_language, write_parquet
    >>> unknown_keyword(keep_language, "language")
    "keep_language has no parameter 'language'. Did you mean 'languages'?"
    >>> unknown_keyword(write_parquet, "overwrite")
    "write_parquet has no parameter 'overwrite'. Did you mean on_existing='overwrite'?"
    >>> unknown_keyword(add_embedding, "max_tokens")
    "add_embedding has no parameter 'max_tokens'. It is a setting of a Model, which model= takes; see help(curator_df.Model)"
    """
    hints = get_type_hints(function)
    parameters = inspect.signature(function).parameters
    chosen = [parameter for parameter in parameters if name in choices(hints.get(parameter))]
    sole = OTHERS.get(name.lower(), ())
    ours = [name, *(sole if len(sole) == 1 else ())]
    settings = [
        (parameter, str(kind.__name__), each.name)
        for parameter in parameters
        for kind in get_args(hints.get(parameter))
        if isinstance(kind, type) and is_dataclass(kind) and parameters.keys().isdisjoint(ours)
        for each in fields(kind)
        if each.name in ours
    ]
    if chosen:
        hint = f" Did you mean {chosen[0]}={name!r}?"
    elif settings:
        parameter, kind, setting = settings[-1]  # the type that is made for settings stands last
        said = "It" if setting == name else f"{setting}="
        article = "an" if kind[0] in "AEIOU" else "a"
        hint = f" {said} is a setting of {article} {kind}, which {parameter}= takes; see help(curator_df.{kind})"
    elif name in NOT_NEEDED:
        hint = f" {NOT_NEEDED[name]}"
    else:
        hint = name_of_ours(name, parameters) or f" Its parameters are: {', '.join(parameters)}"
    return f"{function.__name__} has no parameter {name!r}.{hint}"


def no_table(function: Callable[..., Any], instead: object = None) -> str:
    """Return the error of a call whose first argument is not a table.

    Examples
    --------
    >>> from curator_df import keep_where
    >>> no_table(keep_where)
    'keep_where needs a table. Call keep_where(df, ...), or write df.pipe(keep_where, ...)'
    """
    name = function.__name__
    needs = f"{name} needs a table"
    if instead is not None:
        needs = f"{name} expected a Dask DataFrame as its first argument; got {type(instead).__name__}"
    return f"{needs}. Call {name}(df, ...), or write df.pipe({name}, ...)"


def too_many(function: Callable[..., Any], args: tuple[Any, ...], most: int) -> str:
    """Return what to say of an argument by position that has to be named.

    Examples
    --------
    >>> from curator_df import write_parquet
    >>> too_many(write_parquet, ("out", "zstd"), 1)
    "write_parquet takes at most 1 argument without a name, and 'zstd' is number 2. Pass it by name, such as compression='zstd'"
    """
    value, hints = args[most], get_type_hints(function)
    parameters = inspect.signature(function).parameters
    if most == 1 and next(iter(parameters)) == "tables" and hasattr(value, "dtypes"):
        return f"{function.__name__} takes its tables in one argument. Pass a list or a dict of them"
    if most == 1 and get_origin(hints.get("tables")) is Mapping and not isinstance(args[0], Mapping):
        return f"{function.__name__} takes one dict of folders and their tables, such as {{'train/': train, 'test/': test}}"
    named = [each.name for each in parameters.values() if each.kind is inspect.Parameter.KEYWORD_ONLY]
    names = [name for name in named if isinstance(value, str) and value in choices(hints[name])]
    names = names or [name for name in named[:1] if type(value) in get_args(hints[name])]
    shown = repr(value) if isinstance(value, str | int | float) else f"the {type(value).__name__}"
    hint = f", such as {names[0]}={value!r}" if names else f". Its names are: {', '.join(named)}"
    takes = (
        f"does not accept arguments without their names, and {shown} has none"
        if not most
        else f"takes at most {most} {'argument' if most == 1 else 'arguments'} without a name, and {shown} is number {most + 1}"
    )
    return f"{function.__name__} {takes}. Pass it by name{hint}"
