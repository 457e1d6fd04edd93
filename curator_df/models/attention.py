# SPDX-License-Identifier: Apache-2.0
"""Memory of a batch that attention takes, by the kind of model.

Most kinds have SDPA in transformers, which never holds the attention matrix. Kinds without it hold such a matrix
for each head. The list is explicit, because a plan is made without transformers; one test compares it with the classes of
transformers, and another one compares the numbers with the memory used.
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
"""Kinds that hold a matrix of attention for each head, with the number of such matrices at once. Three are the scores, the
probabilities, and the bias of positions (MPNet) or the probabilities of the previous layer (RoFormer, Megatron-BERT,
RemBERT); others hold two. LiLT has scores of words and of positions. DeBERTa has one more for all distances between tokens
(benchmarks/model_memory.py)."""
MASK_NUMBERS = 2
"""Numbers for each token and each other token of its text with SDPA, independent of the number of heads."""


def score_numbers(kind: str, heads: int, length: int, distances: int) -> int:
    """Return how many numbers attention holds for each token of a batch of texts of ``length`` tokens.

    Examples
    --------
    >>> score_numbers("bert", 12, 512, 0), score_numbers("mpnet", 12, 512, 0)
    (1024, 18432)
    """
    copies = EAGER_COPIES.get(kind)
    return MASK_NUMBERS * length if copies is None else heads * (copies * length + distances)
