# SPDX-License-Identifier: Apache-2.0
"""TLS between client, scheduler and workers: one argument, ``security=``."""

from __future__ import annotations

import importlib.util

from distributed.security import Security

from curator_df.errors import ParameterError


def as_security(security: bool | Security) -> Security | None:
    """Return what Dask takes: True is credentials made now, which end with this process; None is no TLS."""
    if isinstance(security, Security):
        if not security.require_encryption:
            raise ParameterError(
                "security= has require_encryption=False: connections would be open. Leave security= out"
            )
        return security
    if not isinstance(security, bool):
        raise ParameterError(f"security={security!r} must be True, False or a distributed.Security")
    if not security:
        return None
    if importlib.util.find_spec("cryptography") is None:
        raise ParameterError(
            "security=True makes credentials with the package cryptography, which is not installed: "
            "pip install 'curator-df[tls]'; or give a distributed.Security with certificates of your own"
        )
    return Security.temporary()
