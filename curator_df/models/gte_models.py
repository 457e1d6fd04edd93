# SPDX-License-Identifier: Apache-2.0
"""GTE models that were published with code of their own, before transformers had their architecture.

Their ``config.json`` says ``"model_type": "new"``: gte-base-en-v1.5, and the classifiers of WebOrganizer. The architecture is
GTE of transformers, with other names of settings, so their code does not have to run.

References
----------
https://huggingface.co/Alibaba-NLP/new-impl, ``configuration.py`` and ``modeling.py`` (NTKScalingRotaryEmbedding);
transformers 5, ``models/gte`` and ``conversion_mapping.py``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from curator_df.errors import ParameterError

PUBLISHED_AS, KIND = "new", "gte"
"""Kind of such a model in its ``config.json``, and in transformers."""
_SAME = {
    "position_embedding_type": "rope",
    "layer_norm_type": "layer_norm",
    "logn_attention_scale": False,
    "pack_qkv": True,
}
"""Settings for which the architectures are the same, with their default values."""
_KEPT = (
    "attention_probs_dropout_prob",
    "classifier_dropout",
    "hidden_act",
    "hidden_dropout_prob",
    "hidden_size",
    "id2label",
    "initializer_range",
    "intermediate_size",
    "label2id",
    "layer_norm_eps",
    "max_position_embeddings",
    "num_attention_heads",
    "num_hidden_layers",
    "pad_token_id",
    "problem_type",
    "type_vocab_size",
    "vocab_size",
)


def gte_config(name: str, config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the configuration of a model of the kind ``new`` as one of GTE.

    Raises
    ------
    ParameterError
        If it has a setting that GTE of transformers does not have.
    """
    other = [f"{key}={config[key]!r}" for key, value in _SAME.items() if config.get(key, value) != value]
    scaling = config.get("rope_scaling")
    is_known = scaling is None or (
        isinstance(scaling, Mapping) and scaling.get("type") == "ntk" and scaling.get("mixed_b") is None
    )
    if not is_known:
        other.append(f"rope_scaling={scaling!r}")
    if other:
        raise ParameterError(
            f"the model {name!r} has model_type='new' in its config.json, with {' and '.join(other)}, which the GTE classes "
            "of transformers do not support. If it comes with code that you trust, use cdf.model(..., "
            "trust_remote_code=True)"
        )
    made = {key: config[key] for key in _KEPT if key in config}
    return {**made, "model_type": KIND, "rope_parameters": _rope(config, scaling)}


def _rope(config: Mapping[str, Any], scaling: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the rotary positions: NTK scaling by ``factor`` multiplies the base, and divides all frequencies by a number."""
    theta = float(config.get("rope_theta", 10_000.0))
    if scaling is None:
        return {"rope_type": "default", "rope_theta": theta}
    factor, width = float(scaling["factor"]), config["hidden_size"] // config["num_attention_heads"]
    return {"rope_type": "linear", "rope_theta": theta * factor, "factor": factor ** (2 / width)}
