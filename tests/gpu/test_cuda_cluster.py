# SPDX-License-Identifier: Apache-2.0
"""Workers with a GPU each: what is asked for is checked, and dask-cuda really starts them, here without a GPU."""

import importlib
import importlib.util
import json
import os

import dask
import pytest

import curator_df as cdf
from curator_df import errors
from curator_df.cluster import cuda
from curator_df.memory import gpus
from curator_df.memory.gpus import GpuReading
from curator_df.memory.limits import usable_cpus
from curator_df.memory.sizes import read_size

GB = 1_000_000_000


def there(monkeypatch, *found):
    """Tell this process of GPUs."""
    for module in (cuda, gpus):
        monkeypatch.setattr(module, "read_gpus", lambda: found)


@pytest.fixture
def two_gpus(monkeypatch):
    """Two GPUs of 80 GB, as far as this process is told."""
    there(monkeypatch, *(GpuReading(n, 0, 80 * GB, None, ()) for n in range(2)))
    monkeypatch.setattr(cuda, "_missing", list)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


@pytest.fixture
def no_gpu(monkeypatch):
    there(monkeypatch)
    monkeypatch.setattr(cuda, "_missing", list)


def test_without_a_gpu_one_is_an_error_and_auto_is_the_cpu(no_gpu, monkeypatch):
    with pytest.raises(
        errors.ParameterError,
        match=r"gpus=1: the driver finds no GPU on this machine\. Use gpus=0, or gpus='auto', which uses the CPU",
    ):
        cdf.start_cluster(memory="1GB", gpus=1)
    assert cuda.choose_devices("auto", "10GB") is None
    with cdf.start_cluster(memory="6GB", cpus=1, gpus="auto") as cluster:
        assert "the driver finds no GPU on this machine: the workers use the CPU" in repr(cluster)
    monkeypatch.setattr(cuda, "_missing", lambda: ["cudf"])
    with pytest.raises(errors.ParameterError, match=r"gpus=2: .*, and cudf is not installed \(the gpu extra\)"):
        cuda.choose_devices(2, None)


def test_gpus_without_the_extra_are_not_said_to_be_missing(two_gpus, monkeypatch):
    monkeypatch.setattr(cuda, "_missing", lambda: ["cudf"])
    assert cuda.choose_devices("auto", None) is None
    assert cuda.describe_gpus("auto", None) == "cudf is not installed (the gpu extra): the workers use the CPU"


def test_devices_and_their_bytes_follow_from_what_is_there(two_gpus, monkeypatch):
    assert cuda.choose_devices(0, None) is None
    assert cuda.choose_devices("auto", None) == cuda.Devices(("0", "1"), 64 * GB, 80 * GB)
    assert cuda.choose_devices(1, "10GB") == cuda.Devices(("0",), 10 * GB, 80 * GB)
    with pytest.raises(
        errors.BudgetError, match=r"device_memory=90\.00 GB is more than the smallest GPU has, 80\.00 GB"
    ):
        cuda.choose_devices(1, "90GB")
    with pytest.raises(errors.ParameterError, match="gpus=3, but only 2 GPUs can be used"):
        cuda.choose_devices(3, None)
    with pytest.raises(errors.ParameterError, match="gpus='all' must be a number"):
        cuda.choose_devices("all", None)
    with pytest.raises(errors.ParameterError, match="gpus=0 requests none"):
        cuda.choose_devices(0, "10GB")
    with monkeypatch.context() as patch:
        patch.setenv("CUDA_VISIBLE_DEVICES", "MIG-7c")
        assert cuda.choose_devices(1, "8GB").device_bytes == 8 * GB
        with pytest.raises(errors.ParameterError, match=r"MIG-7c is a part of a GPU.*Set device_memory="):
            cuda.choose_devices(1, None)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-5a,")
    assert cuda.visible_gpus() == ("GPU-5a",)


@pytest.mark.parametrize(
    ("given", "seen"), [("-1", ()), ("", ()), ("1", ("1",)), ("1, 0", ("1", "0")), ("0,7,1", ("0",)), ("none", ())]
)
def test_what_cuda_does_not_see_is_not_used(two_gpus, monkeypatch, given, seen):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", given)
    assert cuda.visible_gpus() == seen
    if not seen:
        assert cuda.choose_devices("auto", None) is None
        with pytest.raises(errors.ParameterError, match="gpus=1: CUDA_VISIBLE_DEVICES hides all GPUs"):
            cuda.choose_devices(1, None)


def test_the_smallest_gpu_is_that_of_those_which_are_used(monkeypatch):
    sizes = (80 * GB, 8 * GB)
    there(monkeypatch, *(GpuReading(n, 0, size, None, ()) for n, size in enumerate(sizes)))
    monkeypatch.setattr(cuda, "_missing", list)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    assert cuda.choose_devices(1, "60GB") == cuda.Devices(("0",), 60 * GB, 80 * GB)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    assert cuda.choose_devices("auto", None).total_bytes == 8 * GB
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-5a")
    assert cuda.choose_devices("auto", None).total_bytes == 8 * GB


def test_a_worker_for_each_gpu_has_to_fit_into_the_hosts_memory():
    devices = cuda.Devices(tuple("01234567"), 64 * GB, 80 * GB)
    layout = cuda.gpu_layout(16 * GB, devices, 0)
    assert (layout.workers, layout.threads, layout.shares_work) == (8, 1, False)
    assert layout.reason == "one for each GPU"
    with pytest.raises(
        errors.BudgetError, match=r"too little for 8 worker processes.*at least memory='[\d.]+GB'"
    ) as refused:
        cuda.gpu_layout(GB, devices, 0)
    least = read_size("memory", str(refused.value).rpartition("memory=")[2].partition(",")[0].strip("'"))
    assert cuda.gpu_layout(least, devices, 0).workers == 8


def test_the_cpus_of_a_machine_are_shared_out_among_its_gpus():
    two = cuda.Devices(("0", "1"), 64 * GB, 80 * GB)
    assert [cuda.gpu_layout(16 * GB, two, 0, cpus).spare_cpus for cpus in (1, 2, 3, 9, 16)] == [0, 0, 0, 3, 7]
    assert cuda.gpu_layout(16 * GB, two, 0).spare_cpus == max(usable_cpus() // 2 - 1, 0)
    with pytest.raises(errors.ParameterError, match="cpus=0 must be a whole number from 1 to"):
        cuda.gpu_layout(16 * GB, two, 0, 0)


def test_cudf_spills_and_dask_cuda_does_not():
    arguments = cuda.gpu_arguments(10 * GB)
    assert arguments["enable_cudf_spill"] is True
    assert arguments["device_memory_limit"] is None
    assert arguments["rmm_async"] is True
    assert arguments["rmm_maximum_pool_size"] == 10 * GB


@pytest.fixture(params=["tcp", "ucx"])
def protocol(request, monkeypatch):
    """A protocol; before UCX starts, no context of CUDA is made, for which dask-cuda's switch has no word."""
    if request.param == "tcp":
        yield request.param
        return
    pytest.importorskip("distributed_ucxx", reason="needs the ucx extra (distributed-ucxx)")
    ask = importlib.import_module("dask_cuda.utils").get_ucx_config

    def asked(**transports):
        config = ask(**transports)  # the dictionary of Dask's own configuration
        config["create-cuda-context"] = None
        return config

    for module in ("dask_cuda.local_cuda_cluster", "dask_cuda.initialize"):
        monkeypatch.setattr(importlib.import_module(module), "get_ucx_config", asked)
    yield request.param
    dask.config.config.pop("distributed-ucxx", None)


@pytest.mark.proof
@pytest.mark.filterwarnings("default")
@pytest.mark.skipif(importlib.util.find_spec("dask_cuda") is None, reason="needs the gpu extra (dask-cuda, cudf)")
def test_dask_cuda_starts_a_worker_for_each_gpu_and_a_chain_runs(two_gpus, protocol, tmp_path, monkeypatch):
    monkeypatch.setenv(
        "DASK_CUDA_TEST_DISABLE_DEVICE_SPECIFIC", "1"
    )  # dask-cuda's own switch for machines without GPUs
    (tmp_path / "a.jsonl").write_text("".join(json.dumps({"id": n, "text": f"t{n}"}) + "\n" for n in range(100)))
    with cdf.start_cluster(memory="6GB", gpus="auto", device_memory="10GB", protocol=protocol) as cluster:
        workers = cluster.client.scheduler_info()["workers"]
        assert {address.partition(":")[0] for address in workers} == {protocol}
        assert "0, 1: 10.00 GB of 80.00 GB each; cuDF spills" in repr(cluster)
        seen = cluster.client.run(lambda: (os.environ["CUDA_VISIBLE_DEVICES"], "CURATOR_DF_WORK_BYTES" in os.environ))
        assert sorted(seen.values()) == [("0,1", False), ("1,0", False)]
        receipt = cdf.write_parquet(cdf.read_jsonl(tmp_path / "a.jsonl"), tmp_path / "out")
    assert receipt.rows_written == 100
