# SPDX-License-Identifier: Apache-2.0
"""A digest of values and functions that is the same in every process and on every machine.

Resume compares programs by this digest. Dask's own tokens do not suffice: the token of a function typed in a notebook includes
the file name and line of its cell, which change when the cell is run again.

A function that is pickled by value, such as one from a notebook, is identified by its code, by the values of the globals that it
uses, and by the functions that it calls. An importable function is identified by its module and its code. For a function of
curator_df, the package name replaces the module, so moving a module inside curator_df does not change the identity of a run.
"""

from __future__ import annotations

import dataclasses
import dis
import functools
import hashlib
import sys
import types
from collections.abc import Callable, Mapping
from typing import Any

import cloudpickle
import numpy as np
import pandas as pd
from dask._task_spec import DataNode, GraphNode
from dask.base import tokenize

_DATA = (np.ndarray, np.generic, pd.DataFrame, pd.Series, pd.Index)
"""Types whose Dask token depends on their content, although Dask does not guarantee that for every dtype."""
_PACKAGE = __name__.partition(".")[0]
_Seen = dict[int, int]
"""Position, by ``id``, of each function, class and container that has been added to the digest."""


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
    seen: _Seen = {}
    for value in values:
        _feed(digest, value, seen)
    return digest.hexdigest()


def _feed(digest: Any, value: Any, seen: _Seen) -> None:
    digest.update(type(value).__name__.encode() + b"\0")
    if value is None or isinstance(value, (str, bytes, bool, int, float, complex)):
        text = value if isinstance(value, bytes) else repr(value).encode()
        digest.update(str(len(text)).encode() + b":" + text)
    elif isinstance(value, (list, tuple, set, frozenset, Mapping)):
        _feed_once(digest, value, seen, _feed_items)
    elif isinstance(value, types.CodeType):
        _feed_code(digest, value, seen)
    elif isinstance(value, types.ModuleType):
        _feed(digest, value.__name__, seen)
    elif isinstance(value, type) and _travels_by_value(value):
        _feed_once(digest, value, seen, _feed_class)
    elif callable(value):
        _feed_callable(digest, value, seen)
    else:
        _feed_value(digest, value, seen)
    digest.update(b"\1")


def _feed_value(digest: Any, value: Any, seen: _Seen) -> None:
    """Add a value that is not callable to the digest."""
    if dataclasses.is_dataclass(value):
        _feed(digest, _fields(value), seen)
    elif isinstance(value, DataNode):
        _feed(digest, value.value, seen)
    elif isinstance(value, np.ndarray) and value.dtype.hasobject:
        _feed(digest, (value.shape, value.ravel().tolist()), seen)
    elif isinstance(value, GraphNode):
        _feed(digest, (value.func, value.args, dict(value.kwargs)) if hasattr(value, "func") else repr(value), seen)
    elif _is_plain_object(value):
        _feed_once(digest, value, seen, _feed_object)
    else:
        digest.update(tokenize(value, ensure_deterministic=not isinstance(value, _DATA)).encode())


def _feed_once(digest: Any, value: Any, seen: _Seen, feed: Callable[[Any, Any, _Seen], None]) -> None:
    """Add a value that may contain itself; a repeated occurrence is replaced by its position."""
    if id(value) in seen:
        digest.update(f"again {seen[id(value)]}".encode())
        return
    seen[id(value)] = len(seen)
    try:
        feed(digest, value, seen)
    finally:
        if isinstance(value, (list, tuple, set, frozenset, Mapping)):  # its id may be reused
            del seen[id(value)]


def _fields(value: Any) -> dict[str, Any]:
    identifying = (field.name for field in dataclasses.fields(value) if field.metadata.get("identity", True))
    return {name: getattr(value, name) for name in identifying}


def _feed_items(digest: Any, value: Any, seen: _Seen) -> None:
    if isinstance(value, Mapping):
        for key in sorted(value, key=repr):
            _feed(digest, key, seen)
            _feed(digest, value[key], seen)
    elif isinstance(value, (set, frozenset)):
        digest.update("".join(sorted(_alone(item, seen) for item in value)).encode())
    else:
        for item in value:
            _feed(digest, item, seen)


def _alone(value: Any, seen: _Seen) -> str:
    """Return the digest of one value, independent of the values around it."""
    digest = hashlib.blake2b(digest_size=16)
    _feed(digest, value, dict(seen))
    return digest.hexdigest()


def _feed_callable(digest: Any, function: Any, seen: _Seen) -> None:
    if isinstance(function, functools.partial):
        _feed(digest, (function.func, function.args, function.keywords), seen)
    elif isinstance(function, types.MethodType):
        _feed(digest, (function.__func__, function.__self__), seen)
    elif isinstance(function, types.FunctionType):
        _feed_once(digest, function, seen, _feed_function)
    elif dataclasses.is_dataclass(function) and not isinstance(function, type):
        _feed(digest, (type(function), _fields(function)), seen)
    elif hasattr(function, "__qualname__"):
        _feed(digest, (_home(function), function.__qualname__), seen)
    elif _is_plain_object(function):
        _feed_once(digest, function, seen, _feed_object)
    else:
        digest.update(tokenize(function, ensure_deterministic=True).encode())


def _feed_function(digest: Any, function: types.FunctionType, seen: _Seen) -> None:
    home = _home(function)
    _feed(digest, (home, function.__qualname__) if home == _PACKAGE else home, seen)
    _feed_code(digest, function.__code__, seen)
    _feed(digest, (function.__defaults__, function.__kwdefaults__), seen)
    for cell in function.__closure__ or ():
        try:
            content = cell.cell_contents
        except ValueError:  # the closure cell is still empty
            digest.update(b"empty")
            continue
        _feed(digest, content, seen)
    if _travels_by_value(function):
        for name in _globals_used(function.__code__):
            if name in function.__globals__:
                _feed(digest, name, seen)
                _feed_global(digest, function.__globals__[name], seen)


def _feed_global(digest: Any, value: Any, seen: _Seen) -> None:
    """Add the value of a global; an object that cannot be pickled, such as an open file, is represented by its type."""
    inner = hashlib.blake2b(digest_size=16)
    try:
        _feed(inner, value, seen)
    except Exception:  # noqa: BLE001 - whatever pickling a strange object raises
        inner = hashlib.blake2b(f"{type(value).__module__}.{type(value).__qualname__}".encode(), digest_size=16)
    digest.update(inner.digest())


def _feed_class(digest: Any, kind: type, seen: _Seen) -> None:
    """Add a class that is pickled by value: its base classes, methods and constants."""
    _feed(digest, (kind.__qualname__, kind.__bases__), seen)
    for name, value in sorted(vars(kind).items()):
        inner = value.fget if isinstance(value, property) else getattr(value, "__func__", value)
        if isinstance(inner, types.FunctionType) or not name.startswith("__"):
            _feed(digest, name, seen)
            _feed_global(digest, inner, seen)


def _feed_object(digest: Any, value: Any, seen: _Seen) -> None:
    _feed(digest, (type(value), vars(value)), seen)


def _is_plain_object(value: Any) -> bool:
    """Return whether an object's class is pickled by value, and its attributes describe it completely."""
    kind = type(value)
    return _travels_by_value(kind) and hasattr(value, "__dict__") and not hasattr(kind, "__dask_tokenize__")


def _feed_code(digest: Any, code: types.CodeType, seen: _Seen) -> None:
    """Add the names, constants and instructions of a function, but not its file and line."""
    _feed(digest, (code.co_code, code.co_names, code.co_varnames, code.co_freevars), seen)
    _feed(digest, tuple(code.co_consts), seen)


def _globals_used(code: types.CodeType) -> list[str]:
    """Return the names of the globals that code reads. Globals that it also sets are state, not settings, and are left out."""
    read, own = set[str](), set[str]()
    waiting = [code]
    while waiting:
        part = waiting.pop()
        waiting += [each for each in part.co_consts if isinstance(each, types.CodeType)]
        for instruction in dis.get_instructions(part):
            if instruction.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
                read.add(instruction.argval)
            elif instruction.opname == "STORE_GLOBAL":
                own.add(instruction.argval)
    return sorted(read - own)


def _home(function: Any) -> str:
    """Return the module of a function or class: only the package for functions of curator_df, nothing for a notebook's."""
    module = function.__module__ or ""
    if module == "__main__":
        return ""
    # Its name and code distinguish it within the package. For a class, only the name is added, so the module stays.
    return _PACKAGE if module.partition(".")[0] == _PACKAGE and isinstance(function, types.FunctionType) else module


def _travels_by_value(value: Any) -> bool:
    """Return whether cloudpickle sends a function or class by value because workers cannot import it by name."""
    name = value.__module__ or ""
    if name.partition(".")[0] in (_PACKAGE, "builtins"):
        return False
    sent = cloudpickle.list_registry_pickle_by_value()
    found: Any = sys.modules.get(name)
    if name == "__main__" or found is None or any(f"{name}.".startswith(f"{module}.") for module in sent):
        return True
    for part in value.__qualname__.split("."):
        found = getattr(found, part, None)
    return found is not value
