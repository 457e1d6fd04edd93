# SPDX-License-Identifier: Apache-2.0
"""Calls of a server that speaks OpenAI's chat completions: few at a time, tried again, and each answer kept on disk.

A process has one client for all its tasks (`core.memory.held`), so that no more requests are in flight than were allowed. An
answer is a small file named by a hash of all that was asked; it is written before it is used. What is known of requests that
failed is in `completion_failures`.
"""

from __future__ import annotations

import collections
import contextlib
import datetime as dt
import email.utils
import hashlib
import json
import random
import re
import threading
import time
import weakref
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from curator_df.core.files.storage import Folder
from curator_df.core.memory.held import is_outside_of_runs
from curator_df.errors import OperatorError
from curator_df.models.completion_counts import Tally
from curator_df.models.completion_failures import (
    CHECKED,
    RESUME,
    Failures,
    GivenUpError,
    NoAnswerError,
    UnansweredError,
)
from curator_df.models.completion_key import key_in, without_key

FIRST_WAIT_SECONDS = 0.5
MOST_WAIT_SECONDS = 60.0
"""Between two tries, unless the server asks for more."""
MOST_ASKED_WAIT_SECONDS = 600.0
"""Of what a server asks for in Retry-After."""
MOST_ANSWER_BYTES = 2_000_000
"""Of a response; a larger one is an error, so that a server cannot fill the memory."""
SHOWN_CHARACTERS = 300
"""Of a refusal, in the error."""
TRIED_AGAIN = frozenset({408, 409, 425, 429})
"""Statuses that may pass, besides those of 500 and more."""
STACK_BYTES = 2_097_152
"""Of the stack of a thread that waits for answers."""
_SECONDS = re.compile(r"[0-9]+(?:\.[0-9]*)?(?:e[0-9]{1,3})?", re.ASCII | re.IGNORECASE)
Answer = dict[str, Any]

_stack_lock = threading.Lock()
"""Python has one size for the stacks of all threads to come."""


@dataclass(frozen=True)
class Server:
    """Where requests go, and how."""

    base_url: str = field(metadata={"identity": False})
    """Up to, and without, ``/chat/completions``. A server may start again elsewhere: its address decides no answer."""
    model: str
    """As the server names it."""
    options: str
    """Further fields of each request, as JSON."""
    api_key_env: str | None = field(metadata={"identity": False})
    """Name of the environment variable with the key; the key itself is read where a request is made, and kept nowhere."""
    max_concurrent: int = field(metadata={"identity": False})
    """Requests in flight in each worker process."""
    max_retries: int = field(metadata={"identity": False})
    """Tries after the first."""
    timeout_seconds: float = field(metadata={"identity": False})
    """To connect, and between two pieces of a response."""
    cache: str = field(metadata={"identity": False})
    """Folder of answers."""

    def body(self, messages: list[dict[str, str]]) -> bytes:
        """Return what is sent."""
        fields = {**json.loads(self.options), "model": self.model, "messages": messages}
        return json.dumps(fields, ensure_ascii=False, sort_keys=True).encode()


class StrangeAnswerError(Exception):
    """A response that is not a completion, such as one that was cut."""


class _Threads(ThreadPoolExecutor):
    """Threads with a stack of `STACK_BYTES`.

    The kernel counts the whole stack of a thread against the limit of a worker (``RLIMIT_DATA``), 8 MB of each by default,
    though little of it is ever used: 64 requests in flight would take 512 MB from the room of a block.
    """

    def submit(self, *call: Any, **named: Any) -> Future[Any]:
        """Begin a call, in a thread that may have to be made."""
        with _stack_lock:
            before = threading.stack_size(STACK_BYTES)
            try:
                return super().submit(*call, **named)
            finally:
                threading.stack_size(before)


class Caller:
    """The client of this process for one server."""

    def __init__(self, server: Server) -> None:
        import httpx

        self.server = server
        self._httpx: Any = httpx
        limits = httpx.Limits(max_connections=server.max_concurrent, max_keepalive_connections=server.max_concurrent)
        # A proxy of the environment is for other machines: it would look for a server of this machine on its own.
        direct = dict.fromkeys(("all://localhost", "all://127.0.0.1", "all://[::1]"))
        self._client = httpx.Client(timeout=server.timeout_seconds, limits=limits, mounts=direct)
        self._threads = _Threads(server.max_concurrent, thread_name_prefix="completion")
        weakref.finalize(self, _close, self._client, self._threads)
        self._folder = Folder(server.cache)
        self._failures = Failures()
        self._of_thread = threading.local()

    @property
    def tally(self) -> Tally:
        """What the answers to this thread took."""
        if not hasattr(self._of_thread, "tally"):
            self._of_thread.tally = Tally()
        found: Tally = self._of_thread.tally
        return found

    def answers(self, prompts: Iterable[list[dict[str, str]] | None]) -> Iterator[Answer | None]:
        """Yield the answer to each prompt (None: to none), in order; few prompts are held at a time. See `tally` as well.

        Raises
        ------
        NoAnswerError
            When a request is refused, or not answered after all tries; what was asked before it is answered first.
        OperatorError
            When it is not about the rows: a status of `CHECKED`, or all requests fail.
        """
        waiting: collections.deque[Future[tuple[Answer | None, dict[str, int]]]] = collections.deque()
        given_up, remembers, tally = threading.Event(), not is_outside_of_runs(), self.tally

        def taken(future: Future[tuple[Answer | None, dict[str, int]]]) -> Answer | None:
            answer, counts = future.result()
            tally.add(counts)
            return answer

        tally.begin()
        try:
            for messages in prompts:
                waiting.append(self._threads.submit(self._answer, messages, given_up, remembers))
                if len(waiting) >= 2 * self.server.max_concurrent:
                    yield taken(waiting.popleft())
            while waiting:
                yield taken(waiting.popleft())
        finally:
            given_up.set()
            for future in waiting:
                future.cancel()
            for future in waiting:  # what is in flight is paid for: let it be kept
                if not future.cancelled() and future.exception() is None:
                    taken(future)

    def _answer(
        self, messages: list[dict[str, str]] | None, given_up: threading.Event, remembers: bool
    ) -> tuple[Answer | None, dict[str, int]]:
        if messages is None:
            return None, {}
        body = self.server.body(messages)
        name = _name(body)
        if self._folder.exists(name):
            with contextlib.suppress(ValueError):  # a file that is not whole is asked for again
                answer = json.loads(self._folder.read(name))
                self._failures.answered(from_cache=True)
                return answer, {"cached": 1}
        self._failures.check(name)
        try:
            answer, counts = self._asked(body, given_up)
        except OperatorError as exc:
            if remembers:
                self._failures.end(str(exc))
            raise
        except NoAnswerError as exc:
            if remembers and not isinstance(exc, GivenUpError):
                self._failures.add(name, exc)
            raise
        self._folder.write(name, json.dumps(answer).encode())
        self._failures.answered()
        return answer, counts

    def _asked(self, body: bytes, given_up: threading.Event) -> tuple[Answer, dict[str, int]]:
        for attempt in range(self.server.max_retries + 1):
            wait: float | None = None
            try:
                status, headers, content = self._sent(body)
                if status == 200:
                    return _read(content, attempt)
                problem = f"status {status}: {self._without_key(content.decode('utf-8', 'replace'))[:SHOWN_CHARACTERS]}"
                if status < 500 and status not in TRIED_AGAIN:
                    raise self._refusal(status, problem)
                wait = asked_wait(headers.get("retry-after"))
            except self._httpx.LocalProtocolError as exc:  # of what is sent: it would be the same again
                problem = self._without_key(f"{type(exc).__name__}: {exc}")
                raise NoAnswerError(f"a request to {self.server.base_url} could not be sent: {problem}") from None
            except self._httpx.RequestError as exc:
                problem = self._without_key(f"{type(exc).__name__}: {exc}")
            except StrangeAnswerError as exc:
                problem = f"a response that is not a completion ({exc})"
            if attempt < self.server.max_retries and given_up.wait(next_wait(attempt) if wait is None else wait):
                raise GivenUpError(problem)
        raise UnansweredError(
            f"{self.server.base_url} did not answer a request in {self.server.max_retries + 1} tries; the last ended with "
            f"{problem}"
        )

    def _refusal(self, status: int, problem: str) -> NoAnswerError | OperatorError:
        said = f"{self.server.base_url} refused a request with {problem}"
        if status not in CHECKED:
            return NoAnswerError(said)
        return OperatorError(f"add_completion: {said}. It is not about the row. Check {CHECKED[status]}; then {RESUME}")

    def _sent(self, body: bytes) -> tuple[int, Any, bytes]:
        headers = {"content-type": "application/json"}
        if self.server.api_key_env is not None:
            headers["authorization"] = f"Bearer {key_in(self.server.api_key_env)}"
        url = f"{self.server.base_url}/chat/completions"
        with self._client.stream("POST", url, content=body, headers=headers) as response:
            content = bytearray()
            for piece in response.iter_bytes(65_536):
                content += piece
                if len(content) > MOST_ANSWER_BYTES:
                    raise NoAnswerError(
                        f"{self.server.base_url} sent more than {MOST_ANSWER_BYTES:,} bytes for an answer"
                    )
            return response.status_code, response.headers, bytes(content)

    def _without_key(self, text: str) -> str:
        return without_key(text, self.server.api_key_env)


def _read(content: bytes, attempt: int) -> tuple[Answer, dict[str, int]]:
    """Return the answer in a response, and what it took. One without text that says how it ended is an answer as well."""
    try:
        said = json.loads(content)
        choice = said["choices"][0]
        text, ended = choice["message"].get("content"), choice.get("finish_reason")
    except (ValueError, KeyError, IndexError, TypeError, AttributeError) as exc:
        raise StrangeAnswerError(f"{type(exc).__name__}: {exc}") from exc
    if isinstance(text, str):
        text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")  # halves of characters have no UTF-8
    elif text is not None or not isinstance(ended, str):
        raise StrangeAnswerError("its content is not text")
    usage = said.get("usage")
    tokens = {name: _tokens(usage, name) for name in ("prompt_tokens", "completion_tokens")}
    told = {"cut_answers": int(ended == "length"), "empty_answers": int(text is None)}
    counts = {"requests": attempt + 1, "retries": attempt, **told, **tokens}
    return {"content": text, "finish_reason": ended}, counts


def _tokens(usage: Any, name: str) -> int:
    """Return what a server says that it counted; 0 where it says nothing that is a number."""
    value = usage.get(name) if isinstance(usage, dict) else None
    return value if isinstance(value, int) and value > 0 else 0


def asked_wait(value: str | None) -> float | None:
    """Return the seconds that a Retry-After header asks for; None where it says nothing that can be understood.

    The value is a number of seconds or a date of HTTP (RFC 9110, section 10.2.3). Fractions are accepted too, since servers
    send them. A negative number, NaN, infinity and a date without a meaning say nothing.

    Examples
    --------
    >>> asked_wait("3"), asked_wait(None), asked_wait("soon"), asked_wait("nan"), asked_wait("-1")
    (3.0, None, None, None, None)
    >>> asked_wait("9" * 400), asked_wait("Thu, 01 Jan 1970 00:00:00 GMT")
    (600.0, 0.0)
    """
    if value is None:
        return None
    text = value.strip()
    if _SECONDS.fullmatch(text):
        return min(float(text), MOST_ASKED_WAIT_SECONDS)
    try:
        date = email.utils.parsedate_to_datetime(text)
        if date.tzinfo is None:
            date = date.replace(tzinfo=dt.UTC)  # HTTP has no other zone, and some dates leave it out
        seconds = date.timestamp() - time.time()
    except (ValueError, TypeError, OverflowError, IndexError):
        return None
    return min(max(seconds, 0.0), MOST_ASKED_WAIT_SECONDS)


def next_wait(attempt: int) -> float:
    """Return the seconds before the next try: twice as many each time, and less by chance, so that clients spread."""
    return min(FIRST_WAIT_SECONDS * 2.0**attempt, MOST_WAIT_SECONDS) * random.uniform(0.5, 1.0)  # noqa: S311


def _name(body: bytes) -> str:
    digest = hashlib.blake2b(body, digest_size=20).hexdigest()
    return f"{digest[:2]}/{digest[2:]}.json"


def _close(client: Any, threads: ThreadPoolExecutor) -> None:
    """Close connections once no thread uses them; the last to let go may be one of these threads."""
    threads.shutdown(wait=threading.current_thread().name.partition("_")[0] != "completion", cancel_futures=True)
    client.close()
