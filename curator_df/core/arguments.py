# SPDX-License-Identifier: Apache-2.0
"""Checks of argument types and closed choices. Each operator checks its own value ranges; for columns see `columns`."""

from __future__ import annotations

import difflib
import itertools
import os
import re
from collections.abc import Collection, Iterable, Mapping
from numbers import Integral, Real
from typing import Any

from curator_df.errors import ParameterError

SURE = 0.8
"""Similarity of two names from which on the most similar one alone is suggested."""
SIMILAR = 0.65
"""Least similarity of a suggested name."""
MOST_COMPARED = 5_000
"""Number of names of a folder that are compared with a missing one."""
MOST_SUGGESTED = 3
"""Names that are suggested at most, where several are equally similar."""
_WORD = re.compile("[a-z0-9]+")


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
    """Return a path or URL as a str; raise `ParameterError` for anything else."""
    if not isinstance(value, (str, os.PathLike)) or isinstance(path := os.fspath(value), bytes):
        raise ParameterError(f"{operator}: {parameter}={value!r} must be a path (or URL), not {type(value).__name__}")
    return path


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


def did_you_mean(name: str, names: Iterable[str]) -> str:
    """Return a sentence, after a space, that suggests the most similar of some names; empty if none is similar.

    Words of a name, between underscores, are compared too.

    Examples
    --------
    >>> did_you_mean("FineWeb", ["nemo", "fineweb"])
    " Did you mean 'fineweb'?"
    >>> did_you_mean("gofer", ["c4", "dolma_gopher_v1", "dolma_gopher_v2"])
    " Did you mean 'dolma_gopher_v1' or 'dolma_gopher_v2'?"
    >>> did_you_mean("x", ["nemo"])
    ''
    """
    by_lower_case = {one.lower(): one for one in names}
    close = difflib.get_close_matches(name.lower(), by_lower_case, n=1, cutoff=SURE)
    if not close:
        scores = {one: _likeness(name.lower(), one) for one in by_lower_case}
        best = max(scores.values(), default=0.0)
        close = [one for one, score in scores.items() if score == best >= SIMILAR][:MOST_SUGGESTED]
    close = close or [one for one in by_lower_case if len(name) > 2 and name.lower() in one][:1]
    quoted = [repr(by_lower_case[one]) for one in close]
    shown = ", ".join(quoted[:-1]) + (" or " if len(quoted) > 1 else "") + "".join(quoted[-1:])
    return f" Did you mean {shown}?" if close else ""


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


def _likeness(name: str, other: str) -> float:
    """Return how similar two names are, from 0 to 1: as a whole, or each word of the first to one of the second."""
    whole = difflib.SequenceMatcher(None, name, other).ratio()
    words, others = _WORD.findall(name), _WORD.findall(other)
    best = [max((difflib.SequenceMatcher(None, word, each).ratio() for each in others), default=0.0) for word in words]
    return max(whole, sum(best) / len(best) if best else 0.0)
