# SPDX-License-Identifier: Apache-2.0
"""Wait for what another process does."""

import time

from curator_df.memory.system import read_stat


def is_alive(pid):
    try:
        return read_stat(pid)[0] != "Z"
    except OSError:
        return False


def wait_until(condition, seconds=10):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)
