# SPDX-License-Identifier: Apache-2.0
"""Run a measurement in a separate process, undisturbed by what this process has loaded or holds."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

import cloudpickle

TIMEOUT_SECONDS = 600
"""Seconds until the process is killed, far more than samples need."""


class FreshProcessError(Exception):
    """Error of the separate process: it failed, and the text is its last output, or it did not finish in time."""


def run_fresh(module: str, job: Any, **environment: str) -> list[dict[str, Any]]:
    """Run ``main`` of a module in a fresh process, which reads a pickle from standard input and prints a JSON object a line."""
    # Use this process's own path, as the process that compiles kernels does.
    program = f"import sys; sys.path[:] = {sys.path!r}; from {module} import main; main()"
    variables: Mapping[str, str] = {**os.environ, **environment}
    try:
        done = subprocess.run(
            [sys.executable, "-c", program],
            input=cloudpickle.dumps(job),
            capture_output=True,
            env=variables,
            timeout=TIMEOUT_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise FreshProcessError(
            f"a separate process runs the table's steps on a sample of the rows, to measure them. It did not finish within "
            f"{TIMEOUT_SECONDS} s and was killed. Use a smaller sample_size=."
        ) from None
    if done.returncode != 0:
        said = done.stderr.decode(errors="replace").strip()
        raise FreshProcessError(
            "a separate process runs the table's steps on a sample of the rows, to measure them. It failed with exit status "
            f"{done.returncode}. Correct the error at the end of its output:\n{said}"
        )
    return [json.loads(line) for line in done.stdout.decode().splitlines() if line.startswith("{")]
