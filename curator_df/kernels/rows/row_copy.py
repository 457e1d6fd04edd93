# SPDX-License-Identifier: Apache-2.0
# numba has no types.
# mypy: disable-error-code="untyped-decorator"
"""Compiled copy of the kept rows of a text column into buffers of exactly their size.

Importing this module imports numba and compiles, or loads from the on-disk cache, one function.
"""

from __future__ import annotations

from typing import Any

from curator_df.kernels.compiling.compiled import kernel, types

_SIGNATURE = types.void(
    types.Array(types.uint8, 1, "C", readonly=True),
    types.Array(types.int64, 1, "C", readonly=True),
    types.Array(types.boolean, 1, "C", readonly=True),
    types.uint8[::1],
    types.int64[::1],
)


@kernel(_SIGNATURE)
def copy_rows(data: Any, offsets: Any, keep: Any, copied: Any, copied_offsets: Any) -> None:
    """Append the rows of a span for which ``keep`` is True to ``copied``.

    ``copied_offsets`` has one more entry than rows are kept; its first is the start position in ``copied``.
    """
    row, number = 0, 0
    while row < len(keep):
        if not keep[row]:
            row += 1
            continue
        first, at = row, copied_offsets[number]
        while row < len(keep) and keep[row]:
            number += 1
            row += 1
            copied_offsets[number] = at + offsets[row] - offsets[first]
        copied[at : copied_offsets[number]] = data[offsets[first] : offsets[row]]
