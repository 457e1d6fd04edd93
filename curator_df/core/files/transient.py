# SPDX-License-Identifier: Apache-2.0
"""Errors of remote file systems that pass by themselves (throttling, 5xx, timeouts, lost connections), and waiting for that.

Clients of stores try again for a second or two; a store that is overloaded asks for more. What is permanent (no such
file, no permission, a file that changed) is raised at once. Files of local file systems are not read or written again.
"""

from __future__ import annotations

import errno
import itertools
import logging
import random
import time
from collections.abc import Callable
from typing import TypeVar

from curator_df.errors import CuratorError, RemoteFileError

TRIES = 6
"""Of one request, or of a small file."""
TASK_TRIES = 6
"""Of a task that a transient error ended in the middle, as where a large file was being written."""
FIRST_WAIT_SECONDS = 0.5
"""Before the second try, doubled before each other one. What is waited is between half of it and all: workers that were
throttled together must not come back together."""
LONGEST_WAIT_SECONDS = 15.0
TOTAL_SECONDS = 60.0
"""After so long no further try of a request begins."""

TRANSIENT_ERRNOS = frozenset(
    {
        errno.EBUSY,  # what s3fs makes of 503 and SlowDown
        errno.EREMOTEIO,  # and of 500
        errno.ETIMEDOUT,
        errno.ECONNRESET,
        errno.ECONNREFUSED,
        errno.ECONNABORTED,
        errno.EPIPE,
        errno.ENETDOWN,
        errno.ENETUNREACH,
        errno.ENETRESET,
        errno.EHOSTUNREACH,
    }
)
TRANSIENT_STATUS = frozenset({408, 429, 500, 502, 503, 504})
"""HTTP statuses that ask to try again."""
TRANSIENT_NAMES = frozenset(
    {
        "HTTPClientError",  # botocore: timeouts and closed connections
        "EndpointConnectionError",
        "ResponseParserError",  # what botocore says of a 503 without XML
        "ClientConnectionError",  # aiohttp
        "ClientPayloadError",
        "IncompleteRead",  # http.client
        "IncompleteReadError",  # asyncio, botocore
        "ServiceRequestError",  # azure.core
        "ServiceResponseError",
        "TransportError",  # httpx, of huggingface_hub: timeouts and closed connections
        "RequestException",  # requests
    }
)
"""Classes by name: the packages that they are in need not be installed."""
PERMANENT = (FileNotFoundError, PermissionError, FileExistsError, IsADirectoryError, NotADirectoryError, CuratorError)
LOG = logging.getLogger("curator_df")

T = TypeVar("T")


def is_transient(exc: BaseException | None) -> bool:
    """Tell whether an error of a remote file system, or what caused it, passes by itself.

    Examples
    --------
    >>> is_transient(OSError(errno.EBUSY, "Please reduce your request rate.")), is_transient(TimeoutError())
    (True, True)
    >>> is_transient(FileNotFoundError(errno.ENOENT, "No such file")), is_transient(OSError(errno.ENOSPC, "Full"))
    (False, False)
    """
    seen: set[int] = set()
    while exc is not None and id(exc) not in seen:
        if isinstance(exc, PERMANENT):
            return False
        if isinstance(exc, (TimeoutError, ConnectionError)) or _status(exc) in TRANSIENT_STATUS:
            return True
        if isinstance(exc, OSError) and exc.errno in TRANSIENT_ERRNOS:
            return True
        if any(kind.__name__ in TRANSIENT_NAMES for kind in type(exc).__mro__):
            return True
        seen.add(id(exc))
        exc = exc.__cause__
    return False


def patiently(
    what: str, call: Callable[[], T], *, tries: int = TRIES, total_seconds: float = TOTAL_SECONDS, failed: str = ""
) -> T:
    """Return what a call returns; while it raises transient errors, call again after growing waits.

    Parameters
    ----------
    what : str
        What is done, for the error and the log: "read 's3://bucket/file'".
    call : callable
        May be called several times.
    tries : int
        Calls at most.
    total_seconds : float
        After so long no further call begins.
    failed : str
        What is to be said besides in the error.

    Raises
    ------
    RemoteFileError
        If the last call raised a transient error too. Any other error is raised as it is, at once.
    """
    started = time.monotonic()
    for done in itertools.count(1):
        try:
            return call()
        except Exception as exc:
            if not is_transient(exc):
                raise
            seconds = time.monotonic() - started
            wait = min(LONGEST_WAIT_SECONDS, FIRST_WAIT_SECONDS * 2 ** (done - 1)) * random.uniform(0.5, 1)  # noqa: S311
            if done >= tries or seconds + wait > total_seconds:
                raise gave_up(what, exc, done, seconds, failed) from exc
            LOG.info("cannot %s: %s; again in %.1f s", what, exc, wait)
        time.sleep(wait)
    raise AssertionError("the loop above does not end")


def gave_up(what: str, exc: BaseException, tries: int, seconds: float, failed: str = "") -> RemoteFileError:
    """Return the error for what failed too often."""
    return RemoteFileError(
        f"cannot {what}: {type(exc).__name__}: {exc} (tried {tries:,} times in {seconds:,.0f} s). The store is busy or cannot "
        f"be reached; nothing says that a file is damaged. {failed}What is finished stays: run the same again with "
        "on_existing='resume' when it answers, perhaps with fewer workers"
    )


def _status(exc: BaseException) -> int | None:
    """Return the HTTP status that an error of a store's client carries, wherever it keeps it."""
    response = getattr(exc, "response", None)
    if isinstance(response, dict):  # botocore
        found = response.get("ResponseMetadata", {}).get("HTTPStatusCode")
    else:
        holders = (exc, response)
        found = next(
            (v for h in holders for name in ("status", "status_code", "code") if (v := getattr(h, name, None))), None
        )
    return int(found) if isinstance(found, int) or (isinstance(found, str) and found.isdigit()) else None
