# SPDX-License-Identifier: Apache-2.0
"""`curator-df monitor up` with a real Prometheus, and a real run: every expression of the dashboard has an answer."""

import contextlib
import gzip
import itertools
import json
import math
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.parse
import urllib.request
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import cloudpickle
import psutil
import pytest

import curator_df as cdf
from curator_df.core.ranges.blocks import BlockKernel, Outcome, map_blocks
from curator_df.core.runner import run
from curator_df.models.batches import BatchCounts
from curator_df.models.devices import peaks
from docs.generate_dashboard import ROWS, dashboard

pytest.importorskip("prometheus_client", reason="prometheus-client is in the monitor extra")
cloudpickle.register_pickle_by_value(sys.modules[__name__])  # workers cannot import the tests

pytestmark = pytest.mark.skipif(
    shutil.which("prometheus") is None, reason="needs the program prometheus, of the package prometheus"
)
FILES, ROWS_EACH = 24, 40
TRIALS = {"tokens_in_batches_of_512": 1_500, "microseconds_in_batches_of_512": 1_000_000}
DETACH = """
import subprocess, sys
log = open(sys.argv[1], "w")
print(subprocess.Popen(sys.argv[2:], stdout=log, stderr=log, start_new_session=True).pid)
"""
ABORTED = """
import sys, time
import curator_df as cdf

def wait(block):
    time.sleep(600)
    return block

if __name__ == "__main__":
    source, folder = sys.argv[1:]
    with cdf.start_cluster(memory="1GB", cpus=1) as cluster, cdf.serve_metrics(cluster, directory=folder) as served:
        print(served.targets, flush=True)
        docs = cdf.read_jsonl(source, on_bad_rows="quarantine")
        cdf.write_parquet(docs.map_partitions(wait, meta=docs._meta), f"{folder}/never")
"""


TRIED = "Tokens per second, by batch size tried"


class Watch:
    """A `monitor up` that is running."""

    def __init__(self, directory, port):
        self.directory, self.port = directory, port

    def ask(self, path, **query):
        url = f"http://127.0.0.1:{self.port}/api/v1/{path}?{urllib.parse.urlencode(query)}"
        with urllib.request.urlopen(url, timeout=10) as answer:
            return json.load(answer)["data"]

    def values(self, expr):
        """Return the values of an expression now, as Grafana would ask for it."""
        for name, value in (("$driver", ".*"), ("$__rate_interval", "30s"), ("$__range", "10m")):
            expr = expr.replace(name, value)
        return [float(one["value"][1]) for one in self.ask("query", query=expr)["result"]]

    def firing(self):
        alerts = self.ask("alerts")["alerts"]
        return {alert["labels"]["alertname"] for alert in alerts if alert["state"] == "firing"}


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def until(holds, seconds, every=0.5):
    """Return the first answer that is true, or the last one."""
    deadline = time.monotonic() + seconds
    while not (answer := holds()) and time.monotonic() < deadline:
        time.sleep(every)
    return answer


def command(directory, port):
    up = [sys.executable, "-m", "curator_df.cli", "monitor", "up", "--dir", str(directory), "--port", str(port)]
    return [*up, "--grafana-port", str(free_port())]


def test_ctrl_c_ends_prometheus_too(tmp_path):
    port = free_port()
    with subprocess.Popen(command(tmp_path, port), stdout=subprocess.PIPE, text=True) as process:
        said = list(itertools.takewhile(lambda line: "serve_metrics" not in line, process.stdout))
        assert f"prometheus  http://127.0.0.1:{port}\n" in said
        urllib.request.urlopen(f"http://127.0.0.1:{port}", timeout=10).close()  # what is linked is there
        (server,) = psutil.Process(process.pid).children()
        assert server.name() == "prometheus"
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 0
    assert not server.is_running()


def test_a_port_that_is_taken_is_said_in_prometheus_words(tmp_path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        up = command(tmp_path, taken.getsockname()[1])
        done = subprocess.run(up, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 1
    assert "CuratorError: prometheus ended with exit code 1" in done.stderr
    assert "address already in use" in done.stderr


@pytest.fixture(scope="module")
def watch(tmp_path_factory):
    """Start it beside this process, not below it: what is below counts against the budget of a run."""
    directory, port = tmp_path_factory.mktemp("watch"), free_port()
    log = directory / "monitor.log"
    detach = [sys.executable, "-c", DETACH, str(log), *command(directory, port)]
    detached = subprocess.run(detach, stdout=subprocess.PIPE, text=True, check=True)
    monitor = psutil.Process(int(detached.stdout))
    assert until(lambda: "serve_metrics" in log.read_text(), 60), log.read_text()
    yield Watch(directory, port)
    monitor.terminate()
    assert until(lambda: not monitor.is_running() or monitor.status() == psutil.STATUS_ZOMBIE, 30)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    folder = tmp_path_factory.mktemp("in")
    for number in range(FILES):
        with gzip.open(folder / f"{number:02d}.jsonl.gz", "wt") as file:
            for row in range(ROWS_EACH):
                file.write(json.dumps({"n": row, "text": f"text {row % 30} of file {number} " * 20}) + "\n")
            file.write("{broken\n")
    return folder


def count_and_wait(block, *, marker):
    """Drop a row, count, take two seconds; run out of memory once."""
    time.sleep(2)
    with contextlib.suppress(FileExistsError), open(marker, "x"):
        raise MemoryError("once")
    kept = block[block["n"] > 0]
    # What this process held at most, and what a model was given, is said as steps with a model say it.
    given = BatchCounts(len(block), 90 * len(block), 10 * len(block), 1, 0, trials=Counter(TRIALS))
    counted = given.counters() | {"seen": len(block)}
    return Outcome(kept, dropped={"first": len(block) - len(kept)}, counters=counted, peaks=peaks())


def stand_in_for_a_gpu():
    """Give a worker a GPU, by what stands in for NVML, RMM and cuDF's spilling."""
    from curator_df.memory import gpus

    nvml = SimpleNamespace(
        NVMLError=RuntimeError,
        nvmlDeviceGetCount=lambda: 1,
        nvmlDeviceGetHandleByIndex=lambda index: index,
        nvmlDeviceGetMemoryInfo=lambda _: SimpleNamespace(used=30, total=100),
        nvmlDeviceGetUtilizationRates=lambda _: SimpleNamespace(gpu=37),
        nvmlDeviceGetComputeRunningProcesses=lambda _: [],
    )
    gpus._nvml = lambda: nvml
    counting = SimpleNamespace(allocation_counts=SimpleNamespace(current_bytes=20))
    memory = SimpleNamespace(get_current_device_resource=lambda: counting)
    sys.modules |= {"rmm": SimpleNamespace(mr=memory), "rmm.statistics": SimpleNamespace()}
    manager = SimpleNamespace(buffers=lambda: [SimpleNamespace(size=10, is_spilled=True)])
    sys.modules["cudf.core.buffer.spill_manager"] = SimpleNamespace(get_global_manager=lambda: manager)


def panel(title):
    return next(one for _, panels in ROWS for one in panels if one.title == title)


def unanswered(watch, writing):
    """Return the expressions of the dashboard that had no answer at any time while a run went on."""
    left = {query.expr for _, panels in ROWS for panel in panels for query in panel.queries}
    while left and writing.is_alive():
        left -= {expr for expr in left if any(map(math.isfinite, watch.values(expr)))}
        time.sleep(0.5)
    return left


@pytest.mark.proof
def test_every_expression_of_the_dashboard_has_an_answer_while_a_run_goes_on(watch, corpus, tmp_path, monkeypatch):
    monkeypatch.setattr(run, "SMALL_RANGE_BYTES", 1_000)  # a range for each file
    docs = cdf.read_jsonl(str(corpus), on_bad_rows="quarantine")
    kernel = BlockKernel("count_and_wait", count_and_wait, {"marker": str(tmp_path / "once")})
    docs = map_blocks(docs, kernel, meta=docs._meta).pipe(cdf.drop_exact_duplicates)
    receipts = []
    with cdf.start_cluster(memory="3GB", cpus=2) as cluster, cdf.serve_metrics(cluster, directory=watch.directory):
        cluster.client.run(stand_in_for_a_gpu)
        writing = threading.Thread(target=lambda: receipts.append(cdf.write_parquet(docs, tmp_path / "out")))
        writing.start()
        missing = unanswered(watch, writing)
        writing.join()
    assert missing == set()
    (variable,) = dashboard()["templating"]["list"]
    metric, label = re.fullmatch(r"label_values\((\w+), (\w+)\)", variable["definition"]).groups()
    assert watch.ask(f"label/{label}/values", **{"match[]": metric}) == [f"{socket.gethostname()}:{os.getpid()}"]
    (receipt,) = receipts
    assert receipt.rows_quarantined == FILES
    # The end waited for one more scrape, so what is there now is all.
    totals = {
        "curator_df_rows_read_total": receipt.rows_read,
        "curator_df_rows_written_total": receipt.rows_written,
        'curator_df_rows_quarantined_total{cause="other"}': FILES,
        'curator_df_step_rows_dropped_total{stage="write", reason="first"}': FILES,
        'curator_df_step_counted_total{stage="write", counter="seen"}': FILES * ROWS_EACH,
        'curator_df_runs_total{outcome="finished"}': 1,
        'curator_df_retries_total{cause="memory"}': 1,
    }
    assert {name: sum(watch.values(f"last_over_time({name}[10m])")) for name in totals} == totals
    assert watch.values("max(last_over_time(curator_df_gpu_utilization_ratio[10m]))") == [0.37]
    padding, by_size = (panel(title).queries[0].expr for title in ("Padding as a share of all tokens", TRIED))
    assert (watch.values(padding), watch.values(by_size)) == ([pytest.approx(0.1)], [1_500])
    # The receipt was made before the last scrape, and the processes of an idle cluster grow by a page now and then.
    (peak_bytes,) = watch.values("max(last_over_time(curator_df_memory_peak_bytes[10m]))")
    assert peak_bytes == pytest.approx(receipt.measured_bytes, rel=0.02)
    assert until(lambda: not watch.values("up"), 30)  # the targets went with the block


def raise_always(block):
    raise ValueError("always")


@pytest.mark.proof
def test_an_alert_fires_when_a_run_fails(watch, corpus, tmp_path):
    docs = cdf.read_jsonl(str(corpus), on_bad_rows="quarantine")
    failing = docs.map_partitions(raise_always, meta=docs._meta)
    with cdf.start_cluster(memory="3GB", cpus=1) as cluster, cdf.serve_metrics(cluster, directory=watch.directory):
        assert until(lambda: watch.values('curator_df_runs_total{outcome="failed"}'), 60)
        with pytest.raises(cdf.errors.OperatorError):
            cdf.write_parquet(failing, tmp_path / "out")
    assert until(lambda: "CuratorRunFailed" in watch.firing(), 60)
    assert {group["name"] for group in watch.ask("rules")["groups"]} == {"curator-df"}
    assert {rule["health"] for group in watch.ask("rules")["groups"] for rule in group["rules"]} == {"ok"}


@pytest.mark.proof
def test_an_alert_fires_when_the_process_that_runs_is_killed(watch, corpus, tmp_path):
    script = tmp_path / "aborted.py"
    script.write_text(ABORTED)
    aborted = [sys.executable, str(script), str(corpus / "00.jsonl.gz"), str(watch.directory)]
    with subprocess.Popen(aborted, stdout=subprocess.PIPE, text=True, start_new_session=True) as process:
        targets = Path(process.stdout.readline().strip())
        try:
            assert until(lambda: watch.values('up{role="driver"}') == [1.0], 60)
        finally:
            os.killpg(process.pid, signal.SIGKILL)
    try:
        assert until(lambda: "CuratorDriverGone" in watch.firing(), 120)
        up = [*command(watch.directory, watch.port), "--write-only"]
        subprocess.run(up, stdout=subprocess.DEVNULL, timeout=120, check=True)
        assert not targets.exists()
        assert until(lambda: "CuratorDriverGone" not in watch.firing(), 60)
    finally:
        targets.unlink(missing_ok=True)
