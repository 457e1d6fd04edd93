# SPDX-License-Identifier: Apache-2.0
"""Run chains from a reader to a writer on doubles of cuDF's blocks, with kernels in numba's CUDA simulator: a script.

The reader is asked for ``backend="cudf"``. Of RAPIDS and the GPU there are doubles alone; all else is the library as it is.
"""

import dataclasses
import json
import os
import sys
import warnings
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType, SimpleNamespace

from distributed import Client, LocalCluster

import curator_df as cdf
from curator_df.core.runner.session import current_session
from curator_df.errors import CuratorError
from curator_df.io import device_transfer
from tests.gpu.chains import CHAINS, FAILING, grouped, rewritten
from tests.gpu.simulator import take_turns
from tests.gpu.stand_ins import DataFrame, stand_in_for_cudf

DEVICE_BYTES = 8_000_000_000
COUNTED_BYTES = 123_456
SPILLED_BYTES = 7_000


def stand_in_for_rmm():
    """Put doubles of RMM's statistics and of cuDF's where they are imported from: each run of a process sees the same bytes."""
    statistics, moved = ModuleType("rmm.statistics"), {}

    class Counting:
        def push_counters(self):
            moved["gpu", "cpu"] = (5_000, 0.1)  # before the run

        @property
        def allocation_counts(self):
            moved["gpu", "cpu"] = (5_000 + SPILLED_BYTES, 0.2)
            return SimpleNamespace(peak_bytes=COUNTED_BYTES)

    statistics.enable_statistics = lambda: None
    # What cuDF puts on top when it spills.
    on_top = SimpleNamespace(get_upstream=Counting)
    spilling = ModuleType("cudf.core.buffer.spill_manager")
    spilling.get_global_manager = lambda: SimpleNamespace(
        statistics=SimpleNamespace(spill_totals=moved), buffers=lambda: ()
    )
    sys.modules[spilling.__name__] = spilling
    rmm = ModuleType("rmm")
    rmm.statistics, rmm.__path__, rmm.__spec__ = statistics, [], ModuleSpec("rmm", None)
    rmm.mr = SimpleNamespace(get_current_device_resource=lambda: on_top)
    sys.modules |= {"rmm": rmm, "rmm.statistics": statistics}


def refusals(read, folder):
    """Yield what is said of chains that cannot run."""
    docs = read()
    session = current_session()
    layout = session.layout
    yield from said(lambda: cdf.normalize_whitespace(docs))
    (folder / "lists.jsonl").write_text('{"text": "a", "tags": [1]}\n')
    yield from said(lambda: cdf.read_jsonl(folder / "lists.jsonl", backend="cudf"))
    session.layout = dataclasses.replace(layout, device_bytes=33_000_000)
    yield from said(lambda: cdf.write_parquet(docs.pipe(cdf.keep_where, "id > 3"), folder / "never"))
    session.layout = dataclasses.replace(layout, device_bytes=0)
    yield from said(lambda: cdf.explain(docs))
    session.layout = layout


def said(call):
    """Yield the error of a call."""
    try:
        call()
    except CuratorError as exc:
        yield [type(exc).__name__, str(exc)]
    else:
        raise AssertionError("a call was not refused")


def main(folder):
    folder = Path(folder)
    warnings.simplefilter("ignore")
    take_turns()
    os.environ["NUMBA_CACHE_DIR"] = str(folder / "cache")  # what is noted of compiled kernels is not true here
    stand_in_for_cudf()
    stand_in_for_rmm()
    device_transfer.read_gpus = lambda: (object(),)
    device_transfer.visible_gpus = lambda: ("0",)

    def read():
        return cdf.read_jsonl(folder / "input", backend="cudf")

    cluster = LocalCluster(
        n_workers=1, threads_per_worker=1, processes=False, memory_limit="3GB", dashboard_address="127.0.0.1:0"
    )
    with cluster, Client(cluster) as client, cdf.connect(client):
        session = current_session()
        session.layout = dataclasses.replace(session.layout, device_bytes=DEVICE_BYTES)
        docs = read()
        assert type(docs._meta) is DataFrame
        for name, chain in CHAINS.items():
            cdf.write_parquet(chain(docs), folder / name, rejects=folder / f"{name}-rejects")
        for name, chain in FAILING.items():
            cdf.write_jsonl(chain(docs), folder / name, on_error="quarantine")
        cdf.write_many({folder / "many-a": docs, folder / "many-b": docs.pipe(cdf.keep_where, "id > 3")})
        rewritten(docs, folder)
        grouped(docs, folder)
        plan = cdf.explain(docs.pipe(cdf.keep_where, "id > 3"))
        results = {"plan": str(plan), "device_bytes": plan.device_bytes, "refusals": list(refusals(read, folder))}
    (folder / "results.json").write_text(json.dumps(results))


if __name__ == "__main__":
    main(*sys.argv[1:])
