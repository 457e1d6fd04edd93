# SPDX-License-Identifier: Apache-2.0
import copyreg
from types import SimpleNamespace

import pyarrow as pa
import pytest
from distributed.shuffle._limiter import ResourceLimiter
from distributed.system_monitor import SystemMonitor

from curator_df.cluster import connected_workers, preload
from curator_df.cluster.connected_workers import ConnectedNanny, ConnectedWorker
from curator_df.cluster.preload import CountedMemory
from curator_df.memory.system import NO_LIMIT

GIB = 1 << 30


def without_limit():
    return {"nanny": None, "memory_manager": SimpleNamespace(memory_limit=None)}


def worker_with(comms, disk):
    limiters = {"memory_limiter_comms": ResourceLimiter(comms), "memory_limiter_disk": ResourceLimiter(disk)}
    monitor = SystemMonitor(maxlen=1)
    return SimpleNamespace(plugins={"shuffle": SimpleNamespace(**limiters)}, monitor=monitor, **without_limit())


def limits_of(worker):
    return worker.plugins["shuffle"].memory_limiter_comms.limit, worker.plugins["shuffle"].memory_limiter_disk.limit


def test_buffers_of_shuffles_fit_a_connected_worker_until_the_connection_is_closed():
    worker = worker_with(GIB, 100 << 20)
    plugin = ConnectedWorker(320_000_000)
    plugin.setup(worker)
    assert limits_of(worker) == (20_000_000, 20_000_000)
    plugin.teardown(worker)
    assert limits_of(worker) == (GIB, 100 << 20)


@pytest.mark.parametrize("plugins", [{}, worker_with(1_000_000, None).plugins])
def test_smaller_buffers_and_none_are_left_as_they_are(plugins):
    worker = SimpleNamespace(plugins=plugins, monitor=SystemMonitor(maxlen=1), **without_limit())
    plugin = ConnectedWorker(320_000_000)
    plugin.setup(worker)
    plugin.teardown(worker)
    assert not plugins or limits_of(worker) == (1_000_000, None)


def test_a_worker_that_closes_after_its_plugin_for_shuffles_was_removed_is_left_without_an_error():
    worker, plugin = worker_with(GIB, GIB), ConnectedWorker(320_000_000)
    plugin.setup(worker)
    worker.plugins.clear()
    plugin.teardown(worker)


@pytest.mark.parametrize(
    ("nanny", "limit_bytes", "has_limit", "gpus", "expected"),
    [
        ("tcp://a:1", 500_000_000, False, (), 300_000_000),  # killed at 95%, less 3%, less what it holds
        ("tcp://a:1", 100_000_000, False, (), 0),
        (None, 500_000_000, False, (), None),  # nobody kills it, and it may be a process of the user's own
        ("tcp://a:1", None, False, (), None),
        ("tcp://a:1", 500_000_000, True, (), None),  # somebody has set a limit
        ("tcp://a:1", 500_000_000, False, ("a GPU",), None),
    ],
)
def test_a_worker_that_a_nanny_would_kill_gets_a_data_limit_until_the_connection_is_closed(
    monkeypatch, nanny, limit_bytes, has_limit, gpus, expected
):
    limited = []
    monkeypatch.setattr(connected_workers, "data_limit", lambda: (1 if has_limit else NO_LIMIT, NO_LIMIT))
    monkeypatch.setattr(connected_workers, "read_gpus", lambda: gpus)
    monkeypatch.setattr(connected_workers, "counted_bytes", lambda pid: 160_000_000)
    monkeypatch.setattr(connected_workers, "limit_data", lambda extra, threads: limited.append(extra))
    monkeypatch.setattr(connected_workers, "lift_data_limit", lambda: limited.append(NO_LIMIT))
    monkeypatch.setattr(connected_workers, "give_back_large_buffers", lambda: None)
    monkeypatch.setattr(connected_workers, "pickle_without_copies", lambda: lambda: None)
    monkeypatch.setattr(connected_workers.gc, "freeze", lambda: None)
    monkeypatch.setattr(connected_workers.pa, "set_memory_pool", lambda pool: None)
    worker, plugin = worker_with(GIB, GIB), ConnectedWorker(320_000_000)
    monkeypatch.setattr(plugin, "_client_process", ("another", 1))
    worker.nanny, worker.memory_manager.memory_limit = nanny, limit_bytes
    worker.state = SimpleNamespace(nthreads=1)
    plugin.setup(worker)
    plugin.teardown(worker)
    assert limited == ([] if expected is None else pytest.approx([expected, NO_LIMIT], abs=1))


@pytest.mark.parametrize("is_users", [True, False])
def test_allocators_and_what_thresholds_use_change_in_processes_of_workers_and_not_in_the_users_own(
    monkeypatch, is_users
):
    changed = []
    monkeypatch.setattr(connected_workers, "give_back_large_buffers", lambda: changed.append("malloc"))
    monkeypatch.setattr(
        connected_workers,
        "pickle_without_copies",
        lambda: changed.append("pickle") or (lambda: changed.append("unpickle")),
    )
    own = SimpleNamespace(backend_name="own")
    monkeypatch.setattr(connected_workers.pa, "default_memory_pool", lambda: own)
    monkeypatch.setattr(connected_workers.pa, "set_memory_pool", lambda pool: changed.append(pool.backend_name))
    monkeypatch.setattr(connected_workers.gc, "get_freeze_count", lambda: 0)
    monkeypatch.setattr(connected_workers.gc, "freeze", lambda: changed.append("freeze"))
    monkeypatch.setattr(connected_workers.gc, "unfreeze", lambda: changed.append("unfreeze"))
    plugins = ConnectedWorker(320_000_000), ConnectedWorker(320_000_000)
    if not is_users:
        monkeypatch.setattr(connected_workers.os, "getpid", lambda: 1)
    workers = worker_with(GIB, GIB), worker_with(GIB, GIB)  # of one process
    for plugin, worker in zip(plugins, workers, strict=True):
        plugin.setup(worker)
    assert all(("get_process_memory" in vars(worker.monitor)) != is_users for worker in workers)
    of_setup = [] if is_users else ["system", "malloc", "pickle", "freeze"]
    plugins[0].teardown(workers[0])
    assert changed == of_setup
    plugins[1].teardown(workers[1])
    assert "get_process_memory" not in vars(workers[1].monitor)
    assert changed == of_setup + ([] if is_users else ["unfreeze", "unpickle", "own"])


def test_what_an_owner_of_a_worker_has_frozen_stays_frozen(monkeypatch):
    plugin, worker = ConnectedWorker(320_000_000), worker_with(GIB, GIB)
    monkeypatch.setattr(connected_workers, "give_back_large_buffers", lambda: None)
    monkeypatch.setattr(connected_workers.gc, "freeze", lambda: None)
    monkeypatch.setattr(connected_workers.gc, "get_freeze_count", lambda: 5)
    monkeypatch.setattr(connected_workers.gc, "unfreeze", lambda: pytest.fail("what others had frozen was released"))
    pool, reducers = pa.default_memory_pool().backend_name, dict(copyreg.dispatch_table)
    monkeypatch.setattr(connected_workers.os, "getpid", lambda: 1)
    plugin.setup(worker)
    assert pa.default_memory_pool().backend_name == "system"
    plugin.teardown(worker)
    assert pa.default_memory_pool().backend_name == pool
    assert copyreg.dispatch_table == reducers


def test_thresholds_of_a_connected_worker_are_for_counted_memory(monkeypatch):
    private, counted = [100], [140]
    monkeypatch.setattr(preload, "private_bytes", lambda pid: private[0])
    monkeypatch.setattr(preload, "counted_bytes", lambda pid: counted[0])
    memory = CountedMemory(7)
    assert memory() == 140
    private[0], counted[0] = 300, 400  # what is not private is read again after a second
    assert memory() == 340
    assert memory.others_bytes == 40


def test_a_nanny_of_a_connected_worker_takes_counted_memory_until_the_connection_is_closed(monkeypatch):
    ended = []
    dask_callback = lambda: None  # noqa: E731 - compared by identity
    manager = SimpleNamespace(memory_limit=1000, memory_terminate_fraction=0.95, memory_monitor=ended.append)
    callback = SimpleNamespace(callback=dask_callback)
    nanny = SimpleNamespace(pid=7, memory_manager=manager, periodic_callbacks={"memory_monitor": callback})
    counted = {7: 940, 8: 960}
    monkeypatch.setattr(preload, "resident_bytes", lambda pid: 990)
    monkeypatch.setattr(preload, "private_bytes", lambda pid: 900)
    monkeypatch.setattr(preload, "counted_bytes", counted.get)
    plugin = ConnectedNanny()
    plugin.setup(nanny)
    callback.callback()
    assert not ended
    nanny.pid = 8  # the worker was restarted
    callback.callback()
    assert ended == [nanny]
    plugin.teardown(nanny)
    assert callback.callback is dask_callback
    ConnectedNanny().setup(SimpleNamespace(periodic_callbacks={}))  # without a limit
