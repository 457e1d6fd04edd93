# SPDX-License-Identifier: Apache-2.0
"""Kernels for devices give the CPU's numbers bit for bit in numba's simulator, and compile to code of a GPU. Needs none."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from curator_df import profiles
from curator_df.core.planning.device_plan import DEVICE_FIXED_BYTES
from curator_df.errors import UnsupportedBackendError
from curator_df.kernels.device.support import NORMALIZED_BYTES, require_device_metrics
from curator_df.kernels.metrics.catalog import METRICS
from curator_df.kernels.metrics.counts import FAMILIES
from curator_df.kernels.metrics.measure import measure
from curator_df.kernels.minhash.signatures import minhash_signatures
from curator_df.kernels.rows.content_hash import column_hashes
from curator_df.ops.filters.rules import Profile
from tests.gpu.scripts import CHECKOUT, SCHEMES, STOP_WORDS_OF_TEST, put_texts, run_script

ODD = [
    "",
    None,
    " ",
    "\n",
    "\n\n\n",
    "\r\n a\r\rb \x85c\u2028d",
    "a" * 2100,  # three pieces of a hash
    "ab " * 300,
    "x\n" * 400,
    "one\n\none\n\n\ntwo\none",
    " lorem Ipsum <?xml version= JavaScript { https://a.b/c?d=1 # ## ... \u2026 [...] (\u2026) -\xbb",
    "- a\n\u2022 b\n* c...\n\u25cf d. . .\nTHE Be that HAVE with of",
    "\xc4\xd6\u0130\u03a3 \u1e9e\u212a \u4e00\u4e8c\u4e09 \U0001f600\U0001f468\u200d\U0001f469 e\u0301",
    "\u0645\u0631\u062d\u0628\u0627",
    "\u3000\u2003x\u00a0y\ufeff",
    "\U0001f600" * 300,
    "\u023a" * 400,  # longer in lower case
    "\u023a \u023e\u023a " * 40,
    "\u00e9" * 23,
    "\u00e9" * 24,
    "a\0b\x1cc",
    "12 \u0663\u0664 \uff11 1,234.5",
    "One (e.g. this). Two! Mr. Smith left. \u201cYes.\u201d at the end.Next? J. Doe... so it goes\xbb. \u3002 \u4e00\u3002",
    "This line stays here.[1] And goes on[edit].\nThis one has [\u0663] marks[citation needed].\nand no mark[Edit] here",
    "Here we have a line.\nlorem Ipsum is in this line.\nA { is in this line.",
    "A bracket { is in this line.\nlorem ipsum is in this line.",
    "We ask for JavaScript in this line.\nThe terms of Use of this site.\nWe use of coo\u212aies here.\nThis one stays here.",
    f"a line with {'w' * 1001} in it.\nthis one is fine.\n{'w' * 1000} is short enough.",
    "* one\n- two\n\u2022 three read More\n \u25e6 four [...]\n* one\nfive \u2026\n* one\n\n\n- two\nno mark\t\n",
    " we use cookies here \n\nwe USE coo\u212aIES here\n\nother\n\nother\n\n\n\nother\n",
    "\n lorem ipsum \n\n twice \n\n twice\n\n",
    "the cat can't sit, the cat can't sit; the cat can't sit on 3.14 and 3.14 or \u05d0\"\u05d1 \u30a2\u30a2_a a\u00b2a\u00b2 "
    * 3,
    "to be or not to be that is the question whether it is nobler in the mind to suffer slings and arrows. " * 3,
]


def pieces_of_pages():
    """Return the pages of this repository, in pieces: prose, tables and code."""
    pages = [CHECKOUT / "README.md", *sorted((CHECKOUT / "docs").glob("*.md"))[:3]]
    texts = [page.read_text()[start : start + size] for page in pages for start, size in ((0, 300), (2000, 200))]
    return [*texts, Path(__file__).read_text()[:1100]]


def damaged(texts):
    """Return bytes that are no UTF-8, which Parquet does not check, as text."""
    raw = [text.encode()[cut:-1] for cut, text in enumerate(texts[:4], start=1)] + [
        b"a\xff\xc3(\xf0\x9f\x98 b",
        b"\x80ab",
    ]
    return pa.array(raw, pa.large_binary()).view(pa.large_string())


@pytest.fixture(scope="module")
def texts():
    once = pa.array([*ODD, *pieces_of_pages()], pa.large_string())
    no_text = damaged(["\u00e9\u00e8 x \U0001f600", "\u4e00\u4e8c\u4e09", "ab\u00fc", "z\u00df"])
    return pa.concat_arrays([once, no_text])  # more than a span of rows


@pytest.fixture(scope="module")
def simulated(texts, tmp_path_factory):
    folder = tmp_path_factory.mktemp("simulated")
    put_texts(texts, folder / "texts.arrow")
    run_script("simulated_kernels", folder / "texts.arrow", folder / "found.npz", simulated=True)
    with np.load(folder / "found.npz") as found:
        return dict(found)


def column(texts):
    return pd.Series(pd.array(texts, dtype=pd.ArrowDtype(pa.large_string())))


def test_content_hashes_are_those_of_the_cpu(texts, simulated):
    assert simulated["hashes"].dtype == np.uint64
    np.testing.assert_array_equal(simulated["hashes"], column_hashes(column(texts)))
    np.testing.assert_array_equal(
        simulated["normalized_hashes"], column_hashes(column(texts), normalize="case_and_spaces")
    )


@pytest.mark.parametrize("name", SCHEMES)
def test_signatures_are_those_of_the_cpu(texts, simulated, name):
    found = simulated[name]
    expected = minhash_signatures(column(texts[: len(found)]), SCHEMES[name])
    assert found.dtype == expected.dtype
    assert np.any(found)
    np.testing.assert_array_equal(found, expected)


def test_metrics_are_those_of_the_cpu(texts, simulated):
    known = texts.is_valid().to_numpy(zero_copy_only=False)
    for measured in measure(column(texts), METRICS):
        rows = slice(measured.first_row, measured.first_row + measured.rows)
        for name in METRICS:
            found, expected = simulated[name][rows], measured.values[name]
            assert found.dtype == expected.dtype, name
            # Bits, so that a zero's sign counts too.
            np.testing.assert_array_equal(
                found.view(np.int64)[known[rows]], expected.view(np.int64)[known[rows]], err_msg=name
            )
    assert all(len(np.unique(simulated[name][known])) > 1 for name in METRICS), "a metric tells nothing apart"


def test_stop_words_of_any_list_are_those_of_the_cpu(texts, simulated):
    known = texts.is_valid().to_numpy(zero_copy_only=False)
    [measured] = measure(column(texts), ["stop_word_count"], stop_words=STOP_WORDS_OF_TEST)
    found, (held, price) = simulated["listed_words"], simulated["price_of_listed_words"]
    np.testing.assert_array_equal(found[known], measured.values["stop_word_count"][known])
    assert len(np.unique(found[known])) > 3
    assert 128 * len(STOP_WORDS_OF_TEST) * 4 < held <= price  # a block of threads


def test_metrics_hold_no_more_than_their_price(simulated):
    for number in range(len(FAMILIES)):
        held, known, price, tables = simulated[f"price_{number}"]
        assert 0.5 * known < held <= price, FAMILIES[number]
        assert 0 < tables < DEVICE_FIXED_BYTES


@pytest.mark.parametrize("name", SCHEMES)
def test_signatures_hold_no_more_than_their_price(simulated, name):
    held, price = simulated[f"price_of_{name}"]
    assert 0.3 * price < held <= price


def test_the_price_of_normalised_hashes_is_that_of_their_arrays():
    from curator_df.kernels.text.murmur_hash import PIECE_ROOM

    assert NORMALIZED_BYTES == PIECE_ROOM


def test_thirteen_published_profiles_can_be_measured_on_a_device():
    held = {
        name
        for name in profiles.__all__
        if isinstance(profile := getattr(profiles, name), Profile)
        and profile.text_metrics
        and not set(profile.metrics) - set(METRICS)
    }
    assert held == {
        "DATATROVE_C4",
        "DATATROVE_FINEWEB",
        "DATATROVE_GOPHER_QUALITY",
        "DATATROVE_GOPHER_REPETITION",
        "DCLM_QUALITY",
        "DCLM_REPETITION",
        "DOLMA_C4",
        "DOLMA_GOPHER_V1",
        "DOLMA_GOPHER_V2",
        "FINEWEB_C4",
        "FINEWEB_PAPER",
        "NEMO_CODE",
        "NEMO_ENGLISH",
    }
    page = (CHECKOUT / "docs/gpu.md").read_text()
    assert f"All {len(METRICS)} metrics are made of these counts" in page
    assert all(f"`{name}`" in page for name in held)


def test_what_has_no_kernel_is_refused():
    require_device_metrics("add_metrics", list(METRICS))
    with pytest.raises(UnsupportedBackendError, match="only at white space, and words='icu' was set"):
        require_device_metrics("add_metrics", ["word_count"], "icu")
    with pytest.raises(UnsupportedBackendError, match=r"cannot measure comment_ratio on cuDF blocks; .*'pandas'\)"):
        require_device_metrics("keep_profile", ["word_count", "comment_ratio"])


@pytest.mark.slow
@pytest.mark.parametrize("offsets", [32, pytest.param(64, marks=pytest.mark.proof)])
def test_kernels_compile_to_code_of_a_gpu(offsets):
    sizes = json.loads(run_script("compiled_kernels", offsets, simulated=False))
    assert len(sizes) == 32
    assert min(sizes.values()) > 1_000
