# SPDX-License-Identifier: Apache-2.0
"""Benchmarks import what exists, measure a process tree, and make the input that they say."""

import ast
import importlib
import json
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


def imports():
    """Yield benchmark, module and name of each import from curator_df."""
    for path in sorted(BENCHMARKS.glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and node.module and node.module.partition(".")[0] == "curator_df":
                yield from ((path.name, node.module, alias.name) for alias in node.names)


def test_what_benchmarks_import_exists():
    found = list(imports())
    assert len(found) > 50
    for benchmark, module, name in found:
        there = importlib.import_module(module)
        assert hasattr(there, name) or importlib.util.find_spec(f"{module}.{name}"), f"{benchmark}: {module}.{name}"


@pytest.fixture
def benchmark(monkeypatch):
    """Return a function that imports a benchmark as its script does."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    names = {path.stem for path in BENCHMARKS.glob("*.py")}
    yield importlib.import_module
    for name in names & sys.modules.keys():
        del sys.modules[name]


def test_a_run_is_measured_with_all_of_its_processes(benchmark):
    child = "held = bytearray(60_000_000); held[::1000] = bytes(60_000); import time; time.sleep(0.4)"
    parent = f"import subprocess, sys; print('said'); subprocess.run([sys.executable, '-c', {child!r}])"
    done = benchmark("sampled_process").run_sampled([sys.executable, "-c", parent])
    assert (done.out, done.returncode) == ("said\n", 0)
    assert done.peak_bytes > 60_000_000
    assert done.cpu_seconds > 0.0
    assert done.seconds > 0.4


def test_copies_have_ids_of_their_own_and_each_row_as_often_as_asked(benchmark, tmp_path):
    rows = [{"id": f"d{number}", "text": f"{number} é\n"} for number in range(50)]
    (tmp_path / "in.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    module = benchmark("peers_exact_duplicates")
    module.write_copies(str(tmp_path / "in.jsonl"), 3, str(tmp_path / "out.jsonl"))
    copies = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    texts = [row["text"] for row in rows]
    parts = [[row["text"] for row in copies[start : start + 50]] for start in (0, 50, 100)]
    assert all(sorted(part) == sorted(texts) for part in parts)
    assert parts[0] != parts[1] != parts[2] != texts
    assert len({row["id"] for row in copies}) == 150
    assert module.count_unique(str(tmp_path / "out.jsonl")) == 50


def test_small_inputs_are_whole_rows_and_every_job_has_a_script_for_each_contestant(benchmark, tmp_path):
    module = benchmark("small_runs")
    (tmp_path / "in.jsonl").write_text('{"text": "é"}\n' * 10)
    module.write_start(str(tmp_path / "in.jsonl"), 50, str(tmp_path / "start.jsonl"))
    assert (tmp_path / "start.jsonl").read_text() == '{"text": "é"}\n' * 3
    with pytest.raises(SystemExit, match="has only 150 bytes"):
        module.write_start(str(tmp_path / "in.jsonl"), 1000, str(tmp_path / "start.jsonl"))
    for job in module.JOBS:
        scripts = module.scripts(job, 1_000_000_000, baseline="other")
        assert {"curator_df", "curator_df, command", "curator_df, baseline", "duckdb", "daft"} <= scripts.keys()
        for name, script in scripts.items():
            compile(script, name, "exec")
