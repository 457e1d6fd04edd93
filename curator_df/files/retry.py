# SPDX-License-Identifier: Apache-2.0
"""Transient errors of remote file systems (throttling, 5xx, timeouts, lost connections), and retries with growing waits.

Clients of stores retry for a second or two; an overloaded store needs more time. Permanent errors (file not found, permission
denied, file changed) are raised immediately. Operations on local file systems are not retried.
"""

from __future__ import annotations

import errno
import itertools
import logging
import random
import re
import time
from collections.abc import Callable
from typing import TypeVar

from curator_df.errors import CuratorError, RemoteFileError, type_and_text, without_frames

TRIES = 6
"""Maximum number of attempts for one request, or for a small file."""
TASK_TRIES = 6
"""Maximum number of attempts for a task that a transient error interrupted, for instance while a large file was written."""
FIRST_WAIT_SECONDS = 0.5
"""Maximum wait before the second attempt in seconds; it doubles with each attempt. The actual wait is random between half of it
and all of it, so that workers that were throttled together do not return together.
"""
LONGEST_WAIT_SECONDS = 15.0
TOTAL_SECONDS = 60.0
"""Time in seconds after which a request is not retried."""

TRANSIENT_ERRNOS = frozenset(
    {
        errno.EBUSY,  # s3fs raises it for 503 and SlowDown
        errno.EREMOTEIO,  # and this one for 500
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
UNRESOLVED = (
    "Name or service not known",
    "nodename nor servname",
    "Temporary failure in name resolution",
    "No address associated",
)
"""Words of errors about a server whose name has no address: Linux's and macOS's."""
TRANSIENT_STATUS = frozenset({408, 429, 500, 502, 503, 504})
"""HTTP statuses after which a request should be retried."""
TRANSIENT_NAMES = frozenset(
    {
        "HTTPClientError",  # botocore: timeouts and closed connections
        "EndpointConnectionError",
        "ResponseParserError",  # botocore: a 503 response without XML
        "ClientConnectionError",  # aiohttp
        "ClientPayloadError",
        "IncompleteRead",  # http.client
        "IncompleteReadError",  # asyncio, botocore
        "ServiceRequestError",  # azure.core
        "ServiceResponseError",
        "TransportError",  # httpx, used by huggingface_hub: timeouts and closed connections
        "RequestException",  # requests
    }
)
"""Names of exception classes: their packages need not be installed."""
PERMANENT_NAMES = frozenset({"OfflineModeIsEnabled"})
"""Names of connection errors that no retry mends: huggingface_hub's own refusal with HF_HUB_OFFLINE=1."""
PERMANENT = (FileNotFoundError, PermissionError, FileExistsError, IsADirectoryError, NotADirectoryError, CuratorError)
LOG = logging.getLogger("curator_df")

T = TypeVar("T")


def is_transient(exc: BaseException | None) -> bool:
    """Return whether an error of a remote file system, or its cause, is transient.

    Examples
    --------
    >>> is_transient(OSError(errno.EBUSY, "Please reduce your request rate.")), is_transient(TimeoutError())
    (True, True)
    >>> is_transient(FileNotFoundError(errno.ENOENT, "No such file")), is_transient(OSError(errno.ENOSPC, "Full"))
    (False, False)
    """
    seen: set[int] = set()
    while exc is not None and id(exc) not in seen:
        if isinstance(exc, PERMANENT) or type(exc).__name__ in PERMANENT_NAMES:
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


def without_queries(said: str) -> str:
    """Return a message of a library without the queries of its URLs: that of a presigned URL opens the file to any reader.

    Examples
    --------
    >>> without_queries("503 for url 'https://cdn.org/a.parquet?X-Amz-Signature=4f&Expires=9'. Slow down")
    "503 for url 'https://cdn.org/a.parquet?...'. Slow down"
    """
    return _QUERY.sub(r"\1?...", said)


def shown_error(exc: BaseException) -> str:
    """Return the type and the text of another library's error, without the queries of its URLs."""
    return without_queries(type_and_text(exc))


_QUERY = re.compile(r"""(\bhttps?://[^\s?'"<>]+)\?[^\s'"<>)]+""")


def retry_transient(
    what: str, call: Callable[[], T], *, tries: int = TRIES, total_seconds: float = TOTAL_SECONDS, failed: str = ""
) -> T:
    """Return the result of a call; while it raises transient errors, repeat it after growing waits.

    Parameters
    ----------
    what : str
        Description of the operation for the error and the log: "read 's3://bucket/file'".
    call : callable
        Function that may be called several times.
    tries : int
        Maximum number of calls.
    total_seconds : float
        Time in seconds after which the call is not repeated.
    failed : str
        Additional text for the error.

    Raises
    ------
    RemoteFileError
        If the last call raised a transient error too. Any other error is raised unchanged and immediately.
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
                raise gave_up(what, exc, done, seconds, failed) from without_frames(exc)
            LOG.info("cannot %s: %s; next attempt in %.1f s", what, without_queries(str(exc)), wait)
        time.sleep(wait)
    raise AssertionError("the loop above does not end")


def gave_up(what: str, exc: BaseException, tries: int, seconds: float, failed: str = "") -> RemoteFileError:
    """Return the error for an operation that failed too often."""
    said = shown_error(exc)
    if any(words in said for words in UNRESOLVED):
        why = "The name of the server cannot be looked up: check the network, the proxy and the address of the store. "
    else:
        why = "The store is busy or cannot be reached; this is not a sign of a damaged file. "
    return RemoteFileError(
        f"cannot {what}: {said} (tried {tries:,} times in {seconds:,.0f} s). {why}{failed}If a run has begun, its finished files "
        "are kept: repeat it with on_existing='resume' when the store responds, perhaps with fewer workers"
    )


def _status(exc: BaseException) -> int | None:
    """Return the HTTP status that an error of a store's client carries, in whichever attribute."""
    response = getattr(exc, "response", None)
    if isinstance(response, dict):  # botocore
        found = response.get("ResponseMetadata", {}).get("HTTPStatusCode")
    else:
        holders = (exc, response)
        found = next(
            (v for h in holders for name in ("status", "status_code", "code") if (v := getattr(h, name, None))), None
        )
    return int(found) if isinstance(found, int) or (isinstance(found, str) and found.isdigit()) else None
