# SPDX-License-Identifier: Apache-2.0
"""A text that nobody wrote ends in seconds, in a time that grows with it, through every profile and every operator.

Timed by hand (``pytest -m proof -s``), each at half of the size and at all of it: were time to grow with the square of the
text it would be four times as much, and days in all.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from typing import Any

import pandas as pd
import pytest

import curator_df as cdf
from curator_df.memory.limits import peak_of_call
from curator_df.ops.cleaning.markup import HtmlSettings, text_of_html
from curator_df.ops.filters.source_code import html_text_ratios
from tests.contracts.memory_server import PROSE, run_kernel
from tests.contracts.odd_texts import CHAINS, NOT_MADE, TAGS, TEXTS, odd_text
from tests.contracts.operator_cases import BLOCKWISE, BOUNDED, Case, kernels_of, table, without_verdict

MEGABYTES = 50
PAGE_MEGABYTES = 4
MOST_SECONDS = 120
MOST_GROWTH = 2.6
"""Twice the text, and a quarter for caches that are too small for it, and more for what else the machine does."""
LEAST_SECONDS = 0.5
"""Less than this is compared as if it were so much: the start of a call counts."""
CASES = [case for case in BLOCKWISE if case.operator not in BOUNDED]
timed = pytest.mark.timeout(1800)


def seconds_of(call: Callable[[], Any]) -> float:
    start = time.process_time()
    call()
    return time.process_time() - start


def assert_grows_with_the_text(name: str, call: Callable[[float], Callable[[], Any]], megabytes: float) -> None:
    """Time a call made for a text of some size; ``call`` makes the text, so that this is not timed."""
    call(0.001)()
    half, whole = (seconds_of(call(size)) for size in (megabytes / 2, megabytes))
    if whole > MOST_GROWTH * max(half, LEAST_SECONDS):  # the machine may have been slower meanwhile: once more
        half, whole = (
            min(seconds_of(call(size)), before) for size, before in ((megabytes / 2, half), (megabytes, whole))
        )
    print(f"{name}: {half:.2f} s, {whole:.2f} s, {whole / max(half, 0.01):.2f}")  # noqa: T201 - with -s
    assert whole < MOST_SECONDS
    assert whole <= MOST_GROWTH * max(half, LEAST_SECONDS)


def block_of(text: str) -> pd.DataFrame:
    """Make a block of the columns that the cases use."""
    columns = {"id": pd.array([1], "Int64"), "score": pd.array([5.0], "Float64")}
    columns |= {name: pd.array([text if name == "text" else "a"], "string[pyarrow]") for name in ("text", "title")}
    return pd.DataFrame(columns, index=pd.Index([7], name="address"))


def test_the_chains_make_every_metric():
    assert not NOT_MADE


@pytest.mark.proof
@timed
@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("chain", CHAINS)
def test_a_profile_ends(chain, text):
    [kernel] = kernels_of(table().pipe(cdf.keep_profile, without_verdict(CHAINS[chain])))
    call = lambda size: functools.partial(kernel.run, block_of(odd_text(text, size)))  # noqa: E731
    assert_grows_with_the_text(f"{chain}, {text}", call, MEGABYTES)


@pytest.mark.proof
@timed
@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_an_operator_ends(case: Case, text):
    kernels = kernels_of(case(table()))

    def run(block: pd.DataFrame) -> None:
        for kernel in kernels:
            block = run_kernel(kernel, block).block

    assert_grows_with_the_text(
        f"{case}, {text}", lambda size: functools.partial(run, block_of(odd_text(text, size))), MEGABYTES
    )


PAGES = {
    "text of a page": lambda texts: text_of_html(texts, HtmlSettings(True, False, 10**9)),
    "all text of a page": lambda texts: text_of_html(texts, HtmlSettings(False, True, 10**9)),
    "share of text": lambda texts: html_text_ratios(texts, 0, 10**9),
}


@pytest.mark.proof
@timed
@pytest.mark.parametrize("tag", TAGS)
@pytest.mark.parametrize("page", PAGES)
def test_a_page_ends(page, tag):
    def call(size: float) -> Callable[[], Any]:
        texts = pd.Series([tag * int(size * 1e6 / len(tag))], dtype="string[pyarrow]")
        return functools.partial(PAGES[page], texts)

    assert_grows_with_the_text(f"{page}, {tag}", call, PAGE_MEGABYTES)


@pytest.mark.proof
@timed
@pytest.mark.parametrize("text", [PROSE, "?!"], ids=["prose", "punctuation"])
@pytest.mark.parametrize("chain", CHAINS)
def test_a_document_of_200_mb_costs_its_size_times_the_factor(chain, text):
    [kernel] = kernels_of(table().pipe(cdf.keep_profile, without_verdict(CHAINS[chain])))
    block = pd.DataFrame({"text": pd.array([None, text * (200_000_000 // len(text))], "string[pyarrow]")})
    kernel(block.assign(text=block["text"].str.slice(0, 1000)))
    start = time.process_time()
    extra_bytes, kept = peak_of_call(lambda: kernel(block))
    seconds = time.process_time() - start
    print(f"{chain}: {extra_bytes / 2e8:.2f} of {kernel.price.peak_factor}, {seconds:.0f} s")  # noqa: T201 - with -s
    assert len(kept) == 1
    assert extra_bytes <= kernel.price.peak_factor * 200_000_000
    assert seconds < MOST_SECONDS * 200 / MEGABYTES
