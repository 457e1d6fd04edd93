# SPDX-License-Identifier: Apache-2.0
"""A server of chat completions on loopback for the contracts: one for a process and all that it starts."""

from __future__ import annotations

import contextlib
import functools
import os
import tempfile

from tests.models.completion_server import completion_server

VARIABLE = "CURATOR_DF_CONTRACTS_SERVER"
_open = contextlib.ExitStack()


@functools.cache
def answering() -> dict[str, str]:
    """Return the address of the server and the folder of its answers; the first process that asks starts it."""
    if VARIABLE not in os.environ:
        base_url = _open.enter_context(completion_server()).base_url
        os.environ[VARIABLE] = f"{base_url} {_open.enter_context(tempfile.TemporaryDirectory())}"
    return dict(zip(("base_url", "cache"), os.environ[VARIABLE].split(" ", 1), strict=True))
