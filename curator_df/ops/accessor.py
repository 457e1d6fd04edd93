# SPDX-License-Identifier: Apache-2.0
"""``df.curate.op(...)``: the operators as methods of a Dask DataFrame, generated from the functions themselves."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable
from typing import Any, get_args, get_type_hints

from dask.dataframe.extensions import register_dataframe_accessor

from curator_df.core.arguments import did_you_mean


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
    raise AttributeError(f"df.curate has no operator {name!r}.{did_you_mean(name, operators)}", name=name, obj=self)


def unknown_keyword(operator: Callable[..., Any], name: str) -> str:
    """Return what to say of a keyword that an operator does not take, with the most similar one or its value.

    Examples
    --------
    >>> from curator_df import keep_language, write_parquet
    >>> unknown_keyword(keep_language, "language")
    "keep_language has no parameter 'language'. Did you mean 'languages'?"
    >>> unknown_keyword(write_parquet, "overwrite")
    "write_parquet has no parameter 'overwrite'. Did you mean on_existing='overwrite'?"
    """
    hints = get_type_hints(operator)
    choices = [parameter for parameter, kind in hints.items() if name in get_args(kind)]
    hint = (
        f" Did you mean {choices[0]}={name!r}?"
        if choices
        else did_you_mean(name, inspect.signature(operator).parameters)
    )
    return f"{operator.__name__} has no parameter {name!r}.{hint}"


def _method(operator: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(operator)
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        if unknown := [name for name in kwargs if name not in signature.parameters]:
            raise TypeError(unknown_keyword(operator, unknown[0]))
        return operator(self._df, *args, **kwargs)

    signature = inspect.signature(operator)
    _, *others = signature.parameters.values()
    first = inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY)
    method.__signature__ = signature.replace(parameters=[first, *others])  # type: ignore[attr-defined]
    return method
