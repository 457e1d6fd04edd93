# SPDX-License-Identifier: Apache-2.0
"""Progress bar in a terminal, a line every 30 s elsewhere (logs, cron, pipes). In a notebook, see `core.runner.live_panel`.

Work that has no bar of its own, such as an operation of Dask, writes a line every 30 s wherever it runs: `progress_lines`. In a
notebook, it is one line in the output of the cell, which is updated.
"""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from functools import wraps
from typing import Any, ParamSpec, Protocol, Self, TypeVar

from curator_df.memory.sizes import show_duration

_Given = ParamSpec("_Given")
_Result = TypeVar("_Result")
LINE_SECONDS = 30.0
"""Seconds between two lines of progress, where no progress bar is shown."""
JOIN_SECONDS = 2.0
"""Maximum wait at the end of the work for a line that is being written."""
UNSHOWN = (OSError, ValueError, RuntimeError, MemoryError)
"""Errors of a notebook that can show nothing, as when its kernel ends. Work does not fail for its progress."""


class Progress(Protocol):
    """Display of the progress of a run."""

    def __call__(self, done: int, text: str, total: int | None = None) -> None:
        """Show ``done`` ranges (of ``total``, if that has changed) and a short text."""


@contextmanager
def progress_bar(title: str, total: int) -> Iterator[Progress]:
    """Show a bar for ``total`` ranges while the block runs; without a terminal, a line on standard error every 30 s."""
    if in_notebook():
        with _instead():
            yield _show_nothing
        return
    if not _in_terminal():
        with _Lines(title, total) as lines:
            yield lambda done, text, total=None: lines.show(done, lines.total if total is None else total, text)
        return
    with _instead(), _terminal_bar() as bar:
        task = bar.add_task(title, total=total, text="")

        def show(done: int, text: str, total: int | None = None) -> None:
            bar.update(task, completed=done, text=text, total=total)

        yield show


@contextmanager
def passes_bar() -> Iterator[Callable[[str, int, int], None]]:
    """Show a bar for the passes of a run while the block runs, from the first report on: title, done, and total of a pass.

    The bar disappears when the block ends. Without a terminal, a line on standard error says every 30 s how far the pass is.
    """
    if in_notebook():
        with _instead():
            yield _show_no_pass
        return
    if not _in_terminal():
        with _Lines("comparing rows") as lines:
            yield lambda title, done, total: lines.show(done, total, title=title)
        return
    with _instead(), ExitStack() as ends:
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

        yield show


@contextmanager
def progress_lines(title: str, figures: Callable[[], str] | None = None) -> Iterator[None]:
    """Write a line on standard error every 30 s while the block runs, also in a terminal; update one in a notebook.

    ``figures`` returns how far the work is, in words; it is called for each line, in a thread of its own. While the block shows
    the progress of a part of it, with these lines or with a bar, only that part is shown.
    """
    with _Lines(title, figures=figures):
        yield


def with_progress_lines(title: str) -> Callable[[Callable[_Given, _Result]], Callable[_Given, _Result]]:
    """Return a decorator: each call of the function writes a line every 30 s, as `progress_lines` does.

    The function keeps a fingerprint, which a context manager used as a decorator would not have.
    """

    def decorate(function: Callable[_Given, _Result]) -> Callable[_Given, _Result]:
        @wraps(function)
        def call(*args: _Given.args, **kwargs: _Given.kwargs) -> _Result:
            with progress_lines(title):
                return function(*args, **kwargs)

        return call

    return decorate


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


_innermost: ContextVar[_Lines | None] = ContextVar("innermost", default=None)
"""Lines of the innermost block whose progress is shown."""


@contextmanager
def _instead(lines: _Lines | None = None) -> Iterator[None]:
    """Let the lines of the block around this one wait while this one runs, which has its own, or a bar."""
    outer, token = _innermost.get(), _innermost.set(lines)
    if outer is not None:
        outer.is_waiting = True
    try:
        yield
    finally:
        _innermost.reset(token)
        if outer is not None:
            outer.is_waiting = False


class _Lines:
    """A line of progress every `LINE_SECONDS` while the block runs, whether or not something was finished meanwhile."""

    def __init__(self, title: str, total: int = 0, figures: Callable[[], str] | None = None) -> None:
        self.title, self.total, self._figures = title, total, figures
        self.is_waiting = False
        """Whether an inner block shows its progress."""
        self._done, self._text = 0, ""
        self._started = time.monotonic()
        self._over = threading.Event()
        self._writer = threading.Thread(target=self._write, name="curator_df-progress", daemon=True)
        self._ends = ExitStack()
        self._cell = CellLine() if in_notebook() else None

    def __enter__(self) -> Self:
        self._ends.enter_context(_instead(self))
        if self._cell is not None or sys.stderr is not None:  # None: closed, as by 2>&-
            # Work does not fail for its progress: a process without memory or threads has no lines.
            with contextlib.suppress(RuntimeError, MemoryError):
                self._writer.start()
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        self._over.set()
        with self._ends:  # closed also if Ctrl-C ends the wait
            if self._writer.is_alive():
                self._writer.join(timeout=JOIN_SECONDS)
            if self._cell is not None and self._cell.is_shown and kind is None:
                with contextlib.suppress(*UNSHOWN):
                    self._cell.show(f"{self.title}: finished after {show_duration(self._elapsed())}")

    def show(self, done: int, total: int, text: str = "", title: str | None = None) -> None:
        """Remember how far the work is, for the next line; the time is that since the work got this title."""
        if title is not None and title != self.title:
            self.title, self._started = title, time.monotonic()
        self._done, self.total, self._text = done, total, text

    def _write(self) -> None:
        while not self._over.wait(LINE_SECONDS):
            line = "" if self.is_waiting else self.line()
            if self._over.is_set():
                return
            if self._cell is not None:
                if line:
                    with contextlib.suppress(*UNSHOWN):
                        self._cell.show(line.rstrip())
                continue
            # A run does not end because nobody reads its progress: a pipe or file that was closed.
            with contextlib.suppress(OSError, ValueError):
                sys.stderr.write(line)
                sys.stderr.flush()

    def line(self) -> str:
        """Return the line for the current state."""
        counted = f"{self._done:,} of {self.total:,}" if self.total else ""
        figures = "" if self._figures is None else self._figures()
        said = ", ".join(filter(None, (counted, self._text, figures, f"after {show_duration(self._elapsed())}")))
        return f"{self.title}: {said}\n"

    def _elapsed(self) -> float:
        return time.monotonic() - self._started


class CellLine:
    """Text in the output of a notebook's cell, which each new text replaces."""

    def __init__(self) -> None:
        self._handle: Any = None

    @property
    def is_shown(self) -> bool:
        """Whether there was a text."""
        return self._handle is not None

    def show(self, text: str) -> None:
        """Show a text in place of the last one."""
        from IPython.display import display

        if self._handle is None:
            self._handle = display({"text/plain": text}, raw=True, display_id=True)
        else:
            self._handle.update({"text/plain": text}, raw=True)


def _show_nothing(done: int, text: str, total: int | None = None) -> None:
    pass


def in_notebook() -> bool:
    """Return whether this code runs in a Jupyter kernel."""
    shell = sys.modules.get("IPython")
    kernel = shell.get_ipython() if shell is not None else None
    return kernel is not None and type(kernel).__name__ == "ZMQInteractiveShell"
