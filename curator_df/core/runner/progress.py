# SPDX-License-Identifier: Apache-2.0
"""Progress bar in a terminal, a line every 30 s elsewhere (logs, cron, pipes). In a notebook, see `core.runner.live_panel`."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, Protocol

from curator_df.memory.sizes import show_duration

LINE_SECONDS = 30.0
"""Minimum time between two lines where there is no terminal."""


class Progress(Protocol):
    """Display of the progress of a run."""

    def __call__(self, done: int, text: str, total: int | None = None) -> None:
        """Show ``done`` ranges (of ``total``, if that has changed) and a short text."""


@contextmanager
def progress_bar(title: str, total: int) -> Iterator[Progress]:
    """Show a bar for ``total`` ranges while the block runs; without a terminal, a line on standard error now and then."""
    if not _in_terminal():
        yield _show_nothing if in_notebook() or sys.stderr is None else _Lines(title, total)
        return
    with _terminal_bar() as bar:
        task = bar.add_task(title, total=total, text="")

        def show(done: int, text: str, total: int | None = None) -> None:
            bar.update(task, completed=done, text=text, total=total)

        yield show


@contextmanager
def passes_bar() -> Iterator[Callable[[str, int, int], None]]:
    """Show a bar for the passes of a run while the block runs, from the first report on: title, done, and total of a pass.

    The bar disappears when the block ends.
    """
    with ExitStack() as ends:
        bar: Any = None
        task, of_task = 0, ""

        def show(title: str, done: int, total: int) -> None:
            nonlocal bar, task, of_task
            if bar is None:
                bar = ends.enter_context(_terminal_bar(transient=True))
                task, of_task = bar.add_task(title, total=total, text=""), title
            if title != of_task:
                bar.reset(task, description=title)
                of_task = title
            bar.update(task, completed=done, total=total)

        yield show if _in_terminal() else _show_no_pass


def _in_terminal() -> bool:
    return not in_notebook() and sys.stderr is not None and sys.stderr.isatty()


def _terminal_bar(*, transient: bool = False) -> Any:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
    from rich.progress import Progress as RichProgress

    columns = (
        TextColumn("{task.description}", style="bold", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[text]}", markup=False),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    return RichProgress(*columns, console=Console(stderr=True), transient=transient)


def _show_no_pass(title: str, done: int, total: int) -> None:
    pass


class _Lines:
    """A line of progress every `LINE_SECONDS`; a shorter run has none."""

    def __init__(self, title: str, total: int) -> None:
        self._title, self._total = title, total
        self._started = self._last = time.monotonic()

    def __call__(self, done: int, text: str, total: int | None = None) -> None:
        self._total = self._total if total is None else total
        now = time.monotonic()
        if now - self._last < LINE_SECONDS:
            return
        self._last = now
        more = f", {text}" if text else ""
        line = f"{self._title}: {done:,} of {self._total:,}{more}, after {show_duration(now - self._started)}\n"
        # A run does not end because nobody reads its progress: a pipe or file that was closed.
        with contextlib.suppress(OSError, ValueError):
            sys.stderr.write(line)
            sys.stderr.flush()


def _show_nothing(done: int, text: str, total: int | None = None) -> None:
    pass


def in_notebook() -> bool:
    """Return whether this code runs in a Jupyter kernel."""
    shell = sys.modules.get("IPython")
    kernel = shell.get_ipython() if shell is not None else None
    return kernel is not None and type(kernel).__name__ == "ZMQInteractiveShell"
