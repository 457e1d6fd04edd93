# SPDX-License-Identifier: Apache-2.0
"""A nanny ends its worker for memory that counts, and not for pages of files that the worker maps to read them."""

import mmap
import os
import shlex
import sys
import time

import dask
import pytest

import curator_df as cdf
from curator_df.cluster.preload import KERNEL_BYTES
from curator_df.cluster.settings import PRELOAD, as_exports, worker_settings
from curator_df.core.cluster_client import restart
from curator_df.errors import StepMemoryError
from curator_df.memory.budget import choose_layout
from curator_df.memory.counted_memory import counted_bytes, resident_bytes
from curator_df.memory.limits import THREAD_STACK_BYTES
from curator_df.memory.system import data_limit, status_bytes

pytestmark = pytest.mark.quick
SIZE = 640_000_000
"""More than the worker's limit leaves."""


@pytest.fixture(scope="module")
def cluster(beside_tests):
    with cdf.start_cluster(memory=beside_tests(900_000_000), cpus=1, dashboard_port=None) as running:
        assert not running.layout.in_process
        yield running


def looked_at(pages, write):
    """Touch all pages, and give the nanny, which looks ten times a second, time to see them."""
    for start in range(0, len(pages), mmap.PAGESIZE):
        if write:
            pages[start] = 1
        else:
            pages[start]
    time.sleep(1.5)
    return resident_bytes(os.getpid()), counted_bytes(os.getpid()), os.getpid()


def map_file(path):
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as pages:
        return looked_at(pages, write=False)


def share_memory():
    with mmap.mmap(-1, SIZE, flags=mmap.MAP_SHARED | mmap.MAP_ANONYMOUS) as pages:
        return looked_at(pages, write=True)


def packages():
    return {name.partition(".")[0] for name in sys.modules}


def test_a_worker_has_imported_what_tasks_need_and_no_pages(cluster, tmp_path):
    (before,) = cluster.client.run(packages).values()
    assert {"dask", "numba", "orjson", "pandas", "pyarrow"} <= before
    assert not {"IPython", "bokeh", "rich", "typer"} & before
    (tmp_path / "in.jsonl").write_text('{"text": "one two three"}\n' * 1_000)
    cdf.write_parquet(cdf.read_jsonl(tmp_path / "in.jsonl"), tmp_path / "out")
    (after,) = cluster.client.run(packages).values()
    assert after - before - sys.stdlib_module_names == set()  # limits were measured with all that a task imports


@pytest.mark.linux
def test_clean_pages_of_a_file_do_not_end_a_worker(cluster, tmp_path):
    path = tmp_path / "file"
    path.touch()
    os.truncate(path, SIZE)
    (before,) = cluster.client.run(os.getpid).values()
    resident, counted, pid = cluster.client.submit(map_file, path, pure=False).result(timeout=120)
    [limit] = [nanny.memory_manager.memory_limit for nanny in cluster._local.workers.values()]
    assert counted < 200_000_000 < 0.95 * limit < resident
    assert [pid] == [before] == list(cluster.client.run(os.getpid).values())


def test_shared_memory_that_does_not_fit_is_refused(cluster):
    future = cluster.client.submit(share_memory, pure=False)
    with pytest.raises(StepMemoryError, match="step 'share_memory' uses shared memory and took"):
        future.result(timeout=120)
    cluster.client.wait_for_workers(1, timeout=120)
    assert cluster.client.submit(sum, [1, 2]).result(timeout=120) == 3


def room():
    return data_limit()[0] - status_bytes("VmData")


@pytest.mark.linux
def test_the_tasks_of_a_restarted_worker_have_no_more_room_than_those_of_the_first_one(cluster):
    layout, client = cluster.layout, cluster.client
    (address,) = client.nthreads()
    assert restart(client, address)
    deadline = time.monotonic() + 60
    # A worker frees about 1 MB after its limit was set. The stack of a single thread too many would be more than this.
    most = layout.work_bytes + KERNEL_BYTES + THREAD_STACK_BYTES // 2
    while (found := client.submit(room, pure=False).result()) > most:
        assert time.monotonic() < deadline, f"{found:,} bytes for {layout.work_bytes:,}"
        time.sleep(0.05)
    assert found > 0.9 * layout.work_bytes


def test_the_nannies_of_jobs_are_told_in_their_script():
    [line] = [line for line in as_exports(worker_settings(choose_layout(1_000_000_000, cpus=1)), {}) if "NANNY" in line]
    export, setting = shlex.split(line)
    assert export == "export"
    assert dask.config.collect_env(dict([setting.split("=", 1)])) == {"distributed": {"nanny": {"preload": [PRELOAD]}}}
