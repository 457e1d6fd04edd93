# SPDX-License-Identifier: Apache-2.0
"""The table of keys finds what a dictionary finds."""

import numpy as np
import pytest

from curator_df.kernels.rows.key_tables import KeyTable, table_bytes


@pytest.mark.parametrize("low", [1 << 40, 3], ids=["spread", "in the same slots"])
def test_each_key_has_the_address_that_it_was_first_put_with(low):
    chance = np.random.default_rng(3)
    known, table = {}, KeyTable(900)
    for start in range(0, 3_000, 250):
        hashes = np.stack([chance.integers(0, 300, 250), chance.integers(0, low, 250) % 3], axis=1).astype(np.uint64)
        addresses = np.arange(start, start + 250)
        expected = [
            known.setdefault(tuple(key), address) for key, address in zip(hashes.tolist(), addresses, strict=True)
        ]
        assert table.put(hashes, addresses).tolist() == expected
    assert table.keys == len(known) > 800


def test_keys_of_missing_values_and_of_the_first_row_are_keys():
    table = KeyTable(10)
    hashes = np.array([[0, 0], [2**64 - 1, 2**64 - 1], [0, 0], [2**64 - 1, 2**64 - 1]], dtype=np.uint64)
    assert table.put(hashes, np.array([0, 1, 2, 3])).tolist() == [0, 1, 0, 1]


@pytest.mark.parametrize("most_keys", [1, 2, 3, 1_000, 1_365, 1_366])
def test_a_third_of_the_slots_stays_empty_at_least(most_keys):
    assert table_bytes(most_keys) / 24 > 1.5 * most_keys - 1
