# SPDX-License-Identifier: Apache-2.0
"""Each operator and each reader names all compiled functions that it calls: workers may not compile."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import curator_df as cdf
from curator_df.core.runner import session
from curator_df.kernels.compiling.kernel_sets import COMPILE_SECONDS, EVERY_RUN, OPERATORS
from tests.contracts.operator_cases import BLOCKWISE, computed, kernels_of, table
from tests.contracts.test_on_workers import RUNS, write_corpus
from tests.core.runner.fake_client import inline_cluster


@pytest.fixture
def called(monkeypatch: pytest.MonkeyPatch) -> Iterator[set[str]]:
    """The kernels that are called while a test runs."""
    found: set[str] = set()

    def noted(name: str, function: Any) -> Any:
        def call(*arguments: Any) -> Any:
            found.add(name)
            return function(*arguments)

        return call

    for name in COMPILE_SECONDS:
        module, _, function = name.rpartition(".")
        owner = importlib.import_module(f"curator_df.kernels.{module}")
        monkeypatch.setattr(owner, function, noted(name, getattr(owner, function)))
    return found


@pytest.mark.parametrize("case", BLOCKWISE, ids=str)
def test_a_block_calls_what_its_kernel_names(case: Any, called: set[str]) -> None:
    built = case(table())
    called.clear()
    computed(built)
    named = {kernel for one in kernels_of(built) for kernel in one.compiled}
    assert called <= named | set(EVERY_RUN)
    assert named <= set(COMPILE_SECONDS)
    assert named <= set(OPERATORS.get(case.operator, ()))


@pytest.mark.parametrize("write", RUNS, ids=lambda write: write.__name__)
def test_a_run_calls_what_its_plan_names(
    write: Any, called: set[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    named: set[str] = set(EVERY_RUN)
    write_corpus(tmp_path / "in")
    with inline_cluster(memory="4GB", cpus=2):
        monkeypatch.setattr(session.current_session(), "compile", named.update)
        docs = cdf.read_jsonl(str(tmp_path / "in"), on_bad_rows="quarantine")
        write(docs, tmp_path / "out")
    assert called <= named
    assert len(named) < len(COMPILE_SECONDS) / 2
