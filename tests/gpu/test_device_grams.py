# SPDX-License-Identifier: Apache-2.0
"""N-grams of words on a device: the CPU's numbers bit for bit in numba's simulator, in the room that is priced. Needs no GPU."""

import random

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from curator_df.kernels.device.support import LONG_GRAM_BYTES, SHORT_GRAM_FACTOR
from curator_df.kernels.metrics.catalog import METRICS, features_of
from curator_df.kernels.metrics.counts import GRAM_FEATURES, REPEAT_FEATURES, SHORT_TEXT_BYTES
from curator_df.kernels.metrics.measure import measure
from curator_df.kernels.metrics.ngrams.gram_counts import table_slots
from curator_df.kernels.metrics.ngrams.short_grams import short_text_cells
from curator_df.kernels.text.word_reading import WINDOW
from tests.gpu.scripts import LONG_METRICS, put_texts, run_script

GRAM_METRICS = [name for name in METRICS if features_of([name]) & (GRAM_FEATURES | REPEAT_FEATURES)]
PASSAGE = "the quick brown fox jumps over the lazy dog and then it sleeps a while in the sun of noon. "
SHORT = [
    "",
    None,
    "word",
    " \n\t ",
    "one two",
    "a b c d e f g h i",
    "a b c d e f g h i j",
    "a b ab a b ab abab a b a b a b",
    "\xc4\xd6 \xfc\xa0x \u0645\u0631 \u4e00\u4e8c \u4e00\u4e8c\u3000\xc4\xd6 \xfc \xc4\xd6 \xfc\u2003x \U0001f600 \U0001f600",
    PASSAGE * 6,
    f"before {PASSAGE}between {PASSAGE}after {PASSAGE.upper()}",
    "to be or not to be " * 12,
    "x " * 60,
    "\xff\xc3( a \x80 ab \xf0\x9f " * 3,
    *(f"{number} of many that are short, {number % 3} of many that are alike" for number in range(60)),
]
WORDS = [f"{number:02x}" for number in range(256)]
PASSAGE_WORDS = random.Random(5).choices(WORDS, k=600)
LONG = [
    " ".join([*PASSAGE_WORDS, *random.Random(7).choices(WORDS, k=words - 1_200), *PASSAGE_WORDS])
    for words in (20_000, WINDOW + 400)
]
"""Of more words than a window has."""


@pytest.fixture(scope="module")
def simulated(tmp_path_factory):
    folder = tmp_path_factory.mktemp("grams")
    put_texts(pa.array([*SHORT, *LONG], pa.large_string()), folder / "texts.arrow")
    run_script("simulated_grams", folder / "texts.arrow", folder / "found.npz", simulated=True)
    with np.load(folder / "found.npz") as found:
        return dict(found)


def on_cpu(texts, metrics):
    [span] = measure(pd.Series(pd.array(texts, dtype=pd.ArrowDtype(pa.large_string()))), metrics)
    return span.values


@pytest.mark.parametrize("way", ["short", "as_long"])
def test_metrics_are_those_of_the_cpu_either_way(simulated, way):
    known = [number for number, text in enumerate(SHORT) if text is not None]
    for name, expected in on_cpu(SHORT, GRAM_METRICS).items():
        found = simulated[f"{way} {name}"]
        assert found.dtype == expected.dtype, name
        np.testing.assert_array_equal(found.view(np.int64)[known], expected.view(np.int64)[known], err_msg=name)
        assert len(np.unique(found[known])) > 2, f"{name} tells few texts apart"


def test_texts_of_more_words_than_a_window_have_the_numbers_of_the_cpu(simulated):
    assert [len(text.split()) for text in LONG] == [20_000, WINDOW + 400]
    for text, names in zip(LONG, LONG_METRICS, strict=True):
        for name, expected in on_cpu([text], names).items():
            assert simulated[f"long {name}"].view(np.int64) == expected.view(np.int64) != 0, name


def test_texts_are_counted_in_parts(simulated):
    # For two groups of n-grams every text is met twice: when what it needs is found, and when it is counted.
    for way in ("short", "as_long"):
        parts = simulated[f"{way} parts"]
        assert parts.sum() == 4 * len(SHORT)
        assert 4 + 4 * 3 < len(parts) < 2 * len(SHORT)


@pytest.mark.parametrize("way", ["short", "as_long", "bounded", "long_0", "long_1"])
def test_what_is_held_is_no_more_than_the_price(simulated, way):
    held, price = simulated[f"{way} price"]
    assert 0 < held <= price


def test_room_for_n_grams_is_bounded(simulated):
    # Of 40 rows at a time the counts of n-grams and of lengths, what each text needs, and which are counted; and all results.
    largest = max(8 * short_text_cells(len(text.split()), len(text.encode())) for text in SHORT if text)
    every = sum(8 * short_text_cells(len(text.split()), len(text.encode())) for text in SHORT if text)
    assert largest < 10_000 < every / 5
    held, _ = simulated["bounded price"]
    arrays = 40 * 8 * (9 + 13) + len(SHORT) * 8 * 9 + 41 * 56
    assert arrays < held < arrays + 10_000


def test_prices_of_one_text_are_what_it_needs_at_most():
    for size in (0, 1, 2, 3, 99, 100, SHORT_TEXT_BYTES - 1, SHORT_TEXT_BYTES):
        assert 8 * short_text_cells((size + 1) // 2, size) <= SHORT_GRAM_FACTOR * size + 128
    assert 5 * 8 * (WINDOW + 1) + 4 * table_slots(WINDOW) <= LONG_GRAM_BYTES
    for size in (2 * WINDOW + 2, 1 << 20):
        assert 5 * 8 * (WINDOW + 1) + 4 * table_slots((size + 1) // 2) <= 4 * size + LONG_GRAM_BYTES
