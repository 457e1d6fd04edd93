# SPDX-License-Identifier: Apache-2.0
"""What workers say of their GPUs is counted on only where every worker keeps it."""

import dataclasses
import sys
from importlib.machinery import ModuleSpec
from types import SimpleNamespace

import pytest
from distributed import Client, LocalCluster

import curator_df as cdf
from curator_df import errors
from curator_df.cluster import worker_devices
from curator_df.cluster.worker_devices import WorkerDevice, read_worker_device, verified_devices, verify_devices
from curator_df.memory.gpus import GpuReading

GB = 1_000_000_000
GOOD = WorkerDevice("0", 80 * GB, 60 * GB, cudf_spills=True, dask_cuda_spills=False)
HOSTS = {"tcp://a:1": "a", "tcp://b:1": "b"}


def both(**other):
    return {"tcp://a:1": GOOD, "tcp://b:1": dataclasses.replace(GOOD, **other)}


def test_the_least_of_all_workers_is_what_a_plan_has():
    found = verify_devices(both(limit_bytes=50 * GB), HOSTS, None)
    assert found.device_bytes == 50 * GB
    assert found.said == "a GPU for each worker: 50.00 GB of 80.00 GB; cuDF spills"
    assert verify_devices(both(cudf_spills=False), HOSTS, 60 * GB).said.endswith("cuDF does not spill")


def test_workers_of_a_host_share_its_cpus():
    many, few = (dataclasses.replace(GOOD, name=name, cpus=cpus) for name, cpus in (("0", 16), ("1", 9)))
    apart = {"tcp://a:1": many, "tcp://b:1": few}
    assert verify_devices(apart, HOSTS, None).cpus == 9
    assert verify_devices(apart, dict.fromkeys(HOSTS, "a"), None).cpus == 4
    assert verify_devices(dict.fromkeys(HOSTS), HOSTS, None).cpus == 1


@pytest.mark.parametrize(
    ("other", "said"),
    [
        (
            {"limit_bytes": None},
            "tcp://b:1 has no limit on the GPU memory that RMM, the allocator of RAPIDS, may use. Start it with dask cuda",
        ),
        ({"limit_bytes": 90 * GB}, "tcp://b:1 may allocate 90.00 GB, but its GPU has only 80.00 GB"),
        (
            {"dask_cuda_spills": True},
            "tcp://b:1 moves data from the GPU to the host twice, by cuDF and by dask-cuda's limit",
        ),
    ],
)
def test_a_worker_that_does_not_keep_it_is_named(other, said):
    with pytest.raises(errors.BudgetError, match=said):
        verify_devices(both(**other), HOSTS, 60 * GB)
    found = verify_devices(both(**other), HOSTS, None)
    assert (found.device_bytes, found.said.partition(said)[0]) == (0, "GPUs are not used: worker ")


def test_gpus_that_jobs_of_one_machine_both_call_the_first_are_told_apart():
    apart = {address: dataclasses.replace(GOOD, uuid=f"GPU-{address}") for address in HOSTS}
    one_host = dict.fromkeys(HOSTS, "a")
    assert verify_devices(apart, one_host, 60 * GB).device_bytes == 60 * GB
    for same in ("GPU-5a", ""):
        shared = dict.fromkeys(HOSTS, dataclasses.replace(GOOD, uuid=same))
        with pytest.raises(errors.BudgetError, match="share GPU 0 of a"):
            verify_devices(shared, one_host, 60 * GB)


def test_more_than_is_allowed_a_shared_gpu_and_none_at_all():
    with pytest.raises(errors.BudgetError, match=r"device_memory=40\.00 GB: worker tcp://a:1 may allocate 60\.00 GB"):
        verify_devices(both(), HOSTS, 40 * GB)
    with pytest.raises(errors.BudgetError, match="workers tcp://a:1 and tcp://b:1 share GPU 0 of a"):
        verify_devices(both(), dict.fromkeys(HOSTS, "a"), 60 * GB)
    with pytest.raises(errors.BudgetError, match="worker tcp://b:1 has no GPU"):
        verify_devices({"tcp://a:1": GOOD, "tcp://b:1": None}, HOSTS, 60 * GB)
    assert verify_devices(dict.fromkeys(HOSTS), HOSTS, None).said == ""


@pytest.fixture
def gpu(monkeypatch):
    """A process with two GPUs, RMM with a limit below the adaptor that counts, and cuDF; as far as it is told."""
    limit = SimpleNamespace(get_allocation_limit=lambda: 10 * GB, get_upstream=SimpleNamespace)
    counts = SimpleNamespace(get_upstream=lambda: limit)
    rmm = SimpleNamespace(
        __spec__=ModuleSpec("rmm", None), mr=SimpleNamespace(get_current_device_resource=lambda: counts)
    )
    monkeypatch.setitem(sys.modules, "rmm", rmm)
    monkeypatch.setitem(sys.modules, "cudf", SimpleNamespace(get_option=lambda name: name == "spill"))
    gpus = tuple(GpuReading(n, 0, (80 - 40 * n) * GB, None, ()) for n in range(2))
    monkeypatch.setattr(worker_devices, "read_gpus", lambda: gpus)
    monkeypatch.setattr(worker_devices, "usable_cpus", lambda: 6)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")


def test_a_worker_reads_its_gpu_and_the_limits_around_it(gpu, monkeypatch):
    plain = SimpleNamespace(data=SimpleNamespace(device_buffer={}))
    assert read_worker_device(plain) == WorkerDevice("0", 80 * GB, 10 * GB, True, False, 6)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-5a")
    dask_cuda = SimpleNamespace(data=SimpleNamespace(device_buffer=SimpleNamespace(fast={})))
    assert read_worker_device(dask_cuda) == WorkerDevice("GPU-5a", 40 * GB, 10 * GB, True, True, 6, "GPU-5a")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert read_worker_device(plain) is None
    monkeypatch.setattr(worker_devices, "read_gpus", tuple)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    assert read_worker_device(plain) is None


@pytest.fixture
def running():
    settings = {
        "n_workers": 1,
        "threads_per_worker": 1,
        "memory_limit": "900MB",
        "processes": False,
    }  # before it is told of RMM, which Dask looks for
    with LocalCluster(**settings, dashboard_address="127.0.0.1:0") as cluster, Client(cluster) as client:
        yield client


def test_connect_counts_on_the_gpus_that_it_verified(running, gpu):
    with cdf.connect(running, device_memory="12GB") as connection:
        assert connection.layout.capacity.device_bytes == 10 * GB
        assert (connection.layout.threads, connection.layout.spare_cpus) == (1, 5)
        assert repr(connection).endswith("; a GPU for each worker: 10.00 GB of 80.00 GB; cuDF spills")
    with pytest.raises(errors.BudgetError, match=r"device_memory=8\.00 GB: worker .* may allocate 10\.00 GB"):
        cdf.connect(running, device_memory="8GB")


def test_connect_without_gpus(running):
    with cdf.connect(running) as connection:
        assert connection.layout.device_bytes == connection.layout.spare_cpus == 0
        assert "GPU" not in repr(connection)
    with pytest.raises(errors.BudgetError, match=r"device_memory=8\.00 GB: worker .* has no GPU"):
        cdf.connect(running, device_memory="8GB")


class Workers:
    """A client of two workers that counts how often they are asked."""

    def __init__(self, **told):
        self.told, self.asked = told, 0

    def scheduler_info(self, n_workers):
        return {"workers": {address: {"host": host, **self.told} for address, host in HOSTS.items()}}

    def run(self, function, workers):
        assert function is read_worker_device
        self.asked += 1
        return dict.fromkeys(workers)


def test_workers_are_asked_only_where_one_told_dask_of_a_gpu_or_bytes_are_given():
    plain, with_gpus = Workers(), Workers(gpu={"name": "H200", "memory-total": 1})
    assert verified_devices(plain, None).said == verified_devices(with_gpus, None).said == ""
    assert (plain.asked, with_gpus.asked) == (0, 1)
    with pytest.raises(errors.BudgetError, match="has no GPU"):
        verified_devices(plain, 40 * GB)
