# SPDX-License-Identifier: Apache-2.0
import subprocess
import sys
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[2]


def test_a_profiled_worker_does_not_stand_still_where_threads_start_while_memory_is_collected():
    """In a process of its own: without the library it stands still on Python 3.11 (the script's word ``alone``)."""
    command = [
        "timeout",
        "-s",
        "ABRT",
        "150",
        sys.executable,
        "-X",
        "faulthandler",
        "-m",
        "tests.core.tasks.profiled_worker",
    ]
    done = subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["20000", "True"], done.stderr
