# SPDX-License-Identifier: Apache-2.0
"""How much of a batch's memory attention takes, by the kind of model.

Most kinds have SDPA in transformers, which never holds what each token makes of each other. Kinds without it hold a matrix of
that for each head. The list is explicit, because a plan is made without transformers; a test compares it with the classes of
transformers, and another one the numbers with what is held.
"""

from __future__ import annotations

from collections.abc import Mapping

_EAGER_KINDS = (
    "bros",
    "canine",
    "convbert",
    "doge",  # has SDPA, with a mask for each head
    "flint",
    "gemma2",
    "git",
    "gpt_oss",
    "granite_swa",
    "granitemoe_swa",
    "hy_v4",
    "hy_v4_vl_text",
    "ibert",
    "layoutlmv2",
    "luke",
    "lxmert",
    "markuplm",
    "megatron-bert",
    "mimo_v2_flash",
    "mpnet",
    "mra",
    "nystromformer",
    "openai_privacy_filter",
    "rembert",
    "roformer",
    "splinter",
    "squeezebert",
    "tapas",
    "tvp",
    "vaultgemma",
    "vilt",
    "visual_bert",
    "vits",
)
EAGER_COPIES: Mapping[str, int] = {**dict.fromkeys(_EAGER_KINDS, 3), "deberta": 5, "deberta-v2": 5, "lilt": 7}
"""Kinds that hold a matrix of attention for each head, and how many of them at once. Three are the scores, the probabilities, and
the bias of positions (MPNet) or the probabilities of the layer before (RoFormer, Megatron-BERT, RemBERT); others hold two. LiLT
has scores of words and of places. Those of DeBERTa are beside one for all distances between tokens
(benchmarks/model_memory.py)."""
MASK_NUMBERS = 2
"""With SDPA: numbers for each token and each other one of its text, whatever the number of heads."""


def score_numbers(kind: str, heads: int, length: int, distances: int) -> int:
    """Return how many numbers attention holds for each token of a batch, of texts of so many tokens.

    Examples
    --------
    >>> score_numbers("bert", 12, 512, 0), score_numbers("mpnet", 12, 512, 0)
    (1024, 18432)
    """
    copies = EAGER_COPIES.get(kind)
    return MASK_NUMBERS * length if copies is None else heads * (copies * length + distances)
