# SPDX-License-Identifier: Apache-2.0
"""A corpus, a run over it in a process group of its own, and a disk that is small."""

import os
import shutil
import signal
import subprocess
import sys

import pytest

from tests.faults.runs import SCRIPT, write_corpus


@pytest.fixture
def script(tmp_path):
    path = tmp_path / "script.py"
    path.write_text(SCRIPT)
    return path


@pytest.fixture
def corpus(tmp_path):
    folder = tmp_path / "in"
    folder.mkdir()
    write_corpus(folder / "a.jsonl")
    return folder


@pytest.fixture
def start():
    """Start the script in a process group of its own, which is killed at the end if the test did not end it."""
    started = []

    def start(script, corpus, target, memory="600MB", step="slow", on_existing="raise", **variables):
        command = [sys.executable, str(script), str(corpus), str(target), memory, step, on_existing]
        started.append(
            subprocess.Popen(
                command,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                env={**os.environ, **variables},
                start_new_session=True,
            )
        )
        return started[-1]

    yield start
    for process in started:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()


@pytest.fixture
def small_disk(tmp_path):
    if os.geteuid() != 0 or shutil.which("mount") is None:
        pytest.skip("by nature: only root can mount a file system of its own size")
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=600k", "tmpfs", str(folder)], capture_output=True, check=False
    )
    if mounted.returncode != 0:
        pytest.skip(f"by nature: this machine does not let us mount ({mounted.stderr.decode().strip()})")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)
