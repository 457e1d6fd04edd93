# SPDX-License-Identifier: Apache-2.0
"""Where a model computes and in which numbers: on CPUs or on the worker's GPU, as float32 or bfloat16; and what was held there.

Where bfloat16 is asked for, products of matrices are made of it, and what needs more of float32, as ``torch.autocast`` has
it. The part for GPUs has not run on one yet.
"""

from __future__ import annotations

import contextlib
from typing import Any, Literal

from curator_df.core.columns import choose
from curator_df.core.memory.limits import status_bytes
from curator_df.core.memory.torch_memory import bound_torch, torch_peaks
from curator_df.core.receipts.model_figures import PEAKS
from curator_df.errors import ParameterError

Device = Literal["cpu", "cuda"]
Numbers = Literal["float32", "bfloat16"]
"""Of products of matrices."""
Dtype = Literal["auto", "float32", "bfloat16"]
"""The same as users say it; ``"auto"``: bfloat16 on a GPU, float32 on CPUs."""


def chosen_numbers(operator: str, compute_dtype: Dtype, device: Device) -> Numbers:
    """Return in which numbers a model computes.

    Examples
    --------
    >>> chosen_numbers("add_class", "auto", "cpu"), chosen_numbers("add_class", "auto", "cuda")
    ('float32', 'bfloat16')
    """
    choose(operator, "compute_dtype", compute_dtype, Dtype)
    if compute_dtype != "auto":
        return compute_dtype
    return "bfloat16" if device == "cuda" else "float32"


def open_device(torch: Any, name: str, device: Device, numbers: Numbers) -> None:
    """Make a device ready for a model: bound what torch takes of it, and measure from here on.

    Raises
    ------
    ParameterError
        If it is not there, or does not have such numbers.
    """
    if device == "cpu":
        return
    if not torch.cuda.is_available():
        raise ParameterError(
            f"the model {name!r} is to run on a GPU, and this torch ({torch.__version__}) sees none; install the build of torch "
            "for CUDA, or leave gpus= and gpu_memory= out of its resources"
        )
    if numbers == "bfloat16" and not torch.cuda.is_bf16_supported(including_emulation=False):
        raise ParameterError(
            f"the model {name!r}: {torch.cuda.get_device_name()} has no bfloat16; say compute_dtype='float32'"
        )
    bound_torch()


def computing_in(torch: Any, device: Device, numbers: Numbers) -> contextlib.AbstractContextManager[Any]:
    """Let a model compute in such numbers meanwhile."""
    if numbers == "float32":
        return contextlib.nullcontext()
    # A weight is made bfloat16 where it is used, and let go of: kept, all of them would be held by each call.
    autocast: contextlib.AbstractContextManager[Any] = torch.autocast(device, torch.bfloat16, cache_enabled=False)
    return autocast


def peaks(device: Device = "cpu") -> dict[str, int]:
    """Return the most bytes that this process held: resident, and on the GPU in this run, where torch has used it."""
    found = {PEAKS[2]: status_bytes("VmHWM")}
    return found | torch_peaks() if device == "cuda" else found
