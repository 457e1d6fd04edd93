# SPDX-License-Identifier: Apache-2.0
"""The kernel and the writers of `write_tokens` stay within the memory that they state, on shapes of text that cost the most."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.contracts.test_budget import prose_documents, run_under, write_corpus
from tests.contracts.test_memory import ALLOWANCE_BYTES
from tests.models.tokens.memory_run import SHAPES_HERE, SINKS

pytest.importorskip("tokenizers", reason="needs the tokenizers extra (tokenizers is not installed)")
CHECKOUT = Path(__file__).resolve().parents[3]


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_peaks_are_at_most_what_is_stated():
    run = subprocess.run(
        [sys.executable, "-m", "tests.models.tokens.memory_run"],
        cwd=CHECKOUT,
        env={**os.environ, "ARROW_DEFAULT_MEMORY_POOL": "system", "MALLOC_ARENA_MAX": "2", "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=560,
    )
    measured = [json.loads(line) for line in run.stdout.splitlines()]
    wanted = {(shape, output, what) for shape in SHAPES_HERE for output in SINKS for what in ("kernel", "writer")}
    assert {(one["shape"], one["output"], one["what"]) for one in measured} == wanted
    above = [one for one in measured if one["peak"] > one["factor"] * one["block"] + one["fixed"] + ALLOWANCE_BYTES]
    assert above == []
    assert max(one["peak"] for one in measured) > 20_000_000  # it measures something


@pytest.mark.proof  # a whole run is measured in tests/contracts/test_budget.py, and what tokens take above
@pytest.mark.timeout(600)
def test_a_run_stays_below_its_estimate_and_that_below_the_budget(tmp_path):
    (tmp_path / "in").mkdir()
    corpus = write_corpus(tmp_path / "in", prose_documents, cut=4)
    assert run_under("700MB", corpus, tmp_path / "out", "tokens")["retries"] == {}
