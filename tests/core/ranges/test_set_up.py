# SPDX-License-Identifier: Apache-2.0
"""Objects of users that are set up: on real workers, once where it should be once, and taken down when the run ends."""

import json
import os
import subprocess
import sys
import threading
import time

import dask.dataframe as dd
import pandas as pd
import pyarrow.parquet as pq
import pytest

import curator_df as cdf
from curator_df import errors
from curator_df.core.cluster_client import restart
from curator_df.core.planning.lowering import lower
from curator_df.core.ranges.set_up import SetUp, set_up
from curator_df.core.runner import run
from curator_df.core.runner.session import current_session
from curator_df.memory import process_cache as memory_held
from curator_df.memory.process_cache import release_held
from curator_df.memory.resources import Capacity, shared
from tests.contracts.operator_cases import kernels_of

ROWS = 400


class Noting:
    """Writes down what is called, and in which process."""

    def __init__(self, notes, wrong=""):
        self.notes, self.wrong, self.limit = str(notes), wrong, None

    def note(self, what):
        with open(self.notes, "a") as notes:
            notes.write(f"{what} {os.getpid()}\n")
        if what == self.wrong:
            raise ZeroDivisionError("no luck")

    def setup_on_node(self):
        time.sleep(0.2)  # so that the other process comes while this one is at it
        self.note("on_node")

    def setup(self):
        self.note("setup")
        self.limit, self.lock = 100, threading.Lock()  # a lock cannot be pickled

    def __call__(self, block):
        with self.lock:
            self.note("call")
        time.sleep(0.02)
        return block.id >= self.limit

    def teardown(self):
        self.note("teardown")
        self.limit = None


class Marking(Noting):
    """Adds a column."""

    held_bytes = "20MB"

    def __call__(self, block):
        return block.assign(late=super().__call__(block))


def processes(notes, what):
    return [int(line.split()[1]) for line in notes.read_text().splitlines() if line.split()[0] == what]


@pytest.fixture(scope="module")
def cluster():
    with cdf.start_cluster(memory="2GB", cpus=2) as running:
        yield running


@pytest.fixture
def docs(tmp_path, monkeypatch):
    monkeypatch.setattr(run, "SMALL_RANGE_BYTES", 2_000)  # so that there are many tasks
    rows = ({"id": n, "text": f"{n} " + "word " * 20} for n in range(ROWS))
    (tmp_path / "in.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return cdf.read_jsonl(str(tmp_path / "in.jsonl"))


def ids(folder):
    return pq.read_table(folder, columns=["id"])["id"].to_pylist()


def check_once(notes, runs=1):
    """Each process that called set up once before, and was told of the end; one process of them did it for the machine."""
    set_up_in, called_in = processes(notes, "setup"), processes(notes, "call")
    assert len(set_up_in) == len(set(set_up_in)) * runs
    assert set(set_up_in) == set(called_in)
    assert len(called_in) > len(set_up_in)
    assert sorted(processes(notes, "teardown")) == sorted(set_up_in)
    assert len(processes(notes, "on_node")) == runs
    assert os.getpid() not in called_in


def test_a_predicate_is_set_up_once_in_each_worker_and_once_on_the_machine(cluster, docs, tmp_path):
    assert cluster.layout.workers == 2
    notes = tmp_path / "notes"
    receipt = cdf.write_parquet(docs.pipe(cdf.keep_where, Noting(notes)), tmp_path / "out")
    assert ids(tmp_path / "out") == list(range(100, ROWS))
    assert receipt.rows_dropped == 100
    assert len(set(processes(notes, "setup"))) == 2
    check_once(notes)


def test_so_is_what_map_partitions_is_given(cluster, docs, tmp_path):
    notes = tmp_path / "notes"
    meta = docs._meta.assign(late=pd.Series([], dtype=bool))
    marked = docs.map_partitions(Marking(notes), meta=meta, enforce_metadata=False)
    (step,) = lower(marked).steps
    assert (step.name, step.price.held_bytes) == ("map_partitions(Marking)", 20_000_000)
    cdf.write_parquet(marked, tmp_path / "out")
    assert pq.read_table(tmp_path / "out")["late"].to_pylist() == [n >= 100 for n in range(ROWS)]
    check_once(notes)


def test_all_passes_of_a_run_are_one_run_and_the_next_run_is_another(cluster, docs, tmp_path):
    notes = tmp_path / "notes"
    unique = docs.pipe(cdf.keep_where, Noting(notes)).pipe(cdf.drop_exact_duplicates)
    cdf.write_parquet(unique, tmp_path / "out")
    check_once(notes)
    cdf.write_parquet(unique, tmp_path / "again")
    check_once(notes, runs=2)


def test_a_model_of_the_user_may_be_such_an_object(cluster, docs, tmp_path):
    class Lengths(Noting):
        held_bytes = 30_000_000

        def __call__(self, texts):
            self.note("call")
            return [[len(text) + self.limit] for text in texts]

    notes = tmp_path / "notes"
    embedded = docs.pipe(cdf.add_embedding, Lengths(notes), dimensions=1, normalize_vectors=False)
    assert kernels_of(embedded)[0].price.held_bytes == 30_000_000
    cdf.write_parquet(embedded, tmp_path / "out")
    texts = pq.read_table(tmp_path / "out", columns=["text", "embedding"]).to_pylist()
    assert [row["embedding"] for row in texts] == [[len(row["text"]) + 100] for row in texts]
    check_once(notes)


@pytest.mark.parametrize("wrong", ["on_node", "setup"])
def test_what_cannot_be_set_up_ends_the_run_and_sets_no_row_aside(cluster, docs, tmp_path, wrong):
    failing = docs.pipe(cdf.keep_where, Noting(tmp_path / "notes", wrong))
    with pytest.raises(errors.OperatorError, match=r"setup.*\(\) of Noting raised ZeroDivisionError: no luck"):
        cdf.write_parquet(failing, tmp_path / "out", on_error="quarantine")
    assert not (tmp_path / "out/_quarantine").exists()


def test_what_cannot_be_taken_down_is_told_and_the_output_is_whole(cluster, docs, tmp_path):
    failing = docs.pipe(cdf.keep_where, Noting(tmp_path / "notes", "teardown"))
    with pytest.warns(UserWarning, match=r"teardown\(\) of Noting raised ZeroDivisionError: no luck"):
        receipt = cdf.write_parquet(failing, tmp_path / "out")
    assert (receipt.rows_written, len(ids(tmp_path / "out"))) == (ROWS - 100, ROWS - 100)


def test_a_run_that_fails_takes_it_down_too(cluster, docs, tmp_path):
    notes = tmp_path / "notes"
    failing = docs.pipe(cdf.keep_where, Noting(notes)).pipe(cdf.keep_where, lambda block: 1 / 0)
    with pytest.raises(errors.OperatorError, match=r"division by zero on a block of \d+ rows, from|without rows"):
        cdf.write_parquet(failing, tmp_path / "out")
    assert processes(notes, "setup")
    assert sorted(processes(notes, "teardown")) == sorted(processes(notes, "setup"))


def test_a_worker_that_is_started_again_takes_it_down_before(cluster, tmp_path):
    notes = tmp_path / "notes"
    block = pd.DataFrame({"id": [1, 200]})
    address = next(iter(cluster.client.nthreads()))
    made = cluster.client.submit(set_up("here", Noting(notes)), block, workers=[address], pure=False).result()
    assert made.tolist() == [False, True]
    assert processes(notes, "teardown") == []
    assert restart(cluster.client, address)
    assert processes(notes, "teardown") == processes(notes, "setup")


def test_outside_of_a_run_it_is_set_up_where_it_is_called(tmp_path):
    notes = tmp_path / "notes"
    table = dd.from_pandas(pd.DataFrame({"id": [1, 100, 200]}), npartitions=3)
    kept = table.pipe(cdf.keep_where, Noting(notes)).compute(scheduler="synchronous")
    assert kept.id.tolist() == [100, 200]
    release_held()
    here = [os.getpid()]
    assert [processes(notes, what) for what in ("on_node", "setup", "teardown")] == [here, here, here]


def held_here():
    return len(memory_held._held)


def left_here(name, size_bytes):
    with memory_held.outside_of_runs({name: size_bytes}):
        pass


def test_what_a_compute_left_in_workers_goes_before_the_next_plan_and_its_packages_count(cluster, docs, tmp_path):
    notes = tmp_path / "notes"
    assert len(docs.pipe(cdf.keep_where, Noting(notes)).compute()) == ROWS - 100
    assert sum(cluster.client.run(held_here).values()) > 0
    cluster.client.run(left_here, "a package", 50_000_000)
    cdf.write_parquet(docs, tmp_path / "out")
    assert sum(cluster.client.run(held_here).values()) == 0
    assert processes(notes, "teardown") == processes(notes, "setup") != []
    assert dict(current_session().layout.kept)["a package"] == 50_000_000
    assert "a package" in str(cdf.explain(docs))


def test_what_it_holds_is_in_the_plan_or_refused(cluster, docs, tmp_path):
    large = Marking(tmp_path / "notes")
    large.held_bytes = "3GB"
    with pytest.raises(errors.BudgetError, match=r"after 3\.00 GB for steps"):
        cdf.write_parquet(docs.pipe(cdf.keep_where, large), tmp_path / "out")


class Costly:
    """Asks for all threads of its worker, and writes down how many calls there are at a time."""

    held_bytes = "20MB"

    def __init__(self, notes, resources):
        self.notes, self.resources = str(notes), resources

    def setup(self):
        self.lock, self.calls = threading.Lock(), 0

    def __call__(self, block):
        with self.lock:
            self.calls += 1
            with open(self.notes, "a") as notes:
                notes.write(f"{self.calls}\n")
        time.sleep(0.05)
        with self.lock:
            self.calls -= 1
        return block.id >= 0


def calls_at_a_time(docs, notes):
    """Run a step in two threads of a process that has two for it; return the most calls that there were at a time."""
    program = lower(docs)
    block = pd.DataFrame({"id": range(4)})

    def task():
        with shared(Capacity(2)):
            for _ in range(5):
                program.steps[-1].action(block)

    threads = [threading.Thread(target=task) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    release_held()
    return max(int(line) for line in notes.read_text().split())


@pytest.mark.parametrize("of", ["keep_where", "map_partitions"])
def test_no_more_calls_run_at_a_time_than_its_resources_allow(docs, tmp_path, of):
    def step(resources, notes):
        made = Costly(notes, resources)
        if of == "keep_where":
            return docs.pipe(cdf.keep_where, made)
        return docs.map_partitions(made, meta=pd.Series([], dtype=bool)).to_frame()

    assert calls_at_a_time(step(cdf.resources(cpus=2), tmp_path / "one"), tmp_path / "one") == 1
    assert calls_at_a_time(step(cdf.resources(cpus=1), tmp_path / "two"), tmp_path / "two") == 2
    assert calls_at_a_time(step(None, tmp_path / "any"), tmp_path / "any") == 2


def test_resources_that_no_worker_has_are_refused_by_the_plan(cluster, docs, tmp_path):
    for asked, said in ((cdf.resources(gpus=1), "these workers have none"), (cdf.resources(cpus=64), "cpus=64")):
        with pytest.raises(errors.BudgetError, match=said):
            cdf.explain(docs.pipe(cdf.keep_where, Costly(tmp_path / "notes", asked)))
    with pytest.raises(errors.ParameterError, match=r"pass cdf\.model\(\.\.\., resources=\.\.\.\) instead"):
        docs.pipe(cdf.add_class, Costly(tmp_path / "notes", cdf.resources(cpus=1)), labels=["a", "b"])


class WantsMore:
    def setup(self, worker):
        pass

    def __call__(self, block):
        return block.id >= 0


class NoCall:
    def teardown(self):
        pass


class HasALock(Noting):
    def __init__(self, notes):
        super().__init__(notes)
        self.lock = threading.Lock()


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (
            WantsMore,
            r"curator_df calls WantsMore\.setup without arguments, which fails \(missing a required argument: 'worker'\)",
        ),
        (NoCall, "no __call__"),
        (lambda: HasALock("notes"), r"HasALock cannot be sent to workers.*In its method setup\(\)"),
        (lambda: WantsBytes("notes"), "lots"),
    ],
)
def test_what_cannot_work_is_refused_at_the_door(made, said):
    with pytest.raises(errors.ParameterError, match=said):
        set_up("here", made())


class WantsBytes(Noting):
    held_bytes = "lots"


def test_functions_and_classes_are_left_as_they_are():
    assert set_up("here", len) is len
    assert set_up("here", Noting) is Noting
    once = set_up("here", Noting("notes"))
    assert isinstance(once, SetUp)
    assert set_up("here", once) is once


TYPED = """
class Typed:
    def __init__(self, least):
        self.least = least
    def setup(self):
        self.most = {most}
    def __call__(self, block):
        return block.id.between(self.least, self.most)
    @staticmethod
    def teardown():
        return {least}
"""


def typed(most, least, given, lines=0):
    """Return the digest of an object of a class that was typed in a notebook."""
    names = {"__name__": "__main__"}
    exec("\n" * lines + TYPED.format(most=most, least=least), names)
    return set_up("here", names["Typed"](given)).digest


def test_it_is_the_same_when_its_class_is_typed_again_and_another_with_other_code_or_state():
    one = typed(5, 1, 2)
    assert typed(5, 1, 2, lines=9) == one
    assert len({one, typed(6, 1, 2), typed(5, 0, 2), typed(5, 1, 3)}) == 4


WITHOUT_LOCKS = """
import errno, fcntl, os, sys, tempfile, time
from curator_df.core.ranges.set_up import InProcess, set_up

class Once:
    def setup_on_node(self):
        with open(sys.argv[1], "a") as notes:
            notes.write(f"{os.getpid()}\\n")
        time.sleep(float(sys.argv[2]))

    def __call__(self, block):
        return block

def flock(*_):
    raise OSError(errno.ENOLCK, "No locks available")

fcntl.flock = flock
tempfile.tempdir = os.path.dirname(sys.argv[1])
InProcess(set_up("here", Once()), "a run")
"""


def test_where_there_are_no_locks_it_is_set_up_once_on_the_machine_too(tmp_path):
    def start(seconds):
        command = [sys.executable, "-c", WITHOUT_LOCKS, str(tmp_path / "notes"), str(seconds)]
        return subprocess.Popen(command)

    with start(600) as first:  # dies while it is at it
        while not (tmp_path / "notes").exists():
            assert first.poll() is None
            time.sleep(0.05)
        first.kill()
    together = [start(0.5) for _ in range(3)]
    assert [process.wait(timeout=120) for process in together] == [0, 0, 0]
    assert len((tmp_path / "notes").read_text().split()) == 2
    assert [path.suffix for path in tmp_path.iterdir() if path.name != "notes"] == [".once"]
