# SPDX-License-Identifier: Apache-2.0
"""GTE models that were published with their own code give what that code computes, written out here, without running it."""

from __future__ import annotations

import json
import math

import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest

import curator_df as cdf
from curator_df import errors
from curator_df.models.files import find_model
from tests.models.tiny_models import write_tokenizer

torch = pytest.importorskip("torch", reason="needs the models extra (torch is not installed)")
WIDTH, HEADS, INNER, LAYERS = 32, 4, 64, 2
CONFIG = {
    "model_type": "new",
    "architectures": ["NewForSequenceClassification"],
    "auto_map": {"AutoModelForSequenceClassification": "maker/code--modeling.NewForSequenceClassification"},
    "hidden_size": WIDTH,
    "intermediate_size": INNER,
    "num_attention_heads": HEADS,
    "num_hidden_layers": LAYERS,
    "vocab_size": 128,
    "type_vocab_size": 0,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
    "hidden_act": "gelu",
    "layer_norm_eps": 1e-12,
    "layer_norm_type": "layer_norm",
    "position_embedding_type": "rope",
    "rope_theta": 500.0,
    "rope_scaling": {"type": "ntk", "factor": 2.0},
    "logn_attention_scale": False,
    "pack_qkv": True,
    "unpad_inputs": True,
    "use_memory_efficient_attention": True,
}
"""Settings of WebOrganizer's classifiers, but for the sizes."""
TEXTS = ["the river is long", "short water " * 9, "one of them", "not in a country", "a"]


def weights_of(labels, seed=0):
    """Return random weights under the names of the published files."""
    torch.manual_seed(seed)
    made = {"new.embeddings.word_embeddings.weight": torch.randn(128, WIDTH)}

    def linear(name, width, out, *, bias=True):
        made[f"{name}.weight"] = torch.randn(out, width) * 0.3
        if bias:
            made[f"{name}.bias"] = torch.randn(out) * 0.3

    def norm(name):
        made[f"{name}.weight"], made[f"{name}.bias"] = 1 + 0.1 * torch.randn(WIDTH), 0.1 * torch.randn(WIDTH)

    norm("new.embeddings.LayerNorm")
    for number in range(LAYERS):
        layer = f"new.encoder.layer.{number}"
        linear(f"{layer}.attention.qkv_proj", WIDTH, 3 * WIDTH)
        linear(f"{layer}.attention.o_proj", WIDTH, WIDTH)
        norm(f"{layer}.attn_ln")
        linear(f"{layer}.mlp.up_gate_proj", WIDTH, 2 * INNER, bias=False)
        linear(f"{layer}.mlp.down_proj", INNER, WIDTH)
        norm(f"{layer}.mlp_ln")
    linear("new.pooler.dense", WIDTH, WIDTH)
    linear("classifier", WIDTH, labels)
    return made


def write_new(folder, labels=("one", "two", "three"), **more):
    """Write a model as WebOrganizer's are published."""
    from safetensors.torch import save_file

    write_tokenizer(folder)
    save_file(weights_of(len(labels)), folder / "model.safetensors", metadata={"format": "pt"})
    names = {"id2label": {str(place): label for place, label in enumerate(labels)}}
    (folder / "config.json").write_text(json.dumps(CONFIG | names | more))
    return folder


def rotated(states, theta, factor):
    """Return queries or keys (heads, tokens, width) with their positions, as NTKScalingRotaryEmbedding computes them."""
    width = WIDTH // HEADS
    frequencies = 1 / (theta * factor) ** (torch.arange(0, width, 2).float() / width) / factor ** (2 / width)
    angles = torch.outer(torch.arange(states.shape[1]).float(), frequencies).repeat(1, 2)
    left, right = states.chunk(2, -1)
    return states * angles.cos() + torch.cat([-right, left], -1) * angles.sin()


def logits_of(weights, tokens, theta=500.0, factor=2.0):
    """Return the logits of one text, computed layer by layer."""

    def linear(name, states):
        return torch.nn.functional.linear(states, weights[f"{name}.weight"], weights.get(f"{name}.bias"))

    def norm(name, states):
        return torch.nn.functional.layer_norm(
            states, (WIDTH,), weights[f"{name}.weight"], weights[f"{name}.bias"], 1e-12
        )

    states = norm("new.embeddings.LayerNorm", weights["new.embeddings.word_embeddings.weight"][tokens])
    for number in range(LAYERS):
        layer = f"new.encoder.layer.{number}"
        parts = linear(f"{layer}.attention.qkv_proj", states).split(WIDTH, -1)
        query, key, value = (part.view(-1, HEADS, WIDTH // HEADS).transpose(0, 1) for part in parts)
        query, key = rotated(query, theta, factor), rotated(key, theta, factor)
        shares = (query @ key.transpose(1, 2) / math.sqrt(WIDTH // HEADS)).softmax(-1)
        mixed = (shares @ value).transpose(0, 1).reshape(-1, WIDTH)
        states = norm(f"{layer}.attn_ln", states + linear(f"{layer}.attention.o_proj", mixed))
        up, gate = linear(f"{layer}.mlp.up_gate_proj", states).split(INNER, -1)
        made = linear(f"{layer}.mlp.down_proj", up * torch.nn.functional.gelu(gate))
        states = norm(f"{layer}.mlp_ln", states + made)
    return linear("classifier", linear("new.pooler.dense", states[0]).tanh())


def computed(folder, **how):
    docs = dd.from_pandas(pd.DataFrame({"text": pd.array(TEXTS, "string[pyarrow]")}), npartitions=1)
    return docs.pipe(cdf.add_class, cdf.model(folder, **how)).compute(scheduler="synchronous")


@pytest.mark.parametrize("scaling", [{"type": "ntk", "factor": 2.0}, None])
def test_a_published_model_gives_what_its_own_code_computes(scaling, tmp_path):
    from transformers import PreTrainedTokenizerFast

    folder = write_new(tmp_path / "model", rope_scaling=scaling)
    found = computed(str(folder))
    tokenizer = PreTrainedTokenizerFast.from_pretrained(folder)
    weights, factor = weights_of(3), 1.0 if scaling is None else 2.0
    made = torch.stack([logits_of(weights, tokenizer(text)["input_ids"], factor=factor) for text in TEXTS]).softmax(-1)
    assert found["label"].tolist() == [("one", "two", "three")[place] for place in made.argmax(-1).tolist()]
    np.testing.assert_allclose(found["label_score"].to_numpy(float), made.max(-1).values.numpy(), atol=1e-5)
    other = torch.stack([logits_of(weights, tokenizer(text)["input_ids"], factor=3 - factor) for text in TEXTS])
    assert np.abs(found["label_score"].to_numpy(float) - other.softmax(-1).max(-1).values.numpy()).max() > 1e-3


def test_its_settings_are_those_of_gte(tmp_path):
    found = find_model("add_class", write_new(tmp_path / "model"))
    assert (found.kind, found.hidden, found.inner, found.heads, found.longest) == ("gte", 32, 64, 4, 64)
    assert found.classes == ("one", "two", "three")


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ({"logn_attention_scale": True}, "logn_attention_scale=True"),
        ({"rope_scaling": {"type": "ntk", "factor": 2.0, "mixed_b": 0.6}}, "rope_scaling="),
        ({"layer_norm_type": "rms_norm", "pack_qkv": False}, "layer_norm_type='rms_norm' and pack_qkv=False"),
    ],
)
def test_a_setting_that_gte_lacks_is_named(setting, said, tmp_path):
    folder = write_new(tmp_path / "model", **setting)
    with pytest.raises(
        errors.ParameterError, match=rf"model_type='new' in its config\.json, with {said}.*trust_remote_code=True"
    ):
        find_model("add_class", folder)
