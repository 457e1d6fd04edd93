# SPDX-License-Identifier: Apache-2.0
"""`SubstringDrop`, the deferred operation behind `remove_repeated_substrings`: exchanges of keys, action of the last pass.

1. anchors: a hash of each stretch's anchor (`kernels.edits.repeated_spans`) and its place. One that occurs once has no copy.
2. stretches: a hash of all bytes of each stretch whose anchor repeats. Copies of a stretch are known, whatever their number.
3. pieces: those stretches whose anchor also has other stretches are divided into pieces of a few windows, which are compared in
   the same way: a repeated substring begins or ends in such a stretch, or it has only a short substring in common with another.
4. windows: a hash of each window of those pieces that have only the bytes common to their windows in common with another.

The result is exact: see docs/decisions/0049-repeated-substrings.md.
"""

from __future__ import annotations

import functools
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal, NamedTuple, cast

import numpy as np
import numpy.typing as npt

from curator_df.core.planning.program import DiskNeed, PendingPass, Program, StageStart, Step
from curator_df.core.ranges.blocks import BlockKernel, Outcome
from curator_df.core.ranges.range_action import OfRange, RangeAction, changed_rows
from curator_df.core.ranges.source import Ranges
from curator_df.exchange.dropped_rows import DROP_READER_BYTES, Found
from curator_df.exchange.drops import read_drops
from curator_df.exchange.exchange import DROP_WORDS, Exchange, Finds, KeyWriter
from curator_df.exchange.key_stages import (
    NO_SURVIVOR,
    KeyStages,
    Reduced,
    begins_document,
    drop_sorter,
    groups_of,
    key_at,
    key_pieces,
    reduce_keys,
    sizes_across,
    sizes_of,
)
from curator_df.exchange.keys import CHECKSUM_MASK, KEY_WRITER_FACTOR, Keyed, RangeKeys, key_checksum
from curator_df.files.row_order import Rows
from curator_df.files.slice_file import open_slices
from curator_df.files.sorted_rows import RowsUpTo
from curator_df.files.storage import FileRecord, Folder
from curator_df.kernels.edits.repeated_spans import (
    STRETCHES_AT_A_TIME,
    Integers,
    byte_hashes,
    joined_stretches,
    require_long_enough,
    stretch_pieces,
    text_stretches,
    window_hashes,
    without_spans,
)
from curator_df.kernels.rows.content_hash import column_hashes
from curator_df.kernels.rows.keep_rows import keep_rows
from curator_df.kernels.text.buffers import TextSpan, text_bytes, text_spans, with_plain_text

Level = Literal["anchors", "stretches", "pieces", "windows"]
FINDS: dict[Level, Finds] = {"anchors": "repeats", "stretches": "stretches", "pieces": "stretches", "windows": "drops"}
CORE_BITS, LOW_BITS = 40, 24
"""Bits of the first word of the key of a stretch: hash of its anchor, and a part of the hash of its bytes."""
TO_COMPARE = 1 << 62
"""Flag of a stretch that must be compared window by window."""
WINDOW_BITS = 16
"""Bits of a stretch, as the second word of a drop, that have the number of its windows."""
MOST_WINDOWS = (1 << WINDOW_BITS) - 1
ANCHOR_BITS = 13
"""Bits of a stretch, as the second word of a drop, that have the distance of its anchor from its first byte."""
FIRST_SHIFT = ANCHOR_BITS + WINDOW_BITS
"""Bits below those of its first byte."""
REASON = "only_repeated_substrings"
"""Reason for which a whole row goes."""
RANGE_BITS = 40
"""Bits of a place among all texts that have the byte in its range, up to 1 TB; the others have the number of the range."""


@dataclass(frozen=True)
class SubstringDrop(Keyed):
    """Deferred removal of substrings that occur in several places."""

    text: str
    """Text column."""
    min_bytes: int
    """Bytes of a window."""
    keep: Literal["first", "none"]
    """Occurrence to keep."""
    max_documents: int | None = None
    """Number of rows up to which a substring may occur without being removed; None: one that occurs twice is removed."""
    level: Level = "windows"
    """Exchange of which it has the keys."""
    home: Folder | None = field(default=None, metadata={"identity": False})
    """Folder that stores the completed stage; None stores it with the run's temporary files."""
    earlier: tuple[Found, ...] = field(default=(), metadata={"identity": False}, repr=False)
    """Results of the exchanges before."""
    of_parts: ClassVar[bool] = True
    """True, because the keys are those of parts of rows."""

    @property
    def finds(self) -> Finds:  # type: ignore[override]
        """Kind of result that the reducers of its exchange write."""
        return FINDS[self.level]

    @property
    def pass_title(self) -> str:
        """Title of its pass over rows."""
        return self.level

    @property
    def core_bytes(self) -> int:
        """Bytes of an anchor: half a window, so that there is one for each 26 bytes of windows of 100 bytes."""
        return self.min_bytes // 2

    @property
    def piece_windows(self) -> int:
        """Number of windows of a piece: the fewest keys where a stretch has one end of a repeated substring."""
        return math.isqrt(self.min_bytes - self.core_bytes)

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns that the keys are made of."""
        return (self.text,)

    def about_keys(self, before: Program, ranges: Ranges) -> int:  # noqa: ARG002 - the size of the text tells
        """Return the approximate number of its keys."""
        if self.level == "anchors":
            share = 2 / (self.min_bytes - self.core_bytes + 2)
            return int(before.source.text_bytes * before.row_share * share) + 1
        last = self.earlier[-1]
        if self.level == "stretches":
            return 1 + sum(file.rows for file in last.files)
        return 1 + last.figures["windows"] // (1 if self.level == "windows" else max(self.piece_windows // 2, 1))

    def drop_starts(self, ranges: Ranges) -> npt.NDArray[np.int64]:
        """Return the smallest first word of the drops of each range: for anchors, a place among all texts."""
        if self.level == "anchors":
            return np.arange(len(ranges), dtype=np.int64) << RANGE_BITS
        return super().drop_starts(ranges)

    def passes(self, name: str) -> Sequence[PendingPass]:
        """Return the passes that hash anchors, stretches, pieces and windows."""
        return [
            PendingPass(f"{level} for {name}, then merge them", f"hash and sort {level}", KEY_WRITER_FACTOR)
            for level in FINDS
        ]

    def disk_need(self, name: str, start: StageStart) -> DiskNeed | None:
        """Return the disk space for anchors, in the worst case with as many stretches; later, for the keys of its level.

        The keys of later levels are counted before each begins, and the space for them is required then.
        """
        if self.earlier:
            return self.plan_exchange(start).need(name)
        anchors = replace(self, level="anchors")
        need = anchors.plan_exchange(start).need(name)
        stretches = replace(self, level="stretches").exchange_of(anchors.about_keys(start.before, start.ranges), start)
        more = max(need.kept_bytes + stretches.need(name).needed_bytes - need.needed_bytes, 0)
        return replace(need, more_bytes=more, worst_case="if most of the text is repeated")

    def open_keys(self, exchange: Exchange, number: int, memory_bytes: int) -> RangeKeys:
        """Create the key file of a range."""
        return RangeKeys(_FEEDS[self.level](self, number), exchange, number, memory_bytes)

    def prepare(self, runner: Any, before: Program, step: Step) -> Any:
        """Exchange anchors, stretches, pieces and windows, one after the other; return the results of the last three."""
        found: tuple[Found, ...] = ()
        for level in FINDS:
            pending = replace(self, level=level, earlier=found)
            action = replace(cast("BlockKernel", step.action), pending=pending)
            reduce = reduce_keys if level == "windows" else reduce_substrings
            result = KeyStages(runner, before, replace(step, action=action), pending, reduce).run()
            for other in found[-1:]:
                _require_same(step.name, other, result)
            found = (*found, result)
        return found[1:]

    def resolved(self, prepared: tuple[Found, ...]) -> RangeAction:
        """Return the action that removes the substrings in the last pass."""
        return RemoveSpans(self, prepared)


class Piece(NamedTuple):
    """Result of the next sorted key rows."""

    drops: Rows
    """Rows to write, shape (drops, 2)."""
    rows: int
    """Number of key rows."""
    groups: int
    """Number of distinct keys that begin in them."""
    windows: int = 0
    """Number of windows of text that must be compared."""


def reduce_substrings(
    exchange: Exchange, number: int, files: Sequence[FileRecord], *, memory_bytes: int, scratch: str | None = None
) -> Reduced:
    """Merge one reducer's slices like `reduce_keys`, for an exchange that finds anchors or stretches of texts."""
    started = time.perf_counter()
    slices = open_slices(exchange.folder, files, number)
    pieces = functools.partial(key_pieces, slices, memory_bytes // 2, scratch)
    drops = drop_sorter(exchange, number, memory_bytes // 2, scratch)
    is_simple = exchange.finds == "repeats"
    found = repeats_in(pieces()) if is_simple else stretches_in(pieces, exchange)
    rows = groups = windows = 0
    try:
        for piece in found:
            drops.append(piece.drops)
            rows, groups, windows = rows + piece.rows, groups + piece.groups, windows + piece.windows
        file = drops.commit()
    finally:
        drops.discard()
    read_bytes = sum(piece.size_bytes for piece in slices) * (1 if is_simple else 3)
    seconds = time.perf_counter() - started
    return Reduced(number, file, None, rows, groups, 0, read_bytes, drops.spilled_bytes, seconds, {"windows": windows})


def repeats_in(pieces: Iterator[Rows]) -> Iterator[Piece]:
    """Yield (place, 0) of the sorted rows (hash, place) whose hash another row has, too."""
    held, is_repeated = np.empty((0, 2), dtype=np.uint64), False
    for piece in pieces:
        rows = np.concatenate([held, piece])
        same = rows[1:, 0] == rows[:-1, 0]
        going = np.empty(len(rows) - 1, dtype=np.bool_)  # the last row waits for the one that follows
        going[:] = same
        going[1:] |= same[:-1]
        going[:1] |= is_repeated
        if len(same):
            is_repeated = bool(same[-1])
        held = rows[-1:].copy()
        yield Piece(_places(rows[:-1][going]), len(piece), int((~same).sum()))
    yield Piece(_places(held[: int(is_repeated)]), 0, len(held))


def _places(rows: Rows) -> Rows:
    drops = np.zeros((len(rows), DROP_WORDS), dtype=np.uint64)
    drops[:, 0] = rows[:, 1]
    return drops


def stretches_in(pieces: Callable[[], Iterator[Rows]], exchange: Exchange) -> Iterator[Piece]:
    """Yield (address, stretch) of stretches of text to drop, and of those to compare, which have the flag `TO_COMPARE`.

    Keys have `CORE_BITS` bits of the hash of the anchor of a stretch, then those of all its bytes. Stretches with equal bytes are
    copies. Where an anchor has stretches of different bytes, some of their windows may be equal: then copies that stay are
    compared, and of those to drop as many that the count of each window exceeds the limit.
    """
    by_document = exchange.max_documents is not None
    across = sizes_across(pieces(), of_documents=by_document)
    across_cores = sizes_across((_cores(rows) for rows in pieces()), of_documents=True)
    before = NO_SURVIVOR
    for rows in pieces():
        begins, survivors = groups_of(rows, before)
        counted = begins_document(rows, begins) if by_document else np.ones(len(rows), dtype=np.bool_)
        is_over = sizes_of(rows, begins, len(survivors), across, counted) > (exchange.max_documents or 1)
        cores = _cores(rows)
        core_begins, core_survivors = groups_of(cores, (before[0] >> LOW_BITS, 0, 0))
        kinds = begins_document(cores, core_begins)
        has_others = sizes_of(cores, core_begins, len(core_survivors), across_cores, kinds) > 1
        going = is_over if exchange.keeps_none else is_over & ~begins
        order = np.cumsum(counted)
        first = np.maximum.accumulate(np.where(begins, np.arange(len(rows)), 0))
        is_witness = counted & (order - order[first] <= (exchange.max_documents or 0))
        compared = rows[has_others & (~is_over | is_witness), 2:]
        windows = int((compared[:, 1] & np.uint64(MOST_WINDOWS)).sum())
        compared[:, 1] |= np.uint64(TO_COMPARE)
        yield Piece(np.concatenate([rows[going, 2:], compared]), len(rows), int(begins.sum()), windows)
        high, low = key_at(rows, -1)
        before = (high, low, int(survivors[-1]))


def _cores(rows: Rows) -> Rows:
    """Return rows (hash of the anchor, 0, rest of the key) for sorted key rows of stretches."""
    cores = np.zeros((len(rows), 3), dtype=np.uint64)
    cores[:, 0] = rows[:, 0] >> np.uint64(LOW_BITS)
    cores[:, 2] = rows[:, 1] ^ (rows[:, 0] << np.uint64(64 - LOW_BITS))
    return cores


def _require_same(step: str, one: Found, other: Found) -> None:
    """Raise an error unless all ranges had the same rows in two passes."""
    different = np.flatnonzero((one.rows != other.rows) | (one.checksums != other.checksums))
    if len(different):
        number = int(different[0])
        raise changed_rows(step, number, int(one.rows[number]), int(other.rows[number]), ", or rows with other texts")


def _checksum(block: Any, text: str) -> int:
    """Return a checksum of the texts of a block with their row IDs."""
    return key_checksum(column_hashes(block[text]), block.index.to_numpy())


class _Anchors:
    """Keys of the anchors of one range; a place has the number of the range."""

    def __init__(self, pending: SubstringDrop, number: int) -> None:
        self.pending, self.base = pending, number << RANGE_BITS

    def feed(self, block: Any, writer: KeyWriter) -> int:
        pending, texts = self.pending, block[self.pending.text]
        for _, found in text_stretches(texts, pending.min_bytes, pending.core_bytes):
            alone = ~found.follows
            rows = np.empty((int(alone.sum()), 2), dtype=np.uint64)
            rows[:, 0] = found.cores[alone]
            rows[:, 1] = found.places[alone] + self.base
            writer.append_rows(rows)
        self.base += text_bytes(texts)
        return _checksum(block, pending.text)


class _Stretches(_Anchors):
    """Keys of the stretches of one range whose anchors repeat."""

    def __init__(self, pending: SubstringDrop, number: int) -> None:
        super().__init__(pending, number)
        self._repeated = _drops(pending.earlier[0], number)

    def feed(self, block: Any, writer: KeyWriter) -> int:
        pending, texts, addresses = self.pending, block[self.pending.text], block.index.to_numpy()
        for span, every in text_stretches(texts, pending.min_bytes, pending.core_bytes):
            found = every.at(every.follows | self._are_repeated(every.places + self.base))
            if not len(found.rows):
                continue
            hashes = byte_hashes(span, found.rows, found.firsts, found.counts + (pending.min_bytes - 1))
            if pending.max_documents is None:  # otherwise, a joined one is not known to go
                found, hashes = joined_stretches(found, hashes)
            words = _words(found.firsts, found.anchors - found.firsts, found.counts)
            writer.append(_keys(found.cores, hashes), addresses[found.rows], parts=words)
        self.base += text_bytes(texts)
        return _checksum(block, pending.text)

    def _are_repeated(self, places: Integers) -> npt.NDArray[np.bool_]:
        flags = np.zeros(len(places), dtype=np.bool_)
        for piece in self._repeated.take(int(places[-1])):
            known = piece[:, 0].astype(np.int64)
            at = np.minimum(np.searchsorted(places, known), len(places) - 1)
            flags[at[places[at] == known]] = True
        return flags


def _words(firsts: Integers, distances: Integers, counts: Integers) -> Integers:
    """Return stretches as the second words of drops."""
    return firsts << FIRST_SHIFT | distances << WINDOW_BITS | counts


def _keys(cores: Rows, hashes: Rows) -> Rows:
    """Return the keys of stretches or pieces from hashes of the bytes that similar ones share, and of all their bytes."""
    keys, low = np.empty((len(hashes), 2), dtype=np.uint64), np.uint64(LOW_BITS)
    keys[:, 0] = cores >> low << low | hashes[:, 0] >> np.uint64(64 - LOW_BITS)
    keys[:, 1] = hashes[:, 1]
    return keys


class _Pieces:
    """Keys of the pieces of those stretches of one range that must be compared."""

    def __init__(self, pending: SubstringDrop, number: int) -> None:
        self.pending, self._stretches = pending, _drops(pending.earlier[-1], number)

    def feed(self, block: Any, writer: KeyWriter) -> int:
        addresses = block.index.to_numpy()
        for span in text_spans(block[self.pending.text]):
            for every in self._stretches.take(int(addresses[span.first_row + len(span) - 1])):
                piece = every[every[:, 1] >= TO_COMPARE]
                rows, came = _rows_of(piece, addresses)
                found = Covered.of(rows[came], piece[came], self.pending.min_bytes)
                require_long_enough(span, found.rows, found.firsts, found.lengths)
                self.write(span, found, addresses, writer)
        return _checksum(block, self.pending.text)

    def write(self, span: TextSpan, found: Covered, addresses: Integers, writer: KeyWriter) -> None:
        size, each = self.pending.min_bytes, self.pending.piece_windows
        for start in range(0, len(found.rows), STRETCHES_AT_A_TIME):
            part = slice(start, start + STRETCHES_AT_A_TIME)
            counts = found.lengths[part] - (size - 1)
            anchors = found.firsts[part] + found.distances[part]
            pieces = stretch_pieces(found.rows[part], found.firsts[part], anchors, counts, each)
            cores = byte_hashes(span, pieces.rows, pieces.cores, size - each + 1)[:, 0]
            hashes = byte_hashes(span, pieces.rows, pieces.firsts, pieces.counts + (size - 1))
            words = _words(pieces.firsts, np.zeros_like(pieces.firsts), pieces.counts)
            writer.append(_keys(cores, hashes), addresses[pieces.rows], parts=words)


class _Windows(_Pieces):
    """Keys of the windows of those pieces of one range that must be compared."""

    def write(self, span: TextSpan, found: Covered, addresses: Integers, writer: KeyWriter) -> None:
        size = self.pending.min_bytes
        counts = found.lengths - (size - 1)
        for rows, firsts, hashes in window_hashes(span, found.rows, found.firsts, counts, size):
            writer.append(hashes, addresses[rows], parts=_words(firsts, np.zeros_like(firsts), np.ones_like(firsts)))


_FEEDS: dict[Level, Any] = {"anchors": _Anchors, "stretches": _Stretches, "pieces": _Pieces, "windows": _Windows}


@dataclass(frozen=True)
class Covered:
    """Bytes that stretches cover."""

    rows: Integers
    """Position of the text in the block, shape (stretches,)."""
    firsts: Integers
    """First byte in the text, shape (stretches,)."""
    lengths: Integers
    """Number of bytes, shape (stretches,)."""
    distances: Integers
    """Distance of the anchor from the first byte, shape (stretches,)."""

    @classmethod
    def of(cls, rows: Integers, drops: Rows, window_bytes: int) -> Covered:
        """Return what the stretches of some drops cover."""
        words = (drops[:, 1] & np.uint64(TO_COMPARE - 1)).astype(np.int64)
        lengths = (words & MOST_WINDOWS) + (window_bytes - 1)
        return cls(rows, words >> FIRST_SHIFT, lengths, words >> WINDOW_BITS & ((1 << ANCHOR_BITS) - 1))


def _drops(found: Found, number: int) -> RowsUpTo:
    drops = read_drops(found.exchange, number, found.files, memory_bytes=DROP_READER_BYTES)
    return RowsUpTo((piece.view(np.uint64) for piece in drops), DROP_WORDS)


def _rows_of(drops: Rows, addresses: Integers) -> tuple[Integers, npt.NDArray[np.bool_]]:
    """Return the positions in a block of the rows of some drops, and whether the block has each of them."""
    wanted = drops[:, 0].astype(np.int64)
    rows = np.minimum(np.searchsorted(addresses, wanted), len(addresses) - 1)
    return rows, addresses[rows] == wanted


@dataclass(frozen=True)
class RemoveSpans(RangeAction):
    """Resolved form of a deferred removal of repeated substrings in the last pass."""

    follows_addresses: ClassVar[bool] = True
    pending: SubstringDrop
    """Deferred operation."""
    found: tuple[Found, ...]
    """Results with the stretches, pieces and windows to remove."""

    def of_range(self, number: int) -> OfRange:
        """Return the object that removes the substrings of one range, once."""
        return _RangeSpans(self, number)


class _RangeSpans:
    def __init__(self, action: RemoveSpans, number: int) -> None:
        self._action, self._number = action, number
        self._drops = [_drops(found, number) for found in action.found]
        self._rows = self._checksum = self._missed = 0

    def run(self, block: Any) -> Outcome:
        pending, addresses = self._action.pending, block.index.to_numpy()
        self._rows += len(block)
        self._checksum = (self._checksum + _checksum(block, pending.text)) & CHECKSUM_MASK
        block = with_plain_text(block, pending.text)
        removed = without_spans(block[pending.text], lambda span: self._covered(span, addresses))
        if not removed.spans:
            return Outcome(block)
        rows, emptied = block.assign(**{pending.text: removed.texts}), removed.emptied
        count = int(emptied.sum())
        return Outcome(
            keep_rows(rows, ~emptied) if count else rows,
            {REASON: count} if count else {},
            {
                "spans_removed": removed.spans,
                "characters_removed": removed.removed_characters,
                "bytes_removed": removed.removed_bytes,
            },
            rejects=lambda: (keep_rows(block, emptied), {"reason": [REASON] * count}),
        )

    def _covered(self, span: TextSpan, addresses: Integers) -> Iterator[tuple[Integers, Integers, Integers]]:
        """Yield what to remove of some rows of a block. A row that is missing in this pass is counted and skipped."""
        last = int(addresses[span.first_row + len(span) - 1])
        for drops in self._drops:
            for every in drops.take(last):
                piece = every[every[:, 1] < TO_COMPARE]
                rows, came = _rows_of(piece, addresses)
                self._missed += int((~came).sum())
                found = Covered.of(rows[came], piece[came], self._action.pending.min_bytes)
                yield found.rows, found.firsts, found.lengths

    def finish(self, step: str) -> None:
        self._missed += sum(drops.rest() for drops in self._drops)
        self._action.found[-1].require_same(step, self._number, self._rows, self._checksum, self._missed)
