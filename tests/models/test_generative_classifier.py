# SPDX-License-Identifier: Apache-2.0
"""Classifiers that answer in words: prompts, answers, classes; the same however rows come, within the memory that is planned."""

from __future__ import annotations

import dataclasses
import hashlib

import dask.dataframe as dd
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import curator_df as cdf
from curator_df import errors
from curator_df.memory.limits import peak_of_call
from curator_df.memory.process_cache import cached
from curator_df.memory.resources import NO_LIMITS
from curator_df.models.classifiers.catalogue import AEGIS_DEFENSIVE, AEGIS_PERMISSIVE, Classifier
from curator_df.models.classifiers.generative_classifier import Answers, aegis
from curator_df.models.files import find_answering, find_model
from curator_df.models.inference import LoadedModel
from tests.contracts.operator_cases import fingerprints_of, kernels_of
from tests.models.tiny_guard import ASKED, SCALE, TARGETS, write_guard

torch = pytest.importorskip("torch", reason="needs the models extra (torch is not installed)")
TEXTS = [
    "the river a long",
    None,
    "water the sword",
    "a long water of one to be the poison short",
    "the sword the poison",
    "",
    "the river " + "one " * 90 + "the sword",
]
CLASSES = ["safe", None, "O1", "O2", "unknown"]
"""Of those that it learned."""


@pytest.fixture(scope="module")
def guard(tmp_path_factory):
    return write_guard(tmp_path_factory.mktemp("guard"))


def table(texts=TEXTS, npartitions=1):
    return dd.from_pandas(pd.DataFrame({"text": pd.array(texts, "string[pyarrow]")}), npartitions=npartitions)


def computed(docs):
    return docs.compute(scheduler="synchronous")


def published_answer(guard, text):
    """Return what transformers generates for a text alone, with the adapter beside the weights, and its probability."""
    from safetensors.torch import load_file
    from transformers import AutoModelForCausalLM, AutoTokenizer

    base = guard.model.removesuffix("adapter") + "base"
    module, tokenizer = AutoModelForCausalLM.from_pretrained(base).eval(), AutoTokenizer.from_pretrained(base)
    pairs = load_file(f"{guard.model}/adapter_model.safetensors")

    def beside(name):
        a, b = (pairs[f"base_model.model.{name}.lora_{part}.weight"] for part in "AB")
        return lambda _, given, made: made + SCALE * given[0] @ a.T @ b.T

    for name, part in module.named_modules():
        if name.endswith(TARGETS):
            part.register_forward_hook(beside(name))
    tokens = tokenizer(ASKED.before + text + ASKED.after, return_tensors="pt", return_token_type_ids=False)
    how = {"max_new_tokens": ASKED.new_tokens, "do_sample": False, "pad_token_id": 0}
    made = module.generate(**tokens, **how, return_dict_in_generate=True, output_logits=True)
    new = made.sequences[0, tokens["input_ids"].shape[1] :]
    shares = [numbers[0].log_softmax(0)[token] for numbers, token in zip(made.logits, new, strict=True)]
    return tokenizer.decode(new, skip_special_tokens=True), float(sum(shares).exp())


@pytest.mark.parametrize(("npartitions", "how"), [(1, {}), (3, {"max_batch_tokens": 100})])
def test_answers_are_those_that_transformers_generates(guard, npartitions, how):
    docs = table(TEXTS[:6], npartitions)
    result = computed(docs.pipe(cdf.add_class, cdf.model(guard, **how), into="aegis_pred", answer_into="raw"))
    assert list(result.columns) == ["text", "aegis_pred", "aegis_pred_score", "raw"]
    assert [None if value is pd.NA else value for value in result["aegis_pred"][:5]] == CLASSES
    assert result["raw"].isna().tolist() == [text is None for text in TEXTS[:6]]
    wanted = [published_answer(guard, text) for text in TEXTS[:6] if text is not None]
    assert result["raw"].dropna().tolist() == [answer for answer, _ in wanted]
    shares = result["aegis_pred_score"].dropna().to_numpy(float)
    np.testing.assert_allclose(shares, [share for _, share in wanted], atol=1e-5)
    assert "raw" not in computed(docs.pipe(cdf.add_class, cdf.model(guard, **how), into="aegis_pred"))


@pytest.mark.parametrize("how", [{}, {"max_batch_tokens": 1}, {"model_inference_batch_size": 3}], ids=str)
def test_classes_do_not_depend_on_batches_partitions_order_or_memory(guard, how):
    texts = [text for text in TEXTS if text] * 4
    wanted = computed(table(texts).pipe(cdf.add_class, cdf.model(guard, max_batch_tokens=2_000), answer_into="raw"))

    def same(found):
        assert found["label"].tolist() == wanted["label"].tolist()
        assert found["raw"].tolist() == wanted["raw"].tolist()
        found, shares = (docs["label_score"].to_numpy(float) for docs in (found, wanted))
        np.testing.assert_allclose(found, shares, atol=1e-5)

    same(computed(table(texts, npartitions=4).pipe(cdf.add_class, cdf.model(guard, **how), answer_into="raw")))
    same(computed(table(texts[::-1]).pipe(cdf.add_class, cdf.model(guard, **how), answer_into="raw")).iloc[::-1])

    def scarce(module, args, given):
        if given["attention_mask"].numel() > 140:  # while it reads, or after some words of an answer
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")

    docs = table(texts).pipe(cdf.add_class, cdf.model(guard, **{"max_batch_tokens": 2_000, **how}), answer_into="raw")
    (kernel,) = kernels_of(docs)
    loaded = cached((kernel.parameters["model"], NO_LIMITS), lambda: LoadedModel(kernel.parameters["model"]))
    loaded._weights.module.register_forward_pre_hook(scarce, with_kwargs=True)
    outcome = kernel.run(computed(table(texts)))
    same(outcome.block)
    assert (outcome.counters["batches_halved"] > 0) == ("max_batch_tokens" not in how)


def test_of_a_long_text_the_end_is_cut_and_not_the_question(guard):
    result = computed(table().pipe(cdf.add_class, guard, answer_into="raw"))
    assert result["label"].iloc[-1] == "safe"  # the sword at its end is not read
    whole = computed(table(["the river " + "one " * 40]).pipe(cdf.add_class, guard, answer_into="raw"))
    assert result["raw"].iloc[-1] == whole["raw"].iloc[0]
    (kernel,) = kernels_of(table().pipe(cdf.add_class, guard))
    model = kernel.parameters["model"]
    _, offsets = LoadedModel(model)._encode(pa.chunked_array([[TEXTS[-1], "the river"]]))
    assert np.diff(offsets).tolist() == [64, 12]
    short = dataclasses.replace(model, max_tokens=7)
    with pytest.raises(
        errors.ParameterError,
        match=r"without the text, has 10 tokens, more than max_tokens=7\. Use a max_tokens= well above 10",
    ):
        LoadedModel(short)._encode(pa.chunked_array([["the river"]]))


def test_rows_go_by_the_class_that_an_answer_names(guard):
    kept = computed(table(TEXTS[:5]).pipe(cdf.keep_class, guard, classes=["safe", "O2"]))
    assert kept["text"].tolist() == [TEXTS[0], TEXTS[3]]
    with pytest.raises(errors.ParameterError, match=r"'O3'.*'unknown', 'safe', 'O1', 'O2'"):
        table().pipe(cdf.keep_class, guard, classes="O3")


def test_what_does_not_fit_is_refused(guard):
    with pytest.raises(
        errors.ParameterError, match=r"max_tokens=91 is too large, because .* reads at most 90 tokens of a text"
    ):
        table().pipe(cdf.add_class, cdf.model(guard, max_tokens=91))
    with pytest.raises(errors.ParameterError, match="only for a classifier that generates text"):
        table().pipe(cdf.add_class, lambda texts: [[1, 2]] * len(texts), labels=["a", "b"], answer_into="raw")
    with pytest.raises(errors.ParameterError, match=r"score_of='safe'.*only the answer has a score"):
        table().pipe(cdf.add_class, guard, score_of="safe")
    with pytest.raises(errors.ParameterError, match="4 different names"):
        table().pipe(cdf.add_class, guard, labels=["fine", "bad"])
    with pytest.raises(errors.ColumnError, match="text"):
        table().pipe(cdf.add_class, guard, answer_into="text")
    with pytest.raises(errors.InputError, match="adapter_config"):
        find_answering("add_class", guard.model.removesuffix("adapter") + "base")


def test_the_prompt_is_part_of_what_a_run_compares_and_batches_are_not(guard):
    other = dataclasses.replace(guard, answers=lambda: dataclasses.replace(ASKED, after=" ? say :"))
    first, second, third = (
        fingerprints_of(table().pipe(cdf.add_class, cdf.model(entry, max_batch_tokens=tokens)))
        for entry, tokens in ((guard, 100), (guard, 200), (other, 100))
    )
    assert first == second != third


def test_the_plan_counts_the_adapter_and_what_is_kept_of_each_token(guard):
    base = find_model("add_class", guard.model.removesuffix("adapter") + "base")
    found = find_answering("add_class", guard.model)
    assert (found.kept_numbers, found.vocabulary) == (
        2 * 2 * 2 * 8,
        40,
    )  # keys and values of two layers and two heads of 8
    assert found.weight_bytes > base.weight_bytes
    assert found.parameters == base.parameters
    assert found.digest != base.digest
    (kernel,) = kernels_of(table().pipe(cdf.add_class, guard))
    model = kernel.parameters["model"]
    assert model.row_tokens > ASKED.new_tokens
    assert kernel.price.fixed_bytes == model.call_bytes


@pytest.mark.parametrize("length", [20, 200, 990])
def test_a_batch_takes_no_more_than_is_planned(length, tmp_path):
    """A model large enough that what it holds shows beside the process, of which no answer ends early."""
    sizes = {"hidden_size": 256, "intermediate_size": 700, "num_hidden_layers": 6, "num_attention_heads": 4}
    entry = write_guard(tmp_path, learns=False, vocab_size=32_000, max_position_embeddings=1_024, **sizes)
    (kernel,) = kernels_of(table().pipe(cdf.add_class, cdf.model(entry, max_tokens=990, max_batch_tokens=4_000)))
    model = kernel.parameters["model"]
    loaded = LoadedModel(model)
    rows = loaded.size.rows(length)
    tokens, offsets = np.full(rows * length, 5, dtype=np.int32), np.arange(rows + 1) * length
    loaded._forward(tokens, offsets, np.arange(1))
    extra_bytes, made = peak_of_call(lambda: loaded._forward(tokens, offsets, np.arange(rows)))
    assert len(made) == rows > 1
    assert model.batch_bytes / 20 < extra_bytes <= model.call_bytes


def test_the_entries_of_the_catalogue_are_of_published_facts():
    asked = aegis()
    assert asked.labels == ("unknown", "safe", *(f"O{number}" for number in range(1, 14)))
    assert asked.new_tokens == 100
    # format_aegis("{text}") of nemo_curator 0.9.0
    whole = f"{asked.before}{{text}}{asked.after}"
    assert hashlib.blake2b(whole.encode(), digest_size=16).hexdigest() == "aa1834bf635f8db2a5e746c4042e673a"
    for entry, name in ((AEGIS_DEFENSIVE, "Defensive"), (AEGIS_PERMISSIVE, "Permissive")):
        assert entry.model == f"nvidia/Aegis-AI-Content-Safety-LlamaGuard-{name}-1.0"
        assert (entry.max_chars, entry.max_tokens, entry.answers) == (6_000, 4_096 - 100, aegis)


@pytest.mark.parametrize(
    ("answer", "label"),
    [
        ("safe", "safe"),
        (" safe \nO1", "safe"),
        ("unsafe\nO13", "O13"),
        ("unsafe\n O3 \nmore", "O3"),
        ("unsafe", "unknown"),
        ("unsafe\nO3,O5", "unknown"),
        ("unsafe\nO14", "unknown"),
        ("unsafe\nsafe", "unknown"),
        ("Safe", "unknown"),
        ("", "unknown"),
    ],
)
def test_answers_are_read_as_nemo_reads_them(answer, label):
    asked = aegis()
    assert asked.labels[asked.read(answer)] == label


def test_an_entry_of_ones_own_needs_no_file():
    entry = Classifier("mine", "a/model", "here", answers=lambda: Answers("a ", " b", "yes", "no", ("x",)))
    assert entry.answers().labels == ("unknown", "yes", "x")
