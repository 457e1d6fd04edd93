# SPDX-License-Identifier: Apache-2.0
"""Stages of a pending operation that needs the keys of all rows: a pass that hashes them, and a merge of each hash range."""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import cloudpickle

from curator_df.core.files.storage import JOURNAL_FOLDER, FileRecord, Folder, split_files
from curator_df.core.planning.program import Program, Step
from curator_df.core.planning.row_estimate import estimate_kept
from curator_df.core.ranges.journal import Journal, all_done
from curator_df.core.ranges.manifest import Manifest
from curator_df.core.ranges.source import Range, range_starts
from curator_df.core.ranges.step_tally import StepTally
from curator_df.core.receipts.receipt import ExchangeReceipt
from curator_df.core.runner.events import Exchanged
from curator_df.core.runner.passes import PassRunner, first_pass, mended
from curator_df.core.tasks.task import Attempt, run_guarded
from curator_df.errors import CorruptFileError
from curator_df.exchange.dropped_rows import Found
from curator_df.exchange.drops import collect_drops
from curator_df.exchange.exchange import Exchange
from curator_df.exchange.exchange_plan import project_exchange
from curator_df.exchange.keys import Keyed, KeySink
from curator_df.exchange.range_groups import RangeGroups, ranges_per_group
from curator_df.exchange.reduce import reduce_keys


@dataclass(frozen=True)
class MergeJob:
    """Fields that all tasks of a merge share."""

    exchange: Exchange
    """Exchange to merge."""
    files: tuple[FileRecord, ...]
    """Files of the previous stage."""
    collects: bool
    """Kind of merge. False: keys into drops; True: drops of all hash ranges into files for ranges."""


def run_merge(job_bytes: bytes, attempt: Attempt) -> Manifest:
    """Merge one hash range (or collect the drops of some ranges); return the result."""

    def merge(manifest: Manifest) -> None:
        job: MergeJob = cloudpickle.loads(job_bytes)
        number, memory_bytes = attempt.piece.number, attempt.block_bytes
        if job.collects:
            manifest.files = [collect_drops(job.exchange, number, job.files, memory_bytes=memory_bytes)]
            return
        reduced = reduce_keys(job.exchange, number, job.files, memory_bytes=memory_bytes)
        manifest.files = [reduced.file] if reduced.members is None else [reduced.file, reduced.members]
        manifest.rows_read = reduced.rows
        manifest.summary = {"unique": reduced.groups, "spilled_bytes": reduced.spilled_bytes}
        manifest.steps = [StepTally(seconds=reduced.seconds)]

    return run_guarded(attempt, merge)


class KeyStages:
    """Stages of one pending operation that needs the keys of all rows (or parts)."""

    def __init__(self, runner: PassRunner, before: Program, step: Step, pending: Keyed) -> None:
        self.runner, self.before, self.step, self.pending = runner, before, step, pending
        self.home = Folder(".")

    def run(self) -> Found:
        """Exchange the keys of all rows (or parts); return which of them to drop."""
        runner = self.runner
        with runner.open_stage(self.before, self.step, self.pending.home) as journal:
            self.home = journal.folder
            exchange, projected_bytes = self._exchange()
            files = None if journal.receipt is None else self._found_files(exchange)
            if files is None:
                said = ExchangeReceipt(**self._exchange_keys(journal, exchange, projected_bytes))
                journal.finish(dataclasses.asdict(said))
                runner.session.tell(Exchanged(said))
                files = self._found_files(exchange)
            if files is None:
                raise CorruptFileError(f"{self.home.url}: files of a stage were deleted while it ran. Run it again")
            runner.exchanges.append(ExchangeReceipt(**(journal.receipt or {})))
            self.home.delete_tree("keys")
            first = first_pass(journal.done(), len(runner.ranges))
        groups = RangeGroups(exchange.range_starts, ranges_per_group(len(runner.ranges)))
        return Found(exchange, files["drops"], *first, groups=groups, members=files["members"])

    def _found_files(self, exchange: Exchange) -> dict[str, tuple[FileRecord, ...]] | None:
        """Return the files that the last pass, or a table, reads; None if one of them, or the record of a task, is missing."""
        found: dict[str, tuple[FileRecord, ...]] = {}
        merged = ("merge", exchange.reducers)
        last = ("collect", exchange.drop_files) if exchange.ranges_per_drop_file > 1 else merged
        for kind, (name, count) in (("drops", last), ("members", merged)):
            done = all_done(self.home.below(name), count)
            if done is None:
                return None
            found[kind] = split_files(done, kind)
        return found if self.home.holds([file for files in found.values() for file in files]) else None

    def _exchange_keys(self, journal: Journal, exchange: Exchange, projected_bytes: int) -> dict[str, Any]:
        """Write keys, compare them and collect the drops; return the figures for an `ExchangeReceipt`."""
        started = time.monotonic()
        keys, merged = self._map_and_merge(journal, exchange)
        found = [record for manifest in merged for record in manifest["files"]]
        if exchange.ranges_per_drop_file > 1:
            collected = self._merge("collect", exchange, split_files(merged, "drops"), exchange.drop_files)
            found += split_files(collected, "drops")
        sizes = [manifest["rows_read"] for manifest in merged]
        return {
            "step": self.step.name,
            "keys": sum(sizes),
            "unique": sum(manifest["summary"]["unique"] for manifest in merged),
            "hash_ranges": exchange.reducers,
            "skew": max(sizes) * len(sizes) / max(sum(sizes), 1),
            "projected_bytes": projected_bytes,
            "key_bytes": sum(record.size_bytes for record in split_files(keys, "keys")),
            "drop_bytes": sum(record.size_bytes for record in found),
            "spilled_bytes": sum(manifest["summary"]["spilled_bytes"] for manifest in [*keys, *merged]),
            "seconds": time.monotonic() - started,
        }

    def _map_and_merge(self, journal: Journal, exchange: Exchange) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        def take() -> list[dict[str, Any]]:
            sink, title = KeySink(exchange, self.pending), f"{self.step.name}: keys"
            return self.runner.run_pass(journal, title, self.before, self.pending.columns, sink, self.runner.ranges)

        def merge(keys: list[dict[str, Any]]) -> list[dict[str, Any]]:
            return self._merge("merge", exchange, split_files(keys, "keys"), exchange.reducers)

        return mended(journal.folder, take, merge)

    def _merge(self, name: str, exchange: Exchange, files: Sequence[FileRecord], count: int) -> list[dict[str, Any]]:
        stage = dataclasses.replace(self.runner.stage, block_bytes=self.runner.work_bytes)
        pieces = [Range(number, 0, 0, 0, 0) for number in range(count)]
        with Journal(self.home.below(name)) as journal:
            job = MergeJob(exchange, tuple(files), name == "collect")
            return self.runner.run_tasks(journal, name, job, pieces, stage=stage, folder=self.home, task=run_merge)

    def _exchange(self) -> tuple[Exchange, int]:
        """Return the exchange and its estimated disk space in bytes; a resumed one keeps its hash ranges, whatever its memory."""
        name, home, pending = f"{JOURNAL_FOLDER}/exchange.json", self.home, self.pending
        starts = range_starts(self.runner.ranges)
        groups = RangeGroups(starts, ranges_per_group(len(starts)))
        keeps_members = pending.home is not None and not pending.of_parts
        if home.exists(name):
            chosen = json.loads(home.read(name))
        else:
            layout = self.runner.session.layout
            plan = project_exchange(
                estimate_kept(self.before, self.runner.ranges, of_parts=pending.of_parts),
                keep=pending.keep,
                map_files=len(self.runner.ranges),
                work_bytes=layout.thread_bytes,
                tasks_at_a_time=layout.workers * layout.threads,
                folder=home,
                of_parts=pending.of_parts,
                member_slices=len(groups) if keeps_members else 0,
            )
            chosen = {
                "reducers": plan.reducers,
                "ranges_per_drop_file": plan.ranges_per_drop_file,
                "projected_bytes": plan.disk_bytes + plan.scratch_bytes,
            }
            home.write(name, json.dumps(chosen).encode())
        exchange = Exchange(
            home,
            pending.keep,
            chosen["reducers"],
            starts,
            chosen["ranges_per_drop_file"],
            of_parts=pending.of_parts,
            member_bounds=groups.bounds if keeps_members else None,
        )
        return exchange, int(chosen["projected_bytes"])
