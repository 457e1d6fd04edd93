# SPDX-License-Identifier: Apache-2.0
"""Keep each call of a public function with the table that it returned, so that a chain can be described and repeated.

A call lives as long as the table's expression. Tables that Dask's own operations return have no call.
"""

from __future__ import annotations

import contextlib
import inspect
import re
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

_ATTRIBUTE = "_curator_df_call"
_current: ContextVar[Call | None] = ContextVar("current_call", default=None)
_SIZE = re.compile(r"(^|_)(memory|size|blocksize|limit)$")
"""Names of parameters that are a number of bytes, as far as they also accept text."""


@dataclass(frozen=True)
class Call:
    """Call of a public function."""

    function: Callable[..., Any]
    """Function of the package."""
    arguments: Mapping[str, Any]
    """Values that were passed, by parameter."""
    part: str | None = None
    """Key of the table in the dict that the function returned; None if it returned a table."""

    @property
    def name(self) -> str:
        """Name of the function."""
        return str(self.function.__name__)


@contextlib.contextmanager
def calling(function: Callable[..., Any], signature: inspect.Signature, args: Any, kwargs: Any) -> Iterator[Call]:
    """Record the arguments of a call while it runs."""
    call = Call(function, _by_name(signature, args, kwargs))
    token = _current.set(call)
    try:
        yield call
    finally:
        _current.reset(token)


def _by_name(signature: inspect.Signature, args: Any, kwargs: Any) -> dict[str, Any]:
    """Return arguments by parameter; none where the call is about to fail because it passes one twice."""
    try:
        named = dict(signature.bind_partial(*args, **kwargs).arguments)
    except TypeError:
        return {}
    for each in signature.parameters.values():
        if each.kind is inspect.Parameter.VAR_KEYWORD:
            named |= named.pop(each.name, {})
    return {name: _copied(value) for name, value in named.items()}


def _copied(value: Any) -> Any:
    """Return a value whose lists, sets and mappings do not change if those of the caller do.

    Examples
    --------
    >>> parts = {"train": [1]}
    >>> copy = _copied(parts)
    >>> parts["train"].append(2)
    >>> copy
    {'train': [1]}
    """
    if isinstance(value, dict):
        return {key: _copied(one) for key, one in value.items()}
    if type(value) in (list, tuple):
        return type(value)(_copied(one) for one in value)
    return set(value) if isinstance(value, set) else value


def current_call() -> Call | None:
    """Return the call of a public function that is running, the innermost one."""
    return _current.get()


def keep(call: Call, result: Any) -> None:
    """Keep a call with the table, or the dict of tables, that it returned."""
    if isinstance(result, dict):
        for part, table in result.items():
            keep(Call(call.function, call.arguments, part), table)
        return
    expression = _expression(result)
    given = (_expression(value) for value in call.arguments.values())
    if expression is not None and not any(one is expression for one in given):
        vars(expression)[_ATTRIBUTE] = call  # its __setattr__ is for operands


def call_of(expression: Any) -> Call | None:
    """Return the call that made an expression; None for those of Dask's own operations."""
    call: Call | None = vars(expression).get(_ATTRIBUTE)
    return call


def _expression(value: Any) -> Any:
    """Return the expression of a table of Dask; None for any other value."""
    of_table = getattr(type(value), "expr", None)
    return value.expr if isinstance(of_table, property) else None


def is_size(name: str, annotation: Any) -> bool:
    """Return whether a parameter is a size, which is written with its unit or as a number of bytes.

    Examples
    --------
    >>> is_size("max_page_size", "int | str"), is_size("left", "int | str | None"), is_size("ngram_size", "int")
    (True, False, False)
    """
    return bool(_SIZE.search(name)) and {"int", "str"} <= set(re.findall(r"\w+", str(annotation)))
