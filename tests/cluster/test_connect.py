# SPDX-License-Identifier: Apache-2.0
import asyncio
import json
import os
import signal
import sys
import tempfile
import threading
import time
from types import SimpleNamespace

import dask
import dask.dataframe as dd
import pandas as pd
import pytest
from distributed import Client, LocalCluster, Worker, get_worker, wait
from distributed.comm.core import CommClosedError
from distributed.security import Security

import curator_df as cdf
from curator_df import errors
from curator_df.cluster.connect import verify_workers
from curator_df.core.runner import run, shared_plugins
from curator_df.core.runner.events import TaskEnded
from curator_df.core.runner.session import Patience, current_session
from curator_df.interactive.results import cancel_waiting, reaches_workers
from curator_df.memory.system import NO_LIMIT, PORTABLE, data_limit

MB = 1_000_000


def worker(host, limit_mb, threads=1):
    return {"host": host, "memory_limit": limit_mb * MB, "nthreads": threads}


def what_profiles(dask_worker):
    return type(dask_worker.periodic_callbacks["profile"].callback).__name__


def with_address(block):
    return block.assign(text=pd.array([get_worker().address] * len(block), block["text"].dtype))


def rows_of(folder):
    return [json.loads(line) for file in folder.glob("*.jsonl") for line in file.read_text().splitlines()]


@pytest.fixture
def in_this_process():
    settings = {"memory_limit": "900MB", "host": "127.0.0.1", "dashboard_address": "127.0.0.1:0"}
    of_one = {"processes": False, "protocol": "tcp", "threads_per_worker": 1}
    with LocalCluster(n_workers=1, **of_one, **settings) as running, Client(running) as client:
        yield running, client


def test_the_worker_that_breaks_the_budget_is_named():
    workers = {"tcp://a:1": worker("a", 800), "tcp://a:2": worker("a", 2000), "tcp://b:1": worker("b", 800)}
    with pytest.raises(errors.BudgetError, match=r"tcp://a:2 \(2\.00 GB\)"):
        verify_workers(workers, 2500 * MB)
    assert verify_workers(workers, 4000 * MB).workers == 3


def test_workers_without_a_limit_or_with_too_small_a_one_are_named():
    with pytest.raises(errors.BudgetError, match="tcp://a:1 has no memory limit"):
        verify_workers({"tcp://a:1": worker("a", 0)}, None)
    with pytest.raises(
        errors.BudgetError, match="tcp://a:1 has a memory limit of 100 MB, but the packages that it imports need"
    ):
        verify_workers({"tcp://a:1": worker("a", 100)}, None)
    with pytest.raises(errors.NoClusterError, match="no workers"):
        verify_workers({}, None)


def test_a_running_cluster_is_used_by_address(tmp_path):
    (tmp_path / "a.jsonl").write_text("".join(json.dumps({"id": n, "text": f"t{n}"}) + "\n" for n in range(100)))
    settings = {
        "n_workers": 1,
        "threads_per_worker": 1,
        "memory_limit": "900MB",
        "host": "127.0.0.1",
        "dashboard_address": "127.0.0.1:0",
    }
    with LocalCluster(**settings) as running, Client(running):
        with cdf.connect(running.scheduler_address, memory="1.3GB") as connection:
            assert "1 worker x 1 thread," in repr(connection)
            receipt = cdf.write_parquet(cdf.read_jsonl(str(tmp_path / "a.jsonl")), tmp_path / "out")
            [profiled] = connection.client.run(what_profiles).values()
            assert current_session().client_limit() == 400 * MB
            [(limit_bytes, _)] = connection.client.run(data_limit).values()
        assert "closed" in repr(connection)
        assert receipt.rows_written == 100
        assert profiled == ("_Profile" if sys.version_info < (3, 12) else "method")
        with pytest.raises(errors.BudgetError, match=r"limits of the worker on .* is more than memory=1\.00 GB"):
            cdf.connect(running.scheduler_address, memory="1GB")
        assert (limit_bytes == NO_LIMIT) == PORTABLE
        with Client(running) as other:
            assert [soft for soft, _ in other.run(data_limit).values()] == [NO_LIMIT]


def test_a_worker_that_comes_later_gets_no_rows_unless_it_keeps_the_budget(tmp_path, monkeypatch):
    monkeypatch.setattr(run, "SMALL_RANGE_BYTES", 2_000)  # many ranges
    (tmp_path / "a.jsonl").write_text("".join(json.dumps({"id": n, "text": f"t{n}" * 20}) + "\n" for n in range(2000)))
    settings = {"memory_limit": "900MB", "host": "127.0.0.1", "dashboard_address": "127.0.0.1:0"}
    with LocalCluster(n_workers=1, threads_per_worker=1, **settings) as running, Client(running) as client:
        [first] = client.scheduler_info(n_workers=-1)["workers"]

        async def start(nthreads, memory_limit):
            return await Worker(
                running.scheduler_address, nthreads=nthreads, memory_limit=memory_limit, host="127.0.0.1"
            )

        def write(name):
            docs = cdf.read_jsonl(str(tmp_path / "a.jsonl"), blocksize="2kB")
            return cdf.write_jsonl(docs.map_partitions(with_address, meta=docs._meta), tmp_path / name)

        def come(event):
            if isinstance(event, TaskEnded) and not late:
                late.append(running.sync(start, 4, 0))

        late = []
        with cdf.connect(client, memory="2.2GB"):
            current_session().watchers.append(come)
            with pytest.raises(
                errors.BudgetError,
                match=r"joined after the connection was made and has no memory limit.*at most 1 thread",
            ):
                write("out")
            [bad] = late
            assert {row["text"] for row in rows_of(tmp_path / "out")} <= {first}
            with pytest.raises(errors.BudgetError, match=f"worker {bad.address} joined after"):
                write("other")  # now before anything is planned
            assert not (tmp_path / "other").exists()
            running.sync(bad.close)
            more = [running.sync(start, 1, "900MB") for _ in range(2)]
            with pytest.raises(errors.BudgetError, match=r"the 3 workers on 127\.0\.0\.1 add up to 2\.70 GB"):
                write("other")
            running.sync(more.pop().close)
            receipt = write("other")
            assert receipt.rows_written == 2000
            assert {row["text"] for row in rows_of(tmp_path / "other")} <= {first, more[0].address}
            running.sync(more[0].close)


def test_a_scheduler_is_found_by_its_file(in_this_process, tmp_path):
    running, _ = in_this_process
    with pytest.raises(errors.NoClusterError, match=r"dask scheduler --scheduler-file .*nowhere\.json"):
        cdf.connect(tmp_path / "nowhere.json")
    written = tmp_path / "scheduler.json"
    written.write_text(json.dumps(running.scheduler.identity()))
    with cdf.connect(written) as connection:
        assert connection.client.scheduler.address == running.scheduler_address
        assert connection.client.submit(sum, [1, 2]).result() == 3


@pytest.mark.parametrize(
    ("address", "security"),
    [("localhost", False), ("tcp://127.0.0.1:1", True), ("tls://127.0.0.1:1", False), ("tcp://127.0.0.1:1", False)],
)
def test_an_address_that_is_wrong_is_said_and_leaves_dask_as_it_was(address, security, monkeypatch):
    monkeypatch.setitem(dask.config.config["distributed"]["comm"]["timeouts"], "connect", "1s")
    given = Security.temporary() if security else None
    with pytest.raises(errors.NoClusterError, match=f"no scheduler could be reached at {address}: "):
        cdf.connect(address, security=given)
    assert dask.config.get("scheduler", None) is None
    assert dd.from_pandas(pd.DataFrame({"a": [1, 2]}), npartitions=1)["a"].sum().compute() == 3


def test_a_file_that_is_no_schedulers_is_said(tmp_path):
    (tmp_path / "scheduler.json").write_text("{}")
    with pytest.raises(errors.NoClusterError, match="its answer is not that of a scheduler"):
        cdf.connect(tmp_path / "scheduler.json")
    assert dask.config.get("scheduler", None) is None


def test_what_is_no_scheduler_at_all_is_refused():
    with pytest.raises(errors.ParameterError, match=r"5 is not a distributed\.Client, an address"):
        cdf.connect(5)
    with pytest.raises(errors.ParameterError, match="connect: workdir=3 must be a path"):
        cdf.connect("tcp://127.0.0.1:1", workdir=3)  # before anything is asked
    with pytest.raises(errors.ParameterError, match=r"security=True is not a distributed\.Security\. Pass one"):
        cdf.connect("tcp://127.0.0.1:1", security=True)


def test_on_a_cluster_of_others_a_task_alone_has_what_one_worker_has():
    workers = {f"tcp://{host}:{n}": worker(host, 2000) for host in "abc" for n in range(2)}
    layout = verify_workers(workers, None)
    assert (layout.workers, layout.nodes, layout.node_workers, layout.cpus) == (6, 3, 2, 2)
    assert layout.exclusive_bytes == layout.work_bytes
    assert "3 nodes x 2 worker processes" in layout.shape
    uneven = {"tcp://a:1": worker("a", 2000), "tcp://a:2": worker("a", 2000), "tcp://b:1": worker("b", 2000)}
    assert verify_workers(uneven, None).node_workers >= 2


class EndsItsWorker:
    """A result that ends its worker when it is to be sent, as a lack of memory does."""

    def __init__(self, folder):
        self.folder = folder

    def __reduce__(self):
        with tempfile.NamedTemporaryFile(dir=self.folder, delete=False):
            os.kill(os.getpid(), signal.SIGKILL)


def test_a_result_whose_worker_is_lost_each_time_that_it_is_sent_is_an_error(tmp_path):
    settings = {"memory_limit": "900MB", "host": "127.0.0.1", "dashboard_address": "127.0.0.1:0"}
    with (
        LocalCluster(n_workers=1, threads_per_worker=1, **settings) as running,
        Client(running) as client,
        cdf.connect(client),
    ):
        with pytest.raises(errors.BudgetError, match=r"was lost 4 times before it had sent the result"):
            dask.delayed(EndsItsWorker)(str(tmp_path)).compute()
        # Each time directly, and once more through the scheduler where another worker was there in time. A second request may
        # fail before the lost result was computed again.
        assert 2 <= len(list(tmp_path.iterdir())) <= 8
        assert dask.delayed(sum)([1, 2]).compute() == 3


def test_results_come_directly_from_workers_that_can_be_reached(in_this_process, monkeypatch):
    running, client = in_this_process
    assert reaches_workers(client)
    with cdf.connect(client):
        monkeypatch.setitem(running.scheduler.handlers, "gather", None)
        assert dask.delayed(sum)([1, 2]).compute() == 3

    async def nobody_answers():
        await asyncio.sleep(60)

    monkeypatch.setattr("curator_df.interactive.results.SECONDS_TO_REACH", 0.1)
    with monkeypatch.context() as silent:
        silent.setattr(client, "rpc", lambda address: SimpleNamespace(identity=nobody_answers))
        assert not reaches_workers(client)


def test_a_computation_ends_if_no_worker_comes_back(monkeypatch):
    settings = {"memory_limit": "900MB", "host": "127.0.0.1", "dashboard_address": "127.0.0.1:0"}
    table = pd.DataFrame({"n": range(10)})
    with (
        LocalCluster(n_workers=1, threads_per_worker=1, **settings) as running,
        Client(running) as client,
        cdf.connect(client),
    ):
        session = current_session()
        monkeypatch.setattr(session, "patience", Patience(watch_seconds=0.1))
        monkeypatch.setattr(session, "workless_seconds", 0.5)
        running.scale(0)
        while client.nthreads():
            time.sleep(0.05)
        nthreads, asked = client.nthreads, []

        def sometimes():
            asked.append(1)
            if len(asked) == 2:
                raise OSError("no answer")
            return nthreads()

        monkeypatch.setattr(client, "nthreads", sometimes)
        for waits in (dd.from_pandas(table, 2), dask.delayed(sum)([1, 2])):
            with pytest.raises(errors.WorkerLostError, match="no worker came back within 0 s"):
                waits.compute()
        monkeypatch.setattr(session, "workless_seconds", 60.0)
        running.scale(1)
        assert dd.from_pandas(table, 2)["n"].sum().compute() == 45


class SentSlowly:
    """A result that takes long to be sent."""

    def __init__(self, number):
        self.number = number

    def __reduce__(self):
        time.sleep(2)
        return SentSlowly, (self.number,)


def test_a_computation_ends_if_no_worker_comes_back_for_finished_pieces(monkeypatch):
    settings = {"memory_limit": "900MB", "host": "127.0.0.1", "dashboard_address": "127.0.0.1:0"}
    with (
        LocalCluster(n_workers=1, threads_per_worker=2, **settings) as running,
        Client(running) as client,
        cdf.connect(client),
    ):
        session = current_session()
        monkeypatch.setattr(session, "patience", Patience(watch_seconds=0.02))
        monkeypatch.setattr(session, "workless_seconds", 0.05)
        mine = client.submit(sum, [1, 2], resources={"none there": 1})

        def stop_worker():
            while not any(
                state.status == "finished" for key, state in list(client.futures.items()) if "Slowly" in str(key)
            ):
                time.sleep(0.01)
            [nanny] = running.workers.values()
            os.kill(nanny.pid, signal.SIGKILL)

        values = [dask.delayed(SentSlowly)(n, dask_key_name=f"Slowly-{n}") for n in range(2)]
        ending = threading.Thread(target=stop_worker)
        ending.start()
        with pytest.raises(errors.WorkerLostError, match="no worker came back within 0 s"):
            dask.compute(*values)
        ending.join()
        assert mine.status == "pending"


def test_what_a_computation_waits_for_is_cancelled_and_nothing_else(in_this_process):
    _, client = in_this_process
    unmet = {"resources": {"none there": 1}}
    futures = [client.submit(sum, [1, 2], key="lost"), client.submit(sum, [1], key="there")]
    futures += [client.submit(sum, [n], key=f"{n}", **unmet) for n in range(3)]
    lost, there, first, known, others = futures
    wait([lost, there])
    client.futures["lost"].lose()
    cancel_waiting(client, {"lost", "there", "0", "1"}, {"1"})
    assert [future.status for future in futures] == ["cancelled", "finished", "cancelled", "pending", "pending"]
    cancel_waiting(client, {"there", "1"}, {"1"})  # or it would wait forever
    assert (there.status, known.status, others.status, first.status) == (
        "finished",
        "cancelled",
        "pending",
        "cancelled",
    )


def test_a_closed_client_is_a_lost_scheduler(in_this_process, tmp_path):
    running, _ = in_this_process
    table = dd.from_pandas(pd.DataFrame({"n": range(10)}), 2)
    (tmp_path / "a.jsonl").write_text('{"id": 1}\n')
    with Client(running, set_as_default=False) as client, cdf.connect(client):
        client.close()
        with pytest.raises(errors.SchedulerLostError, match="Start a cluster"):
            client.get(table.expr, table.__dask_keys__())
        with pytest.raises(errors.SchedulerLostError, match="Start a cluster"):
            cdf.write_parquet(cdf.read_jsonl(tmp_path / "a.jsonl"), tmp_path / "out")


def test_workers_that_die_again_and_again_come_back_on_a_local_cluster():
    """Dask closes the nanny of a worker that is missing some time after one of its name was removed, though it starts another."""
    settings = {"memory_limit": "900MB", "host": "127.0.0.1", "dashboard_address": "127.0.0.1:0"}
    with (
        dask.config.set({"distributed.deploy.lost-worker-timeout": "300ms"}),
        LocalCluster(n_workers=1, threads_per_worker=1, **settings) as running,
        Client(running) as client,
    ):
        with cdf.connect(client):
            for _ in range(2):
                (pid,) = client.run(os.getpid).values()
                os.kill(pid, signal.SIGKILL)
                deadline = time.monotonic() + 60
                while not {*client.run(os.getpid, on_error="ignore").values()} - {pid}:  # a new process answers
                    assert time.monotonic() < deadline
                    time.sleep(0.05)
            assert len(running.workers) == 1
        assert "_update_worker_status" not in vars(running)


def changes_of(running, client):
    """What connections have changed of a scheduler, its worker and a client."""
    [worker] = running.workers.values()
    return {
        *running.scheduler.worker_plugins,
        *running.scheduler.nanny_plugins,
        *(name for name in ("submit",) if name in vars(worker.executors["default"])),
        *(name for name in ("get", "_gather_remote", "compute", "persist") if name in vars(client)),
        *(name for name in ("_update_worker_status",) if name in vars(running)),
    }


@pytest.mark.parametrize("is_first", [True, False], ids=["first", "last"])
@pytest.mark.parametrize("is_same_client", [True, False], ids=["one client", "two clients"])
def test_of_two_connections_to_a_scheduler_either_closes_first(in_this_process, is_first, is_same_client):
    running, client = in_this_process
    before = changes_of(running, client)
    connections = [cdf.connect(client if is_same_client else running.scheduler_address) for _ in range(2)]
    left = connections.pop(1 if is_first else 0)
    connections.pop().close()
    [worker] = running.workers.values()
    assert worker.executors["default"].submit.__self__.__class__.__name__ == "SecondTry"
    assert current_session().client is left.client
    assert "get" in vars(left.client)
    assert len([name for name in running.scheduler.worker_plugins if "curator_df" in name]) == 2
    assert dd.from_pandas(pd.DataFrame({"n": range(10)}), 2)["n"].sum().compute() == 45
    left.close()
    assert changes_of(running, client) == before
    assert not is_same_client or client.status == "running"
    assert is_same_client or left.client.status == "closed"


@pytest.mark.parametrize("fails", ["register_plugin", "run_on_scheduler", "keep_budget_of_dask", "open_session"])
def test_a_connection_that_fails_half_way_undoes_everything(in_this_process, monkeypatch, fails):
    running, client = in_this_process
    before, clients = changes_of(running, client), len(running.scheduler.clients)
    made = []

    def fail(*arguments, **options):
        raise KeyboardInterrupt

    if fails in ("register_plugin", "run_on_scheduler"):
        monkeypatch.setattr(Client, fails, fail)
    else:
        monkeypatch.setattr(f"curator_df.cluster.connect.{fails}", fail)
    monkeypatch.setattr(
        Client, "__init__", lambda self, *a, init=Client.__init__, **o: (made.append(self), init(self, *a, **o))[1]
    )
    with pytest.raises(KeyboardInterrupt):
        cdf.connect(running.scheduler_address)
    assert changes_of(running, client) == before
    assert [one.status for one in made] == ["closed"]
    assert len(running.scheduler.clients) == clients
    with pytest.raises(errors.NoClusterError):
        current_session()


@pytest.mark.parametrize("where", ["distributed.Client.scheduler_info", "curator_df.cluster.connect.share_plugin"])
def test_a_scheduler_that_is_lost_while_a_connection_is_made_is_named(in_this_process, monkeypatch, where):
    running, client = in_this_process

    def lost(*_, **__):
        raise CommClosedError("in <TCP (closed)>: Stream is closed")

    monkeypatch.setattr(where, lost)
    said = f"the connection to the scheduler at {running.scheduler_address} was lost, .* connect again"
    with pytest.raises(errors.SchedulerLostError, match=said):
        cdf.connect(client)


def refuse_import():
    raise ImportError("no room for the libraries")


class Unloadable:
    name = "curator_df-connected-worker"

    def __reduce__(self):
        return refuse_import, ()


def test_a_worker_that_cannot_import_the_package_is_named(in_this_process, monkeypatch):
    running, client = in_this_process
    before = changes_of(running, client)
    monkeypatch.setattr("curator_df.cluster.connect.ConnectedWorker", lambda *_: Unloadable())
    said = "a worker cannot run curator_df: ImportError.*no room for the libraries.* connect again"
    with pytest.raises(errors.NoClusterError, match=said) as caught:
        cdf.connect(client)
    assert not getattr(caught.value, "__notes__", [])
    monkeypatch.undo()
    with cdf.connect(client):
        assert changes_of(running, client) != before
    assert changes_of(running, client) == before


def test_plugins_of_a_client_that_is_gone_are_removed_by_a_later_connection(in_this_process, monkeypatch):
    running, client = in_this_process
    before = changes_of(running, client)
    lost = cdf.connect(running.scheduler_address)
    lost.client.close()  # as if its process was killed: the workers still have its plugins
    lost.close()
    assert changes_of(running, client) != before
    with cdf.connect(client):  # the client may be about to reconnect
        assert len([name for name in running.scheduler.worker_plugins if "curator_df" in name]) == 4
    monkeypatch.setattr(shared_plugins, "RECONNECT_SECONDS", 0.0)
    with cdf.connect(client):
        assert len([name for name in running.scheduler.worker_plugins if "curator_df" in name]) == 2
    assert changes_of(running, client) == before
