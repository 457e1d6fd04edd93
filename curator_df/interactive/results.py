# SPDX-License-Identifier: Apache-2.0
"""Results of Dask's own computations, returned in pieces and counted against the budget.

Dask joins all partitions of ``df.compute()`` on one worker and pickles the whole there. While a session is open, its client
instead gathers the partitions one by one and joins them in the client, as far as the budget has room: the workers' limits
are lowered by the client's memory. A result that does not fit raises a `BudgetError` as soon as that can be foreseen.

Not covered: ``client.compute()`` and ``persist()``, whose results stay on workers, and computations inside tasks.
"""

from __future__ import annotations

import asyncio
import collections
import errno
import logging
import os
import threading
import types
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import psutil
import pyarrow as pa
from dask._expr import Expr, _ExprSequence
from dask.base import is_dask_collection
from dask.core import flatten
from dask.dataframe.dask_expr._expr import Blockwise
from dask.dataframe.dask_expr._repartition import RepartitionToFewer, _concat
from dask.dataframe.dask_expr.io import FromMap
from dask.sizeof import sizeof
from dask.utils import key_split
from distributed import CancelledError, Future, KilledWorker, as_completed
from distributed.client import ClosedClientError
from distributed.comm.core import CommClosedError
from distributed.shuffle._exceptions import P2POutOfDiskError
from distributed.utils import thread_state

from curator_df.core.backend import is_on_device
from curator_df.core.cleaning_up import clean_up
from curator_df.core.planning.lowering import ReadPartition
from curator_df.core.ranges.out_of_memory import is_out_of_memory
from curator_df.core.runner.lost_scheduler import expect_loss, require_open, scheduler_lost, tells_of_loss
from curator_df.core.runner.progress import progress_lines
from curator_df.core.runner.session import Session, prepare_kernels
from curator_df.core.user_frames import KEY, with_user_frames
from curator_df.errors import (
    BudgetError,
    CuratorError,
    DiskFullError,
    ExpressionError,
    SchedulerLostError,
    WorkerLostError,
    type_and_text,
)
from curator_df.interactive.second_try import RANGE_KEY, REMEDY
from curator_df.memory.budget import MARGIN_FRACTION, MIN_THREAD_BYTES
from curator_df.memory.counted_memory import counted_bytes
from curator_df.memory.limits import release_free_memory
from curator_df.memory.sizes import show_count, show_size, size_to_type
from curator_df.memory.system import status_bytes

RESULT_FRACTION = 0.6
"""Fraction of the workers' memory that a result in the client may use, so that the tasks that compute it still have room."""
FORESEEN_FRACTION = 1.25
"""Ratio of the size foreseen from the first partitions to the room above which the computation is stopped."""
FORESEE_AFTER = 0.1
"""Fraction of the partitions from which the size of the result is foreseen (at least two partitions)."""
COPIES_OF_RESULT = 2
"""Copies of a result that exist while its partitions are joined, where workers cannot give memory to this process."""
STARTED_ELSEWHERE = ("compute", "persist")
"""Methods of a client that start work on tables without `Client.get`."""
MOST_LOST = 3
"""Number of times that the worker of a result may be lost before it has sent it; Dask alone computes it again for ever."""
SECONDS_TO_REACH = 2.0
"""Maximum wait in seconds for the answer of a worker that is asked directly."""
LIMIT_STEP_BYTES = 16_000_000
"""Minimum change, in bytes, for which the workers' limits are adjusted while a result grows."""
CHANGES = "_curator_df_changes"
"""Attribute of a client: the calls by which its open sessions change its methods, of which the last is in force."""
AGAIN = "Start a cluster (or connect to one) again, and compute the table again"
LOG = logging.getLogger("curator_df.core")
DASK_LOG = logging.getLogger("distributed.protocol.core")
NO_PICKLE = "Could not serialize object"
"""First words of Dask's error for a result that cannot be sent; the traceback of the worker may follow. Without one, there was
no memory for it either."""
SHUFFLE_CAUSES = (pa.ArrowException, TypeError, ValueError, LookupError, AttributeError)
"""Errors of the rows of a shuffle, and not of its network, memory or disk."""


def return_in_pieces(session: Session) -> Callable[[], None]:
    """Make the client of a session gather results piece by piece, and report a lack of memory clearly.

    The returned call undoes it. Of several sessions with one client, the latest that is open is in force.
    """
    client = session.client
    change = partial(_change_methods, session, reaches_workers(client))
    changes = vars(client).setdefault(CHANGES, list[Callable[[], None]]())
    changes.append(change)
    change()

    def undo() -> None:
        changes.remove(change)
        for name in ("get", "_gather_remote", *STARTED_ELSEWHERE):
            client.__dict__.pop(name, None)
        if changes:
            changes[-1]()

    return undo


def _change_methods(session: Session, reaches: bool) -> None:
    client = session.client
    dask_get = type(client).get
    lost: collections.Counter[Any] = collections.Counter()

    def get(self: Any, dsk: Any, keys: Any, **options: Any) -> Any:
        if not _is_plain(self, options):
            return dask_get(self, dsk, keys, **options)
        failure: BaseException
        try:
            require_open(session.client, AGAIN)
            lost.clear()
            shown = progress_lines("computing with Dask", partial(_tasks_in_words, session.client))
            with shown, _unlogged(), _workers_brought_back(session, _keys_waited_for(dsk, keys)):
                expect_loss(session.client)
                session.weigh_client()
                prepare_kernels(session, parts_of(dsk))
                return _computed(session, dask_get, dsk, keys, options)
        except Exception as exc:  # noqa: BLE001 - each is raised again below
            # The original refers to frames, and these to the futures, whose results would stay on the workers.
            error = None if isinstance(exc, CuratorError) else _lost(session, exc) or _named(session, exc)
            failure = _told_where(exc.with_traceback(None), dsk) if error is None else error
        release_free_memory()
        raise failure from failure.__cause__

    # Bound to the client, as Dask recognizes its default client by ``client.get``.
    client.get = types.MethodType(get, client)
    client._gather_remote = types.MethodType(_bounded(type(client)._gather_remote, reaches, lost), client)
    for name in STARTED_ELSEWHERE:
        setattr(client, name, types.MethodType(_with_kernels(session, getattr(type(client), name)), client))


def reaches_workers(client: Any) -> bool:
    """Return whether all workers answer this process directly.

    Results that pass through the scheduler are pickled with an older protocol, for which a worker makes several copies.
    """
    addresses = list(client.nthreads())

    async def reach() -> bool:
        asked = [client.rpc(address).identity() for address in addresses]
        try:
            await asyncio.wait_for(asyncio.gather(*asked), SECONDS_TO_REACH)
        except (OSError, TimeoutError):
            return False
        return bool(asked)

    return bool(client.direct_to_workers or client.sync(reach))


def _bounded(dask_gather: Callable[..., Any], reaches: bool, lost: collections.Counter[Any]) -> Callable[..., Any]:
    """Return a client's method that fetches results: directly where it can, and in vain only a few times."""

    async def gather_remote(self: Any, direct: bool | None, local_worker: Any) -> Any:
        response = await dask_gather(self, direct or reaches, local_worker)
        if response["status"] == "OK":
            for key in response["data"]:
                lost.pop(key, None)
            return response
        for key in response["keys"]:
            lost[key] += 1
            if lost[key] > MOST_LOST and not str(key).startswith(RANGE_KEY):
                del lost[key]
                raise MemoryError(
                    f"the worker that held a result of {_operation(key)!r} was lost {MOST_LOST + 1} times before it had sent "
                    "the result, probably for lack of memory. Start the cluster with a larger memory=, or compute fewer "
                    "rows or columns"
                )
        return response

    return gather_remote


def _lost(session: Session, exc: BaseException) -> SchedulerLostError | None:
    """Return the error of a computation whose scheduler is gone; None for any other error."""
    is_gone = session.client.status != "running" and isinstance(
        exc, (CancelledError, ClosedClientError, CommClosedError, TimeoutError)
    )
    return scheduler_lost(session.client, AGAIN) if is_gone or tells_of_loss(exc) else None


def _with_kernels(session: Session, method: Callable[..., Any]) -> Callable[..., Any]:
    def started(self: Any, collections: Any, *arguments: Any, **options: Any) -> Any:
        tables = collections if isinstance(collections, list | tuple | set) else [collections]
        prepare_kernels(session, [part for table in tables for part in parts_of(getattr(table, "expr", None))])
        return method(self, collections, *arguments, **options)

    return started


def parts_of(expression: Any) -> Iterator[Any]:
    """Yield what an expression of Dask calls: sources and kernels, which name the compiled functions that they need."""
    if not isinstance(expression, Expr):
        return
    for node in expression.walk():
        for operand in node.operands:
            fused = operand if isinstance(operand, list | tuple) else ()
            for inner in fused:
                yield from parts_of(inner)
            # A table's attributes may be its columns, and any name is an attribute of a delayed value.
            if callable(operand) and not isinstance(operand, Expr) and not is_dask_collection(operand):
                yield getattr(operand, "source", operand)


@contextmanager
def _unlogged() -> Iterator[None]:
    """Let Dask raise, but not log as well, that a result could not be sent: the log has 70 lines for each."""

    def is_other(record: logging.LogRecord) -> bool:
        return record.msg != "Failed to deserialize"

    DASK_LOG.addFilter(is_other)
    try:
        yield
    finally:
        DASK_LOG.removeFilter(is_other)


@contextmanager
def _workers_brought_back(session: Session, waited: Collection[Any]) -> Iterator[None]:
    """Replace workers while a computation waits and all are permanently gone; end it if none comes back, as a run does.

    A nanny does not restart a worker that dies before the nanny knows that it has started, a cluster of Dask closes a nanny whose
    worker was killed twice within 15 s, and Dask would wait forever. ``waited`` has the keys of the computation.
    """
    over, given_up = threading.Event(), threading.Event()
    known = frozenset(list(session.client.futures))

    def watch() -> None:
        workless_seconds, patience = 0.0, session.patience
        while not over.wait(patience.watch_seconds):
            if session.client.status != "running":
                continue  # Dask cancels all, or connects again
            try:
                longer = 0.0 if session.client.nthreads() else workless_seconds + patience.watch_seconds
                before, workless_seconds = workless_seconds, longer
                if session.revive is not None and any(before < due <= longer for due in patience.revive_seconds):
                    session.revive()
                if workless_seconds >= session.workless_seconds:
                    given_up.set()
                if given_up.is_set():  # again and again, as Dask may wait for more futures afterwards
                    cancel_waiting(session.client, waited, known)
            except Exception:  # the scheduler did not answer; without this thread, nothing would end the computation
                LOG.debug("the workers could not be checked", exc_info=True)

    watcher = threading.Thread(target=watch, name="curator_df-watch-workers", daemon=True)
    watcher.start()
    try:
        yield
    except BaseException as exc:
        if given_up.is_set() and not isinstance(exc, KeyboardInterrupt):
            raise WorkerLostError(
                f"no worker came back within {session.workless_seconds:.0f} s after the last one died. Check the last output of "
                "the workers and whether the system killed them, restart the workers or the cluster, and repeat the computation"
            ) from None
        raise
    finally:
        over.set()
        watcher.join(timeout=session.patience.watch_seconds)


def cancel_waiting(client: Any, waited: Collection[Any], known: Collection[Any]) -> None:
    """Cancel what a computation waits for: its own futures, or those that were there before if it has no others."""
    futures = dict(client.futures)
    # Dask marks results as lost that were ready, and not yet here, when the last worker died.
    waiting = [key for key in waited if key in futures and futures[key].status in ("pending", "lost")]
    own = [key for key in waiting if key not in known]
    client.cancel([Future(key, client) for key in own or waiting])


def _keys_waited_for(dsk: Any, keys: Any) -> set[Any]:
    """Return the keys of the results that are fetched for a call: those of its graph, and of tables' partitions."""
    operands = dsk.operands if isinstance(dsk, _ExprSequence) else ()
    parts = [one.frame.__dask_keys__() for one in operands if _is_joined(one)]
    return set(flatten([keys, parts]))


def _tasks_in_words(client: Any) -> str:
    """Return how many tasks of the scheduler are finished, for a line of progress; empty if it does not answer."""
    try:
        states = client.sync(client.scheduler.get_task_prefix_states, callback_timeout=SECONDS_TO_REACH)
    except Exception:  # a scheduler that is busy, or gone: the computation itself reports that
        LOG.debug("the scheduler did not tell how many tasks are finished", exc_info=True)
        return ""
    total = collections.Counter[str]()
    for counts in states.values():
        total.update(counts)
    left = total["waiting"] + total["processing"]
    return f"{show_count(left, 'task')} left, {total['processing']:,} in progress" if left else ""


def _is_plain(client: Any, options: dict[str, Any]) -> bool:
    """Return whether a call of ``Client.get`` comes from ``dask.compute`` in the user's own process."""
    is_in_task = bool(getattr(thread_state, "key", False))
    return options.get("sync", True) and not client.asynchronous and not is_in_task


def _computed(session: Session, dask_get: Callable[..., Any], dsk: Any, keys: Any, options: dict[str, Any]) -> Any:
    """Return what `Client.get` does, for an expression or, of delayed values, any graph."""
    operands = dsk.operands if isinstance(dsk, _ExprSequence) else ()
    tables = {number: one.frame for number, one in enumerate(operands) if _is_joined(one)}
    if not tables:
        return dask_get(session.client, dsk, keys, **options)
    parts = [tables.get(number, one) for number, one in enumerate(dsk.operands)]
    futures = dask_get(
        session.client, _ExprSequence(*parts), [list(one.__dask_keys__()) for one in parts], sync=False, **options
    )
    places = {future: (number, part) for number, row in enumerate(futures) for part, future in enumerate(row)}
    futures.clear()
    pieces = _Pieces(session, places)
    gathered = pieces.gather()
    return [
        _concat([gathered.pop((number, part)) for part in range(one.npartitions)])
        if number in tables
        else gathered.pop((number, 0))
        for number, one in enumerate(parts)
    ]


def _is_joined(expression: Any) -> bool:
    """Return whether this is a pandas table, or column, of several partitions that Dask joins into one for ``compute``."""
    return (
        isinstance(expression, RepartitionToFewer)
        and expression.npartitions == 1
        and expression.ndim > 0
        and not is_on_device(expression._meta)
    )


class _Pieces:
    """Collector that gathers partitions into this process and counts their bytes."""

    def __init__(self, session: Session, places: dict[Any, tuple[int, int]]) -> None:
        self._session, self._places = session, places
        self._count = len(places)
        self._room_bytes = room_for_results(session)
        self._before_bytes = status_bytes("RssAnon")
        self._held_bytes = self._promised_bytes = 0

    def gather(self) -> dict[tuple[int, int], Any]:
        """Return the partitions by table and number."""
        gathered: dict[tuple[int, int], Any] = {}
        try:
            for future in as_completed(list(self._places)):
                place = self._places.pop(future)
                piece = self._session.client.gather(future)
                future.release()
                self._held_bytes += int(sizeof(piece))
                gathered[place] = piece
                self._require_room(len(gathered))
        except BaseException as exc:
            clean_up(exc, lambda: self._session.client.cancel(list(self._places)))
            raise
        return gathered

    def _require_room(self, done: int) -> None:
        held_bytes = max(self._held_bytes, status_bytes("RssAnon") - self._before_bytes)
        foreseen_bytes = self._held_bytes * self._count // done
        is_foreseen = (
            done >= max(2, FORESEE_AFTER * self._count) and foreseen_bytes > self._room_bytes * FORESEEN_FRACTION
        )
        if held_bytes > self._room_bytes or is_foreseen:
            raise _too_large(self._session, max(foreseen_bytes, held_bytes), self._room_bytes, held_bytes)
        promised_bytes = min(self._room_bytes, max(held_bytes, foreseen_bytes))
        if promised_bytes > self._promised_bytes + LIMIT_STEP_BYTES:
            self._promised_bytes = promised_bytes
            self._session.lower_limits(promised_bytes)


def room_for_results(session: Session) -> int:
    """Return the number of bytes that a result may use in the client's process."""
    layout = session.layout
    if session.client_bytes is None:  # the limits of the workers are fixed
        room_bytes = int(psutil.virtual_memory().available * RESULT_FRACTION)
        if session.client_limit is None:
            return room_bytes
        return min(room_bytes, max(session.client_limit() - counted_bytes(os.getpid()), 0) // COPIES_OF_RESULT)
    kept_bytes = max(int(layout.work_bytes * (1 - RESULT_FRACTION)), MIN_THREAD_BYTES)
    return max(layout.work_bytes - kept_bytes, 0) * layout.node_workers


def _too_large(session: Session, needed_bytes: int, room_bytes: int, held_bytes: int) -> BudgetError:
    return BudgetError(
        f"The result needs about {show_size(needed_bytes)} in this process, but only {show_size(room_bytes)} are free for "
        f"results with memory={session.layout.memory_argument}.\n"
        "Compute only part of it, with head() or fewer columns (df[['id', 'n']]), or write it to files with "
        "curator_df.write_parquet(df, 'folder/').\n"
        f"To get all of it, {_way_to_all(session, needed_bytes, room_bytes, held_bytes)}."
    )


def _way_to_all(session: Session, needed_bytes: int, room_bytes: int, held_bytes: int) -> str:
    """Return what gives a result the room that it needs, of which this process already holds a part."""
    allowed_bytes = session.layout.allowed_bytes
    if session.client_bytes is not None:
        lacking_bytes = (needed_bytes - room_bytes) / RESULT_FRACTION / (1 - MARGIN_FRACTION)
        return f"start the cluster with memory={size_to_type(allowed_bytes + lacking_bytes + 5e7)}"
    if session.client_limit is None:
        return f"run this process where {show_size(int(needed_bytes / RESULT_FRACTION))} of memory are free"
    left_bytes = session.client_limit() - (counted_bytes(os.getpid()) - held_bytes)
    enough_bytes = allowed_bytes + COPIES_OF_RESULT * needed_bytes - left_bytes
    return f"connect with memory={size_to_type(max(enough_bytes, allowed_bytes) + 5e7)}"


def _told_where(exc: BaseException, dsk: Any) -> BaseException:
    """Return an error of a task with the user's lines in its traceback, and the rows of its partition as a note."""
    key = vars(exc).get(KEY, "")
    if key and not isinstance(exc, CuratorError) and (place := _place_of(key, dsk)):
        exc.add_note(f"The rows are those of {place}.")
    return with_user_frames(exc, dsk)


def _place_of(key: str, dsk: Any) -> str:
    """Return which rows the partition of a task has, in words; empty where it is not one partition of one reader."""
    name, _, number = key.strip("()").rpartition(", ")
    nodes = dsk.walk() if isinstance(dsk, Expr) else ()
    node = next((one for one in nodes if one._name == name.strip("'\"")), None)
    if node is None or not number.isdecimal():
        return ""
    below = list(node.walk())
    readers = [one for one in below if isinstance(one, FromMap) and isinstance(one.operand("func"), ReadPartition)]
    if len({one._name for one in readers}) != 1 or not all(isinstance(one, Blockwise) for one in below):
        return ""
    chosen, reader = readers[0].operand("_partitions"), readers[0].operand("func")
    place: str = reader.place(int(number) if chosen is None else chosen[int(number)])
    return place


def _operation(key: Any) -> str:
    """Return the name of the operation of a task; Dask names the last tasks of a reduction after a function of its own."""
    name = str(key_split(key)).lstrip("_")
    return "aggregate" if name == "call_with_list_arg" else name


def _named(session: Session, exc: Exception) -> CuratorError | None:
    """Return the error for a computation that failed for lack of memory or disk, or in a shuffle; None for any other failure."""
    cause = exc.__cause__ or exc.__context__ or exc
    if isinstance(exc, P2POutOfDiskError) or (_is_of_shuffle(exc) and getattr(cause, "errno", 0) == errno.ENOSPC):
        return DiskFullError(
            "No space is left in the spill directory for the temporary files of a shuffle of Dask (a sort, merge or groupby of "
            "many keys). Free some space, or start the cluster with spill_directory= on a larger disk."
        )
    if _is_of_shuffle(exc) and isinstance(cause, SHUFFLE_CAUSES) and not is_out_of_memory(exc):
        return ExpressionError(
            f"A shuffle of Dask (a sort, merge or groupby of many keys) failed: {type_and_text(cause)}. Dask passes rows "
            "between workers as Arrow tables, in which all values of a column have one type. If a column is the cause, convert "
            "it first (astype), or leave it out."
        )
    unsent = _why_unsent(exc)
    if unsent and not _is_of_memory(unsent):
        what = str(exc).partition("\n")[0].replace(NO_PICKLE, "an object")
        return ExpressionError(
            f"A result of the computation cannot be sent from its worker to another process: {what} cannot be pickled "
            f"({unsent[:200]}). Let the function return other values, such as strings, numbers, lists or dicts."
        )
    # What else ends a shuffle is mostly that a worker was killed, which the others see as a lost connection.
    if unsent is not None or isinstance(exc, KilledWorker) or _is_of_shuffle(exc) or is_out_of_memory(exc):
        return _lack_of_memory(session, exc)
    return None


def _is_of_shuffle(exc: BaseException) -> bool:
    return isinstance(exc, RuntimeError) and str(exc).startswith("P2P ") and "failed during" in str(exc)


def _why_unsent(exc: BaseException) -> str | None:
    """Return the last line of the traceback of a result that could not be pickled, empty without one; None for other errors."""
    said = str(exc).strip()
    return said.split("\n")[-1] * ("\n" in said) if said.startswith(NO_PICKLE) else None


def _is_of_memory(line: str) -> bool:
    """Return whether the last line of a traceback is the error of a failed allocation."""
    kind, _, said = line.partition(": ")
    return kind.endswith(("MemoryError", "bad_alloc")) or is_out_of_memory(RuntimeError(said))


def _lack_of_memory(session: Session, exc: Exception) -> BudgetError:
    if isinstance(exc, KilledWorker):
        what = f"The Dask operation {_operation(exc.task)!r} used more memory than its worker has, and the worker was killed"
    elif _is_of_shuffle(exc):
        what = "A shuffle of Dask (a sort, merge or groupby of many keys) ran out of memory"
    else:
        what = "The computation ran out of memory"
    said = str(exc).strip().split("\n", maxsplit=1)[0]
    cause = f"{type(exc).__name__}{': ' * bool(said)}{said[:200]}"
    return BudgetError(
        f"{what}. A worker may use {show_size(session.layout.work_bytes)} of memory={session.layout.memory_argument}.\n"
        f"{REMEDY}.\n"
        f"Cause: {cause}"
    )
