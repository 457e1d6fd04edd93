# SPDX-License-Identifier: Apache-2.0
"""No test finds models that another one loaded."""

from __future__ import annotations

import pytest

from curator_df.memory.process_cache import release_held


@pytest.fixture(autouse=True)
def _forget():
    yield
    release_held()
