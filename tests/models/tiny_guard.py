# SPDX-License-Identifier: Apache-2.0
"""A small language model with an adapter that answers in words as Aegis does, learned on the spot, as files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from curator_df.models.classifiers.catalogue import Classifier
from curator_df.models.classifiers.generative_classifier import Answers

ASKED = Answers("is this text all right : ", " ? answer :", "safe", "unsafe", ("O1", "O2"), new_tokens=6)
WANTED = {
    "the river": "safe",
    "the sword": "unsafe \n O1",
    "the poison": "unsafe \n O2",
    "the sword the poison": "unsafe \n O1,O2",
}
"""What it learns to answer, with other words around."""
WORDS = (
    "is this text all right : ? answer the river sword poison a of water long short one to be safe unsafe O1 O2 O1,O2"
)
RANK, SCALE = 4, 2.5
SIZES = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4}
SIZES |= {"vocab_size": 40, "max_position_embeddings": 96, "num_key_value_heads": 2}
TARGETS = ("q_proj", "v_proj")


def write_word_tokenizer(folder: Path, longest: int) -> None:
    """Write a tokenizer of whole words, with one for the end of a line, that puts ``<s>`` before a text and pads with nothing."""
    transformers = pytest.importorskip("transformers", reason="needs the models extra (transformers is not installed)")
    from tokenizers import Tokenizer, models, pre_tokenizers, processors

    vocabulary = {word: place for place, word in enumerate(["<unk>", "<s>", "</s>", "\n", *WORDS.split()])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    cuts = [pre_tokenizers.Split("\n", "isolated"), pre_tokenizers.Split(" ", "removed")]
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(cuts)
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    fast = transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, unk_token="<unk>", bos_token="<s>", eos_token="</s>", model_max_length=longest
    )
    fast.save_pretrained(folder)


def write_guard(folder: Path, *, learns: bool = True, **sizes: int) -> Classifier:
    """Write a language model, and an adapter with which alone it answers as `WANTED`; return how both are used.

    One that does not learn has random numbers and never ends an answer.
    """
    torch = pytest.importorskip("torch", reason="needs the models extra (torch is not installed)")
    from transformers import LlamaConfig, LlamaForCausalLM

    base, adapter = folder / "base", folder / "adapter"
    adapter.mkdir(parents=True)
    config = LlamaConfig(**(SIZES | sizes), eos_token_id=2 if learns else None)
    write_word_tokenizer(base, config.max_position_embeddings)
    torch.manual_seed(0)
    module = LlamaForCausalLM(config)
    if learns:
        _learn(module, base)
    pairs = {}
    with torch.no_grad():  # what the adapter adds again is taken away
        for layer in range(config.num_hidden_layers):
            for target in TARGETS:
                weight = getattr(module.model.layers[layer].self_attn, target).weight
                a, b = torch.randn(RANK, config.hidden_size), torch.randn(len(weight), RANK)
                weight -= SCALE * b @ a
                name = f"base_model.model.model.layers.{layer}.self_attn.{target}"
                pairs |= {f"{name}.lora_A.weight": a, f"{name}.lora_B.weight": b}
    module.eval().save_pretrained(base)
    from safetensors.torch import save_file

    save_file(pairs, adapter / "adapter_model.safetensors")
    said = {"peft_type": "LORA", "r": RANK, "lora_alpha": SCALE * RANK, "bias": "none"}
    (adapter / "adapter_config.json").write_text(json.dumps({**said, "base_model_name_or_path": str(base)}))
    return Classifier("ours", str(adapter), "here", 64, 6000, answers=lambda: ASKED)


def _learn(module, base: Path) -> None:
    import torch
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(base)
    around = ["", "a long", "to be short to be", "a long water " * 4]
    rows = [
        (f"{ASKED.before}{more} {text} {other}{ASKED.after}", f"{answer} </s>")
        for text, answer in WANTED.items()
        for more in around
        for other in around
    ]
    prompts, answers = [tokenizer([row[place] for row in rows])["input_ids"] for place in (0, 1)]
    longest = max(len(p) + len(a) - 1 for p, a in zip(prompts, answers, strict=True))
    tokens = torch.zeros(len(rows), longest, dtype=torch.int64)
    wanted = torch.full_like(tokens, -100)
    for row, (prompt, answer) in enumerate(zip(prompts, answers, strict=True)):
        said = [*prompt, *answer[1:]]  # without the second <s>
        tokens[row, : len(said)] = torch.tensor(said)
        wanted[row, len(prompt) : len(said)] = torch.tensor(said[len(prompt) :])
    steps = torch.optim.AdamW(module.parameters(), lr=5e-3)
    for _ in range(400):
        loss = module(input_ids=tokens, attention_mask=(tokens >= 0).long(), labels=wanted).loss
        steps.zero_grad()
        loss.backward()
        steps.step()
        if loss.item() < 0.01:
            return
    pytest.fail(f"the model did not learn what to answer: {loss.item():.3f}")
