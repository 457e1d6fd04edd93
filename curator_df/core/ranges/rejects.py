# SPDX-License-Identifier: Apache-2.0
"""Rows that a run removes: their table, and their folder, with what it may contain when the run begins, and whose it is.

The table has the columns as they were read. Added columns all begin with ``reject_``: ``step``, ``reason``, ``rule``, ``value``,
``threshold``, ``file``, ``offset``, ``matched_file``, ``matched_offset``. A table in ``docs/operators.md`` lists the columns that
each step fills.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Any, Self

import numpy as np
import pandas as pd
import pyarrow as pa
from pandas.api.types import infer_dtype

from curator_df.core.columns import is_text
from curator_df.core.host_blocks import host_block
from curator_df.core.ranges.blocks import Outcome
from curator_df.core.ranges.foreign_step import FOREIGN_REASON
from curator_df.core.ranges.journal import Journal, OnExisting, check_output
from curator_df.core.ranges.sink import Sink
from curator_df.core.ranges.source import OFFSET_BITS
from curator_df.errors import OutputExistsError, ResumeError
from curator_df.files.storage import JOURNAL_FOLDER, shown_path

_TEXT = pd.StringDtype("pyarrow")
_COLUMNS: dict[str, Any] = {
    "reject_step": _TEXT,
    "reject_reason": _TEXT,
    "reject_rule": _TEXT,
    "reject_value": pd.ArrowDtype(pa.float64()),
    "reject_threshold": pd.ArrowDtype(pa.float64()),
    "reject_file": _TEXT,
    "reject_offset": pd.ArrowDtype(pa.int64()),
    "reject_matched_file": _TEXT,
    "reject_matched_offset": pd.ArrowDtype(pa.int64()),
}


def rejects_meta(source_meta: Any) -> Any:
    """Return the empty table of rejects for a source."""
    return source_meta.assign(**{name: pd.array([], dtype=dtype) for name, dtype in _COLUMNS.items()})


def reject_rows(step: str, block: Any, outcome: Outcome, files: Sequence[str], source_meta: Any) -> Any:
    """Return the rows that a step removed from a block, with reason and row ID."""
    if outcome.rejects is not None:
        removed, why = outcome.rejects()
    else:
        removed = block[~block.index.isin(outcome.block.index)]
        why = {"reason": [next(iter(outcome.dropped), FOREIGN_REASON)] * len(removed)}
    removed = host_block(removed)
    addresses = removed.index.to_numpy()
    values: dict[str, Any] = {
        "reject_step": [step] * len(removed),
        "reject_file": [shown_path(files[number]) for number in addresses >> OFFSET_BITS],
        "reject_offset": addresses & np.int64((1 << OFFSET_BITS) - 1),
    }
    for name in ("reason", "rule"):
        values[f"reject_{name}"] = why.get(name, [None] * len(removed))
    for name in ("value", "threshold"):  # NaN becomes missing
        values[f"reject_{name}"] = pa.array(why.get(name, [None] * len(removed)), pa.float64(), from_pandas=True)
    values |= _matched(why, len(removed), files)
    table = pd.DataFrame(
        {name: _as_read(removed, name, source_meta) for name in source_meta.columns}, index=removed.index
    )
    return table.assign(**{name: pd.array(values[name], dtype=dtype) for name, dtype in _COLUMNS.items()})


def _matched(why: Mapping[str, Any], rows: int, files: Sequence[str]) -> dict[str, Any]:
    """Return the row that each removed row matched."""
    if "matched" not in why:
        return {"reject_matched_file": [None] * rows, "reject_matched_offset": pa.nulls(rows, pa.int64())}
    names = [*files, *why.get("other_files", ())]
    numbers, offsets = why["matched"] >> OFFSET_BITS, why["matched"] & np.int64((1 << OFFSET_BITS) - 1)
    is_known = numbers < len(names)  # kept signatures may lack the names of their files
    return {
        "reject_matched_file": [names[number] if number < len(names) else None for number in numbers.tolist()],
        "reject_matched_offset": pa.array(offsets, mask=~is_known),
    }


def _as_read(removed: Any, name: str, source_meta: Any) -> Any:
    """Return a column in the type that it was read in; empty if a step removed it, or gave it values of another kind."""
    dtype = source_meta.dtypes[name]
    if name in removed:
        column = removed[name]
        if column.dtype == dtype:
            return column
        is_same_text = (
            is_text(dtype) and is_text(column.dtype) and infer_dtype(column, skipna=True) in ("string", "empty")
        )
        if is_same_text or (dtype.kind == column.dtype.kind and dtype.kind in "iufb"):
            with suppress(TypeError, ValueError, OverflowError, pa.ArrowInvalid):  # a value that the type does not hold
                return column.astype(dtype)  # an assigned text or number has another type of the same kind
    return pd.Series(pd.array([None] * len(removed), dtype=dtype), index=removed.index)


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
