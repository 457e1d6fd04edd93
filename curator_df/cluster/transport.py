# SPDX-License-Identifier: Apache-2.0
"""Transport between client, scheduler and workers: TCP, with TLS if asked, or UCX, which uses NVLink if GPUs have it."""

from __future__ import annotations

import os
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
            "start_cluster: protocol='ucx' does not support TLS. Use protocol='tcp', or leave security= out if the network "
            "is trusted"
        )
    require_package("start_cluster: protocol='ucx'", "distributed_ucxx", "ucx")
    return {"protocol": protocol}


def require_processes_for(protocol: str, layout: Layout) -> None:
    """Raise if workers should communicate by UCX, but the layout has no worker processes."""
    if protocol != "tcp" and layout.in_process:
        raise ParameterError(
            f"start_cluster: protocol={protocol!r} connects worker processes, but memory={show_size(layout.allowed_bytes)} "
            "is enough only for threads of this process. Use a larger memory=, or leave protocol= out"
        )


def as_security(security: bool | Security) -> Security | None:
    """Return the value for Dask: True creates credentials that expire with this process; None disables TLS."""
    if isinstance(security, Security):
        if not security.require_encryption:
            raise ParameterError(
                "security= has require_encryption=False, so connections would not be encrypted. Set it to True, or leave "
                "security= out"
            )
        _require_usable(security)
        return security
    if not isinstance(security, bool):
        raise ParameterError(f"security={security!r} must be True, False or a distributed.Security")
    if not security:
        return None
    require_package(
        "security=True, without a distributed.Security with certificates of your own,", "cryptography", "tls"
    )
    return Security.temporary()


def _require_usable(security: Security) -> None:
    """Raise `ParameterError` if the certificates of client, scheduler and workers are missing or invalid."""
    for role in ("client", "scheduler", "worker"):
        fields = security.get_tls_config_for_role(role)
        for name in ("ca_file", "cert", "key"):
            field = "tls_ca_file" if name == "ca_file" else f"tls_{role}_{name}"
            content = fields[name]
            if content is None:
                raise ParameterError(
                    f"security= has no {field}, so nothing could be encrypted. Set the certificates of client, scheduler and "
                    "workers, or use security=True for new ones"
                )
            if "\n" not in content and not os.path.isfile(content):  # otherwise it is the certificate itself
                raise ParameterError(
                    f"security=: the file {content!r}, set as {field}, does not exist. Correct the path, or use "
                    "security=True for new certificates"
                )
        try:
            security.get_connection_args(role)
        except (OSError, ValueError) as exc:  # ssl raises OSError
            raise ParameterError(
                f"security=: the certificate and key of the {role} cannot be used: {exc}. Use a matching pair, or "
                "security=True for new ones"
            ) from exc
