# SPDX-License-Identifier: Apache-2.0
"""Two passes over the rows that a deferred near-duplicate removal needs, each with its journal.

Both read the table, and the kept signatures that it is compared with, if any. The ranges of these are numbered after those of
the table.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from curator_df.core.files.slice_file import rows_of_slices
from curator_df.core.files.storage import FileRecord, Folder
from curator_df.core.planning.program import Program
from curator_df.core.ranges.journal import Journal
from curator_df.core.runner.passes import PassRunner
from curator_df.dedup.near.keys import NearKeySink
from curator_df.dedup.near.settings import NearSettings
from curator_df.dedup.near.text_sink import TextSink
from curator_df.exchange.exchange import Exchange
from curator_df.exchange.range_groups import RangeGroups


class NearPasses:
    """Passes of one deferred near-duplicate removal."""

    def __init__(
        self, runner: PassRunner, before: Program, name: str, pending: NearSettings, groups: RangeGroups
    ) -> None:
        self.runner, self.before, self.name, self.pending, self.groups = runner, before, name, pending, groups
        self._ranges = len(runner.ranges)

    def take_keys(self, journal: Journal, exchange: Exchange, *, are_compared: bool) -> list[dict[str, Any]]:
        """Write the keys of all rows and kept signatures; return the results of the ranges.

        When all of them have been compared, the keys are deleted and no longer needed.
        """
        home, gone = journal.folder, "keys" if are_compared else None
        sink = NearKeySink(exchange, self.pending)
        title = f"{self.name}: signatures"
        args = (journal, title, self.before, self.pending.columns, sink, self.runner.ranges)
        taken = self.runner.run_pass(*args, gone=gone)
        if (against := self.pending.against) is None:
            return taken
        kept = self.pending.for_kept
        sink = NearKeySink(exchange, kept, self._ranges, against.first_address)
        with Journal(home.below("against")) as other:
            title = f"{self.name}: kept signatures"
            args = (other, title, against.program, kept.columns, sink, against.ranges)
            return taken + self.runner.run_pass(*args, home=home, gone=gone)

    def fetch_texts(self, home: Folder, pairs: tuple[FileRecord, ...]) -> list[dict[str, Any]]:
        """Write the texts of all rows that have an edge, and the kept signatures that have one."""
        wanted = np.array([rows > 0 for file in pairs for rows in rows_of_slices(home, file)], dtype=np.bool_)
        into = dataclasses.replace(home, is_durable=False)
        sink = TextSink(into, self.groups, pairs, pending=self.pending)
        with Journal(home.below("fetch")) as journal:
            title = f"{self.name}: texts"
            args = (journal, title, self.before, self.pending.text_columns, sink, self.runner.ranges)
            fetched = self.runner.run_pass(*args, home=home, only=wanted[: self._ranges])
        if (against := self.pending.against) is None:
            return fetched
        kept = self.pending.for_kept
        sink = TextSink(into, self.groups, pairs, self._ranges, against.first_address, pending=kept)
        with Journal(home.below("fetch-against")) as journal:
            title = f"{self.name}: kept signatures of candidates"
            args = (journal, title, against.program, kept.text_columns, sink, against.ranges)
            return fetched + self.runner.run_pass(*args, home=home, only=wanted[self._ranges :])
