# SPDX-License-Identifier: Apache-2.0
"""Disk space for the working files of a run: stated by each deferred operation, shown by `explain`, required before a start.

Working files are what passes before the last one leave for later ones: keys, vectors, texts to compare, stored rows. Their size
is an estimate, because the number of rows is one for most formats. It does not include the output.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from curator_df.core.planning.branches import Fork
from curator_df.core.planning.first_steps import Reuse, stored_rows_need
from curator_df.core.planning.program import DiskNeed, StageStart, Step
from curator_df.core.ranges.source import Ranges
from curator_df.errors import DiskFullError
from curator_df.files.storage import Folder
from curator_df.files.working_files import NO_FOLDER
from curator_df.memory.budget import Layout
from curator_df.memory.sizes import show_size, show_sizes

JOURNAL_BYTES, RECORD_BYTES = 50_000, 2_000
"""Bytes of the journals of a stage, and of their records for each input split. Measured: 5 to 40 kB, and 0.6 to 1.5 kB."""
DASK_ROWS = "rows that Dask computes"
"""Name of the files for a table that Dask computes before a run."""


@dataclass(frozen=True)
class WorkingFiles:
    """Disk space for the working files of a whole run."""

    needs: tuple[DiskNeed, ...] = ()
    """Needs of its operations, in the order in which these run."""

    @property
    def needed_bytes(self) -> int:
        """Space that a run requires before it starts: each operation runs while files of earlier ones are kept."""
        return max(self._peaks(0), default=0)

    @property
    def most_bytes(self) -> int:
        """Space in the worst case."""
        return max(self._peaks(1), default=0)

    def _peaks(self, cases: int) -> Iterator[int]:
        kept = 0
        for need in self.needs:
            yield kept + need.needed_bytes + cases * need.more_bytes
            kept += need.kept_bytes + cases * need.more_bytes

    def lines(self) -> Iterator[str]:
        """Yield the size of all files, then that of each operation if there are several."""
        if not self.needs:
            yield "no working files"
            return
        later = f"; {DASK_ROWS} when the cluster closes" if any(DASK_ROWS in need.parts for need in self.needs) else ""
        yield f"{_said(self.needed_bytes, self.most_bytes, self.needs)}, deleted at the end{later}"
        if len(self.needs) > 1:
            for need in self.needs:
                yield f"{need.name}: {_said(need.needed_bytes, need.needed_bytes + need.more_bytes, [need])}"

    def to_json(self) -> dict[str, Any]:
        """Return the sizes as plain values."""
        operations = [need.to_json() for need in self.needs]
        return {"needed_bytes": self.needed_bytes, "most_bytes": self.most_bytes, "operations": operations}

    def require(self, folder: Folder, *, is_begun: bool = False, replaced: Sequence[Folder] = ()) -> None:
        """Raise `DiskFullError` if a folder has too little free space; a run that was begun has some of its files already.

        Files in ``replaced`` are deleted before, so that their space counts as free. A folder that a call to be explained does
        not name is not on any known disk.

        Raises
        ------
        DiskFullError
            If its free space is known and smaller than ``needed_bytes``. Nothing has been started.
        """
        if NO_FOLDER in folder.root.split("/"):
            return
        free, needed = folder.free_bytes(), self.needed_bytes
        if free is None or free >= needed or is_begun:
            return
        freed = sum(sum(each.sizes().values()) for each in replaced)
        free, after = free + freed, " once the old output is deleted" if freed else ""
        if free >= needed:
            return
        need, has = show_sizes(needed, free)
        names = " and ".join(each.name for each in self.needs)
        parts = (f"{show_size(size)} of {what}" for each in self.needs for what, size in each.parts.items() if size)
        worst = (
            f", and up to {show_size(self.most_bytes)} {_worst_cases(self.needs)}" if self.most_bytes > needed else ""
        )
        raise DiskFullError(
            f"{names} needs {need} for temporary files{worst}: {', '.join(parts)}; only {has} are free in {folder.url}{after}. "
            "Nothing was started. Free some space, name a folder on another disk (with workdir=, or as the path of a shuffle or "
            f"blend), or {smaller_part(free / needed)}"
        )


def _said(needed: int, most: int, needs: Sequence[DiskNeed]) -> str:
    if not needed:
        return f"up to {show_size(most)} of working files {_worst_cases(needs)}"
    worst = f", up to {show_size(most)} {_worst_cases(needs)}" if most > needed else ""
    return f"about {show_size(needed)} of working files{worst}"


def _worst_cases(needs: Sequence[DiskNeed]) -> str:
    return " and ".join(dict.fromkeys(need.worst_case for need in needs if need.worst_case))


def smaller_part(share: float) -> str:
    """Return the advice to process only the share of the rows that fits, rounded down to a hundredth.

    Examples
    --------
    >>> smaller_part(0.379)
    'put sample_rows(fraction=0.37) before it'
    >>> smaller_part(0.001)
    'put sample_rows before it with a fraction below 0.01'
    """
    hundredths = int(100 * share)
    if hundredths == 0:
        return "put sample_rows before it with a fraction below 0.01"
    return f"put sample_rows(fraction={hundredths / 100}) before it"


def working_files(joined: Fork, ranges: Ranges, layout: Layout, reuse: Reuse) -> WorkingFiles:
    """Return the disk space that a run needs for working files: of stored first steps, and of each deferred operation."""
    needs = [] if (stored := stored_rows_need(joined, ranges, reuse)) is None else [stored]
    for before, step in joined.waiting_steps:
        if step.pending is not None:
            needs += stage_files(step, StageStart(before, ranges, layout)).needs
    return WorkingFiles(tuple(needs))


def stage_files(step: Step, start: StageStart) -> WorkingFiles:
    """Return the disk space for the stage of one deferred operation, with its journals."""
    need = None if step.pending is None else step.pending.disk_need(step.name, start)
    if need is None:
        return WorkingFiles()
    journals = JOURNAL_BYTES + RECORD_BYTES * len(start.ranges)
    return WorkingFiles(
        (replace(need, parts={**need.parts, "journals": journals}, kept_bytes=need.kept_bytes + journals),)
    )
