# SPDX-License-Identifier: Apache-2.0
"""Random order, sampling and repetition of rows by their addresses."""

import itertools

import numpy as np

from curator_df.kernels.rows.row_sample import sampled
from curator_df.kernels.rows.row_shuffle import order_keys, times_taken


def test_samples_and_epochs_with_one_seed_are_independent():
    addresses = np.arange(100_000)
    sample = sampled(addresses.view(np.uint64).copy(), 0.3, seed=0)
    taken = times_taken(addresses, 0.3, 0, "") == 1
    assert abs((sample & taken).mean() - 0.09) < 4 * 0.001
    keys = order_keys(addresses[sample], 0, "")
    assert abs((keys < np.uint64(1 << 63)).mean() - 0.5) < 4 * 0.003


def test_more_epochs_take_all_that_fewer_took():
    addresses = np.arange(10_000)
    counts = [times_taken(addresses, epochs, 5, "web") for epochs in (0.0, 0.1, 0.9, 1.0, 1.4, 2.0)]
    assert all((fewer <= more).all() for fewer, more in itertools.pairwise(counts))
    assert set(counts[0]) == {0}
    assert set(counts[3]) == {1}
    other = times_taken(addresses, 0.5, 5, "wiki") & times_taken(addresses, 0.5, 5, "web")
    assert abs(other.mean() - 0.25) < 0.03
