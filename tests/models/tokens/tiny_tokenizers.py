# SPDX-License-Identifier: Apache-2.0
"""Tokenizers of several kinds that are trained on a few sentences, as folders."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

SENTENCES = ("to be or not to be, that is the question!\n", "whether 'tis nobler in the mind to suffer \n\n")
KINDS = ("byte-level", "prepended", "unigram", "word pieces", "without words")


def tiny(folder: Path, kind: str = "byte-level", *, vocabulary: int = 320, eos: str | None = "</s>") -> Any:
    """Write a tokenizer to a folder, and return it.

    ``byte-level`` is GPT-2's kind, ``prepended`` marks the beginning of a text (Llama 2's kind), ``unigram`` is T5's kind, ``word
    pieces`` is BERT's kind, and ``without words`` merges across spaces.
    """
    import tokenizers
    from tokenizers import decoders, models, normalizers, pre_tokenizers, processors, trainers

    folder.mkdir(parents=True, exist_ok=True)
    special = ["<s>", "</s>", "<unk>", "<pad>", "[CLS]", "[SEP]"]
    words = pre_tokenizers.ByteLevel(add_prefix_space=False)
    given = {"vocab_size": vocabulary, "special_tokens": special, "show_progress": False}
    if kind == "unigram":
        made = tokenizers.Tokenizer(models.Unigram())
        made.pre_tokenizer = pre_tokenizers.Metaspace()
        trainer: Any = trainers.UnigramTrainer(unk_token="<unk>", **given)
    elif kind == "word pieces":
        made = tokenizers.Tokenizer(models.WordPiece(unk_token="<unk>"))
        made.normalizer = normalizers.BertNormalizer()
        made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        trainer = trainers.WordPieceTrainer(**given)
    elif kind == "byte-level":
        made = tokenizers.Tokenizer(models.BPE())
        made.pre_tokenizer = words
        made.decoder = decoders.ByteLevel()
        trainer = trainers.BpeTrainer(initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), **given)
    else:
        made = tokenizers.Tokenizer(models.BPE(unk_token="<unk>"))
        made.normalizer = normalizers.Replace(" ", "\u2581")
        if kind == "prepended":
            made.normalizer = normalizers.Sequence([normalizers.Prepend("\u2581"), made.normalizer])
        trainer = trainers.BpeTrainer(max_token_length=6, **given)
    made.train_from_iterator(list(SENTENCES) * 9, trainer)
    first, last = made.token_to_id("<s>"), made.token_to_id("</s>")
    made.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", special_tokens=[("<s>", first), ("</s>", last)]
    )
    made.save(str(folder / "tokenizer.json"))
    pad = {"__type": "AddedToken", "content": "<pad>", "special": True}
    config: dict[str, Any] = {"tokenizer_class": "PreTrainedTokenizerFast", "pad_token": pad}
    if eos is not None:
        config["eos_token"] = eos
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return made


def ids_of(made: Any, text: str | None, *, eos: str | None = "</s>") -> list[int]:
    """Return the tokens of a document as the package tokenizers gives them for the whole text."""
    if not text:
        return []
    ids = list(made.encode(text, add_special_tokens=False).ids)
    return [*ids, made.token_to_id(eos)] if ids and eos else ids
