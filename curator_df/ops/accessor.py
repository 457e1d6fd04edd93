# SPDX-License-Identifier: Apache-2.0
"""``df.curate.op(...)``: the operators as methods of a Dask DataFrame, generated from the functions themselves."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable
from typing import Any

from dask.dataframe.extensions import register_dataframe_accessor

from curator_df.ops.table_summary import summarize_table


def register_operators(operators: Iterable[Callable[..., Any]]) -> None:
    """Put operators on every Dask DataFrame, as ``df.curate.<name>``."""
    methods = {operator.__name__: _method(operator) for operator in operators}
    shown = {"__repr__": _said, "_repr_html_": _said_in_html}
    accessor = type("CurateAccessor", (), {"__init__": _remember, "__doc__": __doc__, **shown, **methods})
    register_dataframe_accessor("curate")(accessor)


def _remember(self: Any, df: Any) -> None:
    self._df = df


def _said(self: Any) -> str:
    return str(summarize_table(self._df) or f"Operators of curator_df for this table:\n{self._df!r}")


def _said_in_html(self: Any) -> str | None:
    summary = summarize_table(self._df)
    return None if summary is None else summary._repr_html_()


def _method(operator: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(operator)
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        return operator(self._df, *args, **kwargs)

    signature = inspect.signature(operator)
    _, *others = signature.parameters.values()
    first = inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY)
    method.__signature__ = signature.replace(parameters=[first, *others])  # type: ignore[attr-defined]
    return method
