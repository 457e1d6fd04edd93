# SPDX-License-Identifier: Apache-2.0
"""Tokens of texts of any length are those of the whole text; the EOS token is the one that the tokenizer names."""

from __future__ import annotations

import json
import random
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from curator_df.errors import CorruptFileError, ParameterError
from curator_df.models.tokens import tokenizer as module
from curator_df.models.tokens.tokenizer import LoadedTokenizer, find_tokenizer, require_eos, vocabulary_of
from tests.examples import examples
from tests.models.tokens.tiny_tokenizers import KINDS, ids_of, tiny

tokenizers: Any = pytest.importorskip("tokenizers", reason="needs the tokenizers extra (tokenizers is not installed)")
WORDS = [
    "to",
    "be",
    "question!",
    "caf\u00e9",
    "\u6f22\u5b57",
    "\n",
    "\n\n",
    "  ",
    "it's",
    "end.\n\n",
    "\U0001f600",
    "x" * 9,
]


@pytest.fixture(scope="module", params=KINDS)
def kind(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("tokenizer")
    made = tiny(folder, request.param)
    return made, LoadedTokenizer(find_tokenizer("write_tokens", folder))


@pytest.fixture
def small_pieces(monkeypatch):
    for name, value in (("PIECE_BYTES", 300), ("LONG_PIECE_BYTES", 256), ("OVERLAP_BYTES", 32), ("MOST_PIECES", 3)):
        monkeypatch.setattr(module, name, value)


def encoded(loaded: LoadedTokenizer, texts: list[str | None], **options: Any) -> list[list[int]]:
    """Return the tokens of each text, put together from the parts in which they come."""
    found: list[list[int]] = [[] for _ in texts]
    for rows, lengths, ids in loaded.encoded(pd.Series(texts, dtype="string[pyarrow]"), **options):
        for row, each in zip(rows, np.split(ids, np.cumsum(lengths)[:-1]), strict=True):
            found[row] += each.tolist()
    return found


def test_tokens_are_those_of_the_package(kind):
    made, loaded = kind
    texts = ["to be", None, "", "or not", " question "]
    assert encoded(loaded, texts) == [ids_of(made, text, eos=None) for text in texts]
    eos_id = made.token_to_id("</s>")
    assert encoded(loaded, texts, eos_id=eos_id) == [ids_of(made, text) for text in texts]


@pytest.mark.parametrize("text", ["to be", "to be " * 200])
def test_special_tokens_are_added_on_request(kind, small_pieces, text):
    made, loaded = kind
    assert encoded(loaded, [text, None], special_tokens=True) == [made.encode(text).ids, []]


@settings(max_examples=examples(60), deadline=None)
@given(st.lists(st.sampled_from(WORDS), min_size=40, max_size=400), st.sampled_from(["", " "]))
def test_a_long_text_in_pieces_has_the_tokens_of_the_whole(kind, words, between):
    made, loaded = kind
    text = between.join(words)
    with pytest.MonkeyPatch.context() as patch:
        for name, value in (("PIECE_BYTES", 300), ("LONG_PIECE_BYTES", 256), ("OVERLAP_BYTES", 64), ("MOST_PIECES", 3)):
            patch.setattr(module, name, value)
        found = encoded(loaded, ["to", text, None, "be"])
        counts = loaded.count(pd.Series(["to", text, None, "be"], dtype="string[pyarrow]"))
    whole = ids_of(made, text, eos=None)
    assert found == [ids_of(made, "to", eos=None), whole, [], ids_of(made, "be", eos=None)]
    assert counts.tolist() == [len(each) for each in found]


@pytest.mark.parametrize("size", [400_000, pytest.param(900_000, marks=pytest.mark.proof)])
def test_a_text_of_many_pieces_has_the_tokens_of_the_whole(kind, size):
    made, loaded = kind
    letters = random.Random(1)
    text = "".join(letters.choice(WORDS) + letters.choice(["", " ", " ", ", "]) for _ in range(size * 2 // 9))
    assert len(text.encode()) > size
    (found,) = encoded(loaded, [text])
    assert found == ids_of(made, text, eos=None)


@pytest.mark.parametrize("text", ["\u6f22" * 3000, "x" * 9001, " " * 5000, "\n" * 3001])
def test_a_long_text_without_words_keeps_all_of_its_characters(tmp_path, small_pieces, text):
    made = tiny(tmp_path)
    loaded = LoadedTokenizer(find_tokenizer("write_tokens", tmp_path))
    (found,) = encoded(loaded, [text])
    assert made.decode(found) == text
    assert loaded.count(pd.Series([text], dtype="string[pyarrow]")).tolist() == [len(found)]


def test_the_vocabulary_is_that_of_the_package(tmp_path):
    for kind in KINDS:
        made = tiny(tmp_path / kind, kind)
        made.add_tokens(["<new>"])
        made.add_special_tokens(["<|other|>"])
        made.save(str(tmp_path / kind / "tokenizer.json"))
        known = vocabulary_of("write_tokens", find_tokenizer("write_tokens", tmp_path / kind))
        assert known.size == made.get_vocab_size(with_added_tokens=True)
        assert known.largest_id == max(made.get_vocab(with_added_tokens=True).values())
        assert known.eos_id == made.token_to_id("</s>")
        assert known.pad_id == made.token_to_id("<pad>")


def test_the_eos_token_can_be_named_and_must_exist(tmp_path):
    made = tiny(tmp_path, eos=None)
    found = find_tokenizer("write_tokens", tmp_path)
    unnamed = vocabulary_of("write_tokens", found)
    assert unnamed.eos_id is None
    with pytest.raises(
        ParameterError, match=r"add_eos=True needs an EOS token.*Name it with eos_token=, or set add_eos"
    ):
        require_eos("write_tokens", found, unnamed)
    for given_token in ("<pad>", made.token_to_id("<pad>")):
        known = vocabulary_of("write_tokens", found, given_token)
        assert require_eos("write_tokens", found, known) == made.token_to_id("<pad>")
    with pytest.raises(ParameterError, match=r"eos_token='<end>' is not a token of .*It has '</s>'"):
        vocabulary_of("write_tokens", found, "<end>")
    with pytest.raises(ParameterError, match=r"eos_token=4000 is not a token of .*Use an ID from 0 to [\d,]+"):
        vocabulary_of("write_tokens", found, 4000)
    (tmp_path / "special_tokens_map.json").write_text(json.dumps({"eos_token": {"content": "</s>"}}))
    assert vocabulary_of("write_tokens", found).eos_id == made.token_to_id("</s>")
    (tmp_path / "special_tokens_map.json").write_text("{")
    with pytest.raises(CorruptFileError, match=r"special_tokens_map\.json is not JSON"):
        vocabulary_of("write_tokens", found)


def test_a_file_without_a_vocabulary_is_an_error(tmp_path):
    (tmp_path / "tokenizer.json").write_text('{"model": {}}')
    with pytest.raises(CorruptFileError, match=r"is not the file of a tokenizer"):
        vocabulary_of("write_tokens", find_tokenizer("write_tokens", tmp_path))
