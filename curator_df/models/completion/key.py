# SPDX-License-Identifier: Apache-2.0
"""API key of a completion server: read when a request is made, and hidden in messages."""

from __future__ import annotations

import json
import os

from curator_df.errors import ParameterError

HIDDEN = "***"
"""Replacement for a key in texts."""


def key_in(variable: str) -> str:
    """Return the key in an environment variable of this process, without the white space around it.

    Raises
    ------
    ParameterError
        If it is not set, is empty, or has characters that are not allowed in a header; the key is not shown.
    """
    told = f"add_completion: the environment variable {variable!r} (api_key_env=)"
    if variable not in os.environ:
        raise ParameterError(f"{told} is not set in this worker. Set it in the environment in which workers start")
    key = os.environ[variable].strip()
    if not key:
        raise ParameterError(
            f"{told} is empty in this worker. Set it to the key in the environment in which workers start"
        )
    if not (key.isascii() and key.isprintable()):
        raise ParameterError(
            f"{told} has control or non-ASCII characters, which are not allowed in a header. Set it to only the key, in the "
            "environment in which workers start"
        )
    return key


def without_key(text: str, variable: str | None) -> str:
    """Return a text with `HIDDEN` in place of the key, also if the key is escaped like a Python or JSON string."""
    raw = "" if variable is None else os.environ.get(variable, "")
    written = set[str]()
    for key in (raw, raw.strip()):
        as_bytes = key.encode("utf-8", "surrogateescape")
        written |= {key, repr(key)[1:-1], ascii(key)[1:-1], repr(as_bytes)[2:-1], json.dumps(key)[1:-1]}
    for one in sorted(written - {""}, key=len, reverse=True):
        text = text.replace(one, HIDDEN)
    return text
