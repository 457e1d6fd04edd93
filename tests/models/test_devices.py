# SPDX-License-Identifier: Apache-2.0
"""In which numbers a model computes, and where: what changes, what is said of it, and what is refused."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest

import curator_df as cdf
from curator_df import errors
from curator_df.core.planning.lowering import lower
from curator_df.core.planning.plan import plan_stream
from curator_df.io.output.files import FileSink
from curator_df.io.output.formats import Folder, ParquetFormat
from curator_df.memory.budget import choose_layout
from curator_df.memory.process_cache import cached, release_held
from curator_df.memory.resources import NO_LIMITS, Capacity, shared
from curator_df.models import devices
from curator_df.models.inference import LoadedModel
from curator_df.models.text_model import CALL_BYTES, DEVICE_RUNTIME_BYTES, RUNTIME_BYTES
from curator_df.receipts.model_figures import model_figures
from curator_df.receipts.receipt import StepReceipt
from tests.contracts.operator_cases import fingerprints_of, kernels_of
from tests.models.test_embedding import TEXTS, table, vectors
from tests.models.tiny_guard import write_guard
from tests.models.tiny_models import write_bert, write_deberta

torch = pytest.importorskip("torch", reason="needs the models extra (torch is not installed)")
NEAR = 0.05
"""How far numbers from 0 to 1 of these small models may be off with bfloat16, which has 8 bits: 0.02 was the most seen."""
on_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU: this torch sees none")
GPU = cdf.resources(gpus=1)


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return write_bert(tmp_path_factory.mktemp("bert"))


@pytest.fixture(scope="module")
def classes(tmp_path_factory):
    return write_bert(tmp_path_factory.mktemp("classes"), labels=("a", "b", "c"))


def scores(docs):
    return docs.compute(scheduler="synchronous")["label_score"].dropna().to_numpy(float)


@pytest.mark.parametrize("write", [write_bert, write_deberta], ids=["BERT", "DeBERTa"])
def test_bfloat16_changes_vectors_by_little_and_says_so(write, tmp_path):
    folder = write(tmp_path)
    plain = vectors(table(TEXTS).pipe(cdf.add_embedding, folder))
    found = vectors(table(TEXTS).pipe(cdf.add_embedding, cdf.model(folder, compute_dtype="bfloat16")))
    assert (found.dtype, found.shape) == (plain.dtype, plain.shape)
    assert 1e-5 < np.abs(found - plain).max() < NEAR
    same = vectors(table(TEXTS).pipe(cdf.add_embedding, cdf.model(folder, compute_dtype="float32")))
    np.testing.assert_array_equal(same, plain)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_the_receipt_says_in_which_numbers_a_model_computed(model, dtype):
    (kernel,) = kernels_of(table(TEXTS).pipe(cdf.add_embedding, cdf.model(model, compute_dtype=dtype)))
    counters = kernel.run(table(TEXTS).compute(scheduler="synchronous")).counters
    [figures] = model_figures([StepReceipt("add_embedding", 7, 7, 1.0, {}, dict(counters))]).to_dict("records")
    assert figures["dtype"] == dtype


def test_bfloat16_changes_scores_by_little(classes):
    plain = scores(table(TEXTS).pipe(cdf.add_class, classes))
    found = scores(table(TEXTS).pipe(cdf.add_class, cdf.model(classes, compute_dtype="bfloat16")))
    assert 1e-5 < np.abs(found - plain).max() < NEAR


def test_a_language_model_is_held_as_bfloat16_and_answers_the_same(tmp_path):
    guard = write_guard(tmp_path)
    texts = ["the river a long", "water the sword", "a long the poison short", None]
    plain = table(texts).pipe(cdf.add_class, guard).compute(scheduler="synchronous")
    docs = table(texts).pipe(cdf.add_class, cdf.model(guard, compute_dtype="bfloat16"))
    found = docs.compute(scheduler="synchronous")
    assert found["label"].equals(plain["label"])
    difference = found["label_score"].astype(float) - plain["label_score"].astype(float)
    assert 1e-6 < difference.abs().max() < NEAR
    (kernel,) = kernels_of(docs)
    loaded = cached((kernel.parameters["model"], NO_LIMITS), lambda: pytest.fail("it was not loaded"))
    assert {weight.dtype for weight in loaded._weights.module.parameters()} == {torch.bfloat16}


def test_numbers_are_part_of_what_a_run_compares(model):
    digests = {
        dtype: fingerprints_of(table(TEXTS).pipe(cdf.add_embedding, cdf.model(model, compute_dtype=dtype)))
        for dtype in ("auto", "float32", "bfloat16")
    }
    assert digests["auto"] == digests["float32"] != digests["bfloat16"]
    device = fingerprints_of(table(TEXTS).pipe(cdf.add_embedding, cdf.model(model, resources=GPU)))
    assert device == digests["bfloat16"]  # where it computes says nothing of what comes out, in which numbers does
    whole = fingerprints_of(
        table(TEXTS).pipe(cdf.add_embedding, cdf.model(model, resources=GPU, compute_dtype="float32"))
    )
    assert whole == digests["auto"]


def planned(docs, device_bytes=0):
    layout = choose_layout(4_000_000_000, cpus=2, held_bytes=0)
    layout = dataclasses.replace(layout, device_bytes=device_bytes)
    return plan_stream(lower(docs), FileSink(Folder("."), ParquetFormat("zstd"), 1), None, layout)


@pytest.fixture
def corpus(tmp_path):
    (tmp_path / "in.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in TEXTS))
    return cdf.read_jsonl(str(tmp_path / "in.jsonl"))


def test_the_plan_says_where_and_in_which_numbers(model, corpus):
    plain = planned(corpus.pipe(cdf.add_embedding, model))
    assert "computes in" not in str(plain)
    half = planned(corpus.pipe(cdf.add_embedding, cdf.model(model, compute_dtype="bfloat16")))
    assert "model   add_embedding: computes in bfloat16 on CPUs" in str(half)
    assert half.held_bytes > plain.held_bytes  # matrices that are made bfloat16
    device = planned(corpus.pipe(cdf.add_embedding, cdf.model(model, resources=GPU)), 8_000_000_000)
    assert "model   add_embedding: computes in bfloat16 on the worker's GPU" in str(device)
    assert device.device_bytes == 8_000_000_000  # gpus=1: all that may be used
    assert "gpu     8.00 GB estimated peak on each (assumed: 8.00 GB for models), 8.00 GB budget" in str(device)
    (kernel,) = kernels_of(corpus.pipe(cdf.add_embedding, cdf.model(model, resources=GPU)))
    assert (kernel.price.fixed_bytes, kernel.price.resource_bytes) == (CALL_BYTES, 0)  # batches are there
    assert device.held_bytes > plain.held_bytes + 0.9 * (
        DEVICE_RUNTIME_BYTES - RUNTIME_BYTES
    )  # batches are not on the host


def test_a_gpu_that_is_missing_or_too_small_is_refused_by_the_plan(model, corpus):
    docs = corpus.pipe(cdf.add_embedding, cdf.model(model, resources=GPU))
    with pytest.raises(errors.BudgetError, match="these workers have none"):
        planned(docs)
    with pytest.raises(
        errors.BudgetError, match=r"add_embedding: the model and one long text need \d+ MB of GPU memory"
    ):
        planned(docs, 10_000_000)
    less = corpus.pipe(cdf.add_embedding, cdf.model(model, resources=cdf.resources(gpus=0.1)))
    with pytest.raises(errors.BudgetError, match=r"resources= allows only 10 MB of 100 MB"):
        planned(less, 100_000_000)


def test_a_batch_fills_the_part_of_a_gpu_that_a_call_may_use(model):
    (kernel,) = kernels_of(table(TEXTS).pipe(cdf.add_embedding, cdf.model(model, resources=cdf.resources(gpus=0.5))))
    found = kernel.parameters["model"]
    tokens = found.device_tokens(500_000_000)
    room = 500_000_000 - found.weight_bytes
    assert dataclasses.replace(found, batch_tokens=tokens).call_bytes <= room
    assert dataclasses.replace(found, batch_tokens=tokens + 1).call_bytes > room
    assert found.device_tokens(0) == found.batch_tokens == 2_048
    # Half of what the weights leave, and they.
    assert Capacity(1, 1_000_000_000).device_share(kernel.price.resources) == (1_000_000_000 + found.weight_bytes) // 2
    named = table(TEXTS).pipe(cdf.add_embedding, cdf.model(model, resources=GPU, max_batch_tokens=100))
    (kernel,) = kernels_of(named)
    assert kernel.parameters["model"].device_tokens(500_000_000) == 100


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_worker_without_a_gpu_does_not_compute_on_its_cpus_instead(model):
    with pytest.raises(errors.ParameterError, match=r"should run on a GPU, but torch .* finds none"):
        vectors(table(TEXTS).pipe(cdf.add_embedding, cdf.model(model, resources=GPU)))


def test_what_is_no_file_of_transformers_computes_as_it_does(model):
    with pytest.raises(errors.ParameterError, match="compute_dtype='float16'"):
        table(TEXTS).pipe(cdf.add_embedding, cdf.model(model, compute_dtype="float16"))
    with pytest.raises(errors.ParameterError, match="applies only to transformers models"):
        table(TEXTS).pipe(cdf.add_embedding, cdf.model(len, compute_dtype="bfloat16"), dimensions=1)
    with pytest.raises(errors.ParameterError, match="applies only to transformers models"):
        table(TEXTS).pipe(cdf.add_class, cdf.model(len, compute_dtype="float32"), labels=["a"])


def test_on_cpus_there_is_a_peak_of_the_process_and_none_of_a_device(model):
    (kernel,) = kernels_of(table(TEXTS).pipe(cdf.add_embedding, model))
    outcome = kernel.run(table(TEXTS).compute(scheduler="synchronous"))
    assert set(outcome.peaks) == {"process_peak_bytes"}
    assert outcome.peaks["process_peak_bytes"] > 100_000_000


@pytest.mark.gpu
@on_gpu
@pytest.mark.parametrize(("dtype", "near"), [("float32", 1e-3), ("auto", NEAR)])
def test_a_gpu_gives_the_vectors_of_the_cpu_and_its_peak_is_within_its_share(model, dtype, near):
    docs = table(TEXTS).pipe(cdf.add_embedding, cdf.model(model, resources=GPU, compute_dtype=dtype))
    plain = vectors(table(TEXTS).pipe(cdf.add_embedding, model))
    with shared(Capacity(1, 2_000_000_000)):
        (kernel,) = kernels_of(docs)
        outcome = kernel.run(table(TEXTS).compute(scheduler="synchronous"))
    found = np.stack(outcome.block["embedding"].dropna().to_list())
    np.testing.assert_allclose(found, plain, atol=near)
    allocated, reserved = (outcome.peaks[name] for name in devices.PEAKS[:2])
    assert 0 < allocated <= reserved <= 2_000_000_000
    assert allocated <= 2_000_000_000 - CALL_BYTES


@pytest.mark.gpu
@on_gpu
def test_a_gpu_is_given_back_when_the_run_is_over(model):
    (kernel,) = kernels_of(table(TEXTS).pipe(cdf.add_embedding, cdf.model(model, resources=GPU)))
    kernel.run(table(TEXTS).compute(scheduler="synchronous"))
    assert isinstance(cached((kernel.parameters["model"], kernel.parameters["resources"]), list), LoadedModel)
    release_held()
    assert torch.cuda.memory_allocated() == torch.cuda.memory_reserved() == 0
