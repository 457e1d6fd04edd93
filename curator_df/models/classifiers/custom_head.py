# SPDX-License-Identifier: Apache-2.0
"""Layers of a classifier on an encoder that is published elsewhere, read from files without torch.

NVIDIA's classifiers have it: ``config.json`` names the encoder (``base_model``), of which only the configuration is needed,
because its weights are in the same safetensors. Two layouts are known: one layer ``fc`` on the first token, with the encoder
as ``model``; and layers ``head_0.fc``, ``head_1.fc``, ... on the mean of the tokens, with the encoder as ``backbone``.

References
----------
nemo_curator 0.9.0, ``classifiers/base.py`` (HFDeberta) and ``classifiers/prompt_task_complexity.py`` (CustomHFDeberta).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from curator_df.errors import ParameterError

LAYER = re.compile(r"(fc|head_(\d+)\.fc)\.weight")


@dataclass(frozen=True)
class OwnLayers:
    """Layers of a classifier on an encoder."""

    encoder: str = field(repr=False)
    """Configuration of the encoder, as JSON."""
    prefix: str
    """Prefix of the names of the encoder's weights."""
    pooling: Literal["mean", "cls"]
    """Pooling of the encoder's last layer."""
    names: tuple[str, ...]
    """Names of the layers, in the order of their numbers."""
    widths: tuple[int, ...]
    """Output width of each layer."""


def own_layers(operator: str, name: str, encoder: str, shapes: Mapping[str, Sequence[int]]) -> OwnLayers:
    """Find the layers among the tensors of a model.

    Raises
    ------
    ParameterError
        If the layout is unknown.
    """
    found = sorted((int(match[2] or 0), match[1]) for key in shapes if (match := LAYER.fullmatch(key)))
    names = tuple(layer for _, layer in found)
    if not names or (len(names) > 1 and "fc" in names):
        raise ParameterError(
            f"{operator}: the configuration of {name!r} names a base_model, but its weights have no layer fc or head_0.fc, "
            "so its classifier is of an unknown kind. Use another model, or pass a function that runs it"
        )
    widths = tuple(int(shapes[f"{layer}.weight"][0]) for layer in names)
    if names == ("fc",):
        return OwnLayers(encoder, "model.", "cls", names, widths)
    return OwnLayers(encoder, "backbone.", "mean", names, widths)


def load_own_layers(
    layers: OwnLayers, files: Sequence[Path], require_all: Callable[[list[str]], None]
) -> tuple[Any, Any, Any]:
    """Return the encoder with its weights, and the layers as one matrix with one bias, all float32.

    ``require_all`` is called with the names of missing weights, and raises if there are any.
    """
    import safetensors.torch
    import torch
    import transformers

    config = json.loads(layers.encoder)
    made = transformers.AutoModel.from_config(transformers.AutoConfig.for_model(config.pop("model_type"), **config))
    weights = {key: value for path in files for key, value in safetensors.torch.load_file(path).items()}
    inner = {key.removeprefix(layers.prefix): value for key, value in weights.items() if key.startswith(layers.prefix)}
    missing = list(made.load_state_dict(inner, strict=False).missing_keys)
    missing += [f"{layer}.bias" for layer in layers.names if f"{layer}.bias" not in weights]
    require_all(sorted(missing))
    matrix, bias = (torch.cat([weights[f"{layer}.{part}"] for layer in layers.names]) for part in ("weight", "bias"))
    return made.float(), matrix.float(), bias.float()
