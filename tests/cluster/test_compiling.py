# SPDX-License-Identifier: Apache-2.0
"""Kernels are compiled by a process of their own, and who waits for it minutes is told why."""

import re

from curator_df.cluster import compiling
from curator_df.kernels.warm import is_compiled


def test_what_takes_minutes_is_said_once(tmp_path, monkeypatch, caplog):
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(compiling, "GROUPS", ("segments", "comments"))
    compiling.compile_all_kernels()
    assert is_compiled("segments")
    assert is_compiled("comments")
    said, done = caplog.messages
    assert said.startswith(
        "Compiling 2 groups of kernels (segments, comments). This takes up to a minute each, once per"
    )
    assert re.fullmatch(r"compiled the kernels in [\d.]+ s", done)
    caplog.clear()
    compiling.compile_all_kernels()
    assert caplog.messages == []
    monkeypatch.setattr(compiling, "is_compiled", lambda group: False)
    compiling.compile_kernels("comments")
    assert caplog.messages[0].startswith("compiling 1 group of kernels (comments), which takes")
