# SPDX-License-Identifier: Apache-2.0
"""Displays, completions and errors of our tables in IPython and Jupyter, through IPython's own hooks.

Nothing of Dask is replaced. Without IPython, or with tables that are not ours, nothing changes.
"""

from __future__ import annotations

import functools
import sys
import traceback
from typing import Any

import dask.dataframe as dd
from dask.dataframe.dask_expr import FrameBase
from dask.dataframe.dask_expr._expr import Expr

from curator_df.errors import CuratorError, notebook_lines
from curator_df.ops.table_summary import begins_with_reader, is_ours, summarize_table

MOST_TABLES = 100
"""Number of elements of a sequence that are looked at for tables."""
OF_INDEXERS = ("obj", "_series")
"""Attributes of Dask's indexers and accessors that have the table (dask 2026.7.1)."""
ACCESSOR = "curate"
"""Name under which a table has our operators."""


def integrate(shell: Any = None) -> None:
    """Register our displays and completions with an IPython shell.

    Parameters
    ----------
    shell : IPython.core.interactiveshell.InteractiveShell, optional
        Defaults to the shell that runs this, if any.
    """
    if shell is None:
        ipython = sys.modules.get("IPython")
        shell = None if ipython is None else ipython.get_ipython()
    if shell is None:
        return
    _show_tables(shell.display_formatter.formatters)
    if not shell.custom_exceptions:  # there is one place for a handler, and that of the user stays
        shell.set_custom_exc((Exception, KeyboardInterrupt), _show_error)
    if getattr(shell, "Completer", None) is not None and not any(
        getattr(one, "matcher_identifier", "") == MATCHER for one in shell.Completer.custom_matchers
    ):
        shell.Completer.custom_matchers.append(_matcher(shell))


def _show_tables(formatters: Any) -> None:
    for kind, show in (("text/plain", _show_text), ("text/html", _show_html)):
        if dd.DataFrame not in formatters[kind].type_printers:
            formatters[kind].for_type(dd.DataFrame, show)


def _show_text(df: Any, printer: Any, cycle: bool) -> None:
    printer.text(repr(df) if cycle else str(summarize_table(df) or repr(df)))


def _show_html(df: Any) -> str:
    summary = summarize_table(df)
    return str(df.to_html() if summary is None else summary._repr_html_())


def _show_error(
    shell: Any, kind: type[BaseException], exc: BaseException, tb: Any, tb_offset: int | None = None
) -> Any:
    """Show an error: in a few lines where it came through a table of ours, and as IPython does everywhere else.

    ``%xmode Verbose`` shows all frames.
    """
    is_short = shell.InteractiveTB.mode != "Verbose" and not isinstance(exc, CuratorError) and _is_about_ours(tb)
    if is_short:
        exc._render_traceback_ = functools.partial(notebook_lines, exc)  # type: ignore[attr-defined]
    shell.showtraceback((kind, exc, tb), tb_offset=tb_offset, running_compiled_code=True)


def _is_about_ours(tb: Any) -> bool:
    """Tell whether this package raised an error, or Dask while it worked on a table of ours."""
    tables: dict[str, Any] = {}
    for frame, _ in traceback.walk_tb(tb):
        package = str(frame.f_globals.get("__name__")).partition(".")[0]
        if package == "curator_df":
            return True
        if package == "dask":
            tables.update({table._name: table for value in frame.f_locals.values() for table in _tables_in(value)})
    return any(begins_with_reader(value) for value in tables.values())


def _tables_in(value: Any) -> list[Any]:
    """Return a table, those in a sequence (of ``concat``), or that of an indexer or accessor (``df.iloc``, ``df.text.str``)."""
    if isinstance(value, list | tuple):
        found = list(value[:MOST_TABLES])
    elif type(value).__module__.startswith("dask."):
        found = [value, *(vars(value).get(name) for name in OF_INDEXERS if hasattr(value, "__dict__"))]
    else:
        found = [value]
    return [one for one in found if isinstance(one, FrameBase | Expr)]


MATCHER = "curator_df.tables"
"""Identifies our completions in IPython."""


def _matcher(shell: Any) -> Any:
    """Return what completes names after a table, after its accessor and after this package, without running anything.

    Jedi, which IPython asks otherwise, analyzes Dask's sources for it, for a second each time.
    """
    from IPython.core.completer import SimpleCompletion, context_matcher

    @context_matcher(identifier=MATCHER)  # type: ignore[untyped-decorator]
    def complete(context: Any) -> Any:
        names = completions_of(context.token, shell.user_ns)
        return {"completions": [SimpleCompletion(name) for name in names], "suppress": bool(names)}

    return complete


def completions_of(token: str, namespace: dict[str, Any]) -> list[str]:
    """Return what the text before the cursor may become, for tables of ours and this package; none for anything else.

    Examples
    --------
    >>> completions_of("cdf.write_m", {"cdf": sys.modules["curator_df"]})
    ['cdf.write_many']
    """
    name, *parts = token.split(".")
    value = namespace.get(name)
    if not parts or not (is_ours(value) or value is sys.modules["curator_df"]):
        return []
    *before, last = parts
    if before == [ACCESSOR] and is_ours(value):
        value = getattr(value, ACCESSOR)
    elif before:
        return []
    wants_private = last.startswith("_")
    return [
        ".".join([name, *before, found])
        for found in sorted(dir(value))
        if found.startswith(last) and (wants_private or not found.startswith("_"))
    ]
