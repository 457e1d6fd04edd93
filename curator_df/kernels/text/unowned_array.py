# SPDX-License-Identifier: Apache-2.0
# numba has no types.
# mypy: disable-error-code="untyped-decorator,no-any-return"
"""Arrays whose references are not counted, for compiled functions that call others for every few bytes.

numba counts a reference to each array around a call, with an atomic instruction for which the threads of a worker compete.
Functions that other compiled functions call; nothing is compiled here.
"""

from __future__ import annotations

from typing import Any

from curator_df.kernels.compiling.compiled import intrinsic


@intrinsic()
def borrowed(typing_context: Any, array: Any) -> Any:  # noqa: ARG001 - numba gives it
    """Return the array without its owner, valid as long as the caller holds the array itself."""

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        from numba.core import cgutils

        kind = signature.args[0]
        view = context.make_array(kind)(context, builder, arguments[0])
        view.meminfo = cgutils.get_null_value(view.meminfo.type)
        view.parent = cgutils.get_null_value(view.parent.type)
        return view._getvalue()

    return array(array), code
