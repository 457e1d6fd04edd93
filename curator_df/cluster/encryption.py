# SPDX-License-Identifier: Apache-2.0
"""Encrypt connections between client, scheduler and workers with TLS: one argument, ``security=``."""

from __future__ import annotations

import os

from distributed.security import Security

from curator_df.errors import ParameterError
from curator_df.extras import require_package


def as_security(security: bool | Security) -> Security | None:
    """Return the value for Dask: True creates credentials that expire with this process; None disables TLS."""
    if isinstance(security, Security):
        if not security.require_encryption:
            raise ParameterError(
                "security= has require_encryption=False: connections would be open. Leave security= out"
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
                raise ParameterError(f"security=: the file {content!r}, set as {field}, does not exist")
        try:
            security.get_connection_args(role)
        except (OSError, ValueError) as exc:  # ssl raises OSError
            raise ParameterError(f"security=: the certificate and key of the {role} cannot be used: {exc}") from exc
