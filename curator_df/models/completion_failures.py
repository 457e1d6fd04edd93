# SPDX-License-Identifier: Apache-2.0
"""Requests for completions that failed in this process: which are not sent again in a run, and when they end it.

A request that fails is a matter of its row, which a run may set aside. Where all of them fail, it is not the rows.
"""

from __future__ import annotations

import threading
from typing import NoReturn

from curator_df.errors import OperatorError

MOST_IN_A_ROW = 20
"""Requests one after the other that may fail in a process, each after all tries."""
MOST_REMEMBERED = 10_000
"""Requests of which a process knows that they failed."""
RESUME = "run the same again with on_existing='resume': what the server has answered is kept"
"""What to do when the cause is mended."""
CHECKED = {
    401: "the API key in the workers' environment (api_key_env=)",
    402: "the credit of the account",
    403: "what the API key in the workers' environment (api_key_env=) allows",
    404: "base_url=, which ends before /chat/completions, and the names of the server's models (model=)",
}
"""Statuses that are never about one row, and what to check."""


class NoAnswerError(RuntimeError):
    """A server refused a request, or did not answer it after all tries."""

    remedy = (
        "Check that the server runs, and the prompt of such a row. Then run the same again with on_existing='resume' (what the "
        "server has answered is kept)"
    )
    """What to do about it, in the place of what is said of a function that raises."""


class UnansweredError(NoAnswerError):
    """A server did not answer a request after all tries."""


class GivenUpError(NoAnswerError):
    """A request is not tried again, since another of its block failed."""


class Failures:
    """Requests that failed in this process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._said: dict[str, str] = {}
        self._in_a_row = 0
        self._is_refused = False
        self._end: str | None = None

    def check(self, name: str) -> None:
        """Raise what was raised for this request before, or what ends the run."""
        if self._end is not None:
            raise OperatorError(self._end)
        if (said := self._said.get(name)) is not None:  # the row is being looked for on which a block fails
            raise NoAnswerError(said)

    def add(self, name: str, exc: NoAnswerError) -> None:
        """Remember a request that failed; raise `OperatorError` where all of them fail."""
        with self._lock:
            while len(self._said) >= MOST_REMEMBERED:
                del self._said[next(iter(self._said))]
            self._said[name] = str(exc)
            self._in_a_row += 1
            self._is_refused = not isinstance(exc, UnansweredError)
            if self._in_a_row < MOST_IN_A_ROW:
                return
            self.end(
                f"add_completion: {self._in_a_row} requests one after the other failed, so it is not the rows. The last: {exc}. "
                f"Check that the server runs, and base_url=, model= and options=; then {RESUME}. If the prompts are to blame, "
                "such as those that are too long for the model, take a smaller max_chars, or drop such rows first"
            )

    def end(self, said: str) -> NoReturn:
        """Raise the error that ends the run, in all requests to come too: nobody may be waiting any more for this one."""
        self._end = self._end or said
        raise OperatorError(self._end)

    def answered(self, *, from_cache: bool = False) -> None:
        """Note an answer. One that was kept says that it is the rows that are refused, not that a server still answers."""
        if self._is_refused or not from_cache:
            with self._lock:
                self._in_a_row = 0
