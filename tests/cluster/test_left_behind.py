# SPDX-License-Identifier: Apache-2.0
"""When a cluster has ended, no file is open that was not before, no process runs, and no temporary file is there."""

import json
import os
import subprocess
import sys
import time

import psutil
import pytest

pytest.importorskip("prometheus_client", reason="prometheus-client is in the monitor extra")

SCRIPT = """
import gc, json, os, sys
import psutil
import curator_df as cdf

if __name__ == "__main__":
    source, target, memory = sys.argv[1:]
    for number in range(2):
        with (
            cdf.start_cluster(memory=memory, cpus=1) as cluster,
            cdf.monitor_memory(cluster),
            cdf.serve_metrics(cluster, directory=f"{target}/served"),
        ):
            docs = cdf.read_jsonl(source).pipe(cdf.drop_exact_duplicates)
            cdf.write_parquet(docs, f"{target}/{number}")
            while_running = [child.pid for child in psutil.Process().children(recursive=True)]
        gc.collect()
        names = [f"/proc/self/fd/{name}" for name in os.listdir("/proc/self/fd")]
        opened = sorted(os.readlink(name) for name in names if os.path.lexists(name))
        left = [child.cmdline()[-1] for child in psutil.Process().children(recursive=True)]
        print(json.dumps([opened, left, while_running]))
"""


def is_running(pid):
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


@pytest.mark.parametrize(
    "memory", ["2GB", pytest.param("500MB", marks=pytest.mark.proof)], ids=["processes", "threads"]
)
def test_no_file_no_process_and_no_temporary_file_is_left(tmp_path, memory):
    (tmp_path / "script.py").write_text(SCRIPT)
    (tmp_path / "in.jsonl").write_text("".join(f'{{"text": "row {n % 900}"}}\n' for n in range(1_000)))
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    command = [sys.executable, tmp_path / "script.py", tmp_path / "in.jsonl", tmp_path / "out", memory]
    environment = {**os.environ, "TMPDIR": str(temporary)}
    done = subprocess.run(command, capture_output=True, text=True, timeout=280, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    (first, *_), (second, left, while_running) = (json.loads(line) for line in done.stdout.splitlines())
    assert second == first
    assert all("multiprocessing.resource_tracker" in command for command in left)  # Python's own, until the end
    assert while_running
    give_up = time.monotonic() + 20  # that process goes when it sees that its own has gone
    while any(is_running(pid) for pid in while_running):
        assert time.monotonic() < give_up
        time.sleep(0.1)
    assert list(temporary.iterdir()) == []
    assert not list((tmp_path / "out" / "served").rglob("*.json"))
    assert not (tmp_path / "out" / "1" / "_curator" / "stages").exists()
