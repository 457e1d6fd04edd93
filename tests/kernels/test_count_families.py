# SPDX-License-Identifier: Apache-2.0
"""What follows from the families of counts: feature bits, columns, kernels to compile, passes, and memory on a GPU."""

import dataclasses
from itertools import combinations

import numpy as np
import pandas as pd
import pytest

from curator_df.kernels.compiling import kernel_sets
from curator_df.kernels.device import measured, support, tables
from curator_df.kernels.metrics import catalog, counts, measure
from curator_df.kernels.metrics.counts import COUNTS, FAMILIES, CountFamily, features_of_counts
from curator_df.kernels.metrics.metric import Metric
from curator_df.kernels.metrics.source import source_metrics


def test_families_share_no_bits_and_no_counts():
    for one, other in combinations(FAMILIES, 2):
        assert not one.features & other.features
        assert not set(one.counts) & set(other.counts)
    assert len(COUNTS) == len(set(COUNTS))


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.counts[0])
def test_every_count_asks_for_bits_of_its_family_and_all_bits_are_asked_for(family):
    assert all(features_of_counts([name]) & ~family.features == 0 for name in family.counts)
    assert features_of_counts(family.counts) == family.features
    assert set(family.kernels + family.token_kernels) <= set(kernel_sets.METRICS) <= set(kernel_sets.COMPILE_SECONDS)


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.counts[0])
def test_a_gpu_has_one_way_to_count_a_family_and_a_table_only_where_it_is_priced(family):
    own_branches = (counts.WORDS, counts.CHARACTERS, counts.GRAMS, counts.REPEATS)
    ways = [family in kinds for kinds in (tables.TABLE_KERNELS, measured.PLAIN_KERNELS, own_branches)]
    assert sum(ways) == 1
    assert (family in tables.TABLE_KERNELS) == (family.table_factor > 0)


def test_a_count_of_two_parts_asks_for_both():
    assert features_of_counts(["hashes"]) == counts.COUNT_WORDS | counts.COUNT_MARKS
    assert features_of_counts(["words"]) == counts.COUNT_WORDS
    assert features_of_counts(["repeated_6_gram_letters"]) == counts.COUNT_FIRST_DUPLICATE << 1


def test_all_metrics_together_are_those_of_each_alone():
    texts = pd.Series(["To be, or not to be.\n\nTo be, or not to be.\n\n# a\n", "", "x" * 40 + " { lorem ipsum"])
    [together] = measure.measure(texts, list(catalog.METRICS))
    for name in catalog.METRICS:
        [alone] = measure.measure(texts, [name])
        np.testing.assert_array_equal(alone.values[name], together.values[name], err_msg=name)


def test_a_family_added_to_the_list_is_measured_compiled_and_priced(monkeypatch):
    def count_vowels(data, offsets, byte_classes, page_of, pages, features, columns):
        assert features & family.features
        for row in range(len(columns)):
            columns[row, -1] = sum(byte in b"aeiou" for byte in data[offsets[row] : offsets[row + 1]])

    family = CountFamily(((1 << 50, ("vowels",)),), ("metrics.source.source_metrics.count_vowels",))
    metric = Metric("vowel_count", "Int64", "vowels", None, "Number of vowels.", "this test", "0 for an empty text")
    monkeypatch.setattr(source_metrics, "count_vowels", count_vowels, raising=False)
    for module in (counts, measure, support):
        monkeypatch.setattr(module, "FAMILIES", (*FAMILIES, family))
    for module in (measure, catalog):  # the columns follow from the families when the module is imported
        monkeypatch.setattr(module, "COUNTS", (*COUNTS, *family.counts))
    for module in (catalog, support):
        monkeypatch.setattr(module, "METRICS", {**catalog.METRICS, metric.name: metric})
    assert measure.metric_kernels(["vowel_count"]) == family.kernels
    [found] = measure.measure(pd.Series(["a tree", ""]), ["vowel_count", "word_count"])
    assert (found.values["vowel_count"].tolist(), found.values["word_count"].tolist()) == ([3, 0], [2, 0])
    assert support.metrics_price(["vowel_count"])[1] == support.SPAN_ROWS * 8 * family.columns
    with_table = dataclasses.replace(family, table_factor=3.0)
    monkeypatch.setattr(support, "FAMILIES", (*FAMILIES, with_table))
    assert support.metrics_price(["vowel_count"])[0] == support.COLUMN_FACTOR + 3.0
