# SPDX-License-Identifier: Apache-2.0
"""How results are fetched, on a fake client; real workers that die are in tests/cluster."""

import asyncio
import errno
from types import SimpleNamespace

import pytest
from distributed.client import ClosedClientError
from distributed.comm.core import CommClosedError
from distributed.shuffle._exceptions import P2POutOfDiskError

from curator_df.core.runner.session import Patience
from curator_df.errors import BudgetError, DiskFullError, ExpressionError
from curator_df.interactive import results
from curator_df.interactive.results import MOST_LOST, return_in_pieces
from curator_df.memory.sizes import read_size


def test_operations_have_names_that_users_know():
    assert results._operation("_call_with_list_arg-0a1b2c3d4e5f60718293a4b5c6d7e8f9") == "aggregate"
    assert results._operation("('sum-0a1b2c3d4e5f60718293a4b5c6d7e8f9', 0)") == "sum"


@pytest.mark.parametrize(
    ("exc", "cause", "named", "said"),
    [
        (RuntimeError("P2P 1f failed during unpack phase"), MemoryError("malloc"), BudgetError, "ran out of memory"),
        (
            RuntimeError("P2P 1f failed during unpack phase"),
            TypeError("no such type"),
            ExpressionError,
            "TypeError: no such type",
        ),
        (
            RuntimeError("P2P 1f failed during barrier phase"),
            None,
            BudgetError,
            "shuffle of Dask (a sort, merge or groupby",
        ),
        (
            RuntimeError("P2P 1f failed during transfer phase"),
            CommClosedError("in <TCP>"),
            BudgetError,
            "ran out of memory",
        ),
        (
            RuntimeError("P2P 1f failed during transfer phase"),
            OSError(errno.ENOSPC, "full"),
            DiskFullError,
            "spill_directory=",
        ),
        (
            TypeError("Could not serialize object of type A\n\nRuntimeError: can't start new thread"),
            None,
            BudgetError,
            "memory",
        ),
        (
            TypeError("Could not serialize object of type A\n\nValueError: OutOfMemoryErrors"),
            None,
            ExpressionError,
            "ValueError",
        ),
        (
            TypeError("Could not serialize object of type DataFrame"),
            None,
            BudgetError,
            "The computation ran out of memory",
        ),
        (
            TypeError("Could not serialize object of type DataFrame\nTraceback:\npyarrow.lib.ArrowMemoryError: malloc"),
            None,
            BudgetError,
            "The computation ran out of memory",
        ),
        (P2POutOfDiskError(), OSError(errno.ENOSPC, "No space left"), DiskFullError, "spill_directory="),
    ],
)
def test_a_computation_that_fails_tells_its_cause(exc, cause, named, said):
    exc.__cause__ = cause
    session = SimpleNamespace(layout=SimpleNamespace(work_bytes=5e8, memory_argument="'1GB'"))
    error = results._named(session, exc)
    assert type(error) is named
    assert said in str(error)
    assert results._named(session, ValueError("no")) is None


class Client:
    """Client whose results are each lost some times before they are sent."""

    status = "running"
    asynchronous = False
    direct_to_workers = True

    def __init__(self):
        self.futures = {}

    def nthreads(self):
        return {"tcp://1": 1}

    def get(self, dsk, keys, **options):
        for _ in range(dsk):
            asyncio.run(self._gather_remote(None, None))
        return keys

    async def _gather_remote(self, direct, local_worker):
        return {"status": "error", "keys": ["k"]}

    def compute(self, collections):
        return collections

    persist = compute


@pytest.fixture
def client(monkeypatch):
    made = Client()
    monkeypatch.setattr(results, "prepare_kernels", lambda session, parts: None)
    return_in_pieces(
        SimpleNamespace(
            client=made, weigh_client=int, patience=Patience(), revive=None, workless_seconds=60.0, layout=None
        )
    )
    return made


def test_the_workers_lost_with_a_result_are_counted_anew_for_each_computation(client, monkeypatch):
    for _ in range(2):
        assert client.get(MOST_LOST, ["k"]) == ["k"]
    monkeypatch.setattr(results, "_named", lambda session, exc: None)
    with pytest.raises(MemoryError, match=f"was lost {MOST_LOST + 1} times"):
        client.get(MOST_LOST + 1, ["k"])


def test_a_closed_client_does_not_hide_the_first_error(monkeypatch):
    def closed(futures):
        raise ClosedClientError("Client is closed")

    def failing(futures):
        raise ValueError("the first error")

    monkeypatch.setattr(results, "room_for_results", lambda session: 1)
    monkeypatch.setattr(results, "as_completed", failing)
    pieces = results._Pieces(SimpleNamespace(client=SimpleNamespace(cancel=closed)), {})
    with pytest.raises(ValueError, match="the first error"):
        pieces.gather()


@pytest.mark.parametrize(("limit_bytes", "room_bytes"), [(None, 600), (300, 100), (900, 400), (80, 0), (10_000, 600)])
def test_a_result_fits_into_what_the_workers_of_a_connection_leave(monkeypatch, limit_bytes, room_bytes):
    monkeypatch.setattr(results.psutil, "virtual_memory", lambda: SimpleNamespace(available=1000))
    monkeypatch.setattr(results, "counted_bytes", lambda pid: 100)
    limit = None if limit_bytes is None else lambda: limit_bytes
    session = SimpleNamespace(client_bytes=None, client_limit=limit, layout=None)
    assert results.room_for_results(session) == room_bytes


@pytest.mark.parametrize(
    ("limit_bytes", "way"),
    [
        (1_000_000_000, "connect with memory='6.75GB'"),  # 4 + 2 x 1.5 - (1 - 0.7), and some more
        (100_000_000, "connect with memory='7.65GB'"),  # nothing is free, and 0.6 GB are lacking already
        (None, "run this process where 2.50 GB of memory are free"),
    ],
)
def test_the_memory_that_is_advised_for_a_connection_has_room_for_the_result(monkeypatch, limit_bytes, way):
    budget_bytes, other_bytes, held_bytes, needed_bytes = 4_000_000_000, 700_000_000, 200_000_000, 1_500_000_000
    monkeypatch.setattr(results.psutil, "virtual_memory", lambda: SimpleNamespace(available=100_000_000_000))
    monkeypatch.setattr(results, "counted_bytes", lambda pid: other_bytes + held_bytes)
    layout = SimpleNamespace(allowed_bytes=budget_bytes, memory_argument="'4GB'")
    limit = None if limit_bytes is None else lambda: limit_bytes
    session = SimpleNamespace(client_bytes=None, client_limit=limit, layout=layout)
    said = str(results._too_large(session, needed_bytes, 0, held_bytes))
    assert said.endswith(f"To get all of it, {way}.")
    if limit_bytes is not None:
        advised_bytes = read_size("memory", way.split("'")[1])
        session.client_limit = lambda: limit_bytes + advised_bytes - budget_bytes
        monkeypatch.setattr(results, "counted_bytes", lambda pid: other_bytes)
        assert needed_bytes <= results.room_for_results(session) <= needed_bytes + 30_000_000
