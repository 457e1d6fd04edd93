# SPDX-License-Identifier: Apache-2.0
"""What a plan says of the GPU of each worker, from steps that say what they take of it. No GPU is needed."""

import dataclasses
from types import SimpleNamespace

import pytest

from curator_df.core.planning.branches import Branch, Fork
from curator_df.core.planning.device_plan import DEVICE_FIXED_BYTES, DeviceNeed, capacity_with_blocks, device_need
from curator_df.core.planning.program import Step
from curator_df.core.ranges.blocks import BlockKernel
from curator_df.core.ranges.manifest import Manifest, Peaks
from curator_df.core.ranges.price import Price
from curator_df.errors import BudgetError
from curator_df.memory import device_peak
from curator_df.memory.resources import NO_LIMITS, Capacity, resources

GB = 1_000_000_000
MB = 1_000_000


def step(factor, *, fixed_bytes=0, takes=True, gives=True, resources=NO_LIMITS):
    price = Price(0.0, device_peak_factor=factor, device_fixed_bytes=fixed_bytes, resources=resources)
    return Step("step", BlockKernel("step", len, price=price), price, takes_device=takes, gives_device=gives)


TO = step(1.5, takes=False)
BACK = step(0.5, gives=False)


def fork(*chains, shared=None, rejects=None):
    branches = tuple(Branch(SimpleNamespace(steps=chain), None, rejects) for chain in chains)
    return Fork(None, len(chains[0]) if shared is None else shared, branches)


def need(joined, *, tasks=1, device_bytes=10 * GB):
    return device_need(joined, Capacity(tasks, device_bytes), tasks)


def test_a_chain_that_stays_on_the_host_needs_none():
    assert need(fork((step(None, takes=False, gives=False),)), device_bytes=0) is None


@pytest.mark.parametrize(
    ("chain", "how", "expected"),
    [
        ((TO, BACK), {}, 1.5),  # the way there is dearer than the block and the way back
        ((TO, step(1.2), BACK), {}, 2.2),
        ((TO, step(None), BACK), {}, 2.5),  # nobody priced it: as a step that is not ours
        ((TO, step(1.2), BACK), {"rejects": "a folder"}, 3.2),  # what goes is copied once more
    ],
)
def test_the_dearest_step_decides(chain, how, expected):
    assert need(fork(chain, **how)).factor == pytest.approx(expected + 0.5)


def test_a_block_that_branches_share_is_held_beside_that_of_a_branch():
    two = fork((TO, step(1.2), BACK), (TO, BACK), shared=1)
    assert need(two).factor == pytest.approx(1.0 + 2.2 + 0.5)


def test_a_model_beside_blocks_on_the_host_is_all_there_is():
    model = step(None, takes=False, gives=False, resources=resources(gpu_memory="2GB"))
    found = need(fork((model,)), tasks=2)
    assert found.bytes_of(16 * MB) == found.alone(16 * MB) == 4 * GB  # two calls at a time
    assert found.fitting(16 * MB, None, MB) == 16 * MB
    assert found.said(16 * MB) == "4.00 GB estimated peak on each (assumed: 4.00 GB for models), 10.00 GB budget"


def test_tasks_tables_and_models_add_up():
    model = step(0.0, takes=False, gives=False, resources=resources(gpu_memory="2GB"))
    found = need(fork((TO, step(1.0, fixed_bytes=5 * MB), BACK, model)), tasks=2)
    assert found.fixed_bytes == DEVICE_FIXED_BYTES + 5 * MB
    assert found.held_bytes == 4 * GB  # two calls at a time
    assert found.bytes_of(10 * MB) == 4 * GB + 2 * (37 * MB + 25 * MB)
    assert found.alone(10 * MB) == 4 * GB + 62 * MB
    assert "4.00 GB for models" in found.said(10 * MB)


def mixed(weights=3 * GB, least=4 * GB, **asked):
    """Return blocks on the GPU, and then a model that asks for a share of it."""
    asked = dataclasses.replace(resources(**asked), weights="model", weight_bytes=weights, least_device_bytes=least)
    model = step(0.0, takes=False, gives=False, resources=asked)
    chain = SimpleNamespace(steps=(TO, step(1.2), BACK, model), explicit_blocks=False)
    capacity = Capacity(2, 10 * GB).holding([asked])
    return Fork(None, 4, (Branch(chain, None, None),)), capacity


@pytest.mark.parametrize("asked", [{"gpus": 1}, {"gpus": 0.5}, {"gpu_memory": "5GB"}])
def test_a_model_and_blocks_share_a_gpu(asked):
    joined, capacity = mixed(**asked)
    beside = capacity_with_blocks(joined, capacity, 2, 16 * MB)
    assert beside.device_block_bytes == 2 * (DEVICE_FIXED_BYTES + int(2.7 * 16 * MB))
    found = device_need(joined, beside, 2)
    block_bytes = found.fitting(16 * MB, None, MB)
    assert block_bytes == pytest.approx(16 * MB, abs=1)
    assert found.bytes_of(block_bytes) <= 10 * GB
    share = 1.0 if "gpus" in asked else 2 * GB / (7 * GB - beside.device_block_bytes) * 2
    assert found.held_bytes == pytest.approx(3 * GB + min(share, 1) * (7 * GB - beside.device_block_bytes), rel=1e-5)


def test_blocks_leave_half_of_a_gpu_to_models_and_a_model_that_needs_more_is_refused():
    joined, capacity = mixed(gpus=1)
    beside = capacity_with_blocks(joined, capacity, 2, 10 * GB)
    assert beside.device_block_bytes == 3.5 * GB
    assert device_need(joined, beside, 2).fitting(10 * GB, None, MB) == pytest.approx(1_750 * MB / 2.7, rel=0.05)
    joined, capacity = mixed(gpus=1, least=7 * GB)
    said = r"need 7\.00 GB of GPU memory, .* allows only 6\.50 GB of 10\.00 GB, of which blocks use 3\.50 GB\. .*checkpoint"
    with pytest.raises(BudgetError, match=said):
        capacity_with_blocks(joined, capacity, 2, 10 * GB)


def test_blocks_are_as_large_as_fit_and_what_does_not_fit_is_refused_with_what_would():
    small = DeviceNeed(factor=2.5, fixed_bytes=32 * MB, held_bytes=0, tasks=2, allowed_bytes=80 * MB)
    assert small.largest_block == 3_200_000
    assert small.bytes_of(small.largest_block) == 80 * MB
    assert small.alone(small.largest_alone) == 80 * MB
    assert small.fitting(16 * MB, None, MB) == 3_200_000
    assert small.fitting(2 * MB, None, MB) == 2 * MB
    assert small.fitting(3 * MB, 3 * MB, MB) == 3 * MB
    said = r"blocks of 4 MB do not fit on a GPU: .* the 2 concurrent tasks .* blocksize='3.2MB' or .*device_memory='84MB'\)"
    with pytest.raises(BudgetError, match=said):
        small.fitting(16 * MB, 4 * MB, MB)
    assert DeviceNeed(2.5, 32 * MB, 0, 2, 84 * MB).fitting(16 * MB, 4 * MB, MB) == 16 * MB


def test_workers_without_a_gpu_are_told_so():
    with pytest.raises(BudgetError, match=r"step: its blocks are in GPU memory, and these workers have no GPU"):
        need(fork((TO, BACK)), device_bytes=0)


class Meter:
    """Counts as RMM would, as it is told."""

    def __init__(self):
        self.most = 0

    def start(self):
        self.most = 0

    def peak_bytes(self):
        return self.most

    def spilled_bytes(self):
        return 2 * self.most


def test_the_most_bytes_are_those_of_one_run(monkeypatch):
    monkeypatch.setattr(device_peak, "_process", device_peak._Process())
    assert device_peak.device_peak_bytes() is device_peak.device_spilled_bytes() is None
    device_peak.device_run("one")
    meter = Meter()
    device_peak.measured_by(lambda: meter)
    device_peak.measured_by(Meter)  # there is one already
    meter.most = 5
    device_peak.device_run("one")
    assert (device_peak.device_peak_bytes(), device_peak.device_spilled_bytes()) == (5, 10)
    device_peak.device_run("two")
    assert device_peak.device_peak_bytes() == 0


def test_the_largest_of_all_workers_is_kept():
    peaks = Peaks()
    peaks.add(Manifest(0, peak_bytes=7, largest_block_bytes=3))
    assert peaks.device_bytes is None
    for most in (2, 9, 4):
        peaks.add(Manifest(1, device_peak_bytes=most))
    assert (peaks.worker_bytes, peaks.block_bytes, peaks.device_bytes) == (7, 3, 9)


def test_what_was_moved_out_of_gpus_is_the_sum_of_what_each_worker_counted_last():
    peaks = Peaks()
    peaks.add(Manifest(0, worker="a"))
    assert peaks.device_spilled_bytes is None
    for worker, moved in (("a", 3), ("b", 10), ("a", 5)):
        peaks.add(Manifest(1, worker=worker, device_spilled_bytes=moved))
    assert peaks.device_spilled_bytes == 15
