# SPDX-License-Identifier: Apache-2.0
"""Choose a model's number format, check that the GPU supports it, limit GPU memory, and report peak memory.

With bfloat16, matrix products use it, and operations that need more precision use float32, as in ``torch.autocast``.
The part for GPUs has not run on one yet.
"""

from __future__ import annotations

import contextlib
from typing import Any, Literal

from curator_df.arguments import choose
from curator_df.errors import ParameterError
from curator_df.memory.system import status_bytes
from curator_df.memory.torch_memory import bound_torch, torch_peaks
from curator_df.receipts.model_figures import PEAKS

Device = Literal["cpu", "cuda"]
Numbers = Literal["float32", "bfloat16"]
"""Number format of matrix products."""
Dtype = Literal["auto", "float32", "bfloat16"]
"""Number format as set by users; ``"auto"``: bfloat16 on a GPU, float32 on CPUs."""


def chosen_numbers(operator: str, compute_dtype: Dtype, device: Device) -> Numbers:
    """Return the number format of a model's computation.

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
    """Prepare a device for a model: limit the memory that torch uses on it, and start measuring.

    Raises
    ------
    ParameterError
        If the device does not exist, or does not have this number format.
    """
    if device == "cpu":
        return
    if not torch.cuda.is_available():
        raise ParameterError(
            f"the model {name!r} should run on a GPU, but torch {torch.__version__} finds none on this machine. Install the "
            "build of torch for CUDA, or remove gpus= and gpu_memory= from the model's resources"
        )
    if numbers == "bfloat16" and not torch.cuda.is_bf16_supported(including_emulation=False):
        raise ParameterError(
            f"the model {name!r} should compute in bfloat16, but the GPU {torch.cuda.get_device_name()} does not have this "
            "number format. Use cdf.model(..., compute_dtype='float32')"
        )
    bound_torch()


def computing_in(torch: Any, device: Device, numbers: Numbers) -> contextlib.AbstractContextManager[Any]:
    """Let a model compute in this number format within the context."""
    if numbers == "float32":
        return contextlib.nullcontext()
    # A weight is converted to bfloat16 when it is used, and then released: otherwise each call would hold all of them.
    autocast: contextlib.AbstractContextManager[Any] = torch.autocast(device, torch.bfloat16, cache_enabled=False)
    return autocast


def peaks(device: Device = "cpu") -> dict[str, int]:
    """Return the peak bytes of this process: resident, and on the GPU in this run if torch has used it."""
    found = {PEAKS[2]: status_bytes("VmHWM")}
    return found | torch_peaks() if device == "cuda" else found
