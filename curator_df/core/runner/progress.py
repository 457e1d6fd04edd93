# SPDX-License-Identifier: Apache-2.0
"""Progress bar in a terminal; nothing elsewhere (logs, cron, pipes). In a notebook, see `core.runner.live_panel`."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol


class Progress(Protocol):
    """Display of the progress of a run."""

    def __call__(self, done: int, text: str, total: int | None = None) -> None:
        """Show ``done`` ranges (of ``total``, if that has changed) and a short text."""


@contextmanager
def progress_bar(title: str, total: int, *, is_wanted: bool = True) -> Iterator[Progress]:
    """Show a bar for ``total`` ranges while the block runs; nothing if there is no terminal."""
    if is_wanted and not in_notebook() and sys.stderr is not None and sys.stderr.isatty():
        with _terminal_bar(title, total) as show:
            yield show
    else:
        yield _show_nothing


@contextmanager
def _terminal_bar(title: str, total: int) -> Iterator[Progress]:
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
    with RichProgress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task(title, total=total, text="")

        def show(done: int, text: str, total: int | None = None) -> None:
            bar.update(task, completed=done, text=text, total=total)

        yield show


def _show_nothing(done: int, text: str, total: int | None = None) -> None:
    pass


def in_notebook() -> bool:
    """Return whether this code runs in a Jupyter kernel."""
    shell = sys.modules.get("IPython")
    kernel = shell.get_ipython() if shell is not None else None
    return kernel is not None and type(kernel).__name__ == "ZMQInteractiveShell"
