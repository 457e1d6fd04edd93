# SPDX-License-Identifier: Apache-2.0
"""Hashes, signatures, metrics and a filter on a GPU, beside plain cuDF calls and the CPU of the same machine.

    python benchmarks/gpu.py corpus.parquet --page gpu-results.md

Needs a GPU and the gpu extra. The file has a column ``text`` and fits on the device; its texts are there before the clock
starts. Every line is the median of ``--repeat`` calls after one that compiles, beside a copy of the texts on the device (read
once, written once), which says what its memory allows, and its speed as a multiple of plain cuDF's. Results are compared with
those of the CPU before anything is timed, so that a page is also a proof.
"""

from __future__ import annotations

import argparse
import platform
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import dask.dataframe as dd
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from numba import cuda

import curator_df as cdf
from curator_df.kernels.device.columns import texts_of
from curator_df.kernels.device.measured import text_metrics
from curator_df.kernels.device.signatures import text_hashes, text_signatures
from curator_df.kernels.metrics.measure import measure
from curator_df.kernels.minhash.scheme import Scheme
from curator_df.kernels.minhash.signatures import minhash_signatures
from curator_df.kernels.rows.content_hash import column_hashes
from curator_df.profiles import (
    DATATROVE_C4,
    DATATROVE_FINEWEB,
    DATATROVE_GOPHER_QUALITY,
    DATATROVE_GOPHER_REPETITION,
    DCLM_QUALITY,
    DCLM_REPETITION,
    DOLMA_GOPHER_V1,
    NEMO_CODE,
    NEMO_ENGLISH,
)
from curator_df.profiles.minhash import FINEWEB, NEMO

PROFILES = (
    DATATROVE_GOPHER_QUALITY,
    DATATROVE_GOPHER_REPETITION,
    DATATROVE_FINEWEB,
    DATATROVE_C4,
    DCLM_QUALITY,
    DCLM_REPETITION,
    DOLMA_GOPHER_V1,
    NEMO_CODE,
    NEMO_ENGLISH,
)
SCHEMES = (NEMO, replace(NEMO, use_64_bit_hash=True), FINEWEB)
Contest = tuple[str, dict[str, Callable[[], Any]]]


def host(values: Any) -> Any:
    """Return an array of a device on the host."""
    return values.copy_to_host() if hasattr(values, "copy_to_host") else values


def kernels(texts: pd.Series, moved: Any, given: Any) -> Iterator[Contest]:
    """Yield what is timed: name, and by contestant a call. ``moved``: the texts in cuDF; ``given``: their arrays."""
    yield (
        "content hashes",
        {
            "curator_df, CPU": lambda: column_hashes(texts),
            "curator_df, GPU": lambda: text_hashes(given),
            "cuDF xxhash64": lambda: moved.to_frame().hash_values("xxhash64"),
        },
    )
    for scheme in SCHEMES:
        yield (
            f"signatures, {scheme.num_hashes} of {scheme.bits} bits, {scheme.ngram_size} {scheme.ngrams}",
            {
                "curator_df, CPU": lambda scheme=scheme: minhash_signatures(texts, scheme),
                "curator_df, GPU": lambda scheme=scheme: text_signatures(given, scheme),
                "cuDF minhash": cudf_signatures(moved, scheme),
            },
        )
    for profile in PROFILES:
        names = profile.text_metrics
        yield (
            f"metrics of {profile.name}",
            {
                "curator_df, CPU": lambda names=names: measured(texts, names),
                "curator_df, GPU": lambda names=names: text_metrics(given, names),
                "cuDF, words counted and nothing else": moved.str.token_count,
            },
        )


def cudf_signatures(moved: Any, scheme: Scheme) -> Callable[[], Any]:
    """Return the call by which a user of cuDF makes about the same signatures: its n-grams have a word more than it is told."""
    multipliers, increments = scheme.permutations()
    seed, numbers = multipliers[0], [type(moved)(values) for values in (multipliers, increments)]
    bits = "64" if scheme.use_64_bit_hash else ""
    if scheme.ngrams == "characters":
        return lambda: getattr(moved.str, f"minhash{bits}")(seed, *numbers, scheme.ngram_size)
    return lambda: getattr(moved.str.lower().str.split().str, f"minhash{bits}_ngrams")(
        scheme.ngram_size - 1, seed, *numbers
    )


def exact_duplicates(texts: pd.Series, moved: Any, given: Any) -> dict[str, Callable[[], Any]]:
    """Return calls that find the first row of each text: by content hashes, and as cuDF does it, by the texts themselves."""
    return {
        "curator_df, CPU": lambda: first_rows(column_hashes(texts)),
        "curator_df, GPU": lambda: first_rows(host(text_hashes(given))),
        "cuDF drop_duplicates": lambda: moved.drop_duplicates(keep="first"),
    }


def first_rows(hashes: Any) -> Any:
    """Return the positions of the first row of each hash, shape (rows, 2)."""
    return np.flatnonzero(~pd.DataFrame(hashes).duplicated())


def require_same_rows(name: str, calls: dict[str, Callable[[], Any]]) -> None:
    """Stop unless all contestants keep the same rows: positions, or a Series with these as its index."""
    expected, *others = (
        kept if isinstance(kept := call(), np.ndarray) else np.sort(kept.index.to_numpy()) for call in calls.values()
    )
    for found in others:
        np.testing.assert_array_equal(found, expected, err_msg=name)


def measured(texts: pd.Series, names: tuple[str, ...]) -> dict[str, Any]:
    """Return all metrics of a column on the CPU."""
    parts = list(measure(texts, names))
    return {name: np.concatenate([part.values[name] for part in parts]) for name in names}


def require_equal(name: str, calls: dict[str, Callable[[], Any]], valid: Any) -> None:
    """Stop unless the GPU gives the CPU's numbers."""
    expected, found = calls["curator_df, CPU"](), calls["curator_df, GPU"]()
    pairs = [(expected[key], found[key]) for key in expected] if isinstance(expected, dict) else [(expected, found)]
    for one, other in pairs:
        np.testing.assert_array_equal(one[valid], host(other)[valid], err_msg=name)


def seconds_of(call: Callable[[], Any], repeat: int) -> float:
    """Return the median seconds of a call, the device's work included, after one that is not counted."""
    taken = []
    for _ in range(repeat + 1):
        started = time.perf_counter()
        result = call()
        cuda.synchronize()
        taken.append(time.perf_counter() - started)
        del result
    return statistics.median(taken[1:])


def filters(path: str, profile: Any) -> dict[str, Callable[[], Any]]:
    """Return calls that read a file and count the rows that a profile keeps: reading included."""

    def kept(read: Any) -> int:
        return len(read(path, columns=["text"]).pipe(cdf.keep_profile, profile))

    import dask_cudf

    return {"curator_df, CPU": lambda: kept(dd.read_parquet), "curator_df, GPU": lambda: kept(dask_cudf.read_parquet)}


def lines(path: str, repeat: int) -> Iterator[str]:
    """Yield the result page."""
    import cudf

    texts = pd.read_parquet(path, columns=["text"], dtype_backend="pyarrow")["text"]
    moved, valid = cudf.read_parquet(path, columns=["text"])["text"], texts.notna().to_numpy(dtype=bool)
    size = pc.sum(pc.binary_length(pa.array(texts))).as_py()
    packages = ", ".join(f"{name} {version(name)}" for name in ("curator-df", "cudf-cu12", "numba", "numba-cuda"))
    yield f"{len(texts):,} texts, {size / 1e6:,.0f} MB; {cuda.get_current_device().name}; {platform.machine()}; {packages}\n"
    yield "| work | who | median s | MB/s | of a copy | times cuDF |\n|---|---|---|---|---|---|"
    copy = {"cuDF, device to device": lambda: moved.copy(deep=True)}
    yield from rows(
        "copy of the texts", copy, size, repeat, least := seconds_of(copy["cuDF, device to device"], repeat)
    )
    with texts_of(moved) as given:
        contests = list(kernels(texts, moved, given))
        for name, calls in contests:
            require_equal(name, calls, valid)
            yield from rows(name, calls, size, repeat, least)
        calls = exact_duplicates(texts, moved, given)
        require_same_rows("exact duplicates", calls)
        yield from rows("exact duplicates of texts", calls, size, repeat, least)
    for profile in PROFILES:
        calls = filters(path, profile)
        assert calls["curator_df, CPU"]() == calls["curator_df, GPU"]()
        yield from rows(f"read Parquet and keep by {profile.name}", calls, size, repeat, least)


def rows(name: str, calls: dict[str, Callable[[], Any]], size: int, repeat: int, least: float) -> Iterator[str]:
    """Yield the lines of one contest; ``least``: seconds of a copy on the device."""
    taken = {who: seconds_of(call, repeat) for who, call in calls.items()}
    of_cudf = next((seconds for who, seconds in taken.items() if who.startswith("cuDF")), None)
    for who, seconds in taken.items():
        times = "-" if of_cudf is None else f"{of_cudf / seconds:.2f}"
        yield f"| {name} | {who} | {seconds:.4f} | {size / 1e6 / seconds:,.0f} | {least / seconds:.1%} | {times} |"


def main() -> None:
    """Measure, print and write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpus", help="a Parquet file with a column text")
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--page", type=Path, help="where to write the results as Markdown")
    given = parser.parse_args()
    page = []
    for line in lines(given.corpus, given.repeat):
        print(line, flush=True)
        page.append(line)
    if given.page:
        given.page.write_text("\n".join(page) + "\n")


if __name__ == "__main__":
    main()
