# SPDX-License-Identifier: Apache-2.0
"""What tests of the dispatcher share: a run on a fake client, and what it told."""

import dataclasses

from curator_df.core.ranges.manifest import Manifest
from curator_df.core.runner.dispatch import SMALLEST_BLOCK_BYTES, Dispatcher
from curator_df.core.runner.events import Note
from curator_df.errors import OversizeRowError
from tests.core.runner.fake_client import (
    FakeClient,
)

RANGES = 8
BLOCK_BYTES = 4 * SMALLEST_BLOCK_BYTES


@dataclasses.dataclass
class Ran:
    """A dispatcher, what it was given, and what it told."""

    dispatcher: Dispatcher
    client: FakeClient
    pieces: list
    finished: list[Manifest]
    told: list

    def run(self):
        self.dispatcher.run(iter(self.pieces))
        return self

    @property
    def numbers(self):
        return [manifest.number for manifest in self.finished]

    def tries(self, number):
        """Return the attempts at one range, in order."""
        return [attempt for attempt in self.client.attempts if attempt.piece.number == number]


def notes_of(ran, kind):
    return [event.text for event in ran.told if isinstance(event, Note) and event.kind == kind]


def long_row(cls=OversizeRowError, row_bytes=10**6):
    error = cls("a row of 1 MB")
    error.path, error.line, error.offset, error.row_bytes = "a.jsonl", 3, 40, row_bytes
    return error


def is_first(attempt):
    return attempt.piece.number == 0 and attempt.exclusive_bytes is None
