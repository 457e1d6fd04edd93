# SPDX-License-Identifier: Apache-2.0
"""Folder of the rows that a run removes: what it may contain when the run begins, and which run it belongs to."""

from __future__ import annotations

import json
from types import TracebackType
from typing import Self

from curator_df.core.ranges.journal import Journal, OnExisting, check_output
from curator_df.core.ranges.sink import Sink
from curator_df.errors import OutputExistsError, ResumeError
from curator_df.files.storage import JOURNAL_FOLDER

MARK = f"{JOURNAL_FOLDER}/rejects_of.json"
"""File that names the run and the output to which the rows belong."""


class RejectsFolder:
    """Folder for the removed rows of one output, locked by the process that runs it."""

    def __init__(self, sink: Sink, output: Journal) -> None:
        self._sink, self._output = sink, output
        self._journal = Journal(sink.folder)
        self._present: list[str] = []

    def __enter__(self) -> Self:
        self._journal.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._journal.__exit__(kind, exc, trace)

    def check(self, on_existing: OnExisting) -> None:
        """Raise an error if the folder's content prevents the run. Nothing is deleted."""
        folder, run = self._sink.folder, self._output.run
        self._present = check_output(self._journal, self._sink, on_existing)
        if self._journal.is_started:
            raise OutputExistsError(
                f"rejects={folder.url!r} contains the output of a run. Use another folder for rejects=, or delete "
                f"{folder.url!r} yourself if you do not need that output any more"
            )
        if not self._present or on_existing != "resume":
            return
        marked = json.loads(folder.read(MARK)) if folder.exists(MARK) else None
        if marked is None:
            strange = [name for name in self._present if self._sink.owns(name) is None and not _is_ours(name)]
            if run is None or run["id"] is not None or strange:  # runs of versions without marks lack an id
                raise ResumeError(
                    f"rejects={folder.url!r} contains files that are not rejects of this run ({self._present[0]!r}...). Use "
                    "another folder for rejects=, or delete these files yourself"
                )
        elif run is None or (marked["run"] or marked["output"]) != (run["id"] or self._output.folder.url):
            raise ResumeError(
                f"rejects={folder.url!r} contains the rejects of another run, whose output is {marked['output']}. Use another "
                f"folder for rejects=, or delete {folder.url!r} if you do not need those rejects any more"
            )

    def empty(self) -> None:
        """Delete the files that a run wrote to the folder."""
        self._sink.folder.delete_all(self._present)

    def claim(self) -> None:
        """Mark the folder with the run, whose ranges are already stored."""
        run = self._output.run
        mark = {"run": None if run is None else run["id"], "output": self._output.folder.url}
        self._sink.folder.write(MARK, json.dumps(mark).encode())


def _is_ours(name: str) -> bool:
    return name.startswith(f"{JOURNAL_FOLDER}/")
