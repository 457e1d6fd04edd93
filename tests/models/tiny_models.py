# SPDX-License-Identifier: Apache-2.0
"""Small models with random weights, written as files in the layout of Hugging Face: configuration, safetensors, tokenizer."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

WORDS = [
    "the",
    "a",
    "of",
    "river",
    "water",
    "long",
    "short",
    "country",
    "which",
    "is",
    "one",
    "all",
    "them",
    "to",
    "be",
    "or",
    "not",
    "and",
    "in",
    "on",
]
SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]")
SIZES = {
    "vocab_size": 128,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "max_position_embeddings": 64,
    "initializer_range": 0.5,
}
"""Of a model of two layers, as configurations of transformers name them."""


def write_tokenizer(folder: Path, special: tuple[str, ...] = SPECIAL, *, length: int = 64) -> None:
    """Write a WordPiece tokenizer that knows some words and all letters."""
    transformers = pytest.importorskip("transformers", reason="needs the models extra (transformers is not installed)")
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

    letters = [mark + chr(code) for code in range(ord("a"), ord("z") + 1) for mark in ("", "##")]
    vocabulary = {word: number for number, word in enumerate([*special, *WORDS, *(x for x in letters if x != "a")])}
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token=special[1]))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{special[2]} $A {special[3]}",
        special_tokens=[(name, vocabulary[name]) for name in (special[2], special[3])],
    )
    fast = transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token=special[0],
        unk_token=special[1],
        cls_token=special[2],
        sep_token=special[3],
        model_max_length=length,
    )
    fast.save_pretrained(folder)


def write_bert(folder: Path, *, labels: tuple[str, ...] = (), seed: int = 0, **more: object) -> Path:
    """Write a BERT of two layers; with labels one that classifies."""
    torch = pytest.importorskip("torch", reason="needs the models extra (torch is not installed)")
    write_tokenizer(folder)
    from transformers import BertConfig, BertForSequenceClassification, BertModel

    torch.manual_seed(seed)
    names = {"id2label": dict(enumerate(labels)), "label2id": {n: i for i, n in enumerate(labels)}} if labels else {}
    config = BertConfig(**SIZES | names | more)
    made = BertForSequenceClassification(config) if labels else BertModel(config)
    made.eval().save_pretrained(folder)
    return folder


def write_head(folder: Path, kind: str, *, labels: tuple[str, ...], seed: int = 0, length: int = 64) -> Path:
    """Write a small model of a kind that classifies, as transformers makes it, such as ``modernbert`` or ``deberta-v2``."""
    torch = pytest.importorskip("torch", reason="needs the models extra (torch is not installed)")
    write_tokenizer(folder, length=length)
    from transformers import AutoConfig, AutoModelForSequenceClassification

    torch.manual_seed(seed)
    special = {
        f"{name}_token_id": place for place, name in ((0, "pad"), (2, "bos"), (3, "eos"), (2, "cls"), (3, "sep"))
    }
    names = {"id2label": dict(enumerate(labels)), "label2id": {name: place for place, name in enumerate(labels)}}
    config = AutoConfig.for_model(kind, **SIZES | special | names | {"max_position_embeddings": length})
    AutoModelForSequenceClassification.from_config(config).eval().save_pretrained(folder)
    return folder


def write_deberta(folder: Path, *, seed: int = 0) -> Path:
    """Write a DeBERTa of two layers that knows distances between tokens and no positions, as DeBERTa v3 does."""
    torch = pytest.importorskip("torch", reason="needs the models extra (torch is not installed)")
    write_tokenizer(folder)
    from transformers import DebertaV2Config, DebertaV2Model

    torch.manual_seed(seed)
    config = DebertaV2Config(
        vocab_size=128,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=64,
        max_position_embeddings=32,
        relative_attention=True,
        position_buckets=16,
        pos_att_type=["p2c", "c2p"],
        norm_rel_ebd="layer_norm",
        share_att_key=True,
        position_biased_input=False,
        type_vocab_size=0,
        initializer_range=0.5,
    )
    DebertaV2Model(config).eval().save_pretrained(folder)
    return folder


def write_classifier(folder: Path, encoder: Path, prefix: str, layers: dict[str, int], **config: object) -> Path:
    """Write weights as torch's modules save them, beside a configuration that only names the encoder."""
    torch = pytest.importorskip("torch", reason="needs the models extra (torch is not installed)")
    from safetensors.torch import load_file, save_file

    torch.manual_seed(3)
    weights = {f"{prefix}.{key}": value for key, value in load_file(encoder / "model.safetensors").items()}
    for name, width in layers.items():
        layer = torch.nn.Linear(32, width)
        weights |= {f"{name}.weight": 9 * layer.weight.detach(), f"{name}.bias": layer.bias.detach()}
    folder.mkdir()
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "config.json").write_text(json.dumps({"base_model": str(encoder), "fc_dropout": 0.2, **config}))
    write_tokenizer(folder)
    return folder
