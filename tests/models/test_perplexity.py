# SPDX-License-Identifier: Apache-2.0
"""Perplexities are those of KenLM's library on texts that are normalized and split as CCNet does it."""

from __future__ import annotations

import math
import random
import re
import unicodedata
from pathlib import Path
from typing import Any

import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest

import curator_df as cdf
from curator_df.errors import ColumnError, CorruptFileError, InputError, ParameterError
from curator_df.memory.process_cache import release_held
from curator_df.models.perplexity import PIECE_BYTES, LoadedNgramModel, find_ngram_model, normalized

kenlm: Any = pytest.importorskip("kenlm", reason="needs the perplexity extra (kenlm is not installed)")
DATA = Path(__file__).parents[1] / "data"
BINARY, ARPA = str(DATA / "pets.arpa.bin"), str(DATA / "pets.arpa")
"""The same model in both formats; ``build_binary -s pets.arpa pets.arpa.bin`` of KenLM made the first from the second."""
TEXTS = [
    "the cat sat on the mat .",
    "The DOG sat.",
    "",
    None,
    "quantum chromodynamics",
    "  \n ",
    "caté sat\non the mat",
]


@pytest.fixture(autouse=True)
def released():
    yield
    release_held()


def table(texts: list[str | None] = TEXTS, **columns: Any) -> Any:
    return dd.from_pandas(pd.DataFrame({"text": pd.array(texts, "string[pyarrow]"), **columns}), npartitions=2)


def score(words: list[str]) -> float:
    """Return the perplexity of tokens by KenLM's own function."""
    return float(10.0 ** (-kenlm.Model(BINARY).score(" ".join(words)) / (len(words) + 1)))


@pytest.mark.parametrize("path", [BINARY, ARPA])
def test_perplexities_are_those_of_kenlm(path):
    made = table().pipe(cdf.add_perplexity, path).compute()
    assert str(made.perplexity.dtype) == "Float64"
    wanted = [
        "the cat sat on the mat .",
        "the dog sat.",
        None,
        None,
        "quantum chromodynamics",
        None,
        "cate saton the mat",
    ]
    for found, words in zip(made.perplexity, wanted, strict=True):
        assert pd.isna(found) if words is None else found == pytest.approx(score(words.split()), rel=1e-6)
    assert made.perplexity[0] < made.perplexity[4]
    unchanged = table(["The cat", "the cat"]).pipe(cdf.add_perplexity, path, normalization="none").compute()
    assert unchanged.perplexity.tolist() == pytest.approx([score(["The", "cat"]), score(["the", "cat"])], rel=1e-6)


def plain(text: str) -> str:
    """Normalize as the steps of CCNet's ``normalize`` say, one after the other."""
    text = "".join(
        one for one in unicodedata.normalize("NFD", text.strip().lower()) if unicodedata.category(one) != "Mn"
    )
    text = re.sub(r"\d", "0", text)
    for old, new in zip("，。、„”“«»」「《》´∶：？！（）；–．～’…━〈〉【】％►—", [
        *(",", ".", ",", *['"'] * 9, "'", ":", ":", "?", "!", "(", ")", ";", "-", ". ", "~", "'", "..."),
        *("-", "<", ">", "[", "]", "%", "-", " - "),
    ], strict=True):  # fmt: skip
        text = text.replace(old, new)
    return re.sub(r"[\x00-\x1f\x7f-\x9f]", "", text)


def test_texts_are_normalized_as_the_steps_of_ccnet_say():
    source = random.Random(5)
    letters = "abzÀéßİΣσ １２٣9،„“”«1」《´∶：？！（）；–．～’…━〈〉【】％►— \t\n\x00\x85\u200b漢字カ゛ガ한국🙂e\u0301"
    for _ in range(2_000):
        text = "".join(source.choices(letters, k=source.randint(0, 12)))
        assert normalized(text) == plain(text)


def test_a_long_text_has_the_perplexity_of_the_whole(tmp_path):
    source = random.Random(6)
    words = source.choices(["the", "cat", "sat", "on", "mat", "dog", ".", "unseen"], k=3 * PIECE_BYTES // 4)
    text = " ".join(words)
    assert len(text) > 2 * PIECE_BYTES
    loaded = LoadedNgramModel(find_ngram_model("test", BINARY))
    assert loaded.perplexity(memoryview(text.encode()), is_normalized=True) == pytest.approx(score(words), rel=1e-4)
    one_word = memoryview("é".encode() * PIECE_BYTES)  # cut between characters, without a space
    assert math.isfinite(loaded.perplexity(one_word, is_normalized=False))


def test_tokens_are_those_of_sentencepiece(tmp_path):
    sentencepiece: Any = pytest.importorskip("sentencepiece", reason="needs the perplexity extra (sentencepiece)")
    sentences = tmp_path / "train.txt"
    sentences.write_text("\n".join(f"the {a} and the {b} sat" for a in ("cat", "dog") for b in ("mat", "log")))
    prefix = str(tmp_path / "pets.sp")
    options = {"vocab_size": 30, "hard_vocab_limit": False, "minloglevel": 2}
    sentencepiece.SentencePieceTrainer.train(input=str(sentences), model_prefix=prefix, **options)
    pieces = sentencepiece.SentencePieceProcessor(model_file=f"{prefix}.model")
    made = table().pipe(cdf.add_perplexity, BINARY, tokenizer=f"{prefix}.model").compute()
    for text, found in zip(TEXTS, made.perplexity, strict=True):
        words = pieces.encode_as_pieces(normalized(text or ""))
        assert found == pytest.approx(score(words), rel=1e-6) if words else pd.isna(found)
    long = " ".join(["the cat and the dog"] * 2_000)
    whole = score(pieces.encode_as_pieces(long))
    assert table([long]).pipe(cdf.add_perplexity, BINARY, tokenizer=f"{prefix}.model").compute().perplexity[
        0
    ] == pytest.approx(whole, rel=1e-4)
    broken = tmp_path / "broken.model"
    broken.write_bytes(Path(f"{prefix}.model").read_bytes()[:200])
    with pytest.raises(CorruptFileError, match=r"broken\.model cannot be read"):
        table().pipe(cdf.add_perplexity, BINARY, tokenizer=broken).compute()


def test_the_model_and_the_buckets_go_by_a_column():
    texts, languages = ["the cat sat", "the cat sat", "the cat sat", None], ["en", "de", "fr", "en"]
    docs = table(texts, language=pd.array(languages, "string[pyarrow]"))
    exact = score(["the", "cat", "sat"])
    buckets = {"en": (exact, exact + 1), "de": (exact + 1, exact + 2)}
    made = docs.pipe(cdf.add_perplexity, {"en": BINARY, "de": ARPA}, by="language", buckets=buckets).compute()
    assert made.perplexity.isna().tolist() == [False, False, True, True]
    assert made.perplexity_bucket.fillna("none").tolist() == ["middle", "head", "none", "none"]
    for dtype in ("category", "str", object):
        odd = table(texts, language=pd.Series(["en", None, "fr", "en"], dtype="string[pyarrow]").astype(dtype))
        found = odd.pipe(cdf.add_perplexity, {"en": BINARY}, by="language").compute().perplexity
        assert found.isna().tolist() == [False, True, True, True]
    tail = docs.pipe(cdf.add_perplexity, BINARY, buckets=(1, exact), into="odd").compute()
    assert tail.odd_bucket.fillna("none").tolist() == ["tail", "tail", "tail", "none"]


def test_the_receipt_counts_rows_without_a_perplexity(tmp_path):
    from tests.core.runner.fake_client import inline_cluster

    pd.DataFrame({"text": TEXTS}).to_json(tmp_path / "in.jsonl", orient="records", lines=True)
    with inline_cluster(memory="2GB", cpus=1):
        receipt = (
            cdf.read_jsonl(tmp_path / "in.jsonl")
            .pipe(cdf.add_perplexity, BINARY)
            .pipe(cdf.write_parquet, tmp_path / "out")
        )
    assert "rows_without_perplexity" in str(receipt.to_json())
    assert pd.read_parquet(tmp_path / "out").perplexity.isna().sum() == 3


@pytest.mark.parametrize(
    ("arguments", "error", "said"),
    [
        ({"model": "nowhere.bin"}, InputError, "there is no file .*nowhere.bin', which model= names"),
        ({"model": __file__}, InputError, "is not a model of KenLM"),
        ({"model": BINARY, "tokenizer": BINARY}, InputError, "is not a SentencePiece model"),
        ({"model": {"en": BINARY}}, ParameterError, "model= is a mapping, so by= must name the column"),
        ({"model": BINARY, "by": "text"}, ParameterError, "must be a dict with an entry for each value of that column"),
        ({"model": BINARY, "by": "langage"}, ColumnError, "langage"),
        ({"model": BINARY, "buckets": (3,)}, ParameterError, "must be two perplexities in ascending order"),
        ({"model": BINARY, "buckets": (3, 2)}, ParameterError, "in ascending order"),
        ({"model": BINARY, "into": "text"}, ColumnError, "text"),
        ({"model": {"a": BINARY}, "by": "text", "buckets": {"b": (1, 2)}}, ParameterError, "the same keys as model="),
    ],
)
def test_mistakes_are_errors_of_ours(arguments, error, said):
    with pytest.raises(error, match=said):
        table().pipe(cdf.add_perplexity, **arguments)


@pytest.mark.parametrize("path", [BINARY, ARPA])
def test_a_truncated_model_names_its_file(path, tmp_path):
    cut = tmp_path / "cut.bin"
    cut.write_bytes(Path(path).read_bytes()[:600])
    with pytest.raises(CorruptFileError, match=r"cut\.bin cannot be read: .* again"):
        table().pipe(cdf.add_perplexity, cut).compute()


def test_the_plan_counts_a_text_file_and_not_a_mapped_one(tmp_path):
    grams = 200_000
    numbers = np.random.default_rng(1).normal(-3, 1, grams).clip(-9, -0.1)
    lines = ["\\data\\", f"ngram 1={grams + 2}", "", "\\1-grams:", "-2\t<unk>", "-2\t<s>"]
    lines += [f"{number:.4f}\tw{place}" for place, number in enumerate(numbers)]
    large = tmp_path / "large.arpa"
    large.write_text("\n".join([*lines, "", "\\end\\", ""]))
    assert find_ngram_model("test", BINARY).held_bytes == 0
    assert find_ngram_model("test", large).held_bytes == 40 * (grams + 2)
