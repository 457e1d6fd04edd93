# SPDX-License-Identifier: Apache-2.0
"""Dask's own operations under the budget of a session: ``compute``, ``head``, ``len``, sorts, merges, shuffles.

While a session is open, results are returned in pieces (`results`), tasks that run out of memory are repeated exclusively on
their worker (`interactive.second_try`), and tables with deferred operations can be computed and shown (`Looks`).
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import itertools
import json
import os
import threading
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import dask
import dask.dataframe as dd
import numpy as np
import pandas as pd
from dask.dataframe.dask_expr import new_collection

from curator_df.core.backend import is_on_device
from curator_df.core.fingerprint import fingerprint
from curator_df.core.planning.branches import Branch, fork
from curator_df.core.planning.lowering import ReadPartition, current_spooler, foreign_part, lower, origin_of
from curator_df.core.planning.plan import plan_stream
from curator_df.core.planning.program import Pending, Program, Step
from curator_df.core.ranges.blocks import Outcome
from curator_df.core.ranges.deferred_step import add_evaluator, remove_evaluator
from curator_df.core.ranges.journal import Journal
from curator_df.core.ranges.out_of_memory import UnitLog
from curator_df.core.ranges.range_action import OnPartitions, RangeAction
from curator_df.core.ranges.sink import StageSink
from curator_df.core.ranges.source import BadRow, Ranges, range_starts
from curator_df.core.ranges.stream_parts import PARTS_FOLDER
from curator_df.core.runner.explaining import is_explaining, stop_if_explaining
from curator_df.core.runner.passes import SHOW, PassRunner, stage_identity, temporary_name
from curator_df.core.runner.progress import passes_bar
from curator_df.core.runner.run import range_bytes, with_disk
from curator_df.core.runner.session import Session, prepare_kernels
from curator_df.core.runner.shared_plugins import share_plugin
from curator_df.core.tasks.step_runner import StepRunner
from curator_df.errors import DiskFullError, ExpressionError, PendingError
from curator_df.files.storage import JOURNAL_FOLDER, Folder, disk_errors
from curator_df.interactive.results import return_in_pieces
from curator_df.interactive.second_try import SecondTry
from curator_df.memory.process_cache import outside_of_runs
from curator_df.memory.sizes import show_size

LOOKS_FOLDER = "looks"
"""Name of the folder in the working folder of the cluster."""
PARTITIONS = "partitions-"
"""Prefix of the names of folders in which passes take partitions instead of the ranges of a run."""
NOT_STARTED = "Nothing was started"
"""In the error of a plan that needs more disk than there is."""
COPY_BYTES = 1 << 20
"""Bytes of a file that are read in one step."""
NOT_COPIED = ("lock", "owners/", "unfinished/")
"""Names in the folder of a journal that belong to the process that writes there."""


@dataclass(frozen=True)
class _NoSink(StageSink):
    """Sink of an evaluation, which writes nothing after its passes."""

    folder: Folder
    writer_factor: float = 0.0

    @property
    def fingerprint(self) -> str:
        """Digest of the settings; constant, because nothing is written."""
        return "look"

    def open(self, number: int, meta: Any, buffer_bytes: int) -> Any:  # noqa: ARG002 - the face of a sink
        """Raise an error: a plan only needs the cost of the sink."""
        raise AssertionError(
            "a plan that only shows rows was run as one that writes files. This is a defect in curator_df; please report it "
            "with this traceback"
        )


@dataclass(frozen=True)
class EvaluatedPartition:
    """Function that Dask calls for each partition of a table whose deferred operations were resolved."""

    program: Program
    """Program in which deferred steps are replaced by their resolved form."""
    ranges: Ranges
    """Ranges of the source, one for each partition."""
    block_bytes: int
    """Decompressed bytes of a block."""
    index: Callable[[int, Any], Any] | None = None
    """Returns the index of rows of a partition by their addresses, where the table had one of its own."""
    meta: Any = None
    """Empty block with the columns of that table."""

    def __call__(self, number: int) -> Any:
        """Return a whole partition as one block."""
        block = self._block(number)
        if self.index is None:
            return block
        if not len(block):
            return self.meta
        index = self.index(number, block.index.to_numpy())
        return _as_declared(block[list(self.meta.columns)].set_axis(index), self.meta)

    def _block(self, number: int) -> Any:
        source, steps = self.program.source, self.program.steps
        log = UnitLog(number, None)
        stretch = StepRunner(
            steps,
            number,
            files=source.files,
            on_error="raise",
            halves=False,
            log=log,
            set_aside=_keep_no_row,
            reject=_keep_no_reject,
        )
        parts = []
        with outside_of_runs({name: size for step in steps for name, size in step.price.libraries.items()}):
            for block in source.blocks(self.ranges[number], block_bytes=self.block_bytes):
                parts += [part for part in stretch.run([block]) if len(part)]
        stretch.finish()
        if not parts:
            return self.program.meta
        return parts[0] if len(parts) == 1 else dd.methods.concat(parts)


def _as_declared(block: Any, meta: Any) -> Any:
    """Return a block with the types that Dask expects of a table; nested values stay what they are."""
    other = {name: kind for name, kind in meta.dtypes.items() if block[name].dtype != kind}
    simple = {name: kind for name, kind in other.items() if not pd.api.types.is_object_dtype(block[name].dtype)}
    return block.astype(simple) if simple else block


def _keep_no_row(row: BadRow) -> None:
    """Ignore a row that a run would quarantine; an evaluation leaves it out, as ``.compute()`` of the reader does."""


def _keep_no_reject(step: Step, block: Any, outcome: Outcome) -> None:
    """Ignore the rows that a step removed; an evaluation shows only kept rows."""


@dataclass(frozen=True)
class _Resolved:
    """The steps up to a pending one, resolved."""

    whole: tuple[Step, ...]
    """On the ranges that a run would take."""
    here: tuple[Step, ...]
    """On the partitions of the table."""
    stages: tuple[Folder, ...]
    """Folders of their passes."""


@dataclass
class Looks:
    """The passes that looks have run on a session, by what the chain does.

    They take the ranges that a run of the same chain takes, so that the run can go on with their files (`hand_over`).
    """

    session: Session
    """Session whose workers run them."""
    _steps: dict[str, _Resolved] = field(default_factory=dict)
    _lock: threading.RLock = field(default_factory=threading.RLock)

    @functools.cached_property
    def folder(self) -> Folder:
        """Where their files are. A run may go on with them, so they are as durable as its own."""
        return dataclasses.replace(self.session.working(LOOKS_FOLDER), is_durable=True)

    def evaluate(self, expression: Any) -> Any:
        """Return the expression of a table with the rows that a chain with a deferred last step yields.

        None for a table that no run takes: the drop then refuses to be computed. What a run cannot stream, such as rows of
        ``dask.dataframe.from_pandas``, is computed by Dask into working files first.
        """
        part, spooler, spooled = foreign_part(expression), current_spooler(), None
        if part is not None and spooler is not None:
            spooled = spooler.spooled(part)
            table = new_collection(expression.substitute(part, spooled.table.expr))
        else:
            table = new_collection(expression)
        try:
            reader, program = origin_of(table), lower(table)
        except ExpressionError:
            return None
        if any(is_on_device(one) for one in (program.meta, program.source.meta)) or any(
            s.on_device for s in program.steps
        ):
            raise PendingError(
                f"{program.steps[-1].name} cannot be computed or shown while its blocks are on a GPU. Write the table with "
                "write_parquet or checkpoint(df, path) and read the result"
            )
        source, partitions = reader.in_parts(program.source), reader.ranges
        if reader.parts is not None:
            partitions = self._cut_parts(reader)
        with self._lock:
            steps = self._resolved(program, dataclasses.replace(program, source=source), partitions)
        done = EvaluatedPartition(
            dataclasses.replace(program, source=source, steps=steps), partitions, reader.block_bytes
        )
        where: dict[str, Any] = {"meta": program.meta, "label": program.steps[-1].name}
        if spooled is not None:
            done = dataclasses.replace(done, index=spooled.index, meta=expression._meta)
            where |= {"meta": expression._meta, "divisions": expression.divisions}
        # Otherwise Dask turns the lists and dicts of blocks into their text.
        with dask.config.set({"dataframe.convert-string": False}):
            return dd.from_map(done, range(len(partitions)), **where).expr

    def forget(self) -> None:
        """Delete the files of all evaluations."""
        with self._lock:
            self._steps.clear()
            if "folder" in vars(self):
                self.folder.delete_tree("")

    def hand_over(self, home: Folder, ranges: Ranges) -> bool:
        """Copy to a run's new folder of a stage what a look has done of the same stage; tell whether there was something.

        Files are linked where that is possible. A look whose files are damaged is forgotten.
        """
        with self._lock:
            if "folder" not in vars(self) or home.url.startswith(f"{self.folder.url}/"):
                return False
            stage = self.folder.below(home.url.rpartition("/")[2])
            pinned = Journal(stage).ranges
            if pinned is None or not np.array_equal(pinned.table, ranges.table) or Journal(home).is_started:
                return False
            if not records_hold(stage):
                self._forget_stage(stage)
                return False
            copy_stage(stage, home)
            return True

    def finished(self, program: Program) -> list[str]:
        """Return the names of the deferred steps of a program whose passes a run would take over whole."""
        with self._lock:
            if "folder" not in vars(self):
                return []
            ranges = program.source.cut(range_bytes(program.source))
            stages = self._stages(program).items()
            return [
                program.steps[place].name
                for place, (stage, *_) in stages
                if _is_finished(stage, ranges, program.steps[place].pending)
            ]

    def forget_chain(self, expression: Any) -> int:
        """Delete what looks at a table that ends in a deferred drop have written for it; return the bytes."""
        part, spooler = foreign_part(expression), current_spooler()
        known = None if part is None or spooler is None else spooler.known(part)
        if known is not None:
            expression = expression.substitute(part, known.table.expr)
        elif part is not None:
            return 0  # then nobody has looked at it
        freed = 0
        with self._lock:
            stages = self._stages(lower(new_collection(expression))) if "folder" in vars(self) else {}
            for stage in itertools.chain(*stages.values()):
                freed += sum(stage.sizes().values())
                self._forget_stage(stage)
        return freed

    def _stages(self, program: Program) -> dict[int, list[Folder]]:
        """Return the folders of the passes of each deferred step: on the ranges of a run, and on partitions."""
        others = sorted({name.split("/")[0] for name in self.folder.names() if name.startswith(PARTITIONS)})
        found = {}
        for place, step in enumerate(program.steps):
            if step.pending is not None:
                before = dataclasses.replace(program, steps=program.steps[:place])
                name = temporary_name(step, stage_identity(before, step))
                found[place] = [self.folder.below(name), *(self.folder.below(f"{other}/{name}") for other in others)]
        return found

    def _forget_stage(self, stage: Folder) -> None:
        self._steps = {key: known for key, known in self._steps.items() if stage not in known.stages}
        stage.delete_tree("")

    def _cut_parts(self, reader: ReadPartition) -> Ranges:
        """Return the partitions of compressed files, which a worker writes block by block, as ranges."""
        with dask.config.set({"dataframe.convert-string": False}):
            (found,) = dask.compute(dask.delayed(_starts_of)(reader))
        return Ranges(found)

    def _resolved(self, program: Program, here: Program, ranges: Ranges) -> tuple[Step, ...]:
        """Return the steps of a program with its deferred ones resolved; those that were resolved before are not run again."""
        steps = program.steps
        pending = [place for place, step in enumerate(steps) if step.pending is not None]
        keys = {place: self._key(program, place, ranges) for place in pending}
        known = max((place for place in pending if self._holds(keys[place])), default=-1)
        found = self._steps[keys[known]] if known >= 0 else _Resolved((), (), ())
        if known < pending[-1]:
            rest = steps[known + 1 :]
            found = self._run_passes(
                program, here, _Resolved((*found.whole, *rest), (*found.here, *rest), found.stages), ranges
            )
        for place in pending:
            self._steps[keys[place]] = dataclasses.replace(
                found, whole=found.whole[: place + 1], here=found.here[: place + 1]
            )
        return (*found.here, *steps[len(found.here) :])

    def _holds(self, key: str) -> bool:
        """Tell whether steps were resolved, and the files of their passes were not deleted since."""
        return key in self._steps and all(Journal(stage).is_started for stage in self._steps[key].stages)

    def _key(self, program: Program, place: int, ranges: Ranges) -> str:
        chain = [step.fingerprint for step in program.steps[: place + 1]]
        return fingerprint([program.source.fingerprint, *chain, ranges.table.tobytes()])

    def _run_passes(self, program: Program, of_table: Program, begun: _Resolved, partitions: Ranges) -> _Resolved:
        session, steps = self.session, program.steps
        session.require_ready()
        plan = plan_stream(program, _NoSink(self.folder), None, session.weigh_client())
        if is_explaining():
            plan = with_disk(plan, fork([Branch(program, _NoSink(self.folder))]), session.layout)
        stop_if_explaining(plan, [program])
        prepare_kernels(session, [program])
        ranges = program.source.cut(range_bytes(program.source))
        run = PassRunner(session, plan.stages[0], self.folder, ranges, "raise", "retry")
        own = self.folder.below(f"{PARTITIONS}{fingerprint(partitions.table.tobytes())[:16]}")
        look = PassRunner(session, plan.stages[0], own, partitions, "raise", "retry")
        names = ", ".join(step.name for step in begun.whole if step.is_pending)
        with run.running(f"full pass for {names}", plan, steps, look), passes_bar() as tell:
            try:
                whole = here = run.resolve(dataclasses.replace(program, steps=begun.whole), tell).steps
                if not np.array_equal(ranges.table, partitions.table):
                    here = _on_partitions(dataclasses.replace(of_table, steps=begun.here), whole, run, look, tell)
            except DiskFullError as exc:
                kept = {stage.url for stage in begun.stages}
                for stage in (*run.folders, *look.folders):
                    if stage.url not in kept:
                        self._forget_stage(stage)
                raise self._no_space(names, exc) from None
        return _Resolved(whole, here, (*begun.stages, *run.folders, *look.folders))

    def _no_space(self, names: str, exc: DiskFullError) -> DiskFullError:
        """Return the error for a look that found too little disk; a plan that did not fit says so itself."""
        if NOT_STARTED in str(exc):
            return exc
        free = self.folder.free_bytes()
        known = "" if free is None else f" ({show_size(free)} free)"
        return DiskFullError(
            f"No space is left in {self.folder.url}{known} for the temporary files of {names}. What was written of them "
            "has been deleted.\nFree some space, or start the cluster with workdir= on a larger disk."
        )


def _starts_of(reader: ReadPartition) -> Any:
    return reader.in_parts(reader.source).cut_parts().table


def _on_partitions(
    program: Program, whole: Sequence[Step], run: PassRunner, look: PassRunner, show: SHOW
) -> tuple[Step, ...]:
    """Return steps for the partitions of a table, made from the resolved ones for the ranges of a run.

    What does not follow from the address of a row alone, such as consecutive numbers, has a pass over the partitions.
    """
    starts = range_starts(run.ranges), range_starts(look.ranges)
    steps = list(program.steps)
    for place, (step, resolved) in enumerate(zip(steps, whole, strict=True)):
        if not isinstance(resolved.action, RangeAction) or not step.is_pending:
            continue
        if resolved.action.follows_addresses:
            steps[place] = dataclasses.replace(resolved, action=OnPartitions(resolved.action, *starts))
        else:
            steps[: place + 1] = look.resolve(dataclasses.replace(program, steps=tuple(steps[: place + 1])), show).steps
    return tuple(steps)


def _is_finished(stage: Folder, ranges: Ranges, pending: Pending | None) -> bool:
    pinned = Journal(stage).ranges
    if pending is None or pinned is None or not np.array_equal(pinned.table, ranges.table):
        return False
    return pending.is_whole(stage, len(ranges))


def records_hold(stage: Folder) -> bool:
    """Tell whether the files of a stage that are there have the bytes that its journals say."""
    noted: dict[str, tuple[int, int]] = {}
    for name in stage.names():
        if JOURNAL_FOLDER in name.split("/")[:-1] and name.endswith((".json", ".jsonl")):
            for line in stage.read(name).splitlines() if name.endswith(".jsonl") else [stage.read(name)]:
                noted |= {file["name"]: (file["size_bytes"], file["checksum"]) for file in _files_in(json.loads(line))}
    for name, said in noted.items():
        if not stage.exists(name):  # deleted by a later stage, or for the journal to find out
            continue
        size = checksum = 0
        with stage.filesystem.open(stage.path(name), "rb") as file:
            while piece := file.read(COPY_BYTES):
                size, checksum = size + len(piece), zlib.crc32(piece, checksum)
        if (size, checksum) != said:
            return False
    return True


def _files_in(value: Any) -> Iterator[dict[str, Any]]:
    """Yield what is a `FileRecord` anywhere in the notes of a journal."""
    if isinstance(value, dict):
        if {"name", "size_bytes", "checksum"} <= value.keys():
            yield value
        else:
            yield from (file for each in value.values() for file in _files_in(each))
    elif isinstance(value, list):
        yield from (file for each in value for file in _files_in(each))


def copy_stage(stage: Folder, home: Folder) -> None:
    """Copy a stage; its journals come last, so that what they name is there whenever the copying ends.

    Files are linked where both are local: they are replaced, never changed. Journals are copied, for they are appended to.
    """
    names = [name for name in stage.names() if not name.split(f"{JOURNAL_FOLDER}/")[-1].startswith(NOT_COPIED)]
    journals = [name for name in names if JOURNAL_FOLDER in name.split("/")[:-1]]
    others = sorted(set(names) - set(journals))
    plan = f"{JOURNAL_FOLDER}/plan.json"
    for name in [*others, *(name for name in journals if name != plan), *([plan] if plan in journals else [])]:
        if name in others and stage.is_local and home.is_local and _is_linked(stage.path(name), home.path(name)):
            continue
        with (
            disk_errors(home),
            stage.filesystem.open(stage.path(name), "rb") as file,
            home.create(name) as copy,
        ):
            while piece := file.read(COPY_BYTES):
                copy.write(piece)
            copy.commit()


def _is_linked(old: str, new: str) -> bool:
    """Link a file; return False where the file system cannot."""
    os.makedirs(os.path.dirname(new), exist_ok=True)
    with contextlib.suppress(FileNotFoundError):
        os.unlink(new)
    try:
        os.link(old, new)
    except OSError:  # another file system, or one without links
        return False
    return True


def look_at_deferred(session: Session) -> Looks | None:
    """Make Dask's evaluation of tables with deferred operations run their passes on a session that has a working folder."""
    if session.workdir is None:
        return None
    looks = Looks(session)
    add_evaluator(looks.evaluate)
    session.looks = looks
    return looks


def stop_looking(looks: Looks | None) -> None:
    """Undo `look_at_deferred`, and delete the files of its passes."""
    if looks is not None:
        remove_evaluator(looks.evaluate)
        looks.session.looks = None
        looks.forget()


def keep_budget_of_dask(
    session: Session, *, owns_workers: bool, spool_on: Callable[[Session], Any], working: Any = None
) -> Callable[[], None]:
    """Make Dask's operations on a session keep its budget; return the call that undoes it.

    Parameters
    ----------
    session : Session
        Session with a running client.
    owns_workers : bool
        Whether the workers end with the session, so that nothing needs to be undone on them.
    spool_on : callable
        Function that routes what runs cannot stream through working files (`curator_df.io.output.spool`); it returns an object to
        close, or None.
    working : object, optional
        Where working files go (``path()``), and how they are deleted (``delete()``); by default the ``workdir`` of the session.
    """
    if working is not None:
        session.working_folder = working.path
    parts = None if session.workdir is None or working is not None else f"{session.workdir}/{PARTS_FOLDER}"
    with contextlib.ExitStack() as undo:
        withdraw = share_plugin(session.client, SecondTry(session.layout.work_bytes, parts))
        if not owns_workers:
            undo.callback(withdraw)
        undo.callback(return_in_pieces(session))
        if working is not None:
            undo.callback(working.delete)
        if (spool := spool_on(session)) is not None:
            undo.callback(spool.close)
        undo.callback(stop_looking, look_at_deferred(session))
        return undo.pop_all().close
