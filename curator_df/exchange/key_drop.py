# SPDX-License-Identifier: Apache-2.0
"""Remove rows or parts of texts with equal keys, by comparing all keys first or by deciding in input order.

A drop of all rows but the first with each key can decide while the rows are written, so that the input is read once.

The ranges of the last pass then run concurrently: each is read, goes through the steps before the drop, and is hashed. Its rows
wait for its turn, which comes when all earlier ranges are decided. A decision is stored as a file of the keys that the range
keeps; with that file, the next range has its turn. Each worker process puts these files into a table of its own, in order. So a
resumed run, a range that runs again and a worker that was started again decide as the first attempt did.

A range in progress holds the lock of a file. If that of the range whose turn it is stays free, because the range failed or its
worker died, the ranges that wait for it give up (`NotItsTurnError`), and run again after it. What does not fit, or cannot be
read, ends in `NeedsPassesError`: the run goes on with the exchange of all keys (`key_stages`), which yields the same rows.
"""

from __future__ import annotations

import collections
import dataclasses
import fcntl
import os
import threading
import time
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from curator_df.core.planning.program import DiskNeed, PendingPass, Program, SideOutput, StageStart, Step
from curator_df.core.planning.row_estimate import PART_BYTES_GUESS
from curator_df.core.ranges.blocks import Outcome, block_bytes
from curator_df.core.ranges.journal import Identity
from curator_df.core.ranges.range_action import NeedsPassesError, NotItsTurnError, OfRange, RangeAction
from curator_df.core.runner.passes import stage_identity, temporary_name
from curator_df.errors import RowCountError
from curator_df.exchange.dropped_rows import DROP_READER_BYTES, DropRows, Found
from curator_df.exchange.drops import read_drops, require_ascending
from curator_df.exchange.exchange import DROP_WORDS, Exchange, Keep, KeyWriter
from curator_df.exchange.key_stages import KeyStages
from curator_df.exchange.keys import CHECKSUM_MASK, KeptRows, Keyed, Keys, RangeKeys, key_checksum
from curator_df.files.sorted_rows import RowsUpTo
from curator_df.files.storage import Folder, disk_errors
from curator_df.kernels.rows.either_backend import rows_where
from curator_df.kernels.rows.key_tables import KeyTable, table_bytes
from curator_df.memory.process_cache import cached
from curator_df.receipts.receipt import ExchangeReceipt

POLL_SECONDS = 0.002
"""Interval at which a range checks whether its turn has come."""
PATIENCE_SECONDS = 5.0
"""Time after which a range gives up if the range whose turn it is does not run."""
LOOK_EVERY = 50
"""Number of these checks after which it also checks whether that range runs."""
HEAD_WORDS = 4
"""Words before the keys of a file: rows and checksum of the range, number of keys that it keeps, checksum of these."""
KEY_WORDS = 3
"""Words of a key: two halves of its hash, address of its row."""
ROW_RESERVE, LEAST_KEYS = 1.25, 10_000
"""Room for keys as a multiple of the estimated number of rows, and beyond it: the estimate looks at a few ranges only."""
Words = npt.NDArray[np.uint64]
_running_lock = threading.Lock()
_running: dict[str, list[int]] = {}
"""Descriptor of each locked file of this process, and the number of its tasks that need the lock.

A process has one lock for a file, which the processes that it forks do not share. Closing any descriptor of it ends the lock.
"""


@dataclass(frozen=True)
class InOrder:
    """Room for a drop that decides in input order, as a plan has it."""

    most_keys: int
    """Maximum number of keys in the table of each worker process."""
    most_held_bytes: int
    """Maximum memory of the rows of a range that waits for its turn."""

    @classmethod
    def of_rows(cls, rows: int, most_held_bytes: int) -> InOrder:
        """Return the room for about this number of rows."""
        return cls(int(rows * ROW_RESERVE) + LEAST_KEYS, most_held_bytes)

    @property
    def held_bytes(self) -> int:
        """Memory of the table of each worker process in bytes."""
        return table_bytes(self.most_keys)

    @property
    def disk_bytes(self) -> int:
        """Disk space for the keys in bytes."""
        return self.most_keys * 8 * KEY_WORDS


@dataclass(frozen=True)
class OrderedKeys:
    """Folder and limits of the decisions of one run."""

    folder: Folder
    """Local folder of the files, accessible to all workers."""
    room: InOrder
    """Room that the plan has for them."""
    run_id: str
    """Identifier of the run, which every worker's table belongs to."""

    def has(self, number: int) -> bool:
        """Return whether a range is decided."""
        return os.path.exists(self.folder.path(key_file(number)))

    def write(self, number: int, rows: int, checksum: int, keys: Words) -> None:
        """Store the decision about a range: its rows, the checksum of their keys, and the keys that it keeps."""
        head = np.array([rows, checksum, len(keys), zlib.crc32(keys.tobytes())], dtype=np.uint64)
        folder = dataclasses.replace(self.folder, is_durable=False)
        with disk_errors(folder), folder.create(key_file(number)) as file:
            file.write(head)
            if len(keys):
                file.write(keys)
            file.commit(len(keys))

    def read(self, number: int) -> tuple[int, int, Words]:
        """Return the decision about a range: its rows, the checksum of their keys, and the keys that it keeps."""
        try:
            words = np.fromfile(self.folder.path(key_file(number)), dtype=np.uint64)
            rows, checksum, kept, written = words[:HEAD_WORDS].tolist()
            keys = words[HEAD_WORDS:].reshape(kept, KEY_WORDS)
            is_whole = zlib.crc32(keys.tobytes()) == written
        except (FileNotFoundError, ValueError):  # a crash of the machine took it, or left fewer words
            is_whole = False
        if not is_whole:
            raise NeedsPassesError(f"the file of the keys that input split {number:,} keeps is damaged")
        return rows, checksum, keys

    def is_running(self, number: int) -> bool:
        """Return whether a range is in progress in any process of this machine."""
        path = self.folder.path(lock_file(number))
        with _running_lock:
            if path in _running:
                return True
            try:
                descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
            except FileNotFoundError:
                return False
            try:
                fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except (BlockingIOError, PermissionError):
                return True
            finally:
                os.close(descriptor)
        return False

    def begin(self, number: int) -> None:
        """Mark a range as being in progress until `end`, or until the process ends."""
        path = self.folder.path(lock_file(number))
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        with _running_lock:
            if path not in _running:
                descriptor = os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
                try:
                    fcntl.lockf(descriptor, fcntl.LOCK_SH)
                except BaseException:
                    os.close(descriptor)
                    raise
                _running[path] = [descriptor, 0]
            _running[path][1] += 1

    def end(self, number: int) -> None:
        """End what `begin` has begun."""
        path = self.folder.path(lock_file(number))
        with _running_lock:
            _running[path][1] -= 1
            if not _running[path][1]:
                os.close(_running.pop(path)[0])

    def in_process(self) -> Decided:
        """Return the decisions that this process knows."""
        return cached(("ordered keys", self.folder.url, self.run_id), lambda: Decided(self))


def ordered_keys(runner: Any, before: Program, step: Step, room: InOrder) -> OrderedKeys:
    """Open the folder of the decisions of a run.

    Raises
    ------
    NeedsPassesError
        If an earlier run, or a look, has exchanged keys for this step, or finished ranges without such decisions; or if the
        folder cannot be used.
    """
    identity = stage_identity(before, step)
    looks, name = runner.session.looks, temporary_name(step, identity)
    looked = [] if looks is None else looks.finished(dataclasses.replace(before, steps=(*before.steps, step)))
    if runner.has_temporary(name) or step.name in looked:
        raise NeedsPassesError("an earlier call has collected the keys of its rows")
    # If no range depends on an earlier decision, it goes: rows may differ, as after on_existing="overwrite".
    if not np.any(runner.finished):
        runner.temporary.below(decisions_name(step, identity)).delete_tree("")
    with runner.open_temporary(decisions_name(step, identity), identity) as stage:
        found = OrderedKeys(stage.home, room, runner.run_id)
        if not stage.home.is_local:
            raise NeedsPassesError("its working files are not in a local folder")
        if any(not found.has(number) for number in np.flatnonzero(runner.finished).tolist()):
            raise NeedsPassesError("an earlier call has finished input splits with keys from passes")
        try:
            found.begin(0)
            found.end(0)
        except OSError as exc:
            raise NeedsPassesError(f"its working folder does not support locks ({exc})") from exc
    runner.exchanges.append(ExchangeReceipt(step.name, 0, 0, 0, 1.0, room.disk_bytes, 0, 0, 0, 0.0))
    return found


def decisions_name(step: Step, identity: Identity) -> str:
    """Return the name of the temporary folder of the decisions about a step."""
    return f"{temporary_name(step, identity)}-in-order"


def key_file(number: int) -> str:
    """Return the name of the file with the keys that a range keeps."""
    return f"kept/{number:06d}.keys"


def lock_file(number: int) -> str:
    """Return the name of the file that is locked while a range is in progress."""
    return f"running/{number:06d}"


class Decided:
    """Table of the keys that the first ranges keep, in one process."""

    def __init__(self, found: OrderedKeys) -> None:
        self._found = found
        self.lock = threading.Lock()
        """Lock of the thread that decides."""
        self.ranges, self._table = 0, KeyTable(found.room.most_keys)

    def decide(
        self, step: str, number: int, rows: int, checksum: int, keys: list[Words]
    ) -> list[npt.NDArray[np.int64]]:
        """Return the address of the kept row for each row of the blocks of a range, and store which rows it keeps.

        A range that was decided before gets the same answer; its rows must be the same.
        """
        while self.ranges < number:
            _, _, earlier = self._found.read(self.ranges)
            self._put(earlier)
            self.ranges += 1
        is_known = self._found.has(number)
        if is_known:
            earlier_rows, earlier_checksum, _ = self._found.read(number)
            if (rows, checksum) != (earlier_rows, earlier_checksum):
                raise RowCountError(
                    f"the steps before {step!r} gave different results when part {number:,} of the input was read again: it "
                    f"had {earlier_rows:,} rows the first time and {rows:,} now, or rows with other values. One of these steps "
                    "depends on chance, time or state. Make its result depend on the row alone, and repeat the run with "
                    "on_existing='overwrite'"
                )
        try:
            firsts = [self._put(each) for each in keys]
            if not is_known:
                kept = [each[first == _addresses(each)] for each, first in zip(keys, firsts, strict=True)]
                self._found.write(number, rows, checksum, np.concatenate([np.empty((0, KEY_WORDS), np.uint64), *kept]))
        except BaseException:
            self.ranges = 0
            self._table.clear()  # it may have keys of a range that nobody has decided
            raise
        self.ranges = max(self.ranges, number + 1)
        return firsts

    def _put(self, keys: Words) -> npt.NDArray[np.int64]:
        if not self._table.has_room(len(keys)):
            raise NeedsPassesError(f"there are more keys than the {self._found.room.most_keys:,} that were expected")
        return self._table.put(keys[:, :2], _addresses(keys))


def _addresses(keys: Words) -> npt.NDArray[np.int64]:
    return keys[:, 2].view(np.int64)


@dataclass(frozen=True)
class KeepFirst(RangeAction):
    """Action of the last pass that keeps the first row with each key, and decides it in input order."""

    holds_rows: ClassVar[bool] = True
    pending: Any
    """Deferred `KeyDrop`."""
    found: OrderedKeys
    """Folder of the decisions."""

    def of_range(self, number: int) -> RangeInTurn:
        """Return the object that drops the rows of one range, once."""
        return RangeInTurn(self, number)


class RangeInTurn:
    """Rows of one range, which are held until it is decided which of them stay."""

    def __init__(self, action: KeepFirst, number: int) -> None:
        self._pending, self._found, self._number = action.pending, action.found, number
        self._blocks: collections.deque[Any] = collections.deque()
        self._keys: list[Words] = []
        self._rows = self._checksum = self._bytes = 0
        self._last = -1
        self._found.begin(number)
        self._is_running = True

    def run(self, block: Any) -> Outcome:
        """Hold the next block, and pass on nothing yet."""
        hashes, addresses = self._pending.of(block).hashes, block.index.to_numpy()
        self._last = require_ascending(addresses, self._last)
        keys = np.empty((len(block), KEY_WORDS), dtype=np.uint64)
        keys[:, :2], keys[:, 2] = hashes, addresses.view(np.uint64)
        self._rows += len(block)
        self._checksum = (self._checksum + key_checksum(hashes, addresses)) & CHECKSUM_MASK
        self._bytes += block_bytes(block) + keys.nbytes
        if self._bytes > self._found.room.most_held_bytes:
            raise NeedsPassesError(f"the rows of input split {self._number:,} take more memory than was expected")
        self._blocks.append(block)
        self._keys.append(keys)
        return Outcome(block.iloc[:0])

    def wait(self, check: Callable[[], None]) -> None:
        """Wait until all earlier ranges are decided; ``check`` raises an error if the task has to stop.

        Raises
        ------
        NotItsTurnError
            If the first of those that are not does not run.
        """
        first, looks, idle_since = self._found.in_process().ranges, 0, None
        while True:
            check()
            while first < self._number and self._found.has(first):
                first, idle_since = first + 1, None
            if first >= self._number:
                return
            if looks % LOOK_EVERY == 0:
                if self._found.is_running(first):
                    idle_since = None
                elif idle_since is None:
                    idle_since = time.monotonic()
                elif time.monotonic() - idle_since > PATIENCE_SECONDS:
                    raise NotItsTurnError(f"input split {self._number:,} waits for {first:,}, which does not run")
            looks += 1
            time.sleep(POLL_SECONDS)

    def decided(self, step: str) -> Iterator[tuple[Any, Outcome]]:
        """Decide which rows stay; yield each block with the outcome for its rows."""
        decided = self._found.in_process()
        with decided.lock:
            firsts = decided.decide(step, self._number, self._rows, self._checksum, self._keys)
        self.close()
        for keys, first in zip(self._keys, firsts, strict=True):
            block = self._blocks.popleft()
            yield block, self._outcome(block, first, first != _addresses(keys))

    def _outcome(self, block: Any, first: npt.NDArray[np.int64], going: npt.NDArray[np.bool_]) -> Outcome:
        reason, count = self._pending.reason, int(going.sum())
        if not count:
            return Outcome(block)
        said = {"reason": [reason] * count, "matched": first[going], "other_files": ()}
        return Outcome(rows_where(block, ~going), {reason: count}, rejects=lambda: (rows_where(block, going), said))

    def finish(self, step: str) -> None:
        """Do nothing: there was no first pass to compare with."""

    def close(self) -> None:
        """End the range, decided or not: ranges that wait for it then give up."""
        if self._is_running:
            self._is_running = False
            self._found.end(self._number)


Integers = npt.NDArray[np.int64]
Going = Iterator[tuple[Integers, Integers]]
"""Row position in the block and number of the part for each removed part, in order, in pieces."""
MOST_PARTS = 1 << 20
"""Number of parts of a row up to which each part has a unique place; beyond it, places may collide, which is unlikely."""


class PartKeys(NamedTuple):
    """Some of the parts of a block's rows, in order."""

    hashes: npt.NDArray[np.uint64]
    """Array of shape (parts, 2)."""
    rows: Integers
    """Array of shape (parts,): position of the row in the block."""
    ordinals: Integers
    """Array of shape (parts,): number of the part in its row."""


@dataclass(frozen=True)
class PartDrop(Keyed):
    """Deferred removal of parts of rows with the same key, except for one of each group."""

    parts: Callable[..., Iterator[PartKeys]]
    """Module-level function: ``parts(block, **parameters)``."""
    remove: Callable[..., Outcome]
    """Module-level function: ``remove(block, going, **parameters)`` returns the rows without the removed parts."""
    parameters: Mapping[str, Any]
    """Keyword arguments of both functions."""
    keep: Literal["first", "last", "none"]
    """Part of a group to keep."""
    max_documents: int | None = None
    """Number of rows up to which a part may occur without being dropped; None: a part that occurs twice is dropped."""
    home: Folder | None = field(default=None, metadata={"identity": False})
    """Folder that stores the completed stage, as in `exchange.key_drop.KeyDrop`."""
    columns: tuple[str, ...] = field(default=(), metadata={"identity": False})
    """Columns that ``parts`` reads."""
    of_parts: ClassVar[bool] = True
    """True, because the keys are those of parts of rows."""

    def feed(self, block: Any, writer: KeyWriter) -> int:
        """Pass the keys of a block to a writer; return their checksum."""
        checksum, addresses = 0, block.index.to_numpy()
        for parts in self.parts(block, **self.parameters):
            writer.append(parts.hashes, addresses[parts.rows], parts=parts.ordinals)
            checksum += key_checksum(parts.hashes, _places(addresses, parts))
        return checksum

    def open_keys(self, exchange: Exchange, number: int, memory_bytes: int) -> RangeKeys:
        """Create the key file of a range."""
        return RangeKeys(self, exchange, number, memory_bytes)

    def disk_need(self, name: str, start: StageStart) -> DiskNeed | None:
        """Return the disk space for the keys of parts, whose number follows from a guess of their size."""
        plan = self.plan_exchange(start)
        short = f"if most parts have {PART_BYTES_GUESS // 4} bytes, and not {PART_BYTES_GUESS}"
        return plan.need(name, more_bytes=3 * plan.need(name).needed_bytes, worst_case=short)

    def prepare(self, runner: Any, before: Program, step: Step) -> Found:
        """Exchange the keys of all parts."""
        return KeyStages(runner, before, step, self).run()

    def resolved(self, prepared: Found) -> RangeAction:
        """Return the action that removes the parts in the last pass."""
        return DropParts(self, prepared)


def _places(addresses: Integers, parts: PartKeys) -> Integers:
    return addresses[parts.rows] * MOST_PARTS + parts.ordinals


@dataclass(frozen=True)
class DropParts(RangeAction):
    """Resolved form of a deferred removal of parts in the last pass."""

    follows_addresses: ClassVar[bool] = True
    pending: PartDrop
    """Deferred operation; it removes the parts, and its keys prove that they are those of the first pass."""
    found: Found
    """Result with the parts to remove."""

    def of_range(self, number: int) -> OfRange:
        """Return the object that removes the parts of one range, once."""
        return _RangeParts(self, number)


class _RangeParts:
    def __init__(self, drops: DropParts, number: int) -> None:
        self._pending, self._found, self._number = drops.pending, drops.found, number
        going = read_drops(drops.found.exchange, number, drops.found.files, memory_bytes=DROP_READER_BYTES)
        self._drops = RowsUpTo((piece.view(np.uint64) for piece in going), DROP_WORDS)
        self._rows = self._checksum = self._missed = 0

    def run(self, block: Any) -> Outcome:
        addresses, pending = block.index.to_numpy(), self._pending
        self._rows += len(block)
        for parts in pending.parts(block, **pending.parameters):
            found = key_checksum(parts.hashes, _places(addresses, parts))
            self._checksum = (self._checksum + found) & CHECKSUM_MASK
        return pending.remove(block, self._going(addresses), **pending.parameters)

    def _going(self, addresses: Integers) -> Going:
        """Yield the parts of a block to remove. A row that is missing in this pass is counted and skipped."""
        if not len(addresses):
            return
        for piece in self._drops.take(int(addresses[-1])):
            parts = piece.view(np.int64)
            rows = np.searchsorted(addresses, parts[:, 0])
            came = addresses[rows] == parts[:, 0]
            self._missed += int((~came).sum())
            yield rows[came], parts[came, 1]

    def finish(self, step: str) -> None:
        self._missed += self._drops.rest()
        self._found.require_same(step, self._number, self._rows, self._checksum, self._missed)


@dataclass(frozen=True)
class KeyDrop(Keyed):
    """Deferred removal of rows with the same key, except for the one of each group that is kept."""

    keys: Callable[..., Keys]
    """Module-level function: ``keys(block, **parameters)``."""
    parameters: Mapping[str, Any]
    """Keyword arguments of ``keys``."""
    keep: Keep
    """Row of a group to keep."""
    reason: str
    """Drop reason of the other rows, for the receipt."""
    home: Folder | None = field(default=None, metadata={"identity": False})
    """Folder that stores the completed stage; None stores it with the run's temporary files, which are deleted."""

    columns: tuple[str, ...] = field(default=(), metadata={"identity": False})
    """Columns that ``keys`` reads."""
    count_into: str | None = field(default=None, metadata={"identity": False})
    """New column with the number of rows that each kept row stands for; None for no column."""
    rule: ClassVar[str] = ""
    """Condition for two rows to match, as rejects name it; empty if they are equal."""
    threshold: ClassVar[float | None] = None
    """Minimum similarity of two rows."""
    against: KeptRows | None = None
    """Rows of another table; rows with the same keys are dropped."""
    kept_keys: Callable[..., Keys] | None = None
    """Module-level function: ``kept_keys(block, **kept_parameters)`` returns the keys of the rows of ``against``."""
    kept_parameters: Mapping[str, Any] = field(default_factory=dict)
    """Keyword arguments of ``kept_keys``."""
    side_output: SideOutput | None = field(default=None, metadata={"identity": False})
    """Folder for the keys of the kept rows; None for no folder."""
    index: Any = field(default=None, metadata={"identity": False})
    """Index whose documents the rows are compared with (`ops.duplicates.index_runs.IndexUse`); None for none."""

    ordered: InOrder | None = field(default=None, metadata={"identity": False})
    """Room in which it is decided in input order during the last pass; None for an exchange of all keys before it."""

    def in_order(self, rows: int, most_held_bytes: int) -> KeyDrop | None:
        """Return a copy that is decided in input order during the last pass; None if it needs more than the first rows."""
        others = (self.home, self.count_into, self.against, self.side_output, self.index)
        if self.keep != "first" or any(each is not None for each in others):
            return None
        return dataclasses.replace(self, ordered=InOrder.of_rows(rows, most_held_bytes))

    def passes(self, name: str) -> Sequence[PendingPass]:
        """Return no pass if it is decided in input order, else those of the exchange."""
        return super().passes(name) if self.ordered is None else ()

    def disk_need(self, name: str, start: StageStart) -> DiskNeed | None:
        """Return the disk space for the exchange of its keys, or for the keys that a drop in input order keeps."""
        if self.ordered is None:
            return super().disk_need(name, start)
        return DiskNeed(name, {"keys": self.ordered.disk_bytes}, self.ordered.disk_bytes)

    @property
    def other_files(self) -> Sequence[str]:
        """Files of the other table, which are numbered after those of the input."""
        return () if self.against is None else tuple(self.against.program.source.files)

    @property
    def for_kept(self) -> KeyDrop:
        """A copy that takes the keys of the rows of ``against``."""
        keys, parameters = self.kept_keys or self.keys, self.kept_parameters
        return dataclasses.replace(self, keys=keys, parameters=parameters, columns=(), against=None)

    @property
    def last_pass(self) -> Mapping[str, Any]:
        """The column of counts, if there is one."""
        return {} if self.count_into is None else {"count_into": self.count_into}

    @property
    def keeps_members(self) -> bool:
        """Whether the members of groups are written: for a table, and to count them."""
        return self.home is not None or self.count_into is not None

    @property
    def more_of_stage(self) -> tuple[Any, ...]:
        """A stage for a table always has the members; another one differs by them."""
        return ("members",) if self.keeps_members and self.home is None else ()

    def of(self, block: Any) -> Keys:
        """Return the keys of a block."""
        return self.keys(block, **self.parameters)

    def feed(self, block: Any, writer: KeyWriter) -> int:
        """Pass the keys of a block to a writer; return their checksum."""
        keys, addresses = self.of(block), block.index.to_numpy()
        writer.append(keys.hashes, addresses, keys.values, keys.missing)
        return key_checksum(keys.hashes, addresses)

    def open_keys(self, exchange: Exchange, number: int, memory_bytes: int) -> RangeKeys:
        """Create the key file of a range."""
        return RangeKeys(self, exchange, number, memory_bytes)

    def prepare(self, runner: Any, before: Program, step: Step) -> Found | OrderedKeys:
        """Exchange the keys of all rows, or only open the folder for the decisions of the last pass."""
        if self.ordered is not None:
            return ordered_keys(runner, before, step, self.ordered)
        decisions = decisions_name(step, stage_identity(before, step))
        if runner.has_temporary(decisions):  # an earlier call began in one pass
            runner.note_temporary(decisions)
        return KeyStages(runner, before, step, self).run()

    def resolved(self, prepared: Found | OrderedKeys) -> RangeAction:
        """Return the action that drops the rows in the last pass."""
        return KeepFirst(self, prepared) if isinstance(prepared, OrderedKeys) else DropRows(self, prepared)
