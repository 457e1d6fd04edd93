# SPDX-License-Identifier: Apache-2.0
"""A progress bar in a terminal or a notebook, nothing elsewhere (logs, cron, pipes)."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol


class Progress(Protocol):
    """Shows how far a run is."""

    def __call__(self, done: int, text: str) -> None:
        """Show ``done`` ranges and a few words."""


@contextmanager
def progress_bar(title: str, total: int) -> Iterator[Progress]:
    """Show a bar for ``total`` ranges while the block runs."""
    if _in_notebook():
        yield _notebook_bar(title, total)
    elif sys.stderr.isatty():
        with _terminal_bar(title, total) as show:
            yield show
    else:
        yield _show_nothing


@contextmanager
def _terminal_bar(title: str, total: int) -> Iterator[Progress]:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
    from rich.progress import Progress as RichProgress

    columns = ("[bold]{task.description}", BarColumn(), MofNCompleteColumn(), "{task.fields[text]}")
    texts = [TextColumn(column) if isinstance(column, str) else column for column in columns]
    with RichProgress(*texts, TimeElapsedColumn(), TimeRemainingColumn(), console=Console(stderr=True)) as bar:
        task = bar.add_task(title, total=total, text="")
        yield lambda done, text: bar.update(task, completed=done, text=text)


def _notebook_bar(title: str, total: int) -> Progress:
    from IPython.display import HTML, display

    handle: Any = display(HTML(""), display_id=True)
    started, shown = time.monotonic(), 0.0

    def show(done: int, text: str) -> None:
        nonlocal shown
        now = time.monotonic()
        if now - shown > 0.2 or done >= total:  # more often would flood the browser
            shown = now
            bar = f"<progress value='{done}' max='{total}' style='width:20em'></progress>"
            handle.update(HTML(f"<b>{title}</b> {bar} {done:,}/{total:,} {text} {now - started:.0f} s"))

    return show


def _show_nothing(done: int, text: str) -> None:
    pass


def _in_notebook() -> bool:
    shell = sys.modules.get("IPython")
    kernel = shell.get_ipython() if shell is not None else None
    return kernel is not None and type(kernel).__name__ == "ZMQInteractiveShell"
