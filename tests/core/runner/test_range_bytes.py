# SPDX-License-Identifier: Apache-2.0
from types import SimpleNamespace

import pytest

from curator_df.core.runner.run import MOST_RANGES, range_bytes

MB = 1_000_000


@pytest.mark.parametrize(
    ("input_mb", "ranges"),
    [
        (1, 1),
        (17, 2),
        (48, 3),
        (64, 4),
        (65, 8),
        (268, 20),
        (470, 32),
        (1000, 32),
        (2000, 32),
        (2500, 40),
        (4_000_000, MOST_RANGES),
    ],
)
def test_a_few_ranges_are_as_many_as_two_or_four_threads_share_evenly(input_mb, ranges):
    source = SimpleNamespace(input_bytes=input_mb * MB)
    assert -(-source.input_bytes // range_bytes(source)) == ranges
