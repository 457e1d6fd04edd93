# SPDX-License-Identifier: Apache-2.0
"""Checks that the folders of a run do not overlap: those of its outputs and rejects, and those that it reads from.

Everything is checked by name, before a file is written or deleted. See also `core.ranges.rejects`, which checks the
content of the folder.
"""

from __future__ import annotations

import itertools
import os
import posixpath
from collections.abc import Iterator, Sequence

from curator_df.core.planning.program import Program
from curator_df.core.ranges.sink import Sink
from curator_df.errors import ParameterError
from curator_df.files.storage import Folder


def require_disjoint_outputs(outputs: Sequence[tuple[Sink, Sink | None]]) -> None:
    """Refuse outputs and rejects in the same folder or inside each other: their files could not be distinguished.

    Parameters
    ----------
    outputs : sequence of (Sink, Sink or None)
        Sink of the rows of each output, and sink of its removed rows.
    """
    for one, two in itertools.combinations([folder for _, folder in _named(outputs)], 2):
        first, second = place_of(one), place_of(two)
        if first == second:
            raise ParameterError(
                f"{one.url!r} and {two.url!r} are the same folder. Use a separate folder for each output and each rejects="
            )
        outer, inner = (one, two) if is_within(second, first) else (two, one)
        if is_within(place_of(inner), place_of(outer)):
            raise ParameterError(
                f"{inner.url!r} is inside {outer.url!r}, so reading the outer folder would also read the inner one. Use "
                "separate folders for outputs and rejects="
            )


def require_not_input(program: Program, sink: Sink, rejects: Sink | None = None, workdir: Folder | None = None) -> None:
    """Refuse to write to the input of a run, or to a place where the next read of the same paths would find the output.

    Parameters
    ----------
    program : Program
        Program to run.
    sink, rejects : Sink
        Sink of its rows, and sink of removed rows, if they are written.
    workdir : Folder, optional
        Parent of the folder for temporary files.
    """
    inputs = list(_inputs(program))
    listing = getattr(program.origin, "listing", None)  # a shuffled table does not have one
    if workdir is not None:
        require_outside(program, workdir)
    for writes, folder in _named([(sink, rejects)]):
        place = place_of(folder)
        for path in inputs:
            if is_within(path, place):
                raise ParameterError(
                    f"{folder.url!r} cannot be written to: this run reads {path!r}, which is inside it and could be deleted or "
                    "mixed with the output. Use a folder that does not contain any input"
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
    """Return the canonical location of a folder: links resolved, or with the main protocol name of its store."""
    return os.path.realpath(folder.root) if folder.is_local else folder.remote_url


def is_within(path: str, outer: str) -> bool:
    """Return whether a path is a folder or is inside it.

    Examples
    --------
    >>> is_within("/a/b", "/a"), is_within("/a", "/a"), is_within("/ab", "/a"), is_within("/a", "/")
    (True, True, False, True)
    """
    return path == outer or path.startswith(outer.rstrip("/") + "/")


def _named(outputs: Sequence[tuple[Sink, Sink | None]]) -> list[tuple[Sink, Folder]]:
    return [(sink, sink.folder) for pair in outputs for sink in pair if sink is not None]


def _inputs(program: Program) -> Iterator[str]:
    """Yield the locations of all files that a program reads, and of the stored results that its operators use."""
    yield from _places(program.origin.files)
    for step in program.steps:
        if step.pending is None:
            continue
        if step.pending.home is not None:
            yield place_of(step.pending.home)
        for one in step.pending.passes(step.name):
            if one.of_other is not None:
                yield from _inputs(one.of_other)


def _places(paths: Sequence[str]) -> Iterator[str]:
    folders: dict[str, str] = {}
    for path in paths:
        if "://" in path:
            yield path
        elif path.startswith("/"):  # skip names of sources without files, such as the buckets of a shuffle
            above, name = posixpath.split(path)
            if above not in folders:
                folders[above] = os.path.realpath(above)
            yield os.path.realpath(path) if os.path.islink(path) else f"{folders[above].rstrip('/')}/{name}"
