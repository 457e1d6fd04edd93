# SPDX-License-Identifier: Apache-2.0
"""TCP or UCX between scheduler and workers."""

import importlib.util
import json
import os
import signal
import subprocess
import sys

import pandas as pd
import pytest
from distributed.security import Security

import curator_df as cdf
from curator_df import errors
from curator_df.cluster.transport import protocol_arguments, require_processes_for
from curator_df.errors import MissingExtraError
from curator_df.memory.budget import choose_layout
from tests.faults.runs import EXPECTED, ROWS, SCRIPT, finish, ids, living, wait_for_ranges, workers_of, write_corpus

HAS_UCX = importlib.util.find_spec("distributed_ucxx") is not None


@pytest.fixture
def installed(monkeypatch):
    """Whether there is a distributed-ucxx, as far as this process is told."""
    real = importlib.util.find_spec

    def tell(there):
        monkeypatch.setattr(
            importlib.util, "find_spec", lambda name: there if name == "distributed_ucxx" else real(name)
        )

    return tell


def test_tcp_takes_security_and_ucx_refuses_it(installed):
    installed(True)
    security = Security(require_encryption=True)
    assert protocol_arguments("tcp", None) == {"security": None}
    assert protocol_arguments("tcp", security) == {"security": security}
    assert protocol_arguments("ucx", None) == {"protocol": "ucx"}
    with pytest.raises(
        errors.ParameterError, match=r"^start_cluster: protocol='ucx' does not support TLS. .* leave security= out"
    ):
        protocol_arguments("ucx", security)


def test_what_is_not_there_is_said_before_anything_starts(installed):
    installed(None)
    with pytest.raises(MissingExtraError, match=r"pip install .*\[ucx\]"):
        cdf.start_cluster(memory="2GB", protocol="ucx")
    with pytest.raises(
        errors.ParameterError, match=r"^start_cluster: protocol='infiniband' is not one of 'tcp', 'ucx'"
    ):
        cdf.start_cluster(memory="2GB", protocol="infiniband")


def test_threads_of_this_process_have_nothing_to_say_by_ucx():
    layout = choose_layout(450_000_000, cpus=2)
    assert layout.in_process
    require_processes_for("tcp", layout)
    with pytest.raises(
        errors.ParameterError,
        match=r"^start_cluster: protocol='ucx' connects worker processes, but memory=450 MB is enough",
    ):
        require_processes_for("ucx", layout)


@pytest.mark.filterwarnings("default")
@pytest.mark.skipif(not HAS_UCX, reason="needs the ucx extra (distributed-ucxx)")
def test_workers_talk_by_ucx_and_a_run_is_as_ever(tmp_path):
    rows = [{"id": number, "text": f"text {number // 2}"} for number in range(2_000)]
    (tmp_path / "in.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    docs = cdf.read_jsonl(tmp_path / "in.jsonl", blocksize="20kB").pipe(cdf.drop_exact_duplicates)
    with cdf.start_cluster(memory="3GB", cpus=2, protocol="ucx") as cluster:
        assert cluster.layout.workers == 2
        assert "protocol   UCX, which listens on every network of this machine and has no TLS" in repr(cluster)
        workers = list(cluster.client.scheduler_info()["workers"])
        assert all(address.startswith("ucx://127.0.0.1:") for address in workers)
        made = cluster.client.submit(bytes, 10_000_000, workers=workers[:1])  # travels from one to the other
        assert cluster.client.submit(len, made, workers=workers[1:]).result() == 10_000_000
        del made
        receipt = cdf.write_parquet(docs, tmp_path / "out")
    assert receipt.rows_written == 1_000
    assert pd.read_parquet(tmp_path / "out")["id"].tolist() == list(range(0, 2_000, 2))
    assert receipt.measured_bytes < receipt.allowed_bytes


@pytest.fixture
def run_by_ucx(tmp_path):
    """A run of many ranges on two workers that talk by UCX, as a process of its own, with what it starts in its group."""
    (tmp_path / "in").mkdir()
    write_corpus(tmp_path / "in/a.jsonl")
    of_ucx = 'all(name.startswith("ucx://") for name in cluster.client.scheduler_info()["workers"])'
    script = SCRIPT.replace("start_cluster(", 'start_cluster(protocol="ucx", ')
    script = script.replace("    with cluster:\n", f"    assert {of_ucx}\n    with cluster:\n")
    assert "protocol=" in script
    assert of_ucx in script
    (tmp_path / "script.py").write_text(script)
    arguments = [str(tmp_path / name) for name in ("script.py", "in", "out")]
    process = subprocess.Popen(
        [sys.executable, *arguments, "3GB", "slow", "raise"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "SLEEP": "0.15"},
        start_new_session=True,
    )
    yield process
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


@pytest.mark.slow
@pytest.mark.skipif(not HAS_UCX, reason="needs the ucx extra (distributed-ucxx)")
def test_a_worker_that_talks_by_ucx_is_killed_and_no_row_is_lost(run_by_ucx, tmp_path):
    wait_for_ranges(tmp_path / "out", 3, run_by_ucx)
    workers = workers_of(run_by_ucx)
    assert len(workers) == 2
    workers[0].send_signal(signal.SIGKILL)
    done = len((tmp_path / "out/_curator/done.jsonl").read_bytes().splitlines())
    receipt = finish(run_by_ucx)
    assert living(workers[:1]) == []
    assert done < receipt["ranges"] - 2  # so that the worker had something to do
    assert (receipt["rows_read"], receipt["rows_written"]) == (ROWS, len(EXPECTED))
    assert ids(tmp_path / "out") == EXPECTED
