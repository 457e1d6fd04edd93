# SPDX-License-Identifier: Apache-2.0
"""Torch is bounded and measured where it is there and sees a GPU, and is not imported otherwise."""

from __future__ import annotations

import inspect
import sys
from types import SimpleNamespace

import dask.dataframe as dd
import pandas as pd
import pytest

import curator_df as cdf
from curator_df.memory.process_cache import release_held
from curator_df.memory.resources import Capacity, shared
from curator_df.memory.torch_memory import TORCH_PEAKS, bound_torch, torch_peaks
from tests.contracts.operator_cases import kernels_of


class RecordedCuda:
    """``torch.cuda`` of a GPU of 80 bytes, which writes down what it is told."""

    def __init__(self):
        self.calls, self.available = [], True

    def is_available(self):
        return self.available

    def is_initialized(self):
        return "init" in self.calls

    def init(self):
        self.calls.append("init")

    def get_device_properties(self, device):
        return SimpleNamespace(total_memory=80)

    def set_per_process_memory_fraction(self, fraction):
        self.calls.append(f"set_per_process_memory_fraction({fraction})")

    def reset_peak_memory_stats(self):
        self.calls.append("reset_peak_memory_stats")

    def max_memory_allocated(self):
        return 30

    def max_memory_reserved(self):
        return 40

    def empty_cache(self):
        self.calls.append("empty_cache")


def test_the_double_has_the_names_of_torch():
    torch = pytest.importorskip("torch", reason="needs the models extra (torch is not installed)")
    for name in vars(RecordedCuda):
        if not name.startswith("_"):
            real, double = (inspect.signature(getattr(one, name)) for one in (torch.cuda, RecordedCuda()))
            assert list(real.parameters)[: len(double.parameters)] == list(double.parameters), name


@pytest.fixture
def cuda(monkeypatch):
    found = RecordedCuda()
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=found))
    yield found
    release_held()


def test_torch_is_bounded_once_in_a_run_and_lets_go_at_its_end(cuda):
    assert torch_peaks() == {}
    with shared(Capacity(1, device_bytes=20)):
        for _ in range(2):
            bound_torch()
    assert cuda.calls == ["init", "set_per_process_memory_fraction(0.25)", "reset_peak_memory_stats"]
    assert torch_peaks() == dict(zip(TORCH_PEAKS, (30, 40), strict=True))
    release_held()
    assert cuda.calls[-1] == "empty_cache"


def test_torch_is_left_alone_where_it_sees_no_gpu_and_not_imported(cuda, monkeypatch):
    cuda.available = False
    bound_torch()
    monkeypatch.delitem(sys.modules, "torch")
    bound_torch()
    assert (cuda.calls, torch_peaks(), "torch" in sys.modules) == ([], {}, False)


class OnGpu:
    resources = cdf.resources(gpus=1)

    def setup(self):
        self.is_there = True

    def __call__(self, given):
        return given["text"].notna() if isinstance(given, pd.DataFrame) else [[len(text)] for text in given]


@pytest.mark.parametrize("function", ["object", "model"])
def test_the_peak_of_a_user_s_function_on_a_gpu_is_in_the_receipt(cuda, function):
    docs = dd.from_pandas(pd.DataFrame({"text": ["a", "bc"]}, dtype="string[pyarrow]"), npartitions=1)
    if function == "object":
        docs = docs.pipe(cdf.keep_where, OnGpu())
    else:
        docs = docs.pipe(
            cdf.add_embedding, cdf.model(list_lengths, resources=cdf.resources(gpu_memory=10)), dimensions=1
        )
    (kernel,) = kernels_of(docs)
    with shared(Capacity(1, device_bytes=20)):
        peaks = kernel.run(docs.compute(scheduler="synchronous")[["text"]]).peaks
    assert {name: peaks[name] for name in TORCH_PEAKS} == dict(zip(TORCH_PEAKS, (30, 40), strict=True))
    assert "set_per_process_memory_fraction(0.25)" in cuda.calls


def list_lengths(texts):
    return [[len(text)] for text in texts]
