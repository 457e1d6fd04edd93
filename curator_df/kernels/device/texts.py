# SPDX-License-Identifier: Apache-2.0
"""Text column on a device, as the arrays that kernels read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from curator_df.errors import ParameterError
from curator_df.kernels.device.launch import to_device
from curator_df.kernels.metrics.measure import LONGEST_TEXT_BYTES
from curator_df.kernels.text.buffers import TextSpan


@dataclass(frozen=True)
class DeviceTexts:
    """Rows of a text column."""

    data: Any
    """Bytes in UTF-8, uint8."""
    offsets: Any
    """Start of each row in ``data``, and the end of the last, shape (rows + 1), int32 or int64."""
    valid: Any
    """Validity, shape (rows), bool: False for null; of length 0 if there are no nulls."""

    def __post_init__(self) -> None:
        """Raise if a text could be longer than a position in it can express."""
        if len(self.data) > LONGEST_TEXT_BYTES:
            raise ParameterError(
                f"a text column of {len(self.data):,} bytes is too long for one block on a GPU; the limit is "
                f"{LONGEST_TEXT_BYTES:,} bytes. Read the input with a smaller blocksize="
            )

    def __len__(self) -> int:
        return len(self.offsets) - 1


def texts_to_device(span: TextSpan) -> DeviceTexts:
    """Copy texts from the host to the device: for tests and benchmarks, never in an operator."""
    first, last = int(span.offsets[0]), int(span.offsets[-1])
    valid = np.zeros(0, dtype=np.bool_) if span.valid is None else span.valid
    return DeviceTexts(to_device(span.data[first:last]), to_device(span.offsets - first), to_device(valid))
