# SPDX-License-Identifier: Apache-2.0
"""The folder of compiled kernels: one file for each kernel, named after what it is made of.

A file is found again as long as its sources, numba, llvmlite, NumPy, Python and the CPU are the same, wherever the package is
installed, and whenever. Kernels that came with the package (`shipped_kernels`) are used where the folder has none. Nothing here
imports numba (see `kernel_cache`).

The folder is ``$CURATOR_DF_CACHE``, or ``$NUMBA_CACHE_DIR/curator_df``, or ``curator_df/kernels`` in ``$XDG_CACHE_HOME`` or
``~/.cache``, or, where none can be written to, a folder of this user in the directory for temporary files.
"""

from __future__ import annotations

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
from importlib.metadata import version
from pathlib import Path

from curator_df.kernels.compiling.reached_sources import kernel_digest
from curator_df.kernels.compiling.shipped_kernels import shipped_path

LOG = logging.getLogger("curator_df")

VARIABLE = "CURATOR_DF_CACHE"
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
    return path_of(kernel).exists() or shipped(kernel) is not None


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
    """Tell whether a kernel could be written to the folder, by writing a few bytes there."""
    folder = path_of(kernel).parent
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(bytes(4096))
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
        if path.exists():  # whoever waits for this lock will find the kernel, and nobody will ask for it again
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
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    return folder.is_dir() and os.access(folder, os.W_OK)


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
