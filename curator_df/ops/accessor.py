# SPDX-License-Identifier: Apache-2.0
"""``df.curate.op(...)``: the operators as methods of a Dask DataFrame, generated from the functions themselves."""

from __future__ import annotations

import difflib
import functools
import inspect
from collections.abc import Callable, Iterable
from typing import Any

from dask.dataframe.extensions import register_dataframe_accessor

from curator_df.core.calls import too_many
from curator_df.suggestions import name_of_ours

NEARLY = 0.9
"""Similarity of a name to that of an operator from which on a table's missing attribute is taken for it."""


def register_operators(names: Iterable[str], find: Callable[[str], Any]) -> None:
    """Put operators on every Dask DataFrame, as ``df.curate.<name>``.

    Parameters
    ----------
    names : iterable of str
        Names of the operators.
    find : callable
        Returns the operator of a name. It is called when the operator is first used, so that nothing is imported before.
    """
    methods = {name: _Operator(name, find) for name in names}
    own = {"__init__": _remember, "__doc__": __doc__, "__getattr__": _refuse_name}
    own |= {"__repr__": _said, "_repr_html_": _said_in_html}
    accessor = type("CurateAccessor", (), {**own, **methods})
    register_dataframe_accessor("curate")(accessor)
    _hint_at_operators(frozenset(methods))


def _hint_at_operators(operators: frozenset[str]) -> None:
    """Let the error of a missing attribute of a table say that it is an operator; all other attributes stay unchanged."""
    from dask.dataframe import DataFrame

    of_dask = DataFrame.__getattr__

    @functools.wraps(of_dask)
    def find(self: Any, name: str) -> Any:
        try:
            return of_dask(self, name)
        except AttributeError as exc:
            hint = _operator_hint(name, operators)
            if not hint:
                raise
            raise AttributeError(f"{exc}. {hint}", name=name, obj=self) from None

    DataFrame.__getattr__ = find


def _operator_hint(name: str, operators: frozenset[str]) -> str:
    """Return how to call the operator of this name, or of a very similar one; empty if there is none."""
    close = [name] if name in operators else difflib.get_close_matches(name, operators, n=1, cutoff=NEARLY)
    if not close:
        return ""
    return (
        f"{close[0]} is an operator of curator_df: use df.curate.{close[0]}(...) or df.pipe(curator_df.{close[0]}, ...)"
    )


def _remember(self: Any, df: Any) -> None:
    self._df = df


class _Operator:
    """Method of the accessor that replaces itself by the operator's own when it is first looked at."""

    def __init__(self, name: str, find: Callable[[str], Any]) -> None:
        self._name, self._find = name, find

    def __get__(self, obj: Any, owner: type) -> Any:
        method = _method(self._find(self._name))
        setattr(owner, self._name, method)
        return method.__get__(obj, owner)


def _summary(df: Any) -> Any:
    # Imported late: this module is imported as soon as Dask's tables are, also in processes that show none.
    from curator_df.ops.table_summary import summarize_table

    return summarize_table(df)


def _said(self: Any) -> str:
    return str(_summary(self._df) or f"Operators of curator_df for this table:\n{self._df!r}")


def _said_in_html(self: Any) -> str | None:
    summary = _summary(self._df)
    return None if summary is None else summary._repr_html_()


def _refuse_name(self: Any, name: str) -> Any:
    """Raise `AttributeError` with the operator whose name is most similar."""
    operators = [one for one in dir(type(self)) if not one.startswith("_")]
    raise AttributeError(
        f"df.curate has no operator {name!r}.{name_of_ours(name, operators) or ' dir(df.curate) lists the operators'}",
        name=name,
        obj=self,
    )


def _method(operator: Callable[..., Any]) -> Callable[..., Any]:
    signature = inspect.signature(operator)
    _, *others = signature.parameters.values()
    most = sum(each.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD for each in others)
    takes_any = any(each.kind is inspect.Parameter.VAR_POSITIONAL for each in others)

    @functools.wraps(operator)
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        is_known = kwargs.keys() <= signature.parameters.keys()  # an unknown keyword is named first
        if len(args) > most and not takes_any and is_known:
            raise TypeError(too_many(operator, args, most))
        return operator(self._df, *args, **kwargs)

    first = inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY)
    method.__signature__ = signature.replace(parameters=[first, *others])  # type: ignore[attr-defined]
    return method
