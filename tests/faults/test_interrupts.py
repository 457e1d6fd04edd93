# SPDX-License-Identifier: Apache-2.0
"""Ctrl-C in a terminal, which reaches every process there, and the stop button of a notebook, which reaches the kernel."""

import contextlib
import os
import subprocess
import sys
import time

import jupyter_client
import psutil
import pytest

from tests.faults.runs import EXPECTED, PATIENCE_SECONDS, finish, ids, wait_for_ranges

pytestmark = [pytest.mark.proof, pytest.mark.timeout(3 * PATIENCE_SECONDS)]


IN_A_TERMINAL = """
import fcntl, os, signal, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
signal.signal(signal.SIGINT, signal.SIG_DFL)  # ignored where the tests are a background job of a shell
os.execv(sys.argv[1], sys.argv[1:])
"""


def test_ctrl_c_in_a_terminal(start, script, corpus, tmp_path):
    ours, theirs = os.openpty()
    command = [sys.executable, str(script), str(corpus), str(tmp_path / "out"), "600MB", "slow", "raise"]
    command = [sys.executable, "-c", IN_A_TERMINAL, *command]
    pipes = {"stdin": theirs, "stdout": theirs, "stderr": theirs}
    process = subprocess.Popen(command, start_new_session=True, **pipes)
    os.close(theirs)
    try:
        wait_for_ranges(tmp_path / "out", 2, process)
        below = psutil.Process(process.pid).children(recursive=True)
        os.write(ours, b"\x03")
        said = b""
        with contextlib.suppress(OSError):  # the terminal has no other end any more
            while more := os.read(ours, 65_536):
                said += more
        assert process.wait(timeout=PATIENCE_SECONDS) != 0
        assert b"on_existing='resume'" in said
        _, alive = psutil.wait_procs(below, timeout=30)
        assert not alive
    finally:
        process.kill()
        process.wait()
        os.close(ours)
    finish(start(script, corpus, tmp_path / "out", on_existing="resume", SLEEP="0"))
    assert ids(tmp_path / "out") == EXPECTED


CELL = """
import os
import time
import curator_df as cdf
from curator_df.core.runner import run

run.SMALL_RANGE_BYTES = 100_000
def slow(block):
    time.sleep({sleep})
    return block.id % 5 != 0
docs = cdf.read_jsonl({corpus!r}, blocksize="50kB").curate.keep_where(slow)
"""
WRITE = "cdf.write_parquet(docs, {target!r}, on_existing='resume').rows_written"


@pytest.mark.filterwarnings("ignore::DeprecationWarning:jupyter_client")
def test_an_interrupted_cell_goes_on_in_the_same_kernel(corpus, tmp_path):
    manager, client = jupyter_client.manager.start_new_kernel(
        kernel_name="python3", env={**os.environ, "IPYTHONDIR": str(tmp_path / "ipython")}
    )
    write = WRITE.format(target=str(tmp_path / "out"))

    def run(code):
        return client.execute_interactive(code, timeout=PATIENCE_SECONDS, output_hook=lambda _: None)["content"]

    try:
        assert run(CELL.format(sleep=0.05, corpus=str(corpus)))["status"] == "ok"
        assert run("cluster = cdf.start_cluster(memory='700MB', cpus=2)")["status"] == "ok"
        assert run("workers = sorted(cluster.client.run(os.getpid).values())")["status"] == "ok"
        asked = client.execute(write)
        deadline = time.monotonic() + PATIENCE_SECONDS
        journal = tmp_path / "out/_curator/done.jsonl"
        while not (journal.exists() and journal.read_bytes().count(b"\n") >= 2):
            assert time.monotonic() < deadline
            time.sleep(0.02)
        manager.interrupt_kernel()
        reply = client.get_shell_msg(timeout=PATIENCE_SECONDS)
        while reply["parent_header"]["msg_id"] != asked:
            reply = client.get_shell_msg(timeout=PATIENCE_SECONDS)
        assert reply["content"]["ename"] == "KeyboardInterrupt"
        finished = journal.read_bytes().count(b"\n")
        # The prompt is back, the cluster is still there, and the same call goes on.
        assert run("assert sorted(cluster.client.run(os.getpid).values()) == workers")["status"] == "ok"
        assert run(f"rows = {write}; assert rows == {len(EXPECTED)}, rows")["status"] == "ok"
        assert run("cluster.close()")["status"] == "ok"
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)
    assert finished < journal.read_bytes().count(b"\n")
    assert ids(tmp_path / "out") == EXPECTED
