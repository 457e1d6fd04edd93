# SPDX-License-Identifier: Apache-2.0
"""The folder of compiled kernels: one file for each kernel, named after what it is made of.

A file is found again as long as its sources, numba, llvmlite, NumPy, Python and the CPU are the same, wherever the package is
installed, and whenever. Kernels that came with the package (`shipped_kernels`) are used where the folder has none. Nothing here
imports numba (see `dispatchers`).

The folder is ``$CURATOR_DF_CACHE``, or ``$NUMBA_CACHE_DIR/curator_df``, or ``curator_df/kernels`` in ``$XDG_CACHE_HOME`` or
``~/.cache``, or, where none can be written to, a folder of this user in the directory for temporary files.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import hashlib
import logging
import os
import platform
import stat
import sys
import tempfile
import time
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path

from curator_df.kernels.compiling.shipped_kernels import shipped_path

PACKAGE = Path(__file__).parents[2]
WHOLE_MODULE = "*"
"""Stands for every name of a module."""
NO_PART_OF_IT = {"kernels.compiling.compile_cache", "errors"}
"""Modules that a kernel reaches, and that change nothing of its machine code."""


@dataclass
class _Part:
    """The statements that define one name of a module."""

    text: str = ""
    names: set[str] = field(default_factory=set)


@functools.cache
def kernel_digest(kernel: str) -> str:
    """Return the digest of all that a kernel, named ``module.function``, is made of."""
    module, _, function = kernel.rpartition(".")
    texts = [f"{place} {text}" for place, text in sorted(reached(f"kernels.{module}", function).items()) if text]
    return hashlib.blake2b("\n".join(texts).encode(), digest_size=12).hexdigest()


def reached(module: str, name: str) -> dict[tuple[str, str], str]:
    """Return the text of the statements that a name of a module reaches, by module and name."""
    found: dict[tuple[str, str], str] = {}
    waiting = [(module, name)]
    while waiting:
        place = waiting.pop()
        if place in found or place[0] in NO_PART_OF_IT:
            continue
        parts, imports = _module(place[0])
        names = parts.keys() if place[1] == WHOLE_MODULE else {place[1]} & parts.keys()
        found[place] = "".join(parts[each].text for each in sorted(names))
        waiting += [imports[place[1]]] if place[1] in imports else []
        waiting += [(place[0], other) for each in names for other in parts[each].names]
    return found


@functools.cache
def _module(module: str) -> tuple[dict[str, _Part], dict[str, tuple[str, str]]]:
    """Return the parts of a module by the name that they define, and what it imports from this package."""
    path = _path(module)
    tree = _Plain().visit(ast.parse(path.read_text(encoding="utf-8")))
    parts: dict[str, _Part] = {}
    imports: dict[str, tuple[str, str]] = {}
    for statement in tree.body:
        if isinstance(statement, ast.ImportFrom) and (statement.module or "").startswith("curator_df."):
            imports.update(_imported(statement))
            continue
        names = {node.id for node in ast.walk(statement) if isinstance(node, ast.Name)}
        for node in ast.walk(statement):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("curator_df."):
                imports.update(_imported(node))
        text = ast.dump(statement) + "".join(_data_digests(statement, path.parent))
        for defined in set(_defined(statement)):
            part = parts.setdefault(defined, _Part())
            part.text += text
            part.names |= names - {defined}
    return parts, imports


class _Plain(ast.NodeTransformer):
    """Takes away what no machine code depends on: annotations of functions, and docstrings."""

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.FunctionDef:
        self.generic_visit(node)
        node.returns = None
        for argument in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs):
            argument.annotation = None
        if len(node.body) > 1 and ast.get_docstring(node, clean=False) is not None:
            node.body = node.body[1:]
        return node


def _path(module: str) -> Path:
    path = PACKAGE / f"{module.replace('.', '/')}.py"
    return path if path.exists() else path.with_suffix("") / "__init__.py"


def _imported(statement: ast.ImportFrom) -> Iterator[tuple[str, tuple[str, str]]]:
    module = str(statement.module).removeprefix("curator_df.")
    for alias in statement.names:
        inner = f"{module}.{alias.name}"
        yield alias.asname or alias.name, ((inner, WHOLE_MODULE) if _path(inner).exists() else (module, alias.name))


def _data_digests(statement: ast.stmt, folder: Path) -> Iterator[str]:
    """Yield the digests of the data files of a module's folder that a statement names."""
    for node in ast.walk(statement):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.endswith(".json"):
            path = folder / node.value
            if path.exists():
                yield hashlib.blake2b(path.read_bytes(), digest_size=12).hexdigest()


def _defined(statement: ast.stmt) -> Iterable[str]:
    """Return the names that a statement of a module defines or fills, or in place of which it is compiled."""
    if isinstance(statement, ast.FunctionDef):
        return [statement.name, *_overloaded(statement)]
    if isinstance(statement, ast.ClassDef):
        return [statement.name]
    if isinstance(statement, ast.Import | ast.ImportFrom):
        return [(alias.asname or alias.name).partition(".")[0] for alias in statement.names]
    return _stored(statement)


def _stored(statement: ast.stmt) -> Iterator[str]:
    """Yield the names that a statement assigns to, or whose parts it assigns to, or whose methods it calls."""
    nodes = list(ast.walk(statement))
    # Variables of comprehensions are not the module's.
    inner = {id(name) for node in nodes if isinstance(node, ast.comprehension) for name in ast.walk(node.target)}
    for node in nodes:
        if id(node) in inner:
            continue
        changed: ast.expr | None = None
        if isinstance(node, ast.Name | ast.Subscript | ast.Attribute) and isinstance(node.ctx, ast.Store):
            changed = node
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            changed = node.value.func
        while isinstance(changed, ast.Subscript | ast.Attribute):
            changed = changed.value
        if isinstance(changed, ast.Name):
            yield changed.id


def _overloaded(function: ast.FunctionDef) -> Iterator[str]:
    for decorator in function.decorator_list:
        if isinstance(decorator, ast.Call) and isinstance(decorator.func, ast.Name) and decorator.func.id == "overload":
            yield from (argument.id for argument in decorator.args if isinstance(argument, ast.Name))


LOG = logging.getLogger("curator_df")

VARIABLE = "CURATOR_DF_CACHE"
LARGEST_BYTES = 2_000_000
"""Size of the largest compiled kernel, in bytes, rounded up."""
MOST_BYTES = 300_000_000
"""Bytes of the folder, above which the kernels that were not loaded for longest are deleted. All of them take 10 MB."""
UNUSED_SECONDS = 90 * 86400.0
"""After this long without being loaded, a kernel is deleted."""
WAIT_SECONDS = 600.0
"""Time that a process waits for another one that compiles the same kernel, before it compiles the kernel itself."""
_ABANDONED_SECONDS = 86400.0
_USED_SECONDS = 86400.0
_DIGEST_BYTES = 16
_warned: set[str] = set()
"""Messages about the folder that this process has reported, each once."""
_refusals: list[str] = []
"""Why this process may not compile."""


def refuse_to_compile(reason: str) -> None:
    """Make every kernel that is not compiled an error in this process from now on."""
    _refusals[:] = [reason]


def why_not_compile() -> str:
    """Return the reason of `refuse_to_compile`; empty in a process that may compile."""
    return "".join(_refusals)


def cache_folder() -> Path:
    """Return the folder of compiled kernels of this user; it may not exist yet."""
    if (named := _named_folder()) is not None:
        return named
    home = _home() / "kernels"
    return home if _can_be_made(home) else _temporary_folder(home)


def kept_folder(name: str) -> Path | None:
    """Return a folder of this user for something else that is made once; None where none can be made."""
    folder = (_named_folder() or _home()) / name
    return folder if _can_be_made(folder) else None


def path_of(kernel: str) -> Path:
    """Return where a kernel, named ``module.function``, is once it is compiled for this machine."""
    return cache_folder() / _environment() / f"{kernel}-{kernel_digest(kernel)}.nbc"


def shipped(kernel: str) -> Path | None:
    """Return the file of a kernel that came with the package; None if there is none, or settings of numba ask for other code."""
    return None if any(name in os.environ for name in _SETTINGS) else shipped_path(kernel, kernel_digest(kernel))


def is_compiled(kernel: str) -> bool:
    """Tell whether a kernel can be loaded by a process like this one."""
    return os.path.exists(path_of(kernel)) or shipped(kernel) is not None


def missing_kernels(kernels: Iterable[str]) -> list[str]:
    """Return the kernels that are not compiled, in order, each once; none where numba's compiler is switched off."""
    if os.environ.get("NUMBA_DISABLE_JIT", "0") not in {"", "0"}:
        return []
    return [kernel for kernel in dict.fromkeys(kernels) if not is_compiled(kernel)]


def read_kernel(path: Path) -> bytes | None:
    """Return the bytes that were written for a kernel; None where there are none, or they are damaged."""
    try:
        with open(path, "rb") as file:
            digest, data = file.read(_DIGEST_BYTES), file.read()
            used = os.fstat(file.fileno()).st_mtime
    except OSError:
        return None
    if hashlib.blake2b(data, digest_size=_DIGEST_BYTES).digest() != digest:
        LOG.warning("the compiled kernel %s is damaged: it is compiled again", path)
        return None
    if time.time() - used > _USED_SECONDS:
        with contextlib.suppress(OSError):  # of somebody else, who may only be read
            os.utime(path)
    return data


def write_kernel(path: Path, data: bytes) -> bool:
    """Write a kernel, whole or not at all, and delete old ones; tell whether it could be written."""
    unfinished = path.with_name(f"{path.name}.{uuid.uuid4().hex[:12]}.tmp")
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            with open(unfinished, "wb") as file:
                file.write(hashlib.blake2b(data, digest_size=_DIGEST_BYTES).digest() + data)
            os.replace(unfinished, path)
        except BaseException:
            unfinished.unlink(missing_ok=True)
            raise
    except OSError as exc:
        _warn_once(
            f"compiled kernels cannot be written to {path.parent} ({exc.strerror or exc}): each process compiles them again, in "
            f"its own memory. Set {VARIABLE} to a folder that you can write to and that has 100 MB free"
        )
        return False
    prune(cache_folder())
    return True


def can_write(kernel: str) -> bool:
    """Tell whether a kernel could be written to the folder, by reserving as many bytes there as the largest takes."""
    folder = path_of(kernel).parent
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder) as file:
            os.posix_fallocate(file.fileno(), 0, LARGEST_BYTES)
    except OSError:
        return False
    return True


@contextlib.contextmanager
def claimed(path: Path) -> Iterator[None]:
    """Hold the right to compile a kernel while the block runs, so that of many processes one compiles it.

    Without a lock where the file system has none, and after `WAIT_SECONDS`.
    """
    lock = path.with_suffix(".lock")
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError:  # `write_kernel` says what is wrong
        yield
        return
    try:
        _wait_for(descriptor, path)
        yield
        if os.path.exists(path):  # whoever waits for this lock will find the kernel, and nobody will ask for it again
            lock.unlink(missing_ok=True)
    finally:
        os.close(descriptor)  # which unlocks it


def prune(folder: Path) -> None:
    """Delete kernels that have not been loaded for `UNUSED_SECONDS`, and the oldest ones beyond `MOST_BYTES`."""
    now, kept_bytes = time.time(), 0
    for used, size, path in sorted(_files(folder), reverse=True):
        is_kernel = path.suffix == ".nbc"
        kept_bytes += size
        if now - used > (UNUSED_SECONDS if is_kernel else _ABANDONED_SECONDS) or (
            is_kernel and kept_bytes > MOST_BYTES
        ):
            with contextlib.suppress(OSError):  # another process may have deleted it
                path.unlink()


def _files(folder: Path) -> Iterator[tuple[float, int, Path]]:
    for path in folder.glob("*/*"):
        if path.suffix in {".nbc", ".tmp", ".lock"}:
            with contextlib.suppress(OSError):
                found = path.stat()
                yield found.st_mtime, found.st_size, path


def _wait_for(descriptor: int, path: Path) -> None:
    import fcntl

    stop = time.monotonic() + WAIT_SECONDS
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > stop:
                LOG.warning(
                    "another process has been compiling %s for %.0f s: it is compiled here too", path, WAIT_SECONDS
                )
                return
            time.sleep(0.05)
        except OSError as exc:
            _warn_once(
                f"{path.parent} has no file locks ({exc.strerror or exc}): processes that start together may each compile the "
                f"same kernels. Set {VARIABLE} to a folder on a local disk"
            )
            return
        else:
            return


def _warn_once(message: str) -> None:
    if message not in _warned:
        _warned.add(message)
        LOG.warning("%s", message)


@functools.cache
def _environment() -> str:
    """Return the name of the folder for what machine code depends on beyond its sources."""
    settings = sorted(f"{name}={value}" for name, value in os.environ.items() if name in _SETTINGS)
    versions = [version(package) for package in ("numba", "llvmlite", "numpy")]
    about = [*versions, sys.version, platform.machine(), _cpu(), *settings]
    digest = hashlib.blake2b("\n".join(about).encode(), digest_size=8).hexdigest()
    return f"numba{versions[0]}-{sys.implementation.cache_tag}-{platform.machine()}-{digest}"


_SETTINGS = {
    f"NUMBA_{name}"
    for name in (
        "CPU_NAME",
        "CPU_FEATURES",
        "OPT",
        "LOOP_VECTORIZE",
        "SLP_VECTORIZE",
        "BOUNDSCHECK",
        "ENABLE_AVX",
        "DEBUGINFO",
    )
}
"""Settings of numba that change what it compiles."""


def _cpu() -> str:
    """Return what numba compiles for: code for one CPU is of no use to another."""
    about = ("model name", "flags", "Features", "CPU implementer", "CPU part")
    with contextlib.suppress(OSError), open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
        return "".join(sorted({line for line in file if line.startswith(about)}))
    return platform.processor()


def _named_folder() -> Path | None:
    if given := os.environ.get(VARIABLE):
        return Path(given)
    given = os.environ.get("NUMBA_CACHE_DIR")
    return Path(given) / "curator_df" if given else None


def _home() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")) / "curator_df"


def _can_be_made(folder: Path) -> bool:
    """Tell whether this user can write to a folder, or make it."""
    if not folder.is_absolute():  # a user without a home
        return False
    while not os.path.exists(folder) and folder != folder.parent:
        folder = folder.parent
    return os.path.isdir(folder) and os.access(folder, os.W_OK)


def _temporary_folder(home: Path) -> Path:
    """Return a folder in the directory for temporary files that belongs to this user alone: what is in it is run."""
    try:
        folder = Path(tempfile.gettempdir()) / f"curator-df-kernels-{os.getuid()}"
    except FileNotFoundError:  # `start_cluster` names what is missing
        return home
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        found = os.lstat(folder)
    except OSError:
        return home
    is_ours = stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid()
    if not is_ours or stat.S_IMODE(found.st_mode) & 0o077:
        folder = Path(tempfile.mkdtemp(prefix=f"{folder.name}-"))  # that one is somebody else's, or open to others
    os.environ[VARIABLE] = str(folder)  # also for processes that this one starts
    _warn_once(
        f"compiled kernels are kept in {folder}, because {home} cannot be written to: after a restart of the machine they are "
        f"compiled again. Set {VARIABLE} to a folder of yours to keep them"
    )
    return folder
