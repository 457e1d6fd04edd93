# SPDX-License-Identifier: Apache-2.0
"""A very small model of tasks and complexity of prompts, as files written without torch: a BERT of one layer with eight on it.

Its numbers come from a seed, so that every process writes the same files, and each process finds those of another. What the
layers say is near 0 or 1: scores are rounded, and a number that is nearly between two of them could be either.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from curator_df.models.classifiers.prompt_scores import SCORES

WIDTH, INNER, LONGEST = 16, 32, 64
TASKS = {"0": "Open QA", "1": "Rewrite", "2": "Other"}
SHARP = 400.0


def prompts_model(seed: int = 0) -> str:
    """Return the folder of a model, written where it is not there yet."""
    version = hashlib.blake2b(Path(__file__).read_bytes(), digest_size=6).hexdigest()
    folder = Path(tempfile.gettempdir()) / f"curator-df-prompts-{os.getuid()}-{version}-{seed}"
    if not folder.is_dir():
        with tempfile.TemporaryDirectory(dir=folder.parent) as made:
            _write(Path(made, "model"), str(folder / "encoder"), np.random.default_rng(seed))
            try:
                os.rename(Path(made, "model"), folder)
            except OSError:  # another process was faster, and wrote the same
                if not folder.is_dir():
                    raise
    return str(folder)


def _write(folder: Path, encoder: str, chance: np.random.Generator) -> None:
    from safetensors.numpy import save_file

    letters = [mark + chr(code) for code in range(ord("a"), ord("z") + 1) for mark in ("", "##")]
    vocabulary = {word: number for number, word in enumerate(["[PAD]", "[UNK]", "[CLS]", "[SEP]", *letters])}
    (folder / "encoder").mkdir(parents=True)
    _write_tokenizer(folder, vocabulary)
    sizes = {"hidden_size": WIDTH, "intermediate_size": INNER, "num_hidden_layers": 1, "num_attention_heads": 2}
    config = {"model_type": "bert", "vocab_size": len(vocabulary), "max_position_embeddings": LONGEST, **sizes}
    (folder / "encoder/config.json").write_text(json.dumps(config))
    widths = [len(TASKS), *(2 for _ in SCORES)]
    maps = {
        "base_model": encoder,
        "task_type_map": TASKS,
        "weights_map": {name: [0, 1] for name in SCORES},
        "divisor_map": dict.fromkeys(SCORES, 1),
    }
    (folder / "config.json").write_text(json.dumps(maps))
    weights = {f"backbone.{name}": value for name, value in _bert(len(vocabulary), chance).items()}
    for number, width in enumerate(widths):
        weights |= _layer(f"head_{number}.fc", width, WIDTH, chance, SHARP)
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})


def _write_tokenizer(folder: Path, vocabulary: dict[str, int]) -> None:
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    ends = [(name, vocabulary[name]) for name in ("[CLS]", "[SEP]")]
    tokenizer.post_processor = processors.TemplateProcessing(single="[CLS] $A [SEP]", special_tokens=ends)
    tokenizer.save(str(folder / "tokenizer.json"))
    said = {"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": LONGEST, "pad_token": "[PAD]"}
    (folder / "tokenizer_config.json").write_text(json.dumps(said))


def _bert(words: int, chance: np.random.Generator) -> dict[str, Any]:
    numbers = {"word": words, "position": LONGEST, "token_type": 2}
    made = {f"embeddings.{name}_embeddings.weight": _numbers((count, WIDTH), chance) for name, count in numbers.items()}
    layers = {f"attention.self.{name}": (WIDTH, WIDTH) for name in ("query", "key", "value")}
    layers |= {
        "attention.output.dense": (WIDTH, WIDTH),
        "intermediate.dense": (INNER, WIDTH),
        "output.dense": (WIDTH, INNER),
    }
    for name, (width, given) in layers.items():
        made |= _layer(f"encoder.layer.0.{name}", width, given, chance)
    for name in ("embeddings", "encoder.layer.0.attention.output", "encoder.layer.0.output"):
        made |= {
            f"{name}.LayerNorm.weight": np.ones(WIDTH, np.float32),
            f"{name}.LayerNorm.bias": np.zeros(WIDTH, np.float32),
        }
    return made | _layer("pooler.dense", WIDTH, WIDTH, chance)


def _layer(name: str, width: int, given: int, chance: np.random.Generator, factor: float = 1.0) -> dict[str, Any]:
    return {f"{name}.weight": factor * _numbers((width, given), chance), f"{name}.bias": np.zeros(width, np.float32)}


def _numbers(shape: tuple[int, int], chance: np.random.Generator) -> Any:
    return chance.normal(0, 0.5, shape).astype(np.float32)
