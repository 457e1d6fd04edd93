# SPDX-License-Identifier: Apache-2.0
"""The monitor on a real cluster of worker processes: its figures are those of the operating system and of Dask."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from types import SimpleNamespace

import numpy as np
import psutil
import pytest
from distributed import Client

import curator_df as cdf
from curator_df.core.runner import session as sessions
from curator_df.core.runner.events import Note
from curator_df.memory import gpus
from curator_df.memory.counted_memory import tree_bytes
from curator_df.monitor.alerts import budget_share, worker_silent
from curator_df.monitor.processes import ProcessReader


@pytest.fixture(scope="module", autouse=True)
def cluster():
    with cdf.start_cluster(memory="3GB", cpus=1) as running:
        yield running


def sampled_until(monitor, happened, seconds=20.0):
    """Return the frame once something has happened in it."""
    deadline = time.monotonic() + seconds
    while True:
        frame = monitor.to_frame()
        if happened(frame) or time.monotonic() > deadline:
            return frame
        time.sleep(0.1)


def has_worker(frame):
    return (frame.kind == "worker").any()


def test_a_process_is_read_as_psutil_reads_it(take_pages):
    reader = ProcessReader(os.getpid())
    reader.read()
    kept = take_pages(50_000_000)
    read, full = reader.read(), psutil.Process().memory_full_info()
    assert (read.rss_bytes, read.pss_bytes, read.uss_bytes) == pytest.approx((full.rss, full.pss, full.uss), rel=0.03)
    kept.close()
    gone = ProcessReader(2**22 - 1)
    assert gone.read() is None


def test_client_and_workers_are_sampled_and_add_up_to_the_tree(cluster):
    with cdf.monitor_memory(cluster, interval_seconds=0.1) as monitor:
        frame = sampled_until(monitor, has_worker)
        held = tree_bytes(os.getpid(), excluded=sessions.current_session().sampler.pid)
    last = frame[frame.seconds == frame[frame.kind == "worker"].seconds.iloc[-1]]
    assert sorted(last.kind) == ["client", "worker"]
    assert int(last.counted_bytes.sum()) == pytest.approx(held, rel=0.1)  # the resource tracker is no worker
    worker = last[last.kind == "worker"].iloc[0]
    assert worker.name != "client"
    assert worker.uss_bytes < worker.pss_bytes < worker.rss_bytes < worker.limit_bytes
    assert worker.counted_bytes < worker.pss_bytes - 10_000_000  # pages of libraries
    assert worker.limited_bytes == worker.counted_bytes
    assert worker.unmanaged_bytes == worker.rss_bytes - worker.managed_bytes
    assert (worker.is_paused, worker.spilled_bytes, worker.allowed_bytes) == (False, 0, 3_000_000_000)
    assert "samples in" in repr(monitor)


def test_the_limit_of_workers_that_others_started_applies_to_resident_memory(cluster):
    with (
        Client(cluster.client.scheduler.address, set_as_default=False) as client,
        cdf.monitor_memory(client, interval_seconds=0.1) as monitor,
    ):
        frame = sampled_until(monitor, has_worker)
    worker = frame[frame.kind == "worker"].iloc[-1]
    assert worker.limited_bytes == worker.rss_bytes > worker.counted_bytes


def test_what_a_worker_holds_is_seen_as_managed_or_in_arrows_pool(cluster):
    def fill():
        import pyarrow as pa

        return pa.concat_arrays([pa.array(np.ones(2_500_000))] * 2)

    with cdf.monitor_memory(cluster, interval_seconds=0.1) as monitor:
        before = sampled_until(monitor, has_worker)
        future = cluster.client.submit(fill)
        frame = sampled_until(monitor, lambda frame: frame.managed_bytes.max() > 30_000_000)
    del future
    worker = frame[frame.kind == "worker"].iloc[-1]
    assert worker.managed_bytes == pytest.approx(40_000_000, rel=0.02)
    assert worker.arrow_bytes == pytest.approx(40_000_000, rel=0.1)
    assert worker.pss_bytes - before[before.kind == "worker"].pss_bytes.iloc[-1] > 30_000_000


def test_rules_and_callbacks_are_the_users(cluster):
    called = []
    rules = [budget_share(0.01), worker_silent(1e9)]
    with cdf.monitor_memory(cluster, interval_seconds=0.1, alert_rules=rules, on_alert=called.append) as monitor:
        sampled_until(monitor, has_worker)
    assert [alert.rule for alert in monitor.alerts] == ["budget share"]
    assert called == monitor.alerts
    assert "of the memory budget" in str(called[0])


def test_the_runner_tells_of_ranges_that_run_again(cluster):
    with cdf.monitor_memory() as monitor:
        sessions.current_session().emit(Note("retry", "range 3 again: memory"))
    sessions.current_session().emit(Note("retry", "when nobody watches"))
    assert [(kind, text) for _, kind, text in monitor.events] == [("retry", "range 3 again: memory")]


def test_a_worker_that_is_killed_ends_nothing_and_its_successor_is_sampled(cluster):
    (pid,) = cluster.client.run(os.getpid).values()
    with cdf.monitor_memory(cluster, interval_seconds=0.1) as monitor:
        sampled_until(monitor, lambda frame: (frame.pid == pid).any())
        os.kill(pid, signal.SIGKILL)
        frame = sampled_until(monitor, lambda frame: frame[frame.kind == "worker"].pid.nunique() > 1, seconds=60)
    assert set(frame[frame.kind == "worker"].pid) >= {pid}
    assert frame[frame.kind == "worker"].pid.nunique() == 2


@pytest.mark.parametrize("is_here", [True, False])
def test_a_scheduler_of_its_own_is_sampled_wherever_it_is(tmp_path, monkeypatch, is_here):
    if not is_here:  # for the monitor and what asks for it; the scheduler is a process that knows nothing of that
        monkeypatch.setattr(socket, "gethostname", lambda: "another")
    file = tmp_path / "scheduler.json"
    command = [
        sys.executable,
        "-m",
        "distributed.cli.dask_scheduler",
        "--no-dashboard",
        "--port",
        "0",
        "--host",
        "127.0.0.1",
    ]
    with (
        subprocess.Popen(
            [*command, "--scheduler-file", str(file)], stderr=subprocess.DEVNULL, cwd=tmp_path
        ) as scheduler,
        contextlib.ExitStack() as stack,
    ):
        stack.callback(scheduler.terminate)
        client = stack.enter_context(Client(scheduler_file=str(file), timeout=60, set_as_default=False))
        with cdf.monitor_memory(client, interval_seconds=0.1) as monitor:
            frame = sampled_until(monitor, lambda frame: (frame.kind == "scheduler").sum() > 20)
        row = frame[frame.kind == "scheduler"].iloc[-1]
        assert (row.pid, row.host == socket.gethostname()) == (scheduler.pid, is_here)
        held = ProcessReader(scheduler.pid).read()
        said = (row.rss_bytes, row.pss_bytes, row.uss_bytes, row.counted_bytes)
        assert said == pytest.approx((held.rss_bytes, held.pss_bytes, held.uss_bytes, held.counted_bytes), rel=0.1)


def test_what_is_no_cluster_and_no_interval_is_refused():
    with pytest.raises(
        cdf.errors.NoClusterError, match=r"is not a cluster\. Pass the cluster that start_cluster or connect"
    ):
        cdf.monitor_memory("tcp://127.0.0.1:8786")
    with pytest.raises(cdf.errors.ParameterError, match="interval_seconds=0 must be greater than 0"):
        cdf.monitor_memory(interval_seconds=0)


def test_gpus_are_read_by_nvml_and_what_a_device_does_not_say_is_missing(monkeypatch):
    class NVMLError(Exception):
        pass

    def rates(device):
        if device == 1:
            raise NVMLError("not on a MIG device")
        return SimpleNamespace(gpu=37)

    fake = SimpleNamespace(
        NVMLError=NVMLError,
        nvmlInit=lambda: None,
        nvmlDeviceGetCount=lambda: 2,
        nvmlDeviceGetHandleByIndex=lambda index: index,
        nvmlDeviceGetMemoryInfo=lambda device: SimpleNamespace(used=10 + device, total=100),
        nvmlDeviceGetUtilizationRates=rates,
        nvmlDeviceGetComputeRunningProcesses=lambda device: [SimpleNamespace(pid=7, usedGpuMemory=None)],
    )
    monkeypatch.setitem(sys.modules, "pynvml", fake)
    gpus._nvml.cache_clear()
    try:
        first, second = gpus.read_gpus()
        with cdf.monitor_memory(interval_seconds=0.1) as monitor:
            frame = sampled_until(monitor, lambda frame: len(frame) > 0)
    finally:
        gpus._nvml.cache_clear()
    assert (first.used_bytes, first.total_bytes, first.utilization, first.processes) == (10, 100, 0.37, ((7, None),))
    assert (second.used_bytes, second.utilization) == (11, None)
    assert set(frame[frame.kind == "gpu"].name) == {"GPU 0", "GPU 1"}
    assert set(frame[frame.kind == "gpu process"].pid) == {7}


def test_the_picture_has_a_panel_for_the_tree_and_one_for_workers(cluster, tmp_path):
    pytest.importorskip("matplotlib", reason="matplotlib is in the monitor extra")
    with cdf.monitor_memory(cluster, interval_seconds=0.1, alert_rules=[budget_share(0.01)]) as monitor:
        sessions.current_session().emit(Note("retry", "range 3 again"))
        sampled_until(monitor, has_worker)
    figure = monitor.plot()
    figure.savefig(tmp_path / "memory.png")
    assert [axes.get_title(loc="left") for axes in figure.axes] == [
        "Memory of all processes",
        "Memory of each worker, as counted by its limit",
    ]
    labels = figure.axes[0].get_legend_handles_labels()[1]
    assert {"client", "worker 0", "allowed, 3.00 GB", "input split retried", "alert"} <= set(labels)
