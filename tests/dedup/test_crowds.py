# SPDX-License-Identifier: Apache-2.0
"""Near copies among pages of one template are found as often as the curve says, at a cost that grows with the rows."""

import json
import random
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import curator_df as cdf
from curator_df.dedup.near.crowds import ALL_PAIRS, OwnPairs
from curator_df.dedup.near.settings import IN_CROWD
from curator_df.kernels.minhash.jaccard import jaccard_similarities
from curator_df.kernels.minhash.signatures import band_hashes
from tests.core.runner.fake_client import inline_cluster

KEYS = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 40)), min_size=1, max_size=60)


@pytest.fixture(scope="module", autouse=True)
def cluster():
    with inline_cluster(memory="1GB", cpus=2) as running:
        yield running


@given(KEYS, st.integers(1, 60))
def test_rows_with_a_common_key_are_paired_whatever_the_pieces(keys, size):
    keys = sorted(set(keys))
    rows = np.array(keys, dtype=np.uint64)
    pairs = OwnPairs()
    found = [tuple(edge) for at in range(0, len(rows), size) for edge in pairs.of(rows[at : at + size]).tolist()]
    expected, in_crowd = set(), set()
    for key in range(4):
        some = [row for one, row in keys if one == key]
        for place in range(1, len(some)):
            expected |= {(some[place], other) for other in (some[0], *some[max(place - 2, 0) : place])}
        if len(some) > ALL_PAIRS:
            in_crowd |= {(row, some[0]) for row in some[1:]}
    assert {edge[:2] for edge in found} == expected
    assert {edge[:2] for edge in found if edge[2] == int(IN_CROWD)} == in_crowd
    assert len(found) <= 4 * len(keys)


class Pages:
    """Pages of words, some of them near copies of others."""

    def __init__(self, seed: int = 1) -> None:
        self.chance = random.Random(seed)
        letters = "abcdefghijklmnopqrstuvwxyz"
        self.vocabulary = ["".join(self.chance.choices(letters, k=self.chance.randint(3, 9))) for _ in range(4_000)]
        self.texts: list[str] = []
        self.pairs: list[tuple[int, int]] = []

    def words(self, count: int) -> str:
        return " ".join(self.chance.choices(self.vocabulary, k=count))

    def add_copy(self, number: int, own: int, changed: int) -> int:
        words = self.texts[number].split()
        at = len(words) - own + self.chance.randrange(max(own - changed, 1))
        words[at : at + changed] = [f"{word}x" for word in self.chance.choices(self.vocabulary, k=changed)]
        self.pairs.append((number, len(self.texts)))
        self.texts.append(" ".join(words))
        return len(self.texts) - 1

    def with_copies(self, own: int, changed: int, copies: int = 80) -> "Pages":
        for number in self.chance.sample(range(len(self.texts)), copies):
            self.add_copy(number, own, changed)
        return self


def one_template(pages: Pages, count: int = 500) -> Pages:
    template = pages.words(300)
    pages.texts = [f"{template} {pages.words(44)}" for _ in range(count)]
    return pages.with_copies(44, 24)


def half_template(pages: Pages) -> Pages:
    template = pages.words(300)
    pages.texts = [f"{template} {pages.words(150)}" for _ in range(400)]
    return pages.with_copies(150, 40)


def mixed_templates(pages: Pages) -> Pages:
    half = pages.words(150)
    templates = [f"{half} {pages.words(150)}" for _ in range(4)]
    pages.texts = [f"{pages.chance.choice(templates)} {pages.words(50)}" for _ in range(600)]
    return pages.with_copies(50, 24)


def templates_in_a_template(pages: Pages) -> Pages:
    site, sections = pages.words(200), [pages.words(100) for _ in range(6)]
    pages.texts = [f"{site} {pages.chance.choice(sections)} {pages.words(44)}" for _ in range(600)]
    return pages.with_copies(44, 24)


def copies_of_copies(pages: Pages) -> Pages:
    template = pages.words(300)
    pages.texts = [f"{template} {pages.words(50)}" for _ in range(400)]
    for number in range(30):
        last = number
        for _ in range(4):
            last = pages.add_copy(last, 50, 12)
    return pages


def short_own_part(pages: Pages) -> Pages:
    template = pages.words(300)
    pages.texts = [f"{template} {pages.words(30)}" for _ in range(400)]
    return pages.with_copies(30, 3)


SHAPES = [one_template, half_template, mixed_templates, templates_in_a_template, copies_of_copies, short_own_part]


def similarities(pages: Pages, scheme: cdf.minhash.Scheme, pairs: list) -> np.ndarray:
    texts = pd.Series(pages.texts, dtype="string[pyarrow]")
    return jaccard_similarities(texts, texts, np.array(pairs, dtype=np.int64), scheme)


def write_pages(folder: Path, pages: Pages) -> str:
    lines = (json.dumps({"id": number, "text": text}) + "\n" for number, text in enumerate(pages.texts))
    (folder / "in.jsonl").write_text("".join(lines))
    return str(folder / "in.jsonl")


@pytest.mark.parametrize(
    ("shape", "scheme", "linkage"),
    [
        (shape, scheme, ("direct", "transitive")[(number + other) % 2])
        for number, shape in enumerate(SHAPES)
        for other, scheme in enumerate((cdf.minhash.NEMO, cdf.minhash.FINEWEB))
    ],
    ids=lambda value: getattr(value, "__name__", None) or getattr(value, "name", value),
)
def test_copies_in_a_crowd_are_found_as_the_curve_says(tmp_path, shape, scheme, linkage):
    pages = shape(Pages())
    found = similarities(pages, scheme, pages.pairs)
    similar = [pair for pair, j in zip(pages.pairs, found, strict=True) if j >= 0.8]
    assert len(similar) > 50
    docs = cdf.read_jsonl(write_pages(tmp_path, pages))
    cdf.write_parquet(cdf.drop_near_duplicates(docs, scheme=scheme, linkage=linkage), tmp_path / "out")
    kept = {number for file in (tmp_path / "out").glob("*.parquet") for number in pq.read_table(file)["id"].to_pylist()}
    share = np.mean([not (one in kept and two in kept) for one, two in similar])
    # The curve is the chance that two signatures agree in a band; these signatures are drawn already.
    hashes = band_hashes(pd.Series(pages.texts, dtype="string[pyarrow]"), scheme)
    agree = np.mean([(hashes[one] == hashes[two]).any() for one, two in similar])
    assert abs(agree - scheme.candidate_probability(found[found >= 0.8]).mean()) < 0.12
    assert share >= agree - 0.01
    if shape is not short_own_part:  # no page is like another, except for copies
        originals = len(pages.texts) - len(pages.pairs)
        assert len(kept & set(range(originals))) == originals


@pytest.mark.parametrize("scheme", [cdf.minhash.NEMO, cdf.minhash.FINEWEB], ids=lambda scheme: scheme.name)
def test_the_estimate_of_recall_is_near_the_truth(tmp_path, scheme):
    pages = one_template(Pages(), count=150)
    everything = [(one, two) for two in range(len(pages.texts)) for one in range(two)]
    truth = [pair for pair, j in zip(everything, similarities(pages, scheme, everything), strict=True) if j >= 0.8]
    groups = cdf.find_near_duplicates(
        cdf.read_jsonl(write_pages(tmp_path, pages)), id="id", scheme=scheme, workdir=tmp_path
    )
    found = groups.compute().set_index("id").group.to_dict()
    share = np.mean([one in found and found[one] == found.get(two) for one, two in truth])
    report = cdf.describe_near_duplicates(groups)
    assert abs(report.recall - share) <= 0.02
    assert report.recall_interval[0] <= report.recall <= report.recall_interval[1] <= 1
    assert f"{report.recall:.1%} of the pairs" in str(report)


def test_a_crowd_costs_in_proportion_to_its_rows(tmp_path):
    compared = {}
    for count in (400, 800):
        (tmp_path / str(count)).mkdir()
        docs = cdf.read_jsonl(write_pages(tmp_path / str(count), one_template(Pages(), count)))
        receipt = cdf.write_parquet(cdf.drop_near_duplicates(docs, scheme="fineweb"), tmp_path / str(count) / "out")
        compared[count] = receipt.exchanges[0].details["compared"]
    assert compared[800] < 2.4 * compared[400]
    assert compared[800] < 20 * 880
