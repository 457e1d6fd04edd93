# SPDX-License-Identifier: Apache-2.0
"""Stateful functions: users' objects that are set up before use, once per machine and once per process, and torn down later."""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import hashlib
import inspect
import os
import socket
import tempfile
import time
import types
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import cloudpickle

from curator_df.core.fingerprint import fingerprint
from curator_df.core.ranges.out_of_memory import is_out_of_memory
from curator_df.errors import CuratorError, OperatorError, ParameterError, type_and_text
from curator_df.files.owner import LOOK_SECONDS, is_running, this_process
from curator_df.memory.process_cache import cached
from curator_df.memory.resources import NO_LIMITS, Resources, admitted
from curator_df.memory.sizes import read_size
from curator_df.memory.torch_memory import bound_torch

ON_NODE, SETUP, TEARDOWN = METHODS = ("setup_on_node", "setup", "teardown")
DONE = b"done"

_run: ContextVar[str] = ContextVar("run", default="")


@dataclass(frozen=True)
class SetUp:
    """Stateful function in the form in which it is sent to workers; a call is passed to the instance of this process."""

    name: str
    """Name of its class."""
    digest: str
    """Digest of its class and state."""
    content: bytes = field(repr=False, metadata={"identity": False})
    """The pickled object."""
    has_setup: bool = field(default=False, metadata={"identity": False})
    """Whether it has a ``setup()``."""
    held_bytes: int = field(default=0, metadata={"identity": False})
    """Memory of the object in each process in bytes, as it states itself."""
    device_held_bytes: int | None = field(default=None, metadata={"identity": False})
    """Part of its GPU memory that stays in use between calls in bytes, as it states itself."""
    resources: Resources = field(default=NO_LIMITS, metadata={"identity": False})
    """Resources of a call, as it states itself."""

    def __call__(self, *given: Any, **named: Any) -> Any:
        """Call the instance of this process when its resources are free; the first caller sets it up."""
        with admitted(self.taking(self.resources)):
            if self.resources.of_gpu:
                bound_torch()
            return cached(self.digest, lambda: InProcess(self, _run.get())).made(*given, **named)

    def taking(self, resources: Resources) -> Resources:
        """Return resources that include the GPU memory that the object keeps for all calls, whether one runs or not.

        If it does not state this memory, but has a ``setup()``, it may be all of ``gpu_memory``.
        """
        if not resources.of_gpu:
            return resources
        asked, device_held_bytes = resources.gpu_memory_bytes, self.device_held_bytes
        if device_held_bytes is None:
            device_held_bytes = (asked or 0) if self.has_setup else 0
        least = device_held_bytes if asked is None else asked
        return dataclasses.replace(
            resources, least_device_bytes=least, weights=self.digest, weight_bytes=device_held_bytes
        )

    def require_device_room(self, operator: str, resources: Resources) -> None:
        """Raise `ParameterError` if it keeps more GPU memory than it requests."""
        asked = resources.gpu_memory_bytes
        if asked is not None and (self.device_held_bytes or 0) > asked:
            raise ParameterError(
                f"{operator}: {self.name} keeps device_held_bytes={self.device_held_bytes:_} on the GPU, but its "
                f"gpu_memory={asked:_}, the total of a call, is smaller. Raise gpu_memory= or lower device_held_bytes"
            )

    def __dask_tokenize__(self) -> str:
        return self.digest


class InProcess:
    """Instance of this process, set up."""

    def __init__(self, of: SetUp, run_id: str) -> None:
        self._of = of
        self._marker = _marker(of, run_id) if run_id else None
        self.made = cloudpickle.loads(of.content)
        self._call(ON_NODE, self._once_on_node if self._marker else None)
        self._call(SETUP)

    def close(self) -> None:
        """Tear the object down: it is not called any more. The setup of the machine stays until the run ends."""
        self._call(TEARDOWN)

    def _call(self, method: str, around: Callable[[Callable[[], object]], None] | None = None) -> None:
        function = getattr(self.made, method, None)
        if function is None:
            return
        try:
            function() if around is None else around(function)
        except Exception as exc:
            if isinstance(exc, CuratorError) or is_out_of_memory(exc):
                raise
            raise OperatorError(f"{method}() of {self._of.name} raised {type_and_text(exc)}") from exc

    def _once_on_node(self, function: Callable[[], object]) -> None:
        """Call a function once per machine and run; wait if another process of this machine is calling it."""
        flags = os.O_CREAT | os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW
        descriptor = os.open(self._marker, flags, 0o600)  # type: ignore[arg-type]
        try:
            with _alone(descriptor, Path(f"{self._marker}.by")):
                if os.pread(descriptor, len(DONE), 0) != DONE:
                    function()
                    os.pwrite(descriptor, DONE, 0)
        finally:
            os.close(descriptor)


@contextlib.contextmanager
def _alone(descriptor: int, taken: Path) -> Iterator[None]:
    """Wait until no other process of this machine is in this section: by a file lock, or without one if locks are unsupported."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)  # released when the process dies
    except OSError:
        with _alone_without_locks(taken):
            yield
    else:
        yield


@contextlib.contextmanager
def _alone_without_locks(taken: Path) -> Iterator[None]:
    """Wait until a marker file can be created, which exists while a process is in this section; detect one of a dead process."""
    own = this_process()
    while True:
        try:
            descriptor = os.open(taken, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
            break
        except FileExistsError:
            _delete_if_left(taken)
            time.sleep(LOOK_SECONDS)
    try:
        os.write(descriptor, f"{own.pid} {own.started}".encode())
        os.close(descriptor)
        yield
    finally:
        taken.unlink(missing_ok=True)


def _delete_if_left(taken: Path) -> None:
    try:
        words = taken.read_text().split()
    except FileNotFoundError:
        return
    # An empty file is being written at this moment.
    if len(words) == 2 and is_running(int(words[0]), int(words[1])) is False:
        taken.unlink(missing_ok=True)


def set_up(operator: str, function: Any) -> Any:
    """Return a stateful function, or one that states its resources, as a `SetUp`, and any other function unchanged.

    Raises
    ------
    ParameterError
        If one of the methods requires arguments, or the object cannot be called or pickled.
    """
    methods = [name for name in METHODS if callable(getattr(function, name, None))]
    asked = getattr(function, "resources", None)
    resources = asked if isinstance(asked, Resources) else NO_LIMITS
    if isinstance(function, type | SetUp) or (not methods and resources == NO_LIMITS):
        return function
    name = type(function).__name__
    for method in methods:
        _require_no_parameters(operator, f"{name}.{method}", getattr(function, method))
    if not callable(function):
        raise ParameterError(
            f"{operator}: {name} has {[*methods, 'resources'][0]}, but no __call__ method. Add one, so that it can be called"
        )
    try:
        content = cloudpickle.dumps(function)
    except Exception as exc:
        raise ParameterError(
            f"{operator}: {name} cannot be sent to workers: {exc}. In its method setup(), create "
            "the parts that cannot be pickled"
        ) from exc
    given = getattr(function, "held_bytes", 0)
    held_bytes = given if given == 0 else read_size(f"{name}.held_bytes", given)
    on_device = getattr(function, "device_held_bytes", None)
    if on_device:
        on_device = read_size(f"{name}.device_held_bytes", on_device)
    made = SetUp(name, _digest(function), content, SETUP in methods, held_bytes, on_device, resources)
    made.require_device_room(operator, resources)
    return made


@contextlib.contextmanager
def in_run(run_id: str) -> Iterator[None]:
    """Mark this thread as running a task of this run."""
    token = _run.set(run_id)
    try:
        yield
    finally:
        _run.reset(token)


def _require_no_parameters(operator: str, name: str, method: Any) -> None:
    try:
        inspect.signature(method).bind()
    except TypeError as exc:
        raise ParameterError(
            f"{operator}: curator_df calls {name} without arguments, which fails ({exc}). Give each of its parameters a "
            "default value"
        ) from exc


def _digest(function: Any) -> str:
    """Return the digest of an object's code and state, the same when its class is typed again in a notebook."""
    package = type(function).__module__.partition(".")[0]
    kinds = [kind for kind in type(function).__mro__ if kind.__module__.partition(".")[0] == package]
    code = [{name: _function(value) for name, value in vars(kind).items()} for kind in kinds]
    return fingerprint([kind.__qualname__ for kind in type(function).__mro__], code, getattr(function, "__dict__", {}))


def _function(value: Any) -> types.FunctionType | None:
    """Return the function behind a class attribute, if it is one."""
    inner = value.fget if isinstance(value, property) else getattr(value, "__func__", value)
    return inner if isinstance(inner, types.FunctionType) else None


def _marker(of: SetUp, run_id: str) -> Path:
    return Path(tempfile.gettempdir(), f"{_marker_prefix(run_id)}{_short_digest(of.digest)}.once")


def _marker_prefix(run_id: str) -> str:
    # The name contains the host: several machines may share the folder for temporary files.
    return f"curator-df-{os.getuid()}-{_short_digest(f'{socket.gethostname()} {run_id}')}-"


def _short_digest(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


def forget_run(run_id: str) -> None:
    """Delete the marker files of a finished run on this machine."""
    for marker in Path(tempfile.gettempdir()).glob(f"{_marker_prefix(run_id)}*.once"):
        marker.unlink(missing_ok=True)
