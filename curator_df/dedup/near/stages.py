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
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from curator_df.core.planning.price import TASK_SLACK_BYTES
from curator_df.core.planning.program import (
    DiskNeed,
    Pending,
    PendingPass,
    Program,
    StageStart,
    Step,
    with_columns,
)
from curator_df.core.planning.row_estimate import estimate_kept, estimate_row_bytes
from curator_df.core.ranges.manifest import TaskRecord, files_below
from curator_df.core.ranges.range_action import RangeAction
from curator_df.core.ranges.source import range_starts
from curator_df.core.runner.passes import PassRunner, Stage, StageRecord, first_pass, mended, skew, sum_of
from curator_df.dedup.near.crowds import FOUND_BINS, run_compare_few, run_count, run_locate, run_own_pairs
from curator_df.dedup.near.frequent import (
    CHOICE_FOLDER,
    NAMES,
    cells_bytes,
    document_limit,
    require_room_for_counts,
    run_cells,
    run_choice,
    run_counts,
)
from curator_df.dedup.near.frequent_files import CELLS_FOLDER, COUNT_WORDS, COUNTS_FOLDER
from curator_df.dedup.near.grouping import group_rows
from curator_df.dedup.near.keys import NearKeySink
from curator_df.dedup.near.links import cover_rows, run_cover
from curator_df.dedup.near.settings import EDGE_WORDS, KEY_WORDS, NearSettings, default_bands_per_iteration
from curator_df.dedup.near.tasks import (
    SIMILARITY_BINS,
    NearJob,
    edge_slices,
    run_buckets,
    run_pairs,
    run_verify,
)
from curator_df.dedup.near.text_sink import LOCATION_WORDS, TextSink
from curator_df.exchange.dropped_rows import DropRows, Found
from curator_df.exchange.exchange import DROP_WORDS, MEMBER_WORDS, Exchange
from curator_df.exchange.exchange_plan import MOST_REDUCERS, ExchangePlan, choose_reducers, project_exchange
from curator_df.exchange.keys import KEY_WRITER_FACTOR
from curator_df.exchange.range_groups import RangeGroups, group_ranges
from curator_df.files.row_order import Rows
from curator_df.files.row_sort import merge_slices
from curator_df.files.slice_file import open_slices, rows_of_slices
from curator_df.files.storage import JOURNAL_FOLDER, FileRecord, Folder
from curator_df.memory.budget import Layout
from curator_df.receipts.receipt import ExchangeReceipt


class NearPasses:
    """Passes over the rows of one deferred near-duplicate removal."""

    def __init__(self, stage: Stage, before: Program, name: str, pending: NearSettings, groups: RangeGroups) -> None:
        self.stage, self.before, self.name, self.pending, self.groups = stage, before, name, pending, groups
        self._ranges = len(stage.runner.ranges)

    def take_keys(self, exchange: Exchange, *, are_compared: bool) -> list[TaskRecord]:
        """Write the keys of all rows and kept signatures; return the records of the ranges.

        When all of them have been compared, the keys are deleted and no longer needed.
        """
        gone = "keys" if are_compared else None
        sink, title = NearKeySink(exchange, self.pending), f"{self.name}: signatures"
        ranges = self.stage.runner.ranges
        taken = self.stage.stream(title, self.before, self.pending.columns, sink, ranges, gone=gone)
        if (against := self.pending.against) is None:
            return taken
        kept = self.pending.for_kept
        sink = NearKeySink(exchange, kept, self._ranges, against.first_address)
        title = f"{self.name}: kept signatures"
        return taken + self.stage.stream(
            title, against.program, kept.columns, sink, against.ranges, name="against", gone=gone
        )

    def fetch_texts(self, pairs: tuple[FileRecord, ...], passing: FileRecord | None) -> list[TaskRecord]:
        """Write the texts of all rows that have an edge, and the kept signatures that have one.

        With ``passing``, all rows are read, and those of their shingles are counted whose cells pass.
        """
        home = self.stage.home
        wanted = np.array([rows > 0 for file in pairs for rows in rows_of_slices(home, file)], dtype=np.bool_)
        into = dataclasses.replace(home, is_durable=False)
        sink = TextSink(into, self.groups, pairs, pending=self.pending, passing=passing)
        ranges, only, title = self.stage.runner.ranges, wanted[: self._ranges], f"{self.name}: texts"
        if passing is not None:
            only = np.full(self._ranges, only.any())  # without a pair, no shingle matters
        fetched = self.stage.stream(
            title, self.before, self.pending.text_columns, sink, ranges, name="fetch", only=only
        )
        if (against := self.pending.against) is None:
            return fetched
        kept, only = self.pending.for_kept, wanted[self._ranges :]
        sink = TextSink(into, self.groups, pairs, self._ranges, against.first_address, pending=kept)
        title = f"{self.name}: kept signatures of candidates"
        return fetched + self.stage.stream(
            title, against.program, kept.text_columns, sink, against.ranges, name="fetch-against", only=only
        )


PLAN = f"{JOURNAL_FOLDER}/exchange.json"
ITERATIONS = f"{JOURNAL_FOLDER}/iterations.json"
CROWD_ROUNDS = 3
"""Maximum number of times that rows of crowds are compared by their own shingles: once for each level of templates."""
FEW_KEYS, FEW_EDGES = 1_000_000, 20_000
"""Number of keys of rows in crowds, and of new edges, up to which one task does the work of a round."""
LINK_ROUNDS = 16
"""Maximum number of times that kept rows are compared with the matches of rows that they are similar to."""
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

    def members_near(self, number: int, *, memory_bytes: int) -> Iterator[Rows]:
        """Yield the members in a range, which has its own slice."""
        return merge_slices(open_slices(self.exchange.folder, self.members, number), memory_bytes=memory_bytes)

    def matches(self, group: int, *, memory_bytes: int) -> Iterator[Rows]:
        """Yield, for each member in a group of ranges, the edge to its most similar row; of several, the first."""
        job = NearJob(self.exchange.folder, self.groups, None, self.edges, known=self.known)  # type: ignore[arg-type]
        return self._best(merge_slices(edge_slices(job, group), memory_bytes=memory_bytes))

    def matched_rows(self, number: int, *, memory_bytes: int) -> Iterator[Rows]:
        """Yield these edges for the members of one range, and possibly for some members before and after it."""
        group, place = divmod(number, self.groups.per_group)
        parts = self._near(number, self.edges, group) + self._near(number, self.known[group : group + 1], place)
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

    stage: Stage
    home: Folder
    _passing: FileRecord | None = None

    def __init__(self, runner: PassRunner, before: Program, step: Step, pending: NearSettings) -> None:
        self.runner, self.before, self.step, self.pending = runner, before, step, pending
        self.groups = group_ranges(runner.ranges, pending.against)

    def run(self) -> Found:
        """Run all unfinished stages."""
        with self.runner.open_stage(self.before, self.step, self.pending.home) as stage:
            self.stage, self.home = stage, stage.home
            self.passes = NearPasses(stage, self.before, self.step.name, self.pending, self.groups)
            done = stage.finish(self._run_all)
            keys = list(stage.journal.done())
        return NearFound(
            self._exchange()[0],
            done.files["drops"],
            *first_pass(keys, len(self.runner.ranges)),
            groups=self.groups,
            members=done.files["members"],
            edges=done.files["edges"],
            known=done.files["known"],
        )

    def _run_all(self) -> StageRecord:
        started = time.monotonic()
        exchange, projected_bytes = self._exchange()
        per_band = self._per_band(exchange)
        self._forget_lost_pairs()

        def compare_bands(taken: list[TaskRecord]) -> tuple[list[TaskRecord], StageRecord]:
            keys, first = files_below(taken, "keys"), self.pending.num_bands * per_band
            self._passing = self._passing_cells(taken)
            job = NearJob(self.home, self.groups, self.pending, keys, exchange, first_reducer=first)
            contents = self.stage.tasks(CONTENTS, "same texts", run_buckets, job, per_band)
            return contents, self._iterate(exchange, keys, sum(record.rows_written for record in taken))

        def take_keys() -> list[TaskRecord]:
            return self.passes.take_keys(exchange, are_compared=self._are_compared(per_band))

        taken, (contents, pairs) = mended(self.home, take_keys, compare_bands)
        self.home.delete_tree("keys")
        edges, known, verified = files_below(contents, "edges"), pairs.files["edges"], StageRecord()
        same = edges
        if self.pending.verify is not None:
            verified = self._verify(exchange, known, same, taken)
            edges, known = (*edges, *verified.files["edges"]), ()
        job = NearJob(
            self.home, self.groups, self.pending, edges, exchange, known=known, ranks=files_below(taken, "ranks")
        )
        if self.pending.covers:
            grouped = cover_rows(self.stage, dataclasses.replace(job, same=same))
        else:
            grouped = group_rows(self.stage, job)
        own, kept = taken[: len(self.runner.ranges)], taken[len(self.runner.ranges) :]
        rows = sum(record.rows_written for record in own)
        receipt = ExchangeReceipt(
            step=self.step.name,
            keys=rows,
            unique=rows - grouped.summary["going"],
            hash_ranges=exchange.reducers,
            skew=skew([record.rows_read for record in contents]),
            projected_bytes=projected_bytes,
            key_bytes=sum(file.size_bytes for file in files_below(taken, "keys")),
            drop_bytes=sum(file.size_bytes for file in (*grouped.members, *grouped.drops)),
            spilled_bytes=self.stage.spilled_bytes + sum_of(taken, "spilled_bytes"),
            seconds=time.monotonic() - started,
            details={
                "bands": self.pending.num_bands,
                **pairs.figures,
                "without_shingles": sum_of(taken, "without_shingles"),
                **({"against": sum(record.rows_written for record in kept)} if self.pending.against else {}),
                "different_texts": sum_of(contents, "buckets"),
                **verified.figures,
                **grouped.summary,
            },
        )
        for name in (CELLS_FOLDER, CHOICE_FOLDER):
            self.home.delete_tree(name)
        files = {"drops": grouped.drops, "members": grouped.members, "edges": grouped.matches or edges, "known": known}
        return StageRecord(files, exchange=receipt)

    def _per_band(self, exchange: Exchange) -> int:
        """Return the number of hash ranges of each band, and of the contents."""
        return exchange.reducers // (self.pending.num_bands + 1)

    def _are_compared(self, per_band: int) -> bool:
        """Return whether all results made from the keys exist: the pairs of all bands, and the comparison of whole texts."""
        contents = self.stage.tasks_done(CONTENTS, per_band)
        return (
            self.stage.record_of("pairs") is not None
            and contents is not None
            and self.home.holds(files_below(contents, "edges"))
        )

    def _forget_lost_pairs(self) -> None:
        """Discard all iterations if files of the newest are missing: the pairs are then computed again from the keys."""
        names = ["pairs", *(f"iteration-{number:03d}" for number in reversed(range(self.pending.num_bands)))]
        newest = next((record for name in names if (record := self.stage.record_of(name))), None)
        if newest is not None and not self.home.holds(newest.all_files):
            for name in names:
                self.home.delete_tree(name)

    def _iterate(self, exchange: Exchange, keys: tuple[FileRecord, ...], rows: int) -> StageRecord:
        """Compare the buckets of the bands, iteration by iteration; return the distinct edges, and figures for the receipt."""
        each, bands = self._bands_per_iteration(rows), self.pending.num_bands
        per_band = self._per_band(exchange)

        def make() -> StageRecord:
            edges: tuple[FileRecord, ...] = ()
            fullest = buckets = 0
            for iteration, first in enumerate(range(0, bands, each)):
                job = NearJob(self.home, self.groups, self.pending, keys, exchange, first_reducer=first * per_band)
                done = self._iteration(job, edges, iteration, min(each, bands - first) * per_band)
                edges, buckets = done.files["edges"], buckets + done.figures["buckets"]
                fullest = max(fullest, done.figures["largest_bucket"])
            figures = {"bands_per_iteration": each, "iterations": -(-bands // each), "buckets": buckets}
            pairs = sum(file.rows for file in edges) // 2
            return StageRecord({"edges": edges}, {**figures, "largest_bucket": fullest, "candidate_pairs": pairs})

        return self.stage.once("pairs", make)

    def _iteration(self, job: NearJob, known: tuple[FileRecord, ...], iteration: int, reducers: int) -> StageRecord:
        """Merge the edges of some bands with the known ones of earlier iterations, which are then deleted."""
        name, used = f"iteration-{iteration:03d}", list[FileRecord]()

        def make() -> StageRecord:
            title = f"bands, iteration {iteration + 1}"
            merged = self.stage.tasks(f"{name}/buckets", title, run_buckets, job, reducers)
            edges = files_below(merged, "edges")
            pairs = dataclasses.replace(job, files=edges, known=known, into=f"{name}/edges")
            found = self.stage.tasks(f"{name}/pairs", "pairs", run_pairs, pairs, len(self.groups))
            used.extend((*edges, *known))
            fullest = max(record.summary["largest_bucket"] for record in merged)
            figures = {"buckets": sum_of(merged, "buckets"), "largest_bucket": fullest}
            return StageRecord({"edges": tuple(file for record in found for file in record.files)}, figures)

        done = self.stage.once(name, make, needs_files=False)
        self.home.delete_all([file.name for file in used])
        return done

    def _verify(
        self,
        exchange: Exchange,
        pairs: tuple[FileRecord, ...],
        same: tuple[FileRecord, ...],
        taken: list[TaskRecord],
    ) -> StageRecord:
        """Fetch the texts of all rows that have an edge, and compare them; return the edges that are similar enough."""

        def compare(texts: list[TaskRecord]) -> list[TaskRecord]:
            job = NearJob(self.home, self.groups, self.pending, files_below(texts, "locations"), exchange, into="bands")
            job = dataclasses.replace(job, places=files_below(texts, "places"), documents=_documents(taken))
            job = dataclasses.replace(job, ignored=self._ignored(job, texts))
            found = self.stage.tasks("compare", "compare", run_verify, job, len(self.groups))
            found = found + self._compare_crowds(job, found)
            if self.pending.covers:
                found = found + self._compare_with_kept(
                    dataclasses.replace(job, ranks=files_below(taken, "ranks")), same, found
                )
            return found

        def make() -> StageRecord:
            texts, verified = mended(self.home, lambda: self.passes.fetch_texts(pairs, self._passing), compare)
            counts = [sum_of(verified, f"compared_{place}") for place in range(SIMILARITY_BINS)]
            found = files_below(verified, "verified")
            fetched = files_below(texts, "texts")
            figures = {
                "verify": self.pending.verify,
                "compared": sum(counts),
                "joined": sum_of(verified, "joined"),
                "compared_by_similarity": counts,
                **self._found_by_similarity([file for file in found if not file.name.startswith("verified/links/")]),
                "texts_fetched": sum(file.rows for file in fetched),
                "text_bytes_fetched": sum(file.size_bytes for file in fetched),
                **self._figures_of_ignored(_documents(taken)),
            }
            return StageRecord({"edges": found}, figures)

        done = self.stage.once("verify", make)
        for name in ("texts", "locations", "places", "crowd-keys", "crowds", "links", COUNTS_FOLDER):
            self.home.delete_tree(name)
        return done

    def _passing_cells(self, taken: list[TaskRecord]) -> FileRecord | None:
        """Return the file of the cells of shingles that may be too common; None if none are ignored."""
        if self.pending.ignore_common is None:
            return None

        def make() -> StageRecord:
            job = NearJob(
                self.home, self.groups, self.pending, files_below(taken, CELLS_FOLDER), documents=_documents(taken)
            )
            [done] = self.stage.tasks("cells", "shingles", run_cells, job, 1)
            require_room_for_counts(done.summary["pairs"], self.home)
            return StageRecord({"passing": tuple(done.files)})

        return self.stage.once("passing", make).files["passing"][0]

    def _ignored(self, job: NearJob, texts: list[TaskRecord]) -> FileRecord | None:
        """Return the file of the shingles to ignore; None if there are none."""
        counts = files_below(texts, COUNTS_FOLDER)
        if self._passing is None or not counts:
            return None

        def make() -> StageRecord:
            counted = dataclasses.replace(job, files=counts)
            found = self.stage.tasks("shingle-sums", "shingles", run_counts, counted, len(self.groups))
            chosen = dataclasses.replace(job, files=tuple(file for record in found for file in record.files))
            [done] = self.stage.tasks("ignored", "shingles", run_choice, chosen, 1)
            return StageRecord({"ignored": tuple(done.files)}, done.summary)

        chosen = self.stage.once("choice", make).files["ignored"][0]
        return chosen if chosen.rows else None

    def _figures_of_ignored(self, documents: int) -> dict[str, Any]:
        """Return how many shingles are ignored, and the most common passages, for the receipt."""
        share, record = self.pending.ignore_common, self.stage.record_of("choice")
        if share is None:
            return {}
        figures = {"frequent": 0, "ignored": 0} if record is None else record.figures
        names = [] if record is None else json.loads(self.home.read(NAMES))
        return {
            "ignored_above_documents": document_limit(share, documents),
            "common_shingles": figures["frequent"],
            "ignored_shingles": figures["ignored"],
            "most_common": names,
        }

    def _found_by_similarity(self, files: Sequence[FileRecord]) -> dict[str, list[int]]:
        """Return the number of distinct similar pairs by similarity, from the threshold on, of bands alone and of crowds."""
        at_once = sum(file.rows for file in files) <= FEW_KEYS
        job = NearJob(self.home, self.groups, self.pending, tuple(files), at_once=at_once)
        counted = self.stage.tasks("count", "compare", run_count, job, 1 if at_once else len(self.groups))
        bins = range(int((self.pending.verify or 0.0) * FOUND_BINS), FOUND_BINS)
        return {
            f"found_by_{name}": [sum_of(counted, f"{name}_{place}") for place in bins] for name in ("band", "crowd")
        }

    def _compare_crowds(self, job: NearJob, found: list[TaskRecord]) -> list[TaskRecord]:
        """Compare rows of crowds by the shingles that their anchors lack; return the records of these comparisons."""
        compared: list[TaskRecord] = []
        for number in range(CROWD_ROUNDS):
            keys = files_below(found, "crowd-keys")
            if not any(file.rows for file in keys):
                break
            into, title = f"crowds/{number:03d}", f"crowds, round {number + 1}"
            at_once = sum(file.rows for file in keys) <= FEW_KEYS
            pairs = dataclasses.replace(job, files=keys, into=into, at_once=at_once)
            made = self.stage.tasks(f"{into}/pairs", title, run_own_pairs, pairs, 1 if at_once else len(self.groups))
            found = self._compare_new(job, files_below(made, "crowds"), into, title)
            compared += found
        return compared

    def _compare_with_kept(
        self, job: NearJob, same: tuple[FileRecord, ...], found: list[TaskRecord]
    ) -> list[TaskRecord]:
        """Compare each row whose match was dropped with the kept row of that one, until no pair is left; return the records."""
        asked: tuple[FileRecord, ...] = ()
        compared: list[TaskRecord] = []
        for number in range(LINK_ROUNDS):
            into, title = f"links/{number:03d}", f"links, round {number + 1}"
            edges = (*same, *files_below([*found, *compared], "verified"))
            cover = dataclasses.replace(job, files=edges, same=same, into=into, round=number)
            asked = (*asked, *files_below(self.stage.tasks(f"{into}/cover", title, run_cover, cover, 1), "links"))
            new = self._compare_new(dataclasses.replace(job, round=number), asked, into, title)
            compared += new
            if not sum_of(new, "joined"):
                break
        return compared

    def _compare_new(self, job: NearJob, edges: tuple[FileRecord, ...], into: str, title: str) -> list[TaskRecord]:
        """Compare the pairs of new edges, whose texts were fetched."""
        if not any(file.rows for file in edges):
            return []
        wanted = dataclasses.replace(job, files=edges, into=into)
        if edges and sum(file.rows for file in edges) <= FEW_EDGES:
            return self.stage.tasks(f"{into}/compare", title, run_compare_few, wanted, 1)
        located = self.stage.tasks(f"{into}/locate", title, run_locate, wanted, len(self.groups))
        if not sum_of(located, "located"):
            return []
        compared = dataclasses.replace(job, files=files_below(located, into.partition("/")[0]), into=into)
        return self.stage.tasks(f"{into}/compare", title, run_verify, compared, len(self.groups))

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
            start = StageStart(self.before, self.runner.ranges, self.runner.session.layout)
            plan = plan_bands(self.pending, start)
            chosen = {
                "reducers": plan.reducers,
                "projected_bytes": near_need(self.step.name, self.pending, start).needed_bytes,
            }
            self.home.write(PLAN, json.dumps(chosen).encode())
        starts: npt.NDArray[np.int64] = range_starts(self.runner.ranges)
        return Exchange(self.home, self.pending.keep, chosen["reducers"], starts), int(chosen["projected_bytes"])


def _documents(taken: list[TaskRecord]) -> int:
    """Return the number of rows of the table."""
    return sum(record.rows_written for record in taken)


def project_bands(rows: int, num_bands: int, map_files: int, layout: Layout, count_bytes: int = 0) -> ExchangePlan:
    """Project the exchange of the keys of all bands and of the whole texts; ``count_bytes`` are those of counts of shingles.

    Raises
    ------
    BudgetError
        If a task needs more memory than it has. Nothing has been started.
    """
    kinds = num_bands + 1
    fitting = choose_reducers(rows * kinds, 8 * KEY_WORDS, layout.thread_bytes - TASK_SLACK_BYTES)
    return project_exchange(
        rows * kinds,
        keep="first",
        map_files=map_files,
        work_bytes=layout.thread_bytes,
        tasks_at_a_time=layout.workers * layout.threads,
        reducers=min(-(-fitting // kinds), max(MOST_REDUCERS // kinds, 1)) * kinds,
        count_bytes=count_bytes,
    )


def plan_bands(pending: NearSettings, start: StageStart) -> ExchangePlan:
    """Project the exchange of a removal when its stage begins; see `project_bands`."""
    ranges, text_bytes = len(start.ranges), start.before.source.text_bytes
    count_bytes = 0 if pending.ignore_common is None else cells_bytes(ranges, text_bytes)
    map_files = len(group_ranges(start.ranges, pending.against).starts)
    return project_bands(_about_rows(pending, start), pending.num_bands, map_files, start.layout, count_bytes)


def _about_rows(pending: NearSettings, start: StageStart) -> int:
    """Return the approximate number of rows and of kept signatures."""
    rows, against = estimate_kept(start.before, start.ranges), pending.against
    if against is not None and against.program is not None:
        rows += estimate_kept(against.program, against.ranges)
    return rows


def near_need(name: str, pending: NearSettings, start: StageStart) -> DiskNeed:
    """Return the disk space for a removal: the keys of bands, and in the worst case pairs of all rows and all texts.

    Keys are deleted before texts are fetched. A bucket pairs each row with its first rows; of each pair there are an edge in both
    directions, before and after pairs of several bands are merged, the places of both texts, and edges with their similarity.
    With ``ignore_common``, the counts of shingles exist meanwhile: at most one exact count for each character.
    """
    plan = plan_bands(pending, start)
    need = plan.need(name)
    rows = _about_rows(pending, start)
    edges = 2 * 8 * EDGE_WORDS * rows * pending.num_bands * pending.anchors
    most = need.needed_bytes + edges
    if pending.verify is not None:
        places = 2 * 8 * LOCATION_WORDS * rows * pending.num_bands * pending.anchors
        texts = int(rows * estimate_row_bytes(with_columns(start.before, pending.text_columns), start.ranges))
        counts = plan.count_bytes + (8 * COUNT_WORDS * start.before.source.text_bytes if plan.count_bytes else 0)
        most = max(most, 2 * edges + places + texts + counts)
    members = 8 * (MEMBER_WORDS + DROP_WORDS) * rows
    kept = members + edges
    more = max(most, kept) - need.needed_bytes
    return dataclasses.replace(
        need, kept_bytes=members, more_bytes=more, worst_case="if most texts are similar to others"
    )


@dataclass(frozen=True)
class NearDrop(NearSettings, Pending):
    """Deferred drop of rows with similar texts, except for the one of each group that is kept."""

    @property
    def last_pass(self) -> Mapping[str, Any]:
        """The column of counts, if there is one."""
        return {} if self.count_into is None else {"count_into": self.count_into}

    def passes(self, name: str) -> Sequence[PendingPass]:
        """Return the pass that computes signatures, the one over kept signatures, and the one that fetches texts."""
        counts = "" if self.ignore_common is None else ", count shingles"
        bands = f"compute MinHash signatures, hash and sort {self.num_bands} bands{counts}"
        found = [PendingPass(f"signatures for {name}, then buckets", bands, KEY_WRITER_FACTOR)]
        if self.against is not None and self.against.program is not None:  # stored results no longer need their chain
            found.append(PendingPass(f"kept signatures for {name}", bands, KEY_WRITER_FACTOR, self.against.program))
        if self.verify is not None:
            fetch = f"fetch texts of candidates{counts and ', and count the common shingles of all texts'}"
            found.append(PendingPass(f"texts for {name}, then compare them", fetch, KEY_WRITER_FACTOR))
        return found

    def disk_need(self, name: str, start: StageStart) -> DiskNeed | None:
        """Return the disk space for keys, pairs and texts."""
        return near_need(name, self, start)

    def prepare(self, runner: Any, before: Program, step: Step) -> Found:
        """Find the groups."""
        return NearStages(runner, before, step, self).run()

    def resolved(self, prepared: Found) -> RangeAction:
        """Return the action that drops the rows in the last pass."""
        return DropRows(self, prepared)
