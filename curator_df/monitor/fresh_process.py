# SPDX-License-Identifier: Apache-2.0
"""A process of its own for a measurement: nothing that this one has loaded or holds disturbs it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

import cloudpickle

TIMEOUT_SECONDS = 600
"""Far more than samples take; a process that is not done then is ended."""


class FreshProcessError(Exception):
    """The process ended with an error, and its text is what it said; or it was not done in time."""


def run_fresh(module: str, job: Any, **environment: str) -> list[dict[str, Any]]:
    """Run ``main`` of a module in a fresh process, which finds a pickle on standard input and prints JSON, an object a line."""
    # With this process's own path, as the compiler of kernels is started.
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
            f"the fresh process was not done after {TIMEOUT_SECONDS} s, and was ended; a smaller sample_size= takes less"
        ) from None
    if done.returncode != 0:
        said = done.stderr.decode(errors="replace").strip()
        raise FreshProcessError(f"the fresh process ended with status {done.returncode}:\n{said}")
    return [json.loads(line) for line in done.stdout.decode().splitlines() if line.startswith("{")]
