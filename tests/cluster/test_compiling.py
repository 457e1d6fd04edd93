# SPDX-License-Identifier: Apache-2.0
"""Kernels are compiled by processes of their own before a run, and a user who waits sees it."""

import asyncio
import io
import re
import subprocess
import sys
import time
import types
from typing import Any

import pytest
from distributed import Client, LocalCluster

import curator_df as cdf
from curator_df.cluster import compiling
from curator_df.cluster.compiling import KernelsOnNodes, batches, compile_kernels
from curator_df.core.runner import progress
from curator_df.errors import BudgetError
from curator_df.kernels.compiling import compile_cache
from curator_df.kernels.compiling.compile_cache import is_compiled
from curator_df.kernels.compiling.kernel_sets import (
    CLEANING,
    COMPILE_SECONDS,
    COMPONENTS,
    CONTENT,
    EVERY_RUN,
    JSON_LINES,
    QUOTATION_MARKS,
)


@pytest.fixture(autouse=True)
def empty(tmp_path, monkeypatch):
    """An empty folder of compiled kernels."""
    monkeypatch.setenv("CURATOR_DF_CACHE", str(tmp_path / "cache"))


def test_what_takes_time_is_reported_once_and_only_what_is_named_is_compiled(caplog):
    compile_kernels(COMPONENTS)
    assert all(is_compiled(kernel) for kernel in (*COMPONENTS, *EVERY_RUN))
    assert not any(is_compiled(kernel) for kernel in set(COMPILE_SECONDS) - {*COMPONENTS, *EVERY_RUN})
    said, done = caplog.messages
    assert re.match(
        r"compiling 3 kernels, about [\d.]+ s of CPU time, once on this machine; `curator-df warm --all`", said
    )
    assert re.fullmatch(r"compiled the kernels in [\d.]+ s", done)
    caplog.clear()
    compile_kernels(COMPONENTS)
    assert caplog.messages == []


def test_a_kernel_that_cannot_be_compiled_is_an_error_with_what_was_said():
    with pytest.raises(RuntimeError, match=r"(?s)run `curator-df warm` in a shell to try again.*no attribute 'none'"):
        compiling._compile([["minhash.graphs.none"]], 1, lambda name: None)


KILLED = "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"


def end_compilers(monkeypatch, times, program=KILLED):
    """Let the first processes that compile end as they start, by a real signal or an error; return the kernels of each."""
    started, popen = [], subprocess.Popen

    def start(command, **options):
        started.append(command[3:])
        if len(started) <= times:
            command = [*command[:2], program]
        return popen(command, **options)

    monkeypatch.setattr(compiling.subprocess, "Popen", start)
    return started


def test_a_compiler_that_was_killed_goes_on_with_one_kernel_at_a_time(monkeypatch, caplog):
    started = end_compilers(monkeypatch, 1)
    compile_kernels(COMPONENTS)
    names = sorted({*COMPONENTS, *EVERY_RUN})
    assert started == [names, *([name] for name in names)]
    assert all(is_compiled(name) for name in names)
    assert not any("could not be kept" in message for message in caplog.messages)


@pytest.mark.parametrize("end", [KILLED, "raise MemoryError('no room')", "import os; os._exit(1)"])
def test_a_compiler_that_is_always_killed_is_a_lack_of_memory(monkeypatch, end):
    end_compilers(monkeypatch, 100, end)
    with pytest.raises(BudgetError, match=r"was killed twice: there is too little memory.*Run `curator-df warm --all`"):
        compile_kernels(COMPONENTS)


def test_a_folder_that_cannot_be_written_to_is_named(monkeypatch, caplog):
    monkeypatch.setattr(compiling, "_compile", lambda divided, processes, done: None)
    compile_kernels([])
    assert "could not be kept in" in caplog.messages[1]
    assert "each worker compiles them again, in memory that the plan does not count" in caplog.messages[1]


def test_a_notebook_shows_progress_and_logs_nothing(monkeypatch, caplog):
    shown: list[Any] = []

    class Handle:
        def update(self, what, **_):
            shown.append(what["text/plain"])

    def display(what, **_):
        shown.append(what["text/plain"])
        return Handle()

    monkeypatch.setitem(__import__("sys").modules, "IPython", types.SimpleNamespace())
    monkeypatch.setitem(__import__("sys").modules, "IPython.display", types.SimpleNamespace(display=display))
    monkeypatch.setattr(compiling, "in_notebook", lambda: True)
    monkeypatch.setattr(compiling, "_compile", lambda divided, processes, done: done("rows.keep_rows.copy_rows"))
    known = iter([["rows.keep_rows.copy_rows"], []])
    monkeypatch.setattr(compile_cache, "missing_kernels", lambda kernels: next(known))
    compile_kernels([])
    assert shown[0].startswith("compiling 1 kernel, about ")
    assert shown[-2].endswith(": 1 of 1")
    assert shown[-1].startswith("compiled the kernels in ")
    assert caplog.messages == []


@pytest.mark.parametrize("processes", [1, 2, 5])
def test_kernels_are_divided_evenly_and_no_process_compiles_too_much(processes):
    divided = batches(list(COMPILE_SECONDS), processes)
    assert sorted(kernel for batch in divided for kernel in batch) == sorted(COMPILE_SECONDS)
    seconds = [sum(COMPILE_SECONDS[kernel] for kernel in batch) for batch in divided]
    assert max(seconds) < compiling.BATCH_SECONDS + max(COMPILE_SECONDS.values())
    assert len(divided) >= processes


def test_few_kernels_take_one_process():
    assert batches(list(COMPONENTS), 16) == [sorted(COMPONENTS)]


def test_a_worker_of_a_job_compiles_before_its_first_task(monkeypatch):
    asked = []
    monkeypatch.setattr(compiling, "compile_kernels", lambda kernels, room_bytes: asked.append((kernels, room_bytes)))
    asyncio.run(KernelsOnNodes(["a.b"]).setup(None))
    assert asked == [(("a.b",), 0)]


@pytest.mark.parametrize("memory", [600_000_000, pytest.param(2_000_000_000, marks=pytest.mark.proof)])
def test_a_cluster_compiles_nothing_before_there_is_a_chain_and_then_what_the_chain_or_dask_calls(
    tmp_path, memory, beside_tests
):
    (tmp_path / "in.jsonl").write_text('{"text": "%s"}\n' % ("word  " * 1000) * 400)
    with cdf.start_cluster(memory=beside_tests(memory), cpus=2):
        assert not any(is_compiled(kernel) for kernel in COMPILE_SECONDS)
        docs = cdf.read_jsonl(str(tmp_path / "in.jsonl"))
        chain = docs.pipe(cdf.normalize_whitespace)
        remarks = dict(cdf.explain(chain).remarks)
        assert remarks["compile"].startswith(
            "rows.keep_rows.copy_rows, text.json_texts.take_texts, edits.clean_texts.copy_cleaned: about "
        )
        receipt = cdf.write_parquet(chain, tmp_path / "out")
        assert "compile" not in dict(cdf.explain(chain).remarks)
        assert receipt.rows_written == 400
        compiled = {*EVERY_RUN, *JSON_LINES, *CLEANING}
        assert {kernel for kernel in COMPILE_SECONDS if is_compiled(kernel)} == compiled
        assert len(docs.pipe(cdf.remove_quotation_marks).compute()) == 400
        compiled |= {*QUOTATION_MARKS}
        assert {kernel for kernel in COMPILE_SECONDS if is_compiled(kernel)} == compiled
        assert len(docs.pipe(cdf.sample_rows, 1.0, by="content").persist()) == 400
        assert {kernel for kernel in COMPILE_SECONDS if is_compiled(kernel)} == {*compiled, *CONTENT}


def test_nodes_compile_what_no_earlier_run_needed_until_the_connection_ends():
    calls: list[Any] = []
    client = types.SimpleNamespace(
        status="running",
        id="Client-7",
        register_plugin=lambda plugin: calls.append((plugin.name, plugin.kernels)),
        unregister_worker_plugin=lambda name, nanny: calls.append((name, nanny)),
    )
    compile_on_nodes = compiling.NodeCompiler(client)
    compile_on_nodes.close()
    compile_on_nodes(CLEANING)
    compile_on_nodes(())
    compile_on_nodes(COMPONENTS)
    compile_on_nodes.close()
    assert {name.rpartition("-")[0] for name, _ in calls} == {f"{compiling.PLUGIN_NAME}-Client-7"}
    assert len({name for name, _ in calls}) == 1
    assert [what for _, what in calls] == [
        tuple(sorted((*EVERY_RUN, *CLEANING))),
        tuple(sorted((*EVERY_RUN, *CLEANING, *COMPONENTS))),
        False,
    ]


def test_workers_of_others_compile_beside_their_tasks(tmp_path):
    (tmp_path / "in.jsonl").write_text('{"text": "a  b"}\n' * 40)
    with (
        LocalCluster(
            n_workers=1, threads_per_worker=1, processes=False, memory_limit="3GB", dashboard_address="127.0.0.1:0"
        ) as workers,
        Client(workers) as client,
        cdf.connect(client),
    ):
        docs = cdf.read_jsonl(str(tmp_path / "in.jsonl")).pipe(cdf.normalize_whitespace)
        assert cdf.write_parquet(docs, tmp_path / "out").rows_written == 40
    assert is_compiled(*CLEANING)


@pytest.mark.parametrize("is_terminal", [True, False], ids=["terminal", "log"])
def test_progress_has_the_seconds_once(monkeypatch, is_terminal):
    shown = io.StringIO()
    monkeypatch.setattr(shown, "isatty", lambda: is_terminal)
    monkeypatch.setattr(sys, "stderr", shown)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(compiling, "SHOWN_SECONDS", 0.05)
    monkeypatch.setattr(progress, "LINE_SECONDS", 0.0)
    with compiling._shown(EVERY_RUN) as done:
        done(EVERY_RUN[0])
        time.sleep(0.3)
    lines = [line for line in re.split(r"[\r\n]", shown.getvalue()) if re.search(f"1( of |/){len(EVERY_RUN)}", line)]
    assert lines
    assert not [line for line in lines if re.search(r"\d s\b.*(\d s\b|\d:\d\d:\d\d)", line)]
