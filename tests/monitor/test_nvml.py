# SPDX-License-Identifier: Apache-2.0
"""GPUs as the bindings of NVML (nvidia-ml-py) tell of them, over a library in C that stands for the driver's."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

READ = """
import dataclasses, json
from curator_df.memory.gpus import read_gpus
print(json.dumps([dataclasses.astuple(gpu) for gpu in read_gpus()]))
"""
MONITOR = """
import json, sys, time
from pathlib import Path
import curator_df as cdf

def until(happened, seconds=30.0):
    deadline = time.monotonic() + seconds
    while not happened():
        if time.monotonic() > deadline:
            raise TimeoutError("it did not happen")
        time.sleep(0.05)

def gpu_rows():
    frame = monitor.to_frame()
    return frame[frame.kind.isin(["gpu", "gpu process"])]

if __name__ == "__main__":
    gpus, corpus, out = map(Path, sys.argv[1:])
    with cdf.start_cluster(memory="1500MB", cpus=1) as cluster:
        (pid,) = cluster.client.run(__import__("os").getpid).values()
        gpus.write_text(f"1000 300 40 {pid}=250\\n")
        with cdf.monitor_memory(cluster, interval_seconds=0.05) as monitor:
            until(lambda: len(gpu_rows()) >= 2)
            first = gpu_rows().head(2)
            assert not monitor.alerts
            gpus.write_text(f"1000 950 100 {pid}=900\\n")
            until(lambda: monitor.alerts)
            gpus.write_text("1000 -1 0\\n")  # lost, and the run goes on
            time.sleep(0.5)
            samples, seen = monitor.to_frame().seconds.nunique(), len(gpu_rows())
            receipt = cdf.write_parquet(cdf.read_jsonl(str(corpus)), out)
            until(lambda: monitor.to_frame().seconds.nunique() > samples + 5)
            lost = len(gpu_rows()) - seen
            picture = monitor.plot()
            picture.savefig(out / "picture.png")
    columns = ["name", "gpu", "gpu_used_bytes", "gpu_total_bytes", "gpu_utilization"]
    told = json.loads(first[columns].to_json(orient="records"))
    alerts = [[alert.rule, alert.message] for alert in monitor.alerts]
    print(json.dumps({"worker": pid, "first": told, "alerts": alerts, "lost": lost, "rows": receipt.rows_written}))
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    pytest.importorskip("pynvml", reason="needs nvidia-ml-py")
    if shutil.which("cc") is None:
        pytest.skip("by nature: what stands for the driver is a library in C, and there is no compiler")
    folder = tmp_path_factory.mktemp("nvml")
    source = Path(__file__).with_name("nvml.c")
    subprocess.run(["cc", "-O2", "-shared", "-fPIC", "-o", str(folder / "libnvidia-ml.so.1"), str(source)], check=True)
    return str(folder)


def run(library, gpus, code, *arguments):
    """Run a script where the GPUs of a file are those of the machine; return what it printed last."""
    env = {**os.environ, "LD_LIBRARY_PATH": library, "NVML_GPUS": str(gpus)}
    done = subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)],
        check=False,
        env=env,
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_each_gpu_is_read_and_what_it_does_not_say_is_missing(library, tmp_path):
    gpus = tmp_path / "gpus"
    gpus.write_text("80000000000 30000000000 37 7=5000000000 8=-1\n40000000000 -1 0\n20000000000 1 -1\n")
    assert run(library, gpus, READ) == [
        [0, 30_000_000_000, 80_000_000_000, 0.37, [[7, 5_000_000_000], [8, None]]],
        [2, 1, 20_000_000_000, None, []],  # 1 is lost
    ]


def test_a_driver_that_does_not_start_is_no_gpu(library):
    env = {name: value for name, value in os.environ.items() if name != "NVML_GPUS"}
    done = subprocess.run(
        [sys.executable, "-c", READ],
        check=False,
        env={**env, "LD_LIBRARY_PATH": library},
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert (done.returncode, done.stdout.strip()) == (0, "[]"), done.stderr


def test_a_monitor_follows_a_gpu_alerts_and_goes_on_when_it_is_lost(library, tmp_path):
    corpus, gpus, script = tmp_path / "in.jsonl", tmp_path / "gpus", tmp_path / "monitor.py"
    corpus.write_text("".join(json.dumps({"text": f"text {number}"}) + "\n" for number in range(100)))
    gpus.write_text("")
    script.write_text(MONITOR)
    told = run(
        library,
        gpus,
        f"import runpy; runpy.run_path({str(script)!r}, run_name='__main__')",
        gpus,
        corpus,
        tmp_path / "out",
    )
    device, process = told["first"]
    assert device == {"name": "GPU 0", "gpu": 0, "gpu_used_bytes": 300, "gpu_total_bytes": 1000, "gpu_utilization": 0.4}
    assert (process["name"], process["gpu_used_bytes"]) == (f"GPU 0 process {told['worker']}", 250)
    assert told["alerts"] == [["GPU share", "GPU 0 uses 95% of its memory"]]
    assert (told["lost"], told["rows"]) == (0, 100)
    assert (tmp_path / "out" / "picture.png").stat().st_size > 10_000
