# SPDX-License-Identifier: Apache-2.0
"""Each operator and each reader names all compiled functions that it calls: workers may not compile."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import curator_df as cdf
from curator_df.core.runner import session
from curator_df.kernels.compiling.compiled import LazyFunction
from curator_df.kernels.compiling.kernel_sets import COMPILE_SECONDS, EVERY_RUN, OPERATORS
from curator_df.kernels.rows.content_hash import column_hashes
from tests.contracts.operator_cases import BLOCKWISE, TOKENIZER, computed, kernels_of, table
from tests.contracts.test_on_workers import RUNS, write_corpus
from tests.core.runner.fake_client import inline_cluster


@pytest.fixture
def called(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """The kernels that Python calls while a test runs, whatever module imported them before."""
    found: set[str] = set()
    call = LazyFunction.__call__

    def noted(function: Any, *arguments: Any, **named: Any) -> Any:
        name = f"{function.py_func.__module__.removeprefix('curator_df.kernels.')}.{function.py_func.__name__}"
        if name in COMPILE_SECONDS:
            found.add(name)
        return call(function, *arguments, **named)

    monkeypatch.setattr(LazyFunction, "__call__", noted)
    return found


def test_calls_are_seen_whatever_imported_the_kernel(called: set[str]) -> None:
    list(column_hashes(pd.Series(["one"], dtype="string[pyarrow]")))
    assert called == {"text.murmur_hash.hash_texts"}


@pytest.mark.parametrize("case", BLOCKWISE, ids=str)
def test_a_block_calls_what_its_kernel_names(case: Any, called: set[str]) -> None:
    built = case(table())
    called.clear()
    computed(built)
    named = {kernel for one in kernels_of(built) for kernel in one.compiled}
    assert called <= named | set(EVERY_RUN)
    assert named <= set(COMPILE_SECONDS)
    assert named <= set(OPERATORS.get(case.operator, ()))


def of_shared_bands(docs: Any, out: Path) -> Any:
    return cdf.write_parquet(docs.pipe(cdf.drop_near_duplicates, scheme="nemo", jaccard_threshold=None), out)


def of_groups_of_groups(docs: Any, out: Path) -> Any:
    return cdf.write_parquet(docs.pipe(cdf.drop_near_duplicates, jaccard_threshold=0.5, linkage="transitive"), out)


def joined_with_a_frame(docs: Any, out: Path) -> Any:
    return cdf.write_parquet(docs.pipe(cdf.join, pd.DataFrame({"id": [3, 5], "label": ["a", "b"]}), on="id"), out)


def joined_with_files_of_another_format(docs: Any, out: Path) -> Any:
    kept = cdf.checkpoint(docs.pipe(cdf.keep_where, "id >= 0"), out.with_name("kept"))
    scores = docs.pipe(cdf.normalize_whitespace).pipe(cdf.keep_where, "score > 5")
    return cdf.write_parquet(kept.pipe(cdf.join, scores, on="id", how="semi"), out)


def concatenated(docs: Any, out: Path) -> Any:
    (out.with_name("rows.csv")).write_text("id,text,lang,score\n1,one  two,en,3\n")
    more = cdf.read_csv(str(out.with_name("rows.csv"))).pipe(cdf.normalize_whitespace)
    return cdf.write_parquet(cdf.concat([docs, more]), out)


def counted_by_domain(docs: Any, out: Path) -> Any:
    pytest.importorskip("tldextract", reason="needs the extra urls")
    sites = docs.map_partitions(with_urls, meta=with_urls(docs._meta))
    assert len(cdf.describe_domains(sites, workdir=out.with_name("work")))


def described(docs: Any, out: Path) -> Any:
    assert cdf.describe(docs, by="lang", workdir=out.with_name("work"))["rows"].sum() > 0


def in_tokens(docs: Any, out: Path) -> Any:
    pytest.importorskip("tokenizers", reason="needs the tokenizers extra")
    return cdf.write_tokens(docs, out, tokenizer=TOKENIZER, eos_token=0)


def with_urls(block: Any) -> Any:
    """Add a column of URLs."""
    return block.assign(url="https://a.example.org/" + block["id"].astype("string[pyarrow]"))


MORE_RUNS = (
    of_shared_bands,
    of_groups_of_groups,
    joined_with_a_frame,
    joined_with_files_of_another_format,
    concatenated,
    counted_by_domain,
    described,
    in_tokens,
)


@pytest.mark.parametrize("write", RUNS + MORE_RUNS, ids=lambda write: write.__name__)
def test_a_run_calls_what_its_plan_names(
    write: Any, called: set[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    named: set[str] = set(EVERY_RUN)
    write_corpus(tmp_path / "in")
    with inline_cluster(memory="4GB", cpus=2):
        monkeypatch.setattr(session.current_session(), "compile", named.update)
        docs = cdf.read_jsonl(str(tmp_path / "in"), on_bad_rows="quarantine")
        write(docs, tmp_path / "out")
    assert called <= named
    assert len(named) < len(COMPILE_SECONDS) / 2
