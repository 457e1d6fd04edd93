# SPDX-License-Identifier: Apache-2.0
"""Generate answers of a language model to the prompts of a batch, taking the likeliest token in each step.

See also `generative_classifier`, which has prompts and classes; this module needs torch.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from curator_df.errors import ParameterError
from curator_df.models.classifiers.generative_classifier import Answers

KEPT_SHARE = 0.9
"""Fraction of a text that is kept in a further attempt to shorten it: tokens of a truncated text can differ from those of its
beginning."""


def prompt_tokens(tokenizer: Any, texts: Sequence[str], answers: Answers, max_tokens: int) -> list[list[int]]:
    """Return the tokens of the prompt about each text; of one with more than ``max_tokens`` the text is cut, not the question."""
    said = f"{answers.before}{{}}{answers.after}".split("{}")
    found = _encoded(tokenizer, [text.join(said) for text in texts])
    for place, tokens in enumerate(found):
        if len(tokens) > max_tokens:
            found[place] = _cut(tokenizer, texts[place], answers, max_tokens)
    return found


def _cut(tokenizer: Any, text: str, answers: Answers, max_tokens: int) -> list[int]:
    (bare,) = _encoded(tokenizer, [answers.before + answers.after])
    room = max_tokens - len(bare)
    if room < 0:
        raise ParameterError(
            f"the prompt of this model alone, without the text, has {len(bare):,} tokens, more than max_tokens={max_tokens:,}. "
            f"Use a max_tokens= well above {len(bare):,}"
        )
    ends = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True, verbose=False)["offset_mapping"]
    while room > 0:
        kept = text[: ends[room - 1][1]] if room <= len(ends) else text
        (tokens,) = _encoded(tokenizer, [answers.before + kept + answers.after])
        if len(tokens) <= max_tokens:
            return tokens
        room = int(KEPT_SHARE * room)
    return bare


def _encoded(tokenizer: Any, texts: Sequence[str]) -> list[list[int]]:
    given = {"return_attention_mask": False, "return_token_type_ids": False, "verbose": False}
    found: list[list[int]] = tokenizer(list(texts), **given)["input_ids"]
    return found


def answered(
    module: Any, tokenizer: Any, padded: npt.NDArray[np.int64], is_token: npt.NDArray[np.bool_], answers: Answers
) -> npt.NDArray[Any]:
    """Return the model's answers to prompts.

    Parameters
    ----------
    module : transformers.PreTrainedModel
        A language model with its head.
    tokenizer : transformers.PreTrainedTokenizerFast
        Tokenizer of the model.
    padded : ndarray of int64, shape (prompts, tokens)
        Prompts, padded on the left.
    is_token : ndarray of bool, shape (prompts, tokens)
        False for padding.
    answers : Answers
        Maximum length and interpretation of the answers.

    Returns
    -------
    ndarray of object, shape (prompts, 3)
        For each prompt, the position of the class, the probability of exactly this answer, and the answer.
    """
    steps = list(_steps(module, padded, is_token, answers.new_tokens, ends := _ends(module, tokenizer)))
    tokens, shares = (np.stack(parts, axis=1) for parts in zip(*steps, strict=True))
    result = np.empty((len(padded), 3), dtype=object)
    for row, made in enumerate(tokens.tolist()):
        count = next((place for place, token in enumerate(made) if token in ends), len(made) - 1) + 1
        answer = tokenizer.decode(made[:count], skip_special_tokens=True)
        result[row] = answers.read(answer), float(np.exp(shares[row, :count].sum())), answer
    return result


def _ends(module: Any, tokenizer: Any) -> frozenset[int]:
    """Return the tokens with which an answer ends."""
    said = getattr(module.generation_config, "eos_token_id", None)
    found = tokenizer.eos_token_id if said is None else said
    return frozenset(found if isinstance(found, list) else [] if found is None else [found])


def _steps(
    module: Any, padded: npt.NDArray[np.int64], is_token: npt.NDArray[np.bool_], most: int, ends: frozenset[int]
) -> Iterator[tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]]:
    """Yield the likeliest next token of each prompt, and the logarithm of its probability, until all answers have ended."""
    import torch
    from transformers import DynamicCache

    cache, going = DynamicCache(config=module.config), np.ones(len(padded), dtype=bool)
    # transformers 5.24 has a new name for it, and warns about the old one.
    kept = {"cache" if "cache" in inspect.signature(module.forward).parameters else "past_key_values": cache}
    device = module.device
    given, mask = torch.from_numpy(padded).to(device), torch.from_numpy(is_token.astype(np.int64)).to(device)
    places = (mask.cumsum(1) - 1).clamp(min=0)
    for _ in range(most):
        made = (
            module(
                input_ids=given,
                attention_mask=mask,
                position_ids=places,
                use_cache=True,
                logits_to_keep=1,  # for a long prompt, those of all tokens would dominate the memory
                **kept,
            )
            .logits[:, -1]
            .float()
        )
        largest, given = made.max(dim=1, keepdim=True)
        shares = (largest[:, 0] - made.logsumexp(dim=1)).cpu().numpy().astype(np.float64)
        tokens = given[:, 0].cpu().numpy()
        yield tokens, shares
        going &= ~np.isin(tokens, list(ends))
        if not going.any():
            return
        mask = torch.cat([mask, torch.ones_like(given)], dim=1)
        places = places[:, -1:] + 1
