# SPDX-License-Identifier: Apache-2.0
"""A language model with an adapter and layers on its last token: found, loaded, and computed as it is published."""

from __future__ import annotations

import itertools
import json

import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest

import curator_df as cdf
from curator_df import errors
from curator_df.models.classifiers.catalogue import INSTRUCTION_DATA_GUARD, Classifier
from curator_df.models.classifiers.lora import LAYERS
from curator_df.models.files import find_adapted, find_model
from tests.models.tiny_models import write_tokenizer

torch = pytest.importorskip("torch", reason="needs the models extra (torch is not installed)")
TEXTS = ["the river is long", None, "", "short water " * 30, "one of them", "not in a country", "water"]
WIDTHS = (32, 32, 20, 12, 1)
PLAIN = {"peft_type": "LORA", "r": 4, "lora_alpha": 10, "bias": "none", "modules_to_save": None}
TARGETS = ("q_proj", "v_proj")


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    from transformers import LlamaConfig, LlamaForCausalLM

    folder = tmp_path_factory.mktemp("llama")
    write_tokenizer(folder)
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4}
    config = LlamaConfig(vocab_size=128, max_position_embeddings=64, initializer_range=0.5, **sizes)
    LlamaForCausalLM(config).eval().save_pretrained(folder)
    return folder


def write_adapter(folder, base, **config):
    from safetensors.torch import save_file

    torch.manual_seed(1)
    weights = {}
    for name in (f"layers.{layer}.self_attn.{target}" for layer in (0, 1) for target in TARGETS):
        weights[f"base_model.model.model.{name}.lora_A.weight"] = torch.randn(4, 32)
        weights[f"base_model.model.model.{name}.lora_B.weight"] = torch.randn(32, 4)
    folder.mkdir()
    save_file(weights, folder / "adapter_model.safetensors")
    said = {**PLAIN, "base_model_name_or_path": str(base), **config}
    (folder / "adapter_config.json").write_text(json.dumps(said))
    return folder


def write_layers(folder, widths=WIDTHS):
    from safetensors.torch import save_file

    torch.manual_seed(2)
    weights = {}
    for name, width, made in zip(LAYERS, widths, widths[1:], strict=False):
        weights |= {f"{name}.weight": 0.3 * torch.randn(made, width), f"{name}.bias": 0.1 * torch.randn(made)}
    folder.mkdir()
    save_file(weights, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps({"input_dim": widths[0], "dropout": 0.7}))
    return folder


@pytest.fixture(scope="module")
def guard(base, tmp_path_factory):
    folder = tmp_path_factory.mktemp("guard")
    adapter = write_adapter(folder / "adapter", base)
    thresholds = {"poisoned": 0.5, "clean": 0.0}
    return Classifier(
        "ours", str(write_layers(folder / "layers")), "here", 64, 6000, thresholds=thresholds, adapter=str(adapter)
    )


def wanted_scores(guard, base):
    """Return the score of each text alone: the adapter beside the weights, as its authors run it, and the layers in order."""
    from safetensors.torch import load_file
    from transformers import AutoModelForCausalLM, AutoTokenizer

    module, tokenizer = AutoModelForCausalLM.from_pretrained(base).eval(), AutoTokenizer.from_pretrained(base)
    pairs = load_file(f"{guard.adapter}/adapter_model.safetensors")
    layers = load_file(f"{guard.model}/model.safetensors")

    def beside(name):
        a, b = (pairs[f"base_model.model.{name}.lora_{part}.weight"] for part in "AB")
        return lambda _, given, made: made + 10 / 4 * given[0] @ a.T @ b.T

    for name, part in module.named_modules():
        if name.endswith(TARGETS):
            part.register_forward_hook(beside(name))
    scores = []
    for text in (text for text in TEXTS if text is not None):
        with torch.inference_mode():
            tokens = tokenizer(text, truncation=True, max_length=64, return_tensors="pt", return_token_type_ids=False)
            made = module(**tokens, output_hidden_states=True).hidden_states[-1][0, -1]
            made = made / made.norm()
            for name in LAYERS:
                made = layers[f"{name}.weight"] @ made + layers[f"{name}.bias"]
                made = made.relu() if name != LAYERS[-1] else made.sigmoid()
        scores.append(float(made))
    return scores


def table(texts=TEXTS, npartitions=1):
    return dd.from_pandas(pd.DataFrame({"text": pd.array(texts, "string[pyarrow]")}), npartitions=npartitions)


@pytest.mark.parametrize(("npartitions", "how"), [(1, {}), (3, {"max_batch_tokens": 100})])
def test_scores_are_those_of_the_published_computation(guard, base, npartitions, how):
    wanted = wanted_scores(guard, base)
    result = (
        table(npartitions=npartitions).pipe(cdf.add_class, cdf.model(guard, **how)).compute(scheduler="synchronous")
    )
    assert result["label"].isna().tolist() == [text is None for text in TEXTS]
    np.testing.assert_allclose(result["label_score"].dropna().to_numpy(float), wanted, atol=1e-5)
    assert result["label"].dropna().tolist() == ["poisoned" if score >= 0.5 else "clean" for score in wanted]
    assert len({round(score, 3) for score in wanted}) == len(wanted)


def test_the_plan_counts_the_language_model_and_what_is_on_it(guard, base):
    alone, found = find_model("add_class", base), find_adapted("add_class", guard.model, guard.adapter)
    on_top = sum(made * width + made for width, made in itertools.pairwise(WIDTHS))
    assert found.parameters == alone.parameters + on_top
    assert found.weight_bytes > alone.weight_bytes + 4 * on_top
    assert found.digest != alone.digest
    assert (found.kind, found.hidden, found.longest) == ("llama", 32, 64)


def test_other_adapters_layers_and_models_are_refused(guard, base, tmp_path):
    def refused(said, adapter=guard.adapter, layers=guard.model, kind=errors.ParameterError):
        with pytest.raises(kind, match=said):
            find_adapted("add_class", layers, adapter)

    refused("IA3", write_adapter(tmp_path / "ia3", base, peft_type="IA3"))
    refused("LORA with use_dora", write_adapter(tmp_path / "dora", base, use_dora=True))
    refused("modules_to_save", write_adapter(tmp_path / "more", base, modules_to_save=["lm_head"]))
    refused(
        r"lacks base_model_name_or_path \(the language model\) or r \(the rank\)",
        write_adapter(tmp_path / "rank", base, r=None),
        kind=errors.InputError,
    )
    refused("adapter_config", tmp_path, kind=errors.InputError)
    refused("which turn 32 numbers into one", layers=write_layers(tmp_path / "two", (32, 32, 20, 12, 2)))
    refused("which turn 32 numbers into one", layers=write_layers(tmp_path / "wide", (16, 32, 20, 12, 1)))
    refused("which turn 32 numbers into one", layers=write_layers(tmp_path / "few", (32, 32, 20)))
    refused("nor the ID of a model", layers="not/a/model", kind=errors.InputError)


@pytest.mark.parametrize("share", [0, 0.01, 0.5, 0.999])
def test_damaged_files_of_an_adapter_and_its_layers_are_named(guard, base, tmp_path, share):
    adapter, layers = write_adapter(tmp_path / "adapter", base), write_layers(tmp_path / "layers", WIDTHS)
    entry = Classifier("x", str(layers), "here", 64, thresholds=guard.thresholds, adapter=str(adapter))
    for path in (adapter / "adapter_model.safetensors", *layers.glob("*.safetensors")):
        scored, content = table().pipe(cdf.add_class, entry), path.read_bytes()
        path.write_bytes(content[: int(share * len(content))])
        with pytest.raises(errors.CorruptFileError, match=rf"{path.name} .*truncated.*again"):
            scored.compute(scheduler="synchronous")
        with pytest.raises(errors.CorruptFileError, match=rf"{path.name} .*truncated.*again"):
            find_adapted("add_class", layers, adapter)
        path.write_bytes(content)
    (adapter / "adapter_config.json").write_text('{"peft_type": "LORA"')
    with pytest.raises(errors.CorruptFileError, match=r"adapter_config\.json is not JSON.*again"):
        find_adapted("add_class", layers, adapter)
    write_adapter(tmp_path / "odd", base, lora_alpha=[3])
    with pytest.raises(errors.CorruptFileError, match=r"lora_alpha=\[3\], which is not a number"):
        find_adapted("add_class", layers, tmp_path / "odd")
    (adapter / "adapter_model.safetensors").unlink()
    with pytest.raises(errors.InputError, match=r"has no adapter_model\.safetensors\. Copy or download it"):
        find_adapted("add_class", layers, adapter)


def test_an_adapter_that_does_not_fit_the_model_is_refused(guard, base, tmp_path):
    from safetensors.torch import load_file, save_file

    folder = write_adapter(tmp_path / "odd", base)
    weights = load_file(folder / "adapter_model.safetensors")
    cut = {name: value for name, value in weights.items() if not name.endswith("0.self_attn.q_proj.lora_B.weight")}
    for odd, said in (
        (cut, "do not fit"),
        ({"score.weight": torch.ones(1)}, "which a plain LORA adapter does not have"),
    ):
        save_file(odd, folder / "adapter_model.safetensors")
        entry = Classifier("odd", guard.model, "here", 64, thresholds=guard.thresholds, adapter=str(folder))
        with pytest.raises(errors.ParameterError, match=said):
            table().pipe(cdf.add_class, entry).compute(scheduler="synchronous")


def test_rank_and_scale_are_those_of_the_configuration(guard, base, tmp_path):
    half = find_adapted("add_class", guard.model, write_adapter(tmp_path / "half", base, use_rslora=True))
    assert half.adapted.scale == 10 / 2
    assert find_adapted("add_class", guard.model, guard.adapter).adapted.scale == 10 / 4
    assert half.digest != find_adapted("add_class", guard.model, guard.adapter).digest


def test_the_entry_of_the_catalogue_is_one_of_published_facts():
    assert INSTRUCTION_DATA_GUARD.thresholds == {"poisoned": 0.5, "clean": 0.0}
    assert (INSTRUCTION_DATA_GUARD.max_tokens, INSTRUCTION_DATA_GUARD.max_chars) == (4096, 6000)
    assert INSTRUCTION_DATA_GUARD.adapter == "nvidia/Aegis-AI-Content-Safety-LlamaGuard-Defensive-1.0"
