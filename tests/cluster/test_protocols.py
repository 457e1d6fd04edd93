# SPDX-License-Identifier: Apache-2.0
"""TCP or UCX between scheduler and workers."""

import importlib.util
import json

import pandas as pd
import pytest
from distributed.security import Security

import curator_df as cdf
from curator_df import errors
from curator_df.cluster import protocols
from curator_df.cluster.protocols import protocol_arguments, require_processes_for
from curator_df.core.memory.budget import choose_layout

HAS_UCX = importlib.util.find_spec("distributed_ucxx") is not None


@pytest.fixture
def installed(monkeypatch):
    """Whether there is a distributed-ucxx, as far as this process is told."""
    real = importlib.util.find_spec

    def tell(there):
        monkeypatch.setattr(
            protocols.importlib.util, "find_spec", lambda name: there if name == "distributed_ucxx" else real(name)
        )

    return tell


def test_tcp_takes_security_and_ucx_refuses_it(installed):
    installed(True)
    security = Security(require_encryption=True)
    assert protocol_arguments("tcp", None) == {"security": None}
    assert protocol_arguments("tcp", security) == {"security": security}
    assert protocol_arguments("ucx", None) == {"protocol": "ucx"}
    with pytest.raises(errors.ParameterError, match=r"protocol='ucx' has no TLS: leave security= out"):
        protocol_arguments("ucx", security)


def test_what_is_not_there_is_said_before_anything_starts(installed):
    installed(None)
    with pytest.raises(errors.ParameterError, match=r"needs distributed-ucxx.*pip install 'curator-df\[ucx\]'"):
        cdf.start_cluster(memory="2GB", protocol="ucx")
    with pytest.raises(errors.ParameterError, match="protocol='infiniband' must be one of 'tcp', 'ucx'"):
        cdf.start_cluster(memory="2GB", protocol="infiniband")


def test_threads_of_this_process_have_nothing_to_say_by_ucx():
    layout = choose_layout(450_000_000, cpus=2)
    assert layout.in_process
    require_processes_for("tcp", layout)
    with pytest.raises(errors.ParameterError, match="protocol='ucx' is for worker processes, and memory=450 MB leaves"):
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
