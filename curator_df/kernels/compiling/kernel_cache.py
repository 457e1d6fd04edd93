# SPDX-License-Identifier: Apache-2.0
# numba has no types.
# mypy: disable-error-code="misc,no-untyped-call"
"""Interface through which numba asks for a compiled kernel, and stores one: the folder of `compile_cache`."""

from __future__ import annotations

import contextlib
import pickle
from collections.abc import Iterator
from typing import Any

from numba.core.caching import _Cache
from numba.core.compiler import CompileResult
from numba.core.serialize import dumps

from curator_df.errors import KernelNotCompiledError
from curator_df.kernels.compiling import compile_cache


class KernelCache(_Cache):
    """The compiled form of one kernel on disk."""

    def __init__(self, function: Any) -> None:
        self.name = f"{function.__module__.removeprefix('curator_df.kernels.')}.{function.__name__}"
        self.loaded = 0

    @property
    def cache_path(self) -> str:
        """The folder of compiled kernels."""
        return str(compile_cache.cache_folder())

    @contextlib.contextmanager
    def claimed(self) -> Iterator[None]:
        """Hold the right to compile this kernel while the block runs; at once where it is compiled."""
        if compile_cache.is_compiled(self.name):
            yield
            return
        if (reason := compile_cache.why_not_compile()) and compile_cache.can_write(self.name):
            raise KernelNotCompiledError(
                f"the kernel {self.name} is not compiled, and this process may not compile it: {reason}. "
                f"Compile it first with `curator-df warm --all`"
            )
        with compile_cache.claimed(compile_cache.path_of(self.name)):
            yield

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """Load the kernel, if it is there and was compiled for this CPU, or came with the package for all CPUs like it."""
        data = compile_cache.read_kernel(compile_cache.path_of(self.name))
        shipped = None if data is not None else compile_cache.shipped(self.name)
        if shipped is not None:
            data = compile_cache.read_kernel(shipped)
        if data is None:
            return None
        target_context.refresh()
        target, wanted, result = pickle.loads(data)  # noqa: S301 - of this user's own folder, or of the package
        here = target_context.codegen().magic_tuple()
        fits = (
            target[0] == here[0] if shipped is not None else target == here
        )  # its folder says that this CPU has the baseline
        if not fits or wanted != str(sig):
            return None
        self.loaded += 1
        return CompileResult._rebuild(target_context, *result)

    def save_overload(self, sig: Any, data: Any) -> None:
        """Write the kernel after it was compiled."""
        entry = (data.codegen.magic_tuple(), str(sig), data._reduce())
        compile_cache.write_kernel(compile_cache.path_of(self.name), dumps(entry))

    def enable(self) -> None:
        """Do nothing: the folder is always used."""

    def disable(self) -> None:
        """Do nothing: the folder is always used."""

    def flush(self) -> None:
        """Delete the compiled kernel."""
        compile_cache.path_of(self.name).unlink(missing_ok=True)
