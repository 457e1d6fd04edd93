# SPDX-License-Identifier: Apache-2.0
"""Decorators of compiled functions: `kernel` for those that Python calls, `helper` and `inlined` for those that kernels call.

A kernel is compiled for the one signature that it declares, when it is first called, or loaded from the folder of compiled
kernels (`compile_cache`). Importing a module that has some compiles nothing, and does not even import numba: what stands in the
module makes numba's dispatcher (`dispatchers`) when it is first needed, and numba takes it for that dispatcher. `types`
stands for ``numba.types`` in the same way, for signatures and for casts in compiled code.

A helper has no machine code of its own; it is compiled into each kernel that calls it.
"""

from __future__ import annotations

import functools
import os
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from importlib import import_module
from typing import Any

import numpy as np

_lock = threading.RLock()
_waiting: list[Callable[[], Any]] = []
"""Registrations with numba that wait until it compiles something, see `overload`."""


def _is_disabled() -> bool:
    """Return whether numba's compiler is switched off, as ``NUMBA_DISABLE_JIT`` does."""
    numba = sys.modules.get("numba")
    if numba is not None:
        return bool(numba.config.DISABLE_JIT)
    return os.environ.get("NUMBA_DISABLE_JIT", "0") not in ("", "0")


class LazyFunction:
    """Stand-in for one of numba's functions, which is made when it is first needed."""

    def __init__(self, function: Callable[..., Any], make: Callable[[], Any]) -> None:
        functools.update_wrapper(self, function)
        self.py_func, self._make = function, make
        self._made: Any = None

    @property
    def made(self) -> Any:
        """Numba's function."""
        if self._made is None:
            with _lock:
                while _waiting:
                    _waiting.pop()()
                if self._made is None:
                    self._made = self._make()
        return self._made

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        """Class of numba's function where numba is in use: it tells the kinds of functions apart by their classes."""
        return type(self.made) if "numba" in sys.modules else LazyFunction

    @property
    def _numba_type_(self) -> Any:
        if hasattr(self.made, "_numba_type_"):
            return self.made._numba_type_
        known = import_module("numba.core.typing.templates").builtin_registry.globals
        return next(kind for value, kind in reversed(known) if value is self.made)  # an intrinsic

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        """Call numba's function."""
        return self.made(*arguments, **named)

    def __reduce_ex__(self, protocol: Any) -> str:
        """Return the name under which the module has it: with numba in use, a pickle would ask numba's class otherwise."""
        return self.__reduce__()

    def __reduce__(self) -> str:
        return str(self.py_func.__qualname__)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.made, name)


class LazyType:
    """Stand-in for ``numba.types``, and for what is made of it, such as the signature of a kernel."""

    def __init__(self, make: Callable[[], Any]) -> None:
        self._make = make
        self._parts: dict[str, LazyType] = {}

    @functools.cached_property
    def made(self) -> Any:
        """Numba's object."""
        return self._make()

    @property
    def _numba_type_(self) -> Any:
        numba_types = import_module("numba").types
        return numba_types.Module(numba_types) if self.made is numba_types else self.made._numba_type_

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        """Return a stand-in for the type, or signature, that numba's object makes of others; a number where it casts one."""
        if arguments and all(isinstance(value, int | float | np.generic) for value in arguments):
            return self.made(*arguments, **options)  # a cast, in code that Python runs
        return LazyType(lambda: self.made(*map(made_type, arguments), **options))

    def __getitem__(self, key: Any) -> LazyType:
        return LazyType(lambda: self.made[key])

    def __getattr__(self, name: str) -> LazyType:
        if name.startswith("__"):
            raise AttributeError(name)
        return self._parts.setdefault(name, LazyType(lambda: getattr(self.made, name)))


def made_type(value: Any) -> Any:
    """Return numba's object for what stands for it, also in tuples."""
    if isinstance(value, tuple):
        return tuple(made_type(one) for one in value)
    return value.made if isinstance(value, LazyType) else value


types: Any = import_module("numba").types if _is_disabled() else LazyType(lambda: import_module("numba").types)


def kernel(signature: Any, *, allocates: bool = True) -> Callable[[Callable[..., Any]], Any]:
    """Make a function a kernel: compiled for this signature, without the GIL, when it is first called.

    A kernel that creates no array is faster with ``allocates=False``: numba then counts no references to arrays. It counts them
    with atomic instructions around each call of a helper and for each array of a tuple: measured, up to 90% of a kernel's time.
    """
    return _decorator(
        lambda dispatchers, function: dispatchers.KernelDispatcher(function, made_type(signature), allocates)
    )


def helper(function: Callable[..., Any]) -> Any:
    """Make a function one that kernels call. LLVM chooses where it is inlined."""
    return _decorator(lambda dispatchers, function: dispatchers.HelperDispatcher(function, {}))(function)


def inlined(function: Callable[..., Any]) -> Any:
    """Make a function one that kernels call, and that LLVM always inlines.

    Numba's own ``inline="always"`` copies the function into each caller before types are inferred, which takes longer than all
    else.
    """
    options = {"forceinline": True}
    return _decorator(lambda dispatchers, function: dispatchers.HelperDispatcher(function, options))(function)


def borrowing(function: Callable[..., Any]) -> Any:
    """Make a function one that kernels call, and that creates no array, nor does any function that it calls.

    Numba counts no references to arrays in these functions, as with ``allocates=False`` in the kernel; the kernel itself may
    create the arrays that it passes to them. Measured: NeMo's repeated n-grams take 10% less time.
    """
    options = {"_nrt": False}
    return _decorator(lambda dispatchers, function: dispatchers.HelperDispatcher(function, options))(function)


def copied(function: Callable[..., Any]) -> Any:
    """Make a function one that numba copies into each caller, before types are inferred.

    This takes longer than `inlined`. It is for loops that call with arrays, to which numba counts a reference around each call:
    measured, n-grams take 5% less time.
    """
    options = {"inline": "always"}
    return _decorator(lambda dispatchers, function: dispatchers.HelperDispatcher(function, options))(function)


def chosen(choose: Callable[..., Any]) -> Callable[[Callable[..., Any]], Any]:
    """Make a function stand for others: ``choose(*types)`` returns the kernel or helper that is called for these types.

    Numba's ``@overload`` would compile and optimize a function around each of them.
    """
    return _decorator(lambda dispatchers, function: dispatchers.ChoosingDispatcher(function, choose))


def intrinsic(**options: Any) -> Callable[[Callable[..., Any]], Any]:
    """Make a function that returns LLVM code, numba's ``intrinsic``, one that kernels call."""

    def decorate(function: Callable[..., Any]) -> Any:
        def make() -> Any:
            decorator = import_module("numba.extending").intrinsic
            return decorator(**options)(function) if options else decorator(function)

        return LazyFunction(function, make)

    return decorate


def overload(function: Callable[..., Any], **options: Any) -> Callable[[Callable[..., Any]], Any]:
    """Say what numba compiles in place of a function of Python, numba's ``overload``."""

    def decorate(implementation: Callable[..., Any]) -> Any:
        _waiting.append(lambda: import_module("numba.extending").overload(function, **options)(implementation))
        return implementation

    return decorate


def _decorator(make: Callable[[Any, Callable[..., Any]], Any]) -> Callable[[Callable[..., Any]], Any]:
    def decorate(function: Callable[..., Any]) -> Any:
        return function if _is_disabled() else LazyFunction(function, lambda: make(_dispatchers(), function))

    return decorate


def _dispatchers() -> Any:
    from curator_df.kernels.compiling import dispatchers

    return dispatchers


def kernel_named(name: str) -> Any:
    """Return the kernel that is named ``module.function``."""
    module, _, function = name.rpartition(".")
    return getattr(import_module(f"curator_df.kernels.{module}"), function)


def compile_named(names: Iterable[str]) -> Iterator[str]:
    """Compile or load kernels that are named ``module.function``; yield each name when it is done."""
    for name in names:
        kernel_named(name).ready()
        yield name
