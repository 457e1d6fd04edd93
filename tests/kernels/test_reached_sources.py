# SPDX-License-Identifier: Apache-2.0
"""A compiled kernel is named after the statements that it is made of: all of them, and no others."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import curator_df
from curator_df.kernels.compiling import compile_cache as reached_sources
from curator_df.kernels.compiling.compile_cache import kernel_digest, reached
from curator_df.kernels.compiling.kernel_sets import COMPILE_SECONDS


def forget() -> None:
    reached_sources.kernel_digest.cache_clear()
    reached_sources._module.cache_clear()


@pytest.fixture(scope="module")
def unchanged() -> dict[str, str]:
    """Digests of the kernels of the unchanged package, which are the same in any folder."""
    return digests()


@pytest.fixture
def copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A copy of the package's sources, which digests are made of while the test runs."""
    package = tmp_path / "curator_df"
    shutil.copytree(Path(curator_df.__file__).parent, package, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(reached_sources, "PACKAGE", package)
    forget()
    yield package / "kernels"
    forget()


def digests() -> dict[str, str]:
    forget()
    return {kernel: kernel_digest(kernel) for kernel in COMPILE_SECONDS}


@pytest.fixture
def changed_by(unchanged: dict[str, str]) -> Callable[[Callable[[], object]], set[str]]:
    """Return a function that edits the copy and returns the kernels of other digests."""

    def changed_by(edit: Callable[[], object]) -> set[str]:
        edit()
        after = digests()
        return {kernel for kernel in unchanged if unchanged[kernel] != after[kernel]}

    return changed_by


def replace(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert text.count(old) == 1, old
    path.write_text(text.replace(old, new))


def test_time_comments_docstrings_and_layout_change_nothing(copied, changed_by):
    def edit() -> None:
        for path in copied.rglob("*.py"):
            os.utime(path, (1, 1))
        counts = copied / "metrics/words/word_counts.py"
        replace(counts, '"""Count the words of the text', '"""Now count the words of the text')
        counts.write_text(counts.read_text().replace("    at = start\n", "    # Why.\n\n    at = (start)\n"))

    assert changed_by(edit) == set()


def test_a_changed_helper_changes_the_kernels_that_reach_it_and_no_others(copied, changed_by):
    edit = lambda: replace(copied / "minhash/graphs.py", "while parents[place] !=", "while 0 + parents[place] !=")  # noqa: E731
    assert changed_by(edit) == {"minhash.graphs.join_edges"}


def test_a_helper_of_several_modules_changes_all_that_reach_it(copied, changed_by):
    counts = copied / "metrics/words/word_counts.py"
    changed = changed_by(lambda: replace(counts, "return 0xFFFD, 1\n    second", "return 0xFFFC, 1\n    second"))
    assert {
        "metrics.words.word_counts.count_words_of_span",
        "minhash.sketch.sketch_words_32",
        "metrics.ngrams.gram_counts.count_grams_of_span",
    } <= changed
    assert changed.isdisjoint(
        {"rows.keep_rows.copy_rows", "minhash.graphs.join_edges", "minhash.signatures.hash_bands_32"}
    )


def test_a_constant_that_a_loop_fills_belongs_to_its_kernel(copied, changed_by):
    edit = lambda: replace(copied / "metrics/words/word_counts.py", "_STOP_KEYS[_key *", "_STOP_KEYS[0 * _key *")  # noqa: E731
    changed = changed_by(edit)
    assert "metrics.words.word_counts.count_words_of_span" in changed
    assert "metrics.lines.line_counts.count_lines_of_span" not in changed


def test_what_numba_compiles_in_place_of_a_function_belongs_to_its_kernel(copied, changed_by):
    edit = lambda: replace(copied / "text/swar.py", "return _store(data, at, word)", "return _store(data, at, ~word)")  # noqa: E731
    changed = changed_by(edit)
    assert "minhash.sketch.sketch_words_32" in changed
    assert "metrics.words.word_counts.count_words_of_span" not in changed


def test_how_kernels_are_compiled_belongs_to_every_kernel(copied, changed_by):
    edit = lambda: replace(copied / "compiling/dispatchers.py", '"boundscheck": None', '"boundscheck": False')  # noqa: E731
    assert changed_by(edit) == set(COMPILE_SECONDS)


def test_how_kernels_are_kept_belongs_to_none(copied, changed_by):
    edit = lambda: replace(copied / "compiling/compile_cache.py", "MOST_BYTES = 300_000_000", "MOST_BYTES = 1")  # noqa: E731
    assert changed_by(edit) == set()


CALLED = """
import importlib, sys
from curator_df.kernels.compiling.compiled import LazyFunction
from curator_df.kernels.compiling.kernel_sets import COMPILE_SECONDS

def names(code):
    yield from code.co_names
    for constant in code.co_consts:
        if hasattr(constant, "co_names"):
            yield from names(constant)

for kernel in COMPILE_SECONDS:
    module, _, function = kernel.rpartition(".")
    waiting, seen = [getattr(importlib.import_module(f"curator_df.kernels.{module}"), function)], set()
    while waiting:
        found = waiting.pop()
        if found not in seen:
            seen.add(found)
            function = found.py_func
            used = [function.__globals__.get(name) for name in names(function.__code__)]
            waiting += [value for value in used if isinstance(value, LazyFunction)]
    print(kernel, *(f"{one.py_func.__module__.removeprefix('curator_df.')}:{one.py_func.__name__}" for one in seen))
"""


def test_all_that_compiled_functions_call_is_found():
    """Python itself says which compiled functions the code of each one names."""
    said = subprocess.check_output([sys.executable, "-c", CALLED], text=True)
    lines = said.splitlines()
    assert len(lines) == len(COMPILE_SECONDS)
    for line in lines:
        kernel, *called = line.split(" ")
        module, _, function = kernel.rpartition(".")
        found = {f"{place[0]}:{place[1]}" for place in reached(f"kernels.{module}", function)}
        assert set(called) <= found, kernel
    assert max(len(line.split(" ")) for line in lines) > 20


def test_what_stands_for_others_by_type_reaches_each_of_them(copied, changed_by):
    edit = lambda: replace(copied / "text/murmur_windows.py", "return max(high, _1)", "return max(high, _2)")  # noqa: E731
    assert {
        "minhash.sketch.sketch_words_32",
        "minhash.sketch.sketch_words_64",
        "text.murmur_windows.murmur_64",
    } <= changed_by(edit)
