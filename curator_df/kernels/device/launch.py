# SPDX-License-Identifier: Apache-2.0
# numba has no types.
# mypy: disable-error-code="untyped-decorator,no-any-return"
"""Arrays of a device and the shape of a launch. In numba's CUDA simulator the arrays are those of the host.

A thread processes texts that are a grid apart, so that working memory is allocated for threads and not for rows. Numba is
imported only when a block is on a device.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from curator_df.kernels.device.support import MOST_THREADS

THREADS_PER_BLOCK = 128
"""Threads of a block: a multiple of a warp; few, because texts differ in length."""


def for_device(function: Any) -> Any:
    """Return a function that was compiled for the CPU with types in a form that a kernel may call.

    Functions without declared types need no such step: numba compiles them for the device where a kernel calls them.
    """
    from numba import cuda

    return cuda.jit(getattr(function, "py_func", function), device=True)


def allocate(shape: int | tuple[int, ...], dtype: Any) -> Any:
    """Return an uninitialized array of a device, from RMM's memory, so that RMM's limit applies to it."""
    from numba import config, cuda

    dtype = np.dtype(dtype)
    shape = (shape,) if isinstance(shape, int) else shape
    if config.ENABLE_CUDASIM:
        return cuda.device_array(shape, dtype)
    import rmm

    # An array without bytes has no address; nor have cuDF's own empty columns.
    return cuda.as_cuda_array(_Owned(rmm.DeviceBuffer(size=max(1, math.prod(shape) * dtype.itemsize)), shape, dtype))


def to_device(values: Any) -> Any:
    """Copy a small table or list of numbers from the host to the device. Texts are never copied with it."""
    values = np.ascontiguousarray(values)
    copied = allocate(values.shape, values.dtype)
    if values.size:
        copied.copy_to_device(values)
    return copied


def array_at(span: Any, length: int, dtype: Any) -> Any:
    """Return a view of the first numbers of memory with another owner (``span.ptr``)."""
    from numba import config, cuda

    dtype = np.dtype(dtype)
    if config.ENABLE_CUDASIM:
        held = (ctypes.c_uint8 * (length * dtype.itemsize)).from_address(span.ptr)
        return cuda.to_device(np.frombuffer(held, dtype=dtype))
    return cuda.as_cuda_array(_Owned(span, (length,), dtype))


def shared_array(values: Any) -> Any:
    """Return an array of another library on the device, such as CuPy, in a form that kernels accept."""
    from numba import config, cuda

    return cuda.to_device(values) if config.ENABLE_CUDASIM else cuda.as_cuda_array(values)


def one_by_one(rows: int, most_threads: int = MOST_THREADS) -> tuple[int, int]:
    """Return blocks and threads of a launch with a thread for each row, up to ``most_threads``."""
    threads = min(THREADS_PER_BLOCK, most_threads)
    return max(1, min(-(-rows // threads), most_threads // threads)), threads


def consecutive(sizes: npt.NDArray[np.int64], most: int) -> Iterator[slice]:
    """Split rows into consecutive parts with sizes of at most ``most`` together, but at least one row.

    Examples
    --------
    >>> [(part.start, part.stop) for part in consecutive(np.array([3, 3, 9, 1]), 6)]
    [(0, 2), (2, 3), (3, 4)]
    """
    ends = np.cumsum(sizes)
    first = 0
    while first < len(sizes):
        before = ends[first - 1] if first else 0
        stop = max(first + 1, int(np.searchsorted(ends, before + most, side="right")))
        yield slice(first, stop)
        first = stop


def starts_of(sizes: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return the starts of contiguous parts of these sizes, and the end of the last.

    Examples
    --------
    >>> starts_of(np.array([3, 9, 1])).tolist()
    [0, 3, 12, 13]
    """
    return np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)


class _Owned:
    """Memory of RMM with a shape, in a form that every array library accepts."""

    def __init__(self, buffer: Any, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        self.buffer = buffer
        self.__cuda_array_interface__ = {
            "shape": shape,
            "typestr": dtype.str,
            "data": (buffer.ptr, False),
            "strides": None,
            "version": 3,
        }
