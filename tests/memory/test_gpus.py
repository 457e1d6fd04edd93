# SPDX-License-Identifier: Apache-2.0
"""How much GPUs were at work while a block ran, by what stands in for NVML."""

import threading

from curator_df.memory import gpus
from curator_df.memory.gpus import GpuReading, measured_use


def test_the_mean_of_each_gpu_that_was_named_is_there_when_the_block_has_ended(monkeypatch):
    readings, enough = [], threading.Event()

    def read():
        readings.append(len(readings))
        if len(readings) == 4:
            enough.set()
        share = 1.0 if len(readings) % 2 else 0.0
        return tuple(GpuReading(n, 1, 2, share if n < 3 else None, ()) for n in range(4))

    monkeypatch.setattr(gpus, "USE_SECONDS", 0.001)
    monkeypatch.setattr(gpus, "read_gpus", read)
    with measured_use(("0", "2", "3", "MIG-a")) as use:
        assert enough.wait(20)
        assert use == {}
    assert set(use) == {"GPU 0", "GPU 2"}  # 1 is of others, and 3 does not say
    expected = sum(1 for number in range(len(readings)) if number % 2 == 0) / len(readings)
    assert use["GPU 0"] == use["GPU 2"] == round(expected, 3)


def test_without_gpus_nothing_is_asked(monkeypatch):
    monkeypatch.setattr(gpus, "USE_SECONDS", 0.001)
    before = threading.active_count()
    with measured_use(()) as use:
        assert threading.active_count() == before
    assert use == {}
