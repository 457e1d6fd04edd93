# SPDX-License-Identifier: Apache-2.0
"""Restart of a single worker: what tells the new process from the one before it."""

from __future__ import annotations

import socket
import time

import psutil
import pytest
from distributed import Client, LocalCluster

from curator_df.core import cluster_client
from curator_df.core.cluster_client import restart, worker_name


@pytest.mark.timeout(120)
def test_a_worker_with_a_fixed_port_is_back_as_soon_as_its_new_process_is(monkeypatch):
    monkeypatch.setattr(cluster_client, "LEAVE_SECONDS", 90.0)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    one = {"n_workers": 1, "threads_per_worker": 1, "dashboard_address": "127.0.0.1:0", "worker_port": port}
    with LocalCluster(**one) as cluster, Client(cluster) as client:
        ((address, before),) = client.run(worker_name).items()
        started = time.monotonic()
        assert restart(client, address)
        assert time.monotonic() - started < 60
        ((again, after),) = client.run(worker_name).items()
        assert (again, after != before) == (address, True)
        assert not psutil.pid_exists(int(before.rpartition(":")[2]))
