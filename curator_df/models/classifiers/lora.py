# SPDX-License-Identifier: Apache-2.0
"""Language model with a low-rank adapter: files and loading, without peft; and layers on top that judge its last token.

NVIDIA's Aegis is published in two places: the adapter, and the language model that its configuration names. The instruction
data guard is in three: layers, and these two. The adapter is added to the weights when they are loaded.

References
----------
Hu et al. 2021, https://arxiv.org/abs/2106.09685; nemo_curator 0.9.0, ``classifiers/aegis.py`` (InstructionDataGuardNet).
"""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from curator_df.errors import CorruptFileError, InputError, ParameterError

ADAPTER_CONFIG, ADAPTER_WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
LAYERS = ("input_layer", "hidden_layer_0", "hidden_layer_1", "hidden_layer_2")
"""Layers on the last token, normalized to length 1; each but the last is followed by a ReLU, the last by a sigmoid."""
_PAIR = re.compile(r"base_model\.model\.(?:model\.)?(.+)\.lora_([AB])\.weight")
_PLAIN = {"bias": "none", "fan_in_fan_out": False, "use_dora": False}
_EMPTY = ("modules_to_save", "rank_pattern", "alpha_pattern", "layers_to_transform", "trainable_token_indices")


@dataclass(frozen=True)
class Place:
    """Files in a folder, or in a repository of the Hugging Face hub."""

    name: str
    """Name as the user gave it."""
    folder: str
    """Folder of the files."""
    revision: str | None
    """Commit, for a repository of the hub."""
    files: tuple[str, ...] = ()
    """Names of the files. A missing one is still being downloaded, or a download was interrupted."""


@dataclass(frozen=True)
class Adapted:
    """Adapter of a language model, and layers on top."""

    adapter: Place = field(metadata={"identity": False})
    """Place of the adapter; the contents of its files are part of the model's digest."""
    layers: Place | None = field(metadata={"identity": False})
    """Place of the layers on top; None for a generative classifier."""
    scale: float = field(metadata={"identity": False})
    """Factor by which the adapter's products are multiplied."""


def base_and_scale(operator: str, name: str, config: Mapping[str, Any]) -> tuple[str, float]:
    """Return the language model that an adapter is for, and its scale.

    Raises
    ------
    ParameterError
        If it is an adapter of another kind than plain pairs of matrices.
    """
    odd = [key for key, plain in _PLAIN.items() if config.get(key, plain) not in (plain, None)]
    odd += [key for key in _EMPTY if config.get(key)]
    if config.get("peft_type") != "LORA" or odd:
        kind = f"{config.get('peft_type')} with {', '.join(odd)}" if odd else str(config.get("peft_type"))
        raise ParameterError(
            f"{operator}: {name!r} is an adapter of the kind {kind}, but only plain LORA adapters can be read. Use another "
            "adapter, or pass a function that runs the model"
        )
    base, rank = config.get("base_model_name_or_path"), config.get("r")
    if not isinstance(base, str) or not isinstance(rank, int) or rank < 1:
        raise InputError(
            f"{operator}: {ADAPTER_CONFIG} of {name!r} lacks base_model_name_or_path (the language model) or r (the rank). "
            "Copy or download the adapter again"
        )
    alpha = config.get("lora_alpha", rank)
    if not isinstance(alpha, int | float) or isinstance(alpha, bool):
        raise CorruptFileError(
            f"{operator}: {ADAPTER_CONFIG} of {name!r} has lora_alpha={alpha!r}, which is not a number. Copy or download the "
            "file again"
        )
    divisor = math.sqrt(rank) if config.get("use_rslora") else rank
    return base, float(alpha) / divisor


def require_layers(operator: str, name: str, shapes: Mapping[str, Sequence[int]], hidden: int) -> None:
    """Raise `ParameterError` unless there are `LAYERS` for tokens of this width, the last of which returns one number."""
    found = [tuple(shapes.get(f"{layer}.weight", ())) for layer in LAYERS]
    fits = all(len(shape) == 2 for shape in found) and all(f"{layer}.bias" in shapes for layer in LAYERS)
    chain = [hidden, *(shape[0] for shape in found)] if fits else []
    if not fits or [shape[1] for shape in found] != chain[:-1] or chain[-1] != 1:
        raise ParameterError(
            f"{operator}: {name!r} lacks the layers {', '.join(LAYERS)}, which turn {hidden:,} numbers into one, so it is "
            "not a guard model of a known kind. Use another model, or pass a function that runs it"
        )


def add_adapter(module: Any, path: str | os.PathLike[str], scale: float) -> None:
    """Add the products of an adapter's matrices to the weights of a language model.

    Raises
    ------
    ParameterError
        If the adapter is for another model, or one matrix of a pair is missing.
    """
    import safetensors.torch
    import torch

    pairs: dict[str, dict[str, Any]] = {}
    for key, value in safetensors.torch.load_file(path).items():
        match = _PAIR.fullmatch(key)
        if match is None:
            raise ParameterError(
                f"the adapter {path} has the tensor {key!r}, which a plain LORA adapter does not have. Use another adapter, "
                "or pass a function that runs the model"
            )
        pairs.setdefault(match[1], {})[match[2]] = value
    weights = dict(module.named_parameters())
    with torch.no_grad():
        for name, pair in pairs.items():
            weight = weights.get(f"{name}.weight")
            product = pair["B"].to(torch.float32) @ pair["A"].to(torch.float32) if len(pair) == 2 else None
            if weight is None or product is None or product.shape != weight.shape:
                raise ParameterError(
                    f"the matrices of the adapter {path} for the layer {name!r} do not fit the language model. Use the "
                    "language model for which the adapter was trained"
                )
            weight += scale * product


def load_layers(files: Iterable[Path], device: str) -> Callable[[Any], Any]:
    """Return a function that applies the layers, on a device, to tokens of shape (texts, width): (texts, 1), from 0 to 1."""
    import safetensors.torch
    import torch

    loaded = [safetensors.torch.load_file(path, device) for path in files]
    weights = {key: value.float() for part in loaded for key, value in part.items()}

    def judge(tokens: Any) -> Any:
        made = torch.nn.functional.normalize(tokens.float(), dim=-1)
        for layer in LAYERS:
            made = torch.nn.functional.linear(made, weights[f"{layer}.weight"], weights[f"{layer}.bias"])
            made = torch.sigmoid(made) if layer == LAYERS[-1] else torch.relu(made)
        return made

    return judge


def read_config(operator: str, place: Place) -> dict[str, Any]:
    """Return the configuration of an adapter."""
    path = Path(place.folder, ADAPTER_CONFIG)
    for name in (ADAPTER_CONFIG, ADAPTER_WEIGHTS):
        if not Path(place.folder, name).is_file():
            raise InputError(
                f"{operator}: the adapter folder {place.folder!r} has no {name}. Copy or download it, or save the adapter with "
                "save_pretrained() of peft"
            )
    try:
        found: dict[str, Any] = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as exc:
        raise CorruptFileError(f"{path} is not JSON: {exc}. Copy or download the file again") from exc
    if not isinstance(found, dict):
        raise CorruptFileError(
            f"{path} must have a JSON object, but has a {type(found).__name__}. Copy or download the file again"
        )
    return found
