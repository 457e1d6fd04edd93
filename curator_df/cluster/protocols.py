# SPDX-License-Identifier: Apache-2.0
"""What scheduler and workers of a cluster on this machine talk in: TCP, or UCX, which takes NVLink where GPUs have it."""

from __future__ import annotations

from typing import Any

from distributed.security import Security

from curator_df.core.extras import require_package
from curator_df.core.memory.budget import Layout
from curator_df.core.sizes import show_size
from curator_df.errors import ParameterError

PROTOCOLS = ("tcp", "ucx")
UCX_REMARK = "UCX, which listens on every network of this machine and has no TLS"
"""distributed-ucxx 0.52 gives its listener no address, so it takes them all."""


def protocol_arguments(protocol: str, security: Security | None) -> dict[str, Any]:
    """Return what Dask's and dask-cuda's clusters are told of the protocol.

    Nothing of single transports: where none is named, UCX takes the best that both sides have, NVLink among them.

    Raises
    ------
    ParameterError
        If there is no such protocol, or TLS is asked for, which UCX does not have.
    MissingExtraError
        If the package of the protocol is not installed.
    """
    if protocol not in PROTOCOLS:
        raise ParameterError(f"protocol={protocol!r} must be one of {', '.join(map(repr, PROTOCOLS))}")
    if protocol == "tcp":
        return {"security": security}
    if security is not None:
        raise ParameterError("protocol='ucx' has no TLS: leave security= out, on a network that you trust, or take TCP")
    require_package("protocol='ucx'", "distributed_ucxx", "ucx")
    return {"protocol": protocol}


def require_processes_for(protocol: str, layout: Layout) -> None:
    """Raise if workers are to talk by UCX, and the layout has none that are processes of their own."""
    if protocol != "tcp" and layout.in_process:
        raise ParameterError(
            f"protocol={protocol!r} is for worker processes, and memory={show_size(layout.allowed_bytes)} leaves room for "
            "threads of this process only: allow more, or leave protocol= out"
        )
