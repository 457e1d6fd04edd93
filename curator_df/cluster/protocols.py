# SPDX-License-Identifier: Apache-2.0
"""Protocol between scheduler and workers of a cluster on this machine: TCP, or UCX, which uses NVLink if GPUs have it."""

from __future__ import annotations

from typing import Any

from distributed.security import Security

from curator_df.arguments import choose
from curator_df.errors import ParameterError
from curator_df.extras import require_package
from curator_df.memory.budget import Layout
from curator_df.memory.sizes import show_size

PROTOCOLS = ("tcp", "ucx")
UCX_REMARK = "UCX, which listens on every network of this machine and has no TLS"
"""Warning about UCX: distributed-ucxx 0.52 gives its listener no address, so it listens on all of them."""


def protocol_arguments(protocol: str, security: Security | None) -> dict[str, Any]:
    """Return the arguments of Dask's and dask-cuda's clusters for the protocol.

    Single transports are not set: by default UCX uses the best that both sides have, NVLink included.

    Raises
    ------
    ParameterError
        If the protocol is unknown, or TLS is requested, which UCX does not have.
    MissingExtraError
        If the package of the protocol is not installed.
    """
    choose("start_cluster", "protocol", protocol, PROTOCOLS)
    if protocol == "tcp":
        return {"security": security}
    if security is not None:
        raise ParameterError(
            "start_cluster: protocol='ucx' has no TLS. Leave security= out on a trusted network, or use TCP"
        )
    require_package("start_cluster: protocol='ucx'", "distributed_ucxx", "ucx")
    return {"protocol": protocol}


def require_processes_for(protocol: str, layout: Layout) -> None:
    """Raise if workers should communicate by UCX, but the layout has no worker processes."""
    if protocol != "tcp" and layout.in_process:
        raise ParameterError(
            f"start_cluster: protocol={protocol!r} is for worker processes, but "
            f"memory={show_size(layout.allowed_bytes)} is enough only for threads of this process. Use "
            "a larger memory=, or leave protocol= out"
        )
