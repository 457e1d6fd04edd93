# SPDX-License-Identifier: Apache-2.0
"""A digest of values and functions that is the same in every process and on every machine.

Resume compares programs by it. Dask's own tokens are not enough: those of a function typed in a notebook include the
file name and line of its cell, which change when the cell is run again.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import types
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from dask._task_spec import DataNode, GraphNode
from dask.base import tokenize

_DATA = (np.ndarray, np.generic, pd.DataFrame, pd.Series, pd.Index)
"""Dask's token of these is one of their content, though it does not promise so for every dtype."""


def fingerprint(*values: Any) -> str:
    """Return 32 hex digits that identify the values.

    Examples
    --------
    >>> fingerprint({"a": 1, "b": (2.5, None)}) == fingerprint({"b": (2.5, None), "a": 1})
    True
    >>> fingerprint(lambda x: x + 1) == fingerprint(lambda x: x + 2)
    False

    Fields of a dataclass with ``metadata={"identity": False}`` do not count.
    """
    digest = hashlib.blake2b(digest_size=16)
    for value in values:
        _feed(digest, value)
    return digest.hexdigest()


def _feed(digest: Any, value: Any) -> None:
    digest.update(type(value).__name__.encode() + b"\0")
    if value is None or isinstance(value, (str, bytes, bool, int, float, complex)):
        text = value if isinstance(value, bytes) else repr(value).encode()
        digest.update(str(len(text)).encode() + b":" + text)
    elif isinstance(value, (list, tuple, set, frozenset, Mapping)):
        _feed_items(digest, value)
    elif isinstance(value, types.CodeType):
        _feed_code(digest, value)
    elif callable(value):
        _feed_callable(digest, value)
    elif dataclasses.is_dataclass(value):
        _feed(digest, _fields(value))
    elif isinstance(value, DataNode):
        _feed(digest, value.value)
    elif isinstance(value, np.ndarray) and value.dtype.hasobject:
        _feed(digest, (value.shape, value.ravel().tolist()))
    elif isinstance(value, GraphNode):
        _feed(digest, (value.func, value.args, dict(value.kwargs)) if hasattr(value, "func") else repr(value))
    else:
        digest.update(tokenize(value, ensure_deterministic=not isinstance(value, _DATA)).encode())
    digest.update(b"\1")


def _fields(value: Any) -> dict[str, Any]:
    identifying = (field.name for field in dataclasses.fields(value) if field.metadata.get("identity", True))
    return {name: getattr(value, name) for name in identifying}


def _feed_items(digest: Any, value: Any) -> None:
    if isinstance(value, Mapping):
        for key in sorted(value, key=repr):
            _feed(digest, key)
            _feed(digest, value[key])
    elif isinstance(value, (set, frozenset)):
        digest.update("".join(sorted(fingerprint(item) for item in value)).encode())
    else:
        for item in value:
            _feed(digest, item)


def _feed_callable(digest: Any, function: Any) -> None:
    if isinstance(function, functools.partial):
        _feed(digest, (function.func, function.args, function.keywords))
    elif isinstance(function, types.MethodType):
        _feed(digest, (function.__func__, function.__self__))
    elif isinstance(function, types.FunctionType):
        _feed(digest, function.__module__ if function.__module__ != "__main__" else "")
        _feed_code(digest, function.__code__)
        _feed(digest, (function.__defaults__, function.__kwdefaults__))
        _feed(digest, tuple(cell.cell_contents for cell in function.__closure__ or ()))
    elif dataclasses.is_dataclass(function) and not isinstance(function, type):
        _feed(digest, (type(function), _fields(function)))
    elif hasattr(function, "__qualname__"):
        _feed(digest, (function.__module__ or "", function.__qualname__))
    else:
        digest.update(tokenize(function, ensure_deterministic=True).encode())


def _feed_code(digest: Any, code: types.CodeType) -> None:
    """Take what a function does (names, constants, instructions), not where it was typed."""
    _feed(digest, (code.co_code, code.co_names, code.co_varnames, code.co_freevars))
    _feed(digest, tuple(code.co_consts))
