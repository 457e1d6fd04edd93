# SPDX-License-Identifier: Apache-2.0
"""A real run serves its figures: those of the receipt, and what workers say of themselves."""

import contextlib
import gzip
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from pathlib import Path

import cloudpickle
import psutil
import pytest

import curator_df as cdf
from curator_df.core.ranges.blocks import BlockKernel, Outcome, map_blocks
from curator_df.core.runner import run
from curator_df.errors import ParameterError
from curator_df.monitor import metrics_server
from curator_df.monitor.processes import start_ticks
from curator_df.monitor.stack import Stack, write_stack

parser = pytest.importorskip("prometheus_client.parser", reason="prometheus-client is in the monitor extra")
cloudpickle.register_pickle_by_value(sys.modules[__name__])  # workers cannot import the tests


def fetched(url):
    with urllib.request.urlopen(url, timeout=10) as answer:
        return answer.read().decode()


class Scrape:
    """What one target served at one time."""

    def __init__(self, url):
        self.samples = [
            sample for family in parser.text_string_to_metric_families(fetched(url)) for sample in family.samples
        ]

    def sum(self, name, **labels):
        """Add up all series of a metric with these labels; fail if there are none."""
        found = [s.value for s in self.samples if s.name == name and labels.items() <= s.labels.items()]
        assert found, (name, labels)
        return sum(found)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    folder = tmp_path_factory.mktemp("in")
    for number in range(3):
        rows = [{"n": n, "text": f"text {n % 50} of file {number} " * 20} for n in range(200)]
        # Compressed: none of them is cut.
        with gzip.open(folder / f"{number}.jsonl.gz", "wt") as file:
            file.writelines(json.dumps(row) + "\n" for row in rows)
    return folder


@pytest.fixture(scope="module")
def cluster():
    with cdf.start_cluster(memory="3GB", cpus=1) as running:
        yield running


def count_vowels(block):
    kept = block[block["n"] % 10 > 0]
    vowels = int(block["text"].str.count("[aeiou]").sum())
    return Outcome(
        kept, dropped={"every tenth": len(block) - len(kept)}, counters={"vowels": vowels}, peaks={"most": vowels}
    )


def chain(corpus):
    docs = cdf.read_jsonl(str(corpus))
    docs = map_blocks(docs, BlockKernel("count_vowels", count_vowels), meta=docs._meta)
    return docs.pipe(cdf.drop_exact_duplicates)


SMALL = """
import json, sys, urllib.request
import curator_df as cdf

if __name__ == "__main__":
    source, folder = sys.argv[1:]
    with cdf.start_cluster(memory="450MB", cpus=1) as cluster, cdf.serve_metrics(cluster, directory=folder) as served:
        receipt = cdf.write_parquet(cdf.read_jsonl(source), f"{folder}/out")
        urls = [f"http://{group['targets'][0]}/metrics" for group in json.loads(served.targets.read_text())]
        texts = [urllib.request.urlopen(url).read().decode() for url in urls]
        served._last_scrape = None  # nobody will scrape again
    print(json.dumps([cluster.layout.in_process, receipt.measured_bytes, texts]))
"""


def test_threads_of_a_process_are_served_too_and_the_budget_holds(corpus, tmp_path):
    (tmp_path / "small.py").write_text(SMALL)
    command = [sys.executable, str(tmp_path / "small.py"), str(corpus), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stderr
    in_process, measured_bytes, (driver, scheduler, worker) = json.loads(done.stdout)
    assert in_process
    assert measured_bytes < 450_000_000
    assert "curator_df_rows_written_total 600.0" in driver
    assert 'dask_scheduler_workers{state="idle"} 1.0' in scheduler
    assert "curator_df_worker_pss_bytes" in worker


def test_before_it_is_entered_it_says_that_nothing_is_served(cluster, tmp_path):
    waiting = cdf.serve_metrics(cluster, directory=tmp_path)
    assert "not served yet" in repr(waiting)
    with pytest.raises(ParameterError, match="only while they are served"):
        waiting.address  # noqa: B018 - it is asked for


def test_what_is_served_is_what_the_receipt_says(cluster, corpus, tmp_path, monkeypatch):
    monkeypatch.setattr(run, "SMALL_RANGE_BYTES", 1_000)  # a range for each file
    with cdf.serve_metrics(cluster, directory=tmp_path) as served:
        receipt = cdf.write_parquet(chain(corpus), tmp_path / "out")
        now = Scrape(served.address)
        served._last_scrape = None  # nobody will scrape again
    for place, step in enumerate(receipt.steps):
        labels = {"stage": "write", "place": f"{place:02d}", "step": step.name}
        assert now.sum("curator_df_step_rows_in_total", **labels) == step.rows_in
        assert now.sum("curator_df_step_rows_out_total", **labels) == step.rows_out
        assert now.sum("curator_df_step_seconds_total", **labels) == pytest.approx(step.seconds)
        for reason, rows in step.dropped.items():
            assert now.sum("curator_df_step_rows_dropped_total", **labels, reason=reason) == rows
    vowels = receipt.steps[1].counters["vowels"]
    assert vowels > 0
    mine = {"place": "01", "step": "count_vowels"}
    assert now.sum("curator_df_step_counted_total", stage="write", **mine, counter="vowels") == vowels
    assert now.sum("curator_df_step_peak_bytes", stage="write", **mine, of="most") == receipt.steps[1].peaks["most"] > 0
    # Texts, numbers and addresses: what went in and did not come out is what the drop took.
    bytes_in, bytes_out = (
        now.sum(f"curator_df_step_bytes_{way}_total", stage="write", **mine) for way in ("in", "out")
    )
    assert 600 * (8 + 8 + 360) < bytes_in < 600 * (8 + 8 + 500)
    assert bytes_out == pytest.approx(0.9 * bytes_in, rel=0.02)
    assert now.sum("curator_df_step_block_seconds_count", stage="write", **mine) == 3
    assert now.sum("curator_df_step_rows_in_total", stage="drop_exact_duplicates: keys", **mine) == 600
    totals = (receipt.rows_read, receipt.rows_written, receipt.output_bytes)
    names = ("rows_read", "rows_written", "output_bytes")
    assert totals == tuple(now.sum(f"curator_df_{name}_total") for name in names)
    (exchange,) = receipt.exchanges
    assert now.sum("curator_df_exchange_keys_total", step="drop_exact_duplicates") == exchange.keys == 540
    assert now.sum("curator_df_exchange_bytes_total", kind="key") == exchange.key_bytes > 0
    assert now.sum("curator_df_tasks_total", stage="write", outcome="done") == receipt.ranges
    assert now.sum("curator_df_task_seconds_count", stage="write") == receipt.ranges
    assert now.sum("curator_df_stage_tasks_done", stage="write") == now.sum("curator_df_stage_tasks", stage="write")
    assert now.sum("curator_df_runs_total", outcome="finished") == 1
    assert now.sum("curator_df_memory_projected_bytes") == receipt.projected_bytes
    held, peak = now.sum("curator_df_memory_held_bytes"), now.sum("curator_df_memory_peak_bytes")
    assert 0.2e9 < held <= peak
    assert receipt.measured_bytes <= peak < now.sum("curator_df_memory_allowed_bytes") == 3e9


def raise_at_five(block):
    if (block["n"] == 5).any():
        raise ValueError("five")
    return block


def test_errors_have_the_step_in_which_they_were_raised(cluster, corpus, tmp_path):
    docs = cdf.read_jsonl(str(corpus))
    failing = docs.map_partitions(raise_at_five, meta=docs._meta)
    with cdf.serve_metrics(cluster, directory=tmp_path) as served:
        with pytest.raises(cdf.errors.OperatorError):
            cdf.write_parquet(failing, tmp_path / "out")
        now = Scrape(served.address)
        served._last_scrape = None
    step = "map_partitions(raise_at_five)"
    assert now.sum("curator_df_task_errors_total", stage="write", step=step, outcome="failed") >= 1
    assert now.sum("curator_df_runs_total", outcome="failed") == 1
    assert now.sum("curator_df_runs_active") == 0


def wait(block):
    time.sleep(3)
    return block


def targets(served, role):
    groups = json.loads(served.targets.read_text())
    return [f"http://{group['targets'][0]}/metrics" for group in groups if group["labels"]["role"] == role]


def test_workers_say_in_which_step_they_are(cluster, corpus, tmp_path):
    docs = cdf.read_jsonl(str(corpus / "0.jsonl.gz"))
    with cdf.serve_metrics(cluster, directory=tmp_path) as served:
        (worker,) = targets(served, "worker")
        (scheduler,) = targets(served, "scheduler")
        waiting = docs.map_partitions(wait, meta=docs._meta)
        writing = threading.Thread(target=cdf.write_parquet, args=(waiting, tmp_path / "out"))
        writing.start()
        deadline, threads = time.monotonic() + 20, {}
        while time.monotonic() < deadline and threads.get("map_partitions(wait)") != 1:
            samples = Scrape(worker).samples
            threads = {s.labels["step"]: s.value for s in samples if s.name == "curator_df_worker_step_threads"}
        writing.join()
        after = Scrape(worker)
        assert Scrape(scheduler).sum("dask_scheduler_workers") == 1
        served._last_scrape = None
    assert threads["map_partitions(wait)"] == 1
    assert after.sum("curator_df_worker_step_threads") == 0
    (pid,) = cluster.client.run(os.getpid).values()
    assert after.sum("curator_df_worker_pss_bytes") == pytest.approx(
        psutil.Process(pid).memory_full_info().pss, rel=0.3
    )
    assert after.sum("dask_worker_memory_bytes", type="spilled") == 0
    assert "curator_df_worker_pss_bytes" not in fetched(worker)  # the block has ended


def test_targets_follow_the_workers_and_go_at_the_end(cluster, tmp_path, monkeypatch):
    monkeypatch.setattr(metrics_server, "TARGETS_SECONDS", 0.2)
    with cdf.serve_metrics(cluster, directory=tmp_path) as served:
        groups = json.loads(served.targets.read_text())
        assert [group["labels"]["role"] for group in groups] == ["driver", "scheduler", "worker"]
        assert {group["labels"]["driver"] for group in groups} == {f"{socket.gethostname()}:{os.getpid()}"}
        assert all(group["targets"][0].startswith("127.0.0.1:") for group in groups)
        before = targets(served, "worker")
        (pid,) = cluster.client.run(os.getpid).values()
        psutil.Process(pid).kill()
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline and (targets(served, "worker") in (before, [])):
            time.sleep(0.2)
        (again,) = targets(served, "worker")
        assert again not in before
        assert Scrape(again).sum("curator_df_worker_pss_bytes") > 0
        served.targets.unlink()
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline and not served.targets.exists():
            time.sleep(0.2)
        assert targets(served, "worker") == [again]  # the file came back with the same
    assert not served.targets.exists()


SERVING = """
import signal, sys
import curator_df as cdf

if __name__ == "__main__":
    with cdf.start_cluster(memory="450MB", cpus=1) as cluster, cdf.serve_metrics(cluster, directory=sys.argv[1]) as served:
        print(served.targets, flush=True)
        signal.pause()
"""


@pytest.mark.parametrize("next_one", ["serve_metrics", pytest.param("monitor up", marks=pytest.mark.proof)])
def test_targets_of_a_killed_process_go_when_the_next_one_serves_or_watches(cluster, tmp_path, next_one):
    def start_next():
        if next_one == "serve_metrics":
            cdf.serve_metrics(cluster, directory=tmp_path)
        else:
            write_stack(Stack(tmp_path))

    (tmp_path / "serving.py").write_text(SERVING)
    serving = [sys.executable, str(tmp_path / "serving.py"), str(tmp_path)]
    with subprocess.Popen(serving, stdout=subprocess.PIPE, text=True) as process, contextlib.ExitStack() as in_the_end:
        in_the_end.callback(process.kill)
        left = Path(process.stdout.readline().strip())
        started = start_ticks(process.pid)
        assert left.name == f"{socket.gethostname()}-{process.pid}-{started}.json"
        start_next()
        assert left.exists()  # it lives
        process.kill()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)  # it has ended, and nobody has collected it
        assert left.exists()  # so that the alert fires
        reused = left.with_name(f"{socket.gethostname()}-{os.getpid()}-{started}.json")
        mine = left.with_name(f"{socket.gethostname()}-{os.getpid()}-{start_ticks(os.getpid())}.json")
        elsewhere, by_hand = left.with_name(f"another-{left.name}"), left.with_name("by-hand.json")
        for path in (reused, mine, elsewhere, by_hand):
            path.write_text("[]")
        start_next()
        assert set(left.parent.iterdir()) == {mine, elsewhere, by_hand}
        assert process.wait() == -signal.SIGKILL


def listening(pid):
    """Return the addresses at which a process and its children listen."""
    process = psutil.Process(pid)
    found = [one for each in (process, *process.children(recursive=True)) for one in each.net_connections("inet")]
    return {one.laddr.ip for one in found if one.status == psutil.CONN_LISTEN}


def test_nothing_listens_beyond_this_machine(cluster, tmp_path):
    with cdf.serve_metrics(cluster, directory=tmp_path):
        assert listening(os.getpid()) == {"127.0.0.1"}


def test_the_end_waits_for_one_more_scrape_where_somebody_scrapes(cluster, tmp_path, monkeypatch):
    monkeypatch.setattr(metrics_server, "LAST_SCRAPE_SECONDS", 2.0)
    with cdf.serve_metrics(cluster, directory=tmp_path):
        started = time.monotonic()
    assert time.monotonic() - started < 2.0
    with cdf.serve_metrics(cluster, directory=tmp_path) as served:
        fetched(served.address)
        started = time.monotonic()
    assert 2.0 <= time.monotonic() - started < 30.0


def test_what_cannot_be_served_is_refused(cluster, tmp_path):
    with cdf.serve_metrics(directory=tmp_path) as served:
        port = int(served.address.split(":")[2].split("/")[0])
        with (
            pytest.raises(cdf.errors.ParameterError, match=f"port={port} .*Use port=0 to pick a free port"),
            cdf.serve_metrics(port=port, directory=tmp_path),
        ):
            pass
    (tmp_path / "file").touch()
    with pytest.raises(cdf.errors.ParameterError, match="Use another folder"):
        cdf.serve_metrics(directory=tmp_path / "file")
    with pytest.raises(cdf.errors.NoClusterError, match="this str is not the cluster that is open"):
        cdf.serve_metrics("tcp://127.0.0.1:8786")


def stages_in(scrape):
    return {sample.labels["stage"] for sample in scrape.samples if sample.name == "curator_df_tasks_total"}


def test_stages_of_near_duplicates_have_names_without_numbers(cluster, corpus, tmp_path):
    docs = cdf.read_jsonl(str(corpus))
    with cdf.serve_metrics(cluster, directory=tmp_path) as served:
        found = cdf.find_near_duplicates(docs, workdir=tmp_path / "found", bands_per_iteration=5)
        receipt = cdf.read_receipt(found)
        now = Scrape(served.address)
        served._last_scrape = None
    (exchange,) = receipt.exchanges
    assert exchange.details["iterations"] > 1
    assert stages_in(now) >= {"drop_near_duplicates: signatures", "bands", "pairs", "compare", "groups", "table"}
    assert not [stage for stage in stages_in(now) if re.search(r"\d", stage)]
    assert now.sum("curator_df_exchange_keys_total", step="drop_near_duplicates") == exchange.keys == 600
    assert now.sum("curator_df_exchange_seconds_total") == exchange.seconds
    assert now.sum("curator_df_runs_total", outcome="finished") == 1


def test_several_outputs_are_added_up_and_what_they_share_counts_once(cluster, corpus, tmp_path):
    docs = cdf.read_jsonl(str(corpus)).pipe(cdf.keep_where, "n > 99")
    outputs = {
        tmp_path / "even": docs.pipe(cdf.keep_where, "n % 2 == 0"),
        tmp_path / "third": docs.pipe(cdf.keep_where, "n % 3 == 0"),
    }
    with cdf.serve_metrics(cluster, directory=tmp_path) as served:
        receipts = cdf.write_many(outputs)
        now = Scrape(served.address)
        served._last_scrape = None
    written = [receipt.rows_written for receipt in receipts.values()]
    assert now.sum("curator_df_rows_written_total") == sum(written)
    assert now.sum("curator_df_rows_read_total") == 600
    assert now.sum("curator_df_step_rows_in_total", place="01", step="keep_where") == 600
    assert now.sum("curator_df_step_rows_out_total", place="02", step="keep_where") == sum(written)
