# SPDX-License-Identifier: Apache-2.0
"""Classifiers with layers of their own on an encoder: found, loaded, and computed as their authors' code does."""

from __future__ import annotations

import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest

import curator_df as cdf
from curator_df import errors
from curator_df.models.classifiers import prompt_scores as prompt_tasks
from curator_df.models.classifiers.catalogue import Classifier
from curator_df.models.files import find_model
from tests.models.tiny_models import write_classifier, write_deberta

TEXTS = ["the river is long", None, "", "short water " * 30, "one of them", "not in a country"]
LABELS = ("High", "Medium", "Low")


@pytest.fixture(scope="module")
def encoder(tmp_path_factory):
    return write_deberta(tmp_path_factory.mktemp("encoder"))


@pytest.fixture(scope="module")
def quality(encoder, tmp_path_factory):
    names = {"id2label": {str(place): name for place, name in enumerate(LABELS)}}
    return write_classifier(tmp_path_factory.mktemp("quality") / "m", encoder, "model", {"fc": 3}, **names)


def wanted_probabilities(folder, encoder, texts):
    """Return what the authors' module computes: the encoder, its first token, one layer, softmax."""
    torch = pytest.importorskip("torch", reason="needs the models extra (torch is not installed)")
    from safetensors.torch import load_file
    from transformers import AutoModel, AutoTokenizer

    weights = load_file(folder / "model.safetensors")
    module, tokenizer = AutoModel.from_pretrained(encoder).eval(), AutoTokenizer.from_pretrained(encoder)
    with torch.inference_mode():
        rows = [module(**tokenizer(text, truncation=True, return_tensors="pt")).last_hidden_state for text in texts]
        made = torch.cat([row[:, 0] for row in rows]) @ weights["fc.weight"].T + weights["fc.bias"]
        return made.softmax(1).numpy()


TASKS = {"0": "Open QA", "1": "Rewrite", "2": "Other"}
WEIGHTS = {name: [0, 1, 2] if name != "reasoning" else [0, 1] for name in prompt_tasks.SCORES}
DIVISORS = {name: 2 if name != "reasoning" else 1 for name in prompt_tasks.SCORES}


@pytest.fixture(scope="module")
def prompts(encoder, tmp_path_factory):
    widths = [len(TASKS), *(len(WEIGHTS[name]) for name in prompt_tasks.SCORES)]
    layers = {f"head_{number}.fc": width for number, width in enumerate(widths)}
    sizes = dict(zip(("task_type", *prompt_tasks.SCORES), widths, strict=True))
    maps = {"task_type_map": TASKS, "weights_map": WEIGHTS, "divisor_map": DIVISORS, "target_sizes": sizes}
    return write_classifier(tmp_path_factory.mktemp("prompts") / "m", encoder, "backbone", layers, **maps)


def wanted_scores(folder, encoder, text):
    """Return the columns for one text, in plain steps: the mean of the tokens, a layer for each question, its sums."""
    torch = pytest.importorskip("torch", reason="needs the models extra (torch is not installed)")
    from safetensors.torch import load_file
    from transformers import AutoModel, AutoTokenizer

    weights = load_file(folder / "model.safetensors")
    module, tokenizer = AutoModel.from_pretrained(encoder).eval(), AutoTokenizer.from_pretrained(encoder)
    with torch.inference_mode():
        layer = module(**tokenizer(text, truncation=True, return_tensors="pt")).last_hidden_state[0].mean(0)
        shares = [
            (weights[f"head_{number}.fc.weight"] @ layer + weights[f"head_{number}.fc.bias"]).softmax(0).tolist()
            for number in range(8)
        ]
    (likely, first), (less, second), *_ = sorted(((p, TASKS[str(n)]) for n, p in enumerate(shares[0])), reverse=True)
    scores = {
        name: sum(p * w for p, w in zip(share, WEIGHTS[name], strict=True)) / DIVISORS[name]
        for name, share in zip(prompt_tasks.SCORES, shares[1:], strict=True)
    }
    whole = 0.35 * scores["creativity_scope"] + 0.25 * scores["reasoning"] + 0.15 * scores["constraint_ct"]
    whole += 0.15 * scores["domain_knowledge"] + 0.05 * scores["contextual_knowledge"]
    return [first, second if less >= 0.1 else "NA"], [
        likely,
        *scores.values(),
        whole + 0.05 * scores["number_of_few_shots"],
    ]


def table(texts=TEXTS):
    return dd.from_pandas(pd.DataFrame({"text": pd.array(texts, "string[pyarrow]")}), npartitions=1)


def computed(docs):
    return docs.compute(scheduler="synchronous")


def test_a_layer_on_the_first_token_gives_the_classes_of_its_authors(quality, encoder):
    wanted = wanted_probabilities(quality, encoder, [text for text in TEXTS if text is not None])
    entry = Classifier("ours", str(quality), "here", max_tokens=64, max_chars=6000)
    result = computed(table().pipe(cdf.add_class, cdf.model(entry, max_batch_tokens=100)))
    assert result["label"].isna().tolist() == [text is None for text in TEXTS]
    assert result["label"].dropna().tolist() == [LABELS[place] for place in wanted.argmax(1)]
    assert len(set(result["label"].dropna())) > 1
    np.testing.assert_allclose(result["label_score"].dropna().to_numpy(float), wanted.max(1), atol=1e-5)


def test_the_encoder_is_planned_by_its_own_configuration(quality):
    found = find_model("add_class", quality)
    assert (found.kind, found.hidden, found.inner, found.heads, found.classes) == ("deberta-v2", 32, 64, 4, LABELS)
    assert found.longest == 64  # of the tokenizer: distances between tokens have no last one
    assert found.layers is not None
    assert (found.layers.pooling, found.layers.widths) == ("cls", (3,))


def test_what_is_missing_or_unknown_is_refused(quality, encoder, tmp_path):
    with pytest.raises(errors.ParameterError, match="is a classifier with its own layers"):
        table().pipe(cdf.add_embedding, quality)
    with pytest.raises(errors.ParameterError, match="no layer fc"):
        find_model("add_class", write_classifier(tmp_path / "none", encoder, "model", {"other": 3}))
    with pytest.raises(errors.ParameterError, match="3 different names"):
        table().pipe(cdf.add_class, write_classifier(tmp_path / "names", encoder, "model", {"fc": 3}))
    other = write_classifier(tmp_path / "other", encoder, "backbone", {"fc": 2})
    with pytest.raises(errors.ParameterError, match=r"no weights for embeddings\."):
        computed(table().pipe(cdf.add_class, other))


def test_a_model_may_read_the_middle_of_a_text(quality):
    one = "the river is long and the water which is in them is not in one country "
    entry = Classifier("ours", str(quality), "here", center_chars=20)
    result = computed(table([one * 9, "short"]).pipe(cdf.add_class, entry))
    middle = (one * 9)[len(one * 9) // 2 - 20 : len(one * 9) // 2 + 20]
    plain = computed(table([middle, "short"]).pipe(cdf.add_class, quality))
    pd.testing.assert_frame_equal(result[["label", "label_score"]], plain[["label", "label_score"]])


def test_prompts_get_tasks_and_scores(prompts, encoder):
    result = computed(
        table().pipe(cdf.add_prompt_scores, model=cdf.model(prompts, max_tokens=64, max_batch_tokens=100), prefix="p_")
    )
    names = [f"p_{name}" for name in ("task_type_1", "task_type_2", *prompt_tasks.NUMBERS)]
    assert list(result.columns) == ["text", *names]
    assert result[names].isna().all(axis=1).tolist() == result[names].isna().any(axis=1).tolist()
    for row, text in zip(result[names].itertuples(index=False), TEXTS, strict=True):
        if text is None:
            assert all(value is pd.NA for value in row)
            continue
        tasks, numbers = wanted_scores(prompts, encoder, text)
        assert list(row[:2]) == tasks
        np.testing.assert_allclose(list(row[2:]), numbers, atol=6e-4)  # rounded to three and four decimals
    assert len(set(result["p_prompt_complexity_score"].dropna())) > 1


def test_few_examples_and_unlikely_tasks_are_none():
    weights = tuple((0.0, 1.0) for _ in prompt_tasks.SCORES)
    tasks = prompt_tasks.PromptTasks(("a", "b"), weights, (1.0,) * len(weights))
    kinds, numbers = tasks.read(np.array([[0, 9, *[0, -3.5] * 7], [0, 0.1, *[0, 0] * 7]], dtype=np.float32))
    assert kinds.tolist() == [[1, -1], [1, 0]]
    few = prompt_tasks.NUMBERS.index("number_of_few_shots")
    assert numbers[0, few] == 0.0 < numbers[0, few + 1] < 0.05
    np.testing.assert_allclose(numbers[1], [0.525, *[0.5] * 7, 0.5])


def test_models_of_another_kind_are_refused(prompts, quality):
    with pytest.raises(errors.ParameterError, match="not a prompt task model"):
        table().pipe(cdf.add_prompt_scores, model=cdf.model(quality, max_tokens=64))
    with pytest.raises(errors.ParameterError, match="8 separate outputs"):
        table().pipe(cdf.add_class, prompts)
