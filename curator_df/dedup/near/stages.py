# SPDX-License-Identifier: Apache-2.0
"""Run the stages of a deferred near-duplicate removal, each with its own journal.

The stages: write the keys of all bands in one pass over the text; turn ``bands_per_iteration`` bands into edges and merge these
with known ones before the next bands start; fetch the texts of all rows with edges in a second pass; compare; group. Completed
stages and tasks are not repeated. Files are deleted as soon as no later stage reads them.
"""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from curator_df.core.files.row_order import Rows
from curator_df.core.files.row_sort import merge_row_bytes, merge_slices
from curator_df.core.files.slice_file import open_slices, part_of_slice, rows_of_slices
from curator_df.core.files.storage import JOURNAL_FOLDER, FileRecord, Folder, split_files
from curator_df.core.memory.budget import Layout
from curator_df.core.planning.program import Program, Step
from curator_df.core.planning.row_estimate import estimate_kept
from curator_df.core.planning.task_factor import TASK_SLACK_BYTES
from curator_df.core.ranges.journal import Journal, all_done
from curator_df.core.ranges.source import Range, Ranges, range_starts
from curator_df.core.receipts.receipt import ExchangeReceipt
from curator_df.core.runner.events import Exchanged
from curator_df.core.runner.passes import PassRunner, first_pass, mended
from curator_df.dedup.near.grouping import group_rows
from curator_df.dedup.near.keys import NearKeySink
from curator_df.dedup.near.settings import EDGE_WORDS, NearSettings
from curator_df.dedup.near.tasks import (
    SIMILARITY_BINS,
    NearJob,
    edge_slices,
    run_buckets,
    run_pairs,
    run_verify,
)
from curator_df.dedup.near.text_sink import TextSink
from curator_df.exchange.dropped_rows import Found
from curator_df.exchange.exchange import Exchange
from curator_df.exchange.exchange_plan import MOST_REDUCERS, ExchangePlan, choose_reducers, project_exchange
from curator_df.exchange.range_groups import RangeGroups, ranges_per_group


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


KEY_WORDS = 3
"""Words of a key row: bucket, content and address."""
PLAN = f"{JOURNAL_FOLDER}/exchange.json"
ITERATIONS = f"{JOURNAL_FOLDER}/iterations.json"
CONTENTS = "contents"
"""Folder of the journal of the stage that compares whole texts."""


@dataclass(frozen=True)
class NearFound(Found):
    """Result of these stages, for the last pass and for the table of groups."""

    edges: tuple[FileRecord, ...] = dataclasses.field(kw_only=True)
    """Files of the edges that define the groups, with a slice for each group of ranges."""
    known: tuple[FileRecord, ...] = dataclasses.field(kw_only=True)
    """Files of these edges for one group of ranges each, with a slice for each range."""

    def member_rows(self, group: int, *, memory_bytes: int) -> Iterator[Rows]:
        """Yield the members whose addresses are in a group of ranges, in order; their files have a slice for each range."""
        first = group * self.groups.per_group
        for number in range(first, min(first + self.groups.per_group, len(self.rows))):
            slices = open_slices(self.exchange.folder, self.members, number)
            yield from merge_slices(slices, memory_bytes=memory_bytes)

    def matches(self, group: int, *, memory_bytes: int) -> Iterator[Rows]:
        """Yield, for each member in a group of ranges, the edge to its most similar row; of several, the first."""
        job = NearJob(self.exchange.folder, self.groups, None, self.edges, known=self.known)  # type: ignore[arg-type]
        return self._best(merge_slices(edge_slices(job, group), memory_bytes=memory_bytes))

    def matched_rows(self, number: int, *, memory_bytes: int) -> Iterator[Rows]:
        """Yield these edges for the members of one range, and possibly for some members before and after it."""
        group, place = divmod(number, self.groups.per_group)
        starts = self.groups.starts
        last = int(starts[number + 1]) - 1 if number + 1 < len(starts) else (1 << 63) - 1
        slices = open_slices(self.exchange.folder, self.edges, group)
        slices += open_slices(self.exchange.folder, self.known[group : group + 1], place)
        parts = [part_of_slice(piece, int(starts[number]), last) for piece in slices if piece.rows]
        return self._best(merge_slices(parts, memory_bytes=memory_bytes))

    def _best(self, edges: Iterator[Rows]) -> Iterator[Rows]:
        held = np.empty((0, EDGE_WORDS), dtype=np.uint64)
        for rows in edges:
            of_table = rows[rows[:, 0] < self.groups.first_kept]
            best = _best_edges(np.concatenate([held, of_table]))
            held = best[-1:].copy()
            if len(best) > 1:
                yield best[:-1]
        if len(held):
            yield held


def _best_edges(edges: Rows) -> Rows:
    similarities = np.nan_to_num(edges[:, 2].copy().view(np.float64), nan=-1.0)
    rows: Rows = edges[np.lexsort((edges[:, 1], -similarities, edges[:, 0]))]
    is_first = np.ones(len(rows), dtype=np.bool_)
    is_first[1:] = rows[1:, 0] != rows[:-1, 0]
    return rows[is_first]


class NearStages:
    """Stages of one deferred near-duplicate removal."""

    def __init__(self, runner: PassRunner, before: Program, step: Step, pending: NearSettings) -> None:
        self.runner, self.before, self.step, self.pending = runner, before, step, pending
        self.groups = group_ranges(runner.ranges, pending)
        self.passes = NearPasses(runner, before, step.name, pending, self.groups)
        self.home = Folder(".")
        self._spilled = 0

    def run(self) -> Found:
        """Run all unfinished stages."""
        with self.runner.open_stage(self.before, self.step, self.pending.home) as journal:
            self.home = journal.folder
            if journal.receipt is None or not self._is_whole(journal.receipt):
                done = self._run_all(journal)
                journal.finish(done)
                self.runner.session.tell(Exchanged(ExchangeReceipt(**done["receipt"])))
            said = journal.receipt or {}
            self.runner.exchanges.append(ExchangeReceipt(**said["receipt"]))
            keys = list(journal.done())
        files = {
            name: tuple(FileRecord(**file) for file in said[name]) for name in ("drops", "members", "edges", "known")
        }
        return NearFound(
            self._exchange()[0],
            files["drops"],
            *first_pass(keys, len(self.runner.ranges)),
            groups=self.groups,
            members=files["members"],
            edges=files["edges"],
            known=files["known"],
        )

    def _is_whole(self, said: dict[str, Any]) -> bool:
        files = [file for name in ("drops", "members", "edges", "known") for file in said[name]]
        return self.home.holds([FileRecord(**file) for file in files])

    def _run_all(self, journal: Journal) -> dict[str, Any]:
        started = time.monotonic()
        exchange, projected_bytes = self._exchange()
        per_band = self._per_band(exchange)
        self._forget_lost_pairs()
        details: dict[str, Any] = {"bands": self.pending.num_bands}

        def compare_bands(taken: list[dict[str, Any]]) -> tuple[list[dict[str, Any]], tuple[FileRecord, ...]]:
            keys, first = split_files(taken, "keys"), self.pending.num_bands * per_band
            contents = self._tasks(CONTENTS, "same texts", run_buckets, per_band, files=keys, first_reducer=first)
            return contents, self._iterate(exchange, keys, sum(done["rows_written"] for done in taken), details)

        def take_keys() -> list[dict[str, Any]]:
            return self.passes.take_keys(journal, exchange, are_compared=self._are_compared(per_band))

        key_manifests, (contents, pairs) = mended(self.home, take_keys, compare_bands)
        keys = split_files(key_manifests, "keys")
        rows = sum(manifest["rows_written"] for manifest in key_manifests[: len(self.runner.ranges)])
        sizes = [manifest["rows_read"] for manifest in contents]
        details["without_shingles"] = sum(manifest["summary"]["without_shingles"] for manifest in key_manifests)
        if self.pending.against is not None:
            kept = key_manifests[len(self.runner.ranges) :]
            details["against"] = sum(manifest["rows_written"] for manifest in kept)
        details["different_texts"] = sum(manifest["summary"]["buckets"] for manifest in contents)
        self.home.delete_tree("keys")
        same = split_files(contents, "edges")
        edges, known = same, pairs
        if self.pending.verify is not None:
            edges, known = (*same, *self._verify(pairs, details)), ()
        job_files = {"files": edges, "known": known, "ranks": split_files(key_manifests, "ranks")}
        grouped = group_rows(self._tasks, self.home, len(self.groups), **job_files)
        details |= grouped.summary
        receipt = ExchangeReceipt(
            step=self.step.name,
            keys=rows,
            unique=rows - grouped.summary["going"],
            hash_ranges=exchange.reducers,
            skew=max(sizes) * len(sizes) / max(sum(sizes), 1),
            projected_bytes=projected_bytes,
            key_bytes=sum(file.size_bytes for file in keys),
            drop_bytes=sum(file.size_bytes for file in (*grouped.members, *grouped.drops)),
            spilled_bytes=self._spilled + sum(manifest["summary"]["spilled_bytes"] for manifest in key_manifests),
            seconds=time.monotonic() - started,
            details=details,
        )
        return {
            "receipt": dataclasses.asdict(receipt),
            "drops": [vars(file) for file in grouped.drops],
            "members": [vars(file) for file in grouped.members],
            "edges": [vars(file) for file in edges],
            "known": [vars(file) for file in known],
        }

    def _per_band(self, exchange: Exchange) -> int:
        """Return the number of hash ranges of each band, and of the contents."""
        return exchange.reducers // (self.pending.num_bands + 1)

    def _are_compared(self, per_band: int) -> bool:
        """Return whether all results made from the keys exist: the pairs of all bands, and the comparison of whole texts."""
        contents = all_done(self.home.below(CONTENTS), per_band)
        return (
            self.home.exists(f"pairs/{JOURNAL_FOLDER}/receipt.json")
            and contents is not None
            and self._all_there([vars(file) for file in split_files(contents, "edges")])
        )

    def _forget_lost_pairs(self) -> None:
        """Discard all iterations if files of the newest are missing: the pairs are then computed again from the keys."""
        names = ["pairs", *(f"iteration-{number:03d}" for number in reversed(range(self.pending.num_bands)))]
        newest = next((said for name in names if (said := Journal(self.home.below(name)).receipt)), None)
        if newest is not None and not self._all_there(newest["files"]):
            for name in names:
                self.home.delete_tree(name)

    def _iterate(
        self, exchange: Exchange, keys: tuple[FileRecord, ...], rows: int, details: dict[str, Any]
    ) -> tuple[FileRecord, ...]:
        """Compare the buckets of the bands, iteration by iteration; return the distinct edges."""
        each = self._bands_per_iteration(rows)
        bands = self.pending.num_bands
        per_band = self._per_band(exchange)
        details |= {"bands_per_iteration": each, "iterations": -(-bands // each)}
        whole = self.home.below("pairs")
        with Journal(whole) as all_pairs:
            if all_pairs.receipt is None or not self._all_there(all_pairs.receipt["files"]):
                known: tuple[FileRecord, ...] = ()
                fullest = buckets = 0
                for iteration, first in enumerate(range(0, bands, each)):
                    known, seen = self._iteration(
                        exchange, keys, known, iteration, first * per_band, min(each, bands - first) * per_band
                    )
                    fullest, buckets = max(fullest, seen["largest_bucket"]), buckets + seen["buckets"]
                all_pairs.finish(
                    {"files": [vars(file) for file in known], "largest_bucket": fullest, "buckets": buckets}
                )
            said = all_pairs.receipt or {}
        files = tuple(FileRecord(**file) for file in said["files"])
        details |= {
            "buckets": said["buckets"],
            "largest_bucket": said["largest_bucket"],
            "candidate_pairs": sum(file.rows for file in files) // 2,
        }
        return files

    def _iteration(
        self,
        exchange: Exchange,
        keys: tuple[FileRecord, ...],
        known: tuple[FileRecord, ...],
        iteration: int,
        first_reducer: int,
        reducers: int,
    ) -> tuple[tuple[FileRecord, ...], dict[str, int]]:
        name = f"iteration-{iteration:03d}"
        with Journal(self.home.below(name)) as journal:
            if journal.receipt is None:
                title = f"bands, iteration {iteration + 1}"
                job_files = {"files": keys, "first_reducer": first_reducer}
                merged = self._tasks(f"{name}/buckets", title, run_buckets, reducers, exchange=exchange, **job_files)
                edges = split_files(merged, "edges")
                found = self._tasks(
                    f"{name}/pairs",
                    "pairs",
                    run_pairs,
                    len(self.groups),
                    files=edges,
                    known=known,
                    into=f"{name}/edges",
                )
                files = [file for manifest in found for file in manifest["files"]]
                journal.finish(
                    {
                        "files": [vars(file) for file in files],
                        "buckets": sum(manifest["summary"]["buckets"] for manifest in merged),
                        "largest_bucket": max(manifest["summary"]["largest_bucket"] for manifest in merged),
                    }
                )
                for file in (*edges, *known):
                    if self.home.exists(file.name):
                        self.home.delete(file.name)
            said = journal.receipt or {}
        return tuple(FileRecord(**file) for file in said["files"]), said

    def _verify(self, pairs: tuple[FileRecord, ...], details: dict[str, Any]) -> tuple[FileRecord, ...]:
        """Fetch the texts of all rows that have an edge, and compare them; return the edges that are similar enough."""
        with Journal(self.home.below("verify")) as journal:
            if journal.receipt is None or not self._all_there(journal.receipt["files"]):

                def compare(texts: list[dict[str, Any]]) -> list[dict[str, Any]]:
                    located = split_files(texts, "locations")
                    return self._tasks("compare", "compare", run_verify, len(self.groups), files=located)

                texts, verified = mended(self.home, lambda: self.passes.fetch_texts(self.home, pairs), compare)
                sums = {
                    name: sum(manifest["summary"][name] for manifest in verified) for name in verified[0]["summary"]
                }
                counts = [sums[f"compared_{place}"] for place in range(SIMILARITY_BINS)]
                journal.finish(
                    {
                        "files": [vars(file) for file in split_files(verified, "verified")],
                        "details": {
                            "verify": self.pending.verify,
                            "compared": sum(counts),
                            "joined": sums["joined"],
                            "compared_by_similarity": counts,
                            "texts_fetched": sum(file.rows for file in split_files(texts, "texts")),
                            "text_bytes_fetched": sum(file.size_bytes for file in split_files(texts, "texts")),
                        },
                    }
                )
            said = journal.receipt or {}
        self.home.delete_tree("texts")
        self.home.delete_tree("locations")
        details |= said["details"]
        return tuple(FileRecord(**file) for file in said["files"])

    def _tasks(self, name: str, title: str, task: Callable[..., Any], count: int, **what: Any) -> list[dict[str, Any]]:
        stage = dataclasses.replace(self.runner.stage, block_bytes=self.runner.work_bytes)
        job = NearJob(self.home, self.groups, self.pending, **{"exchange": self._exchange()[0], **what})
        pieces: Sequence[Range] = [Range(number, 0, 0, 0, 0) for number in range(count)]
        with Journal(self.home.below(name)) as journal:
            done = self.runner.run_tasks(journal, title, job, pieces, stage=stage, folder=self.home, task=task)
        self._spilled += sum(manifest["summary"].get("spilled_bytes", 0) for manifest in done)
        return done

    def _all_there(self, files: list[dict[str, Any]]) -> bool:
        return self.home.holds([FileRecord(**file) for file in files])

    def _bands_per_iteration(self, rows: int) -> int:
        """Return the number of bands whose rows fit into the working memory while they are merged, given the number of rows."""
        if self.home.exists(ITERATIONS):
            return int(json.loads(self.home.read(ITERATIONS)))
        chosen = self.pending.bands_per_iteration or default_bands_per_iteration(
            rows, self.pending.num_bands, self.runner.session.layout.exclusive_bytes
        )
        self.home.write(ITERATIONS, json.dumps(chosen).encode())
        return chosen

    def _exchange(self) -> tuple[Exchange, int]:
        """Return the exchange and its projected disk space in bytes; a resumed one keeps its hash ranges, whatever its memory."""
        if self.home.exists(PLAN):
            chosen = json.loads(self.home.read(PLAN))
        else:
            rows = estimate_kept(self.before, self.runner.ranges)
            if (against := self.pending.against) is not None:
                rows += estimate_kept(against.program, against.ranges)
            layout = self.runner.session.layout
            plan = project_bands(rows, self.pending.num_bands, len(self.groups.starts), layout, self.home)
            chosen = {"reducers": plan.reducers, "projected_bytes": plan.disk_bytes + plan.scratch_bytes}
            self.home.write(PLAN, json.dumps(chosen).encode())
        starts: npt.NDArray[np.int64] = range_starts(self.runner.ranges)
        return Exchange(self.home, self.pending.keep, chosen["reducers"], starts), int(chosen["projected_bytes"])


def project_bands(
    rows: int, num_bands: int, map_files: int, layout: Layout, folder: Folder | None = None
) -> ExchangePlan:
    """Project the exchange of the keys of all bands and of the whole texts.

    Raises
    ------
    BudgetError, DiskFullError
        Same conditions as `project_exchange`. Nothing has been started.
    """
    kinds = num_bands + 1
    fitting = choose_reducers(rows * kinds, 8 * KEY_WORDS, layout.thread_bytes - TASK_SLACK_BYTES)
    return project_exchange(
        rows * kinds,
        keep="first",
        map_files=map_files,
        work_bytes=layout.thread_bytes,
        tasks_at_a_time=layout.workers * layout.threads,
        folder=folder,
        reducers=min(-(-fitting // kinds), max(MOST_REDUCERS // kinds, 1)) * kinds,
    )


def group_ranges(ranges: Ranges, pending: NearSettings) -> RangeGroups:
    """Group the ranges of a table and those of the kept signatures, which follow them."""
    starts = range_starts(ranges)
    if (against := pending.against) is None:
        return RangeGroups(starts, ranges_per_group(len(starts)))
    joined = np.concatenate([starts, range_starts(against.ranges) + against.first_address])
    return RangeGroups(joined, ranges_per_group(len(joined)), len(against.ranges))


def default_bands_per_iteration(rows: int, num_bands: int, work_bytes: int) -> int:
    """Return the number of bands whose key rows fit into the working memory while they are merged; at least 1.

    Examples
    --------
    >>> default_bands_per_iteration(200_000, 20, 1_000_000_000), default_bands_per_iteration(20_000_000, 20, 3_300_000_000)
    (20, 1)
    """
    return max(min(work_bytes // max(rows * merge_row_bytes(KEY_WORDS), 1), num_bands), 1)
