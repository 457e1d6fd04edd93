# SPDX-License-Identifier: Apache-2.0
"""The benchmarks of a machine with a GPU, as far as they run without one: what a page says, and what is compared."""

import argparse
import importlib
import json
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import dask
import dask.dataframe as dd
import pandas as pd
import pyarrow.parquet as pq
import pytest

from curator_df.memory.gpus import read_gpus

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "benchmarks"))  # they import one another by name
gpu, gpu_end_to_end, gpu_suite = map(importlib.import_module, ("gpu", "gpu_end_to_end", "gpu_suite"))

OUTCOMES = """
import pytest

def test_right(): pass
def test_wrong(): assert False
@pytest.mark.parametrize("number", [1, 2])
def test_elsewhere(number): pytest.skip("needs a moon")
@pytest.fixture
def broken(): raise OSError("no disk")
def test_never_begun(broken): pass
"""
SAID = "To be or not to be, that is the question number {}, and there is no answer to it that all of us would like to hear."


@pytest.fixture
def corpus(tmp_path):
    folder = tmp_path / "corpus"
    folder.mkdir()
    for name, numbers in (("a", range(20)), ("b", range(10, 40))):
        rows = [{"id": f"{name}{number}", "text": SAID.format(number) * 3} for number in numbers]
        (folder / f"{name}.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return folder


@pytest.mark.slow
@pytest.mark.skipif(bool(read_gpus()), reason="by nature: there is a GPU, which the suite would use")
def test_without_a_gpu_the_suite_says_what_was_skipped_and_ends_with_2(corpus, tmp_path):
    page = tmp_path / "page.md"
    command = [sys.executable, "benchmarks/gpu_suite.py", corpus, "--page", page, "--memory", "2GB"]
    command += ["--kernel-bytes", "10000", "--model-bytes", "1000", "--tests", "tests/core/test_backend.py"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=280)
    assert done.returncode == 2, done.stdout + done.stderr
    assert done.stdout.endswith(f"written: {page}\n")
    said = page.read_text()
    assert said.startswith("# Results on a GPU\n")
    assert "There is no GPU here: what needs one was skipped." in said
    assert re.search(r"\n## Tests\n\n[1-9]\d* passed, 0 failed, 0 skipped\.\n", said)
    assert "\n## Kernels\n\nSkipped: needs a GPU.\n" in said
    assert "\n50 rows, 0 MB; 40 written\n" in said.partition("### Each text once")[2]
    assert (
        said.count("| whole run | CPU |")
        == said.count("The GPU's part was not run: gpus=1: the driver finds no GPU")
        == 2
    )
    assert "\nExit code 2.\n" in said
    assert "\n## Models\n" in said


def test_outcomes_of_tests_are_counted_from_the_report_of_pytest(tmp_path):
    (tmp_path / "test_some.py").write_text(OUTCOMES)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir=.", "--junitxml=tests.xml"]
    subprocess.run([*command, "test_some.py"], cwd=tmp_path, capture_output=True, check=False, timeout=120)
    assert list(gpu_suite.outcomes(tmp_path / "tests.xml")) == [
        "1 passed, 2 failed, 2 skipped.",
        "",
        "- failed: `test_some::test_wrong`",
        "- failed: `test_some::test_never_begun`",
        "- skipped, 2: needs a moon",
    ]


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("open(PART, 'w').write('| a |\\n')", (0, ["## Part", "", "| a |", ""])),
        ("open(PART, 'w').write('| b |\\n'); exit(2)", (2, ["## Part", "", "| b |", "", "Exit code 2.", ""])),
        (
            "print('first'); exit('last')",
            (1, ["## Part", "", "Exit code 1. Its last words:", "", "```text", "first", "last", "```", ""]),
        ),
    ],
    ids=["page", "page and code", "last words"],
)
def test_a_part_is_on_the_page_by_its_own_page_or_its_last_words(tmp_path, source, expected):
    page, part = [], tmp_path / "part.md"
    part.write_text("of the part before")
    code = gpu_suite.run("Part", [sys.executable, "-c", f"PART = {str(part)!r}\n{source}"], page, part)
    assert (code, page) == expected


def test_the_tests_that_a_gpu_is_for_exist_and_the_machine_is_described():
    assert [path for path in gpu_suite.TESTS if not (ROOT / path).exists()] == []
    _, packages, gpus = gpu_suite.machine(0)
    assert f"pandas {pd.__version__}" in packages
    assert gpus.startswith("There is no GPU here")


def test_the_first_texts_of_a_corpus_are_written_until_they_are_enough(corpus, tmp_path):
    target = tmp_path / "texts.parquet"
    gpu_suite.write_texts(corpus, target, 1)  # a file is read some megabytes at a time
    assert pq.read_table(target)["text"].to_pylist() == [SAID.format(number) * 3 for number in range(20)]
    with pytest.raises(SystemExit, match="no plain JSON Lines"):
        gpu_suite.write_texts(tmp_path / "nowhere", target, 1)


def test_plain_dask_and_a_run_write_the_same_texts_once(corpus, tmp_path):
    given = argparse.Namespace(corpus=str(corpus), memory="3GB", folder=None)
    files = gpu_end_to_end.files_of(given.corpus)
    assert [Path(path).name for path in files] == ["a.jsonl", "b.jsonl"]
    _, texts = gpu_end_to_end.measure(given, "pandas", gpu_end_to_end.each_text_once, gpu_end_to_end.texts_of)
    with dask.config.set(scheduler="synchronous"):
        gpu_end_to_end.write_plainly(dd.read_json, files, str(tmp_path / "plain"))
    assert gpu_end_to_end.texts_of(tmp_path / "plain") == texts
    assert texts[0] == 40


@pytest.mark.parametrize(
    ("measured", "code", "said"),
    [
        (
            lambda given: (2.0, (40, "ab")),
            0,
            ["| whole run | dask-cudf drop_duplicates | 2.00 | 4 | 1.50 |", "Texts: the same"],
        ),
        (lambda given: (2.0, (41, "cd")), 1, ["Texts: not the same"]),
        (lambda given: 1 / given, 0, ["dask-cudf drop_duplicates ended with TypeError: unsupported operand"]),
    ],
    ids=["same", "others", "fails"],
)
def test_dask_cudf_is_said_to_be_as_fast_as_it_was_or_not_to_have_come_to_an_end(measured, code, said, monkeypatch):
    monkeypatch.setattr(gpu_end_to_end, "measure_peer", measured)
    monkeypatch.setattr(gpu_end_to_end, "version", lambda package: "26.10.0")
    page, cpu = [], SimpleNamespace(input_bytes=8_000_000, seconds=3.0)
    assert gpu_end_to_end.peer_contest(None, page.append, cpu, (40, "ab")) == code
    assert all(line in "\n".join(page) for line in said)


def test_exact_duplicates_are_those_of_drop_duplicates_and_speed_is_a_multiple_of_cudfs(monkeypatch):
    monkeypatch.setattr(gpu, "text_hashes", gpu.column_hashes)
    texts = pd.Series(["a", "b", None, "a", "", "b", None], dtype="string[pyarrow]")
    calls = gpu.exact_duplicates(texts, texts, texts)
    gpu.require_same_rows("exact duplicates", calls)
    assert calls["curator_df, GPU"]().tolist() == [0, 1, 2, 4]
    with pytest.raises(AssertionError, match="other rows"):
        gpu.require_same_rows("other rows", {**calls, "cuDF drop_duplicates": lambda: texts[1:]})
    monkeypatch.setattr(gpu, "seconds_of", lambda call, repeat: call())
    timed = {"curator_df, GPU": lambda: 0.5, "cuDF drop_duplicates": lambda: 2.0}
    assert list(gpu.rows("work", timed, 4_000_000, 5, 0.1)) == [
        "| work | curator_df, GPU | 0.5000 | 8 | 20.0% | 4.00 |",
        "| work | cuDF drop_duplicates | 2.0000 | 2 | 5.0% | 1.00 |",
    ]
    (alone,) = gpu.rows("work", {"curator_df, CPU": lambda: 1.0}, 1_000_000, 5, 0.1)
    assert alone.endswith("| - |")
