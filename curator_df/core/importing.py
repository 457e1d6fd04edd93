# SPDX-License-Identifier: Apache-2.0
"""Import modules when they are first needed: names of a package, and actions that wait for another package.

``import curator_df`` takes milliseconds this way, and a process, such as a worker, imports only what it uses.
"""

from __future__ import annotations

import gc
import importlib
import importlib.util
import inspect
import sys
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from typing import Any

from curator_df.core.calls import public, show_choices
from curator_df.suggestions import no_such_name


def lazy_names(package: str, places: Mapping[str, str], namespace: MutableMapping[str, Any]) -> Callable[[str], Any]:
    """Return a function ``__getattr__`` for a package, which imports a name when it is first used.

    Parameters
    ----------
    package : str
        Name of the package.
    places : mapping of str to str
        Where each name comes from, below the package: ``"module:name"``, or ``"module"`` for the module itself.
    namespace : mutable mapping
        Globals of the package, which keep what was imported.
    """
    refuse = no_such_name(package, [name for name in places if name in namespace["__all__"]])

    def find(name: str) -> Any:
        if name not in places:
            return refuse(name)
        if name in namespace:  # asked for by name, as methods of tables do
            return namespace[name]
        module, _, member = places[name].partition(":")
        with without_collections():
            found = importlib.import_module(f"{package}.{module}")
        value = getattr(found, member) if member else found
        if inspect.isclass(value):
            show_choices(value)
        # Another thread may have imported it since: a function has one identity.
        return namespace.setdefault(name, public(value, package) if inspect.isfunction(value) else value)

    return find


@contextmanager
def without_collections() -> Iterator[None]:
    """Import in a block without collecting garbage: what is imported stays. Collections took 0.2 of 0.9 s, and freed 0.8 MB."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


def when_imported(module: str, act: Callable[[], object]) -> None:
    """Call a function as soon as a module has been imported: now, if it already is."""
    if module in sys.modules:
        act()
    else:
        sys.meta_path.insert(0, _Waiting(module, act))


class _Waiting(MetaPathFinder):
    """Finder of one module, which lets the other finders find it and calls a function after it has run."""

    def __init__(self, module: str, act: Callable[[], object]) -> None:
        self._module, self._act, self._is_asking = module, act, False

    def find_spec(self, fullname: str, path: object = None, target: object = None) -> ModuleSpec | None:  # noqa: ARG002
        """Return the module as the other finders find it; None for any other module."""
        if fullname != self._module or self._is_asking:
            return None
        self._is_asking = True
        try:
            spec = importlib.util.find_spec(fullname)
        finally:
            self._is_asking = False
        if spec is None or spec.loader is None:
            return spec
        run = spec.loader.exec_module

        def exec_module(module: Any) -> None:
            run(module)
            if self in sys.meta_path:
                sys.meta_path.remove(self)
                self._act()

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec
