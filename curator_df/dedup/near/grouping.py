# SPDX-License-Identifier: Apache-2.0
"""Last stage of a near-duplicate removal: group the edges, in the memory of one task or, if they are too many, on disk."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from curator_df.core.files.storage import FileRecord, Folder, split_files
from curator_df.core.ranges.journal import Journal
from curator_df.dedup.near.group_tasks import run_components
from curator_df.dedup.near.star_tasks import (
    run_large_star,
    run_members,
    run_small_star,
    run_survivors,
    run_vertices,
)

Tasks = Callable[..., list[dict[str, Any]]]
"""Runner of a stage, ``tasks(name, title, task, count, **fields_of_the_job)``: runs its unfinished tasks, returns all results."""


@dataclass(frozen=True)
class Grouped:
    """Result of the grouping."""

    members: tuple[FileRecord, ...]
    """Files of (address, kept row, rows of the group) for all members, with a slice for each range."""
    drops: tuple[FileRecord, ...]
    """Files of (address, kept row) for the rows to drop, with a slice for each range."""
    summary: dict[str, int]
    """Figures for the receipt."""


def group_rows(
    tasks: Tasks,
    home: Folder,
    groups: int,
    *,
    files: tuple[FileRecord, ...],
    known: tuple[FileRecord, ...],
    ranks: tuple[FileRecord, ...],
) -> Grouped:
    """Return the groups that the edges form."""
    [done] = tasks("groups", "groups", run_components, 1, files=files, known=known, ranks=ranks)
    if done["files"]:
        members, drops = done["files"]
        return Grouped((members,), (drops,), done["summary"])
    stars, rounds = _stars(tasks, home, groups, files, known)
    sent = tasks("stars/vertices", "groups", run_vertices, groups, files=stars, ranks=ranks, into="stars/vertices")
    into = "stars/survivors"
    chosen = tasks(into, "groups", run_survivors, groups, files=split_files(sent, "stars"), into=into)
    written = tasks("stars/members", "groups", run_members, groups, files=split_files(chosen, "stars"))
    summary = {
        "groups": sum(manifest["summary"]["groups"] for manifest in chosen),
        "largest_group": max(manifest["summary"]["largest_group"] for manifest in chosen),
        "grouping_rounds": rounds,
    }
    for manifest in written:
        for name, count in manifest["summary"].items():
            summary[name] = summary.get(name, 0) + count
    home.delete_tree("stars")
    return Grouped(split_files(written, "groups"), split_files(written, "drops"), summary)


def _stars(
    tasks: Tasks, home: Folder, groups: int, files: tuple[FileRecord, ...], known: tuple[FileRecord, ...]
) -> tuple[tuple[FileRecord, ...], int]:
    """Return links in both directions from every vertex to the smallest of its group, and the number of rounds."""
    _forget_lost_rounds(home)
    rounds, changed = 0, 1
    while changed:
        name = f"stars/round-{rounds:03d}"
        with Journal(home.below(name)) as journal:
            if journal.receipt is None:
                title = f"groups, round {rounds + 1}"
                into = f"{name}/large"
                large = tasks(into, title, run_large_star, groups, files=files, known=known, into=into)
                into = f"{name}/small"
                small = tasks(into, title, run_small_star, groups, files=split_files(large, name), into=into)
                journal.finish(
                    {
                        "files": [vars(file) for file in split_files(small, name)],
                        "changed": sum(manifest["summary"]["changed"] for manifest in (*large, *small)),
                    }
                )
                used = split_files(large, name) + (files if rounds else ())
                for file in used:
                    if home.exists(file.name):
                        home.delete(file.name)
            said = journal.receipt or {}
        files, known, changed = tuple(FileRecord(**file) for file in said["files"]), (), said["changed"]
        rounds += 1
    return files, rounds


def _forget_lost_rounds(home: Folder) -> None:
    """Discard all rounds if files of the newest are missing: they are then computed again from the edges."""
    newest, rounds = None, 0
    while (said := Journal(home.below(f"stars/round-{rounds:03d}")).receipt) is not None:
        newest, rounds = said, rounds + 1
    if newest is not None and not home.holds([FileRecord(**file) for file in newest["files"]]):
        home.delete_tree("stars")
