# SPDX-License-Identifier: Apache-2.0
"""Calls of a server with OpenAI's chat completions API: limited concurrency, retries, and a cache of answers on disk.

A process has one client for all its tasks (`memory.process_cache`), which limits the requests in flight. An
answer is a small file named by a hash of the whole request; it is written before it is used. Failed requests are recorded
in `Failures`, and `Tally` counts answers. The key of the server is read when a request is made, and hidden in messages.
"""

from __future__ import annotations

import collections
import contextlib
import datetime as dt
import email.utils
import functools
import hashlib
import json
import os
import random
import re
import threading
import time
import weakref
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, NoReturn

from curator_df.errors import OperatorError, ParameterError, type_and_text
from curator_df.files.storage import Folder
from curator_df.memory.process_cache import is_outside_of_runs
from curator_df.memory.sizes import show_count, show_size

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


MOST_IN_A_ROW = 20
"""Maximum number of consecutive failed requests in a process, each after all attempts."""
MOST_REMEMBERED = 10_000
"""Maximum number of failed requests that a process remembers."""
RESUME = "run again with on_existing='resume', which keeps the answers so far"
"""Advice for the time when the cause is fixed."""
CHECKED = {
    300: "base_url=: the server redirects to another address, which is not followed",
    401: "the API key in the workers' environment (api_key_env=)",
    402: "the credit of the account",
    403: "the permissions of the API key in the workers' environment (api_key_env=)",
    404: "base_url=, which ends before /chat/completions, and the names of the server's models (model=)",
}
"""Statuses that never concern a single row, with what to check; 300 stands for all redirects."""


class NoAnswerError(RuntimeError):
    """Error of a server that refused a request, or did not answer it after all attempts."""

    remedy = (
        "Check that the server runs, and check the prompt of such a row. Then run again with on_existing='resume' (the "
        "answers so far are kept)"
    )
    """Advice shown in place of that for a function that raises."""


class UnansweredError(NoAnswerError):
    """Error of a server that did not answer a request after all attempts."""


class GivenUpError(NoAnswerError):
    """Error of a request that is not retried, because another of its block failed."""


class Failures:
    """Failed requests of this process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._said: dict[str, str] = {}
        self._in_a_row = 0
        self._is_refused = False
        self._end: str | None = None

    def check(self, name: str) -> None:
        """Raise the earlier error of this request, or the error that ends the run."""
        if self._end is not None:
            raise OperatorError(self._end)
        if (said := self._said.get(name)) is not None:  # the run is searching for the row on which a block fails
            raise NoAnswerError(said)

    def add(self, name: str, exc: NoAnswerError) -> None:
        """Record a failed request; raise `OperatorError` if all of them fail."""
        with self._lock:
            while len(self._said) >= MOST_REMEMBERED:
                del self._said[next(iter(self._said))]
            self._said[name] = str(exc)
            self._in_a_row += 1
            self._is_refused = not isinstance(exc, UnansweredError)
            if self._in_a_row < MOST_IN_A_ROW:
                return
            self.end(
                f"add_completion: {self._in_a_row} consecutive requests failed, so the rows are not the cause. The last: {exc}. "
                f"Check that the server runs, and base_url=, model= and options=; then {RESUME}. If the prompts are to blame, "
                "for example because they are too long for the model, use a smaller max_chars=, or drop such rows first"
            )

    def end(self, said: str) -> NoReturn:
        """Raise the error that ends the run, in all later requests too, because this one may have no waiting caller."""
        self._end = self._end or said
        raise OperatorError(self._end)

    def answered(self, *, from_cache: bool = False) -> None:
        """Record an answer. A cached one shows that the rows are refused, not that a server still answers."""
        if self._is_refused or not from_cache:
            with self._lock:
                self._in_a_row = 0


class WhenRead(Mapping[str, int]):
    """Counters that are computed when they are first read."""

    def __init__(self, make: Callable[[], dict[str, int]]) -> None:
        self._make = make

    @functools.cached_property
    def _made(self) -> dict[str, int]:
        return self._make()

    def __getitem__(self, name: str) -> int:
        """Return a counter."""
        return self._made[name]

    def __iter__(self) -> Iterator[str]:
        """Yield the names of the counters."""
        return iter(self._made)

    def __len__(self) -> int:
        """Return the number of counters."""
        return len(self._made)


class Tally:
    """Counts that one thread has paid for and not yet reported; its blocks come one after the other."""

    def __init__(self) -> None:
        self._paid: Counter[str] = Counter()
        self._paid_before = self._cached = 0

    def begin(self) -> None:
        """Begin a block, or a part of a failed one."""
        self._paid_before, self._cached = self._paid["requests"] - self._paid["retries"], 0

    def add(self, counts: Mapping[str, int]) -> None:
        """Add the counts of one answer."""
        self._cached += counts.get("cached", 0)
        self._paid.update({name: number for name, number in counts.items() if name != "cached"})

    def counters(self) -> Mapping[str, int]:
        """Return the counters of the block; reading them reports what was paid until then."""
        cached = max(self._cached - self._paid_before, 0)  # the others are in the cache because the block failed
        return WhenRead(lambda: self._taken(cached))

    def _taken(self, cached: int) -> dict[str, int]:
        paid, self._paid = self._paid, Counter()
        # Names like those of other models, for the table of models and for watchers.
        documents, tokens = paid["requests"] - paid["retries"], paid["prompt_tokens"] + paid["completion_tokens"]
        return {"requests": 0, "retries": 0, **paid, "cached": cached, "documents": documents, "tokens": tokens}


FIRST_WAIT_SECONDS = 0.5
MOST_WAIT_SECONDS = 60.0
"""Maximum seconds between two attempts, unless the server requests more."""
MOST_ASKED_WAIT_SECONDS = 600.0
"""Maximum seconds that a server may request with Retry-After."""
MOST_ANSWER_BYTES = 2_000_000
"""Maximum bytes of a response; a larger one is an error, so that a server cannot fill the memory."""
SHOWN_CHARACTERS = 300
"""Maximum characters of a refusal shown in the error."""
TRIED_AGAIN = frozenset({408, 409, 425, 429})
"""Statuses that may be transient, in addition to those of 500 and more."""
STACK_BYTES = 2_097_152
"""Bytes of the stack of a thread that waits for answers."""
_SECONDS = re.compile(r"[0-9]+(?:\.[0-9]*)?(?:e[0-9]{1,3})?", re.ASCII | re.IGNORECASE)
Answer = dict[str, Any]

_stack_lock = threading.Lock()
"""Lock for the size of stacks, because Python has one size for all threads to come."""


@dataclass(frozen=True)
class Server:
    """Server of the requests, and its settings."""

    base_url: str = field(metadata={"identity": False})
    """Base URL, without ``/chat/completions``. A server may restart elsewhere: its address does not affect answers."""
    model: str
    """Name of the model on the server."""
    options: str
    """Further fields of each request, as JSON."""
    api_key_env: str | None = field(metadata={"identity": False})
    """Name of the environment variable with the key; the key itself is read when a request is made, and never stored."""
    max_concurrent: int = field(metadata={"identity": False})
    """Maximum requests in flight in each worker process."""
    max_retries: int = field(metadata={"identity": False})
    """Number of attempts after the first."""
    timeout_seconds: float = field(metadata={"identity": False})
    """Seconds allowed for connecting, and between two pieces of a response."""
    cache: str = field(metadata={"identity": False})
    """Folder of the stored answers."""

    def body(self, messages: list[dict[str, str]]) -> bytes:
        """Return the body of a request."""
        fields = {**json.loads(self.options), "model": self.model, "messages": messages}
        return json.dumps(fields, ensure_ascii=False, sort_keys=True).encode()


class StrangeAnswerError(Exception):
    """Response that is not a completion, such as a truncated one."""


class _Threads(ThreadPoolExecutor):
    """Threads with a stack of `STACK_BYTES`.

    The kernel counts the whole stack of a thread against the limit of a worker (``RLIMIT_DATA``), 8 MB each by default,
    although little of it is ever used: 64 requests in flight would take 512 MB from the memory of a block.
    """

    def submit(self, *call: Any, **named: Any) -> Future[Any]:
        """Begin a call, in a thread that may have to be created."""
        with _stack_lock:
            before = threading.stack_size(STACK_BYTES)
            try:
                return super().submit(*call, **named)
            finally:
                threading.stack_size(before)


class Caller:
    """Client of this process for one server."""

    def __init__(self, server: Server) -> None:
        import httpx

        self.server = server
        self._httpx: Any = httpx
        limits = httpx.Limits(max_connections=server.max_concurrent, max_keepalive_connections=server.max_concurrent)
        # A proxy of the environment is for other machines: it would resolve a server of this machine as its own.
        direct = dict.fromkeys(("all://localhost", "all://127.0.0.1", "all://[::1]"))
        self._client = httpx.Client(timeout=server.timeout_seconds, limits=limits, mounts=direct)
        self._threads = _Threads(server.max_concurrent, thread_name_prefix="completion")
        weakref.finalize(self, _close, self._client, self._threads)
        self._folder = Folder(server.cache)
        self._failures = Failures()
        self._of_thread = threading.local()

    @property
    def tally(self) -> Tally:
        """Counters of the answers to this thread."""
        if not hasattr(self._of_thread, "tally"):
            self._of_thread.tally = Tally()
        found: Tally = self._of_thread.tally
        return found

    def answers(self, prompts: Iterable[list[dict[str, str]] | None]) -> Iterator[Answer | None]:
        """Yield the answer to each prompt (None for None), in order; few prompts are held at once. See also `tally`.

        Raises
        ------
        NoAnswerError
            If a request is refused, or not answered after all attempts; earlier requests are answered first.
        OperatorError
            If the failure does not concern rows: a status of `CHECKED`, or all requests fail.
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
            for future in waiting:  # requests in flight are paid for: keep their answers
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
            with contextlib.suppress(ValueError):  # an incomplete file is requested again
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
                shown = self._without_key(content.decode("utf-8", "replace"))[:SHOWN_CHARACTERS].strip()
                problem = f"status {status}: {shown}" if shown else f"status {status}"
                if status < 500 and status not in TRIED_AGAIN:
                    raise self._refusal(status, problem)
                wait = asked_wait(headers.get("retry-after"))
            except self._httpx.LocalProtocolError as exc:  # caused by the request: a retry would fail again
                problem = self._without_key(type_and_text(exc))
                raise NoAnswerError(
                    f"a request to {self.server.base_url} could not be sent: {problem}. Check base_url=, and that "
                    "the API key has only characters that an HTTP header may have"
                ) from None
            except self._httpx.RequestError as exc:
                problem = self._without_key(type_and_text(exc))
            except StrangeAnswerError as exc:
                problem = (
                    f"a response that is not a chat completion ({exc}). Check that base_url= is the address of an API for chat "
                    "completions, and that model= is a chat model"
                )
            if attempt < self.server.max_retries and given_up.wait(next_wait(attempt) if wait is None else wait):
                raise GivenUpError(problem)
        raise UnansweredError(
            f"{self.server.base_url} did not answer a request in {show_count(self.server.max_retries + 1, 'attempt')}. "
            "Check that the server runs, and set a larger max_retries= or timeout_seconds= if it is busy. The last attempt "
            f"ended with {problem}"
        )

    def _refusal(self, status: int, problem: str) -> NoAnswerError | OperatorError:
        said = f"{self.server.base_url} refused a request with {problem}"
        checked = CHECKED.get(300 if 300 <= status < 400 else status)
        if checked is None:
            return NoAnswerError(said)
        return OperatorError(f"add_completion: {said}. This does not concern the row. Check {checked}; then {RESUME}")

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
                        f"{self.server.base_url} sent an answer larger than the limit of {show_size(MOST_ANSWER_BYTES)}. "
                        "Lower max_tokens=, or check that base_url= is the server of a model"
                    )
            return response.status_code, response.headers, bytes(content)

    def _without_key(self, text: str) -> str:
        return without_key(text, self.server.api_key_env)


def _read(content: bytes, attempt: int) -> tuple[Answer, dict[str, int]]:
    """Return the answer in a response, and its counters. One without text, but with the reason of its end, is an answer too."""
    try:
        said = json.loads(content)
        choice = said["choices"][0]
        text, ended = choice["message"].get("content"), choice.get("finish_reason")
    except (ValueError, KeyError, IndexError, TypeError, AttributeError) as exc:
        raise StrangeAnswerError(type_and_text(exc)) from exc
    if isinstance(text, str):
        text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")  # lone surrogates have no UTF-8 form
    elif text is not None or not isinstance(ended, str):
        raise StrangeAnswerError("its message has no text in the field content")
    usage = said.get("usage")
    tokens = {name: _tokens(usage, name) for name in ("prompt_tokens", "completion_tokens")}
    told = {"cut_answers": int(ended == "length"), "empty_answers": int(text is None)}
    counts = {"requests": attempt + 1, "retries": attempt, **told, **tokens}
    return {"content": text, "finish_reason": ended}, counts


def _tokens(usage: Any, name: str) -> int:
    """Return a token count reported by a server; 0 if it is missing or not a number."""
    value = usage.get(name) if isinstance(usage, dict) else None
    return value if isinstance(value, int) and value > 0 else 0


def asked_wait(value: str | None) -> float | None:
    """Return the seconds that a Retry-After header requests; None if it is missing or invalid.

    The value is a number of seconds or a date of HTTP (RFC 9110, section 10.2.3). Fractions are accepted too, since servers
    send them. A negative number, NaN, infinity and an invalid date count as missing.

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
            date = date.replace(tzinfo=dt.UTC)  # HTTP has no other zone, and some dates omit it
        seconds = date.timestamp() - time.time()
    except (ValueError, TypeError, OverflowError, IndexError):
        return None
    return min(max(seconds, 0.0), MOST_ASKED_WAIT_SECONDS)


def next_wait(attempt: int) -> float:
    """Return the seconds before the next attempt: doubled each time, and randomly reduced so that clients spread out."""
    return min(FIRST_WAIT_SECONDS * 2.0**attempt, MOST_WAIT_SECONDS) * random.uniform(0.5, 1.0)  # noqa: S311


def _name(body: bytes) -> str:
    digest = hashlib.blake2b(body, digest_size=20).hexdigest()
    return f"{digest[:2]}/{digest[2:]}.json"


def _close(client: Any, threads: ThreadPoolExecutor) -> None:
    """Close connections once no thread uses them; the last user may be one of these threads."""
    threads.shutdown(wait=threading.current_thread().name.partition("_")[0] != "completion", cancel_futures=True)
    client.close()
