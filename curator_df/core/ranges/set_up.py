# SPDX-License-Identifier: Apache-2.0
"""Objects of users that are set up before they are called: once on each machine, once in each process, and taken down after.

An object in the place of a function may have ``setup_on_node()``, ``setup()`` and ``teardown()``, or some of these. It is
pickled as it is when the chain is built; each process makes one of it, which all its threads call (`core.memory.held`).
"""

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

from curator_df.core.files.owner import LOOK_SECONDS, is_running, this_process
from curator_df.core.fingerprint import fingerprint
from curator_df.core.memory.held import held
from curator_df.core.memory.resources import NO_LIMITS, Resources, admitted
from curator_df.core.memory.torch_memory import bound_torch
from curator_df.core.ranges.out_of_memory import is_out_of_memory
from curator_df.core.sizes import read_size
from curator_df.errors import CuratorError, OperatorError, ParameterError

ON_NODE, SETUP, TEARDOWN = METHODS = ("setup_on_node", "setup", "teardown")
DONE = b"done"

_run: ContextVar[str] = ContextVar("run", default="")


@dataclass(frozen=True)
class SetUp:
    """An object with such methods, as it travels to workers; calling it calls the one of this process."""

    name: str
    """Of its class."""
    digest: str
    """What it is and holds."""
    content: bytes = field(repr=False, metadata={"identity": False})
    """The pickled object."""
    has_setup: bool = field(default=False, metadata={"identity": False})
    """Whether it has a ``setup()``."""
    held_bytes: int = field(default=0, metadata={"identity": False})
    """What it holds in each process, as it says itself."""
    device_held_bytes: int | None = field(default=None, metadata={"identity": False})
    """What of it stays on the GPU between calls, as it says itself."""
    resources: Resources = field(default=NO_LIMITS, metadata={"identity": False})
    """What a call takes of its worker, as it says itself."""

    def __call__(self, *given: Any, **named: Any) -> Any:
        """Call the object of this process when there is what it takes; the first who calls sets it up."""
        with admitted(self.taking(self.resources)):
            if self.resources.of_gpu:
                bound_torch()
            return held(self.digest, lambda: InProcess(self, _run.get())).made(*given, **named)

    def taking(self, resources: Resources) -> Resources:
        """Return resources with what the object holds on the GPU in all calls together, whether one runs or not.

        Where it does not say what that is, but has a ``setup()``, it may be all of ``gpu_memory``.
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
        """Raise `ParameterError` if it holds more of a GPU than it asks for."""
        asked = resources.gpu_memory_bytes
        if asked is not None and (self.device_held_bytes or 0) > asked:
            raise ParameterError(
                f"{operator}: {self.name} says that it keeps device_held_bytes={self.device_held_bytes:_} on the GPU, and that "
                f"a call takes gpu_memory={asked:_} in all, which is less"
            )

    def __dask_tokenize__(self) -> str:
        return self.digest


class InProcess:
    """The object of this process, set up."""

    def __init__(self, of: SetUp, run_id: str) -> None:
        self._of = of
        self._marker = _marker(of, run_id) if run_id else None
        self.made = cloudpickle.loads(of.content)
        self._call(ON_NODE, self._once_on_node if self._marker else None)
        self._call(SETUP)

    def close(self) -> None:
        """Take the object down: it is called no more. What was done for the machine stays done until the run ends."""
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
            raise OperatorError(f"{method}() of {self._of.name} raised {type(exc).__name__}: {exc}") from exc

    def _once_on_node(self, function: Callable[[], object]) -> None:
        """Call a function unless another process of this machine has, in this run; wait for one that does it now."""
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
    """Wait until no other process of this machine is here: with a lock on a file, or without where there are no locks."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)  # let go of when the process dies
    except OSError:
        with _alone_without_locks(taken):
            yield
    else:
        yield


@contextlib.contextmanager
def _alone_without_locks(taken: Path) -> Iterator[None]:
    """Wait until a file can be made that is there while a process is here; one that died has left it, which shows."""
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
    # Without words it is being made just now.
    if len(words) == 2 and is_running(int(words[0]), int(words[1])) is False:
        taken.unlink(missing_ok=True)


def set_up(operator: str, function: Any) -> Any:
    """Return an object that is to be set up, or says what a call takes, as a `SetUp`, and any other function as it is.

    Raises
    ------
    ParameterError
        If one of the methods wants to be given something, or the object cannot be called or pickled.
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
            f"{operator}: {name} has {[*methods, 'resources'][0]}, but no __call__; it must be called like a function"
        )
    try:
        content = cloudpickle.dumps(function)
    except Exception as exc:
        raise ParameterError(
            f"{operator}: {name} cannot be sent to workers: {exc}. Make in setup() what cannot be pickled"
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
    """Say of which run this thread does a task."""
    token = _run.set(run_id)
    try:
        yield
    finally:
        _run.reset(token)


def _require_no_parameters(operator: str, name: str, method: Any) -> None:
    try:
        inspect.signature(method).bind()
    except TypeError as exc:
        raise ParameterError(f"{operator}: {name} is called with nothing, but: {exc}") from exc


def _digest(function: Any) -> str:
    """Return what an object does and holds, the same when its class is typed again in a notebook."""
    package = type(function).__module__.partition(".")[0]
    kinds = [kind for kind in type(function).__mro__ if kind.__module__.partition(".")[0] == package]
    code = [{name: _function(value) for name, value in vars(kind).items()} for kind in kinds]
    return fingerprint([kind.__qualname__ for kind in type(function).__mro__], code, getattr(function, "__dict__", {}))


def _function(value: Any) -> types.FunctionType | None:
    """Return the function behind what a class has, if it is one."""
    inner = value.fget if isinstance(value, property) else getattr(value, "__func__", value)
    return inner if isinstance(inner, types.FunctionType) else None


def _marker(of: SetUp, run_id: str) -> Path:
    return Path(tempfile.gettempdir(), f"{_marker_prefix(run_id)}{_short_digest(of.digest)}.once")


def _marker_prefix(run_id: str) -> str:
    # The host's name is in it: a folder for temporary files may be one that several machines see.
    return f"curator-df-{os.getuid()}-{_short_digest(f'{socket.gethostname()} {run_id}')}-"


def _short_digest(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


def forget_run(run_id: str) -> None:
    """Delete what says on this machine that objects of a run were set up there: the run is over."""
    for marker in Path(tempfile.gettempdir()).glob(f"{_marker_prefix(run_id)}*.once"):
        marker.unlink(missing_ok=True)
