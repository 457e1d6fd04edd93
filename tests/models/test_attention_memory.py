# SPDX-License-Identifier: Apache-2.0
"""What a plan counts for attention: by kinds as transformers has them, and against what models hold in which it is nearly all."""

from __future__ import annotations

import dataclasses
import json
import warnings
from pathlib import Path

import numpy as np
import pytest

from curator_df.errors import ParameterError
from curator_df.memory.limits import give_back_large_buffers, peak_of_call
from curator_df.models.files import UNSTEADY_KINDS, WINDOW_KINDS, _sizes
from curator_df.models.inference import LoadedModel, quiet
from curator_df.models.model import Model
from curator_df.models.text_model import EAGER_COPIES, TextModel, text_model
from tests.models.tiny_models import write_tokenizer

torch = pytest.importorskip("torch", reason="needs the models extra (torch is not installed)")
transformers = pytest.importorskip("transformers", reason="needs the models extra (transformers is not installed)")
LENGTH = 512
WIDE = {
    "vocab_size": 128,
    "hidden_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 12,
    "intermediate_size": 192,
    "max_position_embeddings": LENGTH + 2,
    "pad_token_id": 0,
    "bos_token_id": 2,
    "eos_token_id": 3,
}
"""Of a model of many heads and few numbers for each token: a matrix of attention for each head has 50 MB in a batch."""
BESIDE_BYTES = 30_000_000
"""What a measurement may show beside: one of many was over the plan, on a machine under load. Without the matrices of heads a
plan is 60 MB or more below what these kinds take."""
MORE = {
    "gemma2": {"num_key_value_heads": 12, "head_dim": 8},
    "rembert": {"input_embedding_size": 96},
    "roformer": {"embedding_size": 96},
}


@pytest.fixture(autouse=True)
def allocator():
    """Let malloc do as in workers: by default, it keeps what earlier tests have freed, and pieces of it do not fit."""
    give_back_large_buffers()


def write_model(kind: str, folder: Path) -> Path:
    write_tokenizer(folder)
    path = folder / "tokenizer_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "model_max_length": LENGTH}))
    torch.manual_seed(0)
    config = transformers.AutoConfig.for_model(kind, **WIDE | MORE.get(kind, {}))
    transformers.AutoModel.from_config(config).eval().save_pretrained(folder)
    return folder


def model_in(folder: Path) -> TextModel:
    return text_model("test", Model(folder, max_tokens=LENGTH), head="mean")


@pytest.mark.parametrize(
    "kind", ["bert", "mpnet", "roformer", "megatron-bert", "rembert", "luke", "ibert", "lilt", "gemma2"]
)
def test_a_batch_takes_no_more_than_is_planned(kind, tmp_path):
    model = model_in(write_model(kind, tmp_path))
    loaded = LoadedModel(model)
    for length in (16, 128, LENGTH):
        rows = loaded.size.rows(length)
        tokens, offsets = np.full(rows * length, 5, dtype=np.int32), np.arange(rows + 1) * length
        loaded._forward(tokens, offsets, np.arange(1))
        extra_bytes, made = peak_of_call(lambda: loaded._forward(tokens, offsets, np.arange(rows)))  # noqa: B023 - called here
        assert made.shape == (rows, 96)
        assert extra_bytes <= model.call_bytes + BESIDE_BYTES, (length, extra_bytes)
    assert rows * length == 2_048
    assert extra_bytes > model.batch_bytes / 4


@pytest.mark.parametrize("kind", ["modernbert", "gte", "llama"])
def test_a_layer_with_a_gate_takes_no_more_than_is_planned(kind, tmp_path, monkeypatch):
    gated = {"intermediate_size": 3072, "cls_token_id": 2, "sep_token_id": 3}
    monkeypatch.setitem(MORE, kind, gated)
    model = model_in(write_model(kind, tmp_path))
    assert model.files.inner_copies == {"modernbert": 6}.get(kind, 5)
    loaded = LoadedModel(model)
    rows = loaded.size.rows(LENGTH)
    tokens, offsets = np.full(rows * LENGTH, 5, dtype=np.int32), np.arange(rows + 1) * LENGTH
    loaded._forward(tokens, offsets, np.arange(1))
    extra_bytes, _ = peak_of_call(lambda: loaded._forward(tokens, offsets, np.arange(rows)))
    assert extra_bytes <= model.call_bytes + BESIDE_BYTES
    of_two = dataclasses.replace(model, files=dataclasses.replace(model.files, inner_copies=2))
    assert extra_bytes > of_two.batch_bytes


@pytest.mark.slow
def test_every_kind_without_sdpa_is_known():
    """A kind that is missing here is planned as one with SDPA, and takes many times as much."""
    from transformers.models.auto import configuration_auto, modeling_auto

    with_sdpa, without = set(), set()
    for kind, name in modeling_auto.MODEL_MAPPING_NAMES.items():
        try:
            with quiet(transformers), warnings.catch_warnings(action="ignore"):
                config = configuration_auto.CONFIG_MAPPING[kind]().to_dict()
                _sizes("test", kind, config)
                made = getattr(transformers, name if isinstance(name, str) else name[0])
        except (AttributeError, ImportError, ParameterError, TypeError):
            continue  # of which no plan is made: without a size or a model, or with one of a library that is not there
        if made.main_input_name == "input_ids":
            (with_sdpa if made._supports_sdpa else without).add(kind)
    assert without <= {*EAGER_COPIES, *UNSTEADY_KINDS, *WINDOW_KINDS}
    assert "mpnet" in without
    assert len(with_sdpa) > 50


@pytest.mark.parametrize("kind", sorted(WINDOW_KINDS))
def test_a_kind_that_pads_every_text_to_a_window_is_refused(kind, tmp_path):
    write_tokenizer(tmp_path)
    transformers.AutoConfig.for_model(kind).save_pretrained(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(b"")
    with pytest.raises(
        ParameterError, match=f"of the kind '{kind}', which pads every text to its attention window.*another kind"
    ):
        model_in(tmp_path)
