# SPDX-License-Identifier: Apache-2.0
"""Two hundred random runs: always the same rows, never over the budget by more than 2%, never a hang.

``pytest -m proof -s tests/faults/test_random_runs.py`` prints the seed and the figures of each cluster. Another seed, or
fewer runs: ``CURATOR_DF_RANDOM_SEED`` and ``CURATOR_DF_RANDOM_RUNS``.
"""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

RUNS, RUNS_ON_A_CLUSTER = int(os.environ.get("CURATOR_DF_RANDOM_RUNS", "200")), 8
SECONDS_FOR_A_CLUSTER = 1_200
"""Far more than these runs take; a process that is not done then hangs."""
MOST_OF_BUDGET = 1.02


@pytest.mark.proof
@pytest.mark.timeout(7_200)
def test_random_runs(tmp_path):
    first = os.environ.get("CURATOR_DF_RANDOM_SEED") or str(time.time_ns())
    told, fullest = [], 0.0
    for number in range(-(-RUNS // RUNS_ON_A_CLUSTER)):
        seed, count = f"{first}-{number}", min(RUNS_ON_A_CLUSTER, RUNS - number * RUNS_ON_A_CLUSTER)
        command = [sys.executable, "-m", "tests.faults.random_runs", seed, str(count), str(tmp_path / str(number))]
        here = Path(__file__).resolve().parents[2]
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=SECONDS_FOR_A_CLUSTER, cwd=here, check=False
        )
        assert done.returncode == 0, (seed, done.stdout, done.stderr)
        runs = [json.loads(line) for line in done.stdout.splitlines()]
        assert len(runs) == count, seed
        for run in runs:
            assert run["same"], run
            assert not run["aside"], run
            assert run["measured_bytes"] <= MOST_OF_BUDGET * run["allowed_bytes"], run
        told += runs
        fullest = max(fullest, *(run["measured_bytes"] / run["allowed_bytes"] for run in runs))
        kinds = ", ".join(f"{run['kind']}{' drop' * run['drops']}{' resumed' * run['resumed']}" for run in runs)
        sys.stdout.write(f"seed {seed}: {runs[0]['allowed_bytes'] / 1e6:.0f} MB, {runs[0]['cpus']} CPUs: {kinds}\n")
        sys.stdout.flush()
    rows, retried = sum(run["rows"] for run in told), sum(bool(run["retries"]) for run in told)
    sys.stdout.write(f"{len(told)} runs, {rows:,} rows; {retried} with retries; at most {fullest:.1%} of the budget\n")
