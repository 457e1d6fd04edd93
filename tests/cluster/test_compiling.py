# SPDX-License-Identifier: Apache-2.0
"""Kernels are compiled by a process of their own, and who waits for it minutes is told why."""

from curator_df.cluster import compiling
from curator_df.kernels.warm import is_compiled


def test_what_takes_minutes_is_said_once(tmp_path, monkeypatch, caplog):
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(compiling, "GROUPS", ("characters", "comments"))
    compiling.compile_all_kernels()
    assert is_compiled("characters")
    assert is_compiled("comments")
    (said,) = caplog.messages
    assert said.startswith("compiling 2 groups of kernels, which takes minutes, once on a machine")
    caplog.clear()
    compiling.compile_all_kernels()
    assert caplog.messages == []
