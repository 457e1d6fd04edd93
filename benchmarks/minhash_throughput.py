# SPDX-License-Identifier: Apache-2.0
"""Megabytes of text per second and core through MinHash signatures, and rensa and datasketch beside them.

    python benchmarks/minhash_throughput.py --data ../shared/data

Peers run in the same process when they can be imported. An environment that has them::

    uv venv --python 3.11 peers
    uv pip install --python peers/bin/python rensa==0.5.0 datasketch==2.0.0 -e .

Peers are given n-grams, which their users cut in Python; that time is counted, and shown apart as ``shingling``. ``bound``
is the innermost loop alone (multiply, add, minimum of 32 bits), on hashes that lie in the first-level cache: what signatures
would reach if hashing cost nothing.
"""

from __future__ import annotations

import argparse
import importlib.util
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from kernel_throughput import best_seconds, english_prose, text_bytes

from curator_df.kernels.minhash.scheme import Scheme, permutations
from curator_df.kernels.minhash.signatures import minhash_signatures

PEER_BYTES = 2_000_000
"""Text given to peers: at about 1 MB/s, all of it would take minutes."""
CHARACTERS = Scheme("characters", 24, 20, 13)
WORDS = Scheme("words", 5, 14, 8)


def innermost_rate(hashes: int) -> float:
    """Return the shingles per second of the innermost loop alone."""
    from curator_df.kernels.minhash.sketch import least_32

    multipliers, increments = permutations(hashes, 42, use_64_bit_hash=False)
    shingles = np.random.default_rng(0).integers(0, 1 << 32, 2048, dtype=np.uint32)
    signature = np.full(hashes, (1 << 32) - 1, dtype=np.uint32)
    task = lambda: [least_32(shingles, 2048, multipliers, increments, signature) for _ in range(100)]  # noqa: E731
    task()
    return 204_800 / best_seconds(task)


def our_rate(texts: list[str], scheme: Scheme) -> float:
    """Return bytes per second of signatures."""
    series = pd.Series(texts, dtype="string[pyarrow]")
    minhash_signatures(series[:1], scheme)
    return text_bytes(texts) / best_seconds(lambda: minhash_signatures(series, scheme))


def shingles_of(text: str, scheme: Scheme) -> list[str]:
    """Cut n-grams as users of the peers do."""
    if scheme.ngrams == "characters":
        return [text[at : at + scheme.ngram_size] for at in range(max(len(text) - scheme.ngram_size + 1, 1))]
    words = text.split()
    return [" ".join(words[at : at + scheme.ngram_size]) for at in range(max(len(words) - scheme.ngram_size + 1, 1))]


def peers(scheme: Scheme) -> dict[str, Callable[[str], Any]]:
    """Return what makes a signature of a text, for each peer that is installed."""
    found: dict[str, Callable[[str], Any]] = {"shingling in Python": lambda text: shingles_of(text, scheme)}
    if importlib.util.find_spec("rensa") is not None:
        import rensa  # type: ignore[import-not-found]

        def rensa_signature(text: str) -> Any:
            sketch = rensa.RMinHash(num_perm=scheme.num_hashes, seed=42)
            sketch.update(shingles_of(text, scheme))
            return sketch.digest()

        found[f"rensa {version('rensa')}, RMinHash"] = rensa_signature
    if importlib.util.find_spec("datasketch") is not None:
        import datasketch  # type: ignore[import-not-found]

        def datasketch_signature(text: str) -> Any:
            sketch = datasketch.MinHash(num_perm=scheme.num_hashes, seed=42)
            sketch.update_batch([shingle.encode() for shingle in shingles_of(text, scheme)])
            return sketch.hashvalues

        found[f"datasketch {version('datasketch')}"] = datasketch_signature
    return found


def some_of(texts: list[str]) -> list[str]:
    """Return every n-th text, about `PEER_BYTES` of them."""
    return texts[:: max(text_bytes(texts) // PEER_BYTES, 1)]


def main() -> None:
    """Print rates, ratios and what bounds them."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--data", type=Path, default=Path("../shared/data"), help="directory of the sample files")
    prose = english_prose(parser.parse_args().data)
    plain = [text.encode("ascii", "ignore").decode() for text in prose]
    print(f"{len(prose)} texts, {text_bytes(prose) / 1e6:.1f} MB; numba {version('numba')}")
    for scheme in (CHARACTERS, WORDS):
        label = f"{scheme.ngrams} {scheme.ngram_size}, {scheme.num_hashes} hashes"
        ours = our_rate(plain, scheme)
        print(f"\n{label}\n  ASCII prose                 {ours / 1e6:8.1f} MB/s")
        print(f"  prose                       {our_rate(prose, scheme) / 1e6:8.1f} MB/s")
        wide = Scheme(**{**scheme.__dict__, "use_64_bit_hash": True})
        print(f"  prose, 64 bits              {our_rate(prose, wide) / 1e6:8.1f} MB/s")
        bound = innermost_rate(scheme.num_hashes)
        print(f"  bound                       {bound * scheme.num_hashes / 1e9:8.1f} G multiply-add-minima/s", end="")
        print(f", {bound / 1e6:.0f} M shingles/s")
        some = some_of(prose)
        for name, signature in peers(scheme).items():
            signature(some[0])
            rate = text_bytes(some) / best_seconds(lambda task=signature, given=some: [task(text) for text in given], 1)
            print(f"  {name:27} {rate / 1e6:8.2f} MB/s   ours is {ours / rate:.0f} x")


if __name__ == "__main__":
    main()
