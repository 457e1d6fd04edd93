# SPDX-License-Identifier: Apache-2.0
# numba has no types.
# mypy: disable-error-code="misc,no-untyped-call,attr-defined"
"""Dispatchers of compiled functions: numba's, for kernels, helpers, and functions that stand for others.

Numba would optimize each function with all that it calls and emit machine code for it, so that the deepest ones are optimized
once per level; only the kernel at the top needs that. So a helper has no machine code of its own. A helper that Python calls, as
tests do, is compiled by numba as usual.
"""

from __future__ import annotations

import contextlib
import gc
import operator
import pickle
from collections.abc import Callable, Iterator
from types import CodeType
from typing import Any

from numba import njit, types
from numba.core import cgutils, sigutils, typed_passes, untyped_passes
from numba.core.caching import _Cache
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import Compiler, CompileResult, DefaultPassBuilder
from numba.core.compiler_lock import global_compiler_lock
from numba.core.compiler_machinery import PassManager, register_pass
from numba.core.lowering import Lower
from numba.core.registry import CPUDispatcher
from numba.core.serialize import dumps
from numba.core.targetconfig import ConfigStack

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
                f"the function {self.name} of curator_df is not compiled, and this process may not compile it: {reason}. "
                "Compile it first with `curator-df warm --all`"
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


_OPTIONS = {"nopython": True, "nogil": True, "boundscheck": None, "forceinline": False}
# No other compiled function takes a kernel or a helper as a value, and Python calls no helper.
_KERNEL_OPTIONS = {**_OPTIONS, "no_cfunc_wrapper": True}
_HELPER_OPTIONS = {**_OPTIONS, "no_cfunc_wrapper": True, "no_cpython_wrapper": True}


@contextlib.contextmanager
def _fewer_collections() -> Iterator[None]:
    """Let Python look for garbage less often while the block runs: numba makes millions of objects that stay for a while."""
    before = gc.get_threshold()
    if before[0]:  # 0 switches the search off
        gc.set_threshold(max(before[0], 20_000), *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)


class KernelDispatcher(CPUDispatcher):
    """A function with one signature that is compiled, or loaded, when it is first called."""

    def __init__(self, function: Any, signature: Any, allocates: bool = True) -> None:
        # Helpers inherit it from the kernel that they are compiled for.
        options = {} if allocates else {"_nrt": False}
        super().__init__(function, targetoptions={**_KERNEL_OPTIONS, **options}, pipeline_class=ShortCompiler)
        self.declared = signature
        self._cache = KernelCache(function)

    @property
    def name(self) -> str:
        """Module and function, as `compile_cache` names a kernel."""
        return self._cache.name

    @property
    def was_loaded(self) -> bool:
        """Whether the kernel came from the folder of compiled kernels."""
        return self._cache.loaded > 0

    def ready(self) -> Any:
        """Compile or load the kernel, unless that is done; return the address of its machine code."""
        args, _ = sigutils.normalize_signature(self.declared)
        with global_compiler_lock:
            if args not in self.overloads:
                with self._cache.claimed(), _fewer_collections():
                    super().compile(self.declared)
                self.disable_compile()
            return self.overloads[args].entry_point

    def compile(self, sig: Any) -> Any:  # noqa: ARG002 - numba asks for the types of a call
        """Compile or load the kernel for the types that it declares, whatever numba asks for."""
        return self.ready()

    def add_overload(self, cres: Any) -> None:
        """Register the machine code, and the environments of the helpers in it, which have none of their own."""
        super().add_overload(cres)
        library = cres.library
        for environment in cres.referenced_envs or cres._find_referenced_environments():
            if library.codegen._engine.is_symbol_defined(environment.env_name):
                library.codegen.set_env(environment.env_name, environment)

    def _compile_for_args(self, *args: Any, **kws: Any) -> Any:  # noqa: ARG002 - of the first call
        self._compilation_chain_init_hook()
        self.ready()
        return self  # which now has what it needs, and converts arguments as numba does


class HelperDispatcher(CPUDispatcher):
    """A function that is compiled into each kernel that calls it, once for all that call it with the same types.

    Whether references to arrays are counted follows from the first of these callers, or from ``borrowing``. This matters
    only where an array is returned: one of the two would free what the other still uses, or never free it.
    """

    def __init__(self, function: Any, options: dict[str, Any]) -> None:
        super().__init__(function, targetoptions={**_HELPER_OPTIONS, **options}, pipeline_class=HelperCompiler)
        self._callable: Any = None
        self._counts_references: dict[Any, bool] = {}

    def add_overload(self, cres: Any) -> None:
        """Register what kernels link. There is nothing that Python could call."""
        target = cres._replace(entry_point=_NoCode())
        self.targetctx.insert_user_function(target.entry_point, target.fndesc, [target.library])
        arguments = tuple(target.signature.args)
        self.overloads[arguments] = target
        self._counts_references[arguments] = self.targetoptions.get("_nrt", _counts_references())

    def get_overload(self, sig: Any) -> Any:
        """Return the code for these types; raise `TypeError` if it returns an array to a caller that counts otherwise."""
        arguments, _ = sigutils.normalize_signature(sig)
        model = self.targetctx.data_model_manager[self.overloads[arguments].signature.return_type]
        if model.contains_nrt_meminfo() and self._counts_references[arguments] != _counts_references():
            raise TypeError(
                f"{self.py_func.__qualname__} returns an array, and is called by functions that count references to arrays and "
                "by others that do not (`borrowing`, `allocates=False`). Return numbers, or write into an array of the caller"
            )
        return super().get_overload(sig)

    def _compile_for_args(self, *args: Any, **kws: Any) -> Any:  # noqa: ARG002 - of a call from Python
        if self._callable is None:
            self._callable = njit(nogil=True)(self.py_func)
        return self._callable


class ChoosingDispatcher(CPUDispatcher):
    """A function that is never compiled: calls go to the one that is chosen for the types of the arguments."""

    def __init__(self, function: Any, choose: Callable[..., Any]) -> None:
        super().__init__(function, targetoptions=dict(_OPTIONS))
        self._choose = choose

    def get_call_template(self, args: Any, kws: Any) -> Any:
        """Return what numba infers types of a call from."""
        return self._choose(*args).get_call_template(args, kws)

    def get_overload(self, sig: Any) -> Any:
        """Return the function that is called for these types."""
        return self._choose(*sig).get_overload(sig)

    def _compile_for_args(self, *args: Any, **kws: Any) -> Any:  # noqa: ARG002 - of a call from Python
        return self.py_func


def _counts_references() -> bool:
    """Return whether references to arrays are counted in the function that is being compiled."""
    flags = ConfigStack().top_or_none()
    return flags is None or bool(flags.nrt)


class _NoCode:
    """Stand-in for the address of a helper: numba finds its code by the identity of this object."""


class HelperLibrary(JITCodeLibrary):
    """The code of a helper, with all that it calls, neither optimized nor turned into machine code."""

    def _optimize_functions(self, ll_module: Any) -> None:
        """Optimize the functions of a module, and not those that it only declares, of which each helper has several."""
        ll_module.data_layout = self._codegen._data_layout
        for function in ll_module.functions:
            if not function.is_declaration:
                passes, builder = self._codegen._function_pass_manager()
                passes.run(function, builder)

    def finalize(self) -> None:
        """Link what the helper calls, and leave the rest to the kernel."""
        self._raise_if_finalized()
        for library in dict.fromkeys(self._linking_libraries):
            if hasattr(library, "_reload_init"):  # since numba 0.63
                self._reload_init.update(library._reload_init)
            self._final_module.link_in(library._get_module_for_linking(), preserve=True)
        self._finalize_dynamic_globals()
        self._finalized = True


class RememberingTypes:
    """Numba's typing context, which remembers the types of operators: inference asks for each in every round."""

    def __init__(self, context: Any) -> None:
        self._context = context

    def __getattr__(self, name: str) -> Any:
        return getattr(self._context, name)

    def resolve_function_type(self, func: Any, args: Any, kws: Any) -> Any:
        """Return the signature of a call of an operator or of another function."""
        if func not in _OPERATORS:
            return self._context.resolve_function_type(func, args, kws)
        key = (func, tuple(args), *kws)
        if key not in _signatures:
            found = self._context.resolve_function_type(func, args, kws)
            if kws or found is None or not found.is_precise():
                return found
            _signatures[key] = found
        return _signatures[key]


_OPERATORS = frozenset(function for function in vars(operator).values() if callable(function))
_signatures: dict[Any, Any] = {}
"""Signatures of operators by the types of their arguments."""


class ShortLower(Lower):
    """Numba's lowering, which does not ask LLVM for the size of every variable where no debugger wants to know it."""

    def alloca_lltype(self, name: str, lltype: Any, datamodel: Any = None) -> Any:
        """Make room for a variable."""
        if self.flags.debuginfo:
            return super().alloca_lltype(name, lltype, datamodel)
        return cgutils.alloca_once(self.builder, lltype, name=name, zfill=False)

    def storevar(self, value: Any, name: str, argidx: int | None = None) -> None:
        """Store a variable; arguments, which hold nothing before, without more."""
        is_slot = name not in self._singly_assigned_vars or self._disable_sroa_like_opt
        if argidx is None or self.flags.debuginfo or not is_slot:
            super().storevar(value, name, argidx)
            return
        self._alloca_var(name, self.typeof(name))
        self.builder.store(value, self.getvar(name))


@register_pass(mutates_CFG=True, analysis_only=False)
class ShortLowering(typed_passes.NativeLowering):
    """Numba's pass, with `ShortLower`."""

    @property
    def lowering_class(self) -> Any:
        """The class that lowers."""
        return ShortLower


@register_pass(mutates_CFG=True, analysis_only=False)
class ArrayRewrites(typed_passes.NopythonRewrites):
    """Numba's pass, where there are expressions of arrays: it joins them, and changes nothing else."""

    def run_pass(self, state: Any) -> bool:
        """Rewrite the function if one of its calls returns an array."""
        returned = (signature.return_type for signature in state.calltypes.values() if signature is not None)
        return any(isinstance(kind, types.Array) for kind in returned) and super().run_pass(state)


_CLOSURES = {untyped_passes.InlineClosureLikes, untyped_passes.MakeFunctionToJitFunction}
_UNUSED = {
    untyped_passes.WithLifting,
    untyped_passes.RewriteDynamicRaises,
    untyped_passes.FindLiterallyCalls,
    untyped_passes.LiteralUnroll,
    typed_passes.DumpParforDiagnostics,
}
"""Passes for what no compiled function of this package has: ``with``, errors with values, literals as types, and loops that
run on several threads."""
_SHORTER = {typed_passes.NativeLowering: ShortLowering, typed_passes.NopythonRewrites: ArrayRewrites}


class ShortCompiler(Compiler):
    """Numba's compiler without the passes that a function does not need."""

    def __init__(self, typingctx: Any, *arguments: Any) -> None:
        super().__init__(typingctx, *arguments)
        self.state.typingctx = RememberingTypes(typingctx)

    def define_pipelines(self) -> list[Any]:
        """Return numba's passes that the function needs."""
        has_closures = any(isinstance(constant, CodeType) for constant in self.state.func_id.code.co_consts)
        unused = _UNUSED if has_closures else _UNUSED | _CLOSURES
        short = PassManager("nopython")
        for step, description in DefaultPassBuilder.define_nopython_pipeline(self.state).passes:
            if step not in unused:
                short.add_pass(_SHORTER.get(step, step), description)
        short.finalize()
        return [short]


class HelperCompiler(ShortCompiler):
    """Numba's compiler, which ends with the code of a `HelperLibrary`."""

    def __init__(
        self, typingctx: Any, targetctx: Any, library: Any, args: Any, return_type: Any, flags: Any, variables: Any
    ) -> None:
        flags.no_compile = True
        super().__init__(typingctx, targetctx, library, args, return_type, flags, variables)
        if self.state.library is None:
            self.state.library = HelperLibrary(self.state.targetctx.codegen(), "helper")
