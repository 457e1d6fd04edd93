# SPDX-License-Identifier: Apache-2.0
"""Tokens are those of the package tokenizers, whatever the blocks; rules of profiles read the columns."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import dask.dataframe as dd
import pandas as pd
import pytest

import curator_df as cdf
from curator_df.core.ranges.blocks import BlockKernel
from curator_df.errors import ColumnError, CorruptFileError, InputError, MissingExtraError, ParameterError, SchemaError
from curator_df.memory.process_cache import release_held
from curator_df.models.token_count import add_token_count_block
from curator_df.models.tokens.tokenizer import CALL_BYTES, find_tokenizer
from curator_df.ops.filters.profile import keep_profile_block
from curator_df.ops.filters.rules import Profile, Rule
from tests.contracts.operator_cases import computed, kernels_of

tokenizers: Any = pytest.importorskip("tokenizers", reason="needs the tokenizers extra (tokenizers is not installed)")

TEXTS = ["to be or not to be", "", None, " to  be", "caf\u00e9 \u6f22\u5b57", "be " * 40]


def trained(folder: Path) -> Any:
    """Train a byte-level tokenizer on some words; its file cuts and pads texts, and marks where they begin."""
    made = tokenizers.Tokenizer(tokenizers.models.BPE())
    made.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = tokenizers.pre_tokenizers.ByteLevel.alphabet()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=300, initial_alphabet=alphabet, special_tokens=["<s>"], show_progress=False
    )
    made.train_from_iterator(["to be or not to be that is the question"] * 9, trainer)
    made.post_processor = tokenizers.processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 0)])
    made.enable_truncation(4)
    made.enable_padding(length=3)
    made.save(str(folder / "tokenizer.json"))
    made.no_truncation()
    made.no_padding()
    return made


@pytest.fixture
def tokenizer(tmp_path):
    yield tmp_path, trained(tmp_path)
    release_held()


def table(texts: list[str | None], partitions: int = 1) -> Any:
    return dd.from_pandas(pd.DataFrame({"text": pd.array(texts, "string[pyarrow]")}), npartitions=partitions)


def length(made: Any, text: str) -> int:
    return len(made.encode(text, add_special_tokens=False))


def test_tokens_are_those_of_the_tokenizer(tokenizer):
    folder, made = tokenizer
    for where in (folder, folder / "tokenizer.json"):
        added = computed(cdf.add_token_count(table(TEXTS, 2), tokenizer=where))
        assert added["token_count"].dtype == "Int64"
        assert [None if value is pd.NA else value for value in added["token_count"]] == [
            None if text is None else length(made, text) for text in TEXTS
        ]


def test_special_tokens_are_counted_where_they_are_asked_for(tokenizer):
    folder, made = tokenizer
    added = computed(cdf.add_token_count(table(TEXTS), tokenizer=folder, special_tokens=True, into="n"))
    assert added["n"].dropna().tolist() == [len(made.encode(text)) for text in TEXTS if text is not None]


def test_lengths_for_a_token(tokenizer):
    folder, made = tokenizer
    for unit, size in (("characters", len), ("bytes", lambda text: len(text.encode()))):
        added = computed(cdf.add_token_count(table(TEXTS), tokenizer=folder, per_token=unit, special_tokens=True))
        ratios = added[f"{unit}_per_token"]
        assert ratios.dtype == "Float64"
        assert ratios.dropna().tolist() == [
            size(text) / length(made, text) if text else -1 for text in TEXTS if text is not None
        ]
        assert ratios.isna().tolist() == [text is None for text in TEXTS]


def test_a_rule_reads_the_columns_beside_the_text(tokenizer):
    folder, _ = tokenizer
    rules = (
        Rule("characters_per_token", ">=", 2, "fertility"),
        Rule("word_count", ">=", 3, "short"),
        Rule("token_count", "<=", 30, "long"),
    )
    profile = Profile("tokens", "1", "example", rules)
    assert profile.text_metrics == ("word_count",)
    counted = cdf.add_token_count(table(TEXTS), tokenizer=folder, per_token="characters")
    added = computed(counted.pipe(cdf.add_profile, profile))
    assert [None if value is pd.NA else value for value in added["reason"]] == [
        None,
        "fertility",
        "missing_text",
        "short",
        "fertility",
        "long",
    ]
    assert list(added.columns) == ["text", "token_count", "characters_per_token", "reason", "word_count"]
    kept = counted.pipe(cdf.keep_profile, profile)
    assert computed(kept)["text"].tolist() == TEXTS[:1]
    stored = computed(counted.pipe(cdf.add_metrics, profile))
    outcome = keep_profile_block(stored, profile=profile, text="text", add_metrics=False, from_metrics=True)
    assert outcome.dropped == {"fertility": 2, "short": 1, "long": 1, "missing_text": 1}
    _, said = outcome.rejects()
    assert said["value"][0] == -1
    funnel = cdf.describe_drops(counted, profile)
    assert funnel.set_index("reason")["rows_dropped"].to_dict() == {**outcome.dropped, pd.NA: 0}


def test_a_rule_on_a_column_that_is_not_there_is_an_error(tokenizer):
    profile = Profile("tokens", "1", "example", (Rule("token_count", ">=", 3, "short"),))
    with pytest.raises(ColumnError, match="keep_profile needs the column 'token_count'"):
        cdf.keep_profile(table(TEXTS), profile)
    with pytest.raises(SchemaError, match="Make the column with add_token_count"):
        cdf.keep_profile(table(TEXTS).assign(token_count="three"), profile)
    with pytest.raises(ParameterError, match="'token_count' is not a metric, but a column that add_token_count adds"):
        cdf.add_metrics(table(TEXTS), ["token_count"])


def test_the_plan_knows_what_a_tokenizer_takes(tokenizer):
    folder, _ = tokenizer
    [kernel] = kernels_of(cdf.add_token_count(table(TEXTS), tokenizer=folder))
    size = (folder / "tokenizer.json").stat().st_size
    assert isinstance(kernel, BlockKernel)
    assert kernel.price.held_bytes > size
    assert kernel.price.fixed_bytes == CALL_BYTES


def test_another_place_is_the_same_program_and_another_tokenizer_is_not(tokenizer, tmp_path_factory):
    folder, made = tokenizer
    other = tmp_path_factory.mktemp("other")
    (other / "tokenizer.json").write_bytes((folder / "tokenizer.json").read_bytes())
    here, there = find_tokenizer("a", folder), find_tokenizer("a", other)
    assert here.digest == there.digest
    made.save(str(other / "tokenizer.json"))
    assert find_tokenizer("a", other).digest != here.digest


PIECES = b"".join(b"\n\x0e\n\x05<%03d>\x15\0\0\0\0\x18\x02" % number for number in range(20))
"""Pieces of a model of SentencePiece."""


@pytest.mark.parametrize("name", ["tokenizer.model", "spiece.model", "vocab.txt"])
def test_a_damaged_vocabulary_is_named(tmp_path, name):
    whole = b"[UNK]\nhello\n" if name.endswith(".txt") else PIECES
    path, damaged = (
        tmp_path / name,
        [(b"", "is empty"), (b"\x89PNG\r\n\x1a\n\0\0", "is n(ot text|either a SentencePiece)")],
    )
    damaged += (
        [] if name.endswith(".txt") else [(whole[:-3], "is truncated or damaged"), (whole + b"\xff", "is truncated")]
    )
    for content, problem in damaged:
        path.write_bytes(content)
        for place in (tmp_path, path):
            with pytest.raises(CorruptFileError, match=rf"{name} {problem}.*\. Copy or download the file again"):
                cdf.add_token_count(table(TEXTS), tokenizer=place)
    path.write_bytes(whole)
    find_tokenizer("a", tmp_path)
    with pytest.raises(
        InputError, match=rf"{name}' is not a tokenizer\.json, .* Pass its folder, '{tmp_path}', instead, or write a"
    ):
        cdf.add_token_count(table(TEXTS), tokenizer=path)


def test_what_is_no_tokenizer_is_an_error(tmp_path, monkeypatch):
    with pytest.raises(InputError, match=r"has neither tokenizer\.json nor"):
        cdf.add_token_count(table(TEXTS), tokenizer=tmp_path)
    with pytest.raises(InputError, match="neither an existing file or folder"):
        cdf.add_token_count(table(TEXTS), tokenizer="no such/tokenizer/here")
    with pytest.raises(ParameterError, match="revision='main' does not apply"):
        cdf.add_token_count(table(TEXTS), tokenizer=tmp_path, revision="main")
    with pytest.raises(ParameterError, match="per_token='words' is not one of"):
        cdf.add_token_count(table(TEXTS), tokenizer=tmp_path, per_token="words")
    broken = tmp_path / "tokenizer.json"
    broken.write_text("{}")
    found = find_tokenizer("add_token_count", broken)
    arguments = {"text": "text", "tokenizer": found, "into": "n", "ratio": None, "special_tokens": False}
    with pytest.raises(CorruptFileError, match="the package tokenizers cannot read"):
        add_token_count_block(pd.DataFrame({"text": ["a"]}), **arguments)
    for content in ("", '{"version": "1.0", "trunc', "<!DOCTYPE html>"):
        broken.write_text(content)
        with pytest.raises(CorruptFileError, match=r"tokenizer\.json is (empty|truncated|not JSON)\. Copy or download"):
            cdf.add_token_count(table(TEXTS), tokenizer=broken)
    broken.unlink()
    with pytest.raises(InputError, match="is not on this machine"):
        add_token_count_block(pd.DataFrame({"text": ["a"]}), **arguments)
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(MissingExtraError, match=r"pip install .*\[tokenizers\]"):
        cdf.add_token_count(table(TEXTS), tokenizer=broken)


def test_files_of_a_folder_that_no_tokenizer_reads_are_not_checked(tmp_path):
    (tmp_path / "vocab.json").write_text("{}")
    (tmp_path / "trainer_state.json").write_text('{"log')
    assert find_tokenizer("add_token_count", tmp_path).path == str(tmp_path)
    (tmp_path / "vocab.json").write_text('{"a')
    with pytest.raises(CorruptFileError, match=r"vocab\.json is truncated"):
        find_tokenizer("add_token_count", tmp_path)
