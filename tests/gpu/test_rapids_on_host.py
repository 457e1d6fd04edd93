# SPDX-License-Identifier: Apache-2.0
"""RMM and cuDF's spilling themselves, on memory of the host: what they count, and what they raise.

Needs the gpu extra, and no GPU. RMM takes its memory from functions of ours (`rmm.mr.CallbackMemoryResource`). Only the
question which GPU is the current one, which needs a driver, is answered by the tests.
"""

import ctypes
import json
import subprocess
import sys
import types

import pytest

from curator_df.cluster.worker_devices import _limit_bytes
from curator_df.core.ranges.out_of_memory import is_out_of_memory

LIMIT_BYTES = 1_000_000

pytestmark = [pytest.mark.proof, pytest.mark.filterwarnings("default")]


def host_memory(rmm):
    """Return an RMM resource that hands out memory of the host."""
    libc = ctypes.CDLL(None)
    libc.malloc.restype, libc.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
    libc.free.argtypes = [ctypes.c_void_p]
    return rmm.mr.CallbackMemoryResource(
        lambda size, stream=None: libc.malloc(size),
        lambda place, size, stream=None: libc.free(place),
    )


@pytest.fixture
def rmm(monkeypatch):
    """RMM whose current resource is the host's memory behind a limit, as workers of ours have a limit."""
    found = pytest.importorskip("rmm", reason="needs the gpu extra (rmm)")
    pytest.importorskip("rmm.statistics", reason="needs the gpu extra (rmm)")
    current = [found.mr.LimitingResourceAdaptor(host_memory(found), LIMIT_BYTES)]
    monkeypatch.setattr(found.mr, "get_current_device_resource", lambda: current[-1])
    monkeypatch.setattr(found.mr, "set_current_device_resource", current.append)
    return found


def test_what_rmm_hands_out_is_counted_anew_for_each_run(rmm):
    from curator_df.io.device_transfer import DeviceCounts
    from curator_df.monitor.workers import _rmm_bytes

    assert _rmm_bytes() is None
    meter = DeviceCounts()
    memory = rmm.mr.get_current_device_resource()
    first, second = memory.allocate(3_000), memory.allocate(2_000)
    rounded = _rmm_bytes()
    assert 5_000 <= rounded < 6_000
    memory.deallocate(first, 3_000)
    memory.deallocate(second, 2_000)
    assert (meter.peak_bytes(), _rmm_bytes()) == (rounded, 0)
    meter.start()
    assert meter.peak_bytes() == 0
    memory.deallocate(memory.allocate(1_000), 1_000)
    assert 1_000 <= meter.peak_bytes() < 2_000
    assert _limit_bytes() == LIMIT_BYTES  # behind the counting


SPILLING = """
import cudf
import rmm
from tests.gpu.test_rapids_on_host import host_memory

current = [rmm.mr.LimitingResourceAdaptor(host_memory(rmm), 1_000_000)]
rmm.mr.get_current_device_resource, rmm.mr.set_current_device_resource = lambda: current[-1], current.append
cudf.set_option("spill", True)  # as in a worker of ours
cudf.set_option("spill_stats", 1)
from curator_df.io.device_transfer import DeviceCounts
from curator_df.monitor.workers import _rmm_bytes

meter = DeviceCounts()
rmm.mr.set_current_device_resource(rmm.mr.FailureCallbackResourceAdaptor(current[-1], lambda size: False))  # someone's, on top
place = current[-1].allocate(500_000)
assert 500_000 <= _rmm_bytes() == meter.peak_bytes() < 600_000, (_rmm_bytes(), meter.peak_bytes())
current[-1].deallocate(place, 500_000)
assert (_rmm_bytes(), meter.spilled_bytes()) == (0, 0)
"""


def test_what_rmm_hands_out_is_counted_beside_cudfs_spilling():
    for package in ("cudf", "rmm"):
        pytest.importorskip(package, reason=f"needs the gpu extra ({package})")
    done = subprocess.run([sys.executable, "-c", SPILLING], capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr


def test_what_does_not_fit_into_rmms_limit_is_known_as_out_of_memory(rmm):
    with pytest.raises(MemoryError, match="Exceeded memory limit") as refused:
        rmm.mr.get_current_device_resource().allocate(2 * LIMIT_BYTES)
    assert is_out_of_memory(refused.value)
    wrapped = RuntimeError(f"Task failed: {refused.value}")  # as libcudf's own errors say it
    assert is_out_of_memory(wrapped)


def test_blocks_that_rmm_has_no_memory_for_are_halved_and_no_row_changes(tmp_path):
    pytest.importorskip("rmm", reason="needs the gpu extra (rmm)")
    import curator_df as cdf

    corpus, out = tmp_path / "in.jsonl", tmp_path / "out"
    with corpus.open("w") as lines:
        lines.writelines(json.dumps({"id": n, "text": "x" * (n % 7)}) + "\n" for n in range(20_000))

    # On the worker this module is not there: what a function needs goes with it.
    def take_from_rmm(block, limit_bytes, each_bytes, host_memory):
        import rmm

        memory = rmm.mr.LimitingResourceAdaptor(host_memory(rmm), limit_bytes)
        size = len(block) * each_bytes
        memory.deallocate(memory.allocate(size), size)
        return block.assign(length=block["text"].str.len())

    docs = cdf.read_jsonl(str(corpus))
    meta = docs._meta.assign(length=docs._meta["text"].str.len())
    table = docs.map_partitions(take_from_rmm, LIMIT_BYTES, 100, alone(host_memory), meta=meta)
    with cdf.start_cluster(memory="6GB", cpus=1):
        receipt = cdf.write_jsonl(table, out)
    rows = [json.loads(line) for path in sorted(out.glob("*.jsonl")) for line in path.read_text().splitlines()]
    assert [row["id"] for row in rows] == list(range(20_000))
    assert all(row["length"] == row["id"] % 7 for row in rows)
    assert receipt.retries
    assert (receipt.rows_quarantined, receipt.rows_written) == (0, 20_000)


def alone(function):
    """Return a function that is pickled as a whole instead of by its name."""
    return types.FunctionType(function.__code__, {"ctypes": ctypes, "__name__": "__main__"}, function.__name__)


def test_what_cudf_has_spilled_is_told_by_its_own_manager():
    spilling = pytest.importorskip("cudf.core.buffer.spill_manager", reason="needs the gpu extra (cudf-cu12)")
    buffers = pytest.importorskip("cudf.core.buffer.spillable_buffer", reason="needs the gpu extra (cudf-cu12)")
    import cudf

    from curator_df.io.device_transfer import _spilled_bytes
    from curator_df.monitor.workers import _cudf_spilled_bytes

    assert sys.modules["cudf.core.buffer.spill_manager"] is spilling
    with cudf.option_context("spill", False):  # nannies leave CUDF_SPILL of an earlier cluster in this process
        before = spilling.get_global_manager()
    assert (_cudf_spilled_bytes(), _spilled_bytes()) == (None, 0)
    manager = spilling.SpillManager(statistic_level=1)
    try:
        spilling.set_global_manager(manager)
        assert (_cudf_spilled_bytes(), _spilled_bytes()) == (0, 0)
        held = [buffers.SpillableBufferOwner.from_host_memory(memoryview(bytes(size))) for size in (700, 300)]
        manager.statistics.log_spill(src="gpu", dst="cpu", nbytes=1_000, time=0.1)
        assert (_cudf_spilled_bytes(), _spilled_bytes()) == (1_000, 1_000)
        held.pop()
        assert _cudf_spilled_bytes() == 700
        held.clear()
    finally:
        spilling.set_global_manager(before)
