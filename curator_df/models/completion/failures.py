# SPDX-License-Identifier: Apache-2.0
"""Failed requests for completions in this process: which are not sent again in a run, and when they end it.

A failed request concerns its row, which a run may quarantine. If all requests fail, the rows are not the cause.
"""

from __future__ import annotations

import threading
from typing import NoReturn

from curator_df.errors import OperatorError

MOST_IN_A_ROW = 20
"""Maximum number of consecutive failed requests in a process, each after all attempts."""
MOST_REMEMBERED = 10_000
"""Maximum number of failed requests that a process remembers."""
RESUME = "run again with on_existing='resume', which keeps the answers so far"
"""Advice for the time when the cause is fixed."""
CHECKED = {
    401: "the API key in the workers' environment (api_key_env=)",
    402: "the credit of the account",
    403: "the permissions of the API key in the workers' environment (api_key_env=)",
    404: "base_url=, which ends before /chat/completions, and the names of the server's models (model=)",
}
"""Statuses that never concern a single row, with what to check."""


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
