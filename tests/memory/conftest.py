# SPDX-License-Identifier: Apache-2.0
"""A guard of the process of a test."""

import pytest

from curator_df.memory.guard import Guard

MB = 1_000_000


@pytest.fixture
def watch(tmp_path):
    """Return a guard of the process of this test, so much above what it holds now, that sees it as the client."""

    def watch(root, free_bytes):
        made = Guard(root, 1 << 60, 50 * MB, str(tmp_path), 0)
        made.look()
        made._read()
        made.wall = made._bound + free_bytes
        return made

    return watch
