# SPDX-License-Identifier: Apache-2.0
"""Checks of argument types and closed choices. Each operator checks its own value ranges; for columns see `columns`."""

from __future__ import annotations

import difflib
import itertools
import os
from collections.abc import Collection, Hashable, Iterable, Mapping
from numbers import Integral, Real
from typing import Any, get_args

from curator_df.errors import ParameterError
from curator_df.suggestions import SIMILAR, did_you_mean

MOST_COMPARED = 5_000
"""Number of names of a folder that are compared with a missing one."""
MOST_LISTED = 20
"""Maximum number of columns that an error lists."""


def require_number(operator: str, parameter: str, value: Any) -> None:
    """Raise `ParameterError` unless a value is a number (numpy's too), and not a bool.

    Examples
    --------
    >>> require_number("sample_rows", "fraction", "10%")
    Traceback (most recent call last):
    ...
    curator_df.errors.ParameterError: sample_rows: fraction='10%' must be a number, not str
    """
    if isinstance(value, bool) or not isinstance(value, Real):
        raise ParameterError(f"{operator}: {parameter}={value!r} must be a number, not {type(value).__name__}")


def require_integer(operator: str, parameter: str, value: Any) -> None:
    """Raise `ParameterError` unless a value is a whole number (numpy's too), and not a bool."""
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise ParameterError(f"{operator}: {parameter}={value!r} must be a whole number, not {type(value).__name__}")


def require_string(operator: str, parameter: str, value: Any) -> None:
    """Raise `ParameterError` unless a value is a str."""
    if not isinstance(value, str):
        raise ParameterError(f"{operator}: {parameter}={value!r} must be a str, not {type(value).__name__}")


def strings_of(operator: str, parameter: str, value: Any) -> tuple[str, ...]:
    """Return a str, or a list of them, as a tuple of str; raise `ParameterError` for anything else."""
    if isinstance(value, str):
        return (value,)
    if not isinstance(value, Collection) or isinstance(value, (bytes, Mapping)):
        raise ParameterError(
            f"{operator}: {parameter}={value!r} must be a str or a list of str, not {type(value).__name__}"
        )
    for one in value:
        if not isinstance(one, str):
            raise ParameterError(
                f"{operator}: {parameter}={value!r} must hold only str; {one!r} is {type(one).__name__}"
            )
    return tuple(value)


def path_of(operator: str, parameter: str, value: Any) -> str:
    """Return a path or URL as a str; raise `ParameterError` for anything else, and for characters that no path can have."""
    if not isinstance(value, (str, os.PathLike)) or isinstance(path := os.fspath(value), bytes):
        raise ParameterError(f"{operator}: {parameter}={value!r} must be a path (or URL), not {type(value).__name__}")
    if "\0" in path:
        raise ParameterError(f"{operator}: {parameter}={path!r} must be a path (or URL), but it has a NUL character")
    if has_no_bytes(path):
        raise ParameterError(
            f"{operator}: {parameter}={path!r} must be a path (or URL), but it has a character that is not valid Unicode (a "
            "lone surrogate). Correct the path, or rename the file"
        )
    return path


def has_no_bytes(path: str) -> bool:
    r"""Return whether a text cannot be written as UTF-8; Python's stand-ins for bytes that are not UTF-8 can.

    Examples
    --------
    >>> has_no_bytes("\ud800"), has_no_bytes("caf\udce9"), has_no_bytes("café")
    (True, False, False)
    """
    try:
        path.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return True
    return False


def absolute(path: str | os.PathLike[str]) -> str:
    """Return a local path as an absolute one.

    Raises
    ------
    ParameterError
        If the path is relative and the working directory of this process was deleted.
    """
    try:
        return os.path.abspath(path)
    except FileNotFoundError as exc:
        raise ParameterError(
            f"{os.fspath(path)!r} is a relative path, and the working directory of this process was deleted. Change to a "
            "directory that exists (cd, or os.chdir), or use an absolute path"
        ) from exc


def require_mapping(operator: str, parameter: str, value: Any) -> None:
    """Raise `ParameterError` unless a value is a dict or the like."""
    if not isinstance(value, Mapping):
        raise ParameterError(f"{operator}: {parameter}={value!r} must be a dict, not {type(value).__name__}")


def did_you_mean_path(path: str) -> str:
    """Return a sentence, after a period, that suggests a path with its first missing part corrected; empty if none is alike."""
    rest: list[str] = []
    parent = path.rstrip("/")
    while parent and not os.path.isdir(parent):
        parent, _, name = parent.rpartition("/")
        rest.insert(0, name)
    try:
        with os.scandir(parent or ("/" if path.startswith("/") else ".")) as entries:
            names = [entry.name for entry in itertools.islice(entries, MOST_COMPARED)]
    except OSError:
        return ""
    if not rest or any(mark in rest[0] for mark in "*?["):
        return ""
    close = difflib.get_close_matches(rest[0], [name for name in names if name != rest[0]], n=1, cutoff=SIMILAR)
    if not close:
        return ""
    found = "/".join([*([parent] if parent or path.startswith("/") else []), close[0], *rest[1:]])
    return f". Did you mean {found!r}?"


def choose(operator: str, parameter: str, value: Any, choices: Any) -> None:
    """Raise `ParameterError` unless ``value`` is one of a Literal's values, and list them."""
    allowed = get_args(choices) or tuple(choices)
    if not isinstance(value, Hashable) or value not in allowed:
        hint = (
            did_you_mean(value, (each for each in allowed if isinstance(each, str))) if isinstance(value, str) else ""
        )
        raise ParameterError(
            f"{operator}: {parameter}={value!r} is not one of {', '.join(map(repr, allowed))}{'.' * bool(hint)}{hint}"
        )


def listed(names: Iterable[Any]) -> str:
    """Return column names for a message, truncated after `MOST_LISTED`."""
    every = list(names)
    more = f" and {len(every) - MOST_LISTED:,} more" if len(every) > MOST_LISTED else ""
    return (", ".join(map(repr, every[:MOST_LISTED])) or "no columns") + more
