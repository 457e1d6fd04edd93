# SPDX-License-Identifier: Apache-2.0
"""Recommend batch sizes of a model that fit: on the CPU from the plan of its step, on a GPU by the same arithmetic."""

from __future__ import annotations

import dataclasses
import functools
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from curator_df.core.arguments import path_of
from curator_df.core.ranges.blocks import BlockKernel, map_blocks
from curator_df.core.sizes import show_size
from curator_df.errors import BudgetError
from curator_df.models.embeddings.embedding import ROW_BYTES, add_embedding_block
from curator_df.models.files import ModelFiles
from curator_df.models.model import Model
from curator_df.models.text_model import CHARACTERS_PER_TOKEN, DEFAULT_BATCH_TOKENS, TextModel, text_model

MINILM = ModelFiles(
    name="sentence-transformers/all-MiniLM-L6-v2",
    folder="",
    revision=None,
    digest="",
    kind="bert",
    hidden=384,
    inner=1536,
    heads=12,
    longest=512,
    parameters=22_713_216,
    weight_bytes=90_868_376,
    classes=(),
    several_classes=False,
)
"""Model for which batches are recommended by default: the figures of its config.json and its weights, so that nothing is
downloaded."""


@dataclass(frozen=True)
class Batches:
    """Padded tokens per batch that fit, with reasons."""

    tokens: int | None = None
    """Tokens per batch of each task on the CPU; 0 if not even one text fits, None if no model was given."""
    device_tokens: int | None = None
    """Tokens per batch on a GPU; 0 if not even one text fits, None if no GPU was given."""
    reasons: tuple[tuple[str, str], ...] = ()
    """Name and reason of each choice."""


def recommend_batches(
    named: str | os.PathLike[str] | Model | None,
    device_bytes: int | None,
    plan: Callable[[Callable[[Any], Any]], object],
) -> Batches:
    """Choose the batches of a model, or of MiniLM if only a GPU is given; nothing if neither is given.

    Parameters
    ----------
    named : str, path or Model, optional
        A model, as for `add_embedding`.
    device_bytes : int, optional
        Memory of a GPU.
    plan : callable
        Function that plans a step, itself a function from a lazy table to a lazy table; raises `BudgetError` if it does not fit.
    """
    if named is None and device_bytes is None:
        return Batches()
    model = _default_model() if named is None else text_model("recommend", _of_files(named), head="mean")
    tokens, said = _host_tokens(model, plan)
    reasons = [("model", f"{model.files.name}: {said}")]
    if device_bytes is None:
        return Batches(tokens, None, tuple(reasons))
    on_device = model.fitting_tokens(device_bytes - model.weight_bytes)
    said = f"{show_size(device_bytes)} of GPU memory are too little for the weights and one text of {model.max_tokens:,} tokens"
    if on_device:
        said = f"{show_size(device_bytes)} of GPU memory fit the weights and batches of {on_device:,} padded tokens, "
        said += f"{on_device // model.max_tokens:,} texts of {model.max_tokens:,}"
    reasons.append(("device", f"{said}; computed, not measured on a GPU"))
    return Batches(tokens, on_device, tuple(reasons))


def _default_model() -> TextModel:
    longest = MINILM.longest
    return TextModel(MINILM, "mean", longest, CHARACTERS_PER_TOKEN * longest, DEFAULT_BATCH_TOKENS, None)


def _of_files(named: Any) -> Model:
    """Return a model with its settings, without a GPU: both places are planned."""
    chosen = Model.of(named)
    return chosen.replace(model=path_of("recommend", "model", chosen.model), resources=None)


def _host_tokens(model: TextModel, plan: Callable[[Callable[[Any], Any]], object]) -> tuple[int, str]:
    """Return the largest batch, up to the default, for which the plan of the model's step fits."""
    tokens = model.batch_tokens
    while True:
        try:
            plan(functools.partial(_with_model, model=dataclasses.replace(model, batch_tokens=tokens)))
        except BudgetError as exc:
            if tokens <= model.max_tokens:
                return 0, f"the model does not fit, even with batches of one text ({exc})"
            tokens = max(tokens // 2, model.max_tokens)
            continue
        why = "the largest that fits"
        if tokens == model.batch_tokens:
            why = "the default" if tokens == DEFAULT_BATCH_TOKENS else "the number that you set"
        return tokens, f"max_batch_tokens={tokens:_} per task: {why}"


def _with_model(docs: Any, model: TextModel) -> Any:
    """Return the table with a step that costs the same as `add_embedding`; it is planned and never run."""
    factor = round(1.0 + 4 * model.files.hidden / ROW_BYTES, 1)
    kernel = BlockKernel(
        "model", add_embedding_block, {}, factor, held_bytes=model.held_bytes, fixed_bytes=model.call_bytes
    )
    return map_blocks(docs, kernel, meta=docs._meta)
