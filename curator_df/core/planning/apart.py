# SPDX-License-Identifier: Apache-2.0
"""Folders that a run may not mix: those of its outputs and rejects, and those that it reads from.

Everything is checked by name, before a file is written or deleted. See also
`core.ranges.rejects_folder`, which looks into the folder.
"""

from __future__ import annotations

import itertools
import os
import posixpath
from collections.abc import Iterator, Sequence
from typing import Any

from curator_df.core.files.storage import Folder
from curator_df.core.planning.program import Program
from curator_df.core.ranges.sink import Sink
from curator_df.errors import ParameterError


def require_apart(outputs: Sequence[tuple[Sink, Sink | None]]) -> None:
    """Refuse outputs and rejects in the same folder or in one another: their files could not be told apart.

    Parameters
    ----------
    outputs : sequence of (Sink, Sink or None)
        Where the rows of each output go, and where its removed rows go.
    """
    for one, two in itertools.combinations([folder for _, folder in _named(outputs)], 2):
        first, second = place_of(one), place_of(two)
        if first == second:
            raise ParameterError(
                f"{one.url!r} and {two.url!r} are the same folder; name one for each output and each of the rejects="
            )
        outer, inner = (one, two) if is_within(second, first) else (two, one)
        if is_within(place_of(inner), place_of(outer)):
            raise ParameterError(
                f"{inner.url!r} lies inside {outer.url!r}, so that a reader of the outer one would get the rows of both; name "
                "folders for outputs and rejects= that lie beside each other"
            )


def require_unread(program: Program, sink: Sink, rejects: Sink | None = None, workdir: Folder | None = None) -> None:
    """Refuse to write to where a run reads, or to where the next read of the same paths finds what was written.

    Parameters
    ----------
    program : Program
        What is run.
    sink, rejects : Sink
        Where its rows go, and where removed rows go, if they are kept.
    workdir : Folder, optional
        Where temporary files go, in a folder of their own.
    """
    inputs = list(_inputs(program))
    listing = getattr(program.origin, "listing", None)  # what was shuffled has none
    if workdir is not None:
        require_outside(program, workdir)
    for writes, folder in _named([(sink, rejects)]):
        place = place_of(folder)
        for path in inputs:
            if is_within(path, place):
                raise ParameterError(
                    f"{folder.url!r} cannot be written to: this run reads {path!r}, which lies in it and could be deleted or "
                    "mixed with what is written; name a folder that holds none of the input"
                )
        if listing is not None and writes.example:
            require_outside(program, folder, writes.example)


def require_outside(program: Program, folder: Folder, name: str = "file") -> None:
    """Refuse a folder in which a later read of the same paths would find a new file."""
    listing = getattr(program.origin, "listing", None)
    found_by = None if listing is None else listing.would_find(f"{place_of(folder)}/{name}", any_format=True)
    if found_by is not None:
        raise ParameterError(
            f"{folder.url!r} is inside {found_by!r}, which this run reads, so a later read of it would find the written files "
            f"too. Use a folder outside of {found_by!r}"
        )


def place_of(folder: Folder) -> str:
    """Return where a folder is, the same for all names of it: through links, or with the protocol that its store is known by."""
    return os.path.realpath(folder.root) if folder.is_local else folder.remote_url


def is_within(path: str, outer: str) -> bool:
    """Tell whether a path is that of a folder, or lies in it.

    Examples
    --------
    >>> is_within("/a/b", "/a"), is_within("/a", "/a"), is_within("/ab", "/a"), is_within("/a", "/")
    (True, True, False, True)
    """
    return path == outer or path.startswith(outer.rstrip("/") + "/")


def _named(outputs: Sequence[tuple[Sink, Sink | None]]) -> list[tuple[Sink, Folder]]:
    return [(sink, sink.folder) for pair in outputs for sink in pair if sink is not None]


def _inputs(program: Program) -> Iterator[str]:
    """Yield the places of all files that a program reads, and of the folders of what other operators found for it."""
    yield from _places(program.origin.files)
    for step in program.steps:
        barrier: Any = step.barrier
        home, against = getattr(barrier, "home", None), getattr(barrier, "against", None)
        if home is not None:
            yield place_of(home)
        if against is not None and against.program is not None:  # what was found needs its chain no more
            yield from _inputs(against.program)


def _places(paths: Sequence[str]) -> Iterator[str]:
    folders: dict[str, str] = {}
    for path in paths:
        if "://" in path:
            yield path
        elif path.startswith("/"):  # not the names of what has no files, such as the buckets of a shuffle
            above, name = posixpath.split(path)
            if above not in folders:
                folders[above] = os.path.realpath(above)
            yield os.path.realpath(path) if os.path.islink(path) else f"{folders[above].rstrip('/')}/{name}"
