# SPDX-License-Identifier: Apache-2.0
"""Earlier runs whose outputs a run reads, from their receipts: the funnel across checkpoints."""

from __future__ import annotations

import json
import posixpath
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from curator_df.files.storage import JOURNAL_FOLDER, Folder

MOST_FOLDERS = 8
"""Maximum number of input folders whose receipts are read."""


@dataclass
class EarlierRun:
    """Run whose output was read by a later one."""

    output: str
    """Output folder."""
    rows_read: int
    """Rows in its input."""
    rows_written: int
    """Rows in its output."""
    rows_quarantined: int
    """Rows quarantined."""
    steps: list[tuple[str, int, int]] = field(default_factory=list)
    """Name, rows in and rows out of each step that changed the number of rows."""
    is_first: bool = True
    """Whether no run of ours wrote its input."""


def earlier_runs(source: Any) -> list[EarlierRun]:
    """Return the runs that wrote the input of a source, and those before them, first runs first; empty if there is none.

    A folder without a receipt, such as the raw input, was written by no run of ours.
    """
    options = getattr(getattr(source, "listing", None), "storage_options", None) or {}
    stored = [each.folder.url for each in getattr(source, "stored", ())]  # of a shuffle: its first pass
    parents = dict.fromkeys(_above_partitions(posixpath.dirname(path)) for path in source.files)
    folders = dict.fromkeys([*stored, *(folder for folder in parents if folder.startswith("/") or "://" in folder)])
    found: dict[str, EarlierRun] = {}
    for folder in list(folders)[:MOST_FOLDERS]:
        for run in _runs_of(folder, options):
            found.setdefault(run.output, run)
    return list(found.values())


def _runs_of(folder: str, options: Mapping[str, Any]) -> list[EarlierRun]:
    name = f"{JOURNAL_FOLDER}/receipt.json"
    try:
        place = Folder(folder, dict(options))
        stored = json.loads(place.read(name)) if place.exists(name) else None
        if stored is None:
            return []
        steps = [(step["name"], step["rows_in"], step["rows_out"]) for step in stored["steps"]]
        changed = [step for step in steps if step[1] != step[2]]
        counts = {each: stored[each] for each in ("rows_read", "rows_written", "rows_quarantined")}
        return [
            *map(read_earlier, stored.get("earlier", [])),
            EarlierRun(stored["output"], **counts, steps=changed, is_first=not stored.get("earlier")),
        ]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return []  # a receipt that cannot be read, or of another version, must not stop the run


def read_earlier(stored: Mapping[str, Any]) -> EarlierRun:
    """Return an earlier run from its plain values."""
    return EarlierRun(**{**stored, "steps": [tuple(step) for step in stored["steps"]]})


def _above_partitions(folder: str) -> str:
    while "=" in posixpath.basename(folder):
        folder = posixpath.dirname(folder)
    return folder
