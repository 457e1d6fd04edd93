# SPDX-License-Identifier: Apache-2.0
"""Make a table while the workers of a cluster start: both take more than a second, each on its own CPU."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from curator_df.memory.small_input import SMALL_INPUT_BYTES, small_input

_call: ContextVar[_Once | None] = ContextVar("beside_start", default=None)


class _Once:
    """A call that is made once; later calls return its result, or raise its error."""

    def __init__(self, call: Callable[[], Any]) -> None:
        self._call: Callable[[], Any] | None = call
        self._result: Any = None
        self._error: Exception | None = None

    def make(self) -> None:
        """Make the call, and keep its error."""
        call, self._call = self._call, None
        if call is not None:
            try:
                self._result = call()
            except Exception as exc:  # noqa: BLE001 - it is raised where the result is requested
                self._error = exc

    def __call__(self) -> Any:
        """Return the result."""
        self.make()
        if self._error is not None:
            raise self._error
        return self._result


@contextmanager
def beside_start(call: Callable[[], Any], *, input_bytes: int | None = None) -> Iterator[Callable[[], Any]]:
    """Make a call while the workers of a cluster start that is started in the block; yield a function that returns its result.

    An error of the call does not disturb the start: it is raised where the result is requested. If ``input_bytes`` are few, the
    cluster consists of threads of this process.

    Examples
    --------
    >>> with beside_start(lambda: 1 + 1) as result:
    ...     make_beside_start()
    >>> result()
    2
    """
    once = _Once(call)
    token = _call.set(once)
    is_small = small_input.set(input_bytes is not None and input_bytes <= SMALL_INPUT_BYTES)
    try:
        yield once
    finally:
        small_input.reset(is_small)
        _call.reset(token)


def make_beside_start() -> None:
    """Make the call of the block in which a cluster starts, unless it was made; do nothing outside of such a block."""
    if (once := _call.get()) is not None:
        once.make()


@contextmanager
def started_with(
    start: Callable[[], Any], call: Callable[[], Any], *, is_first: bool = False, input_bytes: int | None = None
) -> Iterator[tuple[Any, Any]]:
    """Start a cluster for the block, and yield it with the result of a call, which is made meanwhile, or first.

    Parameters
    ----------
    start : callable
        Function that starts the cluster.
    call : callable
        Function without arguments.
    is_first : bool
        Whether to make the call before the start, because it is likely to fail.
    input_bytes : int, optional
        Size of the input on disk, if it is known: a small one needs no worker processes.
    """
    with beside_start(call, input_bytes=input_bytes) as result:
        if is_first:
            result()
        cluster = start()
    with cluster:
        yield cluster, result()
