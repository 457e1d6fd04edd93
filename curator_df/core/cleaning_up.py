# SPDX-License-Identifier: Apache-2.0
"""Clean up after an error, so that the first error is the one that is raised: what fails afterwards becomes a note on it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager


def clean_up(first: BaseException | None, *actions: Callable[[], object]) -> None:
    """Call each of some functions, also where an earlier one fails; add what they raise to the first error as a note.

    Without a first error, the first of theirs is raised at the end.

    Examples
    --------
    >>> error = ValueError("the input is wrong")
    >>> clean_up(error, lambda: 1 / 0)
    >>> error.__notes__
    ['Cleaning up afterwards failed, too (ZeroDivisionError: division by zero)']
    """
    given = first
    for action in actions:
        try:
            action()
        except Exception as exc:  # noqa: BLE001 - it is a note on the first error, or raised below
            if first is None:
                first = exc
            else:
                first.add_note(f"Cleaning up afterwards failed, too ({type(exc).__name__}: {exc})")
    if given is None and first is not None:
        raise first


@contextmanager
def undoing() -> Iterator[ExitStack]:
    """Give a stack whose callbacks are called at the end of a block, unless they are taken with ``pop_all``."""
    undo = ExitStack()
    try:
        yield undo
    except BaseException as exc:
        clean_up(exc, undo.close)
        raise
    undo.close()
